/* no_run.c: a whole implementation beside one whose struct ends before its run function. */
#include "fixture.h"

#include <stddef.h>

static const attn_impl whole = {FIXTURE_IMPL("no_run_whole")};
static const attn_impl half = {.size = offsetof(attn_impl, run),
                               .name = "no_run_half",
                               .summary = "a test's implementation",
                               .platform = "cpu",
                               .backends = fixture_backends,
                               .dtypes = 1u << ATTN_F32,
                               .head_dim_max = 64,
                               .plan = fixture_plan};
static const attn_impl *const impls[] = {&whole, &half, NULL};
static const attn_module module = {FIXTURE_MODULE("no_run", impls)};

FIXTURE_ENTRY(&module)
