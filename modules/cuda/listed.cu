/* listed.cu: checks the lists of a block map and puts the items of each head in order, longest lists first.
 */
#include "listed.h"

namespace
{

enum { BINS = 256 }; /* lengths are told apart this finely; as many threads, a bin each */

/* Whether entry after entry is in range and above the one before. By one warp. */
__device__ bool list_holds(const attn_cuda_map &m, const int32_t *blocks, int count)
{
    bool wrong = false;
    if (count < 0 || count > m.capacity || count > m.kv_blocks) return false;
    for (int n = threadIdx.x % 32; n < count; n += 32) {
        const int before = n ? blocks[n - 1] : -1;
        wrong |= blocks[n] <= before || blocks[n] >= m.kv_blocks;
    }
    return !__any_sync(0xffffffffu, wrong);
}

/* -1: the list does not hold. */
__device__ void read_lengths(const attn_cuda_map &m, int64_t b, int64_t h, int32_t *lengths)
{
    for (int64_t i = threadIdx.x / 32; i < m.q_blocks; i += BINS / 32) {
        const int count = m.counts[b * m.count_stride[0] + h * m.count_stride[1] + i * m.count_stride[2]];
        const int32_t *blocks =
            m.blocks + (b * m.block_stride[0] + h * m.block_stride[1] + i * m.block_stride[2]);
        const bool holds = list_holds(m, blocks, count);
        if (threadIdx.x % 32 == 0) lengths[i] = holds ? count : -1;
    }
}

__device__ __forceinline__ int bin_of(const attn_cuda_map &m, int length)
{
    return length < 1 ? BINS - 1 : BINS - 1 - (int)((int64_t)length * (BINS - 1) / m.kv_blocks);
}

/* Each bin's count becomes the number of items in the bins before it. */
__device__ void add_up(int *bins)
{
    const int own = bins[threadIdx.x];
    for (int step = 1; step < BINS; step *= 2) {
        const int below = (int)threadIdx.x >= step ? bins[threadIdx.x - step] : 0;
        __syncthreads();
        bins[threadIdx.x] += below;
        __syncthreads();
    }
    bins[threadIdx.x] -= own;
    __syncthreads();
}

/* A block of threads for each sample and head. Items of equal bins come in any order: that decides who
 * computes a row, and nothing of the result. */
__global__ void __launch_bounds__(BINS)
    prepare(const __grid_constant__ attn_cuda_map m, int64_t heads, int64_t parts, int32_t *all_lengths)
{
    __shared__ int bins[BINS];
    const int64_t b = blockIdx.x / heads, h = blockIdx.x % heads;
    int32_t *lengths = all_lengths + blockIdx.x * m.q_blocks;
    int32_t *order = m.order + blockIdx.x * m.q_blocks * parts;
    if (blockIdx.x == 0 && threadIdx.x == 0) *m.next = 0;
    bins[threadIdx.x] = 0;
    read_lengths(m, b, h, lengths);
    __syncthreads();
    for (int64_t i = threadIdx.x; i < m.q_blocks; i += BINS)
        atomicAdd(&bins[bin_of(m, lengths[i])], (int)parts);
    __syncthreads();
    add_up(bins);
    for (int64_t i = threadIdx.x; i < m.q_blocks; i += BINS) {
        const int to = atomicAdd(&bins[bin_of(m, lengths[i])], (int)parts);
        for (int part = 0; part < parts; part++) {
            const int number = (int)(i * parts + part);
            order[to + part] = lengths[i] < 0 ? ~number : number;
        }
    }
}

} // namespace

cudaError_t attn_cuda_map_launch(const attn_cuda_call *c, int64_t parts, int32_t *lengths,
                                 cudaStream_t stream)
{
    int64_t heads = c->p.heads;
    void *parameters[] = {(void *)&c->map, &heads, &parts, &lengths};
    return cudaLaunchKernel((const void *)prepare, dim3((unsigned)(c->p.batch * heads)), dim3(BINS),
                            parameters, 0, stream);
}
