/* skip.cuh: skip-softmax in the warpgroup kernel, as an experiment: a tile whose best score stays `margin`
 * below the running base in all 64 rows of a warpgroup takes no part. Its exponentials and its product with V
 * are left out; its scores are computed all the same. */
#ifndef ATTN_CUDA_LAB_SKIP_CUH
#define ATTN_CUDA_LAB_SKIP_CUH

#include "../hopper_kernel.cuh"

namespace
{

__constant__ float skip_margin;              /* in powers of two */
__device__ unsigned long long skip_tiles[2]; /* of warpgroups: all, skipped */

template <class B> struct skipping : B {
};

/* Whether some row of the group may have use of the tile. Bases follow growth above 2^8 alone, so a base may
 * be that far below the largest score, which errs towards taking part. */
template <class S>
__device__ __forceinline__ bool takes_part(const rows_state<S> &r, const scores_of<S> &score, float factor,
                                           int name)
{
    bool near = false;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        float top = score[e * 2];
#pragma unroll
        for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
            for (int o = 0; o < 2; o++) top = fmaxf(top, score[n * 4 + e * 2 + o]);
        near |= !(flash_row_max(top) * factor < r.base[e] - skip_margin);
    }
    const bool any = group_any(near, name);
    if (threadIdx.x % 128 == 0) {
        atomicAdd(&skip_tiles[0], 1ull);
        if (!any) atomicAdd(&skip_tiles[1], 1ull);
    }
    return any;
}

template <class S>
__device__ __forceinline__ bool scores_become_weights(const attn_cuda_hopper_call &a, const walk<S> &w,
                                                      const task &t, rows_state<S> &r, scores_of<S> &score,
                                                      int j)
{
    if ((j + 1) * S::KEYS > t.all_to || j * S::KEYS < t.all_from) hide_tile(a, w, t, score, j, {});
    if (!takes_part(r, score, w.factor, OWN + w.group)) return false;
    weigh<S>(r, score, w.factor);
    return true;
}

template <class S> __device__ __forceinline__ void pass_values(walk<S> &w)
{
    release_values(w, w.v.at);
    w.v.next();
}

/* The tile before has weights: its product runs beside. Each way through a step ends its products itself. */
template <class S>
__device__ __forceinline__ bool step_beside(const attn_cuda_hopper_call &a, walk<S> &w, const task &t,
                                            rows_state<S> &r, scores_of<S> &score, int j)
{
    wait_keys(w);
    wait_turn(w);
    scores_of_next(w, score, t.q);
    hopper_products_commit();
    wait_values(w);
    issue_values<S>(r, w.base + S::V + w.v.at * S::V_BYTES);
    pass_turn(w);
    hopper_products_wait<1>();
    hopper_hold(score);
    release_keys(w);
    const bool part = scores_become_weights(a, w, t, r, score, j);
    hopper_hold(score);
    hopper_products_wait<0>();
    hopper_hold(r.out);
    pass_values(w);
    return part;
}

template <class S>
__device__ __forceinline__ bool step_alone(const attn_cuda_hopper_call &a, walk<S> &w, const task &t,
                                           rows_state<S> &r, scores_of<S> &score, int j)
{
    wait_keys(w);
    wait_turn(w);
    scores_of_next(w, score, t.q);
    hopper_products_commit();
    pass_turn(w);
    hopper_products_wait<0>();
    hopper_hold(score);
    release_keys(w);
    wait_values(w);
    pass_values(w);
    return scores_become_weights(a, w, t, r, score, j);
}

/* For instances without maps. */
template <class B>
__device__ __forceinline__ void walk_tiles(const attn_cuda_hopper_call &a, char *shared, walk<skipping<B>> &w,
                                           const task &t, rows_state<skipping<B>> &r)
{
    using S = skipping<B>;
    scores_of<S> score;
    int j = t.first_tile;
    wait_keys(w);
    wait_turn(w);
    scores_of_next(w, score, t.q);
    hopper_products_commit();
    pass_turn(w);
    hopper_products_wait<0>();
    hopper_hold(score);
    release_keys(w);
    if ((j + 1) * S::KEYS > t.all_to || j * S::KEYS < t.all_from) hide_tile(a, w, t, score, j, {});
    weigh<S>(r, score, w.factor);
    pack_weights<S>(r, score);
    wait_values(w);
    clean_values(w, t, shared, j);
    bool part = true;
    for (j--; j >= t.last_tile; j--) {
        const bool now = part ? step_beside(a, w, t, r, score, j) : step_alone(a, w, t, r, score, j);
        if (now) rescale<S>(r), pack_weights<S>(r, score);
        part = now;
    }
    wait_values(w);
    if (part) {
        issue_values<S>(r, w.base + S::V + w.v.at * S::V_BYTES);
        hopper_products_wait<0>();
        hopper_hold(r.out);
    }
    pass_values(w);
}

} // namespace

#endif
