/* cudnn_prepare.h: masks and lengths of a call in the form that cuDNN reads. */
#ifndef ATTN_CUDNN_PREPARE_H
#define ATTN_CUDNN_PREPARE_H

#include "cudnn_graph.h"

#include <cuda_runtime_api.h>

/* By value; pointers are of the device. */
typedef struct attn_cudnn_prepare {
    const void *mask;
    const uint8_t *key_mask;
    attn_index kv_lengths;
    void *bias;
    int32_t *q_lengths, *kv_lengths_out; /* [batch]; NULL: not needed */
    attn_cudnn_bias shape;
    int64_t mask_stride[4], key_mask_stride[2];
    int32_t mask_form, mask_dtype;
    int64_t batch, q_len, kv_len;
} attn_cudnn_prepare;

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueues what writes bias and lengths. */
cudaError_t attn_cudnn_prepare_launch(const attn_cudnn_prepare *what, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
