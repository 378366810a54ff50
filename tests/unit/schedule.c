/* schedule.c: dense first and last steps and exempt layers, alone and in the backends that have them. */
#include "support.h"

#include <stdio.h>
#include <string.h>

#include "sparse/schedule.h"

typedef struct fixture {
    attn_problem problem;
    attn_call call;
    attn_forward_state forward;
    attn_error error;
    int64_t step[2], total[2];
    char text[64];
} fixture;

static void make(fixture *f, int64_t batch, int64_t layer)
{
    memset(f, 0, sizeof *f);
    f->error = (attn_error)ATTN_ERROR_INIT;
    f->problem = (attn_problem){.size = sizeof f->problem, .batch = batch};
    f->forward = (attn_forward_state){
        .size = sizeof f->forward, .samples = batch, .denoise_step = f->step, .denoise_total = f->total};
    f->call = (attn_call){
        .size = sizeof f->call, .problem = &f->problem, .forward = &f->forward, .layer_index = layer};
    f->total[0] = f->total[1] = 20;
}

static attn_status ask(fixture *f, const char *json)
{
    attn_params *params = NULL;
    sparse_schedule s;
    if (attn_params_parse(json, &params, &f->error)) fail_msg("%s", f->error.text);
    attn_status status = sparse_schedule_read(params, &s, &f->error);
    if (!status) status = sparse_schedule_ask(&s, "TEST_ATTN", &f->call, f->text, sizeof f->text, &f->error);
    attn_params_free(params);
    return status;
}

static void is(fixture *f, const char *json, int64_t step, const char *text)
{
    f->step[0] = f->step[1] = step;
    if (ask(f, json)) fail_msg("%s", f->error.text);
    assert_string_equal(f->text, text);
}

static void first_and_last_steps_are_dense(void **state)
{
    (void)state;
    const char *json = "{\"start_step\": 3, \"end_step\": 2}";
    fixture f;
    make(&f, 2, -1);
    is(&f, json, 0, "dense:step 0 is exempt");
    is(&f, json, 2, "dense:step 2 is exempt");
    is(&f, json, 3, "");
    is(&f, json, 17, "");
    is(&f, json, 18, "dense:step 18 is exempt");
    is(&f, json, 19, "dense:step 19 is exempt");
    is(&f, "{}", 0, "");
    f.call.forward = NULL;
    is(&f, "{}", 0, "");
}

static void layers_are_exempt_by_number(void **state)
{
    (void)state;
    const char *json = "{\"skip_layers\": [0, 5], \"start_step\": 1}";
    fixture f;
    make(&f, 1, 5);
    is(&f, json, 9, "dense:layer 5 is exempt");
    f.call.layer_index = 4;
    is(&f, json, 9, "");
    is(&f, json, 0, "dense:step 0 is exempt");
    f.call.layer_index = -1;
    is(&f, json, 9, "");
}

static void what_cannot_be_told_is_refused(void **state)
{
    (void)state;
    fixture f;
    make(&f, 2, -1);
    f.forward.denoise_total = NULL;
    is(&f, "{\"start_step\": 3}", 3, "");
    assert_int_equal(ask(&f, "{\"end_step\": 3}"), ATTN_UNSUPPORTED);
    text_has(f.error.text, "TEST_ATTN");
    text_has(f.error.text, "number of steps");
    f.call.forward = NULL;
    assert_int_equal(ask(&f, "{\"start_step\": 3}"), ATTN_UNSUPPORTED);
    text_has(f.error.text, "denoise step");
    f.call.forward = &f.forward;
    f.step[0] = 2, f.step[1] = 3;
    assert_int_equal(ask(&f, "{\"start_step\": 3}"), ATTN_INVALID_ARGUMENT);
    text_has(f.error.text, "sample 1");
    assert_int_equal(ask(&f, "{\"start_step\": -1}"), ATTN_INVALID_ARGUMENT);
    assert_int_equal(ask(&f, "{\"skip_layers\": \"0-3\"}"), ATTN_INVALID_ARGUMENT);
    text_has(f.error.text, "skip_layers");
}

/* ---- in a backend ------------------------------------------------------------------------------------- */

static void count_warnings(void *user, int32_t level, const char *text)
{
    if (level == ATTN_LOG_WARNING && strstr(text, "never turned sparse")) ++*(int *)user;
}

/* Runs all steps; returns how many calls were sparse. */
static int64_t run_steps(const char *json, int64_t steps, int *warnings)
{
    test_call c;
    attn_params *params = NULL;
    int64_t step = 0, latent[3] = {4, 8, 8}, patch[3] = {1, 1, 1};
    attn_forward_state forward = {.size = sizeof forward,
                                  .samples = 1,
                                  .denoise_step = &step,
                                  .denoise_total = &steps,
                                  .latent_shape = latent,
                                  .patch_size = patch};
    attn_layer_info info = {.size = sizeof info};
    *warnings = 0;
    call_make(&c, "FASTVIDEO_VSA", ATTN_F32, (dims){1, 256, 256, 1, 1, 16, 16});
    call_mix32(&c, 1, 2, 3);
    c.options.log = count_warnings;
    c.options.log_user = warnings;
    if (attn_params_parse(json, &params, &c.error)) fail_msg("%s", c.error.text);
    c.layer.params = params;
    c.layer.prefix = "blocks.1.attn";
    c.args.forward = &forward;
    attn_context *context = context_open(&c.options);
    attn_layer *layer = layer_open(context, &c.layer);
    for (; step < steps; step++)
        if (attn_forward(layer, &c.args, &c.error)) fail_msg("%s", c.error.text);
    attn_layer_get_info(layer, &info);
    attn_layer_close(layer);
    attn_close(context);
    attn_params_free(params);
    call_free(&c);
    return info.sparse_calls;
}

static void backends_follow_it_and_warn_when_nothing_is_sparse(void **state)
{
    (void)state;
    int warnings;
    const char *cubes = "{\"block_size\": [2, 4, 4], \"topk\": 2%s}";
    const struct {
        const char *more;
        int64_t sparse;
        int warnings;
    } rows[] = {{"", 6, 0},
                {", \"start_step\": 2, \"end_step\": 1", 3, 0},
                {", \"start_step\": 5", 1, 0},
                {", \"start_step\": 4, \"end_step\": 2", 0, 1},
                {", \"skip_layers\": [1]", 0, 1},
                {", \"skip_layers\": [2]", 6, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char json[128];
        snprintf(json, sizeof json, cubes, rows[i].more);
        assert_int_equal(run_steps(json, 6, &warnings), rows[i].sparse);
        assert_int_equal(warnings, rows[i].warnings);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_and_last_steps_are_dense),
        cmocka_unit_test(layers_are_exempt_by_number),
        cmocka_unit_test(what_cannot_be_told_is_refused),
        cmocka_unit_test(backends_follow_it_and_warn_when_nothing_is_sparse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
