/* selection.c: overrides of implementations, the process's platform, what is said of a machine, trace lines.
 */
#include "support.h"

#include <stdio.h>
#include <string.h>

typedef struct lines {
    char text[8192];
    int warnings;
} lines;

static void keep_line(void *user, int32_t level, const char *text)
{
    lines *l = user;
    size_t used = strlen(l->text);
    l->warnings += level == ATTN_LOG_WARNING;
    snprintf(l->text + used, sizeof l->text - used, "%s\n", text);
}

static attn_context *open_with_template(void)
{
    attn_options o = {
        .size = sizeof o, .platform = "cpu", .backend = "TORCH_SDPA", .module_path = TEST_TEMPLATE};
    return context_open(&o);
}

static const char *implementation_of(const attn_layer *layer)
{
    static char name[64];
    attn_layer_info info = {.size = sizeof info};
    attn_layer_get_info(layer, &info);
    snprintf(name, sizeof name, "%s", info.implementation);
    return name;
}

static const attn_layer_options site = {.size = sizeof site, .heads = 2, .head_dim = 8};

static void a_layer_may_replace_its_implementation(void **state)
{
    static const char *const tables[] = {"TORCH_SDPA=template_plain", "SDPA=template_plain",
                                         "sdpa=template_plain",
                                         "CUDNN_ATTN=nothing,TORCH_SDPA=template_plain"};
    (void)state;
    attn_context *context = open_with_template();
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        attn_layer_options o = site;
        o.impl_overrides = tables[i];
        attn_layer *layer = layer_open(context, &o);
        assert_string_equal(implementation_of(layer), "template_plain");
        attn_layer_close(layer);
    }
    attn_layer *plain = layer_open(context, &site); /* other layers are as they were */
    assert_string_equal(implementation_of(plain), "cpu_reference");
    attn_layer_close(plain);
    attn_close(context);
}

static void a_replacement_must_serve_the_backend(void **state)
{
    attn_error error = ATTN_ERROR_INIT;
    attn_layer *layer;
    attn_layer_options o = site;
    (void)state;
    attn_context *context = open_with_template();
    o.impl_overrides = "TORCH_SDPA=cpu_flash";
    assert_int_equal(attn_layer_open(context, &o, &layer, &error), ATTN_INVALID_ARGUMENT);
    text_has(error.text, "cpu_flash");
    text_has(error.text, "TORCH_SDPA");
    text_has(error.text, "FLASH_ATTN");
    o.impl_overrides = "TORCH_SDPA=nobody";
    assert_int_equal(attn_layer_open(context, &o, &layer, &error), ATTN_INVALID_ARGUMENT);
    text_has(error.text, "nobody");
    o.impl_overrides = "TORCH_SDPA";
    assert_int_equal(attn_layer_open(context, &o, &layer, &error), ATTN_INVALID_ARGUMENT);
    assert_int_equal(error.kind, ATTN_KIND_SYNTAX);
    attn_close(context);
}

static void overrides_come_and_go(void **state)
{
    test_call c;
    attn_error error = ATTN_ERROR_INIT;
    attn_override_info info = {.size = sizeof info};
    (void)state;
    call_make(&c, "TORCH_SDPA", ATTN_F32, (dims){1, 4, 4, 2, 2, 8, 8});
    call_mix32(&c, 1, 2, 3);
    c.options.module_path = TEST_TEMPLATE;
    attn_context *context = context_open(&c.options);
    attn_layer *layer = layer_open(context, &c.layer);
    assert_int_equal(attn_forward(layer, &c.args, NULL), ATTN_OK);
    assert_string_equal(implementation_of(layer), "cpu_reference");
    assert_false(attn_override_at(context, 0, &info));
    assert_int_equal(attn_override_set(context, "torch_sdpa", "template_plain", &error), ATTN_OK);
    assert_true(attn_override_at(context, 0, &info));
    assert_string_equal(info.backend, "TORCH_SDPA");
    assert_string_equal(info.implementation, "template_plain");
    assert_int_equal(attn_forward(layer, &c.args, NULL), ATTN_OK); /* the layer was open before */
    assert_string_equal(implementation_of(layer), "template_plain");
    assert_int_equal(attn_override_set(context, "TORCH_SDPA", NULL, &error), ATTN_OK);
    assert_int_equal(attn_forward(layer, &c.args, NULL), ATTN_OK);
    assert_string_equal(implementation_of(layer), "cpu_reference");
    assert_int_equal(attn_override_set(context, "FLASH_ATTN", "template_plain", &error),
                     ATTN_INVALID_ARGUMENT);
    assert_int_equal(error.kind, ATTN_KIND_UNKNOWN_NAME);
    assert_int_equal(attn_override_set(context, "FLASHY", "template_plain", &error), ATTN_INVALID_ARGUMENT);
    assert_int_equal(error.kind, ATTN_KIND_UNKNOWN_BACKEND);
    attn_layer_close(layer);
    attn_close(context);
    call_free(&c);
}

/* A cached answer does not outlive the override that it was made without. */
static void overrides_reach_cached_answers(void **state)
{
    attn_resolution r = {.size = sizeof r};
    attn_query q = {.size = sizeof q, .head_size = 64};
    (void)state;
    attn_context *context = open_with_template();
    for (int i = 0; i < 2; i++) assert_int_equal(attn_resolve(context, &q, &r, NULL, NULL, NULL), ATTN_OK);
    assert_string_equal(r.implementation, "cpu_reference");
    assert_int_equal(attn_override_set(context, "TORCH_SDPA", "template_plain", NULL), ATTN_OK);
    assert_int_equal(attn_resolve(context, &q, &r, NULL, NULL, NULL), ATTN_OK);
    assert_string_equal(r.implementation, "template_plain");
    attn_close(context);
}

/* A replacement that fails when it runs is passed over once, like any automatic choice. */
static void a_failing_replacement_is_demoted(void **state)
{
    test_call c;
    (void)state;
    call_make(&c, NULL, ATTN_F32, (dims){1, 4, 4, 2, 2, 8, 8});
    call_mix32(&c, 1, 2, 3);
    c.options.module_path = TEST_MODULES "/fails_at_run.so";
    c.layer.impl_overrides = "FLASH_ATTN=fails_at_run";
    attn_context *context = context_open(&c.options);
    attn_layer *layer = layer_open(context, &c.layer);
    assert_int_equal(attn_forward(layer, &c.args, NULL), ATTN_OK);
    attn_layer_info info = {.size = sizeof info};
    attn_layer_get_info(layer, &info);
    assert_int_equal(info.demotions, 1);
    assert_string_equal(info.backend, "TORCH_SDPA");
    attn_layer_close(layer);
    attn_close(context);
    call_free(&c);
}

/* A platform that only a module knows has rows of its own for the automatic choice, and says what is missing.
 */
static void a_platform_from_a_module_is_chosen_for(void **state)
{
    attn_error error = ATTN_ERROR_INIT;
    attn_resolution r = {.size = sizeof r};
    attn_query q = {.size = sizeof q, .head_size = 64};
    (void)state;
    attn_options o = {.size = sizeof o, .module_path = TEST_MODULES "/vendor_a.so"};
    attn_context *context = context_open(&o);
    assert_int_equal(attn_resolve(context, &q, &r, NULL, NULL, &error), ATTN_NOT_AVAILABLE);
    text_has(error.text, "no implementation of TORCH_SDPA for vendor_a");
    attn_close(context);
}

/* What fails in one call leaves the layer as it was: the next call that can run does, and its facts can be
 * read. */
static void a_refused_call_harms_no_later_one(void **state)
{
    test_call c;
    tensor scores;
    attn_error error = ATTN_ERROR_INIT;
    (void)state;
    call_make(&c, NULL, ATTN_F32, (dims){1, 4, 4, 2, 2, 8, 8});
    call_mix32(&c, 1, 2, 3);
    c.options.module_path = TEST_TEMPLATE;
    attn_context *context = context_open(&c.options);
    attn_layer *layer = layer_open(context, &c.layer);
    assert_int_equal(attn_forward(layer, &c.args, NULL), ATTN_OK);
    assert_int_equal(attn_override_set(context, "FLASH_ATTN", "cpu_flash", NULL), ATTN_OK);
    assert_int_equal(attn_override_set(context, "TORCH_SDPA", "template_plain", NULL), ATTN_OK);
    tensor_make(&scores, ATTN_F32, 4, (int64_t[]){1, 2, 4, 4});
    c.args.scores = &scores.dl;
    c.args.scores_mode = ATTN_SCORES_PROBS;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(attn_forward(layer, &c.args, &error), ATTN_UNSUPPORTED);
        assert_string_equal(implementation_of(layer), "cpu_flash");
    }
    c.args.scores = NULL;
    c.args.scores_mode = 0;
    assert_int_equal(attn_forward(layer, &c.args, NULL), ATTN_OK);
    attn_layer_info info = {.size = sizeof info};
    attn_layer_get_info(layer, &info);
    assert_int_equal(info.demotions, 0); /* a verdict is no failure of an implementation */
    attn_layer_close(layer);
    attn_close(context);
    tensor_free(&scores);
    call_free(&c);
}

/* An override under which the role cannot run refuses every call, until it is cleared. */
static void an_impossible_override_refuses_every_call(void **state)
{
    test_call c;
    attn_error error = ATTN_ERROR_INIT;
    (void)state;
    call_make(&c, "TORCH_SDPA", ATTN_F32, (dims){1, 4, 4, 2, 2, 300, 300}); /* beyond the template's 256 */
    call_mix32(&c, 1, 2, 3);
    c.options.module_path = TEST_TEMPLATE;
    attn_context *context = context_open(&c.options);
    attn_layer *layer = layer_open(context, &c.layer);
    assert_int_equal(attn_forward(layer, &c.args, NULL), ATTN_OK);
    assert_int_equal(attn_override_set(context, "TORCH_SDPA", "template_plain", NULL), ATTN_OK);
    for (int i = 0; i < 3; i++) assert_int_equal(attn_forward(layer, &c.args, &error), ATTN_UNSUPPORTED);
    text_has(error.text, "300");
    assert_string_equal(implementation_of(layer), "cpu_reference");
    assert_int_equal(attn_override_set(context, "TORCH_SDPA", NULL, NULL), ATTN_OK);
    assert_int_equal(attn_forward(layer, &c.args, NULL), ATTN_OK);
    attn_layer_close(layer);
    attn_close(context);
    call_free(&c);
}

/* A module that fails without a word still fails. */
static void a_wordless_failure_is_one(void **state)
{
    test_call c;
    (void)state;
    call_make(&c, "FLASH_ATTN", ATTN_F32, (dims){1, 4, 4, 2, 2, 8, 8});
    call_mix32(&c, 1, 2, 3);
    c.options.module_path = TEST_MODULES "/wordless.so";
    c.options.overrides = "FLASH_ATTN=wordless";
    assert_int_equal(call_try(&c), ATTN_OUT_OF_MEMORY);
    text_has(c.error.text, "wordless");
    text_has(c.error.text, "gave no reason");
    call_free(&c);
}

static void the_process_has_a_platform(void **state)
{
    attn_error error = ATTN_ERROR_INIT;
    (void)state;
    assert_int_equal(attn_platform_set_current("musa", &error), ATTN_OK);
    assert_string_equal(attn_platform_current(&error), "musa");
    assert_int_equal(attn_platform_set_current("abacus", &error), ATTN_INVALID_ARGUMENT);
    text_has(error.text, "abacus");
    assert_string_equal(attn_platform_current(&error), "musa");
    assert_int_equal(attn_platform_set_current(NULL, &error), ATTN_OK);
    assert_non_null(attn_platform_current(&error));
}

static void resolve_on(const char *facts_text, lines *log)
{
    attn_facts *facts;
    attn_resolution r = {.size = sizeof r};
    attn_query q = {.size = sizeof q, .head_size = 128};
    memset(log, 0, sizeof *log);
    assert_int_equal(attn_facts_parse(facts_text, &facts, NULL), ATTN_OK);
    attn_options o = {.size = sizeof o, .facts = facts, .module_path = "", .log = keep_line, .log_user = log};
    attn_context *context = context_open(&o);
    for (int i = 0; i < 3; i++) {
        q.role = i ? "cross" : "self";
        assert_int_equal(attn_resolve(context, &q, &r, NULL, NULL, NULL), ATTN_OK);
    }
    attn_close(context);
    attn_facts_free(facts);
}

static void oddities_of_a_machine_are_told_once(void **state)
{
    lines log;
    (void)state;
    resolve_on("{\"platform\": \"cuda\", \"compute_capability\": [10, 0], \"cudnn_version\": 90400}", &log);
    assert_int_equal(log.warnings, 1);
    text_has(log.text, "older than 9.5");
    resolve_on("{\"platform\": \"cuda\", \"compute_capability\": [11, 0], \"cudnn_version\": 91002}", &log);
    assert_int_equal(log.warnings, 0);
    text_has(log.text, "none of 10.0, 10.3, 12.0 and 12.1");
    resolve_on("{\"platform\": \"cuda\", \"compute_capability\": [9, 0], \"cudnn_version\": 90400}", &log);
    assert_int_equal(log.warnings, 0);
}

static void events_become_lines(void **state)
{
    char text[256], json[512];
    attn_trace t = {.size = sizeof t,
                    .event = ATTN_TRACE_CANDIDATE,
                    .kind = ATTN_KIND_PACKAGE_MISSING,
                    .role = "cross",
                    .source = "platform default",
                    .backend = "SAGE_ATTN",
                    .text = "nothing \"is\" installed"};
    (void)state;
    size_t needed = attn_trace_format(&t, 0, text, sizeof text);
    assert_int_equal(needed, strlen(text) + 1);
    text_has(text, "SAGE_ATTN: refused (package_missing): nothing");
    needed = attn_trace_format(&t, 1, json, sizeof json);
    assert_int_equal(needed, strlen(json) + 1);
    text_has(json, "\"event\":\"candidate\"");
    text_has(json, "\\\"is\\\"");
    assert_null(strstr(json, "implementation"));
    attn_trace_format(&t, 1, text, 8); /* cut, but terminated */
    assert_int_equal(strlen(text), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_may_replace_its_implementation),
        cmocka_unit_test(a_replacement_must_serve_the_backend),
        cmocka_unit_test(overrides_come_and_go),
        cmocka_unit_test(overrides_reach_cached_answers),
        cmocka_unit_test(a_failing_replacement_is_demoted),
        cmocka_unit_test(a_platform_from_a_module_is_chosen_for),
        cmocka_unit_test(a_refused_call_harms_no_later_one),
        cmocka_unit_test(an_impossible_override_refuses_every_call),
        cmocka_unit_test(a_wordless_failure_is_one),
        cmocka_unit_test(the_process_has_a_platform),
        cmocka_unit_test(oddities_of_a_machine_are_told_once),
        cmocka_unit_test(events_become_lines),
    };
    return cmocka_run_group_tests_name("selection", tests, NULL, NULL);
}
