/* problem_parts.h: what problem.c and operands.c share. */
#ifndef ATTN_CORE_PROBLEM_PARTS_H
#define ATTN_CORE_PROBLEM_PARTS_H

#include "core/problem.h"

/* Reads a tensor, checks that it lives on the site's device and, for an output, that no element is written
 * twice, and notes it for the check of overlaps. */
attn_status attn_read_tensor(attn_request *request, const char *name, const DLTensor *tensor, int least,
                             int most, attn_use use, attn_view *view, attn_error *error);

/* One size of one axis against what it must be; a broadcast axis may be 1 as well. `whose` says what sets the
 * size. */
attn_status attn_check_size(const attn_view *view, int axis, int64_t expected, const char *whose,
                            attn_error *error);
attn_status attn_check_broadcast(const attn_view *view, int axis, int64_t full, const char *whose,
                                 attn_error *error);

/* Notes a tensor that was read elsewhere: device, and that an output is written once. */
attn_status attn_note_tensor(attn_request *request, const attn_view *view, attn_use use, attn_error *error);

/* cache.c: k and v of a call over a cache; then, once the problem has its other fields, what is the cache's
 * own; and, once requests and lengths are known, the entries of the block table. */
attn_status attn_read_cache(attn_request *request, attn_view *k, attn_view *v, attn_error *error);
attn_status attn_fill_cache(attn_request *request, attn_error *error);
attn_status attn_check_table(const attn_request *request, attn_error *error);

/* keys.c: slopes, trees, lists and ranges; after lengths and positions. */
attn_status attn_read_keys(attn_request *request, attn_error *error);

/* operands.c: one fp32 number a query head, side by side. */
attn_status attn_read_heads(attn_request *request, const char *name, const DLTensor *tensor, attn_view *view,
                            attn_error *error);

/* operands.c: everything but q, k, v, out and the joint tensors. */
attn_status attn_read_operands(attn_request *request, const attn_view *q, const attn_view *k,
                               attn_error *error);

#endif
