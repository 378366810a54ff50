/* modules.c: modules that must load, modules that must be refused, and that neither harms the others. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIXTURE(name) TEST_MODULES "/" name ".so"

/* What one module of the list comes to. Words are in the row's text. */
static const struct expected {
    const char *file;
    attn_kind kind;
    const char *words[3];
} expected[] = {
    {"missing_symbol", ATTN_KIND_MODULE_NO_ENTRY, {"missing_symbol.so", "attn_module_v1"}},
    {"returns_null", ATTN_KIND_MODULE_NO_ENTRY, {"returns_null.so", "attn_module_v1"}},
    {"short_header",
     ATTN_KIND_MODULE_ABI,
     {"short_header.so", "4", "8"}}, /* found, and what the version needs */
    {"wrong_major", ATTN_KIND_MODULE_ABI, {"wrong_major.so", "2.0", "speaks 1."}},
    {"text_file", ATTN_KIND_MODULE_UNLOADABLE, {"text_file.so"}},
    {"absent", ATTN_KIND_MODULE_UNLOADABLE, {"absent.so", "No such file"}},
    {"twin_a", ATTN_KIND_NONE, {""}},
    {"twin_b", ATTN_KIND_MODULE_CLASH, {"twin_b.so", "twin_plain", "twin_a"}},
    {"clash_builtin", ATTN_KIND_MODULE_CLASH, {"clash_builtin.so", "cpu_reference", "library"}},
    {"no_run", ATTN_KIND_MODULE_ABI, {"no_run.so"}},
    {"later_minor", ATTN_KIND_NONE, {""}},
    {"older_header", ATTN_KIND_NONE, {""}},
    {"short_impl", ATTN_KIND_NONE, {""}},
    {"no_mask", ATTN_KIND_NONE, {""}},
    {"f16_only", ATTN_KIND_NONE, {""}},
    {"two_widths", ATTN_KIND_NONE, {""}},
};
enum { MODULES = sizeof expected / sizeof *expected };

static attn_context *open_all(attn_options *options)
{
    static char path[4096];
    path[0] = 0;
    for (int i = 0; i < MODULES; i++) {
        size_t used = strlen(path);
        snprintf(path + used, sizeof path - used, "%s%s/%s.so", i ? ":" : "", TEST_MODULES, expected[i].file);
    }
    options->module_path = path;
    return context_open(options);
}

static int has_impl(const attn_context *context, const char *name)
{
    attn_impl_info info = {.size = sizeof info};
    int found = 0;
    for (size_t i = 0; attn_impl_at(context, i, &info); i++) found += !strcmp(info.name, name);
    return found;
}

static void every_row_says_what_it_came_to(void **state)
{
    (void)state;
    attn_options options = {.size = sizeof options};
    attn_context *context = open_all(&options);
    attn_module_info info = {.size = sizeof info};
    for (int i = 0; i < MODULES; i++) {
        assert_true(attn_module_at(context, (size_t)i, &info));
        text_has(info.path, expected[i].file);
        if (info.kind != expected[i].kind)
            fail_msg("%s is %s, expected %s: %s", expected[i].file, attn_kind_name(info.kind),
                     attn_kind_name(expected[i].kind), info.text);
        for (int w = 0; w < 3 && expected[i].words[w]; w++) text_has(info.text, expected[i].words[w]);
        if (info.kind == ATTN_KIND_NONE) {
            assert_string_equal(info.name, expected[i].file);
            assert_string_equal(info.version, "1.0");
        }
    }
    assert_false(attn_module_at(context, MODULES, &info));
    attn_close(context);
}

static void loading_is_all_or_nothing(void **state)
{
    (void)state;
    attn_options options = {.size = sizeof options};
    attn_context *context = open_all(&options);
    assert_int_equal(has_impl(context, "twin_plain"), 1);
    assert_int_equal(has_impl(context, "later_plain"), 1);
    assert_int_equal(has_impl(context, "older_plain"), 1);
    assert_int_equal(has_impl(context, "short_plain"), 1);
    assert_int_equal(has_impl(context, "no_run_whole"), 0); /* goes with its broken neighbour */
    assert_int_equal(has_impl(context, "no_run_half"), 0);
    assert_int_equal(has_impl(context, "cpu_reference"), 1);
    attn_close(context);
}

/* One key, so that the fixtures' attention is right. */
static void run_one(const char *backend, attn_options options, const char *implementation)
{
    test_call c;
    options.backend = backend;
    call_make(&c, backend, ATTN_F32, (dims){1, 3, 1, 2, 2, 8, 8});
    c.options = options;
    c.args.lse = NULL;
    call_mix32(&c, 1, 2, 3);
    call_run(&c);
    for (int64_t n = 0; n < 3 * 16; n++)
        value_near(backend, tensor_flat(&c.out.dl, n), tensor_flat(&c.v.dl, n % 16), 1e-6);
    if (implementation) assert_string_equal(c.implementation, implementation);
    call_free(&c);
}

static void refused_modules_harm_nobody(void **state)
{
    (void)state;
    attn_options options = {.size = sizeof options};
    attn_close(open_all(&options)); /* sets the path */
    run_one("auto", options, NULL);
    run_one("TORCH_SDPA", options, "cpu_reference");
    options.overrides = "FLASH_ATTN=twin_plain";
    run_one("FLASH_ATTN", options, "twin_plain");
    options.overrides = "FLASH_ATTN=later_plain";
    run_one("FLASH_ATTN", options, "later_plain");
}

/* Dropping its plans must not call what lies behind the end of its struct. */
static void a_shorter_struct_reads_as_zero_filled(void **state)
{
    (void)state;
    attn_options options = {
        .size = sizeof options, .module_path = FIXTURE("short_impl"), .overrides = "FLASH_ATTN=short_plain"};
    run_one("FLASH_ATTN", options, "short_plain");
}

static void the_first_of_two_twins_stays_whatever_the_order(void **state)
{
    (void)state;
    attn_options options = {.size = sizeof options, .module_path = FIXTURE("twin_b") ":" FIXTURE("twin_a")};
    attn_context *context = context_open(&options);
    attn_module_info info = {.size = sizeof info};
    assert_true(attn_module_at(context, 0, &info));
    assert_int_equal(info.kind, ATTN_KIND_NONE);
    assert_true(attn_module_at(context, 1, &info));
    assert_int_equal(info.kind, ATTN_KIND_MODULE_CLASH);
    text_has(info.text, "twin_a.so");
    text_has(info.text, "twin_b");
    attn_close(context);
}

/* A folder of links; other files than shared objects are passed over, a bad one is a row like any other. */
static void a_folder_is_searched_for_shared_objects(void **state)
{
    (void)state;
    static const char *const files[][2] = {{FIXTURE("twin_a"), "b.so"},
                                           {FIXTURE("later_minor"), "a.so"},
                                           {FIXTURE("text_file"), "c.so"},
                                           {FIXTURE("short_impl"), "short_impl.so.disabled"}};
    char folder[] = TEST_MODULES "-XXXXXX", link[512];
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 4; i++) {
        snprintf(link, sizeof link, "%s/%s", folder, files[i][1]);
        assert_int_equal(symlink(files[i][0], link), 0);
    }
    attn_options options = {.size = sizeof options, .module_path = folder};
    attn_context *context = context_open(&options);
    attn_module_info info = {.size = sizeof info};
    static const char *const in_order[] = {"later_minor", "twin_a", "text_file"};
    for (size_t n = 0; n < 3; n++) {
        assert_true(attn_module_at(context, n, &info));
        text_has(info.path, in_order[n]);
        assert_int_equal(info.kind == ATTN_KIND_NONE, n < 2);
    }
    assert_false(attn_module_at(context, 3, &info));
    assert_int_equal(has_impl(context, "later_plain"), 1);
    assert_int_equal(has_impl(context, "short_plain"), 0);
    attn_close(context);
    for (int i = 0; i < 4; i++) {
        snprintf(link, sizeof link, "%s/%s", folder, files[i][1]);
        unlink(link);
    }
    rmdir(folder);
}

static void the_allow_list_names_modules(void **state)
{
    (void)state;
    attn_options options = {.size = sizeof options, .plugins = "later_minor,other"};
    attn_context *context = open_all(&options);
    assert_int_equal(has_impl(context, "later_plain"), 1);
    assert_int_equal(has_impl(context, "twin_plain"), 0);
    attn_close(context);
    options.plugins = "";
    context = open_all(&options);
    assert_int_equal(has_impl(context, "later_plain"), 0);
    assert_int_equal(has_impl(context, "cpu_reference"), 1);
    attn_close(context);
}

static void overrides_name_what_there_is(void **state)
{
    (void)state;
    static const char *const bad[] = {"FLASH_ATTN=no_such_code", "NO_SUCH_ATTN=cpu_reference", "FLASH_ATTN",
                                      "FLASH_ATTN=cpu_reference"};
    for (int i = 0; i < 4; i++) {
        attn_options options = {.size = sizeof options, .module_path = "", .overrides = bad[i]};
        attn_error error = ATTN_ERROR_INIT;
        attn_context *context = NULL;
        assert_int_equal(attn_open(&options, &context, &error), ATTN_INVALID_ARGUMENT);
        assert_null(context);
        text_has(error.text, "override");
    }
}

/* Built-ins stand before modules of the same backend: nothing changes for who asks for nothing. */
static void built_ins_come_first(void **state)
{
    (void)state;
    attn_options options = {.size = sizeof options, .module_path = FIXTURE("two_widths")};
    test_call c;
    call_make(&c, "FLASH_ATTN", ATTN_F32, (dims){1, 3, 1, 2, 2, 64, 64});
    options.backend = "FLASH_ATTN";
    c.options = options;
    call_mix32(&c, 1, 2, 3);
    call_run(&c);
    assert_string_not_equal(c.implementation, "two_widths_dense");
    call_free(&c);
}

/* An exception stops at the border, the process lives, and the next call works. */
static void exceptions_become_statuses(void **state)
{
    (void)state;
    static const char *const words[] = {"the tile is on fire", "unknown type"};
    if (access(FIXTURE("throws"), R_OK)) SKIP_BECAUSE("there is no C++ compiler");
    for (int64_t heads = 2; heads < 4; heads++) {
        test_call c;
        call_make(&c, "FLASH_ATTN", ATTN_F32, (dims){1, 3, 5, heads, heads, 8, 8});
        call_mix32(&c, 1, 2, 3);
        c.options.module_path = FIXTURE("throws");
        c.options.overrides = "FLASH_ATTN=throws_always";
        assert_int_equal(call_try(&c), ATTN_INTERNAL);
        text_has(c.error.text, words[heads - 2]);
        c.options.backend = "TORCH_SDPA";
        call_run(&c);
        call_free(&c);
    }
}

static void the_template_module_attends(void **state)
{
    (void)state;
#ifdef TEST_TEMPLATE
    test_call c;
    tensor out, lse;
    call_make(&c, "TORCH_SDPA", ATTN_F32, (dims){2, 5, 9, 4, 4, 16, 16});
    c.options.module_path = TEST_TEMPLATE;
    c.options.overrides = "TORCH_SDPA=template_plain";
    c.args.lse = NULL;
    call_mix32(&c, 1, 2, 3);
    call_run(&c);
    assert_string_equal(c.implementation, "template_plain");
    call_truth(&c, NULL, &out, &lse);
    tensor_near("template", &c.out.dl, &out.dl, 1e-5);
    tensor_free(&out);
    tensor_free(&lse);
    c.options.overrides = NULL; /* its rank puts it behind the built-in one */
    call_run(&c);
    assert_string_equal(c.implementation, "cpu_reference");
    call_free(&c);
#else
    SKIP_BECAUSE("modules/template is not built here");
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_says_what_it_came_to),
        cmocka_unit_test(loading_is_all_or_nothing),
        cmocka_unit_test(refused_modules_harm_nobody),
        cmocka_unit_test(a_shorter_struct_reads_as_zero_filled),
        cmocka_unit_test(the_first_of_two_twins_stays_whatever_the_order),
        cmocka_unit_test(a_folder_is_searched_for_shared_objects),
        cmocka_unit_test(the_allow_list_names_modules),
        cmocka_unit_test(overrides_name_what_there_is),
        cmocka_unit_test(built_ins_come_first),
        cmocka_unit_test(exceptions_become_statuses),
        cmocka_unit_test(the_template_module_attends),
    };
    return cmocka_run_group_tests_name("modules", tests, NULL, NULL);
}
