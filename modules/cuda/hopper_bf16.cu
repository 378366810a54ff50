/* hopper_bf16.cu: the warpgroup kernel for bf16, and the table of instances that both types share. */
#include "hopper_kernel.cuh"

const void *attn_cuda_hopper_bf16(int32_t index)
{
    return hopper_instance<__nv_bfloat16>(index);
}

namespace
{

const attn_cuda_hopper_tile tiles[] = {
#define X(size, value_size, groups, keys, width, queries, least, map, blocks)                                \
    hopper_tile_of<shape<__nv_bfloat16, size, value_size, groups, keys, width, queries, map, blocks>>(       \
        size, value_size, least),
#include "hopper_tiles.def"
#undef X
};

} // namespace

const attn_cuda_hopper_tile *attn_cuda_hopper_tile_at(int32_t index)
{
    return index < (int32_t)(sizeof tiles / sizeof *tiles) ? &tiles[index] : nullptr;
}
