/* device.h: attention and matrix products on a GPU: by libattn, and by cuBLAS, which is opened when it is
 * asked for. The model's other arithmetic stays on the host, so activations travel; weights go there once. */
#ifndef VIDEO_DIT_DEVICE_H
#define VIDEO_DIT_DEVICE_H

#include "attention.h"

typedef struct device device;

/* Opens the first GPU of a context with cuBLAS. NULL with the failure filled. */
device *device_open(attn_context *context, failure *f);
void device_close(device *d); /* before the context; NULL is allowed */

/* out = attention of a layer on the device over rows in host memory, as attention_run describes them. One
 * call at a time. */
attn_status device_attend(device *d, attn_layer *layer, attn_dtype dtype, const row_view qkv[3],
                          const unsigned char *valid, float *out, int64_t out_stride, const attn_args *call,
                          attn_error *error);

/* y [rows, out] = x [rows, in] w^T + beta y, w [out, in]. Any thread; threads take turns. What fails is kept
 * for device_failed, and later products do nothing. */
void device_product(device *d, const float *x, int64_t rows, int in, const float *w, float *y, int out,
                    float beta);
/* 0, or -1 with the failure of a product. */
int device_failed(device *d, failure *f);

#endif
