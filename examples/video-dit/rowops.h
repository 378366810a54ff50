/* rowops.h: what happens to rows of channels between the matrix products. Plain loops that a compiler
 * vectorises. */
#ifndef VIDEO_DIT_ROWOPS_H
#define VIDEO_DIT_ROWOPS_H

#include <stdint.h>

/* to = LN(from) * (1 + scale) + shift over DIM channels; scale and shift NULL: LN alone. */
void layer_norm(const float *from, const float *scale, const float *shift, float *to, int64_t rows);

/* In place, each head of HEAD_DIM channels by itself: x / sqrt(mean(x^2) + eps) * weight. */
void rms_heads(float *x, int64_t stride, const float *weight, int64_t rows);

/* In place, all heads: pair (2i, 2i + 1) turns by the angle of column i of cos and sin [rows, PAIRS]. */
void rope_heads(float *x, int64_t stride, const float *cos, const float *sin, int64_t rows);

/* x = gelu(x + bias), the tanh form. */
void gelu_bias(float *x, const float *bias, int64_t rows, int64_t columns);

/* x += gate * (y + bias) over DIM channels; bias NULL: none. */
void add_gated(float *x, const float *gate, const float *y, const float *bias, int64_t rows);

/* Rounds to the nearest bf16, ties to even. */
void to_bf16(const float *from, int64_t stride, uint16_t *to, int64_t to_stride, int64_t rows,
             int64_t columns);

#endif
