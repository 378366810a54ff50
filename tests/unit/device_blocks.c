/* device_blocks.c: selectors for tensors that the host cannot touch (modules/fake_gpu.c): their maps go to
 * the device, and what is there computes the same as the host does. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

#ifdef TEST_SELECTORS

static const DLDevice gpu = {kDLCUDA, 0};
enum { B = 2, FRAMES = 4, SIDE = 8, TOKENS = FRAMES * SIDE * SIDE, HEADS = 3, DIM = 16 };

static attn_context *open_with(const char *config)
{
    const attn_options options = {.size = sizeof options,
                                  .module_path = TEST_MODULES "/fake_gpu.so:" TEST_SELECTORS,
                                  .platform = "fake_gpu",
                                  .config = config,
                                  .threads = 2,
                                  .flags = ATTN_OPEN_IGNORE_ENV};
    setenv("FAKE_GPU", "1", 1);
    return context_open(&options);
}

typedef struct sides {
    test_call call;
    DLTensor there[4];
    tensor host_out;
} sides;

static void make_sides(sides *s, attn_context *c)
{
    attn_error error = ATTN_ERROR_INIT;
    call_make(&s->call, NULL, ATTN_BF16, (dims){B, TOKENS, TOKENS, HEADS, HEADS, DIM, DIM});
    call_mix32(&s->call, 1, 2, 3);
    s->call.args.lse = NULL;
    tensor_make(&s->host_out, ATTN_BF16, 4, s->call.out.shape);
    const tensor *from[] = {&s->call.q, &s->call.k, &s->call.v, &s->call.out};
    for (int i = 0; i < 4; i++) {
        s->there[i] = from[i]->dl;
        s->there[i].device = gpu;
        if (attn_device_alloc(c, gpu, from[i]->bytes, &s->there[i].data, &error) ||
            attn_device_copy(c, gpu, s->there[i].data, from[i]->memory, from[i]->bytes, NULL, &error))
            fail_msg("%s", error.text);
    }
}

static void drop_sides(sides *s, attn_context *c)
{
    for (int i = 0; i < 4; i++) attn_device_free(c, gpu, s->there[i].data);
    tensor_free(&s->host_out);
    call_free(&s->call);
}

static attn_layer_info run(attn_context *c, DLDevice device, const attn_layer_options *options,
                           const attn_args *args)
{
    attn_error error = ATTN_ERROR_INIT;
    attn_layer_options o = *options;
    attn_layer_info info = {.size = sizeof info};
    o.device = device;
    attn_layer *layer = layer_open(c, &o);
    for (int i = 0; i < 2; i++) /* memory is kept from one call to the next */
        if (attn_forward(layer, args, &error)) fail_msg("%s", error.text);
    attn_layer_get_info(layer, &info);
    attn_layer_close(layer);
    return info;
}

/* kept: whether some blocks must have been left out. */
static void same_on_both(const char *config, int kept)
{
    sides s;
    attn_error error = ATTN_ERROR_INIT;
    attn_context *c = open_with(config);
    make_sides(&s, c);
    attn_args args = s.call.args;
    args.out = &s.host_out.dl;
    attn_layer_info host = run(c, (DLDevice){kDLCPU, 0}, &s.call.layer, &args);
    args.q = &s.there[0], args.k = &s.there[1], args.v = &s.there[2], args.out = &s.there[3];
    attn_layer_info device = run(c, gpu, &s.call.layer, &args);
    if (attn_device_copy(c, gpu, s.call.out.memory, s.there[3].data, s.call.out.bytes, NULL, &error))
        fail_msg("%s", error.text);
    tensor_near(config, &s.call.out.dl, &s.host_out.dl, 1e-2);
    assert_int_equal(device.sparse_calls, host.sparse_calls);
    assert_int_equal(device.dense_calls, host.dense_calls);
    assert_int_equal(device.sparse_calls, kept ? 2 : 0);
    drop_sides(&s, c);
    attn_close(c);
}

static void maps_go_to_the_device(void **state)
{
    (void)state;
    same_on_both("{\"per_role\": {\"self\": {\"backend\": \"radial\", \"extra\": {\"grid\": [4, 8, 8], "
                 "\"decay\": 0.2, "
                 "\"sink_frames\": 0, \"block_q\": 16, \"block_k\": 16}}}}",
                 1);
    same_on_both("{\"per_role\": {\"self\": {\"backend\": \"sliding_tile\", \"extra\": {\"grid\": [4, 8, 8], "
                 "\"tile\": "
                 "[2, 4, 4], \"window\": [1, 1, 1], \"block_q\": 32, \"block_k\": 16}}}}",
                 1);
}

/* Steps that a schedule exempts are dense there, too. */
static void exempt_layers_are_dense_there(void **state)
{
    (void)state;
    sides s;
    attn_context *c =
        open_with("{\"per_role\": {\"self\": {\"backend\": \"radial\", \"extra\": {\"grid\": [4, 8, 8], "
                  "\"skip_layers\": [0, 1, 2]}}}}");
    make_sides(&s, c);
    s.call.layer.prefix = "blocks.2.attn";
    attn_args args = s.call.args;
    args.q = &s.there[0], args.k = &s.there[1], args.v = &s.there[2], args.out = &s.there[3];
    attn_layer_info info = run(c, gpu, &s.call.layer, &args);
    assert_int_equal(info.dense_calls, 2);
    drop_sides(&s, c);
    attn_close(c);
}

/* What reads q and k cannot choose for a device. */
static void selectors_that_read_are_refused(void **state)
{
    (void)state;
    attn_error error = ATTN_ERROR_INIT;
    attn_context *c = open_with("{\"per_role\": {\"self\": {\"backend\": \"mean_topk\"}}}");
    attn_layer_options o = {.size = sizeof o, .device = gpu, .heads = HEADS, .head_dim = DIM};
    attn_layer *layer = NULL;
    attn_layer_open(c, &o, &layer, &error);
    assert_int_equal(error.kind, ATTN_KIND_PLATFORM_UNSUPPORTED);
    text_has(error.text, "plugin:mean_topk runs on cpu");
    attn_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(maps_go_to_the_device),
        cmocka_unit_test(exempt_layers_are_dense_there),
        cmocka_unit_test(selectors_that_read_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

int main(void)
{
    return 0; /* without modules there are no selectors */
}

#endif
