/* rows.cuh: which keys a query row attends to, for every kernel.
 *
 * Lengths, causal order, windows and spans together keep one interval of keys a row, so they are settled once
 * a row; only masks are asked a key at a time. */
#ifndef ATTN_CUDA_ROWS_CUH
#define ATTN_CUDA_ROWS_CUH

#include "device.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

/* A block of query rows: of one sample, in one head. */
struct rows_block {
    int64_t b, h, kv_head;
    int64_t q0, q_len, k0, kv_len; /* of the sample, see attn_rows */
    int64_t first;                 /* query row of the sample */
};

__device__ __forceinline__ int64_t rows_index(const attn_index &index, int64_t i, int64_t most)
{
    int64_t at = i * index.stride;
    int64_t n = index.bits == 32 ? ((const int32_t *)index.data)[at] : ((const int64_t *)index.data)[at];
    /* What the device holds was not checked by anybody; it must not lead out of the tensors. */
    return n < 0 ? 0 : n > most ? most : n;
}

/* Slots that a packed sequence may need: slot of its first row, in blocks of `rows`. Sequence b owns the
 * slots from here to that of b + 1, which are enough for its length whatever its remainder. */
__device__ __forceinline__ int64_t rows_slot(const attn_cuda_call &c, int64_t b, int rows)
{
    return rows_index(c.cu_q, b, c.p.q_len) / rows + b;
}

__host__ __device__ inline int64_t rows_slots(const attn_cuda_call &c, int rows)
{
    if (c.cu_q.data) return c.p.q_len / rows + c.p.batch;
    return c.p.batch * ((c.p.q_len + rows - 1) / rows);
}

/* The block of one slot; false when there is nothing in it. Later rows come first: under causal order they
 * are the longest. */
__device__ inline bool rows_block_at(const attn_cuda_call &c, int64_t slot, int64_t head, int rows,
                                     rows_block &k)
{
    const attn_problem &p = c.p;
    k.h = head;
    k.kv_head = head / (p.heads / p.kv_heads);
    k.q0 = k.k0 = 0;
    k.q_len = p.q_len;
    k.kv_len = p.kv_len;
    if (c.cu_q.data) {
        int64_t low = 0, high = p.batch;
        while (high - low > 1) {
            int64_t middle = low + (high - low) / 2;
            if (rows_slot(c, middle, rows) <= slot)
                low = middle;
            else
                high = middle;
        }
        k.b = low;
        k.q0 = rows_index(c.cu_q, low, p.q_len);
        k.q_len = rows_index(c.cu_q, low + 1, p.q_len) - k.q0;
        k.k0 = rows_index(c.cu_k, low, p.kv_len);
        k.kv_len = rows_index(c.cu_k, low + 1, p.kv_len) - k.k0;
        k.first = (slot - rows_slot(c, low, rows)) * rows;
    } else {
        int64_t blocks = (p.q_len + rows - 1) / rows;
        k.b = slot / blocks;
        k.first = (blocks - 1 - slot % blocks) * rows;
    }
    if (k.kv_len < 0) k.kv_len = 0;
    if (c.kv_lengths.data) k.kv_len = rows_index(c.kv_lengths, k.b, k.kv_len);
    return k.first < k.q_len;
}

/* b >= 0 */
__device__ __forceinline__ int64_t rows_add(int64_t a, int64_t b)
{
    return a > INT64_MAX - b ? INT64_MAX : a + b;
}

__device__ __forceinline__ int64_t rows_subtract(int64_t a, int64_t b)
{
    return a < INT64_MIN + b ? INT64_MIN : a - b;
}

__device__ inline int64_t rows_position(const attn_cuda_call &c, const rows_block &k, int64_t i)
{
    for (uint32_t r = 0; r < c.range_count; r++)
        if (i >= c.ranges[r].local_start && i < c.ranges[r].local_end)
            return c.ranges[r].global_start + (i - c.ranges[r].local_start);
    if (c.p.alignment == ATTN_TOP_LEFT) return i + c.query_start;
    return i + k.kv_len - k.q_len;
}

/* Row i of the sample keeps at most the keys [low, high). */
__device__ inline void rows_keys(const attn_cuda_call &c, const rows_block &k, int64_t i, int64_t &low,
                                 int64_t &high)
{
    int64_t at = rows_position(c, k, i), span_end = 0;
    low = 0;
    high = k.kv_len;
    for (uint32_t s = 0; s < c.span_count; s++)
        if (at >= c.spans[s].start && at < c.spans[s].end && c.spans[s].end > span_end)
            span_end = c.spans[s].end;
    if (c.p.causal || c.span_count) {
        int64_t end = rows_add(at, 1);
        if (span_end > end) end = span_end;
        if (end < high) high = end;
    }
    if ((c.p.window & ATTN_WINDOW_LEFT) && rows_subtract(at, c.p.window_left) > low)
        low = rows_subtract(at, c.p.window_left);
    if (c.p.window & ATTN_WINDOW_RIGHT) {
        int64_t end = rows_add(rows_add(at, c.p.window_right), 1);
        if (end < high) high = end;
    }
    if (high < low) high = low = 0;
}

/* ---- elements ---------------------------------------------------------------------------------- */

__device__ __forceinline__ double rows_to(double, double x)
{
    return x;
}
__device__ __forceinline__ float rows_to(float, float x)
{
    return x;
}
__device__ __forceinline__ float rows_to(float, __half x)
{
    return __half2float(x);
}
__device__ __forceinline__ float rows_to(float, __nv_bfloat16 x)
{
    return __bfloat162float(x);
}

/* Offset of the mask's row i of the sample, key 0. Masks never come with packed sequences. */
__device__ __forceinline__ int64_t rows_mask_offset(const attn_cuda_call &c, const rows_block &k, int64_t i)
{
    return k.b * c.p.mask_stride[0] + k.h * c.p.mask_stride[1] + i * c.p.mask_stride[2];
}

/* Whether the keep masks let the row see a key of its interval. */
__device__ __forceinline__ bool rows_keeps(const attn_cuda_call &c, const rows_block &k, int64_t mask_row,
                                           int64_t key)
{
    if (c.key_mask && !c.key_mask[k.b * c.p.key_mask_stride[0] + key * c.p.key_mask_stride[1]]) return false;
    return c.p.mask_form != ATTN_FORM_KEEP ||
           ((const uint8_t *)c.mask)[mask_row + key * c.p.mask_stride[3]] != 0;
}

template <typename A> __device__ __forceinline__ A rows_added(const attn_cuda_call &c, int64_t at)
{
    switch (c.p.mask_dtype) {
    case ATTN_F16:
        return __half2float(((const __half *)c.mask)[at]);
    case ATTN_BF16:
        return __bfloat162float(((const __nv_bfloat16 *)c.mask)[at]);
    case ATTN_F64:
        return (A)((const double *)c.mask)[at];
    default:
        return ((const float *)c.mask)[at];
    }
}

template <typename A> __device__ __forceinline__ void rows_store(attn_dtype dtype, void *out, int64_t at, A x)
{
    switch (dtype) {
    case ATTN_F16:
        ((__half *)out)[at] = __float2half_rn((float)x);
        break;
    case ATTN_BF16:
        ((__nv_bfloat16 *)out)[at] = __float2bfloat16_rn((float)x);
        break;
    case ATTN_F64:
        ((double *)out)[at] = (double)x;
        break;
    default:
        ((float *)out)[at] = (float)x;
    }
}

#endif
