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
#include "sparse/schedule.h"

enum { BLOCK = 128, BLOCKS_LEAST = 32 };

typedef struct settings {
    double sparsity;
    sparse_schedule schedule;
    int64_t prefix, block, least;
    int64_t grid[3];
    int has_grid;
    const char *precision;
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
        (status = sparse_schedule_read(params, &s->schedule, error)) ||
        (status = attn_params_int(params, "prefix_length", 0, INT64_MAX / 4, &s->prefix, error)) ||
        (status = attn_params_int(params, "block_size", 16, 1024, &s->block, error)) ||
        (status = attn_params_int(params, "blocks_least", 1, INT32_MAX, &s->least, error)) ||
        (status = attn_params_word(params, "precision", "bf16 fp8 mix", &s->precision, error)))
        return status;
    return read_grid(params, s, error);
}

/* ---- when it is dense -------------------------------------------------------------------------------- */

/* Fills the reason of a dense pass; "" when the call is sparse. */
static attn_status dense_reason(const attn_call *call, const settings *s, char *text, size_t bytes,
                                attn_error *error)
{
    int64_t video = call->problem->q_len - s->prefix;
    if (s->sparsity <= 0) {
        snprintf(text, bytes, "dense:sparsity is 0");
        return ATTN_OK;
    }
    attn_status status = sparse_schedule_ask(&s->schedule, "RAINFUSION_ATTN", call, text, bytes, error);
    if (!status && !text[0] && video / s->block < s->least)
        snprintf(text, bytes, "dense:%" PRId64 " video rows are below %" PRId64 " blocks of %" PRId64, video,
                 s->least, s->block);
    return status;
}

static attn_status check_layout(const attn_call *call, const settings *s, attn_error *error)
{
    sparse_cubes grid;
    const int64_t one[3] = {1, 1, 1};
    if (!s->has_grid)
        return attn_fail(
            error, ATTN_KIND_FEATURE_UNSUPPORTED,
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
    pooled_accept("RAINFUSION_ATTN", p, reasons);
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
