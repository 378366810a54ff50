/* reference.c: the implementation cuda_reference, every feature, for checking and for what has no faster one.
 */
#include "impls.h"
#include "listed.h"

#include <stdio.h>

static const char who[] = "cuda_reference";

static void accept(const attn_host *host, const attn_problem *p, attn_reasons *reasons)
{
    (void)host;
    attn_cuda_judge_device(p->device_id, who, reasons);
}

static attn_status plan(const attn_host *host, const attn_problem *p, void **state, attn_workspace *workspace,
                        attn_error *error)
{
    (void)host;
    (void)error;
    *state = NULL;
    workspace->shared_bytes = attn_cuda_map_bytes(p);
    workspace->thread_bytes = 0;
    return ATTN_OK;
}

static attn_status run(const attn_host *host, const void *state, const attn_call *call, attn_error *error)
{
    attn_cuda_call c;
    int before;
    (void)host;
    (void)state;
    attn_status status = attn_cuda_call_fill(call, who, &c, error);
    if (!status) status = attn_cuda_enter(call->problem->device_id, who, &before, error);
    if (status) return status;
    status = attn_cuda_map_prepare(&c, call->shared, attn_cuda_reference_rows(c.p.dtype), who, call->stream,
                                   error);
    cudaError_t code = status ? cudaSuccess : attn_cuda_reference_launch(&c, call->stream);
    if (code) status = attn_cuda_fail(code, who, "launching", error);
    attn_cuda_leave(before);
    return status;
}

static void describe(const attn_host *host, const void *state, char *text, size_t bytes)
{
    (void)host;
    (void)state;
    snprintf(text, bytes,
             "ordinary arithmetic in float (double for fp64), tiles of 64 keys; tensor cores stay idle");
}

static const char *const backends[] = {"TORCH_SDPA", NULL};

const attn_impl attn_cuda_reference = {
    .size = sizeof(attn_impl),
    .name = "cuda_reference",
    .summary = "fp32 arithmetic without tensor cores, every feature but the scores; exact and slow",
    .platform = "cuda",
    .backends = backends,
#define ATTN_X(name, bit, text, sentence) | ATTN_FEATURE(name)
    .features = (0 ATTN_FEATURE_LIST(ATTN_X)) & ~(ATTN_FEATURE(SCORES) | ATTN_FEATURES_SERVING),
#undef ATTN_X
    .dtypes = 1u << ATTN_F32 | 1u << ATTN_F16 | 1u << ATTN_BF16 | 1u << ATTN_F64,
    .head_dim_max = 1024,
    .accept = accept,
    .plan = plan,
    .run = run,
    .describe = describe,
};
