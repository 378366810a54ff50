/* vsa.c: video sparse attention. Tokens of a video are put into the order of cubes of the latent grid; the
 * means of the cubes say which cubes each cube of queries attends to (the top-k scores); within those
 * attention is exact. With a learned gate, attention over the means is added, times the gate.
 *
 * Parameters: topk (64) or sparsity; vsa_dit_seq_shape, or latent_shape and patch_size; block_size (4 x 8 x
 * 8); gate_compress; preserve_vsa_all_blocks; start_step, end_step, skip_layers (sparse/schedule.h). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backends/flash.h"
#include "backends/pooled.h"
#include "sparse/cubes.h"
#include "sparse/schedule.h"

enum { TOPK = 64, TOKENS_LEAST = 8, TOKENS_MOST = 1024 };

typedef struct settings {
    int64_t grid[3], cube[3];
    int64_t topk;
    double sparsity; /* negative: topk holds */
    int32_t preserve;
    const DLTensor *gate;
    sparse_schedule schedule;
} settings;

/* ---- conditions ------------------------------------------------------------------------------------ */

static void accept(const attn_host *host, const attn_problem *p, attn_reasons *reasons)
{
    double scale = p->head_dim > 0 ? 1 / sqrt((double)p->head_dim) : p->scale;
    (void)host;
    pooled_accept("FASTVIDEO_VSA", p, reasons);
    if (p->scale != 0 && fabs(p->scale - scale) > 1e-6)
        attn_reason(reasons, ATTN_KIND_FEATURE_UNSUPPORTED,
                    "FASTVIDEO_VSA has the scale 1/sqrt(head size), %g here, not %g; use FLASH_ATTN", scale,
                    p->scale);
}

/* ---- settings --------------------------------------------------------------------------------------- */

/* The grid of tokens that the model publishes, by its own name or as latent and patch. */
static attn_status read_grid(const attn_call *call, settings *s, attn_error *error)
{
    int64_t latent[3], patch[3];
    int given, has_latent, has_patch;
    attn_status status = pooled_three(call->params, "vsa_dit_seq_shape", s->grid, &given, error);
    if (status || given) return status;
    if ((status = pooled_three(call->params, "latent_shape", latent, &has_latent, error)) ||
        (status = pooled_three(call->params, "patch_size", patch, &has_patch, error)))
        return status;
    if (!has_latent || !has_patch)
        return attn_fail(
            error, ATTN_KIND_FEATURE_UNSUPPORTED,
            "FASTVIDEO_VSA was not told the grid of its %" PRId64
            " tokens; publish the latent shape and patch size of the forward, or give vsa_dit_seq_shape",
            call->problem->q_len);
    for (int i = 0; i < 3; i++) {
        if (patch[i] < 1)
            return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                             "patch_size has %" PRId64 "; its three numbers are 1 or more", patch[i]);
        s->grid[i] = latent[i] / patch[i];
    }
    return ATTN_OK;
}

static attn_status read_gate(const attn_params *params, settings *s, attn_error *error)
{
    const attn_param *gate = attn_params_find(params, "gate_compress");
    if (!gate || gate->type == ATTN_PARAM_NONE) return ATTN_OK;
    if (gate->type != ATTN_PARAM_TENSOR || !gate->value.tensor)
        return attn_fail(error, ATTN_KIND_INVALID_TYPE, "gate_compress is %s; it is a tensor",
                         attn_param_type_name(gate->type));
    s->gate = gate->value.tensor;
    return ATTN_OK;
}

static attn_status read_settings(const attn_call *call, settings *s, attn_error *error)
{
    attn_status status;
    int given;
    *s = (settings){.cube = {4, 8, 8}, .topk = TOPK, .sparsity = -1};
    if ((status = attn_params_int(call->params, "topk", 1, INT32_MAX, &s->topk, error)) ||
        (status = attn_params_number(call->params, "sparsity", 0, 1, &s->sparsity, error)) ||
        (status = attn_params_bool(call->params, "preserve_vsa_all_blocks", &s->preserve, error)) ||
        (status = sparse_schedule_read(call->params, &s->schedule, error)) ||
        (status = pooled_three(call->params, "block_size", s->cube, &given, error)))
        return status;
    return read_gate(call->params, s, error);
}

static attn_status make_cubes(const attn_call *call, const settings *s, sparse_cubes *cubes,
                              attn_error *error)
{
    int64_t size = 1;
    attn_status status = sparse_cubes_make(s->grid, s->cube, cubes, error);
    if (status) return status;
    if (cubes->tokens != call->problem->q_len)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "FASTVIDEO_VSA was told a grid of %" PRId64 " x %" PRId64 " x %" PRId64
                         ", which are %" PRId64 " tokens, but the call has %" PRId64
                         "; publish the grid of this sequence",
                         s->grid[0], s->grid[1], s->grid[2], cubes->tokens, call->problem->q_len);
    for (int i = 0; i < 3; i++)
        if (__builtin_mul_overflow(size, s->cube[i], &size)) size = INT64_MAX;
    if (size < TOKENS_LEAST || size > TOKENS_MOST)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "block_size is %" PRId64 " x %" PRId64 " x %" PRId64 "; a cube has %d to %d tokens",
                         s->cube[0], s->cube[1], s->cube[2], TOKENS_LEAST, TOKENS_MOST);
    return ATTN_OK;
}

/* ---- running ---------------------------------------------------------------------------------------- */

static attn_status run_dense(const attn_host *host, const flash_plan *plan, const attn_call *call,
                             attn_error *error)
{
    attn_report *report = attn_call_report(call);
    if (report) report->dense = 1;
    return flash_execute(host, plan, call, NULL, error);
}

static attn_status run_cubes(const attn_host *host, const attn_call *call, const settings *s,
                             const sparse_cubes *cubes, int64_t keep, attn_error *error)
{
    size_t bytes = ((size_t)cubes->cubes + 1 + (size_t)cubes->tokens) * sizeof(int64_t);
    int64_t *starts = host->alloc(host, bytes, 64), largest = 1;
    if (!starts)
        return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the order of %" PRId64 " tokens",
                         cubes->tokens);
    sparse_cubes_order(cubes, starts, starts + cubes->cubes + 1);
    for (int i = 0; i < 3; i++) largest *= s->cube[i] < s->grid[i] ? s->cube[i] : s->grid[i];
    pooled_spec spec = {.blocks = cubes->cubes,
                        .largest = largest,
                        .starts = starts,
                        .order = starts + cubes->cubes + 1,
                        .keep = keep,
                        .gate = s->gate,
                        .what = "cubes"};
    attn_status status = pooled_run(host, call, &spec, error);
    host->release(host, starts);
    return status;
}

/* The dense passes that are part of the definition; 0: the call is sparse. cubes NULL: the grid is not known.
 */
static int is_dense(const settings *s, const sparse_cubes *cubes, int64_t asked, int64_t length, char *text,
                    size_t bytes)
{
    int64_t least = 2 * s->cube[0] * s->cube[1] * s->cube[2];
    if (s->gate) return 0;
    if (cubes && asked >= cubes->cubes) {
        if (!s->preserve)
            snprintf(text, bytes, "dense:all blocks (top-k %" PRId64 " of %" PRId64 " cubes)", asked,
                     cubes->cubes);
        return !s->preserve;
    }
    if (length < least) snprintf(text, bytes, "dense:length %" PRId64 " is below %" PRId64, length, least);
    return length < least;
}

static int grid_is_told(const attn_call *call)
{
    return attn_params_find(call->params, "vsa_dit_seq_shape") ||
           attn_params_find(call->params, "latent_shape");
}

static attn_status run(const attn_host *host, const void *state, const attn_call *call, attn_error *error)
{
    settings s;
    sparse_cubes cubes;
    attn_report *report = attn_call_report(call), none = {.size = 0};
    if (!report) report = &none;
    int64_t length = call->problem->q_len;
    attn_status status = read_settings(call, &s, error);
    if (!status)
        status =
            sparse_schedule_ask(&s.schedule, "FASTVIDEO_VSA", call, report->text, sizeof report->text, error);
    if (status) return status;
    int exempt = report->text[0] != 0;
    if (exempt && !s.gate) return run_dense(host, state, call, error);
    if (!grid_is_told(call) && is_dense(&s, NULL, s.topk, length, report->text, sizeof report->text))
        return run_dense(host, state, call, error);
    if ((status = read_grid(call, &s, error)) || (status = make_cubes(call, &s, &cubes, error)))
        return status;
    int64_t asked = s.sparsity >= 0 ? sparse_keep_of(s.sparsity, cubes.cubes) : s.topk;
    if (is_dense(&s, &cubes, asked, length, report->text, sizeof report->text))
        return run_dense(host, state, call, error);
    if (exempt) asked = cubes.cubes; /* the gate still adds its part */
    if (s.gate && call->lse)
        return attn_fail(
            error, ATTN_KIND_FEATURE_UNSUPPORTED,
            "an output that a gate adds to is no softmax and has no lse; leave lse or gate_compress out");
    return run_cubes(host, call, &s, &cubes, asked < cubes.cubes ? asked : cubes.cubes, error);
}

static void describe(const attn_host *host, const void *state, char *text, size_t bytes)
{
    const flash_plan *made = state;
    (void)host;
    snprintf(text, bytes, "kernel set %s, cubes of the latent grid", made->kernels.name);
}

static const char *const backends[] = {"FASTVIDEO_VSA", NULL};

const attn_impl attn_vsa_impl = {
    .size = sizeof(attn_impl),
    .name = "cpu_vsa",
    .summary = "video sparse attention: top-k cubes by their means, exact within them, an optional gate",
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
