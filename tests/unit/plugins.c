/* plugins.c: files that are sparse plugins: which are taken, what is refused, what a failure does. */
#include "support.h"

#include <stdio.h>
#include <string.h>

enum { ROWS = 128 };

static attn_context *open_with(const char *modules, const char *allow, const char *backend)
{
    char path[1024], item[64];
    size_t used = 0;
    path[0] = 0;
    for (const char *p = modules; *p; p += strcspn(p, " "), p += *p == ' ') {
        snprintf(item, sizeof item, "%.*s", (int)strcspn(p, " "), p);
        used += (size_t)snprintf(path + used, sizeof path - used, "%s%s/%s.so", used ? ":" : "", TEST_MODULES,
                                 item);
    }
    attn_options o = {.size = sizeof o,
                      .flags = ATTN_OPEN_IGNORE_ENV,
                      .module_path = path,
                      .plugins = allow,
                      .backend = backend,
                      .threads = 1};
    attn_context *context = NULL;
    assert_int_equal(attn_open(&o, &context, NULL), ATTN_OK);
    return context;
}

static attn_kind open_layer(attn_context *context, attn_layer **layer, attn_error *error)
{
    attn_layer_options site = {.size = sizeof site, .heads = 1, .head_dim = 8, .dtype = ATTN_F16};
    attn_layer *own = NULL;
    *error = (attn_error)ATTN_ERROR_INIT;
    attn_layer_open(context, &site, layer ? layer : &own, error);
    if (!layer) attn_layer_close(own);
    return error->kind;
}

static void refuses(const char *modules, const char *allow, const char *backend, attn_kind kind,
                    const char *word)
{
    attn_error error;
    attn_context *context = open_with(modules, allow, backend);
    assert_int_equal(open_layer(context, NULL, &error), kind);
    assert_non_null(strstr(error.text, word));
    attn_close(context);
}

static void refuses_at_the_layer(void **state)
{
    (void)state;
    refuses("sparse_both sparse_zero", NULL, "sparse_both", ATTN_KIND_SPARSE_PLUGIN_BROKEN, "both forms");
    refuses("sparse_later", NULL, "sparse_later", ATTN_KIND_SPARSE_PLUGIN_BROKEN, "2.");
    refuses("sparse_sizeless", NULL, "sparse_sizeless", ATTN_KIND_SPARSE_PLUGIN_BROKEN, "0 bytes");
    refuses("sparse_zero text_file", NULL, "text_file", ATTN_KIND_SPARSE_PLUGIN_BROKEN, "sparse_zero");
    refuses("sparse_zero", "", "sparse_zero", ATTN_KIND_SPARSE_PLUGIN_MISSING, "list of allowed modules");
    refuses("sparse_zero", "other", "sparse_zero", ATTN_KIND_SPARSE_PLUGIN_MISSING, "other");
    refuses("sparse_zero", NULL, "sparse_zerro", ATTN_KIND_UNKNOWN_BACKEND, "sparse_zero");
    refuses("sparse_zero", NULL, "SPARSE_ATTN", ATTN_KIND_SPARSE_NAME_REQUIRED, "sparse_zero");
}

static void is_named_in_any_case(void **state)
{
    (void)state;
    attn_error error;
    attn_layer *layer = NULL;
    attn_layer_info info = {.size = sizeof info};
    attn_plugin_info plugin = {.size = sizeof plugin};
    attn_context *context = open_with("sparse_zero sparse_twice", "sparse_zero,sparse_twice", "Sparse_Zero");
    assert_int_equal(open_layer(context, &layer, &error), ATTN_KIND_NONE);
    attn_layer_get_info(layer, &info);
    assert_string_equal(info.backend, "SPARSE_ATTN");
    assert_string_equal(info.implementation, "plugin:sparse_zero");
    assert_true(attn_plugin_at(context, 0, &plugin));
    assert_string_equal(plugin.name, "sparse_zero");
    assert_int_equal(plugin.selects, 0);
    assert_true(attn_plugin_at(context, 1, &plugin));
    assert_int_equal(plugin.selects, 1);
    assert_false(attn_plugin_at(context, 2, &plugin));
    attn_layer_close(layer);
    attn_close(context);
}

/* Runs a plugin over outputs that hold a pattern; returns the kind. */
static attn_kind run_plugin(const char *name, uint16_t *out, attn_error *error)
{
    static uint16_t q[ROWS * 8];
    int64_t shape[] = {1, ROWS, 1, 8};
    DLTensor in = {q, {kDLCPU, 0}, 4, {kDLFloat, 16, 1}, shape, NULL, 0}, to = in;
    attn_args args = {.size = sizeof args, .q = &in, .k = &in, .v = &in, .out = &to};
    attn_layer *layer = NULL;
    attn_context *context = open_with(name, NULL, name);
    to.data = out;
    memset(out, 0x5a, ROWS * 8 * sizeof *out);
    assert_int_equal(open_layer(context, &layer, error), ATTN_KIND_NONE);
    attn_forward(layer, &args, error);
    attn_kind kind = error->kind;
    attn_layer_close(layer);
    attn_close(context);
    return kind;
}

static void a_failure_fails_the_call(void **state)
{
    (void)state;
    uint16_t out[ROWS * 8];
    attn_error error = ATTN_ERROR_INIT;
    assert_int_equal(run_plugin("sparse_zero", out, &error), ATTN_KIND_NONE);
    for (int i = 0; i < ROWS * 8; i++) assert_int_equal(out[i], 0);
    assert_int_equal(run_plugin("sparse_fails", out, &error), ATTN_KIND_INTERNAL);
    assert_non_null(strstr(error.text, "failed with 7"));
    assert_int_equal(out[1], 0x5a5a); /* nothing took its place */
    error = (attn_error)ATTN_ERROR_INIT;
    assert_int_equal(run_plugin("sparse_twice", out, &error), ATTN_KIND_INVALID_VALUE);
    assert_non_null(strstr(error.text, "sparse_twice"));
    assert_int_equal(out[0], 0x5a5a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_at_the_layer),
        cmocka_unit_test(is_named_in_any_case),
        cmocka_unit_test(a_failure_fails_the_call),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
