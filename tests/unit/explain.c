/* explain.c: what is told about a choice is the choice, and it is told once. */
#include "support.h"

#include <stdio.h>
#include <string.h>

#define FIXTURE(name) TEST_MODULES "/" name ".so"

/* What a sink heard. */
typedef struct heard {
    int candidates, choices, reasons;
    char chosen[64], backends[1024], text[8192];
} heard;

static void listen(void *user, const attn_trace *t)
{
    heard *h = user;
    size_t used = strlen(h->backends), said = strlen(h->text);
    h->reasons += t->event == ATTN_TRACE_REASON;
    if (t->event == ATTN_TRACE_CANDIDATE && !t->implementation) {
        h->candidates++;
        snprintf(h->backends + used, sizeof h->backends - used, "[%s]", t->backend);
        assert_int_equal(t->usable != 0, t->kind == ATTN_KIND_NONE);
    }
    if (t->event == ATTN_TRACE_CHOICE) {
        h->choices++;
        snprintf(h->chosen, sizeof h->chosen, "%s", t->implementation);
    }
    snprintf(h->text + said, sizeof h->text - said, "%s\n", t->text ? t->text : "");
}

typedef struct request {
    const char *label, *backend, *config;
    int f64, scores, width;
} request;

static void same_answer(const request *r)
{
    test_call c;
    tensor scores;
    heard h = {0};
    attn_error told = ATTN_ERROR_INIT, silent = ATTN_ERROR_INIT;
    call_make(&c, r->backend, r->f64 ? ATTN_F64 : ATTN_F32, (dims){1, 3, 5, 2, 2, r->width, r->width});
    call_mix32(&c, 1, 2, 3);
    tensor_make(&scores, ATTN_F32, 4, (int64_t[]){1, 2, 3, 5});
    if (r->scores) c.args.scores = &scores.dl, c.args.scores_mode = ATTN_SCORES_PROBS;
    c.options.config = r->config;
    attn_context *context = context_open(&c.options);
    attn_status a = attn_explain(context, &c.layer, &c.args, listen, &h, &told);
    attn_status b = attn_explain(context, &c.layer, &c.args, NULL, NULL, &silent);
    attn_status f = call_try_in(&c, context);
    if (a != b || a != f || told.kind != silent.kind || told.kind != c.error.kind)
        fail_msg("%s: explain %d/%d (%s), forward %d (%s)", r->label, a, b, told.text, f, c.error.text);
    assert_string_equal(told.text, silent.text);
    if (a == ATTN_OK) {
        assert_int_equal(h.choices, 1);
        assert_string_equal(h.chosen, c.implementation);
    } else {
        assert_int_equal(h.choices, 0);
        assert_true(h.reasons > 0);
    }
    /* Every backend there is was judged, with a word on each. */
    attn_backend_info info = {.size = sizeof info};
    for (size_t i = 0; attn_backend_at(context, i, &info); i++) {
        char name[80];
        snprintf(name, sizeof name, "[%s]", info.name);
        text_has(h.backends, name);
        h.candidates--;
    }
    assert_int_equal(h.candidates, 0);
    attn_close(context);
    tensor_free(&scores);
    call_free(&c);
}

static void explain_agrees_with_forward(void **state)
{
    (void)state;
    static const request requests[] = {
        {"auto", "auto", NULL, 0, 0, 64},
        {"nothing said", NULL, NULL, 0, 0, 64},
        {"plain", "TORCH_SDPA", NULL, 0, 0, 64},
        {"flash", "FLASH_ATTN", NULL, 0, 0, 64},
        {"lower case", "flash_attn", NULL, 0, 0, 64},
        {"flash with scores", "FLASH_ATTN", NULL, 0, 1, 64},
        {"auto with scores", "auto", NULL, 0, 1, 64},
        {"flash in f64", "FLASH_ATTN", NULL, 1, 0, 64},
        {"auto in f64", "auto", NULL, 1, 0, 64},
        {"vendor's", "CUDNN_ATTN", NULL, 0, 0, 64},
        {"not here", "SAGE_ATTN_3", NULL, 0, 0, 64},
        {"per role", NULL, "{\"per_role\": {\"self\": \"TORCH_SDPA\"}}", 0, 0, 64},
        {"unusual width", "auto", NULL, 0, 0, 37},
    };
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) same_answer(&requests[i]);
}

static void refusals_name_a_way_out(void **state)
{
    (void)state;
    test_call c;
    call_make(&c, "CUDNN_ATTN", ATTN_F32, (dims){1, 3, 5, 2, 2, 64, 64});
    assert_int_equal(call_try(&c), ATTN_UNSUPPORTED);
    assert_int_equal(c.error.kind, ATTN_KIND_PLATFORM_UNSUPPORTED);
    text_has(c.error.text, "CUDNN_ATTN");
    text_has(c.error.text, "cpu");
    text_has(c.error.text, "TORCH_SDPA"); /* usable instead */
    call_free(&c);
}

/* Roles: exact, then category, then default, then the platform; the source is part of the answer. */
static void sources_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *role, *category, *backend, *source;
        int explicit_choice;
    } rows[] = {
        {"self", NULL, "TORCH_SDPA", "per_role['self']", 1},
        {"video.self", "self", "TORCH_SDPA", "self", 1},
        {"joint", NULL, "FLASH_ATTN", "default", 1},
    };
    attn_options options = {
        .size = sizeof options,
        .module_path = "",
        .config = "{\"default\": {\"backend\": \"FLASH_ATTN\"}, \"per_role\": {\"self\": \"TORCH_SDPA\"}}"};
    attn_context *context = context_open(&options);
    attn_layer_info info = {.size = sizeof info};
    for (int i = 0; i < 3; i++) {
        attn_layer_options site = {.size = sizeof site,
                                   .role = rows[i].role,
                                   .category = rows[i].category,
                                   .heads = 2,
                                   .head_dim = 64};
        attn_layer *layer = layer_open(context, &site);
        attn_layer_get_info(layer, &info);
        assert_string_equal(info.backend, rows[i].backend);
        assert_int_equal(info.explicit_choice, rows[i].explicit_choice);
        text_has(info.source, rows[i].source);
        attn_layer_close(layer);
    }
    attn_close(context);
    options.config = NULL;
    options.flags = ATTN_OPEN_IGNORE_ENV;
    context = context_open(&options);
    attn_layer_options site = {.size = sizeof site, .heads = 2, .head_dim = 64};
    attn_layer *layer = layer_open(context, &site);
    attn_layer_get_info(layer, &info);
    assert_int_equal(info.explicit_choice, 0);
    text_has(info.source, "platform");
    attn_layer_close(layer);
    attn_close(context);
}

static void count_lines(void *user, int32_t level, const char *text)
{
    int *lines = user;
    if (level == ATTN_LOG_INFO && strstr(text, "role '")) lines[0]++;
    if (level == ATTN_LOG_WARNING) lines[1]++;
}

/* Three roles of forty layers and ten steps each make three lines, and one demotion one warning a layer at
 * most. */
static void selections_are_logged_once(void **state)
{
    (void)state;
    static const char *const roles[] = {"self", "cross", "joint"};
    int lines[2] = {0, 0};
    test_call c;
    tensor scores;
    call_make(&c, "auto", ATTN_F32, (dims){1, 3, 5, 2, 2, 16, 16});
    call_mix32(&c, 1, 2, 3);
    tensor_make(&scores, ATTN_F32, 4, (int64_t[]){1, 2, 3, 5});
    c.options.log = count_lines;
    c.options.log_user = lines;
    attn_context *context = context_open(&c.options);
    for (int n = 0; n < 120; n++) {
        c.layer.role = roles[n % 3];
        attn_layer *layer = layer_open(context, &c.layer);
        for (int step = 0; step < 10; step++)
            if (attn_forward(layer, &c.args, &c.error)) fail_msg("%s", c.error.text);
        attn_layer_close(layer);
    }
    assert_int_equal(lines[0], 3);
    assert_int_equal(lines[1], 0);
    c.args.scores = &scores.dl;
    c.args.scores_mode = ATTN_SCORES_PROBS;
    attn_layer *layer = layer_open(context, &c.layer);
    for (int step = 0; step < 10; step++)
        if (attn_forward(layer, &c.args, &c.error)) fail_msg("%s", c.error.text);
    attn_layer_close(layer);
    assert_int_equal(lines[1], 1);
    attn_close(context);
    tensor_free(&scores);
    call_free(&c);
}

/* What a layer says it needs filters automatic candidates when it opens. */
static void needs_filter_at_opening(void **state)
{
    (void)state;
    attn_options options = {.size = sizeof options, .backend = "auto", .module_path = ""};
    attn_context *context = context_open(&options);
    attn_layer_options site = {
        .size = sizeof site, .heads = 2, .head_dim = 64, .needs = ATTN_FEATURE(SCORES)};
    attn_layer_info info = {.size = sizeof info};
    attn_layer *layer = layer_open(context, &site);
    attn_layer_get_info(layer, &info);
    assert_string_equal(info.backend, "TORCH_SDPA");
    text_has(info.reason, "FLASH_ATTN was passed over");
    text_has(info.reason, "scores");
    attn_layer_close(layer);
    attn_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(explain_agrees_with_forward),
        cmocka_unit_test(refusals_name_a_way_out),
        cmocka_unit_test(sources_are_told),
        cmocka_unit_test(selections_are_logged_once),
        cmocka_unit_test(needs_filter_at_opening),
    };
    return cmocka_run_group_tests_name("explain", tests, NULL, NULL);
}
