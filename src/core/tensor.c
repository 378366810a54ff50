/* tensor.c: a DLTensor, checked and made plain. */
#include "core/tensor.h"

#include "core/dtype.h"

#include <inttypes.h>
#include <stdio.h>
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

/* Bytes that one row (all heads and channels at one position) spans. */
static int64_t row_bytes(const attn_view *v, int64_t width)
{
    int64_t bytes = width;
    for (int i = 2; i < v->ndim; i++) bytes += (v->shape[i] - 1) * v->stride[i] * width;
    return bytes;
}

/* Two views that step alike through one buffer, as q, k and v of a packed projection do, are apart when their
 * rows lie side by side within one step. */
static bool interleaved(const attn_view *a, const attn_view *b)
{
    int64_t width = (int64_t)attn_dtype_bytes(a->dtype), step = a->stride[1] * width;
    if (a->ndim != 4 || b->ndim != 4 || a->dtype != b->dtype || a->stride[1] != b->stride[1] || step <= 0)
        return false;
    if (a->shape[0] > 1 && b->shape[0] > 1 && (a->stride[0] != b->stride[0] || a->stride[0] % a->stride[1]))
        return false;
    for (int i = 2; i < 4; i++)
        if (a->stride[i] < 0 || b->stride[i] < 0) return false;
    int64_t gap = (int64_t)((intptr_t)b->data - (intptr_t)a->data) % step;
    if (gap < 0) gap += step;
    return gap >= row_bytes(a, width) && gap + row_bytes(b, width) <= step;
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
    for (int i = 0; i < view->ndim; i++)
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

/* An output that is written twice would depend on the order of threads. */
attn_status attn_view_writable(const attn_view *v, attn_error *error)
{
    for (int i = 0; i < v->ndim; i++)
        if (v->shape[i] > 1 && v->stride[i] == 0 && v->high != v->low)
            return attn_fail(error, ATTN_KIND_INVALID_LAYOUT,
                             "%s is an output with stride 0 on axis %d of size %" PRId64
                             "; give every element its own place",
                             v->name, i, v->shape[i]);
    return ATTN_OK;
}
