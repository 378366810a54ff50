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

/* Copies a strided row of elements; widths are those of our types. */
static void copy_row(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t count,
                     size_t width)
{
    if (to_step == (int64_t)width && from_step == (int64_t)width) {
        memcpy(to, from, (size_t)count * width);
        return;
    }
    for (int64_t i = 0; i < count; i++) memcpy(to + i * to_step, from + i * from_step, width);
}

/* Moves one BSND view to (or from) its rows in a dense joined copy that starts `first` rows in. */
static void move_rows(const attn_view *view, char *dense, int64_t rows, int64_t first, bool out_of_dense)
{
    int64_t width = (int64_t)attn_dtype_bytes(view->dtype), row = view->shape[H] * view->shape[D] * width;
    for (int64_t b = 0; b < view->shape[B]; b++)
        for (int64_t s = 0; s < view->shape[S]; s++)
            for (int64_t h = 0; h < view->shape[H]; h++) {
                char *packed = dense + ((b * rows + first + s) * row) + h * view->shape[D] * width;
                char *place_of =
                    view->data + (b * view->stride[B] + s * view->stride[S] + h * view->stride[H]) * width;
                int64_t step = view->stride[D] * width;
                if (out_of_dense)
                    copy_row(place_of, step, packed, width, view->shape[D], (size_t)width);
                else
                    copy_row(packed, width, place_of, step, view->shape[D], (size_t)width);
            }
}

static void move_pair(const attn_joint_pair *pair, char *area, bool rear, bool out_of_dense)
{
    int64_t main_rows = pair->main.shape[S], joint_rows = pair->joint.shape[S], rows = main_rows + joint_rows;
    move_rows(&pair->main, area + pair->offset, rows, rear ? 0 : joint_rows, out_of_dense);
    move_rows(&pair->joint, area + pair->offset, rows, rear ? main_rows : 0, out_of_dense);
}

static void gather_keys(const attn_view *mask, uint8_t *to, int64_t rows, int64_t first, int64_t keys,
                        int64_t batch)
{
    for (int64_t b = 0; b < batch; b++)
        for (int64_t j = 0; j < keys; j++)
            to[b * rows + first + j] =
                mask->name ? ((const uint8_t *)mask->data)[b * mask->stride[0] + j * mask->stride[1]] : 1;
}

void attn_joint_gather(attn_request *r, void *area)
{
    bool rear = r->args.joint_order == ATTN_JOINT_REAR;
    const attn_joint_pair *pairs[] = {&r->jq, &r->jk, &r->jv};
    for (int i = 0; i < 3; i++) move_pair(pairs[i], area, rear, false);
    r->call.q = (char *)area + r->jq.offset;
    r->call.k = (char *)area + r->jk.offset;
    r->call.v = (char *)area + r->jv.offset;
    if (r->jout.main.name) r->call.out = (char *)area + r->jout.offset;
    if (!(r->problem.features & ATTN_FEATURE(KEY_MASK))) return;
    uint8_t *keys = (uint8_t *)area + r->jkey.offset;
    int64_t main_keys = r->jk.main.shape[S], joint_keys = r->jk.joint.shape[S], rows = main_keys + joint_keys;
    gather_keys(&r->jkey.main, keys, rows, rear ? 0 : joint_keys, main_keys, r->problem.batch);
    gather_keys(&r->jkey.joint, keys, rows, rear ? main_keys : 0, joint_keys, r->problem.batch);
    r->call.key_mask = keys;
}

void attn_joint_scatter(const attn_request *r, void *area)
{
    if (r->jout.main.name) move_pair(&r->jout, area, r->args.joint_order == ATTN_JOINT_REAR, true);
}
