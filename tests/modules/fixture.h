/* fixture.h: the smallest implementation there is, for modules that tests load. */
#ifndef TESTS_FIXTURE_H
#define TESTS_FIXTURE_H

#include <attn/module.h>
#include <string.h>

/* Attention over one key: every query gets that key's value. With more keys it is wrong, which no test asks
 * for. */
static inline attn_status fixture_run(const attn_host *host, const void *state, const attn_call *call,
                                      attn_error *error)
{
    const attn_problem *p = call->problem;
    size_t bytes = attn_dtype_bytes(p->dtype);
    (void)host, (void)state, (void)error;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = 0; i < p->q_len; i++)
            for (int64_t h = 0; h < p->heads; h++)
                for (int64_t x = 0; x < p->value_head_dim; x++) {
                    int64_t to = b * p->out_stride[0] + i * p->out_stride[1] + h * p->out_stride[2] +
                                 x * p->out_stride[3];
                    int64_t from = b * p->v_stride[0] + h / (p->heads / p->kv_heads) * p->v_stride[2] +
                                   x * p->v_stride[3];
                    memcpy((char *)call->out + to * (int64_t)bytes,
                           (const char *)call->v + from * (int64_t)bytes, bytes);
                }
    return ATTN_OK;
}

static inline attn_status fixture_plan(const attn_host *host, const attn_problem *problem, void **state,
                                       attn_workspace *workspace, attn_error *error)
{
    (void)host, (void)problem, (void)error;
    *state = NULL;
    workspace->shared_bytes = workspace->thread_bytes = 0;
    return ATTN_OK;
}

static const char *const fixture_backends[] = {"FLASH_ATTN", NULL};

/* The fields every fixture shares; further designated fields may follow. */
#define FIXTURE_IMPL(impl_name)                                                                              \
    .size = sizeof(attn_impl), .rank = 500, .name = impl_name, .summary = "a test's implementation",         \
    .platform = "cpu", .backends = fixture_backends,                                                         \
    .dtypes = 1u << ATTN_F32 | 1u << ATTN_F16 | 1u << ATTN_BF16, .head_dim_max = 1024, .plan = fixture_plan, \
    .run = fixture_run

#define FIXTURE_MODULE(module_name, list)                                                                    \
    .size = sizeof(attn_module), .abi_major = ATTN_MODULE_MAJOR, .abi_minor = ATTN_MODULE_MINOR,             \
    .name = module_name, .version = "1.0", .license = "Apache-2.0", .impls = list

/* Defines the entry point over one descriptor. */
#define FIXTURE_ENTRY(descriptor)                                                                            \
    ATTN_MODULE_EXPORT const attn_module *attn_module_v1(void);                                              \
    const attn_module *attn_module_v1(void)                                                                  \
    {                                                                                                        \
        return descriptor;                                                                                   \
    }

#endif
