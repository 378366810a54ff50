/* f16_only.c: an implementation for f16 alone. */
#include "fixture.h"

static const attn_impl impl = {.size = sizeof(attn_impl),
                               .rank = 500,
                               .name = "f16_only_dense",
                               .summary = "a test's implementation",
                               .platform = "cpu",
                               .backends = fixture_backends,
                               .dtypes = 1u << ATTN_F16,
                               .head_dim_max = 1024,
                               .plan = fixture_plan,
                               .run = fixture_run};
static const attn_impl *const impls[] = {&impl, NULL};
static const attn_module module = {FIXTURE_MODULE("f16_only", impls)};

FIXTURE_ENTRY(&module)
