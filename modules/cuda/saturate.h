/* saturate.h: matrix products that keep a card's tensor cores as busy as they can be. */
#ifndef ATTN_CUDA_SATURATE_H
#define ATTN_CUDA_SATURATE_H

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueues a few milliseconds of 16-bit products with fp32 sums on the current device, by wgmma where the
 * device has it and by mma.sync elsewhere. *flop: two for each multiply-add. */
cudaError_t attn_cuda_saturate(int device, int bf16, cudaStream_t stream, double *flop);

#ifdef __cplusplus
}
#endif

#endif
