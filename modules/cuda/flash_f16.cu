/* flash_f16.cu: the flash kernel for f16; a file of its own so that both types compile at once. */
#include "flash_kernel.cuh"

const void *attn_cuda_flash_f16(int32_t index)
{
    return flash_instance<__half>(index);
}
