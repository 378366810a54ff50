/* consumes.c: an implementation that consumes parameters and the per-forward state, and keeps what it saw as
 * text. */
#include "fixture.h"

#include <stdio.h>

/* Read by the test through dlsym. */
ATTN_MODULE_EXPORT char consumed[4096];
ATTN_MODULE_EXPORT int64_t consumed_layer, consumed_samples, consumed_step;
char consumed[4096];
int64_t consumed_layer, consumed_samples, consumed_step;

/* What the caller does to its own state while a call runs must not be seen: the test's function does it. */
ATTN_MODULE_EXPORT void (*consumed_meanwhile)(void);
void (*consumed_meanwhile)(void);

static attn_status run(const attn_host *host, const void *state, const attn_call *call, attn_error *error)
{
    if (call->impl->flags != ATTN_IMPL_PER_FORWARD || !call->params || strcmp(call->impl->name, "consumes"))
        return attn_fail(error, ATTN_KIND_INTERNAL, "the call does not say what runs");
    if (consumed_meanwhile) consumed_meanwhile();
    consumed_layer = call->layer_index;
    consumed_samples = call->forward ? call->forward->samples : -1;
    consumed_step = call->forward && call->forward->denoise_step
                        ? call->forward->denoise_step[call->forward->samples - 1]
                        : -1;
    attn_status status = attn_params_format(call->params, consumed, sizeof consumed, NULL, error);
    return status ? status : fixture_run(host, state, call, error);
}

static const attn_impl impl = {.size = sizeof(attn_impl),
                               .rank = 500,
                               .name = "consumes",
                               .summary = "a test's implementation",
                               .platform = "cpu",
                               .backends = (const char *const[]){"RAINFUSION_ATTN", "FLASH_ATTN", NULL},
                               .features = ~(uint64_t)0,
                               .dtypes = ~(uint64_t)0,
                               .head_dim_max = 1024,
                               .flags = ATTN_IMPL_PER_FORWARD,
                               .plan = fixture_plan,
                               .run = run};
static const attn_impl *const impls[] = {&impl, NULL};
static const attn_module module = {FIXTURE_MODULE("consumes", impls)};

FIXTURE_ENTRY(&module)
