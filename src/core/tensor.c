/* tensor.c: a DLTensor, checked and made plain. */
#include "core/tensor.h"

#include "core/dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *attn_view_shape(const attn_view *view, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (int i = 0; i < view->ndim && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%" PRId64, i ? ", " : "", view->shape[i]);
    if (used < bytes) snprintf(text + used, bytes - used, "]");
    return text;
}

int64_t attn_view_count(const attn_view *view)
{
    int64_t count = 1;
    for (int i = 0; i < view->ndim; i++) count *= view->shape[i];
    return count;
}

static attn_status read_shape(const DLTensor *t, attn_view *v, attn_error *error)
{
    int64_t count = 1, bytes;
    for (int i = 0; i < t->ndim; i++) {
        v->shape[i] = t->shape[i];
        if (t->shape[i] < 0)
            return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                             "%s has size %" PRId64 " on axis %d; sizes are 0 or more", v->name, t->shape[i],
                             i);
        /* An empty axis must not hide the overflow of the others: zero counts as one here. */
        if (__builtin_mul_overflow(count, t->shape[i] ? t->shape[i] : 1, &count))
            return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                             "%s has more elements than 64 bits count (axis %d has %" PRId64
                             "); check its shape",
                             v->name, i, t->shape[i]);
    }
    if (__builtin_mul_overflow(count, (int64_t)attn_dtype_bytes(v->dtype), &bytes))
        return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                         "%s has more bytes than 64 bits count; check its shape", v->name);
    return ATTN_OK;
}

/* Adds the reach of one axis to the byte range; false on overflow. */
static bool reach(attn_view *v, int64_t size, int64_t stride, int64_t width)
{
    int64_t far;
    if (size <= 1) return true;
    if (__builtin_mul_overflow(stride, size - 1, &far) || __builtin_mul_overflow(far, width, &far))
        return false;
    int64_t *end = far < 0 ? &v->low : &v->high;
    return !__builtin_add_overflow(*end, far, end);
}

static attn_status read_strides(const DLTensor *t, attn_view *v, attn_error *error)
{
    int64_t width = (int64_t)attn_dtype_bytes(v->dtype), dense = 1;
    v->low = 0;
    v->high = attn_view_count(v) ? width : 0;
    for (int i = t->ndim - 1; i >= 0; i--) {
        int64_t stride = t->strides ? t->strides[i] : dense;
        dense *= t->shape[i];
        if (v->shape[i] > 1) v->stride[i] = stride;
        if (v->high && !reach(v, v->shape[i], stride, width))
            return attn_fail(error, ATTN_KIND_INVALID_LAYOUT,
                             "%s reaches beyond 64-bit addresses on axis %d (size %" PRId64
                             ", stride %" PRId64 " elements); check its strides",
                             v->name, i, v->shape[i], stride);
    }
    return ATTN_OK;
}

static attn_status read_data(const DLTensor *t, attn_view *v, attn_error *error)
{
    if (!attn_view_count(v)) return ATTN_OK;
    if (!t->data)
        return attn_fail(error, ATTN_KIND_INVALID_LAYOUT,
                         "%s has elements but its data pointer is NULL; pass its memory", v->name);
    v->data = (char *)t->data + t->byte_offset;
    int64_t width = (int64_t)attn_dtype_bytes(v->dtype);
    if ((uintptr_t)v->data % (uintptr_t)width)
        return attn_fail(error, ATTN_KIND_INVALID_LAYOUT,
                         "%s starts at an address that is not a multiple of its element size %" PRId64
                         "; align its memory or byte_offset",
                         v->name, width);
    return ATTN_OK;
}

attn_status attn_view_read(const char *name, const DLTensor *t, int least, int most, attn_view *v,
                           attn_error *error)
{
    memset(v, 0, sizeof *v);
    v->name = name;
    if (t->ndim < least || t->ndim > most)
        return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                         least == most ? "%s has %d axes; it needs %d" : "%s has %d axes; it needs %d to %d",
                         name, t->ndim, least, most);
    if (!t->shape)
        return attn_fail(error, ATTN_KIND_INVALID_SHAPE, "%s has a NULL shape; point it at %d sizes", name,
                         t->ndim);
    v->ndim = t->ndim;
    v->device = t->device;
    v->dtype = attn_dtype_from_dl(t->dtype);
    char word[64];
    if (!v->dtype)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE,
                         "%s has the element type %s, which is none of ours; `attn docs dtypes` lists them",
                         name, attn_dl_word(t->dtype, word, sizeof word));
    ATTN_TRY(read_shape(t, v, error));
    ATTN_TRY(read_strides(t, v, error));
    return read_data(t, v, error);
}

/* Dense: every byte between low and high is an element, so a shared range means shared elements. */
static bool dense(const attn_view *v)
{
    return v->high - v->low == attn_view_count(v) * (int64_t)attn_dtype_bytes(v->dtype);
}

/* With steps of `step` elements the view is a comb: what lies within one step spans `inner` elements, and all
 * longer strides are multiples of the step. False when it is none. */
static bool comb(const attn_view *v, int64_t step, int64_t *inner)
{
    *inner = 1;
    for (int i = 0; i < v->ndim; i++) {
        if (v->shape[i] <= 1) continue;
        if (v->stride[i] < 0) return false;
        if (v->stride[i] < step)
            *inner += (v->shape[i] - 1) * v->stride[i];
        else if (v->stride[i] % step)
            return false;
    }
    return *inner <= step;
}

/* Two views that step alike through one buffer, as q, k and v of a packed projection do, or heads of one
 * cache, are apart when their teeth lie side by side within one step. */
static bool apart_with(const attn_view *a, const attn_view *b, int64_t step)
{
    int64_t inner_a, inner_b, width = (int64_t)attn_dtype_bytes(a->dtype);
    int64_t bytes = (int64_t)((intptr_t)b->data - (intptr_t)a->data);
    if (step <= 0 || bytes % width || !comb(a, step, &inner_a) || !comb(b, step, &inner_b)) return false;
    int64_t gap = bytes / width % step;
    if (gap < 0) gap += step;
    return gap >= inner_a && gap + inner_b <= step;
}

static bool interleaved(const attn_view *a, const attn_view *b)
{
    bool apart = false;
    if (a->dtype != b->dtype) return false;
    for (int i = 0; i < a->ndim && !apart; i++) apart = a->shape[i] > 1 && apart_with(a, b, a->stride[i]);
    for (int i = 0; i < b->ndim && !apart; i++) apart = b->shape[i] > 1 && apart_with(a, b, b->stride[i]);
    return apart;
}

bool attn_views_overlap(const attn_view *a, const attn_view *b)
{
    if (a->high == a->low || b->high == b->low) return false;
    intptr_t a0 = (intptr_t)a->data, b0 = (intptr_t)b->data;
    if (a0 + a->high <= b0 + b->low || b0 + b->high <= a0 + a->low) return false;
    return dense(a) || dense(b) || !interleaved(a, b);
}

int64_t attn_view_align(const attn_view *view, int64_t most)
{
    uint64_t bits = (uint64_t)(uintptr_t)view->data | (uint64_t)most;
    /* Channels side by side are read in wide pieces: their step would make every alignment that of one
     * element. */
    int axes = view->ndim && view->stride[view->ndim - 1] == 1 ? view->ndim - 1 : view->ndim;
    for (int i = 0; i < axes; i++)
        bits |= (uint64_t)view->stride[i] * attn_dtype_bytes(view->dtype); /* of empty tensors it may wrap */
    return (int64_t)(bits & (~bits + 1));
}

void attn_view_add_batch(attn_view *view)
{
    for (int i = 3; i > 0; i--) {
        view->shape[i] = view->shape[i - 1];
        view->stride[i] = view->stride[i - 1];
    }
    view->shape[0] = 1;
    view->stride[0] = 0;
    view->ndim = 4;
}

/* An output that is written twice at one place would depend on the order of threads. Axis by axis, from the
 * shortest stride on, each must step over all that the shorter ones reach. */
attn_status attn_view_writable(const attn_view *v, attn_error *error)
{
    uint64_t reach = 1;
    bool done[4] = {false, false, false, false};
    for (int n = 0; n < v->ndim && v->high != v->low; n++) {
        int least = -1;
        for (int i = 0; i < v->ndim; i++)
            if (!done[i] && (least < 0 || llabs(v->stride[i]) < llabs(v->stride[least]))) least = i;
        done[least] = true;
        if (v->shape[least] <= 1) continue;
        uint64_t stride = (uint64_t)llabs(v->stride[least]);
        if (stride < reach)
            return attn_fail(error, ATTN_KIND_INVALID_LAYOUT,
                             "%s is an output with stride %" PRId64 " on axis %d of size %" PRId64
                             ", so that elements share a place; give every element its own",
                             v->name, v->stride[least], least, v->shape[least]);
        reach += stride * (uint64_t)(v->shape[least] - 1);
    }
    return ATTN_OK;
}
