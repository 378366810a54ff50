/* hopper_finish.cuh: the end of an item: rows become outputs, and go out. */
#ifndef ATTN_CUDA_HOPPER_FINISH_CUH
#define ATTN_CUDA_HOPPER_FINISH_CUH

#include "hopper_rows.cuh"

namespace
{

/* The rows' outputs and sums become final: sinks join, rows without keys are zero. lse: natural. */
template <class S>
__device__ __forceinline__ void normalise(rows_state<S> &r, const attn_cuda_call &c, const int (&head)[2],
                                          float (&lse)[2])
{
#pragma unroll
    for (int e = 0; e < 2; e++) {
        float total = flash_row_sum(r.sum[e]), top = r.base[e], share = 1;
        const bool empty = total == 0;
        if (c.sinks && !empty) {
            const float sink = c.sinks[head[e]] * 1.4426950408889634f, higher = fmaxf(sink, top);
            share = flash_exp2(top - higher);
            total = total * share + flash_exp2(sink - higher);
            top = higher;
        }
        const float inverse = empty ? 0 : __fdividef(share, total);
        lse[e] = empty ? -INFINITY : (top + __log2f(total)) * 0.6931471805599453f;
#pragma unroll
        for (int n = 0; n < S::DV / 8; n++)
#pragma unroll
            for (int o = 0; o < 2; o++) {
                float &x = r.out[n * 4 + e * 2 + o];
                x = empty ? 0 : x * inverse;
            }
    }
}

/* To shared memory, where the group's queries were. */
template <class S> __device__ __forceinline__ void put_boxes(const rows_state<S> &r, uint32_t to)
{
    const int lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
    for (int n = 0; n < (S::DV + 15) / 16; n++) {
        constexpr int PIECES = S::WIDTH / 8;
        uint32_t x[4];
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (n * 8 + i * 2 < S::DV / 2)
                x[i] = flash_pack<typename S::T>(r.out[n * 8 + i * 2], r.out[n * 8 + i * 2 + 1]);
        const int piece = n * 2 % PIECES + lane / 16;
        const uint32_t at =
            to + n * 2 / PIECES * S::Q_BOX + row * S::ROW + hopper_swizzled<S::WIDTH>(row, piece) * 16;
        if (n * 16 + 16 <= S::DV)
            hopper_put(at, x[0], x[1], x[2], x[3]);
        else
            hopper_put(at, x[0], x[1]);
    }
    hopper_publish();
}

/* From registers; skip: bit e leaves row e out. */
template <class S>
__device__ __forceinline__ void store_rows(const attn_cuda_call &c, const rows_state<S> &r,
                                           const rows_block &k, const int (&position)[2], int end,
                                           const int (&head)[2], int skip)
{
    const attn_problem &p = c.p;
    const int64_t batch = c.cu_q.data ? 0 : k.b;
#pragma unroll
    for (int e = 0; e < 2; e++) {
        if (position[e] >= end || (skip >> e & 1)) continue;
        const int64_t base =
            batch * p.out_stride[0] + (k.q0 + position[e]) * p.out_stride[1] + head[e] * p.out_stride[2];
#pragma unroll
        for (int n = 0; n < S::DV / 8; n++) {
            const int channel = n * 8 + threadIdx.x % 4 * 2;
            if (channel >= p.value_head_dim) continue;
            const float x = r.out[n * 4 + e * 2], y = r.out[n * 4 + e * 2 + 1];
            if (p.out_dtype == ATTN_F32)
                *(float2 *)((float *)c.out + base + channel) = make_float2(x, y);
            else
                *(uint32_t *)((typename S::T *)c.out + base + channel) = flash_pack<typename S::T>(x, y);
        }
    }
}

/* One row e of each thread: those whose output is not finite are computed again. Whether the thread's own
 * was. */
template <class S>
__device__ __noinline__ bool repair_rows(const attn_cuda_call &c, const rows_block &k, const map_list &list,
                                         int position, int end, int head, bool bad)
{
    const unsigned all = __ballot_sync(0xffffffffu, bad && position < end);
    for (int quad = 0; quad < 8; quad++)
        if (all >> quad * 4 & 15)
            repair_row<typename S::T, S::MAP>(c, k, list, __shfl_sync(0xffffffffu, position, quad * 4),
                                              __shfl_sync(0xffffffffu, head, quad * 4));
    return all >> threadIdx.x % 32 / 4 * 4 & 15;
}

/* Whether some thread of the group says so. */
__device__ __forceinline__ bool group_any(bool x, int name)
{
    int any;
    asm volatile("{\n.reg .pred p, q;\nsetp.ne.s32 p, %1, 0;\nbarrier.cta.red.or.pred q, %2, 128, p;\n"
                 "selp.s32 %0, 1, 0, q;\n}"
                 : "=r"(any)
                 : "r"((int)x), "r"(name)
                 : "memory");
    return any;
}

/* from: the group's first position in its sample. at, of: position and head of the thread's rows within the
 * group's; at >= a.positions is nobody's row. */
template <class S>
__device__ __forceinline__ void finish(const attn_cuda_hopper_call &a, rows_state<S> &r,
                                       const typename S::Item &item, uint32_t to, int *boxed, int from,
                                       const int (&at)[2], const int (&of)[2], int name)
{
    const attn_cuda_call &c = a.c;
    const rows_block &k = item.block;
    const int first_head = (int)k.h, q_len = item_end(item);
    const int head[2] = {first_head + of[0], first_head + of[1]};
    int position[2];
    float lse[2];
    normalise<S>(r, c, head, lse);
#pragma unroll
    for (int e = 0; e < 2; e++) position[e] = at[e] < a.positions ? from + at[e] : q_len;
    bool bad[2] = {false, false}, repair = false;
    if (item.repair) {
        float any[2] = {0, 0};
#pragma unroll
        for (int n = 0; n < S::DV / 2; n++) any[n / 2 % 2] += r.out[n];
        for (int e = 0; e < 2; e++) bad[e] = !isfinite(any[e]);
        repair = group_any(bad[0] || bad[1], name);
    }
    /* Rows past a tensor's end are dropped by the copy engine; those of another sequence or block are not. */
    const bool alone = S::MAP ? q_len == (int)k.q_len : !c.cu_q.data;
    const bool box = a.store && !repair && (alone || from + a.positions <= q_len);
    *boxed = box;
    if (box) {
        hopper_meet(name, 128); /* no other warp reads the queries any more */
        put_boxes<S>(r, to);
    } else {
        int done = 0;
        for (int e = 0; repair && e < 2; e++)
            if (repair_rows<S>(c, k, item_list(item), position[e], q_len, head[e], bad[e])) done |= 1 << e;
        store_rows<S>(c, r, k, position, q_len, head, done);
#pragma unroll
        for (int e = 0; e < 2; e++)
            if (done >> e & 1) position[e] = q_len;
    }
    if (!c.lse || threadIdx.x % 4) return;
#pragma unroll
    for (int e = 0; e < 2; e++)
        if (position[e] < q_len)
            c.lse[(c.cu_q.data ? 0 : k.b * c.p.lse_stride[0]) + head[e] * c.p.lse_stride[1] +
                  (k.q0 + position[e]) * c.p.lse_stride[2]] = lse[e];
}

} // namespace

#endif
