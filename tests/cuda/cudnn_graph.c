/* cudnn_graph.c: attention as a graph of cuDNN's operations, with a library that counts (platform/fakes.c)
 * and its failures.
 * usage: cudnn_graph FAKE-LIBRARY */
#include "support.h"

#include "cudnn_graph.h"
#include "cudnn_rows.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int *alive, *calls, *ops;
static const attn_cudnn *lib;

static attn_problem plain(void)
{
    return (attn_problem){.dtype = ATTN_BF16,
                          .out_dtype = ATTN_BF16,
                          .batch = 2,
                          .heads = 8,
                          .kv_heads = 8,
                          .q_len = 1024,
                          .kv_len = 1024,
                          .head_dim = 128,
                          .value_head_dim = 128,
                          .scale = 0.1,
                          .q_stride = {1 << 20, 1024, 128, 1},
                          .k_stride = {1 << 20, 1024, 128, 1},
                          .v_stride = {1 << 20, 1024, 128, 1},
                          .out_stride = {1 << 20, 1024, 128, 1},
                          .lse_stride = {8192, 1024, 1}};
}

/* The kinds of calls, and how many operations each chain has. */
static attn_problem problem_at(int i, int *operations)
{
    static const uint64_t lse = ATTN_FEATURE(LSE), lengths = ATTN_FEATURE(LENGTHS),
                          key_mask = ATTN_FEATURE(KEY_MASK);
    const struct {
        uint64_t features;
        int causal, alignment, mask_form;
        int64_t kv_len;
        int operations;
    } rows[] = {
        {0, 0, 0, 0, 1024, 10},
        {lse, 0, 0, 0, 1024, 10},
        {lse, 1, ATTN_BOTTOM_RIGHT, 0, 1024, 14},
        {0, 1, ATTN_BOTTOM_RIGHT, 0, 2048, 16},
        {0, 1, ATTN_TOP_LEFT, 0, 2048, 14},
        {lengths, 0, 0, 0, 1024, 16},
        {lengths | lse, 1, ATTN_BOTTOM_RIGHT, 0, 1024, 22},
        {key_mask, 0, 0, 0, 1000, 11},
        {lengths, 1, ATTN_TOP_LEFT, ATTN_FORM_ADDITIVE, 1024, 21},
        {key_mask, 0, 0, ATTN_FORM_KEEP, 1024, 11},
    };
    attn_problem p = plain();
    if (i >= (int)(sizeof rows / sizeof *rows)) {
        p.size = 1;
        return p;
    }
    p.features = rows[i].features;
    p.causal = rows[i].causal;
    p.alignment = rows[i].alignment;
    p.kv_len = rows[i].kv_len;
    p.mask_form = rows[i].mask_form;
    p.mask_dtype = p.mask_form == ATTN_FORM_ADDITIVE ? ATTN_F32 : p.mask_form ? ATTN_BOOL : 0;
    p.mask_stride[2] = p.mask_form ? p.kv_len : 0;
    p.mask_stride[3] = p.mask_form != 0;
    p.key_mask_stride[0] = p.features & key_mask ? p.kv_len : 0;
    p.key_mask_stride[1] = 1;
    *operations = rows[i].operations;
    return p;
}

static attn_status make(const attn_problem *p, attn_cudnn_plan *plan, attn_error *error)
{
    static int handle;
    const attn_cudnn_target target = {.handle = &handle};
    memset(plan, 0, sizeof *plan);
    return attn_cudnn_plan_make(lib, &target, p, plan, error);
}

static void chains_have_their_operations(void **state)
{
    (void)state;
    int wanted = 0;
    for (int i = 0;; i++) {
        attn_problem p = problem_at(i, &wanted);
        attn_cudnn_plan plan;
        attn_error error = ATTN_ERROR_INIT;
        if (p.size) break;
        if (make(&p, &plan, &error)) fail_msg("%d: %s", i, error.text);
        if (*ops != wanted) fail_msg("%d: %d operations instead of %d", i, *ops, wanted);
        assert_int_equal(plan.workspace_bytes, 1000);
        assert_non_null(plan.plan);
        assert_true(*alive > 0);
        attn_cudnn_plan_free(&plan);
        assert_int_equal(*alive, 0);
    }
}

/* Whatever call fails: a sentence or another way, and nothing is lost. */
static void every_failure_is_told(void **state)
{
    (void)state;
    int operations, refused = 0;
    attn_problem p = problem_at(6, &operations);
    attn_cudnn_plan plan;
    attn_error error = ATTN_ERROR_INIT;
    *calls = 0;
    assert_int_equal(make(&p, &plan, &error), 0);
    attn_cudnn_plan_free(&plan);
    int all = *calls;
    for (int n = 1; n <= all; n++) {
        char text[16];
        snprintf(text, sizeof text, "%d", n);
        setenv("FAKE_CUDNN_FAIL", text, 1);
        *calls = 0;
        if (make(&p, &plan, &error)) {
            assert_int_equal(error.kind, ATTN_KIND_FEATURE_UNSUPPORTED);
            text_has(error.text, "FAKE_NOT_SUPPORTED");
            refused++;
        }
        attn_cudnn_plan_free(&plan);
        assert_int_equal(*alive, 0);
    }
    unsetenv("FAKE_CUDNN_FAIL");
    /* Only the last calls, where another engine is tried, have another way. */
    assert_in_range(refused, all - 20, all);
}

static void masks_become_one_bias(void **state)
{
    (void)state;
    attn_problem p = plain();
    attn_cudnn_bias b;
    attn_cudnn_bias_of(&p, &b);
    assert_int_equal(b.dtype, 0);
    p.features = ATTN_FEATURE(KEY_MASK);
    p.kv_len = 1001;
    p.key_mask_stride[1] = 1;
    attn_cudnn_bias_of(&p, &b);
    assert_int_equal(b.dtype, ATTN_BF16);
    assert_int_equal(b.shape[0] * b.shape[1] * b.shape[2], 1);
    assert_int_equal(b.strides[2], 1008); /* 16 bytes */
    assert_int_equal(b.bytes, 2016);
    p.key_mask_stride[0] = 1001;
    p.mask_form = ATTN_FORM_ADDITIVE, p.mask_dtype = ATTN_F32, p.mask_stride[2] = 1001, p.mask_stride[3] = 1;
    attn_cudnn_bias_of(&p, &b);
    assert_int_equal(b.dtype, ATTN_F32);
    assert_int_equal(b.shape[0], 2);
    assert_int_equal(b.shape[1], 1);
    assert_int_equal(b.shape[2], 1024);
    assert_int_equal(b.shape[3], 1001);
}

/* Against every key looked at in turn. */
static void rows_that_see_nothing_are_known(void **state)
{
    (void)state;
    enum { KEYS = 5 };
    int empty = 0, all = 0;
    for (int q_len = 1; q_len <= 7; q_len++)
        for (int row = 0; row < q_len; row++)
            for (int length = 0; length <= KEYS; length++)
                for (int form = 0; form < 3; form++)
                    for (unsigned mask = 0; mask < 1u << KEYS; mask++) {
                        int causal = form > 0, corner = form > 1, seen = 0, first = KEYS;
                        for (int j = KEYS - 1; j >= 0; j--)
                            if (mask >> j & 1) first = j;
                        for (int j = 0; j < length; j++)
                            seen += (mask >> j & 1) && (!causal || j <= row + (corner ? length - q_len : 0));
                        assert_int_equal(attn_cudnn_row_empty(row, q_len, first, length, causal, corner),
                                         !seen);
                        empty += !seen, all++;
                    }
    assert_in_range(empty, all / 10, all - all / 10);
}

static int find_library(void **state)
{
    char why[256] = "";
    (void)state;
    lib = attn_cudnn_library(why, sizeof why);
    if (!lib) print_error("%s\n", why);
    if (!lib) return -1;
    alive = dlsym(lib->library, "fake_cudnn_alive");
    calls = dlsym(lib->library, "fake_cudnn_calls");
    ops = dlsym(lib->library, "fake_cudnn_ops");
    return alive && calls && ops ? 0 : -1;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_have_their_operations),
        cmocka_unit_test(every_failure_is_told),
        cmocka_unit_test(masks_become_one_bias),
        cmocka_unit_test(rows_that_see_nothing_are_known),
    };
    if (argc > 1) setenv("ATTN_CUDNN_LIBRARY", argv[1], 1);
    return cmocka_run_group_tests(tests, find_library, NULL);
}
