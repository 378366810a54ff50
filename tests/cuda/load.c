/* load.c: the CUDA module without a GPU: it loads, its rows are listed, and a layer on it is refused with a
 * sentence that says what is missing. Where there is a GPU the layer opens. */
#include "support.h"

#include <string.h>
#include <unistd.h>

static attn_context *open_cuda(void)
{
    attn_options options = {.size = sizeof options,
                            .backend = "TORCH_SDPA",
                            .platform = "cuda",
                            .module_path = TEST_CUDA,
                            .flags = ATTN_OPEN_IGNORE_ENV};
    return context_open(&options);
}

static void the_module_is_accepted(void **state)
{
    (void)state;
    attn_context *context = open_cuda();
    attn_module_info info = {.size = sizeof info};
    assert_true(attn_module_at(context, 0, &info));
    if (info.kind != ATTN_KIND_NONE) fail_msg("%s", info.text);
    assert_string_equal(info.name, "cuda");
    assert_string_equal(info.version, attn_version());
    attn_close(context);
}

static void its_rows_are_listed(void **state)
{
    (void)state;
    attn_context *context = open_cuda();
    attn_impl_info info = {.size = sizeof info};
    int found = 0;
    for (size_t i = 0; attn_impl_at(context, i, &info); i++) {
        if (strcmp(info.module, "cuda")) continue;
        found++;
        assert_string_equal(info.platform, "cuda");
    }
    assert_true(found >= 1);
    attn_close(context);
}

static void a_layer_without_a_device_is_refused(void **state)
{
    (void)state;
    attn_context *context = open_cuda();
    attn_layer_options options = {
        .size = sizeof options, .device = {kDLCUDA, 0}, .heads = 2, .head_dim = 64, .dtype = ATTN_F16};
    attn_error error = ATTN_ERROR_INIT;
    attn_layer *layer = NULL;
    attn_status status = attn_layer_open(context, &options, &layer, &error);
    if (!access("/dev/nvidiactl", F_OK)) {
        assert_int_equal(status, ATTN_OK);
        attn_layer_close(layer);
    } else {
        assert_int_not_equal(status, ATTN_OK);
        assert_int_equal(error.kind, ATTN_KIND_PACKAGE_MISSING);
        text_has(error.text, "no CUDA device 0");
        text_has(error.text, "driver");
    }
    attn_close(context);
}

/* Memory of a device that is not there: the module's own words, as for a layer. */
static void memory_without_a_device_is_refused(void **state)
{
    (void)state;
    attn_context *context = open_cuda();
    attn_error error = ATTN_ERROR_INIT;
    void *memory = NULL;
    attn_status status = attn_device_alloc(context, (DLDevice){kDLCUDA, 0}, 64, &memory, &error);
    if (!access("/dev/nvidiactl", F_OK)) {
        assert_int_equal(status, ATTN_OK);
        attn_device_free(context, (DLDevice){kDLCUDA, 0}, memory);
    } else {
        assert_int_equal(error.kind, ATTN_KIND_PACKAGE_MISSING);
        text_has(error.text, "driver");
        assert_null(memory);
    }
    attn_close(context);
}

/* The module leaves the host alone: layers on host memory run as before. */
static void host_layers_still_run(void **state)
{
    (void)state;
    test_call c;
    call_make(&c, "TORCH_SDPA", ATTN_F32, (dims){1, 3, 5, 2, 2, 8, 8});
    c.options.platform = "cuda";
    c.options.module_path = TEST_CUDA;
    c.layer.device = (DLDevice){kDLCPU, 0};
    call_mix32(&c, 1, 2, 3);
    call_run(&c);
    assert_string_equal(c.implementation, "cpu_reference");
    call_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_module_is_accepted),
        cmocka_unit_test(its_rows_are_listed),
        cmocka_unit_test(a_layer_without_a_device_is_refused),
        cmocka_unit_test(memory_without_a_device_is_refused),
        cmocka_unit_test(host_layers_still_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
