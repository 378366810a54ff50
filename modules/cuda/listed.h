/* listed.h: calls with a block map: their workspace, what is done before the kernel, and the kernel that is
 * best for a device. */
#ifndef ATTN_CUDA_LISTED_H
#define ATTN_CUDA_LISTED_H

#include "device.h"

#ifdef __CUDACC__
#define ATTN_CUDA_BOTH __host__ __device__
#else
#define ATTN_CUDA_BOTH
#endif

/* Items of one query block when a kernel takes `rows` rows at once. */
ATTN_CUDA_BOTH static inline int64_t attn_cuda_map_parts(const attn_cuda_map *m, int64_t q_len, int64_t rows)
{
    const int64_t size = m->block_q < q_len || m->starts ? m->block_q : q_len;
    return size > rows ? (size + rows - 1) / rows : 1;
}

/* Items of a call. */
ATTN_CUDA_BOTH static inline int64_t attn_cuda_map_items(const attn_cuda_map *m, const attn_problem *p,
                                                         int64_t rows)
{
    return p->batch * p->heads * m->q_blocks * attn_cuda_map_parts(m, p->q_len, rows);
}

#ifdef __cplusplus
extern "C" {
#endif

enum { ATTN_CUDA_ROWS_LEAST = 32 }; /* rows of a block of threads, in the kernel with the fewest */

/* Bytes of workspace that a call of this problem needs, with at most q_blocks blocks of at most block_q rows;
 * 0 without a map. */
size_t attn_cuda_listed_bytes(const attn_problem *p, int64_t q_blocks, int64_t block_q);
/* The same for the map that a problem of the host's describes. */
size_t attn_cuda_map_bytes(const attn_problem *p);

/* Lays out the workspace of c->map, checks the lists and puts the items in order, for a kernel that takes
 * `rows` rows at once. Nothing to do without a map. */
attn_status attn_cuda_map_prepare(attn_cuda_call *c, void *workspace, int64_t rows, const char *who,
                                  cudaStream_t stream, attn_error *error);
/* Calls of implementations that make their maps themselves: with c->map given, on the kernel that is best for
 * the device of c->p, which is current. f16 and bf16; the addresses of q, k, v and out are multiples of 16
 * bytes, as are their strides. Ready is asked at plan time, with block_q and block_k of the problem set (for
 * blocks with starts: the largest). */
attn_status attn_cuda_listed_ready(const attn_problem *p, const char *who, attn_error *error);
attn_status attn_cuda_listed_run(attn_cuda_call *c, void *workspace, const char *who, cudaStream_t stream,
                                 attn_error *error);

cudaError_t attn_cuda_map_launch(const attn_cuda_call *c, int64_t parts, int32_t *lengths,
                                 cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
