/* hopper_rows.cuh: what a warpgroup does with its 64 rows and one tile. */
#ifndef ATTN_CUDA_HOPPER_ROWS_CUH
#define ATTN_CUDA_HOPPER_ROWS_CUH

#include "hopper_shape.cuh"

namespace
{

/* What a thread keeps of its two rows, r and r + 8 of its warp's 16. */
template <class S> struct rows_state {
    float out[S::DV / 2];
    uint32_t weight[S::KEYS / 4];
    float base[2], sum[2], shrink[2]; /* base: what scores, times factor, are taken relative to */
};

template <class S> using scores_of = float[S::KEYS / 2];

/* Scores of the group's 64 rows with the keys of one tile. */
template <class S> __device__ __forceinline__ void issue_scores(scores_of<S> &score, uint32_t q, uint32_t k)
{
    const uint64_t a = hopper_matrix<S::WIDTH>(q, 16, 8 * S::ROW),
                   b = hopper_matrix<S::WIDTH>(k, 16, 8 * S::ROW);
    hopper_products_begin();
    products<typename S::T, S::KEYS>::first_scores(score, a, b);
#pragma unroll
    for (int d = 1; d < S::DK / 16; d++) {
        constexpr int PER = S::WIDTH / 16;
        products<typename S::T, S::KEYS>::scores(score, hopper_moved(a, d / PER * S::Q_BOX + d % PER * 32),
                                                 hopper_moved(b, d / PER * S::KV_BOX + d % PER * 32));
    }
    hopper_hold(score);
}

template <class S> __device__ __forceinline__ void issue_values(rows_state<S> &r, uint32_t v)
{
    const uint64_t b = hopper_matrix<S::WIDTH>(v, S::KV_BOX, 8 * S::ROW);
    hopper_hold(r.out);
    hopper_products_begin();
#pragma unroll
    for (int j = 0; j < S::KEYS / 16; j++)
        products<typename S::T, S::DV>::values(r.out, r.weight + 4 * j, hopper_moved(b, j * 16 * S::ROW), 1);
    hopper_products_commit();
    hopper_hold(r.out);
}

/* Hides what lies outside [low, high) of one row, in keys from the tile's first. */
template <class S> __device__ __forceinline__ void hide(scores_of<S> &score, int e, int low, int high)
{
#pragma unroll
    for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
        for (int o = 0; o < 2; o++) {
            const int key = n * 8 + threadIdx.x % 4 * 2 + o;
            if (key < low || key >= high) score[n * 4 + e * 2 + o] = -INFINITY;
        }
}

/* The same for the 64 keys of one half of a tile. */
template <class S>
__device__ __forceinline__ void hide_half(scores_of<S> &score, int half, int e, int low, int high)
{
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int o = 0; o < 2; o++) {
            const int key = n * 8 + threadIdx.x % 4 * 2 + o;
            if (key < low || key >= high) score[(half * 8 + n) * 4 + e * 2 + o] = -INFINITY;
        }
}

/* Hides the keys of one half that masks without rows hide; those from `most` on are hidden already. */
template <class S>
__device__ __forceinline__ void hide_half_masked(scores_of<S> &score, int half, const attn_cuda_call &c,
                                                 const rows_block &k, int first, int most)
{
    const int64_t mask_row = rows_mask_offset(c, k, 0);
#pragma unroll
    for (int n = 0; n < 8; n++)
#pragma unroll
        for (int o = 0; o < 2; o++) {
            const int at = n * 8 + threadIdx.x % 4 * 2 + o, to = (half * 8 + n) * 4 + o;
            if (at < most && first + at < k.kv_len && !rows_keeps(c, k, mask_row, first + at))
                score[to] = score[to + 2] = -INFINITY;
        }
}

/* Hides the keys that masks without rows hide. Nothing is read past the sample's keys. */
template <class S>
__device__ __forceinline__ void hide_masked(scores_of<S> &score, const attn_cuda_call &c, const rows_block &k,
                                            int first)
{
    const int64_t mask_row = rows_mask_offset(c, k, 0);
#pragma unroll
    for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
        for (int o = 0; o < 2; o++) {
            const int key = first + n * 8 + threadIdx.x % 4 * 2 + o;
            if (key < k.kv_len && !rows_keeps(c, k, mask_row, key))
                score[n * 4 + o] = score[n * 4 + 2 + o] = -INFINITY;
        }
}

/* Scores become weights. The base follows the largest score only when that has grown by more than SLACK (two
 * to its power is exact in all types): most tiles need no rescaling, and the quotient at the end is the same.
 */
template <class S> __device__ __forceinline__ void weigh(rows_state<S> &r, scores_of<S> &score, float factor)
{
    constexpr float SLACK = 8;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        float top[2] = {score[e * 2], score[e * 2 + 1]};
#pragma unroll
        for (int n = 1; n < S::KEYS / 8; n++)
#pragma unroll
            for (int o = 0; o < 2; o++) top[o] = fmaxf(top[o], score[n * 4 + e * 2 + o]);
        const float most = flash_row_max(fmaxf(top[0], top[1])) * factor, old = r.base[e];
        const bool grown = most > old + SLACK;
        r.base[e] = grown ? most : old;
        r.shrink[e] = grown ? flash_exp2(old - most) : 1;
        const float base = r.base[e] == -INFINITY ? 0 : r.base[e];
        float sum[2] = {0, 0};
#pragma unroll
        for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
            for (int o = 0; o < 2; o++) {
                float &x = score[n * 4 + e * 2 + o];
                x = flash_exp2(fmaf(x, factor, -base));
                sum[o] += x;
            }
        r.sum[e] = r.sum[e] * r.shrink[e] + (sum[0] + sum[1]);
    }
}

template <class S> __device__ __forceinline__ void rescale(rows_state<S> &r)
{
    if (!__any_sync(0xffffffffu, r.shrink[0] != 1 || r.shrink[1] != 1)) return;
#pragma unroll
    for (int n = 0; n < S::DV / 2; n++) r.out[n] *= r.shrink[n / 2 % 2];
}

template <class S> __device__ __forceinline__ void pack_weights(rows_state<S> &r, const scores_of<S> &score)
{
#pragma unroll
    for (int i = 0; i < S::KEYS / 4; i++)
        r.weight[i] = flash_pack<typename S::T>(score[i * 2], score[i * 2 + 1]);
}

/* Values past the sample's keys are what memory held. Every group writes the same zeros before it multiplies.
 */
template <class S> __device__ __forceinline__ void zero_values(char *v, int from, int name)
{
    constexpr int PIECES = S::ROW / 16;
#pragma unroll 1
    for (int b = 0; b < S::V_BOXES; b++)
#pragma unroll 1
        for (int at = from * PIECES + threadIdx.x % 128; at < S::KEYS * PIECES; at += 128)
            *(uint4 *)(v + b * S::KV_BOX + at * 16) = make_uint4(0, 0, 0, 0);
    hopper_publish();
    hopper_meet(name, 128);
}

} // namespace

#endif
