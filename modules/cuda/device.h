/* device.h: what kernels are handed, and how CUDA's errors become ours. */
#ifndef ATTN_CUDA_DEVICE_H
#define ATTN_CUDA_DEVICE_H

#include <attn/module.h>
#include <cuda_runtime_api.h>

/* Spans and query ranges travel in the kernel's parameters, which hold 4 KiB: nothing is copied to the device
 * and a captured graph owns what it needs. */
enum { ATTN_CUDA_SPANS = 64, ATTN_CUDA_RANGES = 64 };

/* Lists of key blocks in device memory; nobody has checked them before the kernels run. */
typedef struct attn_cuda_map {
    const int32_t *counts, *blocks;           /* counts NULL: no map */
    int64_t count_stride[3], block_stride[3]; /* sample, head, query block; elements */
    int64_t capacity, block_q, block_k, q_blocks, kv_blocks;
    const int32_t *starts; /* NULL: blocks of equal size; else block i of queries and of keys is the rows
                              [starts[i], starts[i + 1]), block_q of them at most */
    int32_t *order;        /* workspace: of each sample and head the items, longest lists first */
    int32_t *next;         /* workspace: how many items were taken */
} attn_cuda_map;

/* One call by value. Pointers are of the device. */
typedef struct attn_cuda_call {
    attn_problem p;
    const void *q, *k, *v;
    void *out;
    float *lse;
    const void *mask;
    const uint8_t *key_mask;
    const float *sinks;
    attn_index kv_lengths, cu_q, cu_k;
    int64_t query_start;
    uint32_t span_count, range_count;
    attn_cuda_map map;
    attn_span spans[ATTN_CUDA_SPANS];
    attn_query_range ranges[ATTN_CUDA_RANGES];
} attn_cuda_call;

#ifdef __cplusplus
extern "C" {
#endif

/* Why device `index` cannot run code of this module: one reason, or none. Creates no context. */
void attn_cuda_judge_device(int32_t index, const char *who, attn_reasons *reasons);

/* The call as kernels take it; fails with feature_unsupported when spans or ranges are too many. The
 * workspace of a map is not laid out yet. */
attn_status attn_cuda_call_fill(const attn_call *call, const char *who, attn_cuda_call *to,
                                attn_error *error);

/* Addresses of q, k, v and out are no part of a problem: whether they are multiples of `align` bytes. The
 * status lets an automatic choice fall to the next implementation. */
attn_status attn_cuda_check_addresses(const attn_call *call, int align, const char *who, attn_error *error);

/* `doing` says at what the error came: "launching", ... The error is taken out of the runtime's memory. */
attn_status attn_cuda_fail(cudaError_t code, const char *who, const char *doing, attn_error *error);

/* Makes a device current until leave. */
attn_status attn_cuda_enter(int32_t index, const char *who, int *before, attn_error *error);
void attn_cuda_leave(int before);

/* reference.cu */
int64_t attn_cuda_reference_rows(attn_dtype dtype); /* of a block of threads */
cudaError_t attn_cuda_reference_launch(const attn_cuda_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
