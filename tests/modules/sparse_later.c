/* sparse_later.c: a plugin for another major version of the interface. It must not be called. */
#include <attn/module.h>

#include <stdlib.h>

const attn_sparse attn_sparse_about = {.size = sizeof(attn_sparse), .abi_major = ATTN_MODULE_MAJOR + 1};

int attn_sparse_forward(const attn_sparse_call *call)
{
    (void)call;
    abort();
}
