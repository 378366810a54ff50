/* sparse_both.c: a plugin of both forms, of which one is meant and nobody knows which. */
#include <attn/module.h>

int attn_sparse_forward(const attn_sparse_call *call)
{
    (void)call;
    return 0;
}

int attn_sparse_select(const attn_sparse_call *call, attn_block_map *map)
{
    (void)call, (void)map;
    return 0;
}
