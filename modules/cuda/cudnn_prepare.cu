/* cudnn_prepare.cu: writes the bias that stands for all masks of a call, and lengths as 32-bit numbers. */
#include "cudnn_prepare.h"
#include "cudnn_rows.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

static __device__ float mask_value(const attn_cudnn_prepare &w, int64_t at)
{
    switch (w.mask_dtype) {
    case ATTN_F32:
        return ((const float *)w.mask)[at];
    case ATTN_F16:
        return __half2float(((const __half *)w.mask)[at]);
    case ATTN_BF16:
        return __bfloat162float(((const __nv_bfloat16 *)w.mask)[at]);
    default:
        return ((const uint8_t *)w.mask)[at] ? 0.0f : -INFINITY;
    }
}

static __device__ void store(const attn_cudnn_prepare &w, int64_t at, float value)
{
    if (w.shape.dtype == ATTN_BF16)
        ((__nv_bfloat16 *)w.bias)[at] = __float2bfloat16(value);
    else if (w.shape.dtype == ATTN_F16)
        ((__half *)w.bias)[at] = __float2half(value);
    else
        ((float *)w.bias)[at] = value;
}

/* One number for each place of the bias, padding of its rows included. */
static __global__ void write_bias(const __grid_constant__ attn_cudnn_prepare w)
{
    int64_t pitch = w.shape.strides[2], count = w.shape.strides[0] * w.shape.shape[0];
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t key = i % pitch, rest = i / pitch;
        int64_t row = rest % w.shape.shape[2], head = rest / w.shape.shape[2] % w.shape.shape[1];
        int64_t sample = rest / w.shape.shape[2] / w.shape.shape[1];
        float value = key < w.kv_len ? 0.0f : -INFINITY;
        if (w.key_mask && key < w.kv_len &&
            !w.key_mask[sample * w.key_mask_stride[0] + key * w.key_mask_stride[1]])
            value = -INFINITY;
        if (w.mask && value == 0)
            value = mask_value(w, sample * w.mask_stride[0] + head * w.mask_stride[1] +
                                      row * w.mask_stride[2] + key * w.mask_stride[3]);
        store(w, i, value);
    }
}

static __device__ bool lets_through(const attn_cudnn_prepare &w, int64_t at)
{
    if (w.shape.dtype == ATTN_BF16) return __bfloat162float(((const __nv_bfloat16 *)w.bias)[at]) != -INFINITY;
    if (w.shape.dtype == ATTN_F16) return __half2float(((const __half *)w.bias)[at]) != -INFINITY;
    return ((const float *)w.bias)[at] != -INFINITY;
}

/* A warp a row; most rows let one of their first keys through. */
static __global__ void find_first(const __grid_constant__ attn_cudnn_prepare w)
{
    int64_t rows = w.shape.shape[0] * w.shape.shape[1] * w.shape.shape[2],
            warps = gridDim.x * (blockDim.x / 32);
    int lane = threadIdx.x % 32;
    for (int64_t row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; row < rows; row += warps) {
        int64_t found = w.kv_len;
        for (int64_t key = 0; key < w.kv_len && found == w.kv_len; key += 32) {
            bool through = key + lane < w.kv_len && lets_through(w, row * w.shape.strides[2] + key + lane);
            unsigned votes = __ballot_sync(0xffffffffu, through);
            if (votes) found = key + __ffs(votes) - 1;
        }
        if (!lane) w.first[row] = (int32_t)found;
    }
}

/* A thread a row of the output. */
static __global__ void clear_empty(const __grid_constant__ attn_cudnn_finish w)
{
    int64_t count = w.batch * w.heads * w.q_len, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t n = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; n < count; n += step) {
        int64_t row = n % w.q_len, head = n / w.q_len % w.heads, sample = n / w.q_len / w.heads;
        int64_t b = w.bias_shape[0] > 1 ? sample : 0, h = w.bias_shape[1] > 1 ? head : 0,
                i = w.bias_shape[2] > 1 ? row : 0;
        int64_t first = w.first ? w.first[(b * w.bias_shape[1] + h) * w.bias_shape[2] + i] : 0;
        int64_t length = w.kv_lengths ? w.kv_lengths[sample] : w.kv_len;
        if (!attn_cudnn_row_empty(row, w.q_len, first, length, w.causal, w.corner)) continue;
        uint16_t *out =
            (uint16_t *)w.out + sample * w.out_stride[0] + row * w.out_stride[1] + head * w.out_stride[2];
        for (int64_t d = 0; d < w.value_head_dim; d++) out[d * w.out_stride[3]] = 0;
        if (w.lse)
            w.lse[sample * w.lse_stride[0] + head * w.lse_stride[1] + row * w.lse_stride[2]] = -INFINITY;
    }
}

static __global__ void write_lengths(const __grid_constant__ attn_cudnn_prepare w)
{
    for (int64_t b = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; b < w.batch;
         b += (int64_t)gridDim.x * blockDim.x) {
        int64_t at = b * w.kv_lengths.stride;
        int64_t length = w.kv_lengths.bits == 32 ? ((const int32_t *)w.kv_lengths.data)[at]
                                                 : ((const int64_t *)w.kv_lengths.data)[at];
        w.q_lengths[b] = (int32_t)w.q_len;
        w.kv_lengths_out[b] = (int32_t)(length < 0 ? 0 : length > w.kv_len ? w.kv_len : length);
    }
}

extern "C" cudaError_t attn_cudnn_prepare_launch(const attn_cudnn_prepare *w, cudaStream_t stream)
{
    const int64_t THREADS = 256, BLOCKS = 2048;
    int64_t count = w->bias ? w->shape.strides[0] * w->shape.shape[0] : 0,
            blocks = (count + THREADS - 1) / THREADS;
    if (count) write_bias<<<(unsigned)(blocks < BLOCKS ? blocks : BLOCKS), THREADS, 0, stream>>>(*w);
    if (count) find_first<<<(unsigned)BLOCKS, THREADS, 0, stream>>>(*w);
    if (w->kv_lengths_out)
        write_lengths<<<(unsigned)((w->batch + THREADS - 1) / THREADS), THREADS, 0, stream>>>(*w);
    return cudaGetLastError();
}

extern "C" cudaError_t attn_cudnn_finish_launch(const attn_cudnn_finish *w, cudaStream_t stream)
{
    const int64_t THREADS = 256, BLOCKS = 2048;
    int64_t blocks = (w->batch * w->heads * w->q_len + THREADS - 1) / THREADS;
    if (blocks) clear_empty<<<(unsigned)(blocks < BLOCKS ? blocks : BLOCKS), THREADS, 0, stream>>>(*w);
    return cudaGetLastError();
}
