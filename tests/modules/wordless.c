/* wordless.c: an implementation whose plan fails and fills no error. */
#include "fixture.h"

static attn_status plan(const attn_host *host, const attn_problem *problem, void **state,
                        attn_workspace *workspace, attn_error *error)
{
    (void)host, (void)problem, (void)state, (void)workspace, (void)error;
    return ATTN_OUT_OF_MEMORY;
}

static const attn_impl impl = {.size = sizeof(attn_impl),
                               .rank = 500,
                               .name = "wordless",
                               .summary = "a test's implementation",
                               .platform = "cpu",
                               .backends = fixture_backends,
                               .features = ~(uint64_t)0,
                               .dtypes = 1u << ATTN_F32,
                               .head_dim_max = 1024,
                               .plan = plan,
                               .run = fixture_run};
static const attn_impl *const impls[] = {&impl, NULL};
static const attn_module module = {FIXTURE_MODULE("wordless", impls)};

FIXTURE_ENTRY(&module)
