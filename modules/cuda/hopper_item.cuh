/* hopper_item.cuh: what one block of the warpgroup kernel works on at a time, and the slow way for rows whose
 * hidden values are not finite. */
#ifndef ATTN_CUDA_HOPPER_ITEM_CUH
#define ATTN_CUDA_HOPPER_ITEM_CUH

#include "hopper.cuh"
#include "hopper.h"
#include "map.cuh"

#include <type_traits>

namespace
{

/* Keys that some row sees, and keys that all rows see. */
struct key_range {
    int start, end, all_from, all_to;
};

/* An item as the consumers read it. */
struct hopper_item {
    key_range keys;
    int low_tile, high_tile; /* tiles of keys; none when high < low */
    int zero_from;           /* values from here on are present and hidden: zero them. INT_MAX: none */
    int holes;               /* masks hide some keys between others */
    int repair; /* some row does not see some key of its tiles: values that are not finite need care */
    int last;   /* no item: the end */
    rows_block block;
};

/* With a map: tiles are numbers in the walk, high_tile the first of it. */
struct hopper_listed_item : hopper_item {
    map_item map;
    int missing; /* pieces that the first tile of the walk lacks */
};

/* Rows from here on are none of the item's. */
__device__ __forceinline__ int item_end(const hopper_item &item)
{
    return (int)item.block.q_len;
}
__device__ __forceinline__ int item_end(const hopper_listed_item &item)
{
    return (int)item.map.end;
}

/* The item's list; without a map there is none, and none is asked for. */
__device__ __forceinline__ map_list item_list(const hopper_item &)
{
    return {};
}
__device__ __forceinline__ map_list item_list(const hopper_listed_item &item)
{
    return item.map.list;
}

/* What the sum of weights starts from. */
__device__ __forceinline__ float item_sum(const hopper_item &)
{
    return 0;
}
__device__ __forceinline__ float item_sum(const hopper_listed_item &item)
{
    return item.map.bad ? NAN : 0;
}

/* Item number `work`; false when there is nothing in it. rows: positions of a block. Later positions come
 * first. */
__device__ inline bool item_at(const attn_cuda_hopper_call &a, uint32_t work, int rows, rows_block &k)
{
    const attn_problem &p = a.c.p;
    const uint32_t heads = (uint32_t)p.heads / a.pack;
    if (a.c.cu_q.data) {
        const uint32_t slots = (uint32_t)rows_slots(a.c, rows);
        return rows_block_at(a.c, work % slots, (int64_t)(work / slots) * a.pack, rows, k);
    }
    const uint32_t blocks = ((uint32_t)p.q_len + rows - 1) / rows, each = heads * (uint32_t)p.batch;
    /* Blocks of one head meet in the L2 cache; heads of one sample are neighbours in memory. */
    const uint32_t block = a.order ? work / each : work % blocks,
                   rest = a.order ? work % each : work / blocks, head = rest % heads;
    k.b = rest / heads;
    k.h = head * a.pack;
    k.kv_head = a.pack > 1 ? head : head / ((uint32_t)p.heads / (uint32_t)p.kv_heads);
    k.q0 = k.k0 = 0;
    k.q_len = p.q_len;
    k.kv_len = a.c.kv_lengths.data ? rows_index(a.c.kv_lengths, k.b, p.kv_len) : p.kv_len;
    k.first = (int64_t)(blocks - 1 - block) * rows;
    return true;
}

__host__ __device__ inline int64_t item_count(const attn_cuda_hopper_call &a, int rows)
{
    if (a.c.map.counts) return attn_cuda_map_items(&a.c.map, &a.c.p, rows);
    return rows_slots(a.c, rows) * (a.c.p.heads / a.pack);
}

/* What masks without rows leave of a sample's keys: none outside [from, to), and not all inside when there
 * are holes. */
struct kept_keys {
    int64_t sample;
    int from, to, holes;
};

__device__ __forceinline__ bool masked(const attn_cuda_call &c)
{
    return c.mask || c.key_mask;
}

/* By one warp. */
__device__ inline kept_keys keys_kept(const attn_cuda_call &c, const rows_block &k)
{
    const int64_t mask_row = rows_mask_offset(c, k, 0);
    int from = INT32_MAX, to = 0, count = 0;
#pragma unroll 4
    for (int key = threadIdx.x % 32; key < (int)k.kv_len; key += 32)
        if (rows_keeps(c, k, mask_row, key)) {
            from = min(from, key), to = key + 1;
            count++;
        }
    from = __reduce_min_sync(0xffffffffu, from), to = __reduce_max_sync(0xffffffffu, to);
    count = __reduce_add_sync(0xffffffffu, count);
    return {k.b, min(from, to), to, count != to - min(from, to)};
}

/* By one warp. low and high: where each position's interval goes. */
__device__ inline key_range item_range(const attn_cuda_call &c, const rows_block &k, const kept_keys &kept,
                                       int rows, int *low, int *high)
{
    key_range g = {INT32_MAX, 0, 0, INT32_MAX};
    for (int at = threadIdx.x % 32; at < rows; at += 32) {
        int64_t from = 0, to = 0;
        const bool inside = k.first + at < k.q_len;
        if (inside) rows_keys(c, k, k.first + at, from, to);
        int l = max((int)from, kept.from), h = min((int)to, kept.to);
        if (h <= l) l = h = 0;
        low[at] = l, high[at] = h;
        if (!inside) continue;
        if (h > l && l < g.start) g.start = l;
        g.end = max(g.end, h);
        g.all_from = max(g.all_from, l), g.all_to = min(g.all_to, h);
    }
    g.start = __reduce_min_sync(0xffffffffu, g.start), g.end = __reduce_max_sync(0xffffffffu, g.end);
    g.all_from = kept.holes ? INT32_MAX : __reduce_max_sync(0xffffffffu, g.all_from);
    g.all_to = __reduce_min_sync(0xffffffffu, g.all_to);
    return g;
}

/* ---- one row by one warp ------------------------------------------------------------------------- */

template <typename T> struct lone_row {
    const T *q, *keys, *values;
    map_list list; /* with a map */
    int64_t mask_row, low, high;
    rows_block k; /* of the row's own head */
};

/* -infinity: the key is hidden. */
template <typename T, bool MAP>
__device__ float lone_score(const attn_cuda_call &c, const lone_row<T> &r, int64_t key)
{
    const attn_problem &p = c.p;
    if (MAP && key < r.high && !map_lists(c.map, r.list, key)) return -INFINITY;
    if (key >= r.high || !rows_keeps(c, r.k, r.mask_row, key)) return -INFINITY;
    const T *k = r.keys + key * p.k_stride[1];
    float x = 0;
    for (int64_t d = 0; d < p.head_dim; d++) x += rows_to(0.0f, r.q[d]) * rows_to(0.0f, k[d]);
    x *= (float)p.scale;
    if (p.softcap > 0) x = (float)p.softcap * tanhf(x / (float)p.softcap);
    if (p.mask_form == ATTN_FORM_ADDITIVE) x += rows_added<float>(c, r.mask_row + key * p.mask_stride[3]);
    return x;
}

template <typename T>
__device__ lone_row<T> lone_row_at(const attn_cuda_call &c, const rows_block &k, int64_t i, int64_t head)
{
    const attn_problem &p = c.p;
    const int64_t batch = c.cu_q.data ? 0 : k.b;
    lone_row<T> r;
    r.k = k;
    r.k.h = head;
    r.q = (const T *)c.q + batch * p.q_stride[0] + (k.q0 + i) * p.q_stride[1] + head * p.q_stride[2];
    r.keys = (const T *)c.k + batch * p.k_stride[0] + k.k0 * p.k_stride[1] + k.kv_head * p.k_stride[2];
    r.values = (const T *)c.v + batch * p.v_stride[0] + k.k0 * p.v_stride[1] + k.kv_head * p.v_stride[2];
    r.mask_row = rows_mask_offset(c, r.k, i);
    rows_keys(c, k, i, r.low, r.high);
    return r;
}

/* Query row i of one head again, from global memory and with no product of a hidden value. Slow and rare: for
 * values that are not finite, which some rows see and others do not. */
template <typename T, bool MAP>
__device__ __noinline__ void repair_row(const attn_cuda_call &c, const rows_block &k, const map_list &list,
                                        int64_t i, int64_t head)
{
    const attn_problem &p = c.p;
    const int lane = threadIdx.x % 32;
    const int64_t batch = c.cu_q.data ? 0 : k.b;
    lone_row<T> r = lone_row_at<T>(c, k, i, head);
    if (MAP) r.list = list;
    float most = -INFINITY, sum = 0, out[8] = {};
    for (int64_t first = r.low; first < r.high; first += 32)
        most = fmaxf(most, lone_score<T, MAP>(c, r, first + lane));
    for (int lanes = 16; lanes; lanes /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, lanes));
    for (int64_t first = r.low; first < r.high; first += 32) {
        const float x = lone_score<T, MAP>(c, r, first + lane), w = x == -INFINITY ? 0 : expf(x - most);
        const unsigned kept = __ballot_sync(0xffffffffu, x != -INFINITY);
        sum += w;
        for (int j = 0; j < 32; j++) {
            const float each = __shfl_sync(0xffffffffu, w, j);
            if (!(kept >> j & 1)) continue;
            for (int n = 0; n < 8; n++)
                if (lane + n * 32 < p.value_head_dim)
                    out[n] += each * rows_to(0.0f, r.values[(first + j) * p.v_stride[1] + lane + n * 32]);
        }
    }
    for (int lanes = 16; lanes; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    const bool empty = sum == 0;
    float share = 1;
    if (c.sinks && !empty) {
        const float sink = c.sinks[head], higher = fmaxf(sink, most);
        share = expf(most - higher);
        sum = sum * share + expf(sink - higher);
        most = higher;
    }
    const int64_t base = batch * p.out_stride[0] + (k.q0 + i) * p.out_stride[1] + head * p.out_stride[2];
    for (int n = 0; n < 8; n++)
        if (lane + n * 32 < p.value_head_dim)
            rows_store(p.out_dtype, c.out, base + lane + n * 32, empty ? 0.0f : out[n] * (share / sum));
    if (c.lse && !lane)
        c.lse[batch * p.lse_stride[0] + head * p.lse_stride[1] + (k.q0 + i) * p.lse_stride[2]] =
            empty ? -INFINITY : most + logf(sum);
}

} // namespace

#endif
