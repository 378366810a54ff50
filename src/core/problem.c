/* problem.c: layer facts and arguments become one checked call. */
#include "core/problem_parts.h"

#include "core/dtype.h"

#include <inttypes.h>
#include <string.h>

enum { B, S, H, D }; /* axes of a BSND view */

static bool floating(attn_dtype dtype)
{
    return dtype == ATTN_F32 || dtype == ATTN_F16 || dtype == ATTN_BF16 || dtype == ATTN_F64;
}

attn_status attn_check_size(const attn_view *v, int axis, int64_t expected, const char *whose,
                            attn_error *error)
{
    if (v->shape[axis] == expected) return ATTN_OK;
    char shape[96];
    return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                     "%s has %" PRId64 " on axis %d (shape %s); %s is %" PRId64 ", make them equal", v->name,
                     v->shape[axis], axis, attn_view_shape(v, shape, sizeof shape), whose, expected);
}

attn_status attn_check_broadcast(const attn_view *v, int axis, int64_t full, const char *whose,
                                 attn_error *error)
{
    return v->shape[axis] == 1 ? ATTN_OK : attn_check_size(v, axis, full, whose, error);
}

static attn_status check_device(const attn_site *site, const attn_view *v, attn_error *error)
{
    if (!site->device.device_type) return ATTN_OK; /* a described machine, where nothing runs */
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

attn_status attn_note_tensor(attn_request *r, const attn_view *view, attn_use use, attn_error *error)
{
    ATTN_TRY(check_device(r->site, view, error));
    if (use == ATTN_OUTPUT) ATTN_TRY(attn_view_writable(view, error));
    r->uses[r->tensor_count] = use;
    r->tensors[r->tensor_count++] = *view;
    return ATTN_OK;
}

attn_status attn_read_tensor(attn_request *r, const char *name, const DLTensor *tensor, int least, int most,
                             attn_use use, attn_view *view, attn_error *error)
{
    ATTN_TRY(attn_view_read(name, tensor, least, most, view, error));
    return attn_note_tensor(r, view, use, error);
}

static attn_status read_bsnd(attn_request *r, const char *name, const DLTensor *tensor, attn_use use,
                             attn_view *view, attn_error *error)
{
    if (!tensor)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "%s is NULL; a forward call needs q, k, v and out",
                         name);
    bool packed = r->args.cu_seqlens_q || r->args.cu_seqlens_k;
    ATTN_TRY(attn_read_tensor(r, name, tensor, packed ? 3 : 4, 4, use, view, error));
    if (view->ndim == 3) attn_view_add_batch(view);
    if (packed) ATTN_TRY(attn_check_size(view, B, 1, "the batch of packed sequences", error));
    return ATTN_OK;
}

static attn_status check_query_dtype(const attn_site *site, const attn_view *q, attn_error *error)
{
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

static attn_status check_dtypes(const attn_site *site, const attn_view *q, const attn_view *k,
                                const attn_view *v, attn_error *error)
{
    if (q->dtype != k->dtype || q->dtype != v->dtype)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE,
                         "q %s, k %s, v %s: the three element types differ; convert them to one",
                         attn_dtype_word(q->dtype), attn_dtype_word(k->dtype), attn_dtype_word(v->dtype));
    return check_query_dtype(site, q, error);
}

static attn_status check_query(const attn_site *site, const attn_view *q, attn_error *error)
{
    ATTN_TRY(attn_check_size(q, H, site->heads, "the layer's number of heads", error));
    return attn_check_size(q, D, site->head_dim, "the layer's head_dim", error);
}

/* Heads and head sizes of the site, batch and lengths of each other. */
static attn_status check_qkv(const attn_site *site, const attn_view *q, const attn_view *k,
                             const attn_view *v, attn_error *error)
{
    ATTN_TRY(check_dtypes(site, q, k, v, error));
    ATTN_TRY(check_query(site, q, error));
    ATTN_TRY(attn_check_size(k, H, site->kv_heads, "the layer's number of kv heads", error));
    ATTN_TRY(attn_check_size(v, H, site->kv_heads, "the layer's number of kv heads", error));
    ATTN_TRY(attn_check_size(k, D, site->head_dim, "the layer's head_dim", error));
    ATTN_TRY(attn_check_size(v, D, site->value_head_dim, "the layer's value_head_dim", error));
    ATTN_TRY(attn_check_size(k, B, q->shape[B], "the batch of q", error));
    ATTN_TRY(attn_check_size(v, B, q->shape[B], "the batch of q", error));
    return attn_check_size(v, S, k->shape[S], "the number of keys in k", error);
}

static attn_status check_out(const attn_view *q, int64_t rows, int64_t value_dim, const attn_view *out,
                             attn_error *error)
{
    ATTN_TRY(attn_check_size(out, B, q->shape[B], "the batch of q", error));
    ATTN_TRY(attn_check_size(out, S, rows, "the number of query rows", error));
    ATTN_TRY(attn_check_size(out, H, q->shape[H], "the number of query heads", error));
    ATTN_TRY(attn_check_size(out, D, value_dim, "the layer's value_head_dim", error));
    if (out->dtype != q->dtype && (out->dtype != ATTN_F32 || q->dtype == ATTN_F64))
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE, "%s is %s and q is %s; %s may be the type of q%s",
                         out->name, attn_dtype_word(out->dtype), attn_dtype_word(q->dtype), out->name,
                         q->dtype == ATTN_F64 ? "" : " or fp32");
    return ATTN_OK;
}

static void joined(const attn_joint_pair *pair, attn_view *view)
{
    *view = pair->main;
    view->data = NULL;
    view->low = view->high = 0;
    /* Both are sizes of tensors that were read; their sum is checked with the bytes of the copy. */
    view->shape[S] = (int64_t)((uint64_t)view->shape[S] + (uint64_t)pair->joint.shape[S]);
    int64_t dense = 1;
    for (int i = 3; i >= 0; i--) {
        view->stride[i] = view->shape[i] > 1 ? dense : 0;
        dense = (int64_t)((uint64_t)dense * (uint64_t)view->shape[i]);
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
    ATTN_TRY(read_bsnd(r, "joint_q", a->joint_q, ATTN_INPUT, &r->jq.joint, error));
    ATTN_TRY(read_bsnd(r, "joint_k", a->joint_k, ATTN_INPUT, &r->jk.joint, error));
    ATTN_TRY(read_bsnd(r, "joint_v", a->joint_v, ATTN_INPUT, &r->jv.joint, error));
    ATTN_TRY(check_qkv(site, &r->jq.joint, &r->jk.joint, &r->jv.joint, error));
    ATTN_TRY(attn_check_size(&r->jq.joint, B, q->shape[B], "the batch of q", error));
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
    bool split = r->joint && a->joint_out;
    ATTN_TRY(read_bsnd(r, "out", a->out, ATTN_OUTPUT, out, error));
    int64_t rows = split ? r->jq.main.shape[S] : q->shape[S];
    ATTN_TRY(check_out(q, rows, v->shape[D], out, error));
    if (!split) return ATTN_OK;
    r->jout.main = *out;
    ATTN_TRY(read_bsnd(r, "joint_out", a->joint_out, ATTN_OUTPUT, &r->jout.joint, error));
    ATTN_TRY(check_out(q, r->jq.joint.shape[S], v->shape[D], &r->jout.joint, error));
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

static void fill_problem(const attn_site *site, attn_request *r, const attn_view *q, const attn_view *k,
                         const attn_view *v, const attn_view *out)
{
    attn_problem *p = &r->problem;
    attn_site_problem(site, p);
    p->dtype = p->kv_dtype = q->dtype;
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

/* No output may share memory with an input or another output. */
static attn_status check_overlap(const attn_request *r, attn_error *error)
{
    for (int o = 0; o < r->tensor_count; o++) {
        for (int i = 0; r->uses[o] == ATTN_OUTPUT && i < r->tensor_count; i++) {
            bool pair = i != o && (r->uses[i] == ATTN_INPUT || i < o);
            if (pair && attn_views_overlap(&r->tensors[o], &r->tensors[i]))
                return attn_fail(error, ATTN_KIND_INVALID_LAYOUT,
                                 "%s overlaps %s in memory; give the output memory of its own",
                                 r->tensors[o].name, r->tensors[i].name);
        }
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
    if (r->args.flags)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "attn_args.flags is 0x%x; this version knows no flag, set it to 0", r->args.flags);
    return ATTN_OK;
}

static attn_status read_qkv(attn_request *r, attn_view *q, attn_view *k, attn_view *v, attn_error *error)
{
    const attn_args *a = &r->args;
    ATTN_TRY(read_bsnd(r, "q", a->q, ATTN_INPUT, q, error));
    if (a->cache) {
        ATTN_TRY(check_query_dtype(r->site, q, error));
        ATTN_TRY(check_query(r->site, q, error));
        return attn_read_cache(r, k, v, error);
    }
    if (a->block_table)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "block_table was given without a cache; pass attn_args.cache or leave it NULL");
    ATTN_TRY(read_bsnd(r, "k", a->k, ATTN_INPUT, k, error));
    ATTN_TRY(read_bsnd(r, "v", a->v, ATTN_INPUT, v, error));
    return check_qkv(r->site, q, k, v, error);
}

attn_status attn_request_read(const attn_site *site, const attn_args *args, attn_request *r,
                              attn_error *error)
{
    attn_view q, k, v, out;
    memset(r, 0, sizeof *r);
    r->site = site;
    ATTN_TRY(read_args_struct(args, r, error));
    const attn_args *a = &r->args;
    ATTN_TRY(read_qkv(r, &q, &k, &v, error));
    ATTN_TRY(read_joint(site, r, &q, &k, &v, error));
    ATTN_TRY(read_outputs(r, &q, &v, &out, error));
    r->call.size = sizeof r->call;
    r->call.problem = &r->problem;
    fill_problem(site, r, &q, &k, &v, &out);
    if (a->cache) ATTN_TRY(attn_fill_cache(r, error));
    ATTN_TRY(attn_read_operands(r, &q, &k, error));
    ATTN_TRY(check_overlap(r, error));
    r->problem.align = 64;
    const attn_view *aligned[] = {&q, &k, &v, &out};
    for (int i = 0; i < 4; i++) r->problem.align = attn_view_align(aligned[i], r->problem.align);
    r->call.cancel = a->cancel;
    r->call.stream = a->stream;
    if (!r->joint) return ATTN_OK;
    if (site->device.device_type && site->device.device_type != kDLCPU) ATTN_TRY(attn_joint_check(r, error));
    if (attn_joint_layout(r)) return ATTN_OK;
    return attn_fail(
        error, ATTN_KIND_OUT_OF_MEMORY,
        "the joined q, k and v would exceed the address space; check the shapes of the joint tensors");
}
