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
    int32_t *first; /* for each row of the bias: the first key that it lets through; NULL without a bias */
} attn_cudnn_prepare;

/* The outputs, for rows that have nothing to attend to. By value. */
typedef struct attn_cudnn_finish {
    void *out;
    float *lse;
    const int32_t *first, *kv_lengths; /* as prepare wrote them; NULL: none */
    int64_t bias_shape[3];             /* samples, heads, rows of `first` */
    int64_t batch, heads, q_len, kv_len, value_head_dim;
    int64_t out_stride[4], lse_stride[3];
    int32_t causal, corner;
} attn_cudnn_finish;

#ifdef __cplusplus
extern "C" {
#endif

/* Enqueues what writes bias, first keys and lengths. */
cudaError_t attn_cudnn_prepare_launch(const attn_cudnn_prepare *what, cudaStream_t stream);
/* Enqueues what writes zeros and -inf to empty rows of 16-bit outputs. */
cudaError_t attn_cudnn_finish_launch(const attn_cudnn_finish *what, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
