/* choice.c: configuration, selection, platforms and plugins: what is chosen, refused and said. */
#include "field.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- asking ------------------------------------------------------------------------------------- */

typedef struct asked {
    const char *facts; /* JSON or NULL: this machine, pinned to cpu */
    const char *flag, *json, *environment, *role, *category, *modules;
    int64_t head_size;
    uint64_t needs;
    int permit;
} asked;

typedef struct answer {
    attn_error error;
    attn_resolution resolution;
    char backend[64];
    trace_text trace;
} answer;

static void ask(const asked *a, answer *got)
{
    attn_config *config;
    attn_facts *facts = NULL;
    attn_context *context = NULL;
    memset(got, 0, sizeof *got);
    got->error.size = sizeof got->error;
    got->resolution.size = sizeof got->resolution;
    assert_int_equal(attn_config_new(&config, NULL), ATTN_OK);
    attn_status status = attn_config_set_backend(config, a->flag, &got->error);
    if (!status && a->json) status = attn_config_set_json(config, a->json, &got->error);
    if (!status) status = attn_config_set_environment(config, a->environment, &got->error);
    if (!status && a->facts) status = attn_facts_parse(a->facts, &facts, &got->error);
    attn_options o = {.size = sizeof o,
                      .platform = a->facts ? NULL : "cpu",
                      .module_path = a->modules ? a->modules : "",
                      .settings = config,
                      .facts = facts,
                      .flags = ATTN_OPEN_IGNORE_ENV};
    if (!status) status = attn_open(&o, &context, &got->error);
    attn_query q = {.size = sizeof q,
                    .role = a->role,
                    .category = a->category,
                    .head_size = a->head_size ? a->head_size : 128,
                    .needs = a->needs,
                    .permit_trtllm = a->permit};
    if (!status)
        status = attn_resolve(context, &q, &got->resolution, trace_collect, &got->trace, &got->error);
    if (!status) snprintf(got->backend, sizeof got->backend, "%s", got->resolution.backend);
    attn_close(context);
    attn_config_free(config);
    attn_facts_free(facts);
}

static void refused(const asked *a, attn_status status, const char *const *words)
{
    answer got;
    ask(a, &got);
    assert_int_equal(got.error.status, status);
    for (; *words; words++) text_has(got.error.text, *words);
}

static void chosen(const asked *a, const char *backend, const char *source)
{
    answer got;
    ask(a, &got);
    assert_string_equal(got.error.text, "");
    assert_string_equal(got.backend, backend);
    assert_string_equal(got.resolution.source, source);
}

#define WORDS(...)                                                                                           \
    (const char *const[])                                                                                    \
    {                                                                                                        \
        __VA_ARGS__, NULL                                                                                    \
    }
#define HOPPER                                                                                               \
    "{\"platform\": \"cuda\", \"compute_capability\": [9, 0], \"cudnn_version\": 91002, \"packages\": {"     \
    "\"flash_attn\": true, \"sageattention\": true}}"

/* ---- config ------------------------------------------------------------------------------------- */

void config_01(void **state)
{
    (void)state;
    refused(&(asked){.flag = "FLASH_ATTN", .json = "{\"default\":{\"backend\":\"TORCH_SDPA\"}}"},
            ATTN_CONFIG_CONFLICT, WORDS("default.backend", "--diffusion-attention-backend"));
    refused(&(asked){.flag = "TORCH_SDPA", .json = "{\"default\":{\"backend\":\"TORCH_SDPA\"}}"},
            ATTN_CONFIG_CONFLICT, WORDS("default.backend"));
    chosen(
        &(asked){.flag = "FLASH_ATTN", .json = "{\"per_role\":{\"cross\":\"TORCH_SDPA\"}}", .role = "cross"},
        "TORCH_SDPA", "attention_config.per_role['cross']");
}

void config_02(void **state)
{
    static const char json[] =
        "{\"default\": {\"backend\": \"FLASH_ATTN\"}, \"per_role\": {\"self\": \"TORCH_SDPA\", "
        "\"cross\": \"SAGE_ATTN\", \"ltx2.audio_self\": \"FLASH_ATTN\"}}";
    (void)state;
    chosen(&(asked){.facts = HOPPER, .json = json, .role = "self"}, "TORCH_SDPA",
           "attention_config.per_role['self']");
    chosen(&(asked){.facts = HOPPER, .json = json, .role = "ltx2.audio_self", .category = "self"},
           "FLASH_ATTN", "attention_config.per_role['ltx2.audio_self']");
    chosen(&(asked){.facts = HOPPER, .json = json, .role = "ltx2.audio_to_video", .category = "cross"},
           "SAGE_ATTN", "attention_config.per_role['cross'] (role_category fallback)");
    chosen(&(asked){.facts = HOPPER, .json = json, .role = "joint"}, "FLASH_ATTN",
           "attention_config.default");
}

void config_05(void **state)
{
    (void)state;
    refused(
        &(asked){.json = "{\"default\":{\"backend\":\"TRTLLM_ATTN\",\"skip_softmx\":{\"threshold\":1.0}}}"},
        ATTN_INVALID_ARGUMENT, WORDS("default.skip_softmx", "skip_softmax"));
    refused(
        &(asked){.json = "{\"default\":{\"backend\":\"TRTLLM_ATTN\",\"skip_softmax\":{\"treshold\":1.0}}}"},
        ATTN_INVALID_ARGUMENT, WORDS("default.skip_softmax.treshold", "threshold"));
    refused(&(asked){.json = "{\"defalt\":\"FLASH_ATTN\"}"}, ATTN_INVALID_ARGUMENT,
            WORDS("defalt", "default"));
}

void config_07(void **state)
{
    (void)state;
    refused(&(asked){.json = "{\"default\":{\"backend\":\"FLASH_ATTN\"},\"per_role\":{\"cross\":{\"backend\":"
                             "\"TORCH_SDPA\"}}"},
            ATTN_INVALID_ARGUMENT, WORDS("line 1", "column", "end of file"));
    refused(&(asked){.json = "{'default': 'FLASH_ATTN'}"}, ATTN_INVALID_ARGUMENT, WORDS("line 1", "column"));
    refused(&(asked){.json = "{\"default\": \"FLASH_ATTN\", \"default\": \"TORCH_SDPA\"}"},
            ATTN_INVALID_ARGUMENT, WORDS("line 1", "duplicate"));
}

void config_08(void **state)
{
    (void)state;
    refused(
        &(asked){.json =
                     "{\"default\":{\"backend\":\"TRTLLM_ATTN\",\"skip_softmax\":{\"target_sparsity\":0.5,"
                     "\"threshold\":1.0}}}"},
        ATTN_CONFIG_CONFLICT, WORDS("target_sparsity", "threshold"));
    refused(
        &(asked){.json =
                     "{\"default\":{\"backend\":\"TORCH_SDPA\",\"skip_softmax\":{\"target_sparsity\":0.5}}}"},
        ATTN_CONFIG_CONFLICT, WORDS("skip_softmax", "TORCH_SDPA", "TRTLLM_ATTN"));
    refused(
        &(asked){
            .json = "{\"default\":{\"backend\":\"TRTLLM_ATTN\",\"skip_softmax\":{\"target_sparsity\":1.5}}}"},
        ATTN_INVALID_ARGUMENT, WORDS("skip_softmax.target_sparsity", "1.5"));
}

/* ---- selection ---------------------------------------------------------------------------------- */

void selection_01(void **state)
{
    answer got;
    (void)state;
    ask(&(asked){.json = "{\"default\":{\"backend\":\"FLASH_ATN\"}}"}, &got);
    assert_int_equal(got.error.kind, ATTN_KIND_UNKNOWN_BACKEND);
    text_has(got.error.text, "FLASH_ATN");
    const char *near = strstr(got.error.text, "FLASH_ATTN?"), *list = strstr(got.error.text, "SPARSE_ATTN");
    assert_non_null(near);
    assert_non_null(list);
    assert_true(near < list);
}

void selection_03(void **state)
{
    (void)state;
    refused(&(asked){.facts = "{\"platform\": \"cuda\", \"compute_capability\": [9, 0]}",
                     .json = "{\"default\":{\"backend\":\"SAGE_ATTN\"}}"},
            ATTN_NOT_AVAILABLE, WORDS("SAGE_ATTN", "sageattention", "install"));
}

void selection_05(void **state)
{
    static const char b200[] =
        "{\"platform\": \"cuda\", \"compute_capability\": [10, 0], \"cudnn_version\": 91002, "
        "\"packages\": {\"flashinfer\": true, \"trtllm_gen\": true}}";
    answer got;
    (void)state;
    ask(&(asked){.facts = b200, .permit = 1, .needs = ATTN_FEATURE(MASK_KEEP)}, &got);
    assert_string_equal(got.backend, "CUDNN_ATTN");
    text_has(got.resolution.reason, "TRTLLM_ATTN was passed over");
    text_has(got.resolution.reason, "mask");
    chosen(&(asked){.facts = b200, .permit = 1}, "TRTLLM_ATTN", "platform default");
}

void selection_07(void **state)
{
    (void)state;
    refused(&(asked){.facts = "{\"platform\": \"cuda\", \"compute_capability\": [7, 0], \"packages\": "
                              "{\"sageattention\": true}}",
                     .flag = "SAGE_ATTN"},
            ATTN_UNSUPPORTED, WORDS("7.0", "sm_80"));
}

void selection_08(void **state)
{
    (void)state;
    refused(&(asked){.flag = "CUDNN_ATTN"}, ATTN_UNSUPPORTED,
            WORDS("CUDNN_ATTN", "cpu", "FLASH_ATTN", "TORCH_SDPA"));
}

/* Each word in capitals with an underscore is a backend's name, and may be written back as it stands. */
static void names_are_accepted(const char *text)
{
    char name[64];
    for (const char *p = text; *p;) {
        size_t n = strspn(p, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
        snprintf(name, sizeof name, "%.*s", (int)n, p);
        if (n && n < sizeof name && strstr(name, "_ATTN") && strcmp(name, "FLASH_ATN")) {
            answer got;
            ask(&(asked){.facts = HOPPER, .flag = name}, &got);
            assert_int_not_equal(got.error.kind, ATTN_KIND_UNKNOWN_BACKEND);
        }
        p += n ? n : 1;
    }
}

void selection_12(void **state)
{
    static const asked errors[] = {{.facts = HOPPER, .flag = "FLASH_ATN"},
                                   {.facts = HOPPER, .flag = "SDPA"},
                                   {.facts = HOPPER, .flag = "TRTLLM_ATTN"},
                                   {.facts = HOPPER, .flag = "SAGE_ATTN_3"},
                                   {.facts = HOPPER, .flag = "RAINFUSION_ATTN"},
                                   {.facts = HOPPER, .flag = "FLASH_ATTN_HUB"},
                                   {.flag = "CUDNN_ATTN"},
                                   {.flag = "SAGE_ATTN"}};
    (void)state;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        answer got;
        ask(&errors[i], &got);
        assert_int_not_equal(got.error.kind, 0);
        names_are_accepted(got.error.text);
    }
    chosen(&(asked){.facts = HOPPER, .flag = "flash_attn"}, "FLASH_ATTN", "attention_config.default");
}

typedef struct log_count {
    int lines, warnings;
    char last[512];
} log_count;

static void count_lines(void *user, int32_t level, const char *text)
{
    log_count *c = user;
    if (!strstr(text, "role '")) return;
    c->lines++;
    c->warnings += level == ATTN_LOG_WARNING;
    snprintf(c->last, sizeof c->last, "%s", text);
}

/* The fixture refuses every call when it runs; it stands before the library's own by override. */
void selection_14(void **state)
{
    enum { CALLS = 100 };
    test_call c;
    log_count log = {0};
    (void)state;
    call_make(&c, NULL, ATTN_F32, (dims){1, 4, 4, 1, 1, 8, 8});
    call_mix32(&c, 1, 2, 3);
    c.options.module_path = FIXTURE("fails_at_run");
    c.options.overrides = "FLASH_ATTN=fails_at_run";
    c.options.log = count_lines;
    c.options.log_user = &log;
    attn_context *context = context_open(&c.options);
    attn_layer *layer = layer_open(context, &c.layer);
    for (int i = 0; i < CALLS; i++) assert_int_equal(attn_forward(layer, &c.args, NULL), ATTN_OK);
    attn_layer_info info = {.size = sizeof info};
    attn_layer_get_info(layer, &info);
    assert_string_equal(info.backend, "TORCH_SDPA");
    assert_int_equal(info.demotions, 1);
    assert_int_equal(log.warnings, 1);
    attn_layer_close(layer);
    attn_close(context);
    c.options.backend = "FLASH_ATTN";
    assert_int_equal(call_try(&c), ATTN_UNSUPPORTED);
    text_has(c.error.text, "fails_at_run");
    call_free(&c);
}

void selection_15(void **state)
{
    test_call c;
    (void)state;
    call_make(&c, "FLASH_ATTN", ATTN_F32, (dims){1, 4, 4, 1, 1, 8, 8});
    c.options.module_path = FIXTURE("f16_only");
    c.options.overrides = "FLASH_ATTN=f16_only_dense";
    c.layer.dtype = ATTN_F32;
    assert_int_equal(call_try(&c), ATTN_UNSUPPORTED);
    assert_int_equal(c.error.kind, ATTN_KIND_DTYPE_UNSUPPORTED);
    text_has(c.error.text, "fp32");
    text_has(c.error.text, "fp16");
    c.options.backend = NULL;
    call_run(&c);
    assert_string_equal(c.backend, "TORCH_SDPA");
    call_free(&c);
}

/* ---- environment -------------------------------------------------------------------------------- */

void env_01(void **state)
{
    (void)state;
    chosen(&(asked){.environment = ""}, "FLASH_ATTN", "platform default");
    chosen(&(asked){.environment = " \t"}, "FLASH_ATTN", "platform default");
    chosen(&(asked){.environment = "TORCH_SDPA"}, "TORCH_SDPA", "attention_config.default");
}

/* ---- plugins ------------------------------------------------------------------------------------ */

/* Opens the fixture beside a good one and returns the row of the first. */
static void load_beside(const char *path, attn_module_info *row, char *text, size_t bytes)
{
    char both[1024];
    attn_module_info other = {.size = sizeof other};
    snprintf(both, sizeof both, "%s:%s", path, FIXTURE("counts"));
    attn_options o = {.size = sizeof o, .module_path = both, .platform = "cpu"};
    attn_context *context = context_open(&o);
    assert_true(attn_module_at(context, 0, row));
    assert_true(attn_module_at(context, 1, &other));
    assert_int_equal(other.kind, 0);
    snprintf(text, bytes, "%s", row->text);
    attn_close(context);
}

void plugin_01(void **state)
{
    char text[600];
    attn_module_info row = {.size = sizeof row};
    (void)state;
    load_beside(FIXTURE("missing_symbol"), &row, text, sizeof text);
    assert_int_equal(row.kind, ATTN_KIND_MODULE_NO_ENTRY);
    text_has(text, "attn_module_v1");
    text_has(text, "missing_symbol.so");
}

void plugin_03(void **state)
{
    char text[600];
    attn_module_info row = {.size = sizeof row};
    (void)state;
    load_beside(FIXTURE("wrong_major"), &row, text, sizeof text);
    assert_int_equal(row.kind, ATTN_KIND_MODULE_ABI);
    text_has(text, "1.0");
    text_has(text, "2.");
}

static void run_failing(const char *module, const char *implementation, const char *word)
{
    test_call c;
    char override[128];
    call_make(&c, "FLASH_ATTN", ATTN_F32, (dims){1, 4, 4, 2, 2, 8, 8});
    call_mix32(&c, 1, 2, 3);
    snprintf(override, sizeof override, "FLASH_ATTN=%s", implementation);
    c.options.module_path = module;
    c.options.overrides = override;
    assert_int_not_equal(call_try(&c), ATTN_OK);
    text_has(c.error.text, implementation);
    text_has(c.error.text, word);
    c.options.overrides = NULL; /* the next call with another implementation works */
    call_run(&c);
    call_free(&c);
}

void plugin_05(void **state)
{
    (void)state;
    if (access(FIXTURE("throws"), R_OK))
        SKIP_BECAUSE("this build has no C++ compiler for the module that throws");
    run_failing(FIXTURE("throws"), "throws_always", "the tile is on fire");
}

void plugin_06(void **state)
{
    (void)state;
    run_failing(FIXTURE("half_written"), "half_written", "half of the rows");
}

void plugin_08(void **state)
{
    test_call c;
    tensor keys;
    (void)state;
    call_make(&c, "FLASH_ATTN", ATTN_F32, (dims){1, 4, 8, 1, 1, 8, 8});
    call_mix32(&c, 1, 2, 3);
    tensor_make(&keys, ATTN_BOOL, 2, (int64_t[]){1, 8});
    tensor_fill(&keys, 1);
    c.args.key_mask = &keys.dl;
    c.options.module_path = FIXTURE("no_mask");
    c.options.overrides = "FLASH_ATTN=no_mask_dense";
    assert_int_equal(call_try(&c), ATTN_UNSUPPORTED);
    text_has(c.error.text, "mask");
    text_has(c.error.text, "no_mask");
    tensor_free(&keys);
    call_free(&c);
}

/* ---- platforms ---------------------------------------------------------------------------------- */

void platform_01(void **state)
{
    attn_error error = ATTN_ERROR_INIT;
    attn_context *context;
    (void)state;
    attn_options o = {.size = sizeof o, .module_path = FIXTURE("vendor_a") ":" FIXTURE("vendor_b")};
    assert_int_equal(attn_open(&o, &context, &error), ATTN_CONFIG_CONFLICT);
    assert_int_equal(error.kind, ATTN_KIND_AMBIGUOUS_PLATFORM);
    text_has(error.text, "vendor_a");
    text_has(error.text, "vendor_b");
    text_has(error.text, "--platform");
    o.platform = "vendor_b";
    context = context_open(&o);
    attn_context_info info = {.size = sizeof info};
    attn_context_get_info(context, &info);
    assert_string_equal(info.platform, "vendor_b");
    attn_close(context);
    o.platform = NULL;
    o.module_path =
        FIXTURE("vendor_a"); /* one external platform outranks whatever the machine has built in */
    context = context_open(&o);
    attn_context_get_info(context, &info);
    assert_string_equal(info.platform, "vendor_a");
    attn_close(context);
}

void platform_02(void **state)
{
    attn_error error = ATTN_ERROR_INIT;
    attn_context *context;
    int found = 0;
    attn_probe_info said = {.size = sizeof said};
    (void)state;
    attn_options o = {.size = sizeof o, .module_path = FIXTURE("vendor_broken")};
    context = context_open(&o);
    for (size_t i = 0; attn_probe_at(context, i, &said); i++)
        if (!strcmp(said.name, "vendor_broken")) {
            assert_false(said.positive);
            text_has(said.text, "its driver is too old");
            found++;
        }
    assert_int_equal(found, 1);
    attn_close(context);
    o.platform = "vendor_broken";
    assert_int_not_equal(attn_open(&o, &context, &error), ATTN_OK);
    text_has(error.text, "vendor_broken");
    text_has(error.text, "its driver is too old");
}

/* ---- observability ------------------------------------------------------------------------------ */

void observability_01(void **state)
{
    enum { LAYERS = 40, STEPS = 10 };
    static const char *const roles[] = {"self", "cross", "joint"};
    test_call c;
    log_count log = {0};
    (void)state;
    call_make(&c, NULL, ATTN_F32, (dims){1, 2, 2, 1, 1, 8, 8});
    call_mix32(&c, 1, 2, 3);
    c.options.log = count_lines;
    c.options.log_user = &log;
    attn_context *context = context_open(&c.options);
    for (int r = 0; r < 3; r++)
        for (int l = 0; l < LAYERS; l++) {
            c.layer.role = roles[r];
            attn_layer *layer = layer_open(context, &c.layer);
            for (int s = 0; s < STEPS; s++) assert_int_equal(attn_forward(layer, &c.args, NULL), ATTN_OK);
            attn_layer_close(layer);
        }
    assert_int_equal(log.lines, 3);
    text_has(log.last, "joint");
    text_has(log.last, "FLASH_ATTN");
    text_has(log.last, "platform default");
    attn_close(context);
    call_free(&c);
}

static int has_code(const attn_context *context, const char *backend)
{
    attn_impl_info impl = {.size = sizeof impl};
    for (size_t i = 0; attn_impl_at(context, i, &impl); i++)
        for (const char *at = impl.backends; (at = strstr(at, backend)); at++) {
            char end = at[strlen(backend)];
            if ((at == impl.backends || at[-1] == ',' || at[-1] == ' ') && (!end || end == ',')) return 1;
        }
    return 0;
}

void observability_03(void **state)
{
    int without = 0;
    answer got;
    attn_backend_info backend = {.size = sizeof backend};
    attn_options o = {.size = sizeof o, .module_path = "", .platform = "cpu"};
    (void)state;
    ask(&(asked){.flag = "FLASH_ATTN", .head_size = 64}, &got);
    attn_context *context = context_open(&o);
    for (size_t i = 0; attn_backend_at(context, i, &backend); i++) {
        text_has(got.trace.text, backend.name);
        without += !has_code(context, backend.name);
    }
    attn_close(context);
    assert_true(without > 0);
    assert_true(got.trace.reasons >= without); /* one at least for each that cannot run here */
}

/* ---- installation ------------------------------------------------------------------------------- */

/* Nothing is fetched or compiled: the library starts no program and opens no socket, in a path without
 * compilers. */
void install_01(void **state)
{
    test_call c;
    char *path = getenv("PATH") ? strdup(getenv("PATH")) : NULL;
    (void)state;
    setenv("PATH", "/nonexistent", 1);
    call_make(&c, NULL, ATTN_F32, (dims){1, 4, 4, 1, 1, 8, 8});
    call_mix32(&c, 1, 2, 3);
    call_run(&c);
    call_free(&c);
    if (path) setenv("PATH", path, 1);
    free(path);
    refused(&(asked){.flag = "SAGE_ATTN"}, ATTN_NOT_AVAILABLE, WORDS("SAGE_ATTN", "no implementation"));
}
