/* flash_blocks.c: units with a block map: how they are cut, what is packed, which order, and the walk of a
 * list.
 *
 * Each key block of the map is packed by itself, so that a list can name it; those that no list of the unit
 * names are left out. A block of rows takes as many listed blocks at a time as a tile has columns, adjacent
 * or not, and goes through products and softmax once for all of them. Blocks that some row sees in part only
 * go through by themselves, as without a map. */
#include <stdio.h>

#include "backends/flash_rows.h"

/* ---- cutting --------------------------------------------------------------------------------------- */

static int64_t ceil_div(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* `size` in parts of nearly equal size, at most `most` each. */
static int64_t parts_of(int64_t size, int64_t most)
{
    return size > most ? ceil_div(size, most) : 1;
}

flash_tiles flash_cut_map(const flash_plan *plan, const attn_problem *p, int64_t group)
{
    int64_t rows = smaller(p->block_q, p->q_len > 0 ? p->q_len : 1);
    int64_t keys = smaller(p->block_k, p->kv_len > 0 ? p->kv_len : 1);
    flash_tiles t = {.heads = 1, .head_blocks = group};
    t.row_parts = parts_of(rows, plan->row_cap);
    t.key_parts = parts_of(keys, plan->key_cap);
    t.rows = ceil_div(rows, t.row_parts);
    t.keys = attn_round_up(ceil_div(keys, t.key_parts), plan->kernels.panel);
    t.key_parts = ceil_div(keys, t.keys);
    t.row_blocks = plan->q_blocks * t.row_parts;
    t.key_blocks = plan->kv_blocks * t.key_parts;
    return t;
}

int64_t flash_pack_step(const flash_run *run, const flash_unit *unit)
{
    int64_t step = unit->tiles.key_parts ? run->plan->key_cap / unit->tiles.keys : 1;
    return step > 0 ? step : 1;
}

/* ---- what the lists of a unit have in common --------------------------------------------------------- */

static size_t add(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

static size_t times(int64_t a, int64_t b, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow((size_t)a, (size_t)b, &bytes) || __builtin_mul_overflow(bytes, size, &bytes))
        return SIZE_MAX;
    return bytes;
}

void flash_lay_out_map(flash_plan *plan, const attn_problem *p, size_t *shared)
{
    size_t units = times(p->batch, p->kv_heads, 1), rows = times(p->batch, p->heads, 1);
    plan->layout.order = *shared;
    *shared = add(*shared, times((int64_t)rows, plan->q_blocks, sizeof(int64_t)));
    plan->layout.used = *shared;
    *shared = add(*shared, times((int64_t)units, plan->kv_blocks, 1));
    *shared = add(*shared, 63) / 64 * 64;
}

static uint8_t *used_of(const flash_run *run, int64_t unit)
{
    return (uint8_t *)run->call->shared + run->plan->layout.used + unit * run->plan->kv_blocks;
}

/* Query blocks of all heads of a unit, the longest list first. An entry holds what orders it above and the
 * number (head of the group times query blocks plus block) below. */
static int64_t *order_of(const flash_run *run, int64_t unit)
{
    int64_t *order = (int64_t *)(void *)((char *)run->call->shared + run->plan->layout.order);
    return order + unit * run->group * run->plan->q_blocks;
}

static void sink(int64_t *heap, int64_t at, int64_t count)
{
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && heap[child + 1] > heap[child]) child++;
        if (heap[at] >= heap[child]) return;
        int64_t moved = heap[at];
        heap[at] = heap[child];
        heap[child] = moved;
    }
}

static void sort(int64_t *values, int64_t count)
{
    for (int64_t at = count / 2; at-- > 0;) sink(values, at, count);
    while (count-- > 1) {
        int64_t top = values[0];
        values[0] = values[count];
        values[count] = top;
        sink(values, 0, count);
    }
}

static void read_unit(void *arg, int64_t unit, int32_t worker)
{
    const flash_run *run = arg;
    const attn_call *call = run->call;
    const attn_problem *p = call->problem;
    int64_t blocks = run->plan->q_blocks, *order = order_of(run, unit);
    uint8_t *used = used_of(run, unit);
    (void)worker;
    for (int64_t j = 0; j < run->plan->kv_blocks; j++) used[j] = 0;
    for (int64_t n = 0; n < run->group * blocks; n++) {
        int64_t count, head = unit % p->kv_heads * run->group + n / blocks;
        const int32_t *list = attn_block_list(&call->blocks, unit / p->kv_heads, head, n % blocks, &count);
        for (int64_t j = 0; j < count; j++) used[list[j]] = 1;
        order[n] = (run->plan->kv_blocks - count) << 32 | n;
    }
    sort(order, run->group * blocks);
}

void flash_read_map(const attn_host *host, flash_run *run)
{
    const attn_problem *p = run->call->problem;
    host->parallel_for(host, p->batch * p->kv_heads, run->call->workers, read_unit, run);
}

int flash_block_used(const flash_run *run, const flash_unit *unit, int64_t index)
{
    return !unit->tiles.key_parts || used_of(run, unit->index)[index / unit->tiles.key_parts];
}

void flash_report_map(const attn_call *call)
{
    const attn_block_lists *l = &call->blocks;
    attn_report *report = attn_call_report(call);
    if (!report) return;
    for (int64_t b = 0; b < l->batch; b++)
        for (int64_t h = 0; h < l->heads; h++)
            for (int64_t i = 0; i < l->q_blocks; i++) {
                int64_t count;
                attn_block_list(l, b, h, i, &count);
                report->kept += count;
                report->total += l->kv_blocks;
            }
    snprintf(report->text, sizeof report->text, "%lld of %lld pairs of blocks", (long long)report->kept,
             (long long)report->total);
}

/* ---- the walk --------------------------------------------------------------------------------------- */

void flash_place_listed(flash_rows *job, int64_t index)
{
    const flash_run *run = job->run;
    const flash_unit *unit = job->unit;
    const int64_t *starts = run->extra.row_starts;
    int64_t parts = unit->tiles.row_parts, size = job->p->block_q;
    int64_t number = order_of(run, unit->index)[index / parts] & 0xffffffff;
    int64_t block = number % run->plan->q_blocks;
    int64_t first = starts ? starts[block] : block * size, end = starts ? starts[block + 1] : first + size;
    job->head = unit->kv_head * run->group + number / run->plan->q_blocks;
    job->first = first + index % parts * unit->tiles.rows;
    end = smaller(end, smaller(job->first + unit->tiles.rows, unit->rows.q_len));
    job->each = end > job->first ? end - job->first : 0;
    job->rows = (int32_t)job->each;
    job->first_next = -1;
    job->list = attn_block_list(&run->call->blocks, unit->batch, job->head, block, &job->listed);
}

/* Every row sees all keys of the tile. */
static int whole(const flash_rows *job, const flash_tile *t)
{
    if (job->masked_rows || job->cap > 0 || t->block->masked) return 0;
    for (int32_t r = 0; r < job->rows; r++)
        if (job->ranges[r].lo > t->first || job->ranges[r].hi < t->first + t->keys) return 0;
    return 1;
}

enum { TILES_MOST = ATTN_KEYS_MAX / 8 };

/* Tiles that wait until a step is full. */
typedef struct step {
    flash_tile tiles[TILES_MOST];
    int32_t count, most;
} step;

static void flush(const flash_rows *job, step *s)
{
    if (s->count) flash_do_tiles(job, s->tiles, s->count);
    s->count = 0;
}

static void set_packed(const flash_rows *job, const char *slot, int64_t index, flash_tile *t)
{
    const flash_layout *l = &job->run->plan->layout;
    int64_t keys = index * job->unit->tiles.keys;
    *t = (flash_tile){.packed_keys = slot + l->keys + flash_key_bytes(job->run, keys),
                      .packed_values = slot + l->values + flash_value_bytes(job->run, keys)};
}

/* Lists are cut into steps of equal size; how, depends on the list alone. */
static int32_t step_of(const flash_rows *job, int64_t blocks)
{
    int64_t most = job->run->plan->key_cap / job->unit->tiles.keys;
    if (most > TILES_MOST) most = TILES_MOST;
    if (most < 1 || blocks < 1) return 1;
    return (int32_t)ceil_div(blocks, ceil_div(blocks, most));
}

void flash_walk_list(flash_rows *job, const char *slot)
{
    const flash_block *blocks = (const flash_block *)(const void *)(slot + job->run->plan->layout.blocks);
    int64_t parts = job->unit->tiles.key_parts;
    step s = {.count = 0, .most = step_of(job, job->listed * parts)};
    for (int64_t n = 0; n < job->listed * parts; n++) {
        int64_t index = job->list[n / parts] * parts + n % parts;
        flash_tile *t = &s.tiles[s.count];
        set_packed(job, slot, index, t);
        if (!flash_set_tile(job, index, &blocks[index], t)) continue;
        t->starts = t->last = 0;
        if (attn_call_cancelled(job->call)) {
            atomic_store(&job->run->cancelled, 1);
            return;
        }
        if (whole(job, t)) {
            if (++s.count == s.most) flush(job, &s);
            continue;
        }
        flash_tile partial = *t;
        flush(job, &s);
        flash_do_tile(job, &partial);
    }
    flush(job, &s);
}
