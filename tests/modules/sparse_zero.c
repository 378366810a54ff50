/* sparse_zero.c: the smallest plugin of the kernel form; its output is 0. */
#include <attn/module.h>

int attn_sparse_forward(const attn_sparse_call *call)
{
    const attn_problem *p = call->problem;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = 0; i < p->q_len; i++)
            for (int64_t h = 0; h < p->heads; h++)
                for (int64_t c = 0; c < p->value_head_dim; c++)
                    attn_store(p->out_dtype, call->out,
                               b * p->out_stride[0] + i * p->out_stride[1] + h * p->out_stride[2] +
                                   c * p->out_stride[3],
                               0);
    return 0;
}
