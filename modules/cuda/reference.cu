/* reference.cu: attention on the ordinary arithmetic units, every feature, memory linear in the lengths.
 *
 * A block of threads holds BM query rows of one head and up to DV channels of their output, and walks over
 * tiles of BN keys with a running maximum and sum. f64 calls compute in double, all others in float. A weight
 * below zero marks an excluded key, whose value is skipped and never multiplied: it may be NaN. Every sum
 * runs in one order that depends on the row's own inputs alone. */
#include "map.cuh"

namespace
{

enum { SIDE = 16, THREADS = SIDE * SIDE, DK = 32, DV = 128 };

template <typename A, int BM, int BN, int VK> struct memory {
    A weights[BM][BN + 1];
    union {
        struct {
            A q[DK][BM + 1], k[DK][BN + 1];
        };
        A v[VK][DV];
    };
    int64_t low[BM], high[BM];
};

__device__ __forceinline__ float exponential(float x)
{
    return expf(x);
}
__device__ __forceinline__ double exponential(double x)
{
    return exp(x);
}
__device__ __forceinline__ float logarithm(float x)
{
    return logf(x);
}
__device__ __forceinline__ double logarithm(double x)
{
    return log(x);
}
__device__ __forceinline__ float cap(float x, float most)
{
    return most * tanhf(x / most);
}
__device__ __forceinline__ double cap(double x, double most)
{
    return most * tanh(x / most);
}

/* Of the SIDE lanes that share rows. */
template <typename A> __device__ __forceinline__ A row_max(A x)
{
    for (int lane = SIDE / 2; lane; lane /= 2) {
        A other = __shfl_xor_sync(0xffffffffu, x, lane);
        if (other > x) x = other;
    }
    return x;
}

template <typename A> __device__ __forceinline__ A row_sum(A x)
{
    for (int lane = SIDE / 2; lane; lane /= 2) x += __shfl_xor_sync(0xffffffffu, x, lane);
    return x;
}

/* One step of q or k: to[channel][row]; what lies outside is zero. */
template <typename T, typename A, int N>
__device__ __forceinline__ void load_step(A (*to)[N + 1], const T *from, int64_t row_stride, int64_t stride,
                                          int64_t rows, int64_t channels)
{
    for (int at = threadIdx.x; at < N * DK; at += THREADS) {
        int row = at / DK, channel = at % DK;
        bool inside = row < rows && channel < channels;
        to[channel][row] = inside ? (A)rows_to(A(), from[row * row_stride + channel * stride]) : A(0);
    }
}

template <typename T, typename A, int VK>
__device__ __forceinline__ void load_values(A (*to)[DV], const T *from, int64_t row_stride, int64_t stride,
                                            int64_t rows, int64_t channels)
{
    for (int at = threadIdx.x; at < VK * DV; at += THREADS) {
        int row = at / DV, channel = at % DV;
        bool inside = row < rows && channel < channels;
        to[row][channel] = inside ? (A)rows_to(A(), from[row * row_stride + channel * stride]) : A(0);
    }
}

/* Sinks join the sum; then out and lse are written. */
template <typename A, int RM>
__device__ void finish(const attn_cuda_call &c, const rows_block &k, int64_t row_end, int64_t d0, int ty,
                       int tx, const A (&most)[RM], const A (&sum)[RM], const A (&out)[RM][DV / SIDE])
{
    const attn_problem &p = c.p;
    for (int r = 0; r < RM; r++) {
        int64_t i = k.first + ty + r * SIDE;
        A total = row_sum(sum[r]), top = most[r], share = 1;
        bool empty = total == 0;
        if (c.sinks && !empty) {
            A sink = c.sinks[k.h], higher = sink > top ? sink : top;
            share = exponential(top - higher);
            total = total * share + exponential(sink - higher);
            top = higher;
        }
        if (i >= row_end) continue;
        int64_t row = k.q0 + i;
        A factor = empty ? A(0) : share / total;
        int64_t base =
            (c.cu_q.data ? 0 : k.b * p.out_stride[0]) + row * p.out_stride[1] + k.h * p.out_stride[2];
        for (int n = 0; n < DV / SIDE; n++) {
            int64_t channel = d0 + tx + n * SIDE;
            if (channel < p.value_head_dim)
                rows_store(p.out_dtype, c.out, base + channel * p.out_stride[3],
                           empty ? A(0) : out[r][n] * factor);
        }
        if (c.lse && d0 == 0 && tx == 0)
            c.lse[(c.cu_q.data ? 0 : k.b * p.lse_stride[0]) + k.h * p.lse_stride[1] + row * p.lse_stride[2]] =
                empty ? -INFINITY : (float)(top + logarithm(total));
    }
}

template <typename T, typename A, int BM, int BN, int VK, bool MAP>
__device__ void run_block(const attn_cuda_call &c, const rows_block &k, const map_item &item, int64_t d0,
                          memory<A, BM, BN, VK> &s)
{
    constexpr int RM = BM / SIDE, RN = BN / SIDE;
    const attn_problem &p = c.p;
    const A infinity = (A)INFINITY;
    int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
    int64_t batch = c.cu_q.data ? 0 : k.b;
    const T *q =
        (const T *)c.q + batch * p.q_stride[0] + (k.q0 + k.first) * p.q_stride[1] + k.h * p.q_stride[2];
    const T *keys = (const T *)c.k + batch * p.k_stride[0] + k.k0 * p.k_stride[1] + k.kv_head * p.k_stride[2];
    const T *values = (const T *)c.v + batch * p.v_stride[0] + k.k0 * p.v_stride[1] +
                      k.kv_head * p.v_stride[2] + d0 * p.v_stride[3];
    A most[RM], sum[RM], out[RM][DV / SIDE];
    int64_t mask_row[RM], start = INT64_MAX, end = 0;
    for (int r = 0; r < RM; r++) {
        most[r] = -infinity, sum[r] = MAP && item.bad ? (A)NAN : A(0);
        for (int n = 0; n < DV / SIDE; n++) out[r][n] = 0;
        mask_row[r] = rows_mask_offset(c, k, k.first + ty + r * SIDE);
    }
    if (threadIdx.x < BM) {
        int64_t i = k.first + threadIdx.x, low = 0, high = 0;
        if (i < k.q_len) rows_keys(c, k, i, low, high);
        s.low[threadIdx.x] = low, s.high[threadIdx.x] = high;
    }
    __syncthreads();
    for (int r = 0; r < BM; r++) {
        if (s.high[r] > s.low[r] && s.low[r] < start) start = s.low[r];
        if (s.high[r] > end) end = s.high[r];
    }
    for (key_walk<MAP, BN> at(c, item, start, end); at.more(); at.advance(c)) {
        const int64_t first = at.first, edge = at.edge();
        bool kept[RM][RN];
        int any = 0, all = 1;
        for (int r = 0; r < RM; r++)
            for (int j = 0; j < RN; j++) {
                int64_t key = first + tx + j * SIDE;
                int row = ty + r * SIDE;
                kept[r][j] = key >= s.low[row] && key < s.high[row] && (!MAP || key < edge) &&
                             rows_keeps(c, k, mask_row[r], key);
                any |= kept[r][j], all &= kept[r][j];
            }
        if (!__syncthreads_or(any)) continue;
        A score[RM][RN];
        for (int r = 0; r < RM; r++)
            for (int j = 0; j < RN; j++) score[r][j] = 0;
        for (int64_t d = 0; d < p.head_dim; d += DK) {
            load_step<T, A, BM>(s.q, q + d * p.q_stride[3], p.q_stride[1], p.q_stride[3], k.q_len - k.first,
                                p.head_dim - d);
            load_step<T, A, BN>(s.k, keys + first * p.k_stride[1] + d * p.k_stride[3], p.k_stride[1],
                                p.k_stride[3], k.kv_len - first, p.head_dim - d);
            __syncthreads();
#pragma unroll 4
            for (int t = 0; t < DK; t++) {
                A a[RM], b[RN];
                for (int r = 0; r < RM; r++) a[r] = s.q[t][ty + r * SIDE];
                for (int j = 0; j < RN; j++) b[j] = s.k[t][tx + j * SIDE];
                for (int r = 0; r < RM; r++)
                    for (int j = 0; j < RN; j++) score[r][j] += a[r] * b[j];
            }
            __syncthreads();
        }
        for (int r = 0; r < RM; r++) {
            A top = most[r];
            for (int j = 0; j < RN; j++) {
                int64_t key = first + tx + j * SIDE;
                A x = score[r][j] * (A)p.scale;
                if (p.softcap > 0) x = cap(x, (A)p.softcap);
                if (kept[r][j] && p.mask_form == ATTN_FORM_ADDITIVE) {
                    A added = rows_added<A>(c, mask_row[r] + key * p.mask_stride[3]);
                    kept[r][j] = added != -infinity; /* also where the score is NaN */
                    x += added;
                }
                /* A score of -infinity excludes its key, wherever it comes from. */
                kept[r][j] = kept[r][j] && x != -infinity;
                all &= kept[r][j];
                score[r][j] = x;
                if (kept[r][j] && x > top) top = x;
            }
            top = row_max(top);
            A base = top == -infinity ? A(0) : top,
              shrink = most[r] == -infinity ? A(1) : exponential(most[r] - base);
            most[r] = top;
            sum[r] *= shrink;
            for (int n = 0; n < DV / SIDE; n++) out[r][n] *= shrink;
            for (int j = 0; j < RN; j++) {
                A w = kept[r][j] ? exponential(score[r][j] - base) : A(-1);
                if (kept[r][j]) sum[r] += w;
                s.weights[ty + r * SIDE][tx + j * SIDE] = w;
            }
        }
        bool whole = __syncthreads_and(all);
        for (int part = 0; part < BN; part += VK) {
            load_values<T, A, VK>(s.v, values + (first + part) * p.v_stride[1], p.v_stride[1], p.v_stride[3],
                                  k.kv_len - first - part, p.value_head_dim - d0);
            __syncthreads();
            for (int t = 0; t < VK; t++) {
                A v[DV / SIDE];
                for (int n = 0; n < DV / SIDE; n++) v[n] = s.v[t][tx + n * SIDE];
                for (int r = 0; r < RM; r++) {
                    A w = s.weights[ty + r * SIDE][part + t];
                    if (!whole && w < 0) continue;
                    for (int n = 0; n < DV / SIDE; n++) out[r][n] += w * v[n];
                }
            }
            __syncthreads();
        }
    }
    finish<A, RM>(c, k, MAP ? item.end : k.q_len, d0, ty, tx, most, sum, out);
}

template <typename T, typename A, int BM, int BN, int VK, bool MAP>
__global__ void __launch_bounds__(THREADS) attend(const __grid_constant__ attn_cuda_call c)
{
    __shared__ memory<A, BM, BN, VK> s;
    const int64_t heads = c.p.heads,
                  each = MAP ? attn_cuda_map_items(&c.map, &c.p, BM) / heads : rows_slots(c, BM),
                  parts = (c.p.value_head_dim + DV - 1) / DV;
    for (int64_t work = blockIdx.x; work < each * heads * parts; work += gridDim.x) {
        const int64_t slot = work % each, head = work / each % heads, d0 = work / each / heads * DV;
        rows_block k;
        map_item item;
        const bool some = MAP ? map_item_of(c, slot, head, BM, k, item) : rows_block_at(c, slot, head, BM, k);
        if (some) run_block<T, A, BM, BN, VK, MAP>(c, k, item, d0, s);
        __syncthreads();
    }
}

template <typename T, typename A, int BM, int BN, int VK>
cudaError_t launch(const attn_cuda_call &c, cudaStream_t stream)
{
    const bool map = c.map.counts;
    int64_t each = map ? attn_cuda_map_items(&c.map, &c.p, BM) : rows_slots(c, BM) * c.p.heads;
    int64_t work = each * ((c.p.value_head_dim + DV - 1) / DV);
    unsigned blocks = work > INT32_MAX ? INT32_MAX : (unsigned)work;
    void *parameters[] = {(void *)&c};
    if (!work) return cudaSuccess;
    return cudaLaunchKernel(map ? (const void *)attend<T, A, BM, BN, VK, true>
                                : (const void *)attend<T, A, BM, BN, VK, false>,
                            dim3(blocks), dim3(THREADS), parameters, 0, stream);
}

} // namespace

int64_t attn_cuda_reference_rows(attn_dtype dtype)
{
    return dtype == ATTN_F64 ? 32 : 64;
}

cudaError_t attn_cuda_reference_launch(const attn_cuda_call *c, cudaStream_t stream)
{
    switch (c->p.dtype) {
    case ATTN_F16:
        return launch<__half, float, 64, 64, 32>(*c, stream);
    case ATTN_BF16:
        return launch<__nv_bfloat16, float, 64, 64, 32>(*c, stream);
    case ATTN_F64:
        return launch<double, double, 32, 32, 16>(*c, stream);
    default:
        return launch<float, float, 64, 64, 32>(*c, stream);
    }
}
