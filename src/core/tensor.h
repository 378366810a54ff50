/* tensor.h: a DLTensor, checked and made plain. */
#ifndef ATTN_CORE_TENSOR_H
#define ATTN_CORE_TENSOR_H

#include "core/fail.h"

/* Strides in elements, 0 along axes of size 1 or less. The tensor's bytes lie in [data + low, data + high).
 */
typedef struct attn_view {
    const char *name;
    char *data; /* byte offset added */
    attn_dtype dtype;
    int32_t ndim;
    DLDevice device;
    int64_t shape[4];
    int64_t stride[4];
    int64_t low, high;
} attn_view;

/* Fails with invalid_shape, invalid_dtype or invalid_layout. ndim between least and most (at most 4). */
attn_status attn_view_read(const char *name, const DLTensor *tensor, int least, int most, attn_view *view,
                           attn_error *error);
/* "[1, 4, 2, 16]". Returns text. */
const char *attn_view_shape(const attn_view *view, char *text, size_t bytes);
int64_t attn_view_count(const attn_view *view);
/* Fails with invalid_layout when an output would be written twice at one place. */
attn_status attn_view_writable(const attn_view *view, attn_error *error);
/* True when some byte may belong to both; views of one buffer interleaved with equal row strides may not. */
bool attn_views_overlap(const attn_view *a, const attn_view *b);
/* Largest power of two, at most `most`, that divides the address and every byte stride but that of channels
 * which lie side by side on the last axis. */
int64_t attn_view_align(const attn_view *view, int64_t most);
/* Makes a 3-D view a 4-D one with a batch of one. */
void attn_view_add_batch(attn_view *view);

#endif
