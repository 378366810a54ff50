/* hopper_kernel.cuh: attention on sm_90a, for f16 and bf16.
 *
 * A block stays on its multiprocessor and takes items: GROUPS * 64 query rows of one head (or of the heads
 * that share a key head), against all keys that they see. Its first warpgroup feeds: one warp lists items,
 * one loads K, one V, one Q, each as far ahead as its buffers allow, and the last stores outputs as well.
 * Each other warpgroup owns 64 rows. Weights go from the accumulators of one product straight into the first
 * operand of the other.
 *
 * A warpgroup issues the scores of a tile, then the product of the tile before with V, and turns the scores
 * into weights while that runs. The warpgroups take turns at issuing, so that one multiplies while another is
 * at its weights. Tiles go from the last key to the first; those that need a test of each score are in loops
 * of their own. Keys past the end of a tensor are zeros of the copy engine. */
#ifndef ATTN_CUDA_HOPPER_KERNEL_CUH
#define ATTN_CUDA_HOPPER_KERNEL_CUH

#include "hopper_feed.cuh"
#include "hopper_finish.cuh"

namespace
{

/* Names of barriers: 0 is the block's. */
enum { TURN = 1, OWN = 8 };

__device__ __forceinline__ int same_in_all_lanes(int x)
{
    return __shfl_sync(0xffffffffu, x, 0);
}

/* A warpgroup on its way through the tiles. */
template <class S> struct walk {
    uint32_t base;
    int group;
    bool turns; /* several groups have rows */
    float factor;
    int at[2], of[2];         /* position and head of the thread's rows, within the group's */
    place<S::KS> k_issued, k; /* the next tile to issue scores of, to release */
    place<S::VS> v;           /* the next tile to multiply with */
};

template <class S> __device__ __forceinline__ void wait_turn(const walk<S> &w)
{
    if (S::TURNS && w.turns) hopper_meet(TURN + w.group, 256);
}

template <class S> __device__ __forceinline__ void pass_turn(const walk<S> &w)
{
    if (S::TURNS && w.turns) hopper_notify(TURN + (w.group + 1 == S::GROUPS ? 0 : w.group + 1), 256);
}

template <class S> __device__ __forceinline__ void wait_keys(const walk<S> &w)
{
    hopper_barrier_wait(w.base + S::K_FULL + w.k_issued.at * 8, w.k_issued.parity);
}

template <class S> __device__ __forceinline__ void wait_values(const walk<S> &w)
{
    hopper_barrier_wait(w.base + S::V_FULL + w.v.at * 8, w.v.parity);
}

/* By one lane of each warp: its own products have read the tile. */
template <class S> __device__ __forceinline__ void release_keys(walk<S> &w)
{
    if (threadIdx.x % 32 == 0) hopper_barrier_arrive(w.base + S::K_EMPTY + w.k.at * 8);
    w.k.next();
}

template <class S> __device__ __forceinline__ void release_values(const walk<S> &w, uint32_t at)
{
    if (threadIdx.x % 32 == 0) hopper_barrier_arrive(w.base + S::V_EMPTY + at * 8);
}

template <class S> __device__ __forceinline__ void scores_of_next(walk<S> &w, scores_of<S> &score, uint32_t q)
{
    issue_scores<S>(score, q, w.base + S::K + w.k_issued.at * S::K_BYTES);
    w.k_issued.next();
}

/* What the group knows of its item. */
struct task {
    const hopper_item *item;
    uint32_t q;
    const int *low, *high;
    int first_tile, last_tile; /* in the order of the walk: first >= last */
    int all_from, all_to, zero_from;
    bool holes;
};

/* Of a tile of listed blocks, each half's first key and how many keys from there are its block's. To be read
 * before the tile is released. */
template <class S> struct pieces_of_tile {
    int2 half[S::MAP ? S::HALVES : 1];
};

template <class S>
__device__ __forceinline__ pieces_of_tile<S> pieces_at(const char *shared, const walk<S> &w)
{
    pieces_of_tile<S> x;
#pragma unroll
    for (int h = 0; h < S::HALVES; h++)
        x.half[h] = ((const int2 *)(shared + S::PIECE))[w.k.at * S::HALVES + h];
    return x;
}

template <class S>
__device__ __forceinline__ void hide_pieces(const attn_cuda_hopper_call &a, const walk<S> &w, const task &t,
                                            scores_of<S> &score, const pieces_of_tile<S> &pieces)
{
#pragma unroll
    for (int h = 0; h < S::HALVES; h++) {
        const int first = pieces.half[h].x, most = pieces.half[h].y;
#pragma unroll
        for (int e = 0; e < 2; e++)
            hide_half<S>(score, h, e, t.low[w.at[e]] - first, min(t.high[w.at[e]] - first, most));
        if (t.holes) hide_half_masked<S>(score, h, a.c, t.item->block, first, most);
    }
}

/* Hides scores that do not count. */
template <class S>
__device__ __forceinline__ void hide_tile(const attn_cuda_hopper_call &a, const walk<S> &w, const task &t,
                                          scores_of<S> &score, int j, const pieces_of_tile<S> &pieces)
{
    if constexpr (S::MAP) return hide_pieces<S>(a, w, t, score, pieces);
    const int first = j * S::KEYS;
#pragma unroll
    for (int e = 0; e < 2; e++) hide<S>(score, e, t.low[w.at[e]] - first, t.high[w.at[e]] - first);
    if (t.holes) hide_masked<S>(score, a.c, t.item->block, first);
}

template <class S>
__device__ __forceinline__ void clean_values(const walk<S> &w, const task &t, char *shared, int j)
{
    if (t.zero_from < (j + 1) * S::KEYS)
        zero_values<S>(shared + S::V + w.v.at * S::V_BYTES, t.zero_from - j * S::KEYS, OWN + w.group);
}

template <class S> __device__ __forceinline__ void begin(rows_state<S> &r, float sum)
{
#pragma unroll
    for (int n = 0; n < S::DV / 2; n++) r.out[n] = 0;
#pragma unroll
    for (int e = 0; e < 2; e++) r.base[e] = -INFINITY, r.sum[e] = sum;
}

/* Scores and weights of tile j, values of the tile before. */
template <class S, bool TESTED>
__device__ __forceinline__ void step(const attn_cuda_hopper_call &a, const char *shared, walk<S> &w,
                                     const task &t, rows_state<S> &r, scores_of<S> &score, int j)
{
    pieces_of_tile<S> pieces;
    wait_keys(w);
    wait_turn(w);
    scores_of_next(w, score, t.q);
    hopper_products_commit();
    wait_values(w);
    issue_values<S>(r, w.base + S::V + w.v.at * S::V_BYTES);
    pass_turn(w);
    hopper_products_wait<1>();
    hopper_hold(score);
    if (S::MAP && TESTED) pieces = pieces_at<S>(shared, w);
    release_keys(w);
    if (TESTED) hide_tile(a, w, t, score, j, pieces);
    weigh<S>(r, score, w.factor);
    hopper_hold(score);
    hopper_products_wait<0>();
    hopper_hold(r.out);
    release_values(w, w.v.at);
    w.v.next();
    rescale<S>(r);
    pack_weights<S>(r, score);
}

template <class S>
__device__ __forceinline__ void walk_tiles(const attn_cuda_hopper_call &a, char *shared, walk<S> &w,
                                           const task &t, rows_state<S> &r)
{
    scores_of<S> score;
    pieces_of_tile<S> pieces;
    int j = t.first_tile;
    wait_keys(w);
    wait_turn(w);
    scores_of_next(w, score, t.q);
    hopper_products_commit();
    pass_turn(w);
    hopper_products_wait<0>();
    hopper_hold(score);
    if (S::MAP) pieces = pieces_at<S>(shared, w);
    release_keys(w);
    if ((j + 1) * S::KEYS > t.all_to || j * S::KEYS < t.all_from) hide_tile(a, w, t, score, j, pieces);
    weigh<S>(r, score, w.factor);
    pack_weights<S>(r, score);
    wait_values(w);
    if (!S::MAP) clean_values(w, t, shared, j);
    for (j--; j >= t.last_tile && (j + 1) * S::KEYS > t.all_to; j--)
        step<S, true>(a, shared, w, t, r, score, j);
    for (; j >= t.last_tile && j * S::KEYS >= t.all_from; j--) step<S, false>(a, shared, w, t, r, score, j);
    for (; j >= t.last_tile; j--) step<S, true>(a, shared, w, t, r, score, j);
    wait_values(w);
    issue_values<S>(r, w.base + S::V + w.v.at * S::V_BYTES);
    hopper_products_wait<0>();
    hopper_hold(r.out);
    release_values(w, w.v.at);
    w.v.next();
}

/* A group without rows lets everything pass. */
template <class S> __device__ __forceinline__ void stand_by(walk<S> &w, int tiles)
{
    for (; tiles > 0; tiles--) {
        wait_keys(w);
        wait_turn(w);
        pass_turn(w);
        release_keys(w);
        w.k_issued.next();
        wait_values(w);
        release_values(w, w.v.at);
        w.v.next();
    }
}

/* ---- the kernel ---------------------------------------------------------------------------------- */

template <class S>
__device__ __forceinline__ void consume_item(const attn_cuda_hopper_call &a, char *shared, walk<S> &w,
                                             const typename S::Item &item, uint32_t n)
{
    const place<S::QS> queries = place_of<S::QS>(n);
    const int at = queries.at * S::GROUPS + w.group, rows = n % S::ITEMS * S::ROWS + w.group * a.positions;
    const int first = same_in_all_lanes((int)item.block.first),
              left = same_in_all_lanes(item_end(item)) - first;
    const int own = w.group * a.positions;
    task t = {&item,
              w.base + at * S::Q_GROUP,
              (const int *)(shared + S::LOW) + rows,
              (const int *)(shared + S::HIGH) + rows,
              same_in_all_lanes(item.high_tile),
              same_in_all_lanes(item.low_tile),
              same_in_all_lanes(item.keys.all_from),
              same_in_all_lanes(item.keys.all_to),
              same_in_all_lanes(item.zero_from),
              (bool)same_in_all_lanes(item.holes)};
    int *boxed = (int *)(shared + S::O_BOXED + at * 8);
    w.turns = left > a.positions;
    hopper_barrier_wait(w.base + S::Q_FULL + at * 8, queries.parity);
    if (left > own) {
        rows_state<S> r;
        begin<S>(r, item_sum(item));
        if (t.first_tile >= t.last_tile) walk_tiles(a, shared, w, t, r);
        finish<S>(a, r, item, t.q, boxed, first + own, w.at, w.of, OWN + w.group);
    } else {
        stand_by<S>(w, t.first_tile - t.last_tile + 1);
        *boxed = 0;
    }
    __syncwarp();
    if (threadIdx.x % 32) return;
    hopper_barrier_arrive(w.base + S::O_FULL + at * 8);
    item_release<S>(w.base, n);
}

template <class S>
__device__ __forceinline__ void consume(const attn_cuda_hopper_call &a, char *shared, uint32_t base,
                                        int group)
{
    const int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    walk<S> w = {base,
                 group,
                 true,
                 (float)(a.c.p.scale * 1.4426950408889634),
                 {row / a.pack, (row + 8) / a.pack},
                 {row % a.pack, (row + 8) % a.pack},
                 {0, 0},
                 {0, 0},
                 {0, 0}};
    if (S::TURNS && group == S::GROUPS - 1) hopper_notify(TURN, 256);
    for (uint32_t n = 0;; n++) {
        const typename S::Item &item = item_wait<S>(shared, base, n);
        if (same_in_all_lanes(item.last)) break;
        consume_item<S>(a, shared, w, item, n);
        __syncwarp();
    }
}

template <class S> __device__ __forceinline__ void make_rings(uint32_t base)
{
    const struct {
        int full, empty, size, readers;
    } rings[] = {{S::ITEM_FULL, S::ITEM_EMPTY, S::ITEMS, S::GROUPS * 4 + 3},
                 {S::Q_FULL, S::O_FULL, S::QS * S::GROUPS, 4},
                 {S::K_FULL, S::K_EMPTY, S::KS, S::GROUPS * 4},
                 {S::V_FULL, S::V_EMPTY, S::VS, S::GROUPS * 4}};
#pragma unroll
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < rings[r].size; i++) {
            hopper_barrier_make(base + rings[r].full + i * 8, 1);
            hopper_barrier_make(base + rings[r].empty + i * 8, (uint32_t)rings[r].readers);
        }
    hopper_publish();
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, S::BLOCKS)
    attend_hopper(const __grid_constant__ attn_cuda_hopper_call a)
{
    extern __shared__ __align__(1024) char shared[];
    const uint32_t base = flash_address(shared);
    const int warp = same_in_all_lanes(threadIdx.x / 32);
    if (threadIdx.x == 0) make_rings<S>(base);
    __syncthreads();
    if (warp < 4) {
        hopper_registers_give<S::LOADER_REGISTERS>();
        if (warp == 3) list<S>(a, shared, base);
        if (threadIdx.x % 32) return;
        if (warp == 0) load<S, false>(a, shared, base);
        if (warp == 1) load<S, true>(a, shared, base);
        if (warp == 2) move_rows<S>(a, shared, base);
    } else {
        hopper_registers_take<S::REGISTERS>();
        consume<S>(a, shared, base, warp / 4 - 1);
    }
}

template <class S>
constexpr attn_cuda_hopper_tile hopper_tile_of(int32_t size, int32_t value_size, int32_t least)
{
    return {size,  value_size, least,     S::GROUPS,  S::KEYS, S::WIDTH,
            S::QS, S::MAP,     S::BLOCKS, S::THREADS, S::BYTES};
}

/* The instances of one element type, in the order of hopper_tiles.def. */
template <typename T> const void *hopper_instance(int32_t index)
{
    const void *const kernels[] = {
#define X(size, value_size, groups, keys, width, queries, least, map, blocks)                                \
    (const void *)attend_hopper<shape<T, size, value_size, groups, keys, width, queries, map, blocks>>,
#include "hopper_tiles.def"
#undef X
    };
    return kernels[index];
}

} // namespace

#endif
