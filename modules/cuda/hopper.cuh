/* hopper.cuh: the instructions of sm_90a that the warpgroup kernel is built on: barriers in shared memory,
 * bulk tensor copies, matrix descriptors, register reallocation. Addresses are of shared memory. */
#ifndef ATTN_CUDA_HOPPER_CUH
#define ATTN_CUDA_HOPPER_CUH

#include "flash.cuh"
#include "hopper_mma.cuh"

#include <cuda.h>
#ifdef HOPPER_BOUNDED
#include <stdio.h>
#endif

/* ---- barriers ------------------------------------------------------------------------------------ */

__device__ __forceinline__ void hopper_barrier_make(uint32_t at, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void hopper_barrier_arrive(uint32_t at)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}

/* Arrives, and lets the phase end only when copies have brought `bytes` as well. */
__device__ __forceinline__ void hopper_barrier_expect(uint32_t at, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes) : "memory");
}

__device__ __forceinline__ bool hopper_barrier_done(uint32_t at, uint32_t parity)
{
    uint32_t done;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                 "selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(done)
                 : "r"(at), "r"(parity)
                 : "memory");
    return done;
}

/* HOPPER_BOUNDED: a wait of seconds ends the kernel with an error, for experiments. */
__device__ __forceinline__ void hopper_barrier_wait(uint32_t at, uint32_t parity)
{
#ifdef HOPPER_BOUNDED
    long long start = clock64();
    while (!hopper_barrier_done(at, parity))
        if (clock64() - start > 2000000000ll) {
            printf("block %d thread %d waits at %u parity %u\n", blockIdx.x, threadIdx.x, at, parity);
            __trap();
        }
#else
    while (!hopper_barrier_done(at, parity)) {
    }
#endif
}

/* Named barriers: `threads` of the block meet; arrive does not wait. */
__device__ __forceinline__ void hopper_meet(int name, int threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

__device__ __forceinline__ void hopper_notify(int name, int threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(name), "r"(threads) : "memory");
}

/* What threads wrote becomes visible to the copy engine and the tensor cores. */
__device__ __forceinline__ void hopper_publish()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* ---- copies -------------------------------------------------------------------------------------- */

__device__ __forceinline__ void hopper_prefetch(const CUtensorMap *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ void hopper_load(uint32_t to, const CUtensorMap *map, uint32_t barrier, int c0,
                                            int c1, int c2, int c3, int c4)
{
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
                 : "memory");
}

__device__ __forceinline__ void hopper_store(const CUtensorMap *map, uint32_t from, int c0, int c1, int c2,
                                             int c3, int c4)
{
    asm volatile(
        "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(
            map),
        "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
        : "memory");
}

__device__ __forceinline__ void hopper_store_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

/* The stores of this thread have read their sources. */
__device__ __forceinline__ void hopper_store_read()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* ---- products ------------------------------------------------------------------------------------ */

/* A matrix in shared memory as columns of `width` elements of 16 bits, swizzled over its width. stride: bytes
 * from one group of 8 rows to the next; leading: bytes from one column of `width` to the next, where rows are
 * depth. */
template <int WIDTH>
__device__ __forceinline__ uint64_t hopper_matrix(uint32_t at, uint32_t leading, uint32_t stride)
{
    constexpr uint64_t swizzle = WIDTH == 64 ? 1 : WIDTH == 32 ? 2 : 3;
    return (uint64_t)(at >> 4) | (uint64_t)(leading >> 4) << 16 | (uint64_t)(stride >> 4) << 32 |
           swizzle << 62;
}

/* The same matrix `bytes` further on. Shared memory ends before the 14 bits of the address do. */
__device__ __forceinline__ uint64_t hopper_moved(uint64_t matrix, uint32_t bytes)
{
    return matrix + (bytes >> 4);
}

/* Where 16 bytes number `piece` of a row lie within it. */
template <int WIDTH> __device__ __forceinline__ int hopper_swizzled(int row, int piece)
{
    return piece ^ (WIDTH == 64 ? row & 7 : WIDTH == 32 ? row >> 1 & 3 : row >> 2 & 1);
}

/* Registers written before are ready for the products that follow. */
__device__ __forceinline__ void hopper_products_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void hopper_products_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* At most N committed groups still run. */
template <int N> __device__ __forceinline__ void hopper_products_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* Keeps the compiler from moving uses of registers over what stands around. */
template <int N> __device__ __forceinline__ void hopper_hold(float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("" : "+f"(x[i])::"memory");
}

template <int N> __device__ __forceinline__ void hopper_registers_take()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> __device__ __forceinline__ void hopper_registers_give()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

__device__ __forceinline__ void hopper_put(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(a), "r"(b),
                 "r"(c), "r"(d)
                 : "memory");
}

__device__ __forceinline__ void hopper_put(uint32_t at, uint32_t a, uint32_t b)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(at), "r"(a), "r"(b)
                 : "memory");
}

#endif
