/* skip_softmax.c: the skip-softmax of TRTLLM_ATTN on CPUs, so that its effect on quality can be measured:
 * tiles of 128 x 128 whose best score is far below the running maxima of all their rows take no part.
 *
 * Parameters: skip_softmax_threshold; or target_sparsity with calibration_a and calibration_b of the
 * checkpoint; disabled_until_timestep. */
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "backends/flash.h"

enum { TILE = 128 };

typedef struct skip_plan {
    flash_plan *dense, *tiled;
    atomic_int warned;
} skip_plan;

typedef struct settings {
    double threshold, target, a, b, until; /* negative: not given */
} settings;

static attn_status read_settings(const attn_params *params, settings *s, attn_error *error)
{
    attn_status status;
    const attn_param *quant = attn_params_find(params, "quant");
    *s = (settings){-1, -1, NAN, NAN, 0};
    if ((status = attn_params_number(params, "skip_softmax_threshold", 0, INFINITY, &s->threshold, error)) ||
        (status = attn_params_number(params, "target_sparsity", 0, 1, &s->target, error)) ||
        (status = attn_params_number(params, "calibration_a", -INFINITY, INFINITY, &s->a, error)) ||
        (status = attn_params_number(params, "calibration_b", -INFINITY, INFINITY, &s->b, error)) ||
        (status = attn_params_number(params, "disabled_until_timestep", 0, 1, &s->until, error)))
        return status;
    if (quant && quant->type == ATTN_PARAM_TABLE)
        return attn_fail(error, ATTN_KIND_FEATURE_UNSUPPORTED,
                         "TRTLLM_ATTN has a quant block, and its block-quantised Q and K have no CPU form in "
                         "cpu_skip_softmax; remove the block");
    if (s->threshold >= 0 && s->target >= 0)
        return attn_fail(error, ATTN_KIND_MUTUALLY_EXCLUSIVE,
                         "skip_softmax_threshold and target_sparsity were both given; give one of the two");
    if (s->target >= 0 && (isnan(s->a) || isnan(s->b)))
        return attn_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "target_sparsity is %g but the layer has no calibration; give calibration_a and calibration_b of "
            "the checkpoint, or a threshold",
            s->target);
    return ATTN_OK;
}

/* Why a call is dense; "" when it is not. */
static attn_status dense_reason(const attn_call *call, const settings *s, char *text, size_t bytes,
                                attn_error *error)
{
    const attn_forward_state *f = call->forward;
    text[0] = 0;
    if (s->threshold < 0 && s->target < 0) {
        snprintf(text, bytes, "dense:no threshold");
        return ATTN_OK;
    }
    if (s->until <= 0) return ATTN_OK;
    if (!f || !f->timestep) {
        snprintf(text, bytes, "dense:no timestep is published");
        return ATTN_OK;
    }
    for (int64_t b = 1; b < f->samples; b++)
        if ((f->timestep[b] > s->until) != (f->timestep[0] > s->until))
            return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                             "sample %" PRId64
                             " of the call is at timestep %g and sample 0 at %g, one dense and one "
                             "sparse; run them in calls of their own",
                             b, f->timestep[b], f->timestep[0]);
    if (f->samples > 0 && f->timestep[0] > s->until)
        snprintf(text, bytes, "dense:timestep %g is above %g", f->timestep[0], s->until);
    return ATTN_OK;
}

static attn_status run_dense(const attn_host *host, const skip_plan *plan, const attn_call *call,
                             attn_report *report, attn_error *error)
{
    atomic_int *warned = (atomic_int *)(uintptr_t)&plan->warned; /* the one thing a run may change */
    report->dense = 1;
    if (strstr(report->text, "no timestep") && !atomic_exchange(warned, 1))
        host->log(host, ATTN_LOG_WARNING,
                  "skip-softmax is disabled until a timestep, and the pipeline publishes none: attention "
                  "stays dense");
    return flash_execute(host, plan->dense, call, NULL, error);
}

static attn_status run_tiles(const attn_host *host, const skip_plan *plan, const attn_call *call,
                             const settings *s, attn_report *report, attn_error *error)
{
    _Atomic int64_t tiles = 0, skipped = 0;
    flash_extra extra = {.skip = s->threshold >= 0 ? s->threshold : 0,
                         .skip_factor = s->target >= 0 ? s->a * exp(s->b * s->target) : 0,
                         .tiles = &tiles,
                         .skipped = &skipped};
    attn_status status = flash_execute(host, plan->tiled, call, &extra, error);
    report->total = atomic_load(&tiles);
    report->kept = report->total - atomic_load(&skipped);
    snprintf(report->text, sizeof report->text, "skipped %" PRId64 " of %" PRId64 " tiles (%.1f %%)",
             report->total - report->kept, report->total,
             report->total ? 100 * (double)(report->total - report->kept) / (double)report->total : 0);
    return status;
}

static attn_status run(const attn_host *host, const void *state, const attn_call *call, attn_error *error)
{
    settings s;
    attn_report *report = attn_call_report(call), none = {.size = 0};
    if (!report) report = &none;
    attn_status status = read_settings(call->params, &s, error);
    if (!status) status = dense_reason(call, &s, report->text, sizeof report->text, error);
    if (status) return status;
    if (report->text[0]) return run_dense(host, state, call, report, error);
    return run_tiles(host, state, call, &s, report, error);
}

static void drop(const attn_host *host, void *state)
{
    skip_plan *made = state;
    if (!made) return;
    flash_plan_drop(host, made->dense);
    flash_plan_drop(host, made->tiled);
    host->release(host, made);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static attn_status plan(const attn_host *host, const attn_problem *p, void **state, attn_workspace *workspace,
                        attn_error *error)
{
    const flash_ask ask = {.tile = TILE};
    attn_workspace tiled = {0, 0};
    skip_plan *made = host->alloc(host, sizeof *made, 64);
    if (!made) return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a plan of cpu_skip_softmax");
    memset(made, 0, sizeof *made);
    attn_status status = flash_plan_make(host, p, NULL, &made->dense, workspace, error);
    if (!status) status = flash_plan_make(host, p, &ask, &made->tiled, &tiled, error);
    workspace->shared_bytes = larger(workspace->shared_bytes, tiled.shared_bytes);
    workspace->thread_bytes = larger(workspace->thread_bytes, tiled.thread_bytes);
    *state = made;
    if (!status) return ATTN_OK;
    drop(host, made);
    *state = NULL;
    return status;
}

static void describe(const attn_host *host, const void *state, char *text, size_t bytes)
{
    const skip_plan *made = state;
    (void)host;
    snprintf(text, bytes, "kernel set %s, tiles %dx%d", made->dense->kernels.name, TILE, TILE);
}

static const char *const backends[] = {"TRTLLM_ATTN", NULL};

const attn_impl attn_skip_softmax_impl = {
    .size = sizeof(attn_impl),
    .name = "cpu_skip_softmax",
    .summary =
        "leaves out tiles whose scores are far below the maxima seen so far, by threshold or calibration",
    .platform = "cpu",
    .backends = backends,
    .features = ATTN_FEATURE(LSE) | ATTN_FEATURE(GROUPED) | ATTN_FEATURE(VALUE_DIM) | ATTN_FEATURE(STRIDED) |
                ATTN_FEATURE(F32_OUT) | ATTN_FEATURE(BATCH_INVARIANT) | ATTN_FEATURE(PACKED) |
                ATTN_FEATURE(LENGTHS) | ATTN_FEATURE(CAUSAL),
    .dtypes = 1u << ATTN_F32 | 1u << ATTN_F16 | 1u << ATTN_BF16,
    .head_dim_max = 1024,
    .flags = ATTN_IMPL_PER_FORWARD,
    .plan = plan,
    .run = run,
    .drop = drop,
    .describe = describe,
};
