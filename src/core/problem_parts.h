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

/* operands.c: everything but q, k, v, out and the joint tensors. */
attn_status attn_read_operands(attn_request *request, const attn_view *q, const attn_view *k,
                               attn_error *error);

#endif
