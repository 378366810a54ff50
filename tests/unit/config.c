/* config.c: configuration text in, a role's backend and its source out. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct row {
    const char *flag, *json, *environment, *role, *category;
    attn_kind kind;
    const char *backend; /* on success; on failure a word of the text */
    const char *source;  /* on success a part of the source; on failure a second word */
    int automatic;
} row;

static const row rows[] = {
    /* where a choice comes from */
    {.role = "self", .backend = "FLASH_ATTN", .source = "platform", .automatic = 1},
    {.flag = "TORCH_SDPA", .role = "self", .backend = "TORCH_SDPA", .source = "default"},
    {.flag = "torch_sdpa", .role = "self", .backend = "TORCH_SDPA", .source = "default"},
    {.environment = "TORCH_SDPA", .role = "self", .backend = "TORCH_SDPA", .source = "default"},
    {.environment = "", .role = "self", .backend = "FLASH_ATTN", .source = "platform", .automatic = 1},
    {.flag = "FLASH_ATTN",
     .environment = "TORCH_SDPA",
     .role = "self",
     .backend = "FLASH_ATTN",
     .source = "default"},
    {.flag = "auto",
     .environment = "TORCH_SDPA",
     .role = "self",
     .backend = "FLASH_ATTN",
     .source = "platform",
     .automatic = 1},
    {.json = "{\"default\": \"AUTO\"}",
     .environment = "TORCH_SDPA",
     .role = "self",
     .backend = "FLASH_ATTN",
     .source = "platform",
     .automatic = 1},
    {.json = "{\"per_role\": {\"self\": \"auto\"}}",
     .environment = "TORCH_SDPA",
     .role = "self",
     .backend = "TORCH_SDPA",
     .source = "default"},
    {.json = "{\"per_role\": {\"cross\": \"FLASH_ATTN\"}}",
     .environment = "TORCH_SDPA",
     .role = "self",
     .backend = "TORCH_SDPA",
     .source = "default"},
    {.json = "{}", .role = "self", .backend = "FLASH_ATTN", .source = "platform", .automatic = 1},
    {.json = "{\"default\": null, \"per_role\": null}",
     .role = "self",
     .backend = "FLASH_ATTN",
     .source = "platform",
     .automatic = 1},
    {.json = "{\"default\": \"TORCH_SDPA\"}", .role = "self", .backend = "TORCH_SDPA", .source = "default"},
    {.json = "{\"default\": {\"backend\": \"TORCH_SDPA\"}}",
     .role = "self",
     .backend = "TORCH_SDPA",
     .source = "default"},
    {.flag = "TORCH_SDPA",
     .json = "{\"default\": \"auto\"}",
     .role = "self",
     .backend = "TORCH_SDPA",
     .source = "default"},
    /* roles */
    {.json = "{\"per_role\": {\"self\": \"TORCH_SDPA\"}}",
     .role = "self",
     .backend = "TORCH_SDPA",
     .source = "per_role['self']"},
    {.json = "{\"per_role\": {\"self\": \"TORCH_SDPA\"}}",
     .role = "Self",
     .backend = "FLASH_ATTN",
     .source = "platform",
     .automatic = 1},
    {.json = "{\"per_role\": {\"self\": \"TORCH_SDPA\"}}",
     .role = "a.b",
     .category = "self",
     .backend = "TORCH_SDPA",
     .source = "self"},
    {.json = "{\"per_role\": {\"a\": {\"b\": \"TORCH_SDPA\"}, \"self\": \"FLASH_ATTN\"}}",
     .role = "a.b",
     .category = "self",
     .backend = "TORCH_SDPA",
     .source = "a.b"},
    {.json = "{\"per_role\": {\"a\": {\"b\": {\"backend\": \"TORCH_SDPA\"}}}}",
     .role = "a.b",
     .backend = "TORCH_SDPA",
     .source = "a.b"},
    {.json = "{\"per_role\": {\"a\": {\"b\": \"TORCH_SDPA\"}, \"a.b\": \"FLASH_ATTN\"}}",
     .role = "a.b",
     .backend = "FLASH_ATTN",
     .source = "a.b"},
    {.json = "{\"per_role\": {\"a.b\": \"FLASH_ATTN\", \"a\": {\"b\": \"TORCH_SDPA\"}}}",
     .role = "a.b",
     .backend = "TORCH_SDPA",
     .source = "a.b"},
    {.json = "{\"per_role\": {\"a.b\": \"TORCH_SDPA\", \"a\": {\"b\": \"auto\"}}}",
     .role = "a.b",
     .backend = "FLASH_ATTN",
     .source = "platform",
     .automatic = 1},
    {.json = "{\"per_role\": {\"x\": \"NO_SUCH\", \"self\": \"TORCH_SDPA\"}}",
     .role = "self",
     .backend = "TORCH_SDPA",
     .source = "self"},
    /* what is refused */
    {.flag = "FLASH_ATTN",
     .json = "{\"default\": \"FLASH_ATTN\"}",
     .kind = ATTN_KIND_MUTUALLY_EXCLUSIVE,
     .backend = "default",
     .source = "backend"},
    {.flag = "auto",
     .json = "{\"default\": \"FLASH_ATTN\"}",
     .kind = ATTN_KIND_MUTUALLY_EXCLUSIVE,
     .backend = "default",
     .source = "backend"},
    {.json = "[]", .kind = ATTN_KIND_INVALID_TYPE, .backend = "array", .source = "per_role"},
    {.json = "\"FLASH_ATTN\"", .kind = ATTN_KIND_INVALID_TYPE, .backend = "string", .source = "per_role"},
    {.json = "{\"default\": 5}", .kind = ATTN_KIND_INVALID_TYPE, .backend = "default", .source = "number"},
    {.json = "{\"default\": {\"backend\": null}}",
     .kind = ATTN_KIND_INVALID_TYPE,
     .backend = "default.backend",
     .source = "null"},
    {.json = "{\"default\": {}}",
     .kind = ATTN_KIND_UNKNOWN_OR_MISSING_KEY,
     .backend = "default",
     .source = "backend"},
    {.json = "{\"default\": {\"backend\": \"TRTLLM_ATTN\", \"skip_softmx\": {}}}",
     .kind = ATTN_KIND_UNKNOWN_OR_MISSING_KEY,
     .backend = "skip_softmx",
     .source = "skip_softmax"},
    {.json = "{\"default\": {\"backend\": \"TORCH_SDPA\", \"skip_softmax\": {\"threshold\": 1}}}",
     .kind = ATTN_KIND_BLOCK_BACKEND_MISMATCH,
     .backend = "skip_softmax",
     .source = "TORCH_SDPA"},
    {.json = "{\"roles\": {}}",
     .kind = ATTN_KIND_UNKNOWN_OR_MISSING_KEY,
     .backend = "roles",
     .source = "per_role"},
    {.json = "{\"per_role\": 3}", .kind = ATTN_KIND_INVALID_TYPE, .backend = "per_role", .source = "number"},
    {.json = "{\"per_role\": {\"self\": null}}",
     .kind = ATTN_KIND_INVALID_TYPE,
     .backend = "per_role.self",
     .source = "null"},
    {.json = "{\"per_role\": {\"self\": {}}}",
     .kind = ATTN_KIND_EMPTY_ROLE_ENTRY,
     .backend = "per_role.self",
     .source = ""},
    {.json = "{\"per_role\": {\"a\": {\"b\": {}}}}",
     .kind = ATTN_KIND_EMPTY_ROLE_ENTRY,
     .backend = "per_role.a.b",
     .source = ""},
    {.json = "{\"per_role\": {\"a\": {\"backend\": \"FLASH_ATTN\", \"b\": \"TORCH_SDPA\"}}}",
     .kind = ATTN_KIND_MIXED_ROLE_ENTRY,
     .backend = "per_role.a",
     .source = "'b'"},
    {.json = "{\"default\": \"FLASH_ATTN\", \"default\": \"TORCH_SDPA\"}",
     .kind = ATTN_KIND_SYNTAX,
     .backend = "duplicate",
     .source = "line 1"},
    {.json =
         "{\"default\":{\"backend\":\"FLASH_ATTN\"},\"per_role\":{\"cross\":{\"backend\":\"TORCH_SDPA\"}}",
     .kind = ATTN_KIND_SYNTAX,
     .backend = "line 1",
     .source = "end of"},
    {.json = "{'default': 'FLASH_ATTN'}", .kind = ATTN_KIND_SYNTAX, .backend = "line 1", .source = "column"},
    {.json = "{\n\"default\": FLASH_ATTN}",
     .kind = ATTN_KIND_SYNTAX,
     .backend = "line 2",
     .source = "column"},
    {.json = "{} {}", .kind = ATTN_KIND_SYNTAX, .backend = "line 1", .source = ""},
    {.json = "", .kind = ATTN_KIND_SYNTAX, .backend = "line 1", .source = ""},
    /* names are looked up when a layer asks */
    {.flag = "FLASH-ATTN",
     .role = "self",
     .kind = ATTN_KIND_UNKNOWN_BACKEND,
     .backend = "FLASH-ATTN",
     .source = "TORCH_SDPA"},
    {.flag = " FLASH_ATTN",
     .role = "self",
     .kind = ATTN_KIND_UNKNOWN_BACKEND,
     .backend = " FLASH_ATTN",
     .source = "valid"},
    {.flag = "sdpa",
     .role = "self",
     .kind = ATTN_KIND_UNKNOWN_BACKEND,
     .backend = "SDPA",
     .source = "RAINFUSION_ATTN"},
    {.environment = "no_such",
     .role = "self",
     .kind = ATTN_KIND_UNKNOWN_BACKEND,
     .backend = "NO_SUCH",
     .source = "FLASH_ATTN"},
};

static void check_layer(const row *r, attn_context *context)
{
    attn_layer_options site = {
        .size = sizeof site, .role = r->role, .category = r->category, .heads = 2, .head_dim = 64};
    attn_layer *layer = NULL;
    attn_error error = ATTN_ERROR_INIT;
    attn_status status = attn_layer_open(context, &site, &layer, &error);
    if (error.kind != r->kind)
        fail_msg("kind %s, expected %s: \"%s\"", attn_kind_name(error.kind), attn_kind_name(r->kind),
                 error.text);
    if (status) {
        text_has(error.text, r->backend);
        text_has(error.text, r->source);
        return;
    }
    attn_layer_info info = {.size = sizeof info};
    attn_layer_get_info(layer, &info);
    assert_string_equal(info.backend, r->backend);
    text_has(info.source, r->source);
    assert_int_equal(info.explicit_choice, !r->automatic);
    attn_layer_close(layer);
}

static void each_row(void **state)
{
    static const char variable[] = "DIFFUSION_ATTENTION_BACKEND";
    const row *r = *state;
    attn_options options = {.size = sizeof options, .module_path = "", .backend = r->flag, .config = r->json};
    attn_context *context = NULL;
    attn_error error = ATTN_ERROR_INIT;
    if (r->environment) setenv(variable, r->environment, 1);
    attn_status status = attn_open(&options, &context, &error);
    unsetenv(variable); /* read once, when a context opens */
    if (status) {
        if (error.kind != r->kind || r->role)
            fail_msg("kind %s, expected %s: \"%s\"", attn_kind_name(error.kind), attn_kind_name(r->kind),
                     error.text);
        text_has(error.text, r->backend);
        text_has(error.text, r->source);
        return;
    }
    if (!r->role) fail_msg("the configuration was accepted, expected %s", attn_kind_name(r->kind));
    check_layer(r, context);
    attn_close(context);
}

/* A flag keeps the environment out altogether. */
static void the_environment_can_be_ignored(void **state)
{
    (void)state;
    attn_options options = {.size = sizeof options, .flags = ATTN_OPEN_IGNORE_ENV};
    setenv("DIFFUSION_ATTENTION_BACKEND", "TORCH_SDPA", 1);
    setenv("ATTN_ISA", "no such set", 1);
    setenv("ATTN_MODULE_PATH", TEST_MODULES, 1);
    attn_context *context = context_open(&options);
    unsetenv("DIFFUSION_ATTENTION_BACKEND");
    unsetenv("ATTN_ISA");
    unsetenv("ATTN_MODULE_PATH");
    attn_module_info info = {.size = sizeof info};
    for (size_t i = 0; attn_module_at(context, i, &info); i++) assert_null(strstr(info.path, TEST_MODULES));
    const row r = {.role = "self", .backend = "FLASH_ATTN", .source = "platform", .automatic = 1};
    check_layer(&r, context);
    attn_close(context);
}

static void deep_nesting_is_an_error_or_a_role(void **state)
{
    (void)state;
    static char json[400000];
    attn_context *context = NULL;
    attn_error error = ATTN_ERROR_INIT;
    strcpy(json, "{\"per_role\": ");
    size_t used = strlen(json);
    for (int i = 0; i < 50000; i++, used += 5) memcpy(json + used, "{\"a\":", 5);
    json[used] = 0;
    attn_options options = {.size = sizeof options, .module_path = "", .config = json};
    assert_int_equal(attn_open(&options, &context, &error), ATTN_INVALID_ARGUMENT);
    assert_string_not_equal(error.text, "");
}

int main(void)
{
    enum { ROWS = sizeof rows / sizeof *rows };
    struct CMUnitTest tests[ROWS + 2];
    static char names[ROWS][32];
    unsetenv("DIFFUSION_ATTENTION_BACKEND");
    for (int i = 0; i < ROWS; i++) {
        snprintf(names[i], sizeof names[i], "row %d", i);
        tests[i] = (struct CMUnitTest){names[i], each_row, NULL, NULL, (void *)(uintptr_t)&rows[i]};
    }
    tests[ROWS] = (struct CMUnitTest)cmocka_unit_test(the_environment_can_be_ignored);
    tests[ROWS + 1] = (struct CMUnitTest)cmocka_unit_test(deep_nesting_is_an_error_or_a_role);
    return _cmocka_run_group_tests("config", tests, ROWS + 2, NULL, NULL);
}
