/* skip_softmax.c: TRTLLM_ATTN's skip-softmax on CPUs against a double evaluation of its definition. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TILE = 128 };

typedef struct told {
    char report[200];
    int64_t dense, sparse;
    int warnings;
} told;

static void count_warning(void *user, int32_t level, const char *text)
{
    told *t = user;
    t->warnings += level == ATTN_LOG_WARNING && strstr(text, "timestep") != NULL;
}

static attn_status forward(test_call *c, told *t, int times)
{
    c->options.log = count_warning;
    c->options.log_user = t;
    t->warnings = 0;
    attn_context *context = context_open(&c->options);
    attn_layer *layer = NULL;
    c->error = (attn_error)ATTN_ERROR_INIT;
    attn_status status = attn_layer_open(context, &c->layer, &layer, &c->error);
    for (int n = 0; n < times && !status; n++) status = attn_forward(layer, &c->args, &c->error);
    if (layer) {
        attn_layer_info info = {.size = sizeof info};
        attn_layer_get_info(layer, &info);
        snprintf(t->report, sizeof t->report, "%s", info.report);
        t->dense = info.dense_calls, t->sparse = info.sparse_calls;
    }
    attn_layer_close(layer);
    attn_close(context);
    return status;
}

static void refuses(test_call *c, attn_kind kind, const char *word)
{
    told t;
    assert_int_not_equal(forward(c, &t, 1), ATTN_OK);
    if (c->error.kind != kind) fail_msg("kind %s: %s", attn_kind_name(c->error.kind), c->error.text);
    text_has(c->error.text, word);
}

/* ---- the definition --------------------------------------------------------------------------------------
 */

static double score(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    int64_t group = c->q.shape[2] / c->k.shape[2];
    double sum = 0;
    if (c->layer.causal && j > i + c->k.shape[1] - c->q.shape[1]) return -INFINITY;
    for (int64_t x = 0; x < c->q.shape[3]; x++)
        sum += tensor_get(&c->q.dl, (int64_t[]){b, i, h, x}) *
               tensor_get(&c->k.dl, (int64_t[]){b, j, h / group, x});
    return sum / sqrt((double)c->q.shape[3]);
}

/* Rows of one tile at work. */
typedef struct rows {
    int64_t first, count;
    double top[TILE];
    uint8_t *kept; /* of each key tile */
} rows;

static void walk(const test_call *c, int64_t b, int64_t h, rows *r, double part, int64_t *tiles,
                 int64_t *skipped)
{
    int64_t keys = c->k.shape[1];
    for (int64_t i = 0; i < r->count; i++) r->top[i] = -INFINITY;
    for (int64_t j = 0; j < keys; j += TILE) {
        double best[TILE];
        int needed = 0, seen = 0;
        for (int64_t i = 0; i < r->count; i++) {
            best[i] = -INFINITY;
            for (int64_t n = j; n < keys && n < j + TILE; n++)
                best[i] = fmax(best[i], score(c, b, h, r->first + i, n));
            seen |= best[i] > -INFINITY;
            needed |= best[i] > -INFINITY && !(best[i] < r->top[i] + log(part));
        }
        *tiles += seen;
        *skipped += seen && !needed;
        r->kept[j / TILE] = (uint8_t)needed;
        for (int64_t i = 0; i < r->count && needed; i++) r->top[i] = fmax(r->top[i], best[i]);
    }
}

static void put_row(const test_call *c, int64_t b, int64_t h, const rows *r, int64_t i, const tensor *out,
                    const tensor *lse)
{
    int64_t keys = c->k.shape[1], group = c->q.shape[2] / c->k.shape[2];
    double sum = 0, top = r->top[i - r->first], *p = calloc((size_t)keys, sizeof *p);
    assert_non_null(p);
    for (int64_t j = 0; j < keys; j++)
        if (r->kept[j / TILE]) sum += p[j] = exp(score(c, b, h, i, j) - top);
    tensor_set(&lse->dl, (int64_t[]){b, h, i}, top + log(sum));
    for (int64_t x = 0; x < c->v.shape[3]; x++) {
        double value = 0;
        for (int64_t j = 0; j < keys; j++)
            value += p[j] / sum * tensor_get(&c->v.dl, (int64_t[]){b, j, h / group, x});
        tensor_set(&out->dl, (int64_t[]){b, i, h, x}, value);
    }
    free(p);
}

static void define(const test_call *c, double part, tensor *out, tensor *lse, int64_t *tiles,
                   int64_t *skipped)
{
    rows r = {.kept = calloc((size_t)(c->k.shape[1] / TILE + 1), 1)};
    assert_non_null(r.kept);
    *tiles = *skipped = 0;
    tensor_make(out, ATTN_F64, 4, c->out.shape);
    tensor_make(lse, ATTN_F64, 3, c->lse.shape);
    for (int64_t b = 0; b < c->q.shape[0]; b++)
        for (int64_t h = 0; h < c->q.shape[2]; h++)
            for (r.first = 0; r.first < c->q.shape[1]; r.first += TILE) {
                r.count = c->q.shape[1] - r.first < TILE ? c->q.shape[1] - r.first : TILE;
                walk(c, b, h, &r, part, tiles, skipped);
                for (int64_t i = r.first; i < r.first + r.count; i++) put_row(c, b, h, &r, i, out, lse);
            }
    free(r.kept);
}

/* ---- calls ------------------------------------------------------------------------------------------------
 */

/* Keys that grow weaker tile by tile, queries that all point their way. */
static void start(test_call *c, attn_dtype dtype, dims d)
{
    call_make(c, "TRTLLM_ATTN", dtype, d);
    call_mix32(c, 3, 4, 5);
    for (int64_t i = 0; i < tensor_count(&c->q.dl); i++)
        tensor_set_flat(&c->q.dl, i, fabs(tensor_flat(&c->q.dl, i)) + 0.5);
    for (int64_t b = 0; b < d.b; b++)
        for (int64_t j = 0; j < d.sk; j++)
            for (int64_t h = 0; h < d.hk; h++)
                for (int64_t x = 0; x < d.d; x++) {
                    int64_t at[] = {b, j, h, x};
                    tensor_set(&c->k.dl, at,
                               tensor_get(&c->k.dl, at) * 0.3 + 1.0 - 0.4 * (double)((j / TILE * 5) % 7));
                }
}

static void threshold_is_its_definition(void **state)
{
    (void)state;
    static const struct {
        dims d;
        attn_dtype dtype;
        double part;
        int causal;
    } list[] = {
        {{1, 300, 700, 2, 2, 16, 16}, ATTN_F32, 0.05, 0}, {{2, 130, 1000, 4, 2, 16, 24}, ATTN_F32, 0.3, 0},
        {{1, 5, 900, 2, 1, 32, 32}, ATTN_F32, 0.2, 0},    {{1, 400, 400, 2, 2, 16, 16}, ATTN_F32, 0.1, 1},
        {{1, 256, 900, 2, 2, 32, 32}, ATTN_BF16, 0.1, 0},
    };
    for (size_t n = 0; n < sizeof list / sizeof *list; n++) {
        test_call c;
        told t;
        tensor out, lse;
        char want[64];
        int64_t tiles, skipped;
        double atol = list[n].dtype == ATTN_F32 ? 1e-5 : 2e-2;
        attn_param item = attn_param_number("skip_softmax_threshold", list[n].part);
        attn_params params = {sizeof params, 1, &item};
        start(&c, list[n].dtype, list[n].d);
        c.layer.causal = list[n].causal;
        c.args.params = &params;
        if (forward(&c, &t, 1)) fail_msg("%s", c.error.text);
        define(&c, list[n].part, &out, &lse, &tiles, &skipped);
        assert_true(skipped > 0 && skipped < tiles);
        snprintf(want, sizeof want, "skipped %d of ", (int)skipped);
        text_has(t.report, want);
        assert_int_equal(t.sparse, 1);
        tensor_near("threshold", &c.out.dl, &out.dl, atol);
        tensor_near("threshold", &c.lse.dl, &lse.dl, list[n].dtype == ATTN_F32 ? 2e-5 : 2e-2);
        tensor_free(&out);
        tensor_free(&lse);
        call_free(&c);
    }
}

/* a exp(b target) over the number of keys is the threshold. */
static void calibration_gives_the_threshold(void **state)
{
    (void)state;
    test_call c;
    told t, u;
    const double a = 3, b = 5, target = 0.6, part = a * exp(b * target) / 900;
    attn_param items[] = {attn_param_number("target_sparsity", target), attn_param_number("calibration_a", a),
                          attn_param_number("calibration_b", b)};
    attn_param direct = attn_param_number("skip_softmax_threshold", part);
    attn_params params = {sizeof params, 3, items}, other = {sizeof other, 1, &direct};
    tensor first;
    start(&c, ATTN_F32, (dims){1, 200, 900, 2, 2, 16, 16});
    c.args.params = &params;
    if (forward(&c, &t, 1)) fail_msg("%s", c.error.text);
    tensor_make(&first, ATTN_F32, 4, c.out.shape);
    tensor_copy(&first.dl, &c.out.dl);
    c.args.params = &other;
    if (forward(&c, &u, 1)) fail_msg("%s", c.error.text);
    assert_string_equal(t.report, u.report);
    tensor_same("calibrated", &c.out.dl, &first.dl);
    params.count = 1;
    c.args.params = &params;
    refuses(&c, ATTN_KIND_INVALID_VALUE, "calibration");
    tensor_free(&first);
    call_free(&c);
}

static void nothing_is_skipped_without_cause(void **state)
{
    (void)state;
    test_call c;
    told t;
    tensor out, lse;
    attn_param item = attn_param_number("skip_softmax_threshold", 0);
    attn_params params = {sizeof params, 1, &item};
    start(&c, ATTN_F32, (dims){1, 200, 500, 2, 2, 16, 16});
    call_truth(&c, NULL, &out, &lse);
    for (int n = 0; n < 2; n++) {
        c.args.params = n ? &params : NULL;
        if (forward(&c, &t, 1)) fail_msg("%s", c.error.text);
        text_has(t.report, n ? "skipped 0 of" : "dense:no threshold");
        tensor_near("dense", &c.out.dl, &out.dl, 2e-5);
        tensor_near("dense", &c.lse.dl, &lse.dl, 2e-5);
    }
    tensor_free(&out);
    tensor_free(&lse);
    call_free(&c);
}

static void timesteps_gate_it(void **state)
{
    (void)state;
    test_call c;
    told t;
    double time = 0.9;
    attn_forward_state published = {.size = sizeof published, .samples = 1, .timestep = &time};
    start(&c, ATTN_F32, (dims){1, 200, 900, 2, 2, 16, 16});
    c.options.backend = NULL;
    c.options.config = "{\"default\":{\"backend\":\"TRTLLM_ATTN\",\"skip_softmax\":{\"threshold\":0.1,"
                       "\"disabled_until_timestep\":0.6}}}";
    if (forward(&c, &t, 3)) fail_msg("%s", c.error.text);
    text_has(t.report, "dense:no timestep");
    assert_int_equal(t.warnings, 1);
    assert_int_equal(t.dense, 3);
    c.args.forward = &published;
    if (forward(&c, &t, 1)) fail_msg("%s", c.error.text);
    text_has(t.report, "dense:timestep 0.9 is above 0.6");
    time = 0.6;
    if (forward(&c, &t, 1)) fail_msg("%s", c.error.text);
    text_has(t.report, "skipped");
    assert_int_equal(t.sparse, 1);
    c.options.config = "{\"default\":{\"backend\":\"TRTLLM_ATTN\",\"skip_softmax\":{\"threshold\":0.1},"
                       "\"quant\":{\"dtype_qk\":\"int8\"}}}";
    refuses(&c, ATTN_KIND_FEATURE_UNSUPPORTED, "quant");
    call_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threshold_is_its_definition),
        cmocka_unit_test(calibration_gives_the_threshold),
        cmocka_unit_test(nothing_is_skipped_without_cause),
        cmocka_unit_test(timesteps_gate_it),
    };
    return cmocka_run_group_tests_name("skip_softmax", tests, NULL, NULL);
}
