/* problem.c: layer facts and arguments become one checked call. */
#include "core/problem.h"

#include "core/dtype.h"

#include <inttypes.h>
#include <string.h>

enum { B, S, H, D }; /* axes of a BSND view */

static bool floating(attn_dtype dtype)
{
    return dtype == ATTN_F32 || dtype == ATTN_F16 || dtype == ATTN_BF16 || dtype == ATTN_F64;
}

static bool byte_sized(attn_dtype dtype)
{
    return dtype == ATTN_BOOL || dtype == ATTN_U8 || dtype == ATTN_I8;
}

/* One size of one axis against what it must be. */
static attn_status check_size(const attn_view *v, int axis, int64_t expected, const char *whose,
                              attn_error *error)
{
    if (v->shape[axis] == expected) return ATTN_OK;
    char shape[96];
    return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                     "%s has %" PRId64 " on axis %d (shape %s); %s is %" PRId64 ", make them equal", v->name,
                     v->shape[axis], axis, attn_view_shape(v, shape, sizeof shape), whose, expected);
}

static attn_status check_broadcast(const attn_view *v, int axis, int64_t full, const char *whose,
                                   attn_error *error)
{
    return v->shape[axis] == 1 ? ATTN_OK : check_size(v, axis, full, whose, error);
}

static attn_status read_bsnd(const char *name, const DLTensor *tensor, bool packed, attn_view *view,
                             attn_error *error)
{
    if (!tensor)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "%s is NULL; a forward call needs q, k, v and out",
                         name);
    ATTN_TRY(attn_view_read(name, tensor, packed ? 3 : 4, 4, view, error));
    if (view->ndim == 3) attn_view_add_batch(view);
    if (packed) ATTN_TRY(check_size(view, B, 1, "the batch of packed sequences", error));
    return ATTN_OK;
}

static attn_status check_dtypes(const attn_site *site, const attn_view *q, const attn_view *k,
                                const attn_view *v, attn_error *error)
{
    if (q->dtype != k->dtype || q->dtype != v->dtype)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE,
                         "q %s, k %s, v %s: the three element types differ; convert them to one",
                         attn_dtype_word(q->dtype), attn_dtype_word(k->dtype), attn_dtype_word(v->dtype));
    if (!floating(q->dtype))
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE,
                         "q, k and v are %s; attention takes fp32, fp16, bf16 (fp64 on the reference)",
                         attn_dtype_word(q->dtype));
    if (site->dtype && site->dtype != q->dtype)
        return attn_fail(
            error, ATTN_KIND_INVALID_DTYPE,
            "q, k and v are %s but the layer was opened for %s; open it with dtype 0 or the right one",
            attn_dtype_word(q->dtype), attn_dtype_word(site->dtype));
    return ATTN_OK;
}

static attn_status check_device(const attn_site *site, const attn_view *v, attn_error *error)
{
    bool host = site->device.device_type == kDLCPU &&
                (v->device.device_type == kDLCPU || v->device.device_type == kDLCUDAHost);
    if (host ||
        (v->device.device_type == site->device.device_type && v->device.device_id == site->device.device_id))
        return ATTN_OK;
    return attn_fail(
        error, ATTN_KIND_DEVICE_MISMATCH,
        "%s lives on DLPack device %d:%d but the layer runs on %d:%d; move the tensor or open the layer "
        "for its device",
        v->name, (int)v->device.device_type, v->device.device_id, (int)site->device.device_type,
        site->device.device_id);
}

/* Heads and head sizes of the site, batch and lengths of each other. */
static attn_status check_qkv(const attn_site *site, const attn_view *q, const attn_view *k,
                             const attn_view *v, attn_error *error)
{
    ATTN_TRY(check_dtypes(site, q, k, v, error));
    ATTN_TRY(check_size(q, H, site->heads, "the layer's number of heads", error));
    ATTN_TRY(check_size(k, H, site->kv_heads, "the layer's number of kv heads", error));
    ATTN_TRY(check_size(v, H, site->kv_heads, "the layer's number of kv heads", error));
    ATTN_TRY(check_size(q, D, site->head_dim, "the layer's head_dim", error));
    ATTN_TRY(check_size(k, D, site->head_dim, "the layer's head_dim", error));
    ATTN_TRY(check_size(v, D, site->value_head_dim, "the layer's value_head_dim", error));
    ATTN_TRY(check_size(k, B, q->shape[B], "the batch of q", error));
    ATTN_TRY(check_size(v, B, q->shape[B], "the batch of q", error));
    return check_size(v, S, k->shape[S], "the number of keys in k", error);
}

static attn_status check_out(const attn_view *q, int64_t rows, int64_t value_dim, const attn_view *out,
                             attn_error *error)
{
    ATTN_TRY(check_size(out, B, q->shape[B], "the batch of q", error));
    ATTN_TRY(check_size(out, S, rows, "the number of query rows", error));
    ATTN_TRY(check_size(out, H, q->shape[H], "the number of query heads", error));
    ATTN_TRY(check_size(out, D, value_dim, "the layer's value_head_dim", error));
    if (out->dtype != q->dtype && (out->dtype != ATTN_F32 || q->dtype == ATTN_F64))
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE, "%s is %s and q is %s; %s may be the type of q%s",
                         out->name, attn_dtype_word(out->dtype), attn_dtype_word(q->dtype), out->name,
                         q->dtype == ATTN_F64 ? "" : " or fp32");
    return ATTN_OK;
}

/* An output that is written twice would depend on the order of threads. */
static attn_status check_writable(const attn_view *v, attn_error *error)
{
    for (int i = 0; i < v->ndim; i++)
        if (v->shape[i] > 1 && v->stride[i] == 0 && v->high != v->low)
            return attn_fail(error, ATTN_KIND_INVALID_LAYOUT,
                             "%s is an output with stride 0 on axis %d of size %" PRId64
                             "; give every element its own place",
                             v->name, i, v->shape[i]);
    return ATTN_OK;
}

static void joined(const attn_joint_pair *pair, attn_view *view)
{
    *view = pair->main;
    view->data = NULL;
    view->low = view->high = 0;
    view->shape[S] += pair->joint.shape[S];
    int64_t dense = 1;
    for (int i = 3; i >= 0; i--) {
        view->stride[i] = view->shape[i] > 1 ? dense : 0;
        dense *= view->shape[i];
    }
}

static attn_status check_joint_args(const attn_args *a, attn_error *error)
{
    if (!a->joint_q || !a->joint_k || !a->joint_v)
        return attn_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "joint_q is %s, joint_k is %s, joint_v is %s; joint tensors come together or not at all",
            a->joint_q ? "given" : "NULL", a->joint_k ? "given" : "NULL", a->joint_v ? "given" : "NULL");
    if (a->joint_order != ATTN_JOINT_FRONT && a->joint_order != ATTN_JOINT_REAR)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "joint_order is %d; it is 0 (front) or 1 (rear)",
                         a->joint_order);
    if (a->cu_seqlens_q || a->cu_seqlens_k)
        return attn_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "joint tensors and cu_seqlens were both given; join packed sequences before the call");
    if (a->kv_lengths)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "joint tensors and kv_lengths were both given; say what is valid with key_mask and "
                         "joint_key_mask");
    return ATTN_OK;
}

static attn_status read_joint(const attn_site *site, attn_request *r, attn_view *q, attn_view *k,
                              attn_view *v, attn_error *error)
{
    const attn_args *a = &r->args;
    r->joint = a->joint_q || a->joint_k || a->joint_v;
    if (!r->joint) {
        if (a->joint_out || a->joint_key_mask)
            return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                             "%s was given without joint_q, joint_k and joint_v; pass them or leave it NULL",
                             a->joint_out ? "joint_out" : "joint_key_mask");
        return ATTN_OK;
    }
    ATTN_TRY(check_joint_args(a, error));
    r->jq.main = *q, r->jk.main = *k, r->jv.main = *v;
    ATTN_TRY(read_bsnd("joint_q", a->joint_q, false, &r->jq.joint, error));
    ATTN_TRY(read_bsnd("joint_k", a->joint_k, false, &r->jk.joint, error));
    ATTN_TRY(read_bsnd("joint_v", a->joint_v, false, &r->jv.joint, error));
    ATTN_TRY(check_qkv(site, &r->jq.joint, &r->jk.joint, &r->jv.joint, error));
    ATTN_TRY(check_size(&r->jq.joint, B, q->shape[B], "the batch of q", error));
    if (r->jq.joint.dtype != q->dtype)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE,
                         "joint_q %s, q %s: convert the joint tensors to the type of q",
                         attn_dtype_word(r->jq.joint.dtype), attn_dtype_word(q->dtype));
    joined(&r->jq, q);
    joined(&r->jk, k);
    joined(&r->jv, v);
    return ATTN_OK;
}

static attn_status read_outputs(attn_request *r, const attn_view *q, const attn_view *v, attn_view *out,
                                attn_error *error)
{
    const attn_args *a = &r->args;
    bool packed = a->cu_seqlens_q || a->cu_seqlens_k, split = r->joint && a->joint_out;
    ATTN_TRY(read_bsnd("out", a->out, packed, out, error));
    int64_t rows = split ? r->jq.main.shape[S] : q->shape[S];
    ATTN_TRY(check_out(q, rows, v->shape[D], out, error));
    ATTN_TRY(check_writable(out, error));
    if (!split) return ATTN_OK;
    r->jout.main = *out;
    ATTN_TRY(read_bsnd("joint_out", a->joint_out, false, &r->jout.joint, error));
    ATTN_TRY(check_out(q, r->jq.joint.shape[S], v->shape[D], &r->jout.joint, error));
    ATTN_TRY(check_writable(&r->jout.joint, error));
    if (r->jout.joint.dtype != out->dtype)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE,
                         "joint_out %s, out %s: the two outputs have one element type",
                         attn_dtype_word(r->jout.joint.dtype), attn_dtype_word(out->dtype));
    joined(&r->jout, out);
    return ATTN_OK;
}

static void copy_strides(int64_t *to, const attn_view *from)
{
    memcpy(to, from->stride, sizeof from->stride);
}

static attn_status read_lse(attn_request *r, attn_view *lse, attn_error *error)
{
    attn_problem *p = &r->problem;
    if (!r->args.lse) return ATTN_OK;
    bool packed = r->call.cu_q.data != NULL;
    ATTN_TRY(attn_view_read("lse", r->args.lse, packed ? 2 : 3, 3, lse, error));
    if (lse->ndim == 2) {
        memmove(lse->shape + 1, lse->shape, 2 * sizeof *lse->shape);
        memmove(lse->stride + 1, lse->stride, 2 * sizeof *lse->stride);
        lse->shape[0] = 1, lse->stride[0] = 0, lse->ndim = 3;
    }
    if (lse->dtype != ATTN_F32)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE, "lse is %s; it is always fp32",
                         attn_dtype_word(lse->dtype));
    ATTN_TRY(check_size(lse, 0, packed ? 1 : p->batch, "the batch of q", error));
    ATTN_TRY(check_size(lse, 1, p->heads, "the number of query heads", error));
    ATTN_TRY(check_size(lse, 2, p->q_len, "the number of query rows", error));
    ATTN_TRY(check_writable(lse, error));
    memcpy(p->lse_stride, lse->stride, sizeof p->lse_stride);
    r->call.lse = (float *)(void *)lse->data;
    p->features |= ATTN_FEATURE(LSE);
    return ATTN_OK;
}

static attn_status read_scores(attn_request *r, attn_view *scores, attn_error *error)
{
    attn_problem *p = &r->problem;
    if (!r->args.scores) return ATTN_OK;
    if (r->call.cu_q.data)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "scores was given with cu_seqlens; ask for the scores of one sequence at a time");
    ATTN_TRY(attn_view_read("scores", r->args.scores, 4, 4, scores, error));
    if (scores->dtype != ATTN_F32 && scores->dtype != p->dtype)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE,
                         "scores is %s and q is %s; it may be fp32 or the type of q",
                         attn_dtype_word(scores->dtype), attn_dtype_word(p->dtype));
    if (r->args.scores_mode < ATTN_SCORES_SCALED || r->args.scores_mode > ATTN_SCORES_PROBS)
        return attn_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "scores_mode is %d; with scores it is 1 (scaled), 2 (capped), 3 (masked) or 4 (probs)",
            r->args.scores_mode);
    ATTN_TRY(check_size(scores, 0, p->batch, "the batch of q", error));
    ATTN_TRY(check_size(scores, 1, p->heads, "the number of query heads", error));
    ATTN_TRY(check_size(scores, 2, p->q_len, "the number of query rows", error));
    ATTN_TRY(check_size(scores, 3, p->kv_len, "the number of keys", error));
    ATTN_TRY(check_writable(scores, error));
    copy_strides(p->scores_stride, scores);
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

static attn_status read_mask(attn_request *r, attn_view *mask, attn_error *error)
{
    attn_problem *p = &r->problem;
    if (!r->args.mask) return ATTN_OK;
    if (r->call.cu_q.data)
        return attn_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "mask was given with cu_seqlens; packed sequences take causal, windows and spans only");
    if (r->args.mask->ndim == 2)
        return attn_fail(
            error, ATTN_KIND_INVALID_SHAPE,
            "mask has 2 axes; it needs 4 [batch, heads, queries, keys], each full or 1 (a padding mask "
            "[batch, keys] goes into key_mask)");
    ATTN_TRY(attn_view_read("mask", r->args.mask, 4, 4, mask, error));
    ATTN_TRY(mask_form(mask, r->args.mask_kind, p->dtype, &p->mask_form, error));
    ATTN_TRY(check_broadcast(mask, 0, p->batch, "1 or the batch of q", error));
    ATTN_TRY(check_broadcast(mask, 1, p->heads, "1 or the number of query heads", error));
    ATTN_TRY(check_broadcast(mask, 2, p->q_len, "1 or the number of query rows", error));
    ATTN_TRY(check_broadcast(mask, 3, p->kv_len, "1 or the number of keys", error));
    copy_strides(p->mask_stride, mask);
    p->mask_dtype = mask->dtype;
    r->call.mask = mask->data;
    p->features |= p->mask_form == ATTN_FORM_KEEP ? ATTN_FEATURE(MASK_KEEP) : ATTN_FEATURE(MASK_ADDITIVE);
    return ATTN_OK;
}

static attn_status read_one_key_mask(const char *name, const DLTensor *tensor, int64_t batch, int64_t keys,
                                     attn_view *view, attn_error *error)
{
    ATTN_TRY(attn_view_read(name, tensor, 2, 2, view, error));
    if (!byte_sized(view->dtype))
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE, "%s is %s; it is bool (u8 and i8 are read alike)",
                         name, attn_dtype_word(view->dtype));
    ATTN_TRY(check_broadcast(view, 0, batch, "1 or the batch of q", error));
    return check_size(view, 1, keys, "the number of keys", error);
}

static attn_status read_key_mask(const attn_site *site, attn_request *r, attn_view *view, attn_error *error)
{
    attn_problem *p = &r->problem;
    if (!r->args.key_mask && !r->args.joint_key_mask) return ATTN_OK;
    if (r->call.cu_q.data)
        return attn_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "key_mask was given with cu_seqlens; leave the hidden keys out of the packed sequences");
    p->features |= ATTN_FEATURE(KEY_MASK);
    if (r->args.key_mask)
        ATTN_TRY(read_one_key_mask("key_mask", r->args.key_mask, p->batch,
                                   r->joint ? r->jk.main.shape[S] : p->kv_len, view, error));
    if (!r->joint) {
        ATTN_TRY(check_device(site, view, error));
        p->key_mask_stride[0] = view->stride[0];
        p->key_mask_stride[1] = view->stride[1];
        r->call.key_mask = (const uint8_t *)view->data;
        return ATTN_OK;
    }
    if (r->args.joint_key_mask)
        ATTN_TRY(read_one_key_mask("joint_key_mask", r->args.joint_key_mask, p->batch, r->jk.joint.shape[S],
                                   &r->jkey.joint, error));
    r->jkey.main = *view;
    p->key_mask_stride[0] = p->batch > 1 ? p->kv_len : 0;
    p->key_mask_stride[1] = p->kv_len > 1;
    return ATTN_OK;
}

static attn_status read_index(const char *name, const DLTensor *tensor, attn_index *index, attn_view *view,
                              attn_error *error)
{
    ATTN_TRY(attn_view_read(name, tensor, 1, 1, view, error));
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

static attn_status check_lengths(const attn_index *index, int64_t most, attn_error *error)
{
    for (int64_t i = 0; i < index->count; i++) {
        int64_t n = attn_index_at(index, i);
        if (n < 0 || n > most)
            return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                             "kv_lengths[%" PRId64 "] is %" PRId64 "; k has %" PRId64
                             " keys, a length is 0 to that",
                             i, n, most);
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
    ATTN_TRY(read_index(name, tensor, index, &view, error));
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
    if (!a->cu_seqlens_q != !a->cu_seqlens_k)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "%s was given without %s; packed sequences need both",
                         a->cu_seqlens_q ? "cu_seqlens_q" : "cu_seqlens_k",
                         a->cu_seqlens_q ? "cu_seqlens_k" : "cu_seqlens_q");
    if (a->cu_seqlens_q) {
        ATTN_TRY(read_cu(r, "cu_seqlens_q", a->cu_seqlens_q, q->shape[S], &r->call.cu_q, error));
        ATTN_TRY(read_cu(r, "cu_seqlens_k", a->cu_seqlens_k, k->shape[S], &r->call.cu_k, error));
        if (r->call.cu_q.count != r->call.cu_k.count)
            return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                             "cu_seqlens_q has %" PRId64 " entries and cu_seqlens_k %" PRId64
                             "; both have sequences + 1",
                             r->call.cu_q.count, r->call.cu_k.count);
        p->batch = r->call.cu_q.count - 1;
        p->features |= ATTN_FEATURE(PACKED);
    }
    if (!a->kv_lengths) return ATTN_OK;
    ATTN_TRY(read_index("kv_lengths", a->kv_lengths, &r->call.kv_lengths, &view, error));
    ATTN_TRY(check_size(&view, 0, p->batch, "the batch of q", error));
    if (p->device_type == kDLCPU) ATTN_TRY(check_lengths(&r->call.kv_lengths, p->kv_len, error));
    p->features |= ATTN_FEATURE(LENGTHS);
    return ATTN_OK;
}

static attn_status read_sinks(attn_request *r, attn_error *error)
{
    attn_view view;
    if (!r->args.sinks) return ATTN_OK;
    ATTN_TRY(attn_view_read("sinks", r->args.sinks, 1, 1, &view, error));
    if (view.dtype != ATTN_F32)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE, "sinks is %s; it is fp32",
                         attn_dtype_word(view.dtype));
    ATTN_TRY(check_size(&view, 0, r->problem.heads, "the number of query heads", error));
    if (view.shape[0] > 1 && view.stride[0] != 1)
        return attn_fail(error, ATTN_KIND_INVALID_LAYOUT,
                         "sinks has stride %" PRId64 "; its heads lie side by side", view.stride[0]);
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

static void fill_problem(const attn_site *site, attn_request *r, const attn_view *q, const attn_view *k,
                         const attn_view *v, const attn_view *out)
{
    attn_problem *p = &r->problem;
    attn_site_problem(site, p);
    p->dtype = q->dtype;
    p->out_dtype = out->dtype;
    p->batch = q->shape[B];
    p->q_len = q->shape[S];
    p->kv_len = k->shape[S];
    copy_strides(p->q_stride, q);
    copy_strides(p->k_stride, k);
    copy_strides(p->v_stride, v);
    copy_strides(p->out_stride, out);
    bool inner = (q->shape[D] > 1 && q->stride[D] != 1) || (k->shape[D] > 1 && k->stride[D] != 1) ||
                 (v->shape[D] > 1 && v->stride[D] != 1) || (out->shape[D] > 1 && out->stride[D] != 1);
    if (inner) p->features |= ATTN_FEATURE(STRIDED);
    if (p->out_dtype != p->dtype) p->features |= ATTN_FEATURE(F32_OUT);
    r->call.q = q->data, r->call.k = k->data, r->call.v = v->data, r->call.out = out->data;
}

static attn_status check_all_devices(const attn_site *site, const attn_view *const *views, int count,
                                     attn_error *error)
{
    for (int i = 0; i < count; i++)
        if (views[i]->name) ATTN_TRY(check_device(site, views[i], error));
    return ATTN_OK;
}

static attn_status check_overlap(const attn_view *const *inputs, int input_count,
                                 const attn_view *const *outputs, int output_count, attn_error *error)
{
    for (int o = 0; o < output_count; o++) {
        for (int i = 0; i < input_count; i++)
            if (attn_views_overlap(outputs[o], inputs[i]))
                return attn_fail(error, ATTN_KIND_INVALID_LAYOUT,
                                 "%s overlaps %s in memory; give the output memory of its own",
                                 outputs[o]->name, inputs[i]->name);
        for (int i = 0; i < o; i++)
            if (attn_views_overlap(outputs[o], outputs[i]))
                return attn_fail(error, ATTN_KIND_INVALID_LAYOUT,
                                 "%s overlaps %s in memory; give each output memory of its own",
                                 outputs[o]->name, outputs[i]->name);
    }
    return ATTN_OK;
}

static attn_status read_args_struct(const attn_args *args, attn_request *r, attn_error *error)
{
    size_t least = offsetof(attn_args, lse);
    if (!args)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "args is NULL; a forward call needs q, k, v and out");
    if (!attn_copy_struct(&r->args, sizeof r->args, args, args->size, least))
        return attn_fail(error, ATTN_KIND_INVALID_STRUCT,
                         "attn_args.size is %u; it is at least %zu, set it to sizeof(attn_args)", args->size,
                         least);
    return ATTN_OK;
}

attn_status attn_request_read(const attn_site *site, const attn_args *args, attn_request *r,
                              attn_error *error)
{
    memset(r, 0, sizeof *r);
    ATTN_TRY(read_args_struct(args, r, error));
    const attn_args *a = &r->args;
    bool packed = a->cu_seqlens_q || a->cu_seqlens_k;
    attn_view q, k, v, out, lse = {0}, scores = {0}, mask = {0}, key_mask = {0};
    ATTN_TRY(read_bsnd("q", a->q, packed, &q, error));
    ATTN_TRY(read_bsnd("k", a->k, packed, &k, error));
    ATTN_TRY(read_bsnd("v", a->v, packed, &v, error));
    ATTN_TRY(check_qkv(site, &q, &k, &v, error));
    attn_view given_q = q, given_k = k, given_v = v;
    ATTN_TRY(read_joint(site, r, &q, &k, &v, error));
    ATTN_TRY(read_outputs(r, &q, &v, &out, error));
    fill_problem(site, r, &q, &k, &v, &out);
    ATTN_TRY(read_lengths(r, &q, &k, error));
    ATTN_TRY(read_lse(r, &lse, error));
    ATTN_TRY(read_scores(r, &scores, error));
    ATTN_TRY(read_mask(r, &mask, error));
    ATTN_TRY(read_key_mask(site, r, &key_mask, error));
    ATTN_TRY(read_sinks(r, error));
    ATTN_TRY(read_spans(r, error));
    ATTN_TRY(read_positions(r, error));
    const attn_view *inputs[] = {&given_q,  &given_k,     &given_v,     &mask,
                                 &key_mask, &r->jq.joint, &r->jk.joint, &r->jv.joint};
    const attn_view *outputs[] = {r->jout.main.name ? &r->jout.main : &out, &lse, &scores, &r->jout.joint};
    ATTN_TRY(check_all_devices(site, inputs, 8, error));
    ATTN_TRY(check_all_devices(site, outputs, 4, error));
    ATTN_TRY(check_overlap(inputs, 8, outputs, 4, error));
    r->problem.align = 64;
    const attn_view *aligned[] = {&q, &k, &v, &out};
    for (int i = 0; i < 4; i++) r->problem.align = attn_view_align(aligned[i], r->problem.align);
    r->call.size = sizeof r->call;
    r->call.problem = &r->problem;
    r->call.cancel = a->cancel;
    r->call.stream = a->stream;
    if (r->joint) attn_joint_layout(r);
    return ATTN_OK;
}
