/* blocksparse.c: field cases of block maps, VSA and RainFusion. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "field.h"
#include "sparse/cubes.h"

/* ---- maps ---------------------------------------------------------------------------------------- */

static attn_block_map *make_map(int64_t length, int64_t block_q, int64_t block_k, const uint8_t *keep)
{
    attn_block_map *map = NULL;
    attn_error error = ATTN_ERROR_INIT;
    attn_block_shape shape = {.size = sizeof shape,
                              .batch = 1,
                              .heads = 1,
                              .q_len = length,
                              .kv_len = length,
                              .block_q = block_q,
                              .block_k = block_k};
    if (attn_block_map_from_mask(&shape, keep, &map, &error)) fail_msg("%s", error.text);
    return map;
}

static int lower_left(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    (void)c, (void)b, (void)h;
    return j / 128 <= i / 128;
}

static int not_third(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    (void)c, (void)b, (void)h, (void)j;
    return i / 64 != 2;
}

static void run_map(int64_t length, int64_t width, int64_t block, const uint8_t *mask, uint32_t seed,
                    keep_fn keep)
{
    FOR_BACKENDS(backend)
    {
        test_call c;
        tensor out, lse;
        attn_block_map *map = make_map(length, block, block, mask);
        call_make(&c, *backend, ATTN_F32, (dims){1, length, length, 1, 1, width, width});
        call_mix32(&c, seed, seed + 1, seed + 2);
        c.args.block_map = map;
        call_run(&c);
        call_truth(&c, keep, &out, &lse);
        tensor_near(*backend, &c.out.dl, &out.dl, 1e-5);
        tensor_near(*backend, &c.lse.dl, &lse.dl, 1e-5);
        tensor_free(&out);
        tensor_free(&lse);
        call_free(&c);
        attn_block_map_free(map);
    }
}

/* The last block holds 72 tokens. */
void blocksparse_02(void **state)
{
    (void)state;
    run_map(200, 16, 128, (const uint8_t[]){1, 0, 1, 1}, 163, lower_left);
}

void blocksparse_04(void **state)
{
    (void)state;
    run_map(256, 8, 64, (const uint8_t[]){1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1}, 11, not_third);
}

/* A map that was built in blocks of 128 x 64 says that they are 64 x 128. */
void blocksparse_05(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        attn_block_map *map = make_map(256, 128, 64, (const uint8_t[]){1, 1, 0, 0, 1, 1, 1, 1}), wrong = *map;
        call_make(&c, *backend, ATTN_F32, (dims){1, 256, 256, 1, 1, 8, 8});
        call_mix32(&c, 1, 2, 3);
        wrong.block_q = 64;
        wrong.block_k = 128;
        c.args.block_map = &wrong;
        assert_int_equal(call_try(&c), ATTN_INVALID_ARGUMENT);
        text_has(c.error.text, "64");
        text_has(c.error.text, "128");
        call_free(&c);
        attn_block_map_free(map);
    }
}

/* ---- backends ------------------------------------------------------------------------------------ */

/* Runs a call in a layer of its own; report and share are the layer's. */
static attn_status forward(test_call *c, char report[200], double *share)
{
    attn_context *context = context_open(&c->options);
    attn_layer *layer = NULL;
    c->error = (attn_error)ATTN_ERROR_INIT;
    attn_status status = attn_layer_open(context, &c->layer, &layer, &c->error);
    if (!status) status = attn_forward(layer, &c->args, &c->error);
    if (layer) {
        attn_layer_info info = {.size = sizeof info};
        attn_layer_get_info(layer, &info);
        snprintf(report, 200, "%s", info.report);
        *share = info.kept_share;
    }
    attn_layer_close(layer);
    attn_close(context);
    return status;
}

static void must(test_call *c, char report[200], double *share)
{
    if (forward(c, report, share)) fail_msg("refused: %s", c->error.text);
}

void blocksparse_01(void **state)
{
    (void)state;
    const int64_t grid[] = {1, 1, 100}, cube[] = {1, 1, 64};
    for (int preserve = 0; preserve < 2; preserve++) {
        test_call c;
        tensor out, lse;
        char report[200];
        double share;
        attn_param items[] = {attn_param_ints("vsa_dit_seq_shape", grid, 3, 0),
                              attn_param_ints("block_size", cube, 3, 0), attn_param_int("topk", 16),
                              attn_param_bool("preserve_vsa_all_blocks", preserve)};
        attn_params params = {sizeof params, 4, items};
        call_make(&c, "FASTVIDEO_VSA", ATTN_F32, (dims){1, 100, 100, 2, 2, 8, 8});
        call_mix32(&c, 1, 2, 3);
        c.args.params = &params;
        must(&c, report, &share);
        text_has(report, "all blocks");
        text_has(report, "2 cubes");
        value_near("kept", share, 1, 0);
        call_truth(&c, NULL, &out, &lse);
        tensor_near("dense", &c.out.dl, &out.dl, 1e-5);
        tensor_free(&out);
        tensor_free(&lse);
        call_free(&c);
    }
}

void vsa_01(void **state)
{
    (void)state;
    sparse_cubes c;
    attn_error error = ATTN_ERROR_INIT;
    assert_int_equal(sparse_cubes_make((int64_t[]){21, 52, 30}, (int64_t[]){4, 8, 8}, &c, &error), ATTN_OK);
    assert_int_equal(c.tokens, 32760);
    assert_int_equal(c.cubes, 168);
    assert_int_equal(sparse_keep_of(0.9, c.cubes), 17);
}

void vsa_02(void **state)
{
    (void)state;
    static const int64_t sizes[] = {256, 64, 32, 8, 64, 16, 8, 2};
    sparse_cubes c;
    int64_t starts[9], order[450];
    attn_error error = ATTN_ERROR_INIT;
    assert_int_equal(sparse_cubes_make((int64_t[]){5, 9, 10}, (int64_t[]){4, 8, 8}, &c, &error), ATTN_OK);
    assert_int_equal(c.cubes, 8);
    sparse_cubes_order(&c, starts, order);
    for (int i = 0; i < 8; i++) assert_int_equal(starts[i + 1] - starts[i], sizes[i]);
    assert_int_equal(starts[8], 450);
}

void blocksparse_07(void **state)
{
    (void)state;
    const int64_t grid[] = {1, 1, 256};
    int64_t step, total = 10;
    char report[200];
    double share;
    test_call c;
    attn_forward_state published = {
        .size = sizeof published, .samples = 1, .denoise_step = &step, .denoise_total = &total};
    attn_param items[] = {attn_param_ints("latent_grid", grid, 3, 0), attn_param_int("block_size", 64),
                          attn_param_int("blocks_least", 4)};
    attn_params params = {sizeof params, 3, items};
    call_make(&c, NULL, ATTN_F32, (dims){1, 256, 256, 1, 1, 16, 16});
    call_mix32(&c, 1, 2, 3);
    c.options.config = "{\"default\":{\"backend\":\"RAINFUSION_ATTN\",\"block_sparse\":{\"start_step\":3,"
                       "\"end_step\":2,\"skip_layers\":\"0\"}}}";
    c.args.params = &params;
    c.args.forward = &published;
    for (int layer = 0; layer < 2; layer++)
        for (step = 0; step < total; step++) {
            c.layer.prefix = layer ? "transformer.blocks.1.attn" : "transformer.blocks.0.attn";
            must(&c, report, &share);
            if (layer == 1 && step >= 3 && step <= 7) {
                text_has(report, "1 of 4 blocks");
                assert_true(share < 1);
            } else {
                text_has(report, layer ? "dense:step" : "dense:layer 0");
                value_near("kept", share, 1, 0);
            }
        }
    call_free(&c);
}

static void start_prefix(test_call *c, attn_params *params, attn_param *items)
{
    static const int64_t grid[] = {2, 8, 16};
    items[0] = attn_param_ints("latent_grid", grid, 3, 0);
    items[1] = attn_param_int("prefix_length", 5);
    items[2] = attn_param_int("block_size", 64);
    items[3] = attn_param_int("blocks_least", 4);
    items[4] = attn_param_number("sparsity", 0.75);
    *params = (attn_params){sizeof *params, 5, items};
    call_make(c, "RAINFUSION_ATTN", ATTN_F32, (dims){1, 261, 261, 1, 1, 16, 16});
    call_mix32(c, 166, 167, 168);
    c->args.params = params;
}

void blocksparse_10(void **state)
{
    (void)state;
    char report[200];
    double share;
    test_call c;
    attn_param items[5];
    attn_params params;
    tensor out, lse;
    start_prefix(&c, &params, items);
    must(&c, report, &share);
    text_has(report, "2 of 5 blocks"); /* the prefix, and one of the video's four */
    call_truth(&c, NULL, &out, &lse);
    int differs = 0;
    for (int64_t i = 0; i < 261; i++)
        for (int64_t x = 0; x < 16; x++) {
            double got = tensor_get(&c.out.dl, (int64_t[]){0, i, 0, x}),
                   dense = tensor_get(&out.dl, (int64_t[]){0, i, 0, x});
            if (i < 5) value_near("prefix query", got, dense, 1e-5);
            differs |= fabs(got - dense) > 1e-3;
        }
    assert_true(differs);
    /* Only prefix keys have values: every query has seen them. */
    for (int64_t j = 0; j < 261; j++)
        for (int64_t x = 0; x < 16; x++) tensor_set(&c.v.dl, (int64_t[]){0, j, 0, x}, j < 5);
    must(&c, report, &share);
    for (int64_t i = 0; i < 261; i++) assert_true(tensor_get(&c.out.dl, (int64_t[]){0, i, 0, 0}) > 1e-3);
    tensor_free(&out);
    tensor_free(&lse);
    call_free(&c);
}

/* sparsity is the share of key blocks that are dropped; the report says kept and total. */
void config_10(void **state)
{
    (void)state;
    static const struct {
        const char *sparsity, *report;
        double share;
    } rows[] = {{"0.8", "2 of 10 blocks", 0.2},
                {"0.0", "dense:sparsity is 0", 1},
                {"1.0", "1 of 10 blocks", 0.1},
                {"1.5", NULL, 0},
                {"-0.1", NULL, 0}};
    const int64_t grid[] = {1, 1, 640};
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        test_call c;
        char config[160], report[200];
        double share;
        attn_param items[] = {attn_param_ints("latent_grid", grid, 3, 0), attn_param_int("block_size", 64),
                              attn_param_int("blocks_least", 10)};
        attn_params params = {sizeof params, 3, items};
        call_make(&c, NULL, ATTN_F32, (dims){1, 640, 640, 1, 1, 16, 16});
        call_mix32(&c, 1, 2, 3);
        snprintf(config, sizeof config,
                 "{\"default\":{\"backend\":\"RAINFUSION_ATTN\",\"block_sparse\":{\"sparsity\":%s}}}",
                 rows[n].sparsity);
        c.options.config = config;
        c.args.params = &params;
        if (rows[n].report) {
            must(&c, report, &share);
            text_has(report, rows[n].report);
            value_near("kept", share, rows[n].share, 1e-9);
        } else {
            attn_context *context = NULL;
            assert_int_equal(attn_open(&c.options, &context, &c.error), ATTN_INVALID_ARGUMENT);
            text_has(c.error.text, "sparsity");
        }
        call_free(&c);
    }
}
