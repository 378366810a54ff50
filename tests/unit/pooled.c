/* pooled.c: FASTVIDEO_VSA and RAINFUSION_ATTN against a double evaluation of their definitions, and when they
 * are dense or refuse. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sparse/clock.h"
#include "sparse/cubes.h"

static uint32_t seed = 5;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

/* ---- a call and what its layer tells ----------------------------------------------------------------- */

typedef struct told {
    char report[200], plan[200];
    int64_t dense, sparse;
    double share, map, all; /* seconds of choosing, and of the whole call */
} told;

static attn_status forward(test_call *c, told *t)
{
    attn_context *context = context_open(&c->options);
    attn_layer *layer = NULL;
    c->error = (attn_error)ATTN_ERROR_INIT;
    attn_status status = attn_layer_open(context, &c->layer, &layer, &c->error);
    if (!status) {
        attn_layer_info info = {.size = sizeof info};
        double start = sparse_clock();
        status = attn_forward(layer, &c->args, &c->error);
        t->all = sparse_clock() - start;
        attn_layer_get_info(layer, &info);
        snprintf(t->report, sizeof t->report, "%s", info.report);
        snprintf(t->plan, sizeof t->plan, "%s", info.plan);
        t->dense = info.dense_calls, t->sparse = info.sparse_calls, t->share = info.kept_share;
        t->map = info.map_seconds;
        attn_layer_close(layer);
    }
    attn_close(context);
    return status;
}

static void runs(test_call *c, told *t)
{
    if (forward(c, t)) fail_msg("%s refused: %s", c->options.backend, c->error.text);
}

static void refuses(test_call *c, attn_kind kind, const char *word)
{
    told t;
    assert_int_not_equal(forward(c, &t), ATTN_OK);
    if (c->error.kind != kind) fail_msg("kind %s: %s", attn_kind_name(c->error.kind), c->error.text);
    text_has(c->error.text, word);
}

/* Choosing blocks is timed, as a part of the call; a dense pass chooses nothing. */
static void chose(const told *t, int any)
{
    assert_true(any ? t->map > 0 && t->map < t->all : t->map == 0);
}

/* ---- the definition, in double ------------------------------------------------------------------------ */

typedef struct definition {
    int64_t blocks, always, keep;
    const int64_t *starts, *order;
    const DLTensor *gate;
} definition;

static int64_t block_of(const definition *d, int64_t place)
{
    int64_t n = 0;
    while (d->starts[n + 1] <= place) n++;
    return n;
}

static double mean_of(const definition *d, const DLTensor *t, int64_t b, int64_t h, int64_t block, int64_t x)
{
    double sum = 0;
    for (int64_t place = d->starts[block]; place < d->starts[block + 1]; place++)
        sum += tensor_get(t, (int64_t[]){b, d->order ? d->order[place] : place, h, x});
    return sum / (double)(d->starts[block + 1] - d->starts[block]);
}

/* Mean scores of query block i against all. */
static void mean_scores(const definition *d, const test_call *c, int64_t b, int64_t h, int64_t i,
                        double *scores)
{
    int64_t width = c->q.shape[3];
    for (int64_t j = 0; j < d->blocks; j++) {
        scores[j] = 0;
        for (int64_t x = 0; x < width; x++)
            scores[j] +=
                mean_of(d, &c->q.dl, b, h, i, x) * mean_of(d, &c->k.dl, b, h, j, x) / sqrt((double)width);
    }
}

/* Whether block j is kept by block i: few other ones are better. */
static int keeps(const definition *d, const double *scores, int64_t i, int64_t j)
{
    int64_t better = 0;
    if (i < d->always || j < d->always) return 1;
    for (int64_t n = d->always; n < d->blocks; n++)
        better += scores[n] > scores[j] || (scores[n] == scores[j] && n < j);
    return better < d->keep;
}

static double exact_score(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    double sum = 0;
    for (int64_t x = 0; x < c->q.shape[3]; x++)
        sum += tensor_get(&c->q.dl, (int64_t[]){b, i, h, x}) * tensor_get(&c->k.dl, (int64_t[]){b, j, h, x});
    return sum / sqrt((double)c->q.shape[3]);
}

static void truth_row(const definition *d, const test_call *c, int64_t b, int64_t h, int64_t place, double *p,
                      const double *scores, const tensor *out)
{
    int64_t n = c->q.shape[1], block = block_of(d, place), token = d->order ? d->order[place] : place;
    double top = -INFINITY, sum = 0, coarse = 0;
    for (int64_t j = 0; j < n; j++) {
        int64_t key = d->order ? d->order[j] : j;
        p[j] = keeps(d, scores, block, block_of(d, j)) ? exact_score(c, b, h, token, key) : -INFINITY;
        top = fmax(top, p[j]);
    }
    for (int64_t j = 0; j < n; j++) sum += p[j] = exp(p[j] - top);
    for (int64_t j = 0; j < d->blocks; j++) coarse += exp(scores[j]);
    for (int64_t x = 0; x < c->v.shape[3]; x++) {
        double value = 0, mean = 0;
        for (int64_t j = 0; j < n; j++)
            value += p[j] / sum * tensor_get(&c->v.dl, (int64_t[]){b, d->order ? d->order[j] : j, h, x});
        for (int64_t j = 0; j < d->blocks && d->gate; j++)
            mean += exp(scores[j]) / coarse * mean_of(d, &c->v.dl, b, h, j, x);
        if (d->gate) value += mean * tensor_get(d->gate, (int64_t[]){b, token, h, x});
        tensor_set(&out->dl, (int64_t[]){b, token, h, x}, value);
    }
}

static void compare(const definition *d, const test_call *c, const char *label, double most)
{
    tensor out;
    double difference = 0, size = 0, *p = malloc(sizeof *p * (size_t)c->q.shape[1]);
    double *scores = malloc(sizeof *scores * (size_t)d->blocks);
    assert_non_null(p);
    assert_non_null(scores);
    tensor_make(&out, ATTN_F64, 4, c->out.shape);
    for (int64_t b = 0; b < c->q.shape[0]; b++)
        for (int64_t h = 0; h < c->q.shape[2]; h++)
            for (int64_t place = 0, block = -1; place < c->q.shape[1]; place++) {
                if (block_of(d, place) != block) mean_scores(d, c, b, h, block = block_of(d, place), scores);
                truth_row(d, c, b, h, place, p, scores, &out);
            }
    for (int64_t i = 0; i < tensor_count(&out.dl); i++) {
        double want = tensor_flat(&out.dl, i), got = tensor_flat(&c->out.dl, i);
        difference += (got - want) * (got - want);
        size += want * want;
    }
    if (!(sqrt(difference / size) <= most))
        fail_msg("%s: relative L2 %g, at most %g", label, sqrt(difference / size), most);
    tensor_free(&out);
    free(p);
    free(scores);
}

/* ---- VSA ----------------------------------------------------------------------------------------------- */

static void start(test_call *c, const char *backend, attn_dtype dtype, int64_t batch, int64_t tokens,
                  int64_t heads)
{
    call_make(c, backend, dtype, (dims){batch, tokens, tokens, heads, heads, 16, 16});
    call_mix32(c, draw(1000), draw(1000), draw(1000));
    c->args.lse = NULL;
}

static void cubes_are_counted_on_the_grid(void **state)
{
    (void)state;
    sparse_cubes c;
    attn_error error = ATTN_ERROR_INIT;
    int64_t starts[9], order[450], seen[450] = {0};
    static const int64_t sizes[] = {256, 64, 32, 8, 64, 16, 8, 2};
    assert_int_equal(sparse_cubes_make((int64_t[]){21, 52, 30}, (int64_t[]){4, 8, 8}, &c, &error), ATTN_OK);
    assert_int_equal(c.tokens, 32760);
    assert_int_equal(c.cubes, 168);
    assert_int_equal(sparse_keep_of(0.9, c.cubes), 17);
    assert_int_equal(sparse_keep_of(0.7, 10), 3);
    assert_int_equal(sparse_keep_of(1, 10), 1);
    assert_int_equal(sparse_keep_of(0, 10), 10);
    assert_int_equal(sparse_cubes_make((int64_t[]){5, 9, 10}, (int64_t[]){4, 8, 8}, &c, &error), ATTN_OK);
    sparse_cubes_order(&c, starts, order);
    for (int i = 0; i < 8; i++) assert_int_equal(starts[i + 1] - starts[i], sizes[i]);
    for (int i = 0; i < 450; i++) seen[order[i]]++;
    for (int i = 0; i < 450; i++) assert_int_equal(seen[i], 1);
    assert_int_equal(sparse_cubes_make((int64_t[]){5, 9, -1}, (int64_t[]){4, 8, 8}, &c, &error),
                     ATTN_INVALID_ARGUMENT);
}

static void vsa_is_its_definition(void **state)
{
    (void)state;
    static const struct {
        int64_t grid[3], cube[3], topk;
        attn_dtype dtype;
        int gate;
    } rows[] = {
        {{4, 8, 16}, {4, 8, 8}, 1, ATTN_F32, 0}, {{6, 9, 12}, {4, 8, 8}, 3, ATTN_F32, 0},
        {{5, 9, 10}, {4, 8, 8}, 3, ATTN_F32, 1}, {{8, 8, 8}, {2, 4, 4}, 4, ATTN_BF16, 0},
        {{8, 8, 8}, {2, 4, 4}, 4, ATTN_BF16, 1}, {{3, 7, 11}, {2, 4, 4}, 5, ATTN_F16, 1},
        {{1, 5, 40}, {4, 8, 8}, 2, ATTN_F32, 1},
    };
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        test_call c;
        tensor gate;
        sparse_cubes cubes;
        told t;
        char label[64];
        int64_t tokens = rows[n].grid[0] * rows[n].grid[1] * rows[n].grid[2];
        start(&c, "FASTVIDEO_VSA", rows[n].dtype, 2, tokens, 3);
        tensor_make(&gate, rows[n].dtype, 4, c.out.shape);
        tensor_mix32(&gate, 77, 1);
        attn_param items[] = {attn_param_ints("vsa_dit_seq_shape", rows[n].grid, 3, 0),
                              attn_param_ints("block_size", rows[n].cube, 3, 0),
                              attn_param_int("topk", rows[n].topk),
                              attn_param_make("gate_compress", ATTN_PARAM_TENSOR)};
        items[3].value.tensor = &gate.dl;
        attn_params params = {sizeof params, rows[n].gate ? 4 : 3, items};
        c.args.params = &params;
        snprintf(label, sizeof label, "VSA %zu", n);
        runs(&c, &t);
        assert_int_equal(sparse_cubes_make(rows[n].grid, rows[n].cube, &cubes, &c.error), ATTN_OK);
        int64_t *starts = calloc((size_t)(cubes.cubes + 1 + tokens), sizeof *starts),
                *order = starts + cubes.cubes + 1;
        assert_non_null(starts);
        sparse_cubes_order(&cubes, starts, order);
        definition d = {cubes.cubes, 0, rows[n].topk, starts, order, rows[n].gate ? &gate.dl : NULL};
        compare(&d, &c, label, rows[n].dtype == ATTN_F32 ? 1e-5 : rows[n].dtype == ATTN_F16 ? 1e-3 : 5e-3);
        chose(&t, 1);
        if (rows[n].topk < cubes.cubes) {
            assert_int_equal(t.sparse, 1);
            value_near("kept", t.share, (double)rows[n].topk / (double)cubes.cubes, 1e-9);
            text_has(t.report, "cubes");
        } else {
            text_has(t.report, "all");
        }
        free(starts);
        tensor_free(&gate);
        call_free(&c);
    }
}

/* Top-k of all cubes is dense attention; more than there are is clamped and told. */
static void vsa_with_all_blocks_is_dense(void **state)
{
    (void)state;
    const int64_t grid[] = {5, 9, 12};
    for (int preserve = 0; preserve < 2; preserve++) {
        test_call c;
        tensor out, lse;
        told t;
        start(&c, "FASTVIDEO_VSA", ATTN_F32, 1, 540, 2);
        c.args.lse = &c.lse.dl;
        attn_param items[] = {attn_param_ints("vsa_dit_seq_shape", grid, 3, 0), attn_param_int("topk", 1000),
                              attn_param_bool("preserve_vsa_all_blocks", preserve)};
        attn_params params = {sizeof params, 3, items};
        c.args.params = &params;
        runs(&c, &t);
        call_truth(&c, NULL, &out, &lse);
        tensor_near("all blocks", &c.out.dl, &out.dl, 2e-5);
        tensor_near("all blocks", &c.lse.dl, &lse.dl, 2e-5);
        text_has(t.report, preserve ? "all blocks (8 cubes)" : "dense:all blocks");
        assert_int_equal(t.dense, !preserve);
        chose(&t, preserve);
        assert_int_equal(t.sparse, 0);
        tensor_free(&out);
        tensor_free(&lse);
        call_free(&c);
    }
}

static void vsa_says_when_it_cannot(void **state)
{
    (void)state;
    const int64_t grid[] = {4, 16, 16}, wrong[] = {4, 16, 15}, latent[] = {4, 32, 32}, patch[] = {1, 2, 2};
    test_call c;
    told t;
    tensor gate;
    start(&c, "FASTVIDEO_VSA", ATTN_F32, 1, 1024, 1);
    refuses(&c, ATTN_KIND_FEATURE_UNSUPPORTED, "was not told the grid");
    attn_param items[] = {attn_param_ints("vsa_dit_seq_shape", wrong, 3, 0), attn_param_int("topk", 2)};
    attn_params params = {sizeof params, 2, items};
    c.args.params = &params;
    refuses(&c, ATTN_KIND_INVALID_VALUE, "960");
    items[0] = attn_param_ints("vsa_dit_seq_shape", grid, 3, 0);
    runs(&c, &t);
    text_has(t.report, "2 of 4 cubes");
    items[1] = attn_param_int("topk", 0);
    refuses(&c, ATTN_KIND_INVALID_VALUE, "topk");
    items[1] = attn_param_text("topk", "2");
    refuses(&c, ATTN_KIND_INVALID_TYPE, "topk");
    items[1] = attn_param_number("sparsity", 0.5);
    runs(&c, &t);
    text_has(t.report, "2 of 4 cubes");
    tensor_make(&gate, ATTN_F32, 4, (int64_t[]){1, 1024, 1, 8});
    items[1] = attn_param_make("gate_compress", ATTN_PARAM_TENSOR);
    items[1].value.tensor = &gate.dl;
    refuses(&c, ATTN_KIND_INVALID_SHAPE, "gate_compress");
    tensor_free(&gate);
    /* The per-forward state says the same as the parameter. */
    attn_forward_state published = {
        .size = sizeof published, .samples = 1, .latent_shape = latent, .patch_size = patch};
    items[0] = attn_param_int("topk", 1);
    params.count = 1;
    c.args.forward = &published;
    runs(&c, &t);
    text_has(t.report, "1 of 4 cubes");
    c.layer.causal = 1;
    refuses(&c, ATTN_KIND_FEATURE_UNSUPPORTED, "causal");
    c.layer.causal = 0;
    c.layer.scale = 0.5;
    refuses(&c, ATTN_KIND_FEATURE_UNSUPPORTED, "scale");
    call_free(&c);
    start(&c, "FASTVIDEO_VSA", ATTN_BF16, 1, 300, 1);
    runs(&c, &t);
    text_has(t.report, "dense:length 300 is below 512");
    assert_int_equal(t.dense, 1);
    call_free(&c);
}

/* ---- RainFusion ------------------------------------------------------------------------------------------
 */

/* Prefix of 21, then video of 16 x 128 rows in blocks of 64: 32 of them. */
enum { PREFIX = 21, VIDEO = 2048, STEP = 64 };
static const int64_t video_grid[] = {4, 16, 32};

static void start_video(test_call *c, attn_params *params, attn_param *items, attn_dtype dtype)
{
    start(c, "RAINFUSION_ATTN", dtype, 1, PREFIX + VIDEO, 1);
    items[0] = attn_param_ints("latent_grid", video_grid, 3, 0);
    items[1] = attn_param_int("prefix_length", PREFIX);
    items[2] = attn_param_int("block_size", STEP);
    items[3] = attn_param_number("sparsity", 0.75);
    *params = (attn_params){sizeof *params, 4, items};
    c->args.params = params;
}

static void rainfusion_is_its_definition(void **state)
{
    (void)state;
    test_call c;
    told t;
    attn_param items[5];
    attn_params params;
    int64_t starts[40], n = 0;
    starts[n++] = 0;
    for (int64_t at = PREFIX; at <= PREFIX + VIDEO; at += STEP) starts[n++] = at;
    definition d = {33, 1, 8, starts, NULL, NULL};
    start_video(&c, &params, items, ATTN_F32);
    runs(&c, &t);
    compare(&d, &c, "RainFusion", 1e-5);
    text_has(t.report, "9 of 33 blocks");
    chose(&t, 1);
    /* The share of dropped key blocks is the nominal one, the prefix aside. */
    value_near("kept", t.share, (33.0 + 32 * 9) / (33 * 33), 1e-9);
    call_free(&c);
}

static void rounding_is_that_of_fp8(void **state)
{
    (void)state;
    static const char *const words[] = {"bf16", "mix", "fp8"};
    double errors[3];
    for (int n = 0; n < 3; n++) {
        test_call c;
        told t;
        attn_param items[5];
        attn_params params;
        seed = 9;
        start_video(&c, &params, items, ATTN_F32);
        items[3] = attn_param_number("sparsity", 0.001);
        items[4] = attn_param_text("precision", words[n]);
        params.count = 5;
        runs(&c, &t);
        tensor out, lse;
        double difference = 0, size = 0;
        call_truth(&c, NULL, &out, &lse);
        for (int64_t i = 0; i < tensor_count(&out.dl); i++) {
            double want = tensor_flat(&out.dl, i), got = tensor_flat(&c.out.dl, i);
            difference += (got - want) * (got - want);
            size += want * want;
        }
        errors[n] = sqrt(difference / size);
        tensor_free(&out);
        tensor_free(&lse);
        call_free(&c);
    }
    assert_true(errors[0] < 1e-5);
    assert_true(errors[1] > 1e-3 && errors[1] < errors[2]);
    assert_true(errors[2] > 0.01 && errors[2] < 0.06);
}

static void steps_and_layers_stay_dense(void **state)
{
    (void)state;
    test_call c;
    told t;
    attn_param items[5];
    attn_params params;
    int64_t step, total = 10;
    attn_forward_state published = {
        .size = sizeof published, .samples = 1, .denoise_step = &step, .denoise_total = &total};
    start_video(&c, &params, items, ATTN_F32);
    c.options.backend = NULL;
    c.options.config =
        "{\"default\":{\"backend\":\"RAINFUSION_ATTN\",\"block_sparse\":{\"sparsity\":0.5,\"start_step\":3,"
        "\"end_step\":2,\"skip_layers\":\"0\"}}}";
    params.count = 3;
    refuses(&c, ATTN_KIND_FEATURE_UNSUPPORTED, "denoise step");
    c.args.forward = &published;
    for (int layer = 0; layer < 2; layer++)
        for (step = 0; step < 10; step++) {
            char reason[64];
            c.layer.prefix = layer ? "blocks.1.attn" : "blocks.0.attn";
            runs(&c, &t);
            int sparse = layer == 1 && step >= 3 && step < 8;
            snprintf(reason, sizeof reason, layer ? "dense:step %d is exempt" : "dense:layer 0 is exempt",
                     (int)step);
            assert_int_equal(t.sparse, sparse);
            assert_int_equal(t.dense, !sparse);
            text_has(t.report, sparse ? "17 of 33 blocks" : reason);
        }
    call_free(&c);
}

static void rainfusion_says_when_it_cannot(void **state)
{
    (void)state;
    test_call c;
    told t;
    attn_param items[5];
    attn_params params;
    start_video(&c, &params, items, ATTN_F32);
    items[1] = attn_param_int("prefix_length", 20);
    refuses(&c, ATTN_KIND_INVALID_VALUE, "2069 tokens");
    items[1] = attn_param_int("prefix_length", PREFIX);
    params.count = 4;
    items[2] = attn_param_int("block_size", 128);
    runs(&c, &t);
    text_has(t.report, "dense:2048 video rows are below 32 blocks of 128");
    items[3] = attn_param_number("sparsity", 0);
    runs(&c, &t);
    text_has(t.report, "dense:sparsity is 0");
    items[3] = attn_param_number("sparsity", 2);
    refuses(&c, ATTN_KIND_INVALID_VALUE, "sparsity");
    items[2] = attn_param_int("block_size", STEP);
    items[3] = attn_param_text("precision", "int4");
    refuses(&c, ATTN_KIND_INVALID_VALUE, "int4");
    items[3] = attn_param_number("sparsity", 0.5);
    items[0] = attn_param_int("nothing", 1);
    refuses(&c, ATTN_KIND_FEATURE_UNSUPPORTED, "was not told where the video stands");
    c.layer.causal = 1;
    refuses(&c, ATTN_KIND_FEATURE_UNSUPPORTED, "causal");
    call_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cubes_are_counted_on_the_grid), cmocka_unit_test(vsa_is_its_definition),
        cmocka_unit_test(vsa_with_all_blocks_is_dense),  cmocka_unit_test(vsa_says_when_it_cannot),
        cmocka_unit_test(rainfusion_is_its_definition),  cmocka_unit_test(rounding_is_that_of_fp8),
        cmocka_unit_test(steps_and_layers_stay_dense),   cmocka_unit_test(rainfusion_says_when_it_cannot),
    };
    return cmocka_run_group_tests_name("pooled", tests, NULL, NULL);
}
