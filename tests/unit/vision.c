/* vision.c: the rule of domain vision: precedence, the default by device, the guard, other platforms. */
#include "support.h"

#include <stdio.h>
#include <string.h>

typedef struct asked {
    attn_kind kind;
    char backend[64], source[1152], error[2048];
} asked;

static asked ask(const char *facts_json, const char *flag, const char *wish)
{
    asked a = {0};
    attn_facts *facts = NULL;
    attn_context *context = NULL;
    attn_error error = ATTN_ERROR_INIT;
    attn_resolution r = {.size = sizeof r};
    attn_query q = {.size = sizeof q, .domain = ATTN_DOMAIN_VISION, .model_backend = wish, .head_size = 72};
    attn_status status = attn_facts_parse(facts_json, &facts, &error);
    attn_options o = {.size = sizeof o,
                      .flags = ATTN_OPEN_IGNORE_ENV,
                      .module_path = "",
                      .facts = facts,
                      .vision_backend = flag};
    if (!status) status = attn_open(&o, &context, &error);
    if (!status) status = attn_resolve(context, &q, &r, NULL, NULL, &error);
    if (!status) snprintf(a.backend, sizeof a.backend, "%s", r.backend);
    if (!status) snprintf(a.source, sizeof a.source, "%s", r.source);
    a.kind = error.kind;
    snprintf(a.error, sizeof a.error, "%s", error.text);
    attn_close(context);
    attn_facts_free(facts);
    return a;
}

static void holds(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("\"%s\" does not hold \"%s\"", text, part);
}

static const char *cuda(const char *cc)
{
    static char text[96];
    snprintf(text, sizeof text, "{\"platform\": \"cuda\", \"compute_capability\": \"%s\"}", cc);
    return text;
}

static void defaults_by_device(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"7.0", "triton_attn"},  {"7.5", "triton_attn"},  {"8.0", "triton_attn"},  {"8.6", "triton_attn"},
        {"8.7", "triton_attn"},  {"8.9", "triton_attn"},  {"9.0", "fa3"},          {"10.0", "fa4"},
        {"10.3", "fa4"},         {"11.0", "triton_attn"}, {"12.0", "triton_attn"}, {"12.1", "triton_attn"},
        {"13.0", "triton_attn"}, {"6.1", "triton_attn"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        asked a = ask(cuda(rows[i][0]), NULL, NULL);
        assert_string_equal(a.backend, rows[i][1]);
        assert_string_equal(a.source, "platform default");
    }
}

static void other_platforms(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"{\"platform\": \"rocm\", \"compute_capability\": \"9.4\", \"aiter\": [\"vision\"]}", "aiter_attn"},
        {"{\"platform\": \"rocm\", \"compute_capability\": \"9.5\", \"aiter\": [\"vision\"]}", "aiter_attn"},
        {"{\"platform\": \"rocm\", \"compute_capability\": \"9.0\", \"aiter\": [\"vision\"]}", "triton_attn"},
        {"{\"platform\": \"rocm\", \"compute_capability\": \"9.4\"}", "triton_attn"},
        {"{\"platform\": \"xpu\"}", "triton_attn"},
        {"{\"platform\": \"npu\"}", "sdpa"},
        {"{\"platform\": \"musa\"}", "sdpa"},
        {"{\"platform\": \"cpu\"}", "sdpa"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(ask(rows[i][0], NULL, NULL).backend, rows[i][1]);
    /* On request only. */
    assert_string_equal(ask("{\"platform\": \"npu\"}", "ascend_attn", NULL).backend, "ascend_attn");
}

static void precedence(void **state)
{
    (void)state;
    asked both = ask(cuda("9.0"), "sdpa", "triton_attn");
    assert_string_equal(both.backend, "sdpa");
    assert_string_equal(both.source, "--mm-attention-backend");
    asked wish = ask(cuda("9.0"), NULL, "triton_attn");
    assert_string_equal(wish.backend, "triton_attn");
    assert_string_equal(wish.source, "the model's own wish");
    /* The default alone is guarded on 12.x: whoever names fa4 gets it. */
    assert_string_equal(ask(cuda("12.0"), "fa4", NULL).backend, "fa4");
    assert_string_equal(ask(cuda("8.0"), "fa3", NULL).backend, "fa3");
}

static void the_guard(void **state)
{
    (void)state;
    static const char *const blackwell[] = {"10.0", "10.3", "11.0", "12.0", "12.1"};
    for (size_t i = 0; i < sizeof blackwell / sizeof *blackwell; i++) {
        assert_int_equal(ask(cuda(blackwell[i]), "fa3", NULL).kind, ATTN_KIND_CAPABILITY_UNSUPPORTED);
        asked wish = ask(cuda(blackwell[i]), NULL, "fa3");
        assert_int_equal(wish.kind, ATTN_KIND_CAPABILITY_UNSUPPORTED);
        holds(wish.error, "the model's own wish");
        /* The server's argument comes first, so a wish that it overrules does no harm. */
        assert_string_equal(ask(cuda(blackwell[i]), "triton_attn", "fa3").backend, "triton_attn");
    }
    asked old = ask("{\"platform\": \"cuda\", \"compute_capability\": \"10.0\", \"cuda_version\": 12060}",
                    "fa3", NULL);
    assert_string_equal(old.backend, "fa3");
    asked young = ask("{\"platform\": \"cuda\", \"compute_capability\": \"10.0\", \"cuda_version\": 12080}",
                      "fa3", NULL);
    assert_int_equal(young.kind, ATTN_KIND_CAPABILITY_UNSUPPORTED);
}

static void names(void **state)
{
    (void)state;
    static const char *const all[] = {
        "sdpa", "fa3", "fa4", "triton_attn", "ascend_attn", "aiter_attn", "flashinfer_cudnn"};
    asked wrong = ask(cuda("9.0"), NULL, "fa5");
    assert_int_equal(wrong.kind, ATTN_KIND_UNKNOWN_BACKEND);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) holds(wrong.error, all[i]);
    assert_int_equal(ask(cuda("9.0"), "fa5", NULL).kind, ATTN_KIND_UNKNOWN_BACKEND);
    assert_int_equal(ask(cuda("9.0"), "FLASH_ATTN", NULL).kind, ATTN_KIND_UNKNOWN_BACKEND);
    /* Kernels of another platform. */
    asked foreign = ask(cuda("9.0"), "aiter_attn", NULL);
    assert_int_equal(foreign.kind, ATTN_KIND_PLATFORM_UNSUPPORTED);
    holds(foreign.error, "rocm");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(defaults_by_device),
                                       cmocka_unit_test(other_platforms), cmocka_unit_test(precedence),
                                       cmocka_unit_test(the_guard), cmocka_unit_test(names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
