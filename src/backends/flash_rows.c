/* flash_rows.c: one block of query rows from the queries to the output. */
#include "backends/flash_rows.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* Row intervals, and the interval that holds them all. */
static void set_ranges(flash_rows *job)
{
    attn_interval all = {INT64_MAX, 0};
    for (int32_t r = 0; r < job->rows; r++) {
        attn_interval *keys = &job->ranges[r];
        *keys = r < job->each ? flash_row_keys(job->run, job->unit, flash_row_of(job, r))
                              : job->ranges[r - job->each];
        if (keys->lo >= keys->hi) continue;
        if (keys->lo < all.lo) all.lo = keys->lo;
        if (keys->hi > all.hi) all.hi = keys->hi;
    }
    job->all = all;
}

/* What turns a product of a query and a key into a score. */
static double scale_of(const flash_rows *job)
{
    return job->natural ? job->p->scale : job->p->scale * LOG2E;
}

static void load_queries(const flash_rows *job, int direct)
{
    const attn_problem *p = job->p;
    double scale = job->kernels->scale_last ? copysign(1, scale_of(job)) : scale_of(job);
    for (int32_t r = 0; r < job->rows; r++)
        job->query_rows[r] = flash_query_row(job, flash_row_of(job, r), flash_head_of(job, r));
    if (direct)
        job->kernels->direct_queries(job->queries, job->query_rows, job->rows, (int32_t)p->dtype,
                                     p->q_stride[3], p->head_dim, (float)scale);
    else
        job->kernels->pack_queries(job->queries, job->query_rows, job->rows, (int32_t)p->dtype,
                                   p->q_stride[3], p->head_dim, (float)scale, job->turn);
}

/* Divides by the sum, to which the sink adds its share: it moves the maximum like any other logit. A row
 * whose sum is zero has seen no key. */
static void store_row(const flash_rows *job, int32_t r)
{
    const attn_problem *p = job->p;
    int64_t h = flash_head_of(job, r), dv = p->value_head_dim;
    double top = job->top[r], sum = job->sum[r], unit = job->natural ? LOG2E : 1, share = 1;
    float *out = job->out + r * flash_out_ld(job);
    if (sum == 0) {
        memset(out, 0, (size_t)dv * sizeof *out);
    } else if (job->call->sinks) {
        double sink = job->call->sinks[h] * (LOG2E / unit), most = sink > top ? sink : top;
        share = exp2((top - most) * unit);
        sum = sum * share + exp2((sink - most) * unit);
        top = most;
    }
    job->kernels->narrow(flash_out_row(job, r), p->out_dtype, p->out_stride[3], out,
                         sum == 0 ? 0 : (float)(share / sum), dv);
    if (!job->call->lse) return;
    int64_t i = job->unit->rows.q0 + flash_row_of(job, r);
    job->call->lse[job->unit->batch * p->lse_stride[0] + h * p->lse_stride[1] + i * p->lse_stride[2]] =
        sum == 0 ? -INFINITY : (float)((top + log2(sum) / unit) * (job->natural ? 1 : LN2));
}

/* ---- the item -------------------------------------------------------------------------------------- */

static void set_memory(flash_rows *job, const flash_layout *l, char *scratch)
{
    job->queries = scratch + l->queries;
    job->scores = (float *)(void *)(scratch + l->scores);
    job->out = (float *)(void *)(scratch + l->out);
    job->best = (float *)(void *)(scratch + l->best);
    job->top = (float *)(void *)(scratch + l->top);
    job->sum = (float *)(void *)(scratch + l->sum);
    job->decay = (float *)(void *)(scratch + l->decay);
    job->bias = (float *)(void *)(scratch + l->bias);
    job->turn = (float *)(void *)(scratch + l->turn);
    job->ranges = (attn_interval *)(void *)(scratch + l->ranges);
    job->query_rows = (const void **)(void *)(scratch + l->rows);
    job->key_keep = (uint8_t *)scratch + l->keep;
    job->row_keep = job->key_keep + ATTN_KEYS_MAX;
    job->seen = job->row_keep + ATTN_KEYS_MAX;
    job->tree_keep = job->seen + ATTN_KEYS_MAX;
    job->slopes = job->bias + ATTN_KEYS_MAX;
}

/* Block `index` of the unit's rows. */
static flash_rows make_rows(flash_run *run, const flash_unit *unit, int64_t index, char *scratch)
{
    const attn_problem *p = run->call->problem;
    const flash_tiles *tiles = &unit->tiles;
    flash_rows job = {.run = run, .call = run->call, .p = p, .kernels = &run->plan->kernels, .unit = unit};
    int64_t heads_before = index / tiles->row_blocks * tiles->heads;
    int64_t heads = run->group - heads_before < tiles->heads ? run->group - heads_before : tiles->heads;
    /* Causal rows see more keys the later they are: the longest blocks come first, the short ones fill the
     * gaps. */
    job.first = (tiles->row_blocks - 1 - index % tiles->row_blocks) * tiles->rows;
    job.each = unit->rows.q_len - job.first < tiles->rows ? unit->rows.q_len - job.first : tiles->rows;
    job.first_next = job.first - run->call->workers * tiles->rows;
    job.head = unit->kv_head * run->group + heads_before;
    job.rows = (int32_t)(heads * job.each);
    if (tiles->key_parts) flash_place_listed(&job, index);
    job.masked_rows = p->mask_form != ATTN_FORM_NONE && !flash_mask_of_keys(p);
    job.natural = p->mask_form == ATTN_FORM_ADDITIVE;
    job.factor = job.kernels->scale_last ? (float)fmax(fabs(scale_of(&job)), FLT_MIN) : 1;
    job.cap = (float)(job.natural ? p->softcap : p->softcap * LOG2E);
    set_memory(&job, &run->plan->layout, scratch);
    set_ranges(&job);
    return job;
}

/* Nothing seen yet. */
static void clear(const flash_rows *job)
{
    memset(job->out, 0, (size_t)(job->rows * flash_out_ld(job)) * sizeof *job->out);
    memset(job->sum, 0, (size_t)job->rows * sizeof *job->sum);
    for (int32_t r = 0; r < job->rows; r++) job->top[r] = -INFINITY;
}

/* The part of block `index` of the keys that these rows see. Returns 0 when there is none. */
int flash_set_tile(const flash_rows *job, int64_t index, const flash_block *block, flash_tile *t)
{
    attn_interval keys = flash_block_keys(job->run, job->unit, index);
    int64_t panel = job->kernels->panel, start = keys.lo;
    int64_t end = start + block->keys < job->all.hi ? start + block->keys : job->all.hi;
    t->block = block;
    t->skip = job->all.lo > start ? (job->all.lo - start) / panel * panel : 0;
    t->first = start + t->skip;
    t->keys = end - t->first;
    t->starts = start <= job->all.lo;
    t->last = keys.hi >= job->all.hi;
    return t->keys > 0;
}

void flash_attend(flash_run *run, const flash_item *item, char *slot, char *scratch)
{
    const flash_layout *l = &run->plan->layout;
    const flash_block *blocks = (const flash_block *)(void *)(slot + l->blocks);
    int64_t step = item->unit.tiles.keys;
    flash_rows job = make_rows(run, &item->unit, item->index, scratch);
    if (job.rows <= 0) return;
    load_queries(&job, 0);
    clear(&job);
    if (run->call->blocks.counts) flash_walk_list(&job, slot);
    for (int64_t n = job.all.lo / step; !run->call->blocks.counts && n * step < job.all.hi; n++) {
        flash_tile t = {.packed_keys = slot + l->keys + flash_key_bytes(run, n * step),
                        .packed_values = slot + l->values + flash_value_bytes(run, n * step)};
        if (!flash_set_tile(&job, n, &blocks[n], &t)) continue;
        if (attn_call_cancelled(run->call)) {
            atomic_store(&run->cancelled, 1);
            return;
        }
        flash_do_tile(&job, &t);
    }
    for (int32_t r = 0; r < job.rows; r++) store_row(&job, r);
}

/* ---- few rows --------------------------------------------------------------------------------------- */

/* Results of one block of keys: maxima and sums of FLASH_ROWS_FEW rows, then the rows of output. */
static float *part_of(const flash_rows *job, char *slot, int64_t index)
{
    size_t floats = (size_t)FLASH_ROWS_FEW * (size_t)(flash_out_ld(job) + 2);
    return (float *)(void *)(slot + job->run->plan->layout.parts) + (size_t)index * floats;
}

/* What this worker reads next: the same keys of the next head, or after the last head the next keys of the
 * first. Rows from `keys` on are only fetched. Returns how many there are with them. */
static int64_t expect_heads(const flash_rows *job, const int64_t *stride, int64_t keys, int64_t known,
                            const void **rows)
{
    const flash_unit *unit = job->unit;
    attn_dtype stored = job->p->kv_dtype ? job->p->kv_dtype : job->p->dtype;
    int64_t head = stride[2] * (int64_t)attn_dtype_bytes(stored);
    if (unit->kv_at + 1 < unit->kv_count) {
        int64_t more = keys < ATTN_ROWS_AHEAD ? keys : ATTN_ROWS_AHEAD;
        for (int64_t j = 0; j < more; j++) rows[keys + j] = (const char *)rows[j] + head;
        return keys + more;
    }
    for (int64_t j = keys; j < known; j++) rows[j] = (const char *)rows[j] - unit->kv_at * head;
    return known;
}

/* Keys (or values) [first, first + keys) and those behind them that are worth fetching, as pointers: where
 * they are if the kernels can read them there, else in a copy, which ends with the block and has nothing
 * behind it. Returns how many. */
static int64_t set_rows(const flash_rows *job, int of_values, int64_t first, int64_t keys, char *copy,
                        const void **rows)
{
    const flash_run *run = job->run;
    const attn_problem *p = job->p;
    const int64_t *stride = of_values ? p->v_stride : p->k_stride;
    int64_t width = of_values ? p->value_head_dim : p->head_dim, known = job->unit->seen.hi - first;
    if (flash_in_place(run->plan, p, stride, width)) {
        int last = job->unit->kv_at + 1 == job->unit->kv_count;
        if (!last || known < keys) known = keys;
        if (known > keys + ATTN_ROWS_AHEAD) known = keys + ATTN_ROWS_AHEAD;
        flash_point(run, job->unit, of_values ? job->call->v : job->call->k, stride, first, known, rows);
        return expect_heads(job, stride, keys, known, rows);
    }
    flash_gather(run, job->unit, of_values, first, keys, rows, copy);
    int64_t step = width * (int64_t)flash_element_bytes((attn_dtype)run->plan->type);
    for (int64_t j = 0; j < keys; j++) rows[j] = copy + j * step;
    return keys;
}

static void set_direct(const flash_rows *job, flash_tile *t, int64_t start, int64_t keys, char *scratch)
{
    const flash_layout *l = &job->run->plan->layout;
    const void **key_rows = (const void **)(void *)(scratch + l->key_rows),
               **value_rows = (const void **)(void *)(scratch + l->value_rows);
    t->known_keys = set_rows(job, 0, start, keys, scratch + l->part_keys, key_rows);
    t->known_values = set_rows(job, 1, start, keys, scratch + l->part_values, value_rows);
    t->key_rows = key_rows;
    t->value_rows = value_rows;
}

/* The unit of one of its heads. */
static flash_unit head_of(const flash_unit *unit, int64_t i)
{
    flash_unit one = *unit;
    one.kv_head += i;
    one.kv_at = i;
    return one;
}

static void part_head(flash_run *run, const flash_unit *unit, int64_t index, char *slot, char *scratch)
{
    flash_rows job = make_rows(run, unit, 0, scratch);
    flash_block block = flash_see_block(run, unit, index);
    flash_tile t = {0};
    clear(&job);
    if (flash_set_tile(&job, index, &block, &t)) {
        set_direct(&job, &t, index * unit->tiles.keys, block.keys, scratch);
        load_queries(&job, 1);
        flash_do_tile(&job, &t);
    }
    float *part = part_of(&job, slot, unit->kv_at * unit->tiles.key_blocks + index);
    memcpy(part, job.top, (size_t)job.rows * sizeof *part);
    memcpy(part + FLASH_ROWS_FEW, job.sum, (size_t)job.rows * sizeof *part);
    memcpy(part + 2 * FLASH_ROWS_FEW, job.out, (size_t)(job.rows * flash_out_ld(&job)) * sizeof *part);
}

void flash_part(flash_run *run, const flash_item *item, char *slot, char *scratch)
{
    if (item->unit.tiles.key_blocks == 0) return;
    for (int64_t i = 0; i < item->unit.kv_count; i++) {
        flash_unit one = head_of(&item->unit, i);
        part_head(run, &one, item->index, slot, scratch);
    }
}

/* Adds one row of a part; parts that have seen nothing have the sum 0. */
static void add_part(const flash_rows *job, const float *part, int32_t r, double unit)
{
    float top = part[r], sum = part[FLASH_ROWS_FEW + r], most = top > job->top[r] ? top : job->top[r];
    int64_t ld = flash_out_ld(job);
    const float *from = part + 2 * FLASH_ROWS_FEW + r * ld;
    float *out = job->out + r * ld;
    if (sum == 0) return;
    float keep = job->sum[r] == 0 ? 0 : (float)exp2((job->top[r] - most) * unit);
    float take = (float)exp2((top - most) * unit);
    for (int64_t i = 0; i < job->p->value_head_dim; i++) out[i] = out[i] * keep + from[i] * take;
    job->sum[r] = job->sum[r] * keep + sum * take;
    job->top[r] = most;
}

/* Always in the order of the keys, so that the result does not depend on who finished first. */
static void merge_head(flash_run *run, const flash_unit *unit, char *slot, char *scratch)
{
    flash_rows job = make_rows(run, unit, 0, scratch);
    clear(&job);
    for (int64_t n = 0; n < unit->tiles.key_blocks; n++) {
        const float *part = part_of(&job, slot, unit->kv_at * unit->tiles.key_blocks + n);
        for (int32_t r = 0; r < job.rows; r++) add_part(&job, part, r, job.natural ? LOG2E : 1);
    }
    for (int32_t r = 0; r < job.rows; r++) store_row(&job, r);
}

void flash_merge(flash_run *run, const flash_item *item, char *slot, char *scratch)
{
    for (int64_t i = 0; i < item->unit.kv_count; i++) {
        flash_unit one = head_of(&item->unit, i);
        merge_head(run, &one, slot, scratch);
    }
}
