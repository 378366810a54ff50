/* flash.h: the flash kernel's instances, as the host sees them. */
#ifndef ATTN_CUDA_FLASH_H
#define ATTN_CUDA_FLASH_H

#include "device.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_cuda_tile {
    int32_t size, exact, general, map, rows, keys, threads, bytes; /* bytes: of shared memory */
} attn_cuda_tile;

/* The kernel of instance `index` for one element type. */
const void *attn_cuda_flash_f16(int32_t index);
const void *attn_cuda_flash_bf16(int32_t index);

/* NULL past the end. */
const attn_cuda_tile *attn_cuda_flash_tile(int32_t index);
/* Lets the instance use its shared memory on the current device. */
cudaError_t attn_cuda_flash_prepare(int32_t index, attn_dtype dtype);
/* flash.c: the instance for a problem on a device with so many bytes of shared memory a block, or NULL; runs
 * it, with the workspace of attn_cuda_listed_bytes when there is a map. */
const attn_cuda_tile *attn_cuda_flash_choose(const attn_problem *p, int32_t bytes);
attn_status attn_cuda_flash_run(const attn_cuda_tile *tile, attn_cuda_call *call, void *workspace,
                                const char *who, cudaStream_t stream, attn_error *error);
cudaError_t attn_cuda_flash_launch(int32_t index, const attn_cuda_call *call, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
