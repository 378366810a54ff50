/* half_written.c: an implementation that fails after it has written something. */
#include "fixture.h"

static attn_status run(const attn_host *host, const void *state, const attn_call *call, attn_error *error)
{
    (void)host, (void)state;
    memset(call->out, 0, sizeof(float));
    return attn_fail(error, ATTN_KIND_INTERNAL, "only half of the rows were written");
}

static const attn_impl impl = {.size = sizeof(attn_impl),
                               .rank = 500,
                               .name = "half_written",
                               .summary = "a test's implementation",
                               .platform = "cpu",
                               .backends = fixture_backends,
                               .features = ~(uint64_t)0,
                               .dtypes = 1u << ATTN_F32,
                               .head_dim_max = 1024,
                               .plan = fixture_plan,
                               .run = run};
static const attn_impl *const impls[] = {&impl, NULL};
static const attn_module module = {FIXTURE_MODULE("half_written", impls)};

FIXTURE_ENTRY(&module)
