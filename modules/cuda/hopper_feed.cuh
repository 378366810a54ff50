/* hopper_feed.cuh: the warpgroup that lists items and moves tiles. */
#ifndef ATTN_CUDA_HOPPER_FEED_CUH
#define ATTN_CUDA_HOPPER_FEED_CUH

#include "hopper_shape.cuh"

namespace
{

template <class S>
__device__ __forceinline__ const typename S::Item &item_wait(char *shared, uint32_t base, uint32_t n)
{
    const place<S::ITEMS> r = place_of<S::ITEMS>(n);
    hopper_barrier_wait(base + S::ITEM_FULL + r.at * 8, r.parity);
    return ((const typename S::Item *)(shared + S::ITEM))[r.at];
}

template <class S> __device__ __forceinline__ void item_release(uint32_t base, uint32_t n)
{
    hopper_barrier_arrive(base + S::ITEM_EMPTY + n % S::ITEMS * 8);
}

template <class S>
__device__ __forceinline__ hopper_item item_of(const attn_cuda_call &c, const rows_block &k,
                                               const kept_keys &kept, const key_range &g)
{
    hopper_item item;
    item.keys = g;
    item.high_tile = g.end ? (g.end - 1) / S::KEYS : -1;
    item.low_tile = g.end ? g.start / S::KEYS : 0;
    /* Keys past the tensor's are zeros already. */
    item.zero_from = c.cu_k.data || g.end < c.p.kv_len ? g.end : INT32_MAX;
    item.holes = kept.holes;
    item.repair = g.all_from > g.start || g.all_to < g.end || g.start > item.low_tile * S::KEYS;
    item.last = 0;
    item.block = k;
    return item;
}

/* ---- lists of key blocks --------------------------------------------------------------------------------
 */

/* Pieces of one listed block, none of them empty. */
__device__ __forceinline__ int pieces_of(const attn_cuda_hopper_call &a, int block)
{
    const attn_cuda_map &m = a.c.map;
    const int64_t size = map_end(m, m.block_k, block, a.c.p.kv_len) - map_start(m, m.block_k, block);
    return ((int)size + a.piece - 1) / a.piece;
}

/* By one warp. */
__device__ inline int pieces_of_list(const attn_cuda_hopper_call &a, const map_list &list)
{
    int pieces = 0;
    for (int n = threadIdx.x % 32; n < list.count; n += 32) pieces += pieces_of(a, list.blocks[n]);
    return (int)__reduce_add_sync(0xffffffffu, (unsigned)pieces);
}

/* Tiles hold pieces of the list in its order; the walk starts with the last, which may lack some. Where every
 * row sees every key and only the last block may be short, the consumers test that tile alone. */
template <class S>
__device__ __forceinline__ hopper_listed_item listed_item_of(const attn_cuda_hopper_call &a,
                                                             const rows_block &k, const map_item &map,
                                                             const kept_keys &kept, const key_range &g,
                                                             int pieces)
{
    const attn_cuda_map &m = a.c.map;
    const int each = S::KEYS / a.piece, tiles = (pieces + each - 1) / each;
    const bool plain = !kept.holes && g.all_from == 0 && g.all_to >= a.c.p.kv_len && !m.starts;
    hopper_listed_item item;
    item.missing = tiles * each - pieces;
    item.keys = g;
    item.keys.all_from = 0;
    item.keys.all_to = plain && tiles ? (tiles - 1) * S::KEYS : 0;
    item.high_tile = tiles - 1;
    item.low_tile = 0;
    item.zero_from = INT32_MAX;
    item.holes = kept.holes;
    item.repair = !plain;
    item.last = 0;
    item.block = k;
    item.map = map;
    return item;
}

/* Takes the next item that has rows: all blocks of threads draw from one counter. False at the end. By one
 * warp.
 */
template <class S>
__device__ __forceinline__ bool draw_item(const attn_cuda_hopper_call &a, int64_t count, rows_block &k,
                                          map_item &map)
{
    const attn_cuda_call &c = a.c;
    const int64_t each = count / (c.p.batch * c.p.heads);
    for (;;) {
        int work = 0;
        if (threadIdx.x % 32 == 0) work = atomicAdd(c.map.next, 1);
        work = __shfl_sync(0xffffffffu, work, 0);
        if (work >= count) return false;
        const int64_t head = work / each;
        if (map_item_at(c, head / c.p.heads, head % c.p.heads, work % each, S::ROWS, k, map)) return true;
    }
}

template <class S> __device__ void list_listed(const attn_cuda_hopper_call &a, char *shared, uint32_t base)
{
    const attn_cuda_call &c = a.c;
    const int64_t count = item_count(a, S::ROWS);
    kept_keys kept = {-1, 0, INT32_MAX, 0};
    for (uint32_t n = 0;; n++) {
        const place<S::ITEMS> r = place_of<S::ITEMS>(n);
        rows_block k;
        map_item map;
        hopper_barrier_wait(base + S::ITEM_EMPTY + r.at * 8, r.parity ^ 1);
        const bool some = draw_item<S>(a, count, k, map);
        key_range g = {};
        int pieces = 0;
        if (some) {
            if (masked(c) && kept.sample != k.b) kept = keys_kept(c, k);
            g = item_range(c, k, kept, S::ROWS, (int *)(shared + S::LOW) + r.at * S::ROWS,
                           (int *)(shared + S::HIGH) + r.at * S::ROWS);
            pieces = g.end > 0 ? pieces_of_list(a, map.list) : 0;
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0) {
            hopper_listed_item *item = (hopper_listed_item *)(shared + S::ITEM) + r.at;
            if (some) *item = listed_item_of<S>(a, k, map, kept, g, pieces);
            item->last = !some;
            hopper_barrier_arrive(base + S::ITEM_FULL + r.at * 8);
        }
        __syncwarp();
        if (!some) break;
    }
}

/* The pieces of a list, from the last to the first; what is missing at first lies behind all keys, where the
 * copy engine finds zeros. */
struct piece_walk {
    const int32_t *blocks;
    int n, part, missing;
    int start, end; /* of the block */

    __device__ __forceinline__ piece_walk(const attn_cuda_hopper_call &a, const hopper_listed_item &item)
        : blocks(item.map.list.blocks), n(item.map.list.count), part(0), missing(item.missing), start(0),
          end(0)
    {
        if (item.high_tile >= item.low_tile) enter(a);
    }
    __device__ __forceinline__ void enter(const attn_cuda_hopper_call &a)
    {
        const attn_cuda_map &m = a.c.map;
        if (--n < 0) return;
        const int block = blocks[n];
        start = (int)map_start(m, m.block_k, block);
        end = (int)map_end(m, m.block_k, block, a.c.p.kv_len);
        part = (end - start + a.piece - 1) / a.piece - 1;
    }
    /* first: its first key; valid: how many keys from there are the block's. */
    __device__ __forceinline__ void next(const attn_cuda_hopper_call &a, int &first, int &valid)
    {
        if (missing > 0) {
            missing--;
            first = (int)a.c.p.kv_len, valid = 0;
            return;
        }
        first = start + part * a.piece;
        valid = min(a.piece, end - first);
        if (part-- == 0) enter(a);
    }
};

/* By one thread: all K, or all V, of the listed blocks. */
template <class S, bool VALUES>
__device__ void load_listed(const attn_cuda_hopper_call &a, char *shared, uint32_t base)
{
    constexpr int BOXES = VALUES ? S::V_BOXES : S::Q_BOXES, BYTES = BOXES * S::KV_BOX,
                  SIZE = VALUES ? S::VS : S::KS;
    const CUtensorMap *map = VALUES ? &a.v : &a.k;
    const int64_t *stride = VALUES ? a.c.p.v_stride : a.c.p.k_stride;
    const uint32_t full = base + (VALUES ? S::V_FULL : S::K_FULL),
                   empty = base + (VALUES ? S::V_EMPTY : S::K_EMPTY), to = base + (VALUES ? S::V : S::K);
    const bool heads = stride[2], batches = stride[0];
    const int each = S::KEYS / a.piece;
    place<SIZE> r = {0, 0};
    hopper_prefetch(map);
    for (uint32_t n = 0;; n++) {
        const hopper_listed_item &item = item_wait<S>(shared, base, n);
        if (item.last) break;
        const int head = heads ? (int)item.block.kv_head : 0, batch = batches ? (int)item.block.b : 0;
        piece_walk pieces(a, item);
        for (int j = item.high_tile; j >= 0; j--, r.next()) {
            int first[S::HALVES], valid[S::HALVES];
#pragma unroll
            for (int p = S::HALVES - 1; p >= 0; p--)
                if (p < each) pieces.next(a, first[p], valid[p]);
            hopper_barrier_wait(empty + r.at * 8, r.parity ^ 1);
            if (!VALUES) {
                int2 *half = (int2 *)(shared + S::PIECE) + r.at * S::HALVES;
#pragma unroll
                for (int h = 0; h < S::HALVES; h++)
                    half[h] =
                        h < each ? make_int2(first[h], valid[h]) : make_int2(first[0] + 64, valid[0] - 64);
            }
            hopper_barrier_expect(full + r.at * 8, BYTES);
#pragma unroll
            for (int p = 0; p < S::HALVES; p++)
#pragma unroll
                for (int b = 0; b < BOXES; b++)
                    if (p < each)
                        hopper_load(to + r.at * BYTES + b * S::KV_BOX + p * a.piece * S::ROW, map,
                                    full + r.at * 8, b * S::WIDTH, first[p], head, batch, 0);
        }
        item_release<S>(base, n);
    }
}

/* ---- all keys --------------------------------------------------------------------------------------------
 */

/* By one warp: the items of this block, in order, and the end. */
template <class S> __device__ void list_items(const attn_cuda_hopper_call &a, char *shared, uint32_t base)
{
    const attn_cuda_call &c = a.c;
    const int rows = S::GROUPS * a.positions;
    const int64_t count = item_count(a, rows);
    kept_keys kept = {-1, 0, INT32_MAX, 0};
    uint32_t n = 0;
    for (int64_t work = blockIdx.x;; work += gridDim.x) {
        rows_block k;
        if (work < count && !item_at(a, (uint32_t)work, rows, k)) continue;
        const place<S::ITEMS> r = place_of<S::ITEMS>(n++);
        hopper_barrier_wait(base + S::ITEM_EMPTY + r.at * 8, r.parity ^ 1);
        key_range g = {};
        if (work < count) {
            if (masked(c) && kept.sample != k.b) kept = keys_kept(c, k);
            g = item_range(c, k, kept, rows, (int *)(shared + S::LOW) + r.at * S::ROWS,
                           (int *)(shared + S::HIGH) + r.at * S::ROWS);
        }
        __syncwarp();
        if (threadIdx.x % 32 == 0) {
            hopper_item *item = (hopper_item *)(shared + S::ITEM) + r.at;
            if (work < count) *item = item_of<S>(c, k, kept, g);
            item->last = work >= count;
            hopper_barrier_arrive(base + S::ITEM_FULL + r.at * 8);
        }
        __syncwarp();
        if (work >= count) break;
    }
}

/* By one thread: all K, or all V. */
template <class S, bool VALUES>
__device__ void load_keys(const attn_cuda_hopper_call &a, char *shared, uint32_t base)
{
    constexpr int BOXES = VALUES ? S::V_BOXES : S::Q_BOXES, BYTES = BOXES * S::KV_BOX,
                  SIZE = VALUES ? S::VS : S::KS;
    const CUtensorMap *map = VALUES ? &a.v : &a.k;
    const int64_t *stride = VALUES ? a.c.p.v_stride : a.c.p.k_stride;
    const uint32_t full = base + (VALUES ? S::V_FULL : S::K_FULL),
                   empty = base + (VALUES ? S::V_EMPTY : S::K_EMPTY), to = base + (VALUES ? S::V : S::K);
    const bool heads = stride[2], batches = stride[0];
    place<SIZE> r = {0, 0};
    hopper_prefetch(map);
    for (uint32_t n = 0;; n++) {
        const hopper_item &item = item_wait<S>(shared, base, n);
        if (item.last) break;
        const int head = heads ? (int)item.block.kv_head : 0, batch = batches ? (int)item.block.b : 0,
                  first = (int)item.block.k0, low = item.low_tile;
        for (int j = item.high_tile; j >= low; j--, r.next()) {
            hopper_barrier_wait(empty + r.at * 8, r.parity ^ 1);
            hopper_barrier_expect(full + r.at * 8, BYTES);
#pragma unroll
            for (int b = 0; b < BOXES; b++)
                hopper_load(to + r.at * BYTES + b * S::KV_BOX, map, full + r.at * 8, b * S::WIDTH,
                            first + j * S::KEYS, head, batch, 0);
        }
        item_release<S>(base, n);
    }
}

/* ---- either ------------------------------------------------------------------------------------------ */

template <class S>
__device__ __forceinline__ void list(const attn_cuda_hopper_call &a, char *shared, uint32_t base)
{
    if constexpr (S::MAP)
        list_listed<S>(a, shared, base);
    else
        list_items<S>(a, shared, base);
}

template <class S, bool VALUES>
__device__ __forceinline__ void load(const attn_cuda_hopper_call &a, char *shared, uint32_t base)
{
    if constexpr (S::MAP)
        load_listed<S, VALUES>(a, shared, base);
    else
        load_keys<S, VALUES>(a, shared, base);
}

/* ---- rows ------------------------------------------------------------------------------------------------
 */

/* What one group left in its queries' place goes out, when it is there; then the place is free. */
template <class S>
__device__ __forceinline__ void store_group(const attn_cuda_hopper_call &a, const char *shared, uint32_t base,
                                            const hopper_item &item, uint32_t n, int group)
{
    const place<S::QS> r = place_of<S::QS>(n);
    const int at = r.at * S::GROUPS + group;
    hopper_barrier_wait(base + S::O_FULL + at * 8, r.parity);
    if (!*(const volatile int *)(shared + S::O_BOXED + at * 8)) return;
    const rows_block &k = item.block;
#pragma unroll
    for (int b = 0; b < S::V_BOXES; b++)
        hopper_store(&a.out, base + at * S::Q_GROUP + b * S::Q_BOX, b * S::WIDTH, 0,
                     (int)(k.q0 + k.first) + group * a.positions, (int)k.h / a.pack,
                     a.c.cu_q.data ? 0 : (int)k.b);
    hopper_store_commit();
}

template <class S>
__device__ __forceinline__ void load_group(const attn_cuda_hopper_call &a, uint32_t base,
                                           const hopper_item &item, uint32_t n, int group)
{
    const int at = n % S::QS * S::GROUPS + group;
    const bool heads = a.c.p.q_stride[2], batches = a.c.p.q_stride[0] && !a.c.cu_q.data;
    const rows_block &k = item.block;
    hopper_barrier_expect(base + S::Q_FULL + at * 8, S::Q_BOXES * a.pack * a.positions * S::ROW);
#pragma unroll
    for (int b = 0; b < S::Q_BOXES; b++)
        hopper_load(base + at * S::Q_GROUP + b * S::Q_BOX, &a.q, base + S::Q_FULL + at * 8, b * S::WIDTH, 0,
                    (int)(k.q0 + k.first) + group * a.positions, heads ? (int)k.h / a.pack : 0,
                    batches ? (int)k.b : 0);
}

/* By one thread: all Q, and out, which takes the place of the queries it came from. */
template <class S> __device__ void move_rows(const attn_cuda_hopper_call &a, char *shared, uint32_t base)
{
    hopper_prefetch(&a.q);
    hopper_prefetch(&a.out);
    for (uint32_t n = 0;; n++) {
        const typename S::Item &item = item_wait<S>(shared, base, n);
        const bool last = item.last;
        /* The end finds as many items under way as there are buffers. */
        for (uint32_t i = 0; i < (last ? S::QS : 1); i++) {
            const uint32_t old = n + i - S::QS;
            if (n + i < S::QS) continue;
            const hopper_item &before = ((const typename S::Item *)(shared + S::ITEM))[old % S::ITEMS];
            for (int group = 0; group < S::GROUPS; group++) {
                store_group<S>(a, shared, base, before, old, group);
                if (last) continue;
                hopper_store_read();
                load_group<S>(a, base, item, n, group);
            }
            item_release<S>(base, old);
        }
        if (last) break;
        if (n < S::QS)
            for (int group = 0; group < S::GROUPS; group++) load_group<S>(a, base, item, n, group);
    }
    hopper_store_read();
}

} // namespace

#endif
