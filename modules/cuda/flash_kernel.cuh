/* flash_kernel.cuh: attention on tensor cores through mma.sync and cp.async, for f16 and bf16 on sm_80 and
 * later.
 *
 * A block of warps holds the queries of one head; each warp owns MF * 16 rows. K and V pass through one
 * buffer each: V of a tile arrives while its scores are computed, K of the next tile while this one's values
 * are added. Scores, weights, their sums and the output stay in registers; weights are rounded to the type of
 * V for their product, their sum is not. A tile that every row sees whole is not tested; in the others a bit
 * a score says whether it counts. Tiles in which no bit is set are skipped. */
#ifndef ATTN_CUDA_FLASH_KERNEL_CUH
#define ATTN_CUDA_FLASH_KERNEL_CUH

#include "flash.cuh"
#include "flash.h"
#include "map.cuh"

namespace
{

template <int D, int MF, int WARPS, int BN> struct layout {
    /* Rows are 16 bytes longer than they need to be: with an odd number of such pieces eight rows that are
     * read together lie in different banks. */
    static constexpr int ROWS = WARPS * MF * 16, THREADS = WARPS * 32, PITCH = D + 8, CHUNKS = D / 8,
                         LANES = CHUNKS <= 8    ? 8
                                 : CHUNKS <= 16 ? 16
                                                : 32;
    static constexpr int Q = 0, K = Q + ROWS * PITCH * 2, V = K + BN * PITCH * 2, LOW = V + BN * PITCH * 2,
                         HIGH = LOW + ROWS * 4, BITS = HIGH + ROWS * 4, BYTES = BITS + ROWS * 8;
};

/* Copies N rows from global memory; what lies outside `rows` and `channels` becomes zero. Each thread keeps
 * to one piece of 16 bytes of every few rows, so that addresses are sums. */
template <int N, typename L, typename T>
__device__ __forceinline__ void load_rows(uint32_t to, const T *from, int64_t stride, int64_t rows,
                                          int channels)
{
    constexpr int STEP = L::THREADS / L::LANES;
    const int row = threadIdx.x / L::LANES, chunk = threadIdx.x % L::LANES;
    const int present = chunk * 8 < channels ? (int)(rows < N ? rows : N) : 0;
    const T *at = from + row * stride + chunk * 8;
    to += (row * L::PITCH + chunk * 8) * 2;
    if (L::LANES != L::CHUNKS && chunk >= L::CHUNKS) return;
#pragma unroll
    for (int i = 0; i < N / STEP; i++) {
        const bool inside = row + i * STEP < present;
        flash_copy(to + i * STEP * L::PITCH * 2, inside ? at : from, inside);
        at += STEP * stride;
    }
}

/* What one thread knows of its rows: two of each fragment. */
template <int MF> struct row_state {
    float most[MF][2], sum[MF][2];
};

__device__ __forceinline__ bool finite16(uint32_t bits, uint32_t exponent)
{
    return (bits & exponent) != exponent;
}

template <typename T> struct exponent_of;
template <> struct exponent_of<__half> {
    static constexpr uint32_t value = 0x7c00;
};
template <> struct exponent_of<__nv_bfloat16> {
    static constexpr uint32_t value = 0x7f80;
};

/* Weights of zero times infinities or NaN would be NaN: values that are not finite are added by hand to the
 * rows that see them and are zero in the product. Rare, so it is as slow as it is. bits: whether a thread's
 * own scores count. Ends with the tile clean and all threads past it. */
template <typename T, typename L, int D, int MF, int BN>
__device__ __noinline__ void add_unbounded(char *shared, const uint32_t *bits, float *out)
{
    uint32_t exponent = exponent_of<T>::value;
    uint16_t *v = (uint16_t *)(shared + L::V);
    int found = 0;
    for (int at = threadIdx.x; at < BN * D; at += L::THREADS)
        found |= !finite16(v[at / D * L::PITCH + at % D], exponent);
    if (!__syncthreads_or(found)) return;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned long long *marks = (unsigned long long *)(shared + L::BITS);
    for (int row = threadIdx.x; row < L::ROWS; row += L::THREADS) marks[row] = 0;
    __syncthreads();
    for (int m = 0; m < MF; m++)
        for (int e = 0; e < 4; e++)
            for (int n = 0; n < BN / 8; n++)
                if (bits[m] >> (n * 4 + e) & 1)
                    atomicOr(&marks[(warp * MF + m) * 16 + lane / 4 + (e >> 1) * 8],
                             1ull << (n * 8 + lane % 4 * 2 + (e & 1)));
    __syncthreads();
    for (int m = 0; m < MF; m++)
        for (int n = 0; n < D / 8; n++)
            for (int e = 0; e < 4; e++) {
                unsigned long long seen = marks[(warp * MF + m) * 16 + lane / 4 + (e >> 1) * 8];
                for (int j = 0; j < BN; j++) {
                    T x = ((const T *)v)[j * L::PITCH + n * 8 + lane % 4 * 2 + (e & 1)];
                    float value = rows_to(0.0f, x);
                    if ((seen >> j & 1) && !isfinite(value)) out[(m * (D / 8) + n) * 4 + e] += value;
                }
            }
    __syncthreads();
    for (int at = threadIdx.x; at < BN * D; at += L::THREADS) {
        uint16_t *x = &v[at / D * L::PITCH + at % D];
        if (!finite16(*x, exponent)) *x = 0;
    }
    __syncthreads();
}

/* Which of a thread's scores in rows `row` and `row` + 8 of the block count: bit n * 4 + e for element e of
 * the n-th fragment. edge: where the tile's key block ends. */
template <int BN, bool MAP>
__device__ __noinline__ uint32_t kept_bits(const attn_cuda_call &c, const rows_block &k, const int *low,
                                           const int *high, int first, int edge, int row, bool masked)
{
    uint32_t bits = 0;
    for (int e = 0; e < 4; e += 2, row += 8) {
        const int l = low[row], h = MAP ? min(high[row], edge) : high[row];
        const int64_t mask_row = rows_mask_offset(c, k, k.first + row);
        for (int n = 0; n < BN / 8; n++)
            for (int o = 0; o < 2; o++) {
                int key = first + n * 8 + threadIdx.x % 4 * 2 + o;
                bool keep = key >= l && key < h;
                if (masked && keep) keep = rows_keeps(c, k, mask_row, key);
                if (keep && c.p.mask_form == ATTN_FORM_ADDITIVE)
                    keep = rows_added<float>(c, mask_row + key * c.p.mask_stride[3]) != -INFINITY;
                bits |= (uint32_t)keep << (n * 4 + e + o);
            }
    }
    return bits;
}

template <typename T, int D, int EXACT, bool GENERAL, bool MAP, int MF, int WARPS, int BN>
__device__ void run_block(const attn_cuda_call &c, const rows_block &k, const map_item &item, char *shared)
{
    using L = layout<D, MF, WARPS, BN>;
    constexpr int NT = BN / 8, DT = D / 8;
    const attn_problem &p = c.p;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int head_dim = EXACT == 2 ? D : (int)p.head_dim, value_dim = EXACT == 2 ? D : (int)p.value_head_dim;
    const int64_t batch = c.cu_q.data ? 0 : k.b;
    const T *q =
        (const T *)c.q + batch * p.q_stride[0] + (k.q0 + k.first) * p.q_stride[1] + k.h * p.q_stride[2];
    const T *keys = (const T *)c.k + batch * p.k_stride[0] + k.k0 * p.k_stride[1] + k.kv_head * p.k_stride[2];
    const T *values =
        (const T *)c.v + batch * p.v_stride[0] + k.k0 * p.v_stride[1] + k.kv_head * p.v_stride[2];
    int *low = (int *)(shared + L::LOW), *high = (int *)(shared + L::HIGH);
    const uint32_t q_at = flash_address(shared + L::Q), k_at = flash_address(shared + L::K),
                   v_at = flash_address(shared + L::V);

    load_rows<L::ROWS, L>(q_at, q, p.q_stride[1], k.q_len - k.first, head_dim);
    flash_commit();
    for (int row = threadIdx.x; row < L::ROWS; row += L::THREADS) {
        int64_t i = k.first + row, l = 0, h = 0;
        if (i < k.q_len) rows_keys(c, k, i, l, h);
        low[row] = (int)l, high[row] = (int)h;
    }
    __syncthreads();
    /* Keys that some row sees, and keys that all rows see. */
    int start = INT32_MAX, end = 0, all_from = 0, all_to = INT32_MAX;
    for (int row = lane; row < L::ROWS; row += 32) {
        if (high[row] > low[row] && low[row] < start) start = low[row];
        end = max(end, high[row]);
        if (k.first + row < k.q_len) all_from = max(all_from, low[row]), all_to = min(all_to, high[row]);
    }
    start = __reduce_min_sync(0xffffffffu, start), end = __reduce_max_sync(0xffffffffu, end);
    all_from = __reduce_max_sync(0xffffffffu, all_from), all_to = __reduce_min_sync(0xffffffffu, all_to);
    const bool masked = GENERAL && (c.mask || c.key_mask);
    const bool curved = GENERAL && (p.softcap > 0 || p.mask_form == ATTN_FORM_ADDITIVE || p.scale <= 0);
    const float log2e = 1.4426950408889634f;
    /* exp2(factor * score - factor * max); where scores are bent or shifted they carry their factor already.
     */
    const float factor = curved ? log2e : (float)(p.scale * 1.4426950408889634);

    float out[MF][DT][4];
    row_state<MF> rows;
#pragma unroll
    for (int m = 0; m < MF; m++) {
        for (int e = 0; e < 2; e++) rows.most[m][e] = -INFINITY, rows.sum[m][e] = MAP && item.bad ? NAN : 0;
#pragma unroll
        for (int n = 0; n < DT; n++)
            for (int e = 0; e < 4; e++) out[m][n][e] = 0;
    }
    /* Addresses of this lane in ldmatrix of the three operands. */
    const uint32_t q_lane = q_at + ((warp * MF * 16 + lane % 16) * L::PITCH + lane / 16 * 8) * 2;
    const uint32_t k_lane = k_at + ((lane % 8 + lane / 16 * 8) * L::PITCH + lane / 8 % 2 * 8) * 2;
    const uint32_t v_lane = v_at + (lane % 16 * L::PITCH + lane / 16 * 8) * 2;

    key_walk<MAP, BN> tile(c, item, start, end), next = tile;
    if (tile.more())
        load_rows<BN, L>(k_at, keys + tile.first * p.k_stride[1], p.k_stride[1], k.kv_len - tile.first,
                         head_dim);
    flash_commit();
    for (; tile.more(); tile = next) {
        const int first = tile.first;
        const bool tested =
            masked || first < all_from || first + BN > all_to || (MAP && first + BN > tile.edge());
        next.advance(c);
        uint32_t bits[MF];
        if (GENERAL && tested) {
            uint32_t any = 0;
#pragma unroll
            for (int m = 0; m < MF; m++) {
                bits[m] = kept_bits<BN, MAP>(c, k, low, high, first, tile.edge(),
                                             (warp * MF + m) * 16 + lane / 4, masked);
                any |= bits[m];
            }
            if (!__syncthreads_or(any != 0)) {
                flash_wait<0>();
                __syncthreads();
                if (next.more())
                    load_rows<BN, L>(k_at, keys + next.first * p.k_stride[1], p.k_stride[1],
                                     k.kv_len - next.first, head_dim);
                flash_commit();
                continue;
            }
        }
        flash_wait<0>();
        __syncthreads();
        load_rows<BN, L>(v_at, values + first * p.v_stride[1], p.v_stride[1], k.kv_len - first, value_dim);
        flash_commit();

        float score[MF][NT][4];
#pragma unroll
        for (int m = 0; m < MF; m++)
#pragma unroll
            for (int n = 0; n < NT; n++)
                for (int e = 0; e < 4; e++) score[m][n][e] = 0;
#pragma unroll
        for (int d = 0; d < D / 16; d++) {
            if (!EXACT && d * 16 >= head_dim) break;
            uint32_t a[MF][4];
#pragma unroll
            for (int m = 0; m < MF; m++) flash_load(a[m], q_lane + (m * 16 * L::PITCH + d * 16) * 2);
#pragma unroll
            for (int n = 0; n < NT; n += 2) {
                uint32_t b[4];
                flash_load(b, k_lane + (n * 8 * L::PITCH + d * 16) * 2);
#pragma unroll
                for (int m = 0; m < MF; m++) {
                    flash_multiply<T>(score[m][n], a[m], b[0], b[1]);
                    flash_multiply<T>(score[m][n + 1], a[m], b[2], b[3]);
                }
            }
        }
        flash_wait<0>();
        __syncthreads();
        if (next.more())
            load_rows<BN, L>(k_at, keys + next.first * p.k_stride[1], p.k_stride[1], k.kv_len - next.first,
                             head_dim);
        flash_commit();

        if (curved) {
            const float scale = (float)p.scale, most = (float)p.softcap;
#pragma unroll
            for (int m = 0; m < MF; m++)
#pragma unroll
                for (int n = 0; n < NT; n++)
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        float x = score[m][n][e] * scale;
                        if (most > 0) x = most * tanhf(x / most);
                        if (p.mask_form == ATTN_FORM_ADDITIVE && (bits[m] >> (n * 4 + e) & 1)) {
                            int row = (warp * MF + m) * 16 + lane / 4 + (e >> 1) * 8;
                            int key = first + n * 8 + lane % 4 * 2 + (e & 1);
                            x += rows_added<float>(c, rows_mask_offset(c, k, k.first + row) +
                                                          key * p.mask_stride[3]);
                        }
                        score[m][n][e] = x;
                    }
        }
        if (tested) {
#pragma unroll
            for (int m = 0; m < MF; m++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    const int row = (warp * MF + m) * 16 + lane / 4 + r * 8, from = low[row],
                              to = MAP ? min(high[row], tile.edge()) : high[row];
#pragma unroll
                    for (int n = 0; n < NT; n++)
#pragma unroll
                        for (int o = 0; o < 2; o++) {
                            const int key = first + n * 8 + lane % 4 * 2 + o;
                            const bool keep =
                                GENERAL ? bits[m] >> (n * 4 + r * 2 + o) & 1 : key >= from && key < to;
                            if (!keep) score[m][n][r * 2 + o] = -INFINITY;
                        }
                }
        }
#pragma unroll
        for (int m = 0; m < MF; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float top = rows.most[m][r];
#pragma unroll
                for (int n = 0; n < NT; n++)
                    top = fmaxf(top, fmaxf(score[m][n][r * 2], score[m][n][r * 2 + 1]));
                top = flash_row_max(top);
                float base = top == -INFINITY ? 0 : top * factor;
                float shrink = flash_exp2(rows.most[m][r] * factor - base), sum = 0;
                rows.most[m][r] = top;
#pragma unroll
                for (int n = 0; n < NT; n++)
#pragma unroll
                    for (int o = 0; o < 2; o++) {
                        float w = flash_exp2(fmaf(score[m][n][r * 2 + o], factor, -base));
                        score[m][n][r * 2 + o] = w;
                        sum += w;
                    }
                rows.sum[m][r] = rows.sum[m][r] * shrink + sum;
#pragma unroll
                for (int n = 0; n < DT; n++) out[m][n][r * 2] *= shrink, out[m][n][r * 2 + 1] *= shrink;
            }
        if (tested) {
            int found = 0;
            for (int at = threadIdx.x; at < BN * L::CHUNKS; at += L::THREADS) {
                const uint4 x =
                    *(const uint4 *)(shared + L::V + (at / L::CHUNKS * L::PITCH + at % L::CHUNKS * 8) * 2);
                const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
                for (int w = 0; w < 4; w++)
                    found |= !finite16(words[w], exponent_of<T>::value) |
                             !finite16(words[w] >> 16, exponent_of<T>::value);
            }
            if (__syncthreads_or(found)) {
                /* Through memory, so that the ordinary path keeps its registers. */
                float copy[MF * DT * 4];
#pragma unroll
                for (int m = 0; m < MF; m++)
#pragma unroll
                    for (int n = 0; n < DT; n++)
#pragma unroll
                        for (int e = 0; e < 4; e++) copy[(m * DT + n) * 4 + e] = out[m][n][e];
                if (!GENERAL)
#pragma unroll
                    for (int m = 0; m < MF; m++)
                        bits[m] = kept_bits<BN, MAP>(c, k, low, high, first, tile.edge(),
                                                     (warp * MF + m) * 16 + lane / 4, false);
                add_unbounded<T, L, D, MF, BN>(shared, bits, copy);
#pragma unroll
                for (int m = 0; m < MF; m++)
#pragma unroll
                    for (int n = 0; n < DT; n++)
#pragma unroll
                        for (int e = 0; e < 4; e++) out[m][n][e] = copy[(m * DT + n) * 4 + e];
            }
        }
#pragma unroll
        for (int j = 0; j < BN / 16; j++) {
            uint32_t a[MF][4];
#pragma unroll
            for (int m = 0; m < MF; m++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    a[m][e] = flash_pack<T>(score[m][2 * j + e / 2][e % 2 * 2],
                                            score[m][2 * j + e / 2][e % 2 * 2 + 1]);
#pragma unroll
            for (int n = 0; n < DT; n += 2) {
                if (!EXACT && n * 8 >= value_dim) break;
                uint32_t b[4];
                flash_load_turned(b, v_lane + (j * 16 * L::PITCH + n * 8) * 2);
#pragma unroll
                for (int m = 0; m < MF; m++) {
                    flash_multiply<T>(out[m][n], a[m], b[0], b[1]);
                    flash_multiply<T>(out[m][n + 1], a[m], b[2], b[3]);
                }
            }
        }
    }
    flash_wait<0>();

#pragma unroll
    for (int m = 0; m < MF; m++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int64_t i = k.first + (warp * MF + m) * 16 + lane / 4 + r * 8, row = k.q0 + i;
            float total = flash_row_sum(rows.sum[m][r]), top = rows.most[m][r] * factor, share = 1;
            bool empty = total == 0;
            if (c.sinks && !empty) {
                float sink = c.sinks[k.h] * log2e, higher = fmaxf(sink, top);
                share = flash_exp2(top - higher);
                total = total * share + flash_exp2(sink - higher);
                top = higher;
            }
            if (i >= (MAP ? item.end : k.q_len)) continue;
            float inverse = empty ? 0 : share / total;
            int64_t base = batch * p.out_stride[0] + row * p.out_stride[1] + k.h * p.out_stride[2];
#pragma unroll
            for (int n = 0; n < DT; n++) {
                int channel = n * 8 + lane % 4 * 2;
                if (channel >= value_dim) continue;
                float x = out[m][n][r * 2] * inverse, y = out[m][n][r * 2 + 1] * inverse;
                if (empty) x = y = 0;
                if (p.out_dtype == ATTN_F32)
                    *(float2 *)((float *)c.out + base + channel) = make_float2(x, y);
                else
                    *(uint32_t *)((T *)c.out + base + channel) = flash_pack<T>(x, y);
            }
            if (c.lse && lane % 4 == 0)
                c.lse[batch * p.lse_stride[0] + k.h * p.lse_stride[1] + row * p.lse_stride[2]] =
                    empty ? -INFINITY : (top + log2f(total)) * 0.6931471805599453f;
        }
}

template <typename T, int D, int EXACT, bool GENERAL, bool MAP, int MF, int WARPS, int BN>
__global__ void __launch_bounds__(WARPS * 32, WARPS > 4 ? 1 : 2)
    attend(const __grid_constant__ attn_cuda_call c)
{
    extern __shared__ __align__(16) char shared[];
    using L = layout<D, MF, WARPS, BN>;
    const int64_t slots =
        MAP ? attn_cuda_map_items(&c.map, &c.p, L::ROWS) / c.p.heads : rows_slots(c, L::ROWS);
    for (int64_t work = blockIdx.x; work < slots * c.p.heads; work += gridDim.x) {
        rows_block k;
        map_item item;
        const bool some = MAP ? map_item_of(c, work % slots, work / slots, L::ROWS, k, item)
                              : rows_block_at(c, work % slots, work / slots, L::ROWS, k);
        if (some) run_block<T, D, EXACT, GENERAL, MAP, MF, WARPS, BN>(c, k, item, shared);
        __syncthreads();
    }
}

/* The instances of one element type, in the order of tiles.def. */
template <typename T> const void *flash_instance(int32_t index)
{
    const void *const kernels[] = {
#define X(size, exact, general, map, fragments, warps, keys)                                                 \
    (const void *)attend<T, size, exact, general != 0, map != 0, fragments, warps, keys>,
#include "tiles.def"
#undef X
    };
    return kernels[index];
}

} // namespace

#endif
