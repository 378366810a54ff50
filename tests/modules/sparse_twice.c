/* sparse_twice.c: a selector that names the first block twice. */
#include <attn/module.h>

int attn_sparse_select(const attn_sparse_call *call, attn_block_map *map)
{
    (void)call;
    int32_t *count, *list = attn_sparse_list(map, 0, 0, 0, &count);
    list[0] = list[1] = 0;
    *count = 2;
    return 0;
}
