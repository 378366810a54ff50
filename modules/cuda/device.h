/* device.h: what kernels are handed, and how CUDA's errors become ours. */
#ifndef ATTN_CUDA_DEVICE_H
#define ATTN_CUDA_DEVICE_H

#include <attn/module.h>
#include <cuda_runtime_api.h>

/* Spans and query ranges travel in the kernel's parameters, which hold 4 KiB: nothing is copied to the device
 * and a captured graph owns what it needs. */
enum { ATTN_CUDA_SPANS = 64, ATTN_CUDA_RANGES = 64 };

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
    attn_span spans[ATTN_CUDA_SPANS];
    attn_query_range ranges[ATTN_CUDA_RANGES];
} attn_cuda_call;

#ifdef __cplusplus
extern "C" {
#endif

/* Why device `index` cannot run code of this module: one reason, or none. Creates no context. */
void attn_cuda_judge_device(int32_t index, const char *who, attn_reasons *reasons);

/* The call as kernels take it; fails with feature_unsupported when spans or ranges are too many. */
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
cudaError_t attn_cuda_reference_launch(const attn_cuda_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
