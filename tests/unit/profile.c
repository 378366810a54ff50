/* profile.c: a profile is followed where it holds, only when it was asked for, and refused when it is wrong.
 */
#include "support.h"

#include "backends/flash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/attn-profile-XXXXXX";

static int make_path(void **state)
{
    (void)state;
    int file = mkstemp(path);
    return file < 0 ? -1 : close(file);
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void write_text(const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

/* The name of this CPU, as contexts know it. */
static const char *cpu(void)
{
    static char name[128];
    const attn_options options = {.size = sizeof options, .module_path = "", .flags = ATTN_OPEN_IGNORE_ENV};
    attn_context *context = context_open(&options);
    attn_context_info info = {.size = sizeof info};
    attn_context_get_info(context, &info);
    snprintf(name, sizeof name, "%s", info.cpu);
    attn_close(context);
    return name;
}

/* A profile of one row for f32, head size 64, 65 to 128 queries and 513 to 1024 keys. */
static void write_row(const char *isa, const char *values)
{
    char text[1024];
    snprintf(
        text, sizeof text,
        "{\"version\": 1, \"cpu\": \"%s\", \"rows\": [{\"dtype\": \"f32\", \"head_dim\": 64, "
        "\"value_head_dim\": 64, \"q_up_to\": 128, \"kv_up_to\": 1024, \"isa\": \"%s\"%s, \"gflops\": 9.5}]}",
        cpu(), isa, values);
    write_text(text);
}

/* The widest set that this CPU runs. */
static const char *widest(void)
{
    const char *name, *best = NULL;
    int usable;
    for (size_t i = 0; (name = attn_kernel_set_at(i, &usable)); i++)
        if (usable) best = name;
    return best;
}

static void make(test_call *c, int64_t queries, int64_t keys)
{
    call_make(c, "FLASH_ATTN", ATTN_F32, (dims){1, queries, keys, 2, 2, 64, 64});
    call_mix32(c, 1, 2, 3);
    c->options.flags = ATTN_OPEN_IGNORE_ENV;
    c->options.profile = path;
}

/* What the plan of a call is, after a forward that must be right. */
static void plan_of(test_call *c, char *text, size_t bytes)
{
    tensor out, lse;
    attn_layer_info info = {.size = sizeof info};
    attn_context *context = context_open(&c->options);
    attn_layer *layer = layer_open(context, &c->layer);
    if (attn_forward(layer, &c->args, &c->error)) fail_msg("%s", c->error.text);
    attn_layer_get_info(layer, &info);
    snprintf(text, bytes, "%s", info.plan);
    attn_layer_close(layer);
    attn_close(context);
    call_truth(c, NULL, &out, &lse);
    tensor_near(text, &c->out.dl, &out.dl, 2e-5);
    tensor_free(&out);
    tensor_free(&lse);
}

static void expect_plan(int64_t queries, int64_t keys, const char *isa, const char *wanted)
{
    test_call c;
    char text[160];
    make(&c, queries, keys);
    c.options.isa = isa;
    plan_of(&c, text, sizeof text);
    text_has(text, wanted);
    if (!strstr(wanted, "profile") && strstr(text, "profile")) fail_msg("%s", text);
    call_free(&c);
}

static void a_row_is_followed_where_it_holds(void **state)
{
    (void)state;
    write_row("scalar", ", \"bq\": 40, \"bk\": 128");
    expect_plan(100, 1000, NULL, "kernel set scalar, tiles 40x128 (profile)");
    expect_plan(128, 513, NULL, "tiles 40x128 (profile)");
    expect_plan(64, 1000, NULL, "tiles 96x384");
    expect_plan(129, 1000, NULL, "tiles 96x384");
    expect_plan(100, 512, NULL, "tiles 96x384");
    expect_plan(100, 1025, NULL, "tiles 96x384");
    write_row(widest(), ", \"cache\": true");
    expect_plan(100, 1000, NULL, "(profile)");
    write_row(widest(), "");
    expect_plan(100, 1000, NULL, "tiles 96x384 (profile)");
}

/* The user's cap on kernel sets stands above a row that was measured with more. */
static void a_cap_goes_first(void **state)
{
    (void)state;
    if (!strcmp(widest(), "scalar")) SKIP_BECAUSE("this CPU has one kernel set");
    write_row(widest(), ", \"bq\": 40");
    expect_plan(100, 1000, "scalar", "kernel set scalar, tiles 96x384");
    expect_plan(100, 1000, widest(), "tiles 40x384 (profile)");
}

static void what_is_out_of_range_is_brought_within(void **state)
{
    (void)state;
    write_row("scalar", ", \"bq\": 65536, \"bk\": 65536");
    expect_plan(100, 1000, NULL, "tiles 96x384 (profile)");
    write_row("scalar", ", \"bq\": 1, \"bk\": 1");
    test_call c;
    char text[160];
    int rows, keys;
    make(&c, 100, 1000);
    plan_of(&c, text, sizeof text);
    assert_int_equal(sscanf(strstr(text, "tiles"), "tiles %dx%d", &rows, &keys), 2);
    assert_int_equal(rows, FLASH_ROWS_FEW);
    assert_in_range(keys, 8, 64);
    call_free(&c);
    for (int64_t d = 1; d <= 1024; d++) {
        attn_problem p = {.head_dim = d, .value_head_dim = d};
        flash_caps caps = flash_caps_legal((flash_caps){65536, 65536}, &p, 32);
        assert_in_range(caps.rows, 48, 96);
        assert_in_range(caps.keys, 64, ATTN_KEYS_MAX);
        assert_in_range(caps.keys * 2 * d, 1, 262144);
    }
}

/* As without a profile: the bits do not depend on the threads. */
static void threads_change_nothing(void **state)
{
    (void)state;
    test_call a, b;
    write_row(widest(), ", \"bq\": 24, \"bk\": 192");
    make(&a, 100, 1000);
    make(&b, 100, 1000);
    a.options.threads = 1;
    b.options.threads = 3;
    call_run(&a);
    call_run(&b);
    tensor_same("out of 1 and 3 threads", &a.out.dl, &b.out.dl);
    call_free(&a);
    call_free(&b);
}

/* ---- asking for it ---- */

static void in_force(const attn_options *options, const char *expected)
{
    attn_context *context = context_open(options);
    attn_context_info info = {.size = sizeof info};
    attn_context_get_info(context, &info);
    assert_string_equal(info.profile, expected);
    attn_close(context);
}

static void it_is_never_on_by_surprise(void **state)
{
    (void)state;
    write_row("scalar", ", \"bq\": 40");
    attn_options options = {.size = sizeof options, .module_path = ""};
    unsetenv("ATTN_PROFILE");
    in_force(&options, "");
    setenv("ATTN_PROFILE", path, 1);
    in_force(&options, path);
    options.profile = "";
    in_force(&options, "");
    options.profile = NULL;
    options.flags = ATTN_OPEN_IGNORE_ENV;
    in_force(&options, "");
    setenv("ATTN_PROFILE", "", 1);
    options.flags = 0;
    in_force(&options, "");
    unsetenv("ATTN_PROFILE");
    options.size = offsetof(attn_options, profile); /* a caller of before */
    options.profile = path;
    in_force(&options, "");
}

typedef struct notes {
    int count;
    char text[512];
} notes;

static void listen(void *user, const attn_trace *trace)
{
    notes *n = user;
    if (trace->event != ATTN_TRACE_NOTE || !strstr(trace->text, "profile")) return;
    n->count++;
    snprintf(n->text, sizeof n->text, "%s", trace->text);
}

static void explain_says_so(void **state)
{
    (void)state;
    const struct {
        int64_t queries;
        int args;
        const char *says;
    } cases[] = {{100, 1, "a row holds for this call and names the kernel set scalar"},
                 {10, 1, "no row holds for this call"},
                 {100, 0, "plans of calls that match a row follow it"}};
    write_row("scalar", ", \"bq\": 40");
    for (int i = 0; i < 3; i++) {
        test_call c;
        notes n = {0};
        make(&c, cases[i].queries, 1000);
        attn_context *context = context_open(&c.options);
        attn_status status =
            attn_explain(context, &c.layer, cases[i].args ? &c.args : NULL, listen, &n, &c.error);
        assert_int_equal(status, ATTN_OK);
        assert_int_equal(n.count, 1);
        text_has(n.text, cases[i].says);
        text_has(n.text, path);
        attn_close(context);
        c.options.profile = NULL;
        n = (notes){0};
        context = context_open(&c.options);
        attn_explain(context, &c.layer, &c.args, listen, &n, &c.error);
        assert_int_equal(n.count, 0);
        attn_close(context);
        call_free(&c);
    }
}

/* ---- refusals ---- */

#define HEAD "{\"version\": 1, \"cpu\": \"CPU\", \"rows\": ["
#define ROW                                                                                                  \
    "\"dtype\": \"f32\", \"head_dim\": 64, \"value_head_dim\": 64, \"q_up_to\": 128, \"kv_up_to\": 1024, "   \
    "\"isa\": \"scalar\""

/* CPU in a text stands for this machine's name. */
static const struct refusal {
    const char *text;
    attn_kind kind;
    const char *says;
} refusals[] = {
    {"{\"version\": 1,\n  \"cpu\" 3}", ATTN_KIND_SYNTAX, "line 2, column 9"},
    {"{\"version\": 1, \"version\": 1}", ATTN_KIND_SYNTAX, "line 1"},
    {"[]", ATTN_KIND_INVALID_TYPE, "no JSON object"},
    {"{\"cpu\": \"CPU\", \"rows\": []}", ATTN_KIND_UNKNOWN_OR_MISSING_KEY, "no key 'version'"},
    {"{\"version\": 2, \"cpu\": \"CPU\", \"rows\": []}", ATTN_KIND_INVALID_VALUE, "version 2"},
    {"{\"version\": \"1\", \"cpu\": \"CPU\", \"rows\": []}", ATTN_KIND_INVALID_VALUE, "version"},
    {"{\"version\": 1, \"cpu\": \"Another 9000\", \"rows\": []}", ATTN_KIND_INVALID_VALUE, "'Another 9000'"},
    {"{\"version\": 1, \"cpu\": \"Another 9000\", \"rows\": []}", ATTN_KIND_INVALID_VALUE, "CPU"},
    {"{\"version\": 1, \"cpu\": \"CPU\", \"rows\": {}}", ATTN_KIND_INVALID_TYPE, "rows is a list"},
    {"{\"version\": 1, \"cpu\": \"CPU\", \"rows\": [], \"row\": 1}", ATTN_KIND_UNKNOWN_OR_MISSING_KEY,
     "did you mean rows"},
    {HEAD "3]}", ATTN_KIND_INVALID_TYPE, "rows[0] is no object"},
    {HEAD "{" ROW ", \"bz\": 3}]}", ATTN_KIND_UNKNOWN_OR_MISSING_KEY, "unknown key 'bz' in rows[0]"},
    {HEAD "{" ROW "}, {\"dtype\": \"f32\"}]}", ATTN_KIND_UNKNOWN_OR_MISSING_KEY, "no key 'isa' in rows[1]"},
    {HEAD "{" ROW ", \"bq\": \"3\"}]}", ATTN_KIND_INVALID_TYPE, "'bq' in rows[0] is no whole number"},
    {HEAD "{" ROW ", \"cache\": 1}]}", ATTN_KIND_INVALID_TYPE, "'cache' in rows[0] is no boolean"},
    {HEAD "{" ROW ", \"bq\": 0}]}", ATTN_KIND_INVALID_VALUE, "'bq' in rows[0] is 0"},
    {HEAD "{" ROW ", \"bk\": 65537}]}", ATTN_KIND_INVALID_VALUE, "it is 1 to 65536"},
    {HEAD
     "{\"dtype\": \"f32\", \"head_dim\": 64, \"value_head_dim\": 64, \"q_up_to\": 100, \"kv_up_to\": 1024, "
     "\"isa\": \"scalar\"}]}",
     ATTN_KIND_INVALID_VALUE, "powers of two"},
    {HEAD
     "{\"dtype\": \"f33\", \"head_dim\": 64, \"value_head_dim\": 64, \"q_up_to\": 128, \"kv_up_to\": 1024, "
     "\"isa\": \"scalar\"}]}",
     ATTN_KIND_UNKNOWN_NAME, "'f33'"},
    {HEAD
     "{\"dtype\": \"f32\", \"head_dim\": 64, \"value_head_dim\": 64, \"q_up_to\": 128, \"kv_up_to\": 1024, "
     "\"isa\": \"avx9\"}]}",
     ATTN_KIND_UNKNOWN_NAME, "'avx9'"},
};

static void replace_cpu(const char *text, char *to, size_t bytes)
{
    const char *at = strstr(text, "\"CPU\"");
    if (at)
        snprintf(to, bytes, "%.*s\"%s\"%s", (int)(at - text), text, cpu(), at + 5);
    else
        snprintf(to, bytes, "%s", text);
}

static void refused(const char *text, attn_kind kind, const char *says)
{
    attn_error error = ATTN_ERROR_INIT;
    attn_context *context = (attn_context *)(uintptr_t)1;
    const attn_options options = {.size = sizeof options, .module_path = "", .profile = path};
    assert_int_not_equal(attn_open(&options, &context, &error), ATTN_OK);
    assert_null(context);
    if (error.kind != kind) fail_msg("%s: kind %s, \"%s\"", text, attn_kind_name(error.kind), error.text);
    text_has(error.text, says);
    text_has(error.text, path);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    char text[1024];
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        replace_cpu(refusals[i].text, text, sizeof text);
        write_text(text);
        refused(text, refusals[i].kind, strcmp(refusals[i].says, "CPU") ? refusals[i].says : cpu());
    }
    unlink(path);
    refused("no file", ATTN_KIND_IO, "No such file");
    write_text("");
    refused("empty", ATTN_KIND_SYNTAX, "line 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_is_followed_where_it_holds),
        cmocka_unit_test(a_cap_goes_first),
        cmocka_unit_test(what_is_out_of_range_is_brought_within),
        cmocka_unit_test(threads_change_nothing),
        cmocka_unit_test(it_is_never_on_by_surprise),
        cmocka_unit_test(explain_says_so),
        cmocka_unit_test(what_is_wrong_is_named),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
