/* flash_source.c: rows of K and V that a base and a stride do not reach: in the pages of a cache, picked by a
 * list, stored in another type. */
#include <math.h>
#include <string.h>

#include "backends/flash.h"
#include "kernels/eight.h"

/* ---- what a problem asks for --------------------------------------------------------------------- */

static int scattered(const attn_problem *p)
{
    return p->block_size > 0 || p->selected > 0;
}

static attn_dtype stored(const attn_problem *p)
{
    return p->kv_dtype ? p->kv_dtype : p->dtype;
}

void flash_choose_source(flash_plan *plan, const attn_problem *p)
{
    plan->type = (int32_t)(stored(p) == p->dtype ? p->dtype : ATTN_F32);
    plan->gathers = scattered(p) || stored(p) != p->dtype;
    for (int i = 0; i < 256; i++)
        plan->eight[i] = eight_to_f32((uint8_t)i, stored(p) == ATTN_F8E5M2 ? eight_e5m2 : eight_e4m3);
}

int64_t flash_rows_most(const attn_problem *p)
{
    return p->selected > 0 && p->q_len > 1 ? 1 : p->q_len;
}

int64_t flash_keys_most(const attn_problem *p)
{
    return p->selected > 0 && p->selected < p->kv_len ? p->selected : p->kv_len;
}

/* ---- where rows are ------------------------------------------------------------------------------ */

int flash_in_place(const flash_plan *plan, const attn_problem *p, const int64_t *stride, int64_t width)
{
    return (int32_t)stored(p) == plan->type && (width <= 1 || stride[3] == 1);
}

static int64_t width_of(const attn_problem *p)
{
    return (int64_t)attn_dtype_bytes(stored(p));
}

static void point_listed(const flash_run *run, const flash_unit *unit, const char *base,
                         const int64_t *stride, int64_t first, int64_t n, const void **rows)
{
    int64_t width = width_of(run->call->problem);
    for (int64_t j = 0; j < n; j++)
        rows[j] = base + attn_call_key(run->call, stride, &unit->sample, unit->batch, unit->kv_head,
                                       unit->list[first + j]) *
                             width;
}

/* Page by page, since a division a key would cost as much as the key itself. */
static void point_paged(const flash_run *run, const flash_unit *unit, const char *base, const int64_t *stride,
                        int64_t first, int64_t n, const void **rows)
{
    const attn_call *call = run->call;
    int64_t size = call->problem->block_size, width = width_of(call->problem), step = stride[1] * width;
    int64_t page = first / size, token = first % size;
    base += unit->kv_head * stride[2] * width;
    for (int64_t j = 0; j < n; page++, token = 0) {
        int64_t at = attn_table_at(&call->block_table, unit->batch, 0, page), end = j + size - token;
        const char *row = base + at * stride[0] * width + token * step;
        for (; j < n && j < end; j++, row += step) rows[j] = row;
    }
}

void flash_point(const flash_run *run, const flash_unit *unit, const void *base, const int64_t *stride,
                 int64_t first, int64_t n, const void **rows)
{
    const attn_problem *p = run->call->problem;
    if (unit->list) {
        point_listed(run, unit, base, stride, first, n, rows);
    } else if (p->block_size > 0) {
        point_paged(run, unit, base, stride, first, n, rows);
    } else {
        int64_t step = stride[1] * width_of(p);
        const char *row = flash_kv_row(unit, base, stride, first, stored(p));
        for (int64_t j = 0; j < n; j++, row += step) rows[j] = row;
    }
}

/* ---- copies -------------------------------------------------------------------------------------- */

static double scale_at(const flash_run *run, const flash_unit *unit, const float *scale,
                       const int64_t *stride, int64_t key)
{
    if (!scale) return 1;
    if (unit->list) key = unit->list[key];
    return scale[attn_call_key(run->call, stride, &unit->sample, unit->batch, unit->kv_head, key)];
}

/* One row as floats. */
static void convert(const flash_plan *plan, attn_dtype type, const void *row, int64_t stride, int64_t n,
                    float scale, float *to)
{
    if (type == ATTN_I8) {
        const int8_t *from = row;
        for (int64_t i = 0; i < n; i++) to[i] = (float)from[i * stride] * scale;
    } else if (type == ATTN_F8E4M3 || type == ATTN_F8E5M2) {
        const uint8_t *from = row;
        for (int64_t i = 0; i < n; i++) to[i] = plan->eight[from[i * stride]] * scale;
    } else {
        plan->kernels.widen(to, row, (int32_t)type, stride, n);
    }
}

static void copy_row(char *to, const char *row, int64_t stride, int64_t n, size_t bytes)
{
    if (stride == 1) {
        memcpy(to, row, (size_t)n * bytes);
        return;
    }
    for (int64_t i = 0; i < n; i++) memcpy(to + (size_t)i * bytes, row + i * stride * (int64_t)bytes, bytes);
}

void flash_gather(const flash_run *run, const flash_unit *unit, int of_values, int64_t first, int64_t n,
                  const void **rows, void *copy)
{
    enum { AHEAD = 16 };
    const attn_call *call = run->call;
    const attn_problem *p = call->problem;
    const int64_t *stride = of_values ? p->v_stride : p->k_stride;
    int64_t width = of_values ? p->value_head_dim : p->head_dim;
    size_t bytes = flash_element_bytes((attn_dtype)run->plan->type);
    flash_point(run, unit, of_values ? call->v : call->k, stride, first, n, rows);
    for (int64_t j = 0; j < n; j++) {
        char *to = (char *)copy + (size_t)(j * width) * bytes;
        if (j + AHEAD < n) attn_prefetch(rows[j + AHEAD], stride[3], width, width_of(p));
        if ((int32_t)stored(p) == run->plan->type)
            copy_row(to, rows[j], stride[3], width, bytes);
        else
            convert(run->plan, stored(p), rows[j], stride[3], width,
                    (float)scale_at(run, unit, of_values ? call->v_scale : call->k_scale,
                                    of_values ? p->v_scale_stride : p->k_scale_stride, first + j),
                    (float *)(void *)to);
    }
}

int flash_pack_gathered(const flash_run *run, const flash_unit *unit, int64_t first, int64_t n, void *keys,
                        void *values, char *scratch)
{
    const flash_plan *plan = run->plan;
    const attn_problem *p = run->call->problem;
    float *turn = (float *)(void *)(scratch + plan->layout.turn);
    const void **rows = (const void **)(void *)(scratch + plan->layout.key_rows);
    void *copy = scratch + plan->layout.gathered;
    int64_t width = p->head_dim;
    flash_gather(run, unit, 0, first, n, rows, copy);
    plan->kernels.pack_keys(keys, copy, plan->type, width, 1, n, width, turn);
    if (!p->latent) {
        width = p->value_head_dim;
        flash_gather(run, unit, 1, first, n, rows, copy);
    }
    return plan->kernels.pack_values(values, copy, plan->type, width, 1, n, n, p->value_head_dim, turn);
}

/* ---- lists --------------------------------------------------------------------------------------- */

static int64_t all_rows(const attn_problem *p)
{
    int64_t rows;
    if (p->features & ATTN_FEATURE(PACKED)) return p->q_len;
    return __builtin_mul_overflow(p->batch, p->q_len, &rows) ? INT64_MAX : rows;
}

int64_t flash_listed_units(const attn_problem *p)
{
    int64_t units;
    return __builtin_mul_overflow(all_rows(p), p->kv_heads, &units) ? INT64_MAX : units;
}

size_t flash_list_bytes(const attn_problem *p)
{
    int64_t entries, bytes;
    if (!p->selected) return 0;
    if (__builtin_add_overflow(p->selected, 1, &entries) ||
        __builtin_mul_overflow(entries, all_rows(p), &bytes) || __builtin_mul_overflow(bytes, 4, &bytes))
        return SIZE_MAX;
    return (size_t)bytes;
}

/* The sample of row `index` of all, and the row in it. */
static int64_t row_of(const attn_call *call, int64_t index, int64_t *row)
{
    const attn_problem *p = call->problem;
    int64_t low = 0, high = p->batch;
    if (!call->cu_q.data) {
        *row = index % p->q_len;
        return index / p->q_len;
    }
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (attn_index_at(&call->cu_q, middle) <= index)
            low = middle;
        else
            high = middle;
    }
    *row = index - attn_index_at(&call->cu_q, low);
    return low;
}

static int32_t *list_of(const flash_run *run, int64_t index)
{
    char *lists = (char *)run->call->shared + run->plan->layout.lists;
    return (int32_t *)(void *)lists + index * (run->call->problem->selected + 1);
}

typedef struct lister {
    const flash_run *run;
} lister;

/* A bit for each position puts the entries in order and drops repeated ones. The count comes before the list.
 */
static void list_row(void *arg, int64_t index, int32_t worker)
{
    const flash_run *run = ((lister *)arg)->run;
    const attn_call *call = run->call;
    uint64_t *bits = (uint64_t *)(void *)((char *)call->scratch + (size_t)worker * call->scratch_stride +
                                          run->plan->layout.bits);
    int64_t row, b = row_of(call, index, &row), keys = attn_call_rows(call, b).kv_len,
                 words = (keys + 63) / 64;
    int64_t q0 = call->cu_q.data ? attn_index_at(&call->cu_q, b) : 0;
    int32_t *list = list_of(run, index), count = 0;
    memset(bits, 0, (size_t)words * sizeof *bits);
    for (int64_t e = 0; e < call->problem->selected; e++) {
        int64_t key = attn_table_at(&call->selected, b, q0 + row, e);
        if (key >= 0 && key < keys) bits[key / 64] |= (uint64_t)1 << (key % 64);
    }
    for (int64_t w = 0; w < words; w++)
        for (uint64_t left = bits[w]; left; left &= left - 1)
            list[++count] = (int32_t)(w * 64 + __builtin_ctzll(left));
    list[0] = count;
}

void flash_read_lists(const attn_host *host, const flash_run *run)
{
    lister arg = {run};
    host->parallel_for(host, all_rows(run->call->problem), run->call->workers, list_row, &arg);
}

int flash_locate_listed(const flash_run *run, flash_unit *unit)
{
    const attn_call *call = run->call;
    const attn_problem *p = call->problem;
    int64_t index = unit->index / p->kv_heads;
    if (unit->index >= flash_listed_units(p)) return 0;
    const int32_t *list = list_of(run, index);
    unit->kv_head = unit->index % p->kv_heads;
    unit->batch = row_of(call, index, &unit->row);
    unit->sample = attn_call_rows(call, unit->batch);
    unit->list = list + 1;
    unit->rows =
        (attn_rows){.q0 = unit->sample.q0 + unit->row, .q_len = 1, .k0 = unit->sample.k0, .kv_len = list[0]};
    unit->seen = (attn_interval){0, list[0]};
    return 1;
}

/* The first entry that is not below `position`. */
static int64_t entry_from(const flash_unit *unit, int64_t position)
{
    int64_t low = 0, high = unit->rows.kv_len;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (unit->list[middle] < position)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

attn_interval flash_row_keys(const flash_run *run, const flash_unit *unit, int64_t i)
{
    const attn_call *call = run->call;
    attn_interval keys = attn_row_interval(call, &unit->sample, unit->row + i);
    if (call->prefix_range_count)
        attn_join_ranges(call, unit->batch, attn_row_position(call, &unit->sample, unit->row + i),
                         unit->sample.kv_len, &keys);
    if (!unit->list) return keys;
    if (keys.lo >= keys.hi) return (attn_interval){0, 0};
    return (attn_interval){entry_from(unit, keys.lo), entry_from(unit, keys.hi)};
}
