/* plugin_check.c: checks of one sparse plugin on one problem. */
#include "plugin_check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "check_bound.h"
#include "cli.h"
#include "generate.h"
#include "outcome.h"

enum { STEP = 3, TOTAL = 20, KEYS_MOST = 1024 }; /* a value head of that size is the widest that is run */

/* ---- the state that a pipeline would publish ----------------------------------------------------- */

struct published {
    attn_forward_state state;
    int64_t step, total, latent[3], patch[3];
    double timestep;
};

static int64_t divisor_below(int64_t number, double limit)
{
    int64_t best = 1;
    for (int64_t d = 1; d <= number && (double)d <= limit; d++)
        if (number % d == 0) best = d;
    return best;
}

/* Frames times rows times columns of patches of 1x2x2, as near to a cube as the number of queries allows. */
static void publish(struct published *p, int64_t queries)
{
    int64_t frames = divisor_below(queries, cbrt((double)queries) + 0.5), rest = queries / frames;
    int64_t rows = divisor_below(rest, sqrt((double)rest));
    *p = (struct published){.step = STEP,
                            .total = TOTAL,
                            .latent = {frames, 2 * rows, 2 * (rest / rows)},
                            .patch = {1, 2, 2},
                            .timestep = 1 - (double)STEP / TOTAL};
    p->state = (attn_forward_state){.size = sizeof p->state,
                                    .samples = 1,
                                    .denoise_step = &p->step,
                                    .denoise_total = &p->total,
                                    .latent_shape = p->latent,
                                    .patch_size = p->patch,
                                    .timestep = &p->timestep};
}

/* ---- running ------------------------------------------------------------------------------------- */

static attn_status run_once(attn_layer *layer, struct generated *call, const attn_args *args,
                            struct outcome *outcome, attn_error *error)
{
    generate_reset(call);
    attn_status status = attn_forward(layer, args, error);
    if (!status) status = generate_verify(call, error);
    return status ? status : outcome_read(args, outcome, error);
}

static attn_status open_layer(attn_context *context, const struct generated *call, attn_layer **layer,
                              attn_error *error)
{
    attn_layer_options site = call->layer;
    site.device = (DLDevice){kDLCPU, 0};
    return attn_layer_open(context, &site, layer, error);
}

static attn_args args_of(const struct plugin_subject *s, const struct generated *call,
                         const struct published *state)
{
    attn_args args = call->args;
    args.params = s->params;
    args.forward = &state->state;
    return args;
}

/* The poison is NaN, so that what is finite was written. */
static attn_status check_written(const struct outcome *o, attn_error *error)
{
    for (int64_t i = 0; i < o->out_count; i++)
        if (!isfinite(o->out[i]))
            return cli_fail(error, ATTN_KIND_INTERNAL,
                            "out[%lld] is %g in row-major order; every element must be written and finite",
                            (long long)i, o->out[i]);
    for (int64_t i = 0; o->lse && i < o->lse_count; i++)
        if (isnan(o->lse[i]) || o->lse[i] == INFINITY)
            return cli_fail(error, ATTN_KIND_INTERNAL,
                            "lse[%lld] is %g; every element must be written, finite or -inf", (long long)i,
                            o->lse[i]);
    return ATTN_OK;
}

static attn_status run_twice(const struct plugin_subject *s, struct generated *call, struct outcome *found,
                             struct plugin_result *result, attn_error *error)
{
    struct published state;
    struct outcome again = {0};
    attn_layer *layer = NULL;
    publish(&state, call->problem.q_len);
    attn_args args = args_of(s, call, &state);
    attn_status status = open_layer(s->context, call, &layer, error);
    if (!status) status = run_once(layer, call, &args, found, error);
    if (!status) status = check_written(found, error);
    if (!status) {
        attn_layer_info info = {.size = sizeof info};
        attn_layer_get_info(layer, &info);
        result->kept = info.kept_share;
        snprintf(result->report, sizeof result->report, "%s", info.report ? info.report : "");
        status = run_once(layer, call, &args, &again, error);
    }
    if (!status && !outcome_same(found, &again))
        status =
            cli_fail(error, ATTN_KIND_INTERNAL,
                     "two runs over the same inputs differ in some bits; a plugin must be deterministic");
    outcome_free(&again);
    attn_layer_close(layer);
    return status;
}

/* ---- against the reference ----------------------------------------------------------------------- */

static attn_status run_reference(const struct plugin_subject *s, struct generated *call,
                                 struct outcome *outcome, attn_error *error)
{
    attn_layer *layer = NULL;
    attn_status status = open_layer(s->reference, call, &layer, error);
    if (!status) status = attn_forward(layer, &call->args, error);
    if (!status) status = outcome_read(&call->args, outcome, error);
    attn_layer_close(layer);
    return status;
}

static attn_status measure_dense(const struct plugin_subject *s, const struct problem *problem,
                                 const struct outcome *found, struct plugin_result *result, attn_error *error)
{
    struct generated call = {.store = NULL};
    struct outcome exact = {0};
    struct tensor_error distance;
    struct problem wide = problem_in_double(problem);
    attn_status status = generate(&wide, &call, error);
    if (!status) status = run_reference(s, &call, &exact, error);
    if (!status) {
        tensor_compare(found->out, exact.out, exact.out_count, &distance);
        result->cosine = distance.cosine;
        result->relative_l2 = distance.relative_l2;
    }
    outcome_free(&exact);
    generate_free(&call);
    return status;
}

/* ---- the map of a selector ----------------------------------------------------------------------- */

/* Why the map cannot be read back; NULL: it can. */
static const char *unreadable(const struct problem *p)
{
    if (p->kv_len > KEYS_MOST) return "not read back: more than 1024 keys";
    if (p->mask || p->packed || p->paged || p->joint || p->spans || p->lengths >= 0 || p->sinks)
        return "not read back: the problem hides keys by itself";
    return NULL;
}

/* Value j is 1 in channel j and 0 elsewhere: out[i][j] becomes the weight of key j, above 0 when it was
 * computed. */
static void tell_keys_apart(struct generated *call)
{
    const DLTensor *v = call->args.v;
    int64_t heads = v->shape[2], keys = v->shape[1];
    for (int64_t i = 0, count = tensor_count(v); i < count; i++) {
        int64_t key = i / keys / heads % keys;
        tensor_store((void *)(uintptr_t)tensor_address(v, i), call->problem.dtype, i % keys == key);
    }
}

static attn_status read_map(const struct plugin_subject *s, const struct problem *problem,
                            struct outcome *weights, attn_error *error)
{
    struct generated call = {.store = NULL};
    struct published state;
    attn_layer *layer = NULL;
    struct problem probe = *problem;
    probe.value_head_dim = probe.kv_len;
    probe.out_dtype = ATTN_F32;
    probe.hidden_nan = 0;
    probe.lse = 0;
    publish(&state, problem->q_len);
    attn_status status = generate(&probe, &call, error);
    if (!status) status = open_layer(s->context, &call, &layer, error);
    if (!status) {
        attn_args args = args_of(s, &call, &state);
        tell_keys_apart(&call);
        status = run_once(layer, &call, &args, weights, error);
    }
    attn_layer_close(layer);
    generate_free(&call);
    return status;
}

/* mask[b][h][i][j] from weights[b][i][h][j] */
static void fill_mask(const struct generated *call, const struct outcome *weights)
{
    const struct problem *p = &call->problem;
    uint8_t *mask = call->args.mask->data;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->q_len; i++)
                for (int64_t j = 0; j < p->kv_len; j++)
                    *mask++ = weights->out[((b * p->q_len + i) * p->heads + h) * p->kv_len + j] > 0;
}

static attn_status judge_map(const struct plugin_subject *s, const struct problem *problem,
                             const struct outcome *weights, const struct outcome *found,
                             struct plugin_result *result, attn_error *error)
{
    struct generated call = {.store = NULL};
    struct outcome exact = {0};
    struct check_bound bound;
    attn_error why = ATTN_ERROR_INIT;
    double share = 0;
    struct problem wide = problem_in_double(problem);
    wide.mask = PROBLEM_MASK_KEEP;
    wide.mask_axes = PROBLEM_AXIS_B | PROBLEM_AXIS_H | PROBLEM_AXIS_S | PROBLEM_AXIS_K;
    wide.mask_dtype = ATTN_BOOL;
    attn_status status = generate(&wide, &call, error);
    if (!status) fill_mask(&call, weights);
    if (!status) status = run_reference(s, &call, &exact, error);
    if (!status) status = check_bound_of(&call, &exact, problem->out_dtype, &bound, error);
    if (!status) {
        if (problem->dtype == ATTN_BF16) bound = check_bound_bf16_weights(&bound, exact.out_count);
        if (check_against(found, &exact, &bound, &share, &why))
            status = cli_fail(error, why.kind, "under the map that it chose: %.400s", why.text);
        snprintf(result->map, sizeof result->map, "its map holds, %.0f %% of the allowed error", 100 * share);
    }
    outcome_free(&exact);
    generate_free(&call);
    return status;
}

static attn_status check_map(const struct plugin_subject *s, const struct problem *problem,
                             const struct outcome *found, struct plugin_result *result, attn_error *error)
{
    const char *why = unreadable(problem);
    struct outcome weights = {0};
    if (why) {
        snprintf(result->map, sizeof result->map, "%s", why);
        return ATTN_OK;
    }
    attn_status status = read_map(s, problem, &weights, error);
    if (!status) status = judge_map(s, problem, &weights, found, result, error);
    outcome_free(&weights);
    return status;
}

/* A plugin may be for fewer calls than it gets, when it says so. */
static int is_refusal(attn_kind kind)
{
    return attn_kind_exit(kind) == CLI_REFUSED || kind == ATTN_KIND_INVALID_SHAPE;
}

/* ---- one problem --------------------------------------------------------------------------------- */

void plugin_check(const struct plugin_subject *s, const struct problem *problem, struct plugin_result *result)
{
    struct generated call = {.store = NULL};
    struct outcome found = {0};
    attn_error *error = &result->error;
    *result = (struct plugin_result){.error = ATTN_ERROR_INIT, .kept = 1, .cosine = NAN, .relative_l2 = NAN};
    problem_format(problem, result->text, sizeof result->text);
    attn_status status = generate(problem, &call, error);
    if (!status) status = run_twice(s, &call, &found, result, error);
    if (!status) status = measure_dense(s, problem, &found, result, error);
    if (!status && s->info.selects) status = check_map(s, problem, &found, result, error);
    if (status) result->verdict = is_refusal(error->kind) ? PLUGIN_REFUSED : PLUGIN_FAILED;
    outcome_free(&found);
    generate_free(&call);
}
