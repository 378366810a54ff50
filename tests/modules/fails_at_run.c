/* fails_at_run.c: an implementation that takes a problem and refuses it when it runs. */
#include "fixture.h"

static attn_status run(const attn_host *host, const void *state, const attn_call *call, attn_error *error)
{
    (void)host, (void)state, (void)call;
    return attn_fail(error, ATTN_KIND_CAPABILITY_UNSUPPORTED, "the kernel rejects the call");
}

static const attn_impl impl = {.size = sizeof(attn_impl),
                               .rank = 500,
                               .name = "fails_at_run",
                               .summary = "a test's implementation",
                               .platform = "cpu",
                               .backends = fixture_backends,
                               .features = ~(uint64_t)0,
                               .dtypes = 1u << ATTN_F32,
                               .head_dim_max = 1024,
                               .plan = fixture_plan,
                               .run = run};
static const attn_impl *const impls[] = {&impl, NULL};
static const attn_module module = {FIXTURE_MODULE("fails_at_run", impls)};

FIXTURE_ENTRY(&module)
