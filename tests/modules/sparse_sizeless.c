/* sparse_sizeless.c: a plugin that forgot the size of what it says of itself. */
#include <attn/module.h>

const attn_sparse attn_sparse_about = {.abi_major = ATTN_MODULE_MAJOR};

int attn_sparse_forward(const attn_sparse_call *call)
{
    (void)call;
    return 0;
}
