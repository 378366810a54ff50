/* params.c: typed tables: reading and printing, strict look-ups; what calls hand to those who consume them.
 */
#include "support.h"

#include <dlfcn.h>
#include <string.h>

#define CONSUMES TEST_MODULES "/consumes.so"

static void print(const attn_params *params, const char *expected)
{
    char text[1024];
    attn_error error = ATTN_ERROR_INIT;
    assert_int_equal(attn_params_format(params, text, sizeof text, NULL, &error), ATTN_OK);
    assert_string_equal(text, expected);
}

static attn_params *parse(const char *json)
{
    attn_params *params = NULL;
    attn_error error = ATTN_ERROR_INIT;
    if (attn_params_parse(json, &params, &error)) fail_msg("%s: %s", json, error.text);
    return params;
}

static void text_comes_back_as_it_was(void **state)
{
    static const char *const same[] = {"{}",
                                       "{\"a\":1,\"b\":-2.5,\"c\":true,\"d\":false,\"e\":\"\",\"f\":null}",
                                       "{\"a\":[1,2,3],\"b\":[],\"c\":[0.5,1.0]}",
                                       "{\"a\":[[1,2,3],[4,5,6]],\"b\":[[0.5],[2.0]]}",
                                       "{\"a\":[\"x\",1,null],\"b\":[[1],[2,3]],\"c\":{\"d\":{\"e\":[[]]}}}",
                                       "{\"a\":9223372036854775807}"};
    (void)state;
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        attn_params *params = parse(same[i]);
        print(params, same[i]);
        attn_params_free(params);
    }
    print(NULL, "{}");
    attn_params_free(NULL);
}

static void types_are_what_they_look_like(void **state)
{
    (void)state;
    attn_params *p = parse("{\"i\":1,\"n\":1.0,\"b\":true,\"t\":\"x\",\"is\":[1],\"rows\":[[1,2],[3,4]],"
                           "\"mix\":[1,2.5],\"list\":[\"x\"],\"table\":{},\"z\":null}");
    static const struct {
        const char *name, *type;
    } rows[] = {{"i", "int"},     {"n", "number"},    {"b", "bool"},    {"t", "text"},      {"is", "ints"},
                {"rows", "ints"}, {"mix", "numbers"}, {"list", "list"}, {"table", "table"}, {"z", "null"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(attn_param_type_name(attn_params_find(p, rows[i].name)->type), rows[i].type);
    assert_int_equal(attn_params_find(p, "rows")->columns, 2);
    assert_int_equal(attn_params_find(p, "rows")->count, 4);
    assert_null(attn_params_find(p, "I"));
    assert_null(attn_params_find(NULL, "i"));
    assert_string_equal(attn_param_type_name(99), "unknown");
    attn_params_free(p);
}

static void refused(const char *json, attn_kind kind, const char *word)
{
    attn_params *params = NULL;
    attn_error error = ATTN_ERROR_INIT;
    assert_int_not_equal(attn_params_parse(json, &params, &error), ATTN_OK);
    assert_null(params);
    assert_string_equal(attn_kind_name(error.kind), attn_kind_name(kind));
    text_has(error.text, word);
}

static void what_is_no_table_is_refused(void **state)
{
    char deep[64] = "{\"a\":";
    (void)state;
    for (int i = 0; i < 20; i++) strcat(deep, "[");
    strcat(deep, "\"x\"");
    for (int i = 0; i < 20; i++) strcat(deep, "]");
    strcat(deep, "}");
    refused("{\"a\":", ATTN_KIND_SYNTAX, "line 1");
    refused("[1]", ATTN_KIND_INVALID_TYPE, "object");
    refused("{\"a\":1,\"a\":2}", ATTN_KIND_SYNTAX, "duplicate");
    refused("{\"a\":9223372036854775808}", ATTN_KIND_SYNTAX, "integer");
    refused(deep, ATTN_KIND_INVALID_VALUE, "deep");
    refused(NULL, ATTN_KIND_INVALID_VALUE, "NULL");
}

static void look_ups_are_strict(void **state)
{
    attn_error e = ATTN_ERROR_INIT;
    int32_t flag = 7;
    int64_t whole = 7;
    double number = 7;
    const char *text = "kept";
    (void)state;
    attn_params *p =
        parse("{\"i\":5,\"n\":0.5,\"b\":true,\"t\":\"fp8\",\"z\":null,\"is\":[1,2],\"r\":[[1,2]]}");
    assert_int_equal(attn_params_int(p, "i", 0, 10, &whole, &e), ATTN_OK);
    assert_int_equal(whole, 5);
    assert_int_equal(attn_params_number(p, "i", 0, 10, &number, &e), ATTN_OK);
    assert_true(number == 5);
    assert_int_equal(attn_params_bool(p, "b", &flag, &e), ATTN_OK);
    assert_int_equal(flag, 1);
    assert_int_equal(attn_params_word(p, "t", "bf16 fp8", &text, &e), ATTN_OK);
    assert_string_equal(text, "fp8");
    /* Absent and null leave the value alone. */
    whole = 9;
    assert_int_equal(attn_params_int(p, "absent", 0, 1, &whole, &e), ATTN_OK);
    assert_int_equal(attn_params_int(p, "z", 0, 1, &whole, &e), ATTN_OK);
    assert_int_equal(whole, 9);
    /* Nothing is converted that would hide a mistake. */
    assert_int_equal(attn_params_int(p, "n", 0, 1, &whole, &e), ATTN_INVALID_ARGUMENT);
    assert_int_equal(e.kind, ATTN_KIND_INVALID_TYPE);
    text_has(e.text, "n is of type number");
    assert_int_equal(attn_params_int(p, "b", 0, 1, &whole, &e), ATTN_INVALID_ARGUMENT);
    assert_int_equal(attn_params_number(p, "b", 0, 1, &number, &e), ATTN_INVALID_ARGUMENT);
    assert_int_equal(attn_params_bool(p, "i", &flag, &e), ATTN_INVALID_ARGUMENT);
    assert_int_equal(attn_params_int(p, "i", 6, 8, &whole, &e), ATTN_INVALID_ARGUMENT);
    assert_int_equal(e.kind, ATTN_KIND_INVALID_VALUE);
    text_has(e.text, "i is 5; it is 6 to 8");
    assert_int_equal(attn_params_word(p, "t", "bf16 mix", &text, &e), ATTN_INVALID_ARGUMENT);
    const int64_t *list;
    int64_t count;
    int32_t columns;
    assert_int_equal(attn_params_ints(p, "is", &list, &count, NULL, &e), ATTN_OK);
    assert_int_equal(count, 2);
    assert_int_equal(list[1], 2);
    assert_int_equal(attn_params_ints(p, "r", &list, &count, NULL, &e), ATTN_INVALID_ARGUMENT);
    assert_int_equal(attn_params_ints(p, "r", &list, &count, &columns, &e), ATTN_OK);
    assert_int_equal(columns, 2);
    assert_int_equal(attn_params_known(p, "i n b t z is r", &e), ATTN_OK);
    assert_int_equal(attn_params_known(p, "i n b t z is", &e), ATTN_INVALID_ARGUMENT);
    text_has(e.text, "'r'");
    attn_params_free(p);
}

/* ---- what a call hands over ----------------------------------------------------------------------- */

typedef struct seen {
    void *handle;
    char *text;
    int64_t *layer, *samples, *step;
    void (**meanwhile)(void);
} seen;

/* Over data symbols that the fixture exports; opened by its path it is the file that the context loaded. */
static seen look(void)
{
    seen s = {.handle = dlopen(CONSUMES, RTLD_NOW | RTLD_LOCAL)};
    assert_non_null(s.handle);
    s.text = dlsym(s.handle, "consumed");
    s.layer = dlsym(s.handle, "consumed_layer");
    s.samples = dlsym(s.handle, "consumed_samples");
    s.step = dlsym(s.handle, "consumed_step");
    s.meanwhile = dlsym(s.handle, "consumed_meanwhile");
    return s;
}

static void make(test_call *c, const char *backend)
{
    call_make(c, backend, ATTN_F32, (dims){2, 16, 16, 2, 2, 64, 64});
    call_mix32(c, 1, 2, 3);
    c->options.module_path = CONSUMES;
    c->options.overrides = "FLASH_ATTN=consumes,RAINFUSION_ATTN=consumes";
    c->options.backend = backend;
}

static int64_t steps[2] = {3, 4}, totals[2] = {20, 20};
static const int64_t latent[6] = {4, 4, 4, 4, 4, 4}, patch[6] = {1, 2, 2, 1, 2, 2};
static const attn_forward_state both = {.size = sizeof both,
                                        .samples = 2,
                                        .denoise_step = steps,
                                        .denoise_total = totals,
                                        .latent_shape = latent,
                                        .patch_size = patch};

static void tiers_merge_in_order(void **state)
{
    test_call c;
    seen s = look();
    (void)state;
    make(&c, "RAINFUSION_ATTN");
    attn_params *own = parse("{\"precision\":\"mine\",\"model\":1,\"gone\":5,\"empty\":\"\"}");
    attn_params *call = parse("{\"sparsity\":0.25,\"gone\":null,\"denoise_step_idx\":9}");
    c.layer.params = own;
    c.layer.prefix = "transformer_blocks.7.attn1";
    c.args.params = call;
    c.args.forward = &both;
    call_run(&c);
    /* The configuration's precision goes before the layer's, the call's sparsity before the configuration's.
     */
    assert_string_equal(
        s.text, "{\"precision\":\"bf16\",\"model\":1,\"empty\":\"\",\"sparsity\":0.25,\"start_step\":0,"
                "\"end_step\":0,\"denoise_step_idx\":9,\"total_denoise_steps\":[20,20],"
                "\"latent_shape\":[[4,4,4],[4,4,4]],\"patch_size\":[[1,2,2],[1,2,2]],"
                "\"total_latent_frames\":4,\"patches_per_frame\":4}");
    assert_int_equal(*s.layer, 7);
    assert_int_equal(*s.samples, 2);
    assert_int_equal(*s.step, 4);
    attn_params_free(own);
    attn_params_free(call);
    call_free(&c);
    dlclose(s.handle);
}

static void spoil(void)
{
    steps[1] = 99;
}

static void state_is_a_copy_and_may_be_installed(void **state)
{
    test_call c;
    seen s = look();
    static const int64_t one = 5;
    const attn_forward_state alike = {.size = sizeof alike, .samples = 1, .denoise_step = &one};
    (void)state;
    make(&c, "FLASH_ATTN");
    assert_null(attn_forward_state_install(&both));
    *s.meanwhile = spoil;
    call_run(&c);
    *s.meanwhile = NULL;
    assert_int_equal(*s.step, 4);
    steps[1] = 4;
    assert_ptr_equal(attn_forward_state_install(&alike), &both); /* scopes nest */
    call_run(&c);
    assert_string_equal(s.text, "{\"denoise_step_idx\":[5,5]}");
    c.args.forward = &both; /* the call's own goes first */
    call_run(&c);
    assert_int_equal(*s.step, 4);
    c.args.forward = NULL;
    assert_ptr_equal(attn_forward_state_install(NULL), &alike);
    call_run(&c);
    assert_string_equal(s.text, "{}");
    assert_int_equal(*s.samples, -1);
    call_free(&c);
    dlclose(s.handle);
}

static void wrong_states_are_refused(void **state)
{
    test_call c;
    attn_forward_state three = both, small = both;
    (void)state;
    make(&c, "FLASH_ATTN");
    three.samples = 3;
    c.args.forward = &three;
    assert_int_not_equal(call_try(&c), ATTN_OK);
    assert_int_equal(c.error.kind, ATTN_KIND_INVALID_SHAPE);
    text_has(c.error.text, "3 samples");
    small.size = 8;
    c.args.forward = &small;
    assert_int_not_equal(call_try(&c), ATTN_OK);
    assert_int_equal(c.error.kind, ATTN_KIND_INVALID_STRUCT);
    call_free(&c);
}

static int64_t states_built(const attn_context *context)
{
    attn_context_info info = {.size = sizeof info};
    attn_context_get_info(context, &info);
    return info.forward_states;
}

/* One context, two layers: only the one that consumes builds. */
static void dense_calls_build_none(void **state)
{
    test_call c;
    attn_layer *dense, *consuming;
    attn_error e = ATTN_ERROR_INIT;
    (void)state;
    make(&c, "FLASH_ATTN");
    c.options.backend = NULL;
    c.options.config = "{\"default\":\"TORCH_SDPA\",\"per_role\":{\"self\":\"FLASH_ATTN\"}}";
    attn_context *context = context_open(&c.options);
    attn_layer_options site = {.size = sizeof site, .role = "cross", .heads = 2, .head_dim = 64};
    assert_int_equal(attn_layer_open(context, &site, &dense, &e), ATTN_OK);
    site.role = "self";
    assert_int_equal(attn_layer_open(context, &site, &consuming, &e), ATTN_OK);
    c.args.forward = &both;
    for (int i = 0; i < 5; i++) assert_int_equal(attn_forward(dense, &c.args, &e), ATTN_OK);
    assert_int_equal(states_built(context), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(attn_forward(consuming, &c.args, &e), ATTN_OK);
    assert_int_equal(states_built(context), 3);
    c.args.forward = NULL; /* nothing is published, nothing is built */
    assert_int_equal(attn_forward(consuming, &c.args, &e), ATTN_OK);
    assert_int_equal(states_built(context), 3);
    attn_layer_close(dense);
    attn_layer_close(consuming);
    attn_close(context);
    call_free(&c);
}

static void models_say_what_they_are(void **state)
{
    int64_t shape[5] = {2, 16, 21, 60, 104}, got[3], total = 0;
    DLTensor hidden = {.ndim = 5, .shape = shape};
    (void)state;
    assert_int_equal(attn_latent_shape_of(&hidden, got), 1);
    assert_int_equal(got[0], 21);
    assert_int_equal(got[2], 104);
    hidden.ndim = 4;
    assert_int_equal(attn_latent_shape_of(&hidden, got), 0);
    assert_int_equal(attn_latent_shape_of(NULL, got), 0);
    attn_params *config = parse("{\"patch_size\":null,\"patch_size_t\":2,\"num_timesteps\":30}");
    attn_params *module = parse("{\"patch_size\":4}"), *odd = parse("{\"patch_size\":[1,2]}");
    assert_int_equal(attn_patch_size_of(config, module, got), 1);
    assert_int_equal(got[0], 2);
    assert_int_equal(got[1], 4);
    assert_int_equal(attn_patch_size_of(odd, NULL, got), 0);
    assert_int_equal(attn_denoise_total_of(config, &total), 1);
    assert_int_equal(total, 30);
    assert_int_equal(attn_denoise_total_of(module, &total), 0);
    attn_params_free(config);
    attn_params_free(module);
    attn_params_free(odd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_comes_back_as_it_was),   cmocka_unit_test(types_are_what_they_look_like),
        cmocka_unit_test(what_is_no_table_is_refused), cmocka_unit_test(look_ups_are_strict),
        cmocka_unit_test(tiers_merge_in_order),        cmocka_unit_test(state_is_a_copy_and_may_be_installed),
        cmocka_unit_test(wrong_states_are_refused),    cmocka_unit_test(dense_calls_build_none),
        cmocka_unit_test(models_say_what_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
