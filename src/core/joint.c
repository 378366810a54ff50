/* joint.c: joint tokens become part of the sequence, so that no backend needs to know of them. */
#include "core/problem.h"

#include "core/memory.h"

#include <string.h>

enum { B, S, H, D };

/* Elements of both parts; false when they are more than memory has addresses. */
static bool place(attn_request *r, attn_joint_pair *pair, int64_t elements, size_t width)
{
    size_t rounded;
    if (elements < 0 || !attn_mul((size_t)elements, width, &pair->bytes) ||
        !attn_add(pair->bytes, ATTN_ALIGN - 1, &rounded))
        return false;
    pair->offset = r->joint_bytes;
    return attn_add(r->joint_bytes, rounded / ATTN_ALIGN * ATTN_ALIGN, &r->joint_bytes);
}

static bool place_pair(attn_request *r, attn_joint_pair *pair)
{
    int64_t elements;
    if (!pair->main.name) return true;
    if (__builtin_add_overflow(attn_view_count(&pair->main), attn_view_count(&pair->joint), &elements))
        return false;
    return place(r, pair, elements, attn_dtype_bytes(pair->main.dtype));
}

bool attn_joint_layout(attn_request *r)
{
    int64_t keys;
    bool fits =
        place_pair(r, &r->jq) && place_pair(r, &r->jk) && place_pair(r, &r->jv) && place_pair(r, &r->jout);
    if (!fits || !(r->problem.features & ATTN_FEATURE(KEY_MASK))) return fits;
    return !__builtin_mul_overflow(r->problem.batch, r->problem.kv_len, &keys) && place(r, &r->jkey, keys, 1);
}

/* What moves the parts: the functions of the device that holds them, or of the host. */
typedef struct mover {
    const attn_device *ops;
    int32_t device;
    void *stream;
    attn_error *error;
} mover;

/* A piece of rows on either side; the dense side is the joined copy. Pitches in bytes. */
static attn_status move(const mover *m, char *dense, int64_t dense_pitch, char *part, int64_t part_pitch,
                        int64_t width, int64_t rows, bool out_of_dense)
{
    if (!width || !rows) return ATTN_OK;
    if (rows == 1) dense_pitch = part_pitch = width;
    if (out_of_dense)
        return m->ops->copy(m->device, part, part_pitch, dense, dense_pitch, (size_t)width, rows, m->stream,
                            m->error);
    return m->ops->copy(m->device, dense, dense_pitch, part, part_pitch, (size_t)width, rows, m->stream,
                        m->error);
}

/* One sample, in the widest pieces that its strides allow. */
static attn_status move_sample(const mover *m, const attn_view *view, char *part, char *dense,
                               bool out_of_dense)
{
    int64_t width = (int64_t)attn_dtype_bytes(view->dtype), heads = view->shape[H], dim = view->shape[D];
    int64_t row = heads * dim * width, step = view->stride[S] * width;
    bool channels = dim <= 1 || view->stride[D] == 1;
    if (channels && (heads <= 1 || view->stride[H] == dim))
        return move(m, dense, row, part, step, row, view->shape[S], out_of_dense);
    for (int64_t h = 0; h < heads && channels; h++)
        ATTN_TRY(move(m, dense + h * dim * width, row, part + h * view->stride[H] * width, step, dim * width,
                      view->shape[S], out_of_dense));
    for (int64_t i = 0; i < view->shape[S] * heads && !channels; i++)
        ATTN_TRY(move(m, dense + i * dim * width, width,
                      part + i / heads * step + i % heads * view->stride[H] * width, view->stride[D] * width,
                      width, dim, out_of_dense));
    return ATTN_OK;
}

/* Moves one BSND view to (or from) its rows in a dense joined copy that starts `first` rows in. */
static attn_status move_rows(const mover *m, const attn_view *view, char *dense, int64_t rows, int64_t first,
                             bool out_of_dense)
{
    int64_t width = (int64_t)attn_dtype_bytes(view->dtype), row = view->shape[H] * view->shape[D] * width;
    for (int64_t b = 0; b < view->shape[B]; b++)
        ATTN_TRY(move_sample(m, view, view->data + b * view->stride[B] * width,
                             dense + (b * rows + first) * row, out_of_dense));
    return ATTN_OK;
}

static attn_status move_pair(const mover *m, const attn_joint_pair *pair, char *area, bool rear,
                             bool out_of_dense)
{
    int64_t main_rows = pair->main.shape[S], joint_rows = pair->joint.shape[S], rows = main_rows + joint_rows;
    ATTN_TRY(move_rows(m, &pair->main, area + pair->offset, rows, rear ? 0 : joint_rows, out_of_dense));
    return move_rows(m, &pair->joint, area + pair->offset, rows, rear ? main_rows : 0, out_of_dense);
}

static attn_status gather_keys(const mover *m, const attn_view *mask, char *to, int64_t rows, int64_t first,
                               int64_t keys, int64_t batch)
{
    for (int64_t b = 0; b < batch && keys; b++) {
        char *at = to + b * rows + first, *from = mask->data + b * mask->stride[0];
        if (!mask->name)
            ATTN_TRY(m->ops->fill(m->device, at, 1, (size_t)keys, m->stream, m->error));
        else if (keys > 1 && mask->stride[1] != 1)
            ATTN_TRY(move(m, at, 1, from, mask->stride[1], 1, keys, false));
        else
            ATTN_TRY(move(m, at, keys, from, keys, keys, 1, false));
    }
    return ATTN_OK;
}

attn_status attn_joint_gather(attn_request *r, const attn_device *ops, void *area, attn_error *error)
{
    mover m = {ops, r->site->device.device_id, r->args.stream, error};
    bool rear = r->args.joint_order == ATTN_JOINT_REAR;
    const attn_joint_pair *pairs[] = {&r->jq, &r->jk, &r->jv};
    for (int i = 0; i < 3; i++) ATTN_TRY(move_pair(&m, pairs[i], area, rear, false));
    r->call.q = (char *)area + r->jq.offset;
    r->call.k = (char *)area + r->jk.offset;
    r->call.v = (char *)area + r->jv.offset;
    if (r->jout.main.name) r->call.out = (char *)area + r->jout.offset;
    if (!(r->problem.features & ATTN_FEATURE(KEY_MASK))) return ATTN_OK;
    char *keys = (char *)area + r->jkey.offset;
    int64_t main_keys = r->jk.main.shape[S], joint_keys = r->jk.joint.shape[S], rows = main_keys + joint_keys;
    ATTN_TRY(gather_keys(&m, &r->jkey.main, keys, rows, rear ? 0 : joint_keys, main_keys, r->problem.batch));
    ATTN_TRY(gather_keys(&m, &r->jkey.joint, keys, rows, rear ? main_keys : 0, joint_keys, r->problem.batch));
    r->call.key_mask = (const uint8_t *)keys;
    return ATTN_OK;
}

attn_status attn_joint_scatter(const attn_request *r, const attn_device *ops, void *area, attn_error *error)
{
    mover m = {ops, r->site->device.device_id, r->args.stream, error};
    return r->jout.main.name ? move_pair(&m, &r->jout, area, r->args.joint_order == ATTN_JOINT_REAR, true)
                             : ATTN_OK;
}

/* ---- what a device can move --------------------------------------------------------------------- */

/* Devices copy rows of bytes at a pitch that is no less than the row. */
static bool pitched(const attn_view *v, int axis, int64_t least)
{
    return v->shape[axis] <= 1 || v->stride[axis] >= least;
}

static attn_status check_part(const attn_view *v, attn_error *error)
{
    bool mask = v->ndim == 2;
    if (!v->name ||
        (mask ? pitched(v, 1, 1) : (v->shape[D] <= 1 || v->stride[D] == 1) && pitched(v, S, v->shape[D])))
        return ATTN_OK;
    return attn_fail(
        error, ATTN_KIND_FEATURE_UNSUPPORTED,
        "%s cannot be joined on its device: %s; make it contiguous or concatenate the parts before the call",
        v->name,
        mask ? "its keys must step forward"
             : "its channels must lie side by side and its rows step "
               "forward by at least as much");
}

attn_status attn_joint_check(const attn_request *r, attn_error *error)
{
    const attn_joint_pair *pairs[] = {&r->jq, &r->jk, &r->jv, &r->jout, &r->jkey};
    for (int i = 0; i < 5; i++) {
        ATTN_TRY(check_part(&pairs[i]->main, error));
        ATTN_TRY(check_part(&pairs[i]->joint, error));
    }
    return ATTN_OK;
}
