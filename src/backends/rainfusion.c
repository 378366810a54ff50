/* rainfusion.c: the video part of a sequence attends block-sparsely, the prefix (text, audio) densely and is
 * seen by all. The key blocks of a query block are those whose mean scores are best; `sparsity` is the share
 * of the video's key blocks that are dropped.
 *
 * Parameters: sparsity, start_step, end_step, precision, skip_layers; prefix_length (0); latent_grid, or
 * latent_shape and patch_size; block_size (128); blocks_least (32). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "backends/flash.h"
#include "backends/pooled.h"
#include "sparse/cubes.h"

enum { BLOCK = 128, BLOCKS_LEAST = 32 };

typedef struct settings {
    double sparsity;
    int64_t start_step, end_step, prefix, block, least;
    int64_t grid[3];
    int has_grid;
    const char *precision;
    const int64_t *layers;
    int64_t layer_count;
} settings;

/* ---- settings --------------------------------------------------------------------------------------- */

static attn_status read_grid(const attn_params *params, settings *s, attn_error *error)
{
    int64_t latent[3], patch[3];
    int has_latent, has_patch;
    attn_status status = pooled_three(params, "latent_grid", s->grid, &s->has_grid, error);
    if (status || s->has_grid) return status;
    if ((status = pooled_three(params, "latent_shape", latent, &has_latent, error)) ||
        (status = pooled_three(params, "patch_size", patch, &has_patch, error)))
        return status;
    s->has_grid = has_latent && has_patch && patch[0] > 0 && patch[1] > 0 && patch[2] > 0;
    for (int i = 0; i < 3 && s->has_grid; i++) s->grid[i] = latent[i] / patch[i];
    return ATTN_OK;
}

static attn_status read_settings(const attn_params *params, settings *s, attn_error *error)
{
    attn_status status;
    *s = (settings){.sparsity = 0.8, .block = BLOCK, .least = BLOCKS_LEAST, .precision = "bf16"};
    if ((status = attn_params_number(params, "sparsity", 0, 1, &s->sparsity, error)) ||
        (status = attn_params_int(params, "start_step", 0, INT32_MAX, &s->start_step, error)) ||
        (status = attn_params_int(params, "end_step", 0, INT32_MAX, &s->end_step, error)) ||
        (status = attn_params_int(params, "prefix_length", 0, INT64_MAX / 4, &s->prefix, error)) ||
        (status = attn_params_int(params, "block_size", 16, 1024, &s->block, error)) ||
        (status = attn_params_int(params, "blocks_least", 1, INT32_MAX, &s->least, error)) ||
        (status = attn_params_word(params, "precision", "bf16 fp8 mix", &s->precision, error)) ||
        (status = attn_params_ints(params, "skip_layers", &s->layers, &s->layer_count, NULL, error)))
        return status;
    return read_grid(params, s, error);
}

/* ---- when it is dense -------------------------------------------------------------------------------- */

static int exempt_layer(const settings *s, int64_t layer)
{
    for (int64_t i = 0; layer >= 0 && i < s->layer_count; i++)
        if (s->layers[i] == layer) return 1;
    return 0;
}

/* Whether the step is among the dense ones at the beginning or the end; the same for all samples of a call.
 */
static attn_status exempt_step(const attn_call *call, const settings *s, int *dense, int64_t *step,
                               attn_error *error)
{
    const attn_forward_state *f = call->forward;
    *dense = 0;
    if (!s->start_step && !s->end_step) return ATTN_OK;
    if (!f || !f->denoise_step || (s->end_step && !f->denoise_total))
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "RAINFUSION_ATTN has start_step %" PRId64 " and end_step %" PRId64
                         " but the forward publishes no %s; publish it, or set both to 0",
                         s->start_step, s->end_step,
                         f && f->denoise_step ? "number of steps" : "denoise step");
    for (int64_t b = 0; b < call->problem->batch; b++) {
        int64_t at = f->denoise_step[b], total = s->end_step ? f->denoise_total[b] : 0;
        int exempt = at < s->start_step || (s->end_step && at >= total - s->end_step);
        if (b > 0 && exempt != *dense)
            return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                             "sample %" PRId64 " of the call is at step %" PRId64 " and sample 0 at %" PRId64
                             ", one dense and one sparse; run them in calls of their own",
                             b, at, *step);
        *dense = exempt;
        *step = b ? *step : at;
    }
    return ATTN_OK;
}

/* Fills the reason of a dense pass; "" when the call is sparse. */
static attn_status dense_reason(const attn_call *call, const settings *s, char *text, size_t bytes,
                                attn_error *error)
{
    int dense;
    int64_t step = 0, video = call->problem->q_len - s->prefix;
    text[0] = 0;
    if (s->sparsity <= 0) {
        snprintf(text, bytes, "dense:sparsity is 0");
        return ATTN_OK;
    }
    if (exempt_layer(s, call->layer_index)) {
        snprintf(text, bytes, "dense:layer %" PRId64 " is exempt", call->layer_index);
        return ATTN_OK;
    }
    attn_status status = exempt_step(call, s, &dense, &step, error);
    if (status) return status;
    if (dense) snprintf(text, bytes, "dense:step %" PRId64 " is exempt", step);
    if (!dense && video / s->block < s->least)
        snprintf(text, bytes, "dense:%" PRId64 " video rows are below %" PRId64 " blocks of %" PRId64, video,
                 s->least, s->block);
    return ATTN_OK;
}

static attn_status check_layout(const attn_call *call, const settings *s, attn_error *error)
{
    sparse_cubes grid;
    const int64_t one[3] = {1, 1, 1};
    if (!s->has_grid)
        return attn_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "RAINFUSION_ATTN was not told where the video stands among %" PRId64
            " tokens; publish the latent shape and patch size of the forward, or give latent_grid, and "
            "prefix_length",
            call->problem->q_len);
    attn_status status = sparse_cubes_make(s->grid, one, &grid, error);
    if (status) return status;
    if (grid.tokens == call->problem->q_len - s->prefix) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                     "RAINFUSION_ATTN was told a prefix of %" PRId64 " and a grid of %" PRId64 " x %" PRId64
                     " x %" PRId64 ", but the call has %" PRId64
                     " tokens; publish the layout of this sequence",
                     s->prefix, s->grid[0], s->grid[1], s->grid[2], call->problem->q_len);
}

/* ---- running ---------------------------------------------------------------------------------------- */

/* The prefix in blocks of its own, then the video. Returns the prefix's blocks. */
static int64_t cut(const settings *s, int64_t length, int64_t *starts, int64_t *blocks)
{
    int64_t n = 0, always;
    for (int64_t at = 0; at < s->prefix; at += s->block) starts[n++] = at;
    always = n;
    for (int64_t at = s->prefix; at < length; at += s->block) starts[n++] = at;
    starts[n] = length;
    *blocks = n;
    return always;
}

static attn_status run_sparse(const attn_host *host, const attn_call *call, const settings *s,
                              attn_error *error)
{
    int64_t length = call->problem->q_len, most = length / s->block + 3;
    int64_t *starts = host->alloc(host, (size_t)most * sizeof *starts, 64);
    if (!starts) return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for %" PRId64 " blocks", most);
    pooled_spec spec = {.largest = s->block < length ? s->block : length, .starts = starts, .what = "blocks"};
    spec.always = cut(s, length, starts, &spec.blocks);
    spec.keep = sparse_keep_of(s->sparsity, spec.blocks - spec.always);
    spec.round_v = !strcmp(s->precision, "fp8");
    spec.round_qk = spec.round_v || !strcmp(s->precision, "mix");
    attn_status status = pooled_run(host, call, &spec, error);
    host->release(host, starts);
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
    if (report->text[0]) {
        report->dense = 1;
        return flash_execute(host, state, call, NULL, error);
    }
    status = check_layout(call, &s, error);
    return status ? status : run_sparse(host, call, &s, error);
}

static void accept(const attn_host *host, const attn_problem *p, attn_reasons *reasons)
{
    (void)host;
    if (p->q_len != p->kv_len)
        attn_reason(reasons, ATTN_KIND_FEATURE_UNSUPPORTED,
                    "RAINFUSION_ATTN is for self-attention, and this call has %" PRId64
                    " queries and %" PRId64 " keys; use FLASH_ATTN for such a role",
                    p->q_len, p->kv_len);
}

static void describe(const attn_host *host, const void *state, char *text, size_t bytes)
{
    const flash_plan *made = state;
    (void)host;
    snprintf(text, bytes, "kernel set %s, blocks by their means", made->kernels.name);
}

static const char *const backends[] = {"RAINFUSION_ATTN", NULL};

const attn_impl attn_rainfusion_impl = {
    .size = sizeof(attn_impl),
    .name = "cpu_rainfusion",
    .summary =
        "block-sparse over the video of a sequence, its prefix dense; dense steps and layers by schedule",
    .platform = "cpu",
    .backends = backends,
    .features =
        ATTN_FEATURE(LSE) | ATTN_FEATURE(STRIDED) | ATTN_FEATURE(F32_OUT) | ATTN_FEATURE(BATCH_INVARIANT),
    .dtypes = 1u << ATTN_F32 | 1u << ATTN_F16 | 1u << ATTN_BF16,
    .head_dim_max = 1024,
    .flags = ATTN_IMPL_PER_FORWARD,
    .accept = accept,
    .plan = pooled_plan,
    .run = run,
    .drop = pooled_drop,
    .describe = describe,
};
