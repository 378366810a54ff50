/* map.cuh: block maps, for every kernel: which rows an item has, and which tiles of keys it walks through.
 *
 * An item is the rows of one query block that a block of threads takes at once, or a part of them. A list
 * that does not hold (out of range, not ascending) is never followed: its rows become NaN, and so does their
 * lse. */
#ifndef ATTN_CUDA_MAP_CUH
#define ATTN_CUDA_MAP_CUH

#include "listed.h"
#include "rows.cuh"

struct map_list {
    const int32_t *blocks;
    int count;
};

__device__ __forceinline__ map_list map_list_of(const attn_cuda_map &m, int64_t b, int64_t h, int64_t i)
{
    return {m.blocks + (b * m.block_stride[0] + h * m.block_stride[1] + i * m.block_stride[2]),
            m.counts[b * m.count_stride[0] + h * m.count_stride[1] + i * m.count_stride[2]]};
}

__device__ __forceinline__ int64_t map_start(const attn_cuda_map &m, int64_t size, int64_t block)
{
    return m.starts ? m.starts[block] : block * size;
}

__device__ __forceinline__ int64_t map_end(const attn_cuda_map &m, int64_t size, int64_t block,
                                           int64_t length)
{
    const int64_t end = m.starts ? m.starts[block + 1] : (block + 1) * size;
    return end < length ? end : length;
}

/* What an item has beside its block of rows. */
struct map_item {
    map_list list;
    int64_t end; /* of its query block: rows from here on are another's */
    bool bad;    /* the list does not hold; it is empty here */
};

/* Item number `at` of sample b and head h, in the order of work; false when it has no rows. */
__device__ inline bool map_item_at(const attn_cuda_call &c, int64_t b, int64_t h, int64_t at, int rows,
                                   rows_block &k, map_item &item)
{
    const attn_cuda_map &m = c.map;
    const int64_t parts = attn_cuda_map_parts(&m, c.p.q_len, rows);
    int64_t number = m.order[(b * c.p.heads + h) * m.q_blocks * parts + at];
    item.bad = number < 0;
    if (item.bad) number = ~number;
    const int64_t block = number / parts;
    item.list = map_list_of(m, b, h, block);
    if (item.bad) item.list.count = 0;
    item.end = map_end(m, m.block_q, block, c.p.q_len);
    k.b = b, k.h = h;
    k.kv_head = h / (c.p.heads / c.p.kv_heads);
    k.q0 = k.k0 = 0;
    k.q_len = c.p.q_len;
    k.kv_len = c.kv_lengths.data ? rows_index(c.kv_lengths, b, c.p.kv_len) : c.p.kv_len;
    k.first = map_start(m, m.block_q, block) + number % parts * rows;
    return k.first < item.end;
}

/* The item of one slot of a head: samples one after the other. */
__device__ inline bool map_item_of(const attn_cuda_call &c, int64_t slot, int64_t head, int rows,
                                   rows_block &k, map_item &item)
{
    const int64_t each = c.map.q_blocks * attn_cuda_map_parts(&c.map, c.p.q_len, rows);
    return map_item_at(c, slot / each, head, slot % each, rows, k, item);
}

/* Whether a key is in a listed block. */
__device__ inline bool map_lists(const attn_cuda_map &m, const map_list &list, int64_t key)
{
    int64_t block = key / m.block_k;
    if (m.starts) {
        int64_t low = 0, high = m.kv_blocks;
        while (high - low > 1) {
            const int64_t middle = low + (high - low) / 2;
            if (m.starts[middle] <= key)
                low = middle;
            else
                high = middle;
        }
        block = low;
    }
    int low = 0, high = list.count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (list.blocks[middle] < block)
            low = middle + 1;
        else
            high = middle;
    }
    return low < list.count && list.blocks[low] == block;
}

/* The tiles of N keys of a walk: those that meet [start, end), one after the other, or with a map those of
 * the listed blocks. Keys of a tile from `edge` on are none of its block's. */
template <bool MAP, int N> struct key_walk;

template <int N> struct key_walk<false, N> {
    int first, end;
    __device__ __forceinline__ key_walk(const attn_cuda_call &, const map_item &, int start, int end_)
        : first(start / N * N), end(end_)
    {
    }
    __device__ __forceinline__ bool more() const
    {
        return first < end;
    }
    __device__ __forceinline__ int edge() const
    {
        return INT32_MAX;
    }
    __device__ __forceinline__ void advance(const attn_cuda_call &)
    {
        first += N;
    }
};

template <int N> struct key_walk<true, N> {
    const int32_t *at, *last; /* entries of the list that are left */
    int first, end, start, block_end;
    __device__ __forceinline__ key_walk(const attn_cuda_call &c, const map_item &item, int start_, int end_)
        : at(item.list.blocks), last(item.list.blocks + item.list.count), first(0), end(end_), start(start_),
          block_end(0)
    {
        enter(c);
    }
    __device__ __forceinline__ void enter(const attn_cuda_call &c)
    {
        for (; at < last; at++) {
            first = (int)map_start(c.map, c.map.block_k, *at);
            block_end = (int)map_end(c.map, c.map.block_k, *at, c.p.kv_len);
            if (block_end > start) return;
        }
        first = INT32_MAX;
    }
    __device__ __forceinline__ bool more() const
    {
        return first < end;
    }
    __device__ __forceinline__ int edge() const
    {
        return block_end;
    }
    __device__ __forceinline__ void advance(const attn_cuda_call &c)
    {
        first += N;
        if (first < block_end) return;
        at++;
        enter(c);
    }
};

#endif
