/* hopper_f16.cu: the warpgroup kernel for f16; a file of its own so that both types compile at once. */
#include "hopper_kernel.cuh"

const void *attn_cuda_hopper_f16(int32_t index)
{
    return hopper_instance<__half>(index);
}
