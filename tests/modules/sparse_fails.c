/* sparse_fails.c: writes the first element and gives up with a number of its own. */
#include <attn/module.h>

int attn_sparse_forward(const attn_sparse_call *call)
{
    attn_store(call->problem->out_dtype, call->out, 0, 1);
    return 7;
}
