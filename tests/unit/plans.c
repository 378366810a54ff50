/* plans.c: what is planned anew and what is not, counted by a module that counts. */
#include "support.h"

#include <dlfcn.h>
#include <string.h>

#define COUNTS TEST_MODULES "/counts.so"

static int *plans, *drops, *runs;

static int find_counters(void **state)
{
    (void)state;
    void *module = dlopen(COUNTS, RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        print_error("%s\n", dlerror());
        return -1;
    }
    plans = dlsym(module, "counts_plans");
    drops = dlsym(module, "counts_drops");
    runs = dlsym(module, "counts_runs");
    return plans && drops && runs ? 0 : -1;
}

static void start(test_call *c, int64_t keys)
{
    call_make(c, "FLASH_ATTN", ATTN_F32, (dims){2, 4, keys, 2, 2, 8, 8});
    c->options.module_path = COUNTS;
    c->options.overrides = "FLASH_ATTN=counts_all";
    *plans = *drops = *runs = 0;
}

static void go(test_call *c, attn_layer *layer)
{
    if (attn_forward(layer, &c->args, &c->error)) fail_msg("%s", c->error.text);
}

static void equal_problems_are_planned_once(void **state)
{
    (void)state;
    test_call c;
    tensor other;
    start(&c, 8);
    attn_context *context = context_open(&c.options);
    attn_layer *a = layer_open(context, &c.layer), *b = layer_open(context, &c.layer);
    go(&c, a);
    go(&c, a);
    go(&c, b); /* another layer of the same kind */
    tensor_make(&other, ATTN_F32, 4, c.k.shape);
    c.args.k = &other.dl; /* other memory, same layout */
    go(&c, a);
    assert_int_equal(*plans, 1);
    assert_int_equal(*runs, 4);
    attn_layer_info info = {.size = sizeof info};
    attn_layer_get_info(a, &info);
    assert_string_equal(info.plan, "counts everything");
    attn_layer_close(a);
    attn_layer_close(b);
    assert_int_equal(*drops, 0);
    attn_close(context);
    assert_int_equal(*drops, 1);
    tensor_free(&other);
    call_free(&c);
}

/* Each of these is part of a plan. */
static void what_differs_is_planned_anew(void **state)
{
    (void)state;
    test_call c;
    tensor valid;
    start(&c, 8);
    call_mask(&c, ATTN_BOOL, 1, 1, 1, 8);
    tensor_make(&valid, ATTN_I32, 1, (int64_t[]){2});
    tensor_fill(&valid, 3);
    c.args.mask = NULL;
    attn_context *context = context_open(&c.options);
    attn_layer *layer = layer_open(context, &c.layer);
    int expected = 0;
    go(&c, layer);
    assert_int_equal(*plans, ++expected);
    c.k.strides[1] = 8, c.k.strides[2] = 8 * 8; /* same shape, other strides */
    go(&c, layer);
    assert_int_equal(*plans, ++expected);
    c.args.mask = &c.mask.dl;
    go(&c, layer);
    assert_int_equal(*plans, ++expected);
    c.mask.shape[3] = 1; /* another broadcast form */
    go(&c, layer);
    assert_int_equal(*plans, ++expected);
    c.args.mask = NULL;
    c.args.kv_lengths = &valid.dl;
    go(&c, layer);
    assert_int_equal(*plans, ++expected);
    tensor_fill(&valid, 7); /* lengths' values are no part of it */
    go(&c, layer);
    assert_int_equal(*plans, expected);
    c.args.kv_lengths = NULL;
    c.args.lse = NULL;
    go(&c, layer);
    assert_int_equal(*plans, ++expected);
    DLTensor *typed[] = {&c.q.dl, &c.k.dl, &c.v.dl, &c.out.dl};
    for (int i = 0; i < 4; i++) typed[i]->dtype = attn_dtype_to_dl(ATTN_BF16);
    go(&c, layer);
    assert_int_equal(*plans, ++expected);
    for (int i = 0; i < 4; i++) typed[i]->dtype = attn_dtype_to_dl(ATTN_F16);
    go(&c, layer);
    assert_int_equal(*plans, ++expected);
    attn_layer_close(layer);
    attn_layer_options site = c.layer;
    site.causal = 1;
    layer = layer_open(context, &site);
    go(&c, layer);
    assert_int_equal(*plans, ++expected);
    attn_layer_close(layer);
    attn_close(context);
    assert_int_equal(*drops, expected);
    tensor_free(&valid);
    call_free(&c);
}

static void the_least_recently_used_goes_first(void **state)
{
    (void)state;
    test_call c;
    start(&c, 8);
    c.options.plan_cache = 2;
    attn_context *context = context_open(&c.options);
    attn_layer *layer = layer_open(context, &c.layer);
    static const int64_t keys[] = {1, 2, 1, 3, 1, 2};
    static const int planned[] = {1, 2, 2, 3, 3, 4}; /* 3 drives out 2, which comes back as new */
    for (int i = 0; i < 6; i++) {
        c.k.shape[1] = c.v.shape[1] = keys[i];
        go(&c, layer);
        assert_int_equal(*plans, planned[i]);
    }
    attn_layer_close(layer);
    attn_close(context);
    assert_int_equal(*drops, *plans);
    call_free(&c);
}

/* A steady state allocates nothing. */
static void a_second_call_takes_no_memory(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        counting memory;
        counting_init(&memory);
        call_make(&c, *backend, ATTN_F32, (dims){2, 40, 70, 4, 2, 16, 16});
        call_mix32(&c, 1, 2, 3);
        c.options.allocator = &memory.allocator;
        attn_context *context = context_open(&c.options);
        attn_layer *layer = layer_open(context, &c.layer);
        go(&c, layer);
        int64_t calls = memory.calls;
        for (int i = 0; i < 3; i++) go(&c, layer);
        assert_int_equal(memory.calls, calls);
        attn_layer_close(layer);
        attn_close(context);
        assert_int_equal(memory.live_blocks, 0);
        call_free(&c);
    }
}

static void empty_calls_run_nothing(void **state)
{
    (void)state;
    test_call c;
    start(&c, 8);
    attn_context *context = context_open(&c.options);
    attn_layer *layer = layer_open(context, &c.layer);
    c.q.shape[1] = c.out.shape[1] = c.lse.shape[2] = 0;
    go(&c, layer);
    assert_int_equal(*runs, 0);
    attn_layer_close(layer);
    attn_close(context);
    call_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_problems_are_planned_once),
        cmocka_unit_test(what_differs_is_planned_anew),
        cmocka_unit_test(the_least_recently_used_goes_first),
        cmocka_unit_test(a_second_call_takes_no_memory),
        cmocka_unit_test(empty_calls_run_nothing),
    };
    return cmocka_run_group_tests_name("plans", tests, find_counters, NULL);
}
