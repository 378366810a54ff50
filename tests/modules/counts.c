/* counts.c: an implementation that takes every call, writes zeros, and counts what the host asks of it. */
#include "fixture.h"

/* Read by the test through dlsym: plans made, plans dropped, runs. */
ATTN_MODULE_EXPORT int counts_plans, counts_drops, counts_runs;
int counts_plans, counts_drops, counts_runs;

static attn_status plan(const attn_host *host, const attn_problem *problem, void **state,
                        attn_workspace *workspace, attn_error *error)
{
    (void)problem;
    __atomic_add_fetch(&counts_plans, 1, __ATOMIC_RELAXED);
    *state = host->alloc(host, 64, 64);
    workspace->shared_bytes = 1;
    workspace->thread_bytes = 65;
    return *state ? ATTN_OK : attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a plan of 64 bytes");
}

static attn_status run(const attn_host *host, const void *state, const attn_call *call, attn_error *error)
{
    /* The workspace is as promised: aligned, apart, and all of it may be written. */
    uintptr_t bits = (uintptr_t)call->shared | (uintptr_t)call->scratch | call->scratch_stride;
    if (!state || bits % 64 || call->scratch_stride < 65 || call->workers > host->threads)
        return attn_fail(error, ATTN_KIND_INTERNAL, "the workspace is not as planned");
    memset(call->shared, 0xff, 1);
    for (int32_t w = 0; w < call->workers; w++)
        memset((char *)call->scratch + (size_t)w * call->scratch_stride, 0xff, 65);
    __atomic_add_fetch(&counts_runs, 1, __ATOMIC_RELAXED);
    return ATTN_OK;
}

static void drop(const attn_host *host, void *state)
{
    __atomic_add_fetch(&counts_drops, 1, __ATOMIC_RELAXED);
    host->release(host, state);
}

static void describe(const attn_host *host, const void *state, char *text, size_t bytes)
{
    static const char words[] = "counts everything";
    (void)host, (void)state;
    memcpy(text, words, bytes < sizeof words ? bytes : sizeof words);
}

static const attn_impl impl = {.size = sizeof(attn_impl),
                               .rank = 500,
                               .name = "counts_all",
                               .summary = "a test's implementation",
                               .platform = "cpu",
                               .backends = fixture_backends,
                               .features = ~(uint64_t)0,
                               .dtypes = ~(uint64_t)0,
                               .head_dim_max = 1024,
                               .plan = plan,
                               .run = run,
                               .drop = drop,
                               .describe = describe};
static const attn_impl *const impls[] = {&impl, NULL};
static const attn_module module = {FIXTURE_MODULE("counts", impls)};

FIXTURE_ENTRY(&module)
