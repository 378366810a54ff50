/* short_impl.c: an implementation built against a shorter struct. What lies behind its size is not its own.
 */
#include "fixture.h"

#include <stddef.h>

static void not_a_field(const attn_host *host, void *state)
{
    (void)host, (void)state;
    __builtin_trap();
}

static const attn_impl impl = {.size = offsetof(attn_impl, drop),
                               .rank = 500,
                               .name = "short_plain",
                               .summary = "a test's implementation",
                               .platform = "cpu",
                               .backends = fixture_backends,
                               .dtypes = 1u << ATTN_F32,
                               .head_dim_max = 1024,
                               .plan = fixture_plan,
                               .run = fixture_run,
                               .drop = not_a_field};
static const attn_impl *const impls[] = {&impl, NULL};
static const attn_module module = {FIXTURE_MODULE("short_impl", impls)};

FIXTURE_ENTRY(&module)
