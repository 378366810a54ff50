/* flash_bf16.cu: the flash kernel for bf16, and the table of tiles that both types share. */
#include "flash_kernel.cuh"

const void *attn_cuda_flash_bf16(int32_t index)
{
    return flash_instance<__nv_bfloat16>(index);
}

namespace
{

const attn_cuda_tile tiles[] = {
#define X(size, exact, general, map, fragments, warps, keys)                                                 \
    {size,                                                                                                   \
     exact,                                                                                                  \
     general,                                                                                                \
     map,                                                                                                    \
     warps * fragments * 16,                                                                                 \
     keys,                                                                                                   \
     warps * 32,                                                                                             \
     layout<size, fragments, warps, keys>::BYTES},
#include "tiles.def"
#undef X
};
enum { TILES = sizeof tiles / sizeof *tiles };

const void *kernel_of(int32_t index, attn_dtype dtype)
{
    return dtype == ATTN_F16 ? attn_cuda_flash_f16(index) : attn_cuda_flash_bf16(index);
}

} // namespace

const attn_cuda_tile *attn_cuda_flash_tile(int32_t index)
{
    return index < TILES ? &tiles[index] : nullptr;
}

cudaError_t attn_cuda_flash_prepare(int32_t index, attn_dtype dtype)
{
    return cudaFuncSetAttribute(kernel_of(index, dtype), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                tiles[index].bytes);
}

cudaError_t attn_cuda_flash_launch(int32_t index, const attn_cuda_call *c, cudaStream_t stream)
{
    const int rows = tiles[index].rows;
    int64_t work =
        tiles[index].map ? attn_cuda_map_items(&c->map, &c->p, rows) : rows_slots(*c, rows) * c->p.heads;
    void *parameters[] = {(void *)c};
    if (!work) return cudaSuccess;
    return cudaLaunchKernel(kernel_of(index, c->p.dtype), dim3(work > INT32_MAX ? INT32_MAX : (unsigned)work),
                            dim3((unsigned)tiles[index].threads), parameters, (size_t)tiles[index].bytes,
                            stream);
}
