/* reference_mask.c: which keys a query row attends to, one key at a time and straight from the definitions.
 */
#include "backends/reference.h"

#include <math.h>

/* Where query i stands on the axis of keys. */
static int64_t position(const attn_call *call, const attn_rows *rows, int64_t i)
{
    for (uint32_t r = 0; r < call->query_range_count; r++) {
        const attn_query_range *range = &call->query_ranges[r];
        if (i >= range->local_start && i < range->local_end)
            return range->global_start + (i - range->local_start);
    }
    if (call->problem->alignment == ATTN_TOP_LEFT) return i + call->query_start;
    return i + rows->kv_len - rows->q_len;
}

static int64_t span_end(const attn_call *call, int64_t at)
{
    int64_t end = 0;
    for (uint32_t s = 0; s < call->span_count; s++)
        if (at >= call->spans[s].start && at < call->spans[s].end && call->spans[s].end > end)
            end = call->spans[s].end;
    return end;
}

reference_row reference_row_at(const attn_call *call, const attn_rows *rows, int64_t b, int64_t h, int64_t i)
{
    const attn_problem *p = call->problem;
    reference_row row = {.call = call, .kv_len = rows->kv_len, .position = position(call, rows, i)};
    row.span_end = span_end(call, row.position);
    row.structured = (p->causal && !call->tree) || call->span_count > 0;
    row.b = b;
    row.list = rows->q0 + i;
    row.slope = call->alibi ? call->alibi[h] : 0;
    if (call->tree) row.tree = call->tree + b * call->tree_stride[0] + i * call->tree_stride[1];
    row.tree_start = rows->kv_len - rows->q_len;
    if (call->mask) {
        int64_t offset = b * p->mask_stride[0] + h * p->mask_stride[1] + (rows->q0 + i) * p->mask_stride[2] +
                         rows->k0 * p->mask_stride[3];
        row.mask = (const char *)call->mask + offset * (int64_t)attn_dtype_bytes(p->mask_dtype);
    }
    if (call->key_mask)
        row.key_mask = call->key_mask + b * p->key_mask_stride[0] + rows->k0 * p->key_mask_stride[1];
    if (call->blocks.counts)
        row.blocks = attn_block_list(&call->blocks, b, h, i / p->block_q, &row.block_count);
    return row;
}

static int listed(const reference_row *row, int64_t block)
{
    int64_t low = 0, high = row->block_count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (row->blocks[middle] == block) return 1;
        if (row->blocks[middle] < block)
            low = middle + 1;
        else
            high = middle;
    }
    return 0;
}

/* Query and key both inside one range of the request. */
static int in_range(const reference_row *row, int64_t key)
{
    const attn_call *call = row->call;
    for (uint32_t r = 0; r < call->prefix_range_count; r++) {
        const attn_prefix_range *range = &call->prefix_ranges[r];
        if (range->request == row->b && range->start <= row->position && row->position < range->end &&
            range->start <= key && key < range->end)
            return 1;
    }
    return 0;
}

static int in_window(const reference_row *row, int64_t key)
{
    const attn_problem *p = row->call->problem;
    if ((p->window & ATTN_WINDOW_LEFT) && row->position - key > p->window_left) return 0;
    return !((p->window & ATTN_WINDOW_RIGHT) && key - row->position > p->window_right);
}

/* Bit j: key first + j stands in the row's list. */
static uint64_t selected(const reference_row *row, int64_t first, int64_t n)
{
    const attn_call *call = row->call;
    uint64_t bits = 0;
    for (int64_t e = 0; e < call->problem->selected; e++) {
        int64_t key = attn_table_at(&call->selected, row->b, row->list, e);
        if (key >= first && key < first + n) bits |= (uint64_t)1 << (key - first);
    }
    return bits;
}

/* Everything but an additive mask and lists of keys. */
static int keeps(const reference_row *row, int64_t key)
{
    const attn_problem *p = row->call->problem;
    if (key >= row->kv_len) return 0;
    if (row->tree && key >= row->tree_start &&
        !row->tree[(key - row->tree_start) * row->call->tree_stride[2]])
        return 0;
    int ahead = row->structured && key > row->position && key >= row->span_end;
    if ((ahead || !in_window(row, key)) && !in_range(row, key)) return 0;
    if (row->blocks && !listed(row, key / p->block_k)) return 0;
    if (row->key_mask && !row->key_mask[key * p->key_mask_stride[1]]) return 0;
    if (p->mask_form == ATTN_FORM_KEEP && !row->mask[key * p->mask_stride[3]]) return 0;
    return 1;
}

int64_t reference_bias(const reference_row *row, int64_t first, int64_t n, double *bias)
{
    const attn_problem *p = row->call->problem;
    int64_t kept = 0;
    uint64_t list = p->selected ? selected(row, first, n) : ~(uint64_t)0;
    if (p->mask_form == ATTN_FORM_ADDITIVE) {
        int64_t stride = p->mask_stride[3];
        const char *from = row->mask + first * stride * (int64_t)attn_dtype_bytes(p->mask_dtype);
        reference_load(p->mask_dtype, from, stride, n, bias, 1);
    } else {
        for (int64_t j = 0; j < n; j++) bias[j] = 0;
    }
    for (int64_t j = 0; j < n; j++) {
        if (row->slope != 0) bias[j] -= row->slope * fabs((double)(row->position - first - j));
        if (!(list >> j & 1) || !keeps(row, first + j)) bias[j] = -INFINITY;
        kept += bias[j] != -INFINITY;
    }
    return kept;
}
