/* llm_config.c: the parsing law of --attention-config, its fields, and who may name a backend. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a configuration comes to after options "name", "value", ...; the kind of the first failure. */
typedef struct outcome {
    attn_kind kind;
    char text[2048];
    char error[2048];
    char warnings[1024];
    uint64_t hash;
} outcome;

static outcome read_options(const char *const *words)
{
    outcome o = {0};
    attn_config *config = NULL;
    attn_error error = ATTN_ERROR_INIT;
    attn_status status = attn_config_new(&config, &error);
    for (; !status && *words; words += 2) status = attn_config_set_option(config, words[0], words[1], &error);
    if (!status)
        status = attn_config_domain_text(config, ATTN_DOMAIN_LLM, o.text, sizeof o.text, NULL, &error);
    if (!status) status = attn_config_llm_hash(config, &o.hash, &error);
    const char *warning;
    for (size_t i = 0; (warning = attn_config_warning_at(config, i)); i++) {
        size_t used = strlen(o.warnings);
        snprintf(o.warnings + used, sizeof o.warnings - used, "%s\n", warning);
    }
    o.kind = error.kind;
    snprintf(o.error, sizeof o.error, "%s", error.text);
    attn_config_free(config);
    return o;
}
#define READ(...) read_options((const char *const[]){__VA_ARGS__, NULL})

static void holds(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("\"%s\" does not hold \"%s\"", text, part);
}

static void defaults(void **state)
{
    (void)state;
    outcome o = read_options((const char *const[]){NULL});
    assert_int_equal(o.kind, 0);
    static const char *const lines[] = {"\"backend\": null",
                                        "\"flash_attn_version\": null",
                                        "\"use_prefill_decode_attention\": false",
                                        "\"flash_attn_max_num_splits_for_cuda_graph\": 32",
                                        "\"use_cudnn_prefill\": false",
                                        "\"use_trtllm_ragged_deepseek_prefill\": null",
                                        "\"use_trtllm_attention\": null",
                                        "\"disable_flashinfer_prefill\": true",
                                        "\"disable_flashinfer_q_quantization\": false",
                                        "\"use_prefill_query_quantization\": false"};
    const char *at = o.text;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        at = strstr(at, lines[i]); /* in the order of the fields */
        if (!at) fail_msg("no %s in its place in %s", lines[i], o.text);
    }
}

static void values_are_json_or_text(void **state)
{
    (void)state;
    holds(READ("attention-config.use_cudnn_prefill", "1").text, "\"use_cudnn_prefill\": true");
    holds(READ("attention-config.use_cudnn_prefill", "true").text, "\"use_cudnn_prefill\": true");
    holds(READ("ac.disable_flashinfer_prefill", "0").text, "\"disable_flashinfer_prefill\": false");
    holds(READ("ac.disable_flashinfer_prefill", "false").text, "\"disable_flashinfer_prefill\": false");
    holds(READ("ac.use_trtllm_attention", "null").text, "\"use_trtllm_attention\": null");
    holds(READ("ac.backend", "FLASH_ATTN").text, "\"backend\": \"FLASH_ATTN\"");
    holds(READ("ac.backend", "\"flash_attn\"").text, "\"backend\": \"FLASH_ATTN\"");
    holds(READ("ac.flash_attn_max_num_splits_for_cuda_graph", "16").text, "graph\": 16");
    /* No size suffixes here. */
    assert_int_equal(READ("ac.flash_attn_max_num_splits_for_cuda_graph", "1k").kind, ATTN_KIND_INVALID_TYPE);
}

static void underscores_before_the_dot(void **state)
{
    (void)state;
    holds(READ("attention_config.use_cudnn_prefill", "1").text, "\"use_cudnn_prefill\": true");
    holds(READ("attention_backend", "TRITON_ATTN").text, "\"backend\": \"TRITON_ATTN\"");
    /* Keys keep theirs. */
    assert_int_equal(READ("attention-config.use-cudnn-prefill", "1").kind, ATTN_KIND_UNKNOWN_OR_MISSING_KEY);
}

static void all_forms_merge_in_order(void **state)
{
    (void)state;
    outcome o = READ("attention-config", "{\"backend\": \"FLASHINFER\", \"use_cudnn_prefill\": true}",
                     "ac.flash_attn_version", "2", "attention-config.backend", "TRITON_ATTN", "ac",
                     "{\"use_trtllm_attention\": 0}");
    assert_int_equal(o.kind, 0);
    holds(o.text, "\"backend\": \"TRITON_ATTN\"");
    holds(o.text, "\"use_cudnn_prefill\": true");
    holds(o.text, "\"flash_attn_version\": 2");
    holds(o.text, "\"use_trtllm_attention\": false");
    holds(o.warnings, "'backend'");
    holds(READ("ac.backend", "TRITON_ATTN", "ac", "{\"backend\": \"FLASHINFER\"}").text, "\"FLASHINFER\"");
}

static void a_key_said_twice_is_warned_of(void **state)
{
    (void)state;
    outcome o = READ("ac.flash_attn_version", "3", "ac.flash_attn_version", "2");
    holds(o.text, "\"flash_attn_version\": 2");
    holds(o.warnings, "flash_attn_version");
    assert_string_equal(READ("ac.flash_attn_version", "3", "ac.use_cudnn_prefill", "1").warnings, "");
}

static void a_plus_appends_an_item(void **state)
{
    (void)state;
    /* No field takes a list, and the message shows what the list became. */
    outcome o = READ("ac.backend+", "A,B", "ac.backend+", "7");
    assert_int_equal(o.kind, ATTN_KIND_INVALID_TYPE);
    holds(o.error, "[\"A,B\",7]");
    assert_string_equal(o.warnings, "");
}

static void a_backend_is_named_once(void **state)
{
    (void)state;
    const attn_kind twice = ATTN_KIND_MUTUALLY_EXCLUSIVE_BACKEND_OPTIONS;
    assert_int_equal(READ("attention-backend", "FLASH_ATTN", "ac.backend", "FLASHINFER").kind, twice);
    assert_int_equal(READ("attention-backend", "FLASH_ATTN", "ac.backend", "FLASH_ATTN").kind, twice);
    assert_int_equal(READ("ac", "{\"backend\": \"FLASH_ATTN\"}", "attention-backend", "auto").kind, twice);
    /* A structured auto counts as not given, and so does null. */
    holds(READ("attention-backend", "FLASH_ATTN", "ac.backend", "auto").text, "\"backend\": \"FLASH_ATTN\"");
    holds(READ("attention-backend", "FLASH_ATTN", "ac.backend", "null").text, "\"backend\": \"FLASH_ATTN\"");
    holds(READ("attention-backend", "AUTO", "ac.backend", "Auto").text, "\"backend\": null");
    /* Other keys are fine beside the flag. */
    assert_int_equal(READ("attention-backend", "FLASH_ATTN", "ac.flash_attn_version", "2").kind, 0);
    outcome o = READ("attention-backend", "FLASH_ATTN", "ac.backend", "FLASHINFER");
    holds(o.error, "--attention-backend");
    holds(o.error, "--attention-config.backend");
}

static void names_are_known(void **state)
{
    (void)state;
    outcome o = READ("attention-backend", "FLASH_ATN");
    assert_int_equal(o.kind, ATTN_KIND_UNKNOWN_BACKEND);
    holds(o.error, "'FLASH_ATN'");
    holds(o.error, "did you mean FLASH_ATTN");
    attn_llm_name_info name = {.size = sizeof name};
    for (size_t i = 0; attn_llm_name_at(i, &name); i++) {
        char list[2048];
        snprintf(list, sizeof list, "%s,", strstr(o.error, "valid:"));
        holds(list, name.name);
        assert_int_equal(READ("attention-backend", name.name).kind, 0);
    }
    assert_int_equal(READ("attention-backend", "").kind, ATTN_KIND_UNKNOWN_BACKEND);
    assert_int_equal(READ("ac.backend", "").kind, ATTN_KIND_UNKNOWN_BACKEND);
    assert_int_equal(READ("ac.backend", "XFORMERS").kind, ATTN_KIND_UNKNOWN_BACKEND);
}

static void values_are_checked(void **state)
{
    (void)state;
    assert_int_equal(READ("ac.flash_attn_version", "1").kind, ATTN_KIND_INVALID_VALUE);
    assert_int_equal(READ("ac.flash_attn_version", "5").kind, ATTN_KIND_INVALID_VALUE);
    assert_int_equal(READ("ac.flash_attn_version", "2.5").kind, ATTN_KIND_INVALID_TYPE);
    assert_int_equal(READ("ac.use_cudnn_prefill", "2").kind, ATTN_KIND_INVALID_VALUE);
    assert_int_equal(READ("ac.use_cudnn_prefill", "null").kind, ATTN_KIND_INVALID_TYPE);
    assert_int_equal(READ("ac.flash_attn_max_num_splits_for_cuda_graph", "-1").kind, ATTN_KIND_INVALID_VALUE);
    assert_int_equal(READ("ac.backend", "3").kind, ATTN_KIND_INVALID_TYPE);
    outcome o = READ("ac.use_cudnn_prefil", "1");
    assert_int_equal(o.kind, ATTN_KIND_UNKNOWN_OR_MISSING_KEY);
    holds(o.error, "did you mean use_cudnn_prefill");
    assert_int_equal(READ("ac.a.b", "1").kind, ATTN_KIND_UNKNOWN_OR_MISSING_KEY);
    assert_int_equal(READ("ac", "{\"backend\": ").kind, ATTN_KIND_SYNTAX);
    assert_int_equal(READ("ac", "[1]").kind, ATTN_KIND_INVALID_TYPE);
    assert_int_equal(READ("ac..", "1").kind, ATTN_KIND_SYNTAX);
    assert_int_equal(READ("ac.", "1").kind, ATTN_KIND_SYNTAX);
    assert_int_equal(READ("ac.backend", "\xff").kind, ATTN_KIND_SYNTAX);
    assert_int_equal(READ("attention-backend.x", "1").kind, ATTN_KIND_SYNTAX);
    assert_int_equal(READ("attention-confg.x", "1").kind, ATTN_KIND_UNKNOWN_NAME);
}

/* Every field keys the caches: any change of one changes the hash, and nothing else does. */
static void every_field_is_hashed(void **state)
{
    (void)state;
    static const char *const changes[][2] = {{"ac.backend", "FLEX_ATTENTION"},
                                             {"ac.flash_attn_version", "3"},
                                             {"ac.use_prefill_decode_attention", "1"},
                                             {"ac.flash_attn_max_num_splits_for_cuda_graph", "31"},
                                             {"ac.use_cudnn_prefill", "1"},
                                             {"ac.use_trtllm_ragged_deepseek_prefill", "0"},
                                             {"ac.use_trtllm_attention", "0"},
                                             {"ac.disable_flashinfer_prefill", "0"},
                                             {"ac.disable_flashinfer_q_quantization", "1"},
                                             {"ac.use_prefill_query_quantization", "1"}};
    enum { CHANGES = sizeof changes / sizeof *changes };
    uint64_t seen[CHANGES + 1] = {read_options((const char *const[]){NULL}).hash};
    assert_true(seen[0] == READ("ac.use_cudnn_prefill", "0").hash);
    for (int i = 0; i < CHANGES; i++) {
        seen[i + 1] = READ(changes[i][0], changes[i][1]).hash;
        for (int j = 0; j <= i; j++) assert_true(seen[i + 1] != seen[j]);
    }
}

static void the_canonical_text_reads_back(void **state)
{
    (void)state;
    outcome once =
        READ("ac.backend", "flashmla", "ac.use_trtllm_attention", "1", "ac.flash_attn_version", "4");
    outcome again = READ("attention-config", once.text);
    assert_string_equal(once.text, again.text);
    assert_true(once.hash == again.hash);
}

/* Options of a program and options of an attn_options say the same. */
static void programs_say_the_same(void **state)
{
    (void)state;
    attn_context *context = NULL;
    attn_error error = ATTN_ERROR_INIT;
    attn_options o = {.size = sizeof o,
                      .flags = ATTN_OPEN_IGNORE_ENV,
                      .module_path = "",
                      .llm_backend = "FLASH_ATTN",
                      .llm_config = "{\"backend\": \"FLASH_ATTN\"}"};
    assert_int_not_equal(attn_open(&o, &context, &error), 0);
    assert_int_equal(error.kind, ATTN_KIND_MUTUALLY_EXCLUSIVE_BACKEND_OPTIONS);
    o.llm_config = "{\"flash_attn_version\": 2}";
    assert_int_equal(attn_open(&o, &context, &error), 0);
    attn_close(context);
    o.vision_backend = "fa5";
    assert_int_not_equal(attn_open(&o, &context, &error), 0);
    assert_int_equal(error.kind, ATTN_KIND_UNKNOWN_BACKEND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(defaults),
                                       cmocka_unit_test(values_are_json_or_text),
                                       cmocka_unit_test(underscores_before_the_dot),
                                       cmocka_unit_test(all_forms_merge_in_order),
                                       cmocka_unit_test(a_key_said_twice_is_warned_of),
                                       cmocka_unit_test(a_plus_appends_an_item),
                                       cmocka_unit_test(a_backend_is_named_once),
                                       cmocka_unit_test(names_are_known),
                                       cmocka_unit_test(values_are_checked),
                                       cmocka_unit_test(every_field_is_hashed),
                                       cmocka_unit_test(the_canonical_text_reads_back),
                                       cmocka_unit_test(programs_say_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
