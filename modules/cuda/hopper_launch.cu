/* hopper_launch.cu: starts the warpgroup kernel: one block a multiprocessor, or fewer where there are fewer
 * items. */
#include "hopper_item.cuh"

cudaError_t attn_cuda_hopper_launch(const attn_cuda_hopper_call *a, const attn_cuda_hopper_tile *tile,
                                    const void *kernel, cudaStream_t stream)
{
    int device, processors;
    cudaError_t code = cudaGetDevice(&device);
    if (!code) code = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    const int64_t work = item_count(*a, tile->groups * a->positions);
    if (code || !work) return code;
    const int64_t most = (int64_t)processors * tile->blocks;
    void *parameters[] = {(void *)a};
    return cudaLaunchKernel(kernel, dim3((unsigned)(work < most ? work : most)),
                            dim3((unsigned)tile->threads), parameters, (size_t)tile->bytes, stream);
}
