/* operands.c: the optional tensors of a call: masks, lengths, sinks, spans, lse, scores. */
#include "core/problem_parts.h"

#include "core/dtype.h"

#include <inttypes.h>
#include <string.h>

enum { S = 1 }; /* the sequence axis of a BSND view */

static bool byte_sized(attn_dtype dtype)
{
    return dtype == ATTN_BOOL || dtype == ATTN_U8 || dtype == ATTN_I8;
}

static attn_status read_lse(attn_request *r, attn_error *error)
{
    attn_view view, *lse = &view;
    attn_problem *p = &r->problem;
    if (!r->args.lse) return ATTN_OK;
    bool packed = r->call.cu_q.data != NULL;
    ATTN_TRY(attn_read_tensor(r, "lse", r->args.lse, packed ? 2 : 3, 3, ATTN_OUTPUT, lse, error));
    if (lse->ndim == 2) {
        memmove(lse->shape + 1, lse->shape, 2 * sizeof *lse->shape);
        memmove(lse->stride + 1, lse->stride, 2 * sizeof *lse->stride);
        lse->shape[0] = 1, lse->stride[0] = 0, lse->ndim = 3;
    }
    if (lse->dtype != ATTN_F32)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE, "lse is %s; it is always fp32",
                         attn_dtype_word(lse->dtype));
    ATTN_TRY(attn_check_size(lse, 0, packed ? 1 : p->batch, "the batch of q", error));
    ATTN_TRY(attn_check_size(lse, 1, p->heads, "the number of query heads", error));
    ATTN_TRY(attn_check_size(lse, 2, p->q_len, "the number of query rows", error));
    memcpy(p->lse_stride, lse->stride, sizeof p->lse_stride);
    r->call.lse = (float *)(void *)lse->data;
    p->features |= ATTN_FEATURE(LSE);
    return ATTN_OK;
}

static attn_status read_scores(attn_request *r, attn_error *error)
{
    attn_view view, *scores = &view;
    attn_problem *p = &r->problem;
    if (!r->args.scores) return ATTN_OK;
    if (r->call.cu_q.data)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "scores was given with cu_seqlens; ask for the scores of one sequence at a time");
    ATTN_TRY(attn_read_tensor(r, "scores", r->args.scores, 4, 4, ATTN_OUTPUT, scores, error));
    if (scores->dtype != ATTN_F32 && scores->dtype != p->dtype)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE,
                         "scores is %s and q is %s; it may be fp32 or the type of q",
                         attn_dtype_word(scores->dtype), attn_dtype_word(p->dtype));
    if (r->args.scores_mode < ATTN_SCORES_SCALED || r->args.scores_mode > ATTN_SCORES_PROBS)
        return attn_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "scores_mode is %d; with scores it is 1 (scaled), 2 (capped), 3 (masked) or 4 (probs)",
            r->args.scores_mode);
    ATTN_TRY(attn_check_size(scores, 0, p->batch, "the batch of q", error));
    ATTN_TRY(attn_check_size(scores, 1, p->heads, "the number of query heads", error));
    ATTN_TRY(attn_check_size(scores, 2, p->q_len, "the number of query rows", error));
    ATTN_TRY(attn_check_size(scores, 3, p->kv_len, "the number of keys", error));
    memcpy(p->scores_stride, scores->stride, sizeof p->scores_stride);
    p->scores_dtype = scores->dtype;
    p->scores_mode = r->args.scores_mode;
    r->call.scores = scores->data;
    p->features |= ATTN_FEATURE(SCORES);
    return ATTN_OK;
}

static attn_status mask_form(const attn_view *mask, int32_t kind, attn_dtype q, int32_t *form,
                             attn_error *error)
{
    bool additive = mask->dtype == ATTN_F32 || mask->dtype == ATTN_F16 || mask->dtype == ATTN_BF16 ||
                    (mask->dtype == ATTN_F64 && q == ATTN_F64);
    bool keep = byte_sized(mask->dtype);
    if (kind < ATTN_MASK_BY_DTYPE || kind > ATTN_MASK_ADDITIVE)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "mask_kind is %d; it is 0 (by dtype), 1 (keep) or 2 (additive)", kind);
    if (kind == ATTN_MASK_BY_DTYPE && keep && mask->dtype != ATTN_BOOL)
        return attn_fail(
            error, ATTN_KIND_INVALID_DTYPE,
            "mask is %s, which may be meant as keep or as additive; set mask_kind to ATTN_MASK_KEEP or "
            "pass bool",
            attn_dtype_word(mask->dtype));
    if ((kind == ATTN_MASK_KEEP && !keep) || (kind == ATTN_MASK_ADDITIVE && !additive) ||
        (!keep && !additive))
        return attn_fail(
            error, ATTN_KIND_INVALID_DTYPE,
            "mask %s, query %s: keep masks are bool, u8 or i8, additive masks fp32, fp16 or bf16 (fp64 "
            "with fp64 queries); convert the mask or change mask_kind",
            attn_dtype_word(mask->dtype), attn_dtype_word(q));
    *form = keep ? ATTN_FORM_KEEP : ATTN_FORM_ADDITIVE;
    return ATTN_OK;
}

static attn_status read_mask(attn_request *r, attn_error *error)
{
    attn_view view, *mask = &view;
    attn_problem *p = &r->problem;
    if (!r->args.mask) return ATTN_OK;
    if (r->call.cu_q.data)
        return attn_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "mask was given with cu_seqlens; packed sequences take causal order and windows only");
    if (r->args.mask->ndim == 2)
        return attn_fail(
            error, ATTN_KIND_INVALID_SHAPE,
            "mask has 2 axes; it needs 4 [batch, heads, queries, keys], each full or 1 (a padding mask "
            "[batch, keys] goes into key_mask)");
    ATTN_TRY(attn_read_tensor(r, "mask", r->args.mask, 4, 4, ATTN_INPUT, mask, error));
    ATTN_TRY(mask_form(mask, r->args.mask_kind, p->dtype, &p->mask_form, error));
    ATTN_TRY(attn_check_broadcast(mask, 0, p->batch, "1 or the batch of q", error));
    ATTN_TRY(attn_check_broadcast(mask, 1, p->heads, "1 or the number of query heads", error));
    ATTN_TRY(attn_check_broadcast(mask, 2, p->q_len, "1 or the number of query rows", error));
    ATTN_TRY(attn_check_broadcast(mask, 3, p->kv_len, "1 or the number of keys", error));
    memcpy(p->mask_stride, mask->stride, sizeof p->mask_stride);
    p->mask_dtype = mask->dtype;
    r->call.mask = mask->data;
    p->features |= p->mask_form == ATTN_FORM_KEEP ? ATTN_FEATURE(MASK_KEEP) : ATTN_FEATURE(MASK_ADDITIVE);
    return ATTN_OK;
}

static attn_status read_one_key_mask(attn_request *r, const char *name, const DLTensor *tensor, int64_t keys,
                                     attn_view *view, attn_error *error)
{
    ATTN_TRY(attn_read_tensor(r, name, tensor, 2, 2, ATTN_INPUT, view, error));
    if (!byte_sized(view->dtype))
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE, "%s is %s; it is bool (u8 and i8 are read alike)",
                         name, attn_dtype_word(view->dtype));
    ATTN_TRY(attn_check_broadcast(view, 0, r->problem.batch, "1 or the batch of q", error));
    return attn_check_size(view, 1, keys, "the number of keys", error);
}

/* The joined mask is a dense copy [batch, keys]; a missing half is all true. */
static attn_status read_joint_key_masks(attn_request *r, attn_error *error)
{
    attn_problem *p = &r->problem;
    if (r->args.key_mask)
        ATTN_TRY(
            read_one_key_mask(r, "key_mask", r->args.key_mask, r->jk.main.shape[S], &r->jkey.main, error));
    if (r->args.joint_key_mask)
        ATTN_TRY(read_one_key_mask(r, "joint_key_mask", r->args.joint_key_mask, r->jk.joint.shape[S],
                                   &r->jkey.joint, error));
    p->key_mask_stride[0] = p->batch > 1 ? p->kv_len : 0;
    p->key_mask_stride[1] = p->kv_len > 1;
    return ATTN_OK;
}

static attn_status read_key_mask(attn_request *r, attn_error *error)
{
    attn_view view;
    if (!r->args.key_mask && !r->args.joint_key_mask) return ATTN_OK;
    if (r->call.cu_q.data)
        return attn_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "key_mask was given with cu_seqlens; leave the hidden keys out of the packed sequences");
    r->problem.features |= ATTN_FEATURE(KEY_MASK);
    if (r->joint) return read_joint_key_masks(r, error);
    ATTN_TRY(read_one_key_mask(r, "key_mask", r->args.key_mask, r->problem.kv_len, &view, error));
    r->problem.key_mask_stride[0] = view.stride[0];
    r->problem.key_mask_stride[1] = view.stride[1];
    r->call.key_mask = (const uint8_t *)view.data;
    return ATTN_OK;
}

static attn_status read_index(attn_request *r, const char *name, const DLTensor *tensor, attn_index *index,
                              attn_view *view, attn_error *error)
{
    ATTN_TRY(attn_read_tensor(r, name, tensor, 1, 1, ATTN_INPUT, view, error));
    if (view->dtype != ATTN_I32 && view->dtype != ATTN_I64)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE, "%s is %s; it is i32 or i64", name,
                         attn_dtype_word(view->dtype));
    static const int64_t none;
    index->data = view->data ? (const void *)view->data : &none;
    index->stride = view->stride[0];
    index->count = view->shape[0];
    index->bits = view->dtype == ATTN_I32 ? 32 : 64;
    return ATTN_OK;
}

static attn_status check_lengths(const attn_index *index, bool paged, int64_t most, attn_error *error)
{
    for (int64_t i = 0; i < index->count; i++) {
        int64_t n = attn_index_at(index, i);
        if (n < 0 || n > most)
            return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                             "kv_lengths[%" PRId64 "] is %" PRId64 "; %s %" PRId64
                             " keys, a length is 0 to that",
                             i, n, paged ? "block_table has room for" : "k has", most);
    }
    return ATTN_OK;
}

static attn_status check_cu(const char *name, const attn_index *index, int64_t total, attn_error *error)
{
    int64_t last = 0;
    for (int64_t i = 0; i < index->count; i++) {
        int64_t n = attn_index_at(index, i);
        if ((i == 0 && n != 0) || n < last)
            return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                             "%s[%" PRId64 "] is %" PRId64 " after %" PRId64
                             "; it starts at 0 and never falls",
                             name, i, n, last);
        last = n;
    }
    if (last != total)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "%s ends at %" PRId64 " but the tensor has %" PRId64
                         " rows; the last entry is the total",
                         name, last, total);
    return ATTN_OK;
}

static attn_status read_cu(attn_request *r, const char *name, const DLTensor *tensor, int64_t total,
                           attn_index *index, attn_error *error)
{
    attn_view view;
    ATTN_TRY(read_index(r, name, tensor, index, &view, error));
    if (index->count < 1)
        return attn_fail(error, ATTN_KIND_INVALID_SHAPE, "%s is empty; n sequences need n + 1 entries", name);
    if (r->problem.device_type == kDLCPU) ATTN_TRY(check_cu(name, index, total, error));
    return ATTN_OK;
}

static attn_status read_lengths(attn_request *r, const attn_view *q, const attn_view *k, attn_error *error)
{
    const attn_args *a = &r->args;
    attn_problem *p = &r->problem;
    attn_view view;
    if (!a->cu_seqlens_q != !a->cu_seqlens_k && !a->cache)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "%s was given without %s; packed sequences need both",
                         a->cu_seqlens_q ? "cu_seqlens_q" : "cu_seqlens_k",
                         a->cu_seqlens_q ? "cu_seqlens_k" : "cu_seqlens_q");
    if (a->cu_seqlens_q) {
        ATTN_TRY(read_cu(r, "cu_seqlens_q", a->cu_seqlens_q, q->shape[S], &r->call.cu_q, error));
        if (!a->cache)
            ATTN_TRY(read_cu(r, "cu_seqlens_k", a->cu_seqlens_k, k->shape[S], &r->call.cu_k, error));
        if (!a->cache && r->call.cu_q.count != r->call.cu_k.count)
            return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                             "cu_seqlens_q has %" PRId64 " entries and cu_seqlens_k %" PRId64
                             "; both have sequences + 1",
                             r->call.cu_q.count, r->call.cu_k.count);
        p->batch = r->call.cu_q.count - 1;
        p->features |= ATTN_FEATURE(PACKED);
    }
    if (!a->kv_lengths) return ATTN_OK;
    ATTN_TRY(read_index(r, "kv_lengths", a->kv_lengths, &r->call.kv_lengths, &view, error));
    ATTN_TRY(attn_check_size(&view, 0, p->batch, "the batch of q", error));
    if (p->device_type == kDLCPU)
        ATTN_TRY(check_lengths(&r->call.kv_lengths, a->cache != NULL, p->kv_len, error));
    if (a->cache) return attn_check_table(r, error);
    p->features |= ATTN_FEATURE(LENGTHS);
    return ATTN_OK;
}

attn_status attn_read_heads(attn_request *r, const char *name, const DLTensor *tensor, attn_view *view,
                            attn_error *error)
{
    ATTN_TRY(attn_read_tensor(r, name, tensor, 1, 1, ATTN_INPUT, view, error));
    if (view->dtype != ATTN_F32)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE, "%s is %s; it is fp32", name,
                         attn_dtype_word(view->dtype));
    ATTN_TRY(attn_check_size(view, 0, r->problem.heads, "the number of query heads", error));
    if (view->shape[0] <= 1 || view->stride[0] == 1) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_INVALID_LAYOUT, "%s has stride %" PRId64 "; its heads lie side by side",
                     name, view->stride[0]);
}

static attn_status read_sinks(attn_request *r, attn_error *error)
{
    attn_view view;
    if (!r->args.sinks) return ATTN_OK;
    ATTN_TRY(attn_read_heads(r, "sinks", r->args.sinks, &view, error));
    r->call.sinks = (const float *)(const void *)view.data;
    r->problem.features |= ATTN_FEATURE(SINKS);
    return ATTN_OK;
}

static attn_status check_query_ranges(const attn_request *r, attn_error *error)
{
    int64_t next = 0;
    for (uint32_t i = 0; i < r->args.query_range_count; i++) {
        const attn_query_range *g = &r->args.query_ranges[i];
        if (g->local_start != next || g->local_end < g->local_start || g->global_start < 0)
            return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                             "query range %u is [%" PRId64 ", %" PRId64 ") at %" PRId64
                             "; ranges tile the query rows in order (this one starts at %" PRId64
                             ") and positions are 0 or more",
                             i, g->local_start, g->local_end, g->global_start, next);
        int64_t last;
        if (__builtin_add_overflow(g->global_start, g->local_end - g->local_start, &last))
            return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                             "query range %u starts at %" PRId64 ", so its positions do not fit 64 bits", i,
                             g->global_start);
        next = g->local_end;
    }
    if (next != r->problem.q_len)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "query ranges end at row %" PRId64 " but there are %" PRId64
                         " query rows; they must tile them",
                         next, r->problem.q_len);
    return ATTN_OK;
}

static attn_status read_spans(attn_request *r, attn_error *error)
{
    const attn_args *a = &r->args;
    if ((a->span_count && !a->spans) || (a->query_range_count && !a->query_ranges))
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "%s is NULL but its count is %u; pass both or neither",
                         a->span_count && !a->spans ? "spans" : "query_ranges",
                         a->span_count && !a->spans ? a->span_count : a->query_range_count);
    for (uint32_t i = 0; i < a->span_count; i++)
        if (a->spans[i].start < 0 || a->spans[i].end < a->spans[i].start)
            return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                             "span %u is [%" PRId64 ", %" PRId64
                             "); it starts at 0 or more and ends no earlier",
                             i, a->spans[i].start, a->spans[i].end);
    if ((a->spans || a->query_ranges) && r->call.cu_q.data)
        return attn_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "spans or query_ranges were given with cu_seqlens; all samples share them, so pass one "
            "sequence at a time");
    if (a->query_range_count) ATTN_TRY(check_query_ranges(r, error));
    if (a->span_count) r->problem.features |= ATTN_FEATURE(SPANS);
    /* Spans place queries as well. */
    if (a->span_count && r->problem.alignment == ATTN_TOP_LEFT) r->problem.features |= ATTN_FEATURE(TOP_LEFT);
    if (a->query_range_count) r->problem.features |= ATTN_FEATURE(QUERY_RANGES);
    r->call.spans = a->span_count ? a->spans : NULL;
    r->call.span_count = a->span_count;
    r->call.query_ranges = a->query_range_count ? a->query_ranges : NULL;
    r->call.query_range_count = a->query_range_count;
    return ATTN_OK;
}

static attn_status read_positions(attn_request *r, attn_error *error)
{
    attn_problem *p = &r->problem;
    int64_t start = r->args.query_start, end;
    if (start && p->alignment != ATTN_TOP_LEFT)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "query_start is %" PRId64
                         " but the layer aligns bottom-right, where positions follow from the "
                         "lengths; open the layer with ATTN_TOP_LEFT",
                         start);
    if (start < 0 || __builtin_add_overflow(start, p->q_len, &end))
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "query_start is %" PRId64 "; it is 0 or more and fits 64 bits", start);
    r->call.query_start = start;
    return ATTN_OK;
}

/* The map of the call: its lengths are those of the call, unless it says otherwise. */
static attn_status read_block_lists(attn_request *r, attn_block_map *map, attn_error *error)
{
    const attn_problem *p = &r->problem;
    if ((map->q_len && map->q_len != p->q_len) || (map->kv_len && map->kv_len != p->kv_len))
        return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                         "the block map was built for %" PRId64 " queries and %" PRId64
                         " keys but the call has %" PRId64 " and %" PRId64 "; build it for this sequence",
                         map->q_len, map->kv_len, p->q_len, p->kv_len);
    map->q_len = p->q_len;
    map->kv_len = p->kv_len;
    ATTN_TRY(attn_block_map_read(map, &r->call.blocks, error));
    return p->device_type == kDLCPU ? attn_block_lists_check(&r->call.blocks, error) : ATTN_OK;
}

static attn_status read_block_map(attn_request *r, attn_error *error)
{
    attn_block_map map;
    attn_problem *p = &r->problem;
    if (!r->args.block_map) return ATTN_OK;
    if (!attn_copy_struct(&map, sizeof map, r->args.block_map, r->args.block_map->size, sizeof map))
        return attn_fail(error, ATTN_KIND_INVALID_STRUCT,
                         "attn_block_map.size is %u; it is at least %zu, set it to sizeof(attn_block_map)",
                         r->args.block_map->size, sizeof map);
    if (r->call.cu_q.data)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "block_map was given with cu_seqlens; a map describes one length, so pass the "
                         "sequences one by one");
    const DLTensor *tensors[] = {map.counts, map.blocks};
    static const char *const names[] = {"block_map.counts", "block_map.blocks"};
    for (int i = 0; i < 2; i++) {
        attn_view view;
        if (!tensors[i])
            return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                             "%s is NULL; a block map has counts and blocks of its lists", names[i]);
        ATTN_TRY(attn_read_tensor(r, names[i], tensors[i], 3 + i, 3 + i, ATTN_INPUT, &view, error));
        ATTN_TRY(attn_check_broadcast(&view, 0, p->batch, "1 or the batch of q", error));
        ATTN_TRY(attn_check_broadcast(&view, 1, p->heads, "1 or the number of query heads", error));
    }
    ATTN_TRY(read_block_lists(r, &map, error));
    p->features |= ATTN_FEATURE(BLOCK_MAP);
    p->block_q = map.block_q;
    p->block_k = map.block_k;
    return ATTN_OK;
}

attn_status attn_read_operands(attn_request *r, const attn_view *q, const attn_view *k, attn_error *error)
{
    ATTN_TRY(read_lengths(r, q, k, error));
    ATTN_TRY(read_lse(r, error));
    ATTN_TRY(read_scores(r, error));
    ATTN_TRY(read_mask(r, error));
    ATTN_TRY(read_key_mask(r, error));
    ATTN_TRY(read_sinks(r, error));
    ATTN_TRY(read_spans(r, error));
    ATTN_TRY(read_block_map(r, error));
    ATTN_TRY(read_positions(r, error));
    return attn_read_keys(r, error);
}
