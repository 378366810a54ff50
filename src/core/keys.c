/* keys.c: what decides which keys a row sees beside masks and lengths: distances, trees, lists and ranges. */
#include "core/problem_parts.h"

#include "core/dtype.h"

#include <inttypes.h>
#include <string.h>

static attn_status read_alibi(attn_request *r, attn_error *error)
{
    attn_view view;
    if (!r->args.alibi_slopes) return ATTN_OK;
    ATTN_TRY(attn_read_heads(r, "alibi_slopes", r->args.alibi_slopes, &view, error));
    r->call.alibi = (const float *)(const void *)view.data;
    r->problem.features |= ATTN_FEATURE(ALIBI);
    return ATTN_OK;
}

/* Rows of each request, where the host can count them. */
static attn_status check_tree_rows(const attn_request *r, int64_t rows, attn_error *error)
{
    const attn_problem *p = &r->problem;
    if (p->device_type != kDLCPU) return ATTN_OK;
    for (int64_t b = 0; b < p->batch; b++) {
        attn_rows n = attn_call_rows(&r->call, b);
        if (n.q_len <= rows && n.q_len <= n.kv_len) continue;
        return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                         "request %" PRId64 " has %" PRId64 " query rows and %" PRId64
                         " keys, and tree_mask is for %" PRId64
                         " rows; the rows of a request are its last keys, and the mask has a row for each",
                         b, n.q_len, n.kv_len, rows);
    }
    return ATTN_OK;
}

static attn_status read_tree(attn_request *r, attn_error *error)
{
    attn_view view, *tree = &view;
    attn_problem *p = &r->problem;
    if (!r->args.tree_mask) return ATTN_OK;
    ATTN_TRY(attn_read_tensor(r, "tree_mask", r->args.tree_mask, 3, 3, ATTN_INPUT, tree, error));
    if (tree->dtype != ATTN_BOOL && tree->dtype != ATTN_U8 && tree->dtype != ATTN_I8)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE, "tree_mask is %s; it is bool, u8 or i8",
                         attn_dtype_word(tree->dtype));
    ATTN_TRY(attn_check_broadcast(tree, 0, p->batch, "1 or the number of requests", error));
    ATTN_TRY(attn_check_size(tree, 2, tree->shape[1], "the number of its rows", error));
    if (p->window || r->args.span_count || r->args.query_range_count || r->args.prefix_range_count ||
        p->alignment == ATTN_TOP_LEFT)
        return attn_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "tree_mask was given with windows, spans, query_ranges, prefix_ranges or top-left "
            "alignment; a tree alone says what its rows see of each other, leave the others out");
    p->features |= ATTN_FEATURE(TREE);
    p->tree = tree->shape[1];
    r->call.tree = (const uint8_t *)tree->data;
    memcpy(r->call.tree_stride, tree->stride, sizeof r->call.tree_stride);
    return check_tree_rows(r, p->tree, error);
}

static attn_status read_selected(attn_request *r, attn_error *error)
{
    attn_view view, *list = &view;
    attn_problem *p = &r->problem;
    static const int64_t none;
    if (!r->args.selected) return ATTN_OK;
    bool packed = r->call.cu_q.data != NULL;
    ATTN_TRY(attn_read_tensor(r, "selected", r->args.selected, packed ? 2 : 3, 3, ATTN_INPUT, list, error));
    if (list->dtype != ATTN_I32 && list->dtype != ATTN_I64)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE, "selected is %s; it is i32 or i64",
                         attn_dtype_word(list->dtype));
    if (list->ndim == 2) {
        memmove(list->shape + 1, list->shape, 2 * sizeof *list->shape);
        memmove(list->stride + 1, list->stride, 2 * sizeof *list->stride);
        list->shape[0] = 1, list->stride[0] = 0, list->ndim = 3;
    }
    ATTN_TRY(attn_check_size(list, 0, packed ? 1 : p->batch, "the batch of q", error));
    ATTN_TRY(attn_check_size(list, 1, p->q_len, "the number of query rows", error));
    if (list->shape[2] < 1)
        return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                         "selected has lists of 0 entries; a row that sees nothing has negative entries");
    p->features |= ATTN_FEATURE(SELECTED);
    p->selected = list->shape[2];
    r->call.selected = (attn_table){.data = list->data ? (const void *)list->data : &none,
                                    .stride = {list->stride[0], list->stride[1], list->stride[2]},
                                    .bits = list->dtype == ATTN_I32 ? 32 : 64};
    return ATTN_OK;
}

static attn_status check_range(const attn_request *r, uint32_t i, attn_error *error)
{
    const attn_prefix_range *range = &r->args.prefix_ranges[i];
    int64_t before = i ? range[-1].request : 0;
    if (range->request >= before && range->request < r->problem.batch && range->start >= 0 &&
        range->end >= range->start)
        return ATTN_OK;
    return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                     "prefix range %u is [%" PRId64 ", %" PRId64 ") of request %" PRId64
                     "; requests ascend and are below %" PRId64
                     ", a range starts at 0 or more and ends no earlier",
                     i, range->start, range->end, range->request, r->problem.batch);
}

static attn_status read_ranges(attn_request *r, attn_error *error)
{
    const attn_args *a = &r->args;
    if (!a->prefix_range_count) return ATTN_OK;
    if (!a->prefix_ranges)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "prefix_ranges is NULL but its count is %u; pass both or neither",
                         a->prefix_range_count);
    if (!r->problem.causal || r->problem.alignment == ATTN_TOP_LEFT || a->span_count || a->query_range_count)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "prefix_ranges need a layer that is causal bottom-right, and exclude spans and "
                         "query_ranges; open the layer so and leave the others out");
    for (uint32_t i = 0; i < a->prefix_range_count; i++) ATTN_TRY(check_range(r, i, error));
    r->problem.features |= ATTN_FEATURE(PREFIX_RANGES);
    r->call.prefix_ranges = a->prefix_ranges;
    r->call.prefix_range_count = a->prefix_range_count;
    return ATTN_OK;
}

attn_status attn_read_keys(attn_request *r, attn_error *error)
{
    ATTN_TRY(read_alibi(r, error));
    ATTN_TRY(read_tree(r, error));
    ATTN_TRY(read_selected(r, error));
    return read_ranges(r, error);
}
