/* values.c: alignment, windows, numbers, grouped heads, head sizes, log-sum-exp. */
#include "field.h"

#include <math.h>
#include <string.h>

/* Scores are all zero, so that a row's output is the mean of the keys it sees. */
static void make_means(test_call *c, const char *backend, dims d)
{
    call_make(c, backend, ATTN_F32, d);
    tensor_fill(&c->q, 0);
    tensor_fill(&c->k, 0);
    fill_key_index(&c->v, 0);
}

static void check_rows(const test_call *c, const char *label, const double *rows, double atol)
{
    for (int64_t i = 0; i < c->out.shape[1]; i++)
        for (int64_t x = 0; x < c->out.shape[3]; x++)
            value_near(label, tensor_get(&c->out.dl, (int64_t[]){0, i, 0, x}), rows[i], atol);
}

void alignment_01(void **state)
{
    (void)state;
    static const double top_left[] = {0, 0.5}, bottom_right[] = {1.5, 2};
    FOR_BACKENDS(backend)
    {
        test_call c;
        make_means(&c, *backend, (dims){1, 2, 5, 1, 1, 4, 4});
        c.layer.causal = 1;
        call_run(&c); /* a layer that is just causal */
        check_rows(&c, *backend, bottom_right, 0);
        c.layer.alignment = ATTN_BOTTOM_RIGHT;
        call_run(&c);
        check_rows(&c, *backend, bottom_right, 0);
        c.layer.alignment = ATTN_TOP_LEFT;
        call_run(&c);
        check_rows(&c, *backend, top_left, 1e-6);
        call_free(&c);
    }
}

void alignment_03(void **state)
{
    (void)state;
    static const double rows[] = {0, 0.5, 1, 2, 3, 4};
    FOR_BACKENDS(backend)
    {
        test_call c;
        make_means(&c, *backend, (dims){1, 6, 6, 1, 1, 2, 2});
        c.layer.window = ATTN_WINDOW_LEFT | ATTN_WINDOW_RIGHT;
        c.layer.window_left = 2;
        c.layer.window_right = 0;
        call_run(&c);
        check_rows(&c, *backend, rows, 1e-6);
        call_free(&c);
    }
}

void numerics_01(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        call_make(&c, *backend, ATTN_BF16, (dims){1, 1, 1, 2, 2, 128, 128});
        tensor_fill(&c.q, 64);
        tensor_fill(&c.k, -64);
        tensor_fill(&c.v, 1);
        call_run(&c);
        tensor_all_near(*backend, &c.out, 1, 0);
        tensor_all_near(*backend, &c.lse, -46340.95, 46340.95 * 1e-5);
        call_free(&c);
    }
}

static double first_then(int64_t n, const void *arg)
{
    return ((const double *)arg)[n >= 128];
}

void numerics_03(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        call_make(&c, *backend, ATTN_F16, (dims){1, 2, 2, 1, 1, 128, 128});
        tensor_fill(&c.q, 64);
        tensor_generate(&c.k, first_then, (const double[]){64, -64});
        tensor_generate(&c.v, first_then, (const double[]){3, -5});
        call_run(&c);
        tensor_all_near(*backend, &c.out, 3, 0);
        call_free(&c);
    }
}

void numerics_04(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        call_make(&c, *backend, ATTN_F16, (dims){1, 1, 40000, 1, 1, 64, 64});
        tensor_fill(&c.q, 0);
        tensor_fill(&c.k, 0);
        tensor_fill(&c.v, 3);
        call_run(&c);
        tensor_all_near(*backend, &c.out, 3, 2e-3);
        call_free(&c);
    }
}

static void tail_keys(const char *backend, int64_t keys, int64_t queries)
{
    test_call c;
    call_make(&c, backend, ATTN_F32, (dims){1, queries, keys, 1, 1, 64, 64});
    tensor_fill(&c.q, 10);
    tensor_fill(&c.k, -1.25);
    tensor_fill(&c.v, 1);
    call_run(&c);
    tensor_all_near(backend, &c.out, 1, 1e-5);
    tensor_all_near(backend, &c.lse, log((double)keys) - 100, 2e-5);
    call_free(&c);
}

void numerics_06(void **state)
{
    (void)state;
    static const int64_t keys[] = {65, 1, 63, 64, 127, 129, 192, 704};
    value_near("log(65) - 100 is the case's number", log(65) - 100, -95.82561, 1e-5);
    FOR_BACKENDS(backend)
    for (int i = 0; i < 8; i++) {
        tail_keys(*backend, keys[i], 1);
        tail_keys(*backend, keys[i], 7);
    }
}

static double key_head(int64_t n, const void *arg)
{
    (void)arg;
    return (double)(n / 16 % 8);
}

void gqa_01(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        call_make(&c, *backend, ATTN_F32, (dims){1, 2, 3, 32, 8, 16, 16});
        tensor_mix32(&c.q, 66, 1);
        tensor_mix32(&c.k, 67, 1);
        tensor_generate(&c.v, key_head, NULL);
        call_run(&c);
        for (int64_t n = 0; n < 2 * 32 * 16; n++)
            value_near(*backend, tensor_flat(&c.out.dl, n), (double)(n / 16 % 32 / 4), 1e-6);
        call_free(&c);
    }
}

void gqa_02(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        call_make(&c, *backend, ATTN_F32, (dims){1, 4, 4, 6, 4, 8, 8});
        assert_int_equal(call_try(&c), ATTN_INVALID_ARGUMENT);
        text_has(c.error.text, "6");
        text_has(c.error.text, "4");
        /* A layer that says nothing of key heads meets the same numbers in the tensors. */
        c.layer.kv_heads = 6;
        assert_int_equal(call_try(&c), ATTN_INVALID_ARGUMENT);
        text_has(c.error.text, "6");
        text_has(c.error.text, "4");
        call_free(&c);
    }
}

static void lse_of_headdim_01(const test_call *c)
{
    value_near("lse", tensor_get(&c->lse.dl, (int64_t[]){0, 0, 0}), 1.592442, 1e-5);
}

void headdim_01(void **state)
{
    (void)state;
    static const probe_case p = {"headdim-01",
                                 ATTN_F32,
                                 {1, 3, 5, 2, 2, 80, 80},
                                 71,
                                 1e-5,
                                 NULL,
                                 2,
                                 {{{0, 0, 0, 0}, 0.2387741}, {{0, 2, 1, 79}, 0.4180473}}};
    field_probes(&p, NULL, lse_of_headdim_01);
}

static void repeatable(const char *backend)
{
    test_call c;
    counting memory;
    tensor first;
    counting_init(&memory);
    memory.poison = 1; /* memory that comes and goes is full of NaN */
    call_make(&c, backend, ATTN_F32, (dims){1, 3, 4, 2, 2, 72, 72});
    call_mix32(&c, 74, 75, 76);
    c.options.allocator = &memory.allocator;
    tensor_make(&first, ATTN_F32, 4, c.out.shape);
    for (int i = 0; i < 4; i++) {
        tensor_fill(&c.out, NAN);
        call_run(&c);
        if (i) tensor_same(backend, &c.out.dl, &first.dl);
        tensor_copy(&first.dl, &c.out.dl);
    }
    value_near(backend, tensor_get(&c.out.dl, (int64_t[]){0, 0, 0, 0}), 0.4380122, 1e-5);
    value_near(backend, tensor_get(&c.out.dl, (int64_t[]){0, 2, 1, 71}), -0.03052848, 1e-5);
    assert_true(memory.calls > 0);
    assert_int_equal(memory.live_blocks, 0);
    tensor_free(&first);
    call_free(&c);
}

void headdim_02(void **state)
{
    (void)state;
    FOR_BACKENDS(backend) repeatable(*backend);
}

void headdim_06(void **state)
{
    (void)state;
    static const probe_case p = {"headdim-06",
                                 ATTN_F32,
                                 {1, 2, 3, 1, 1, 96, 96},
                                 176,
                                 1e-5,
                                 NULL,
                                 2,
                                 {{{0, 0, 0, 0}, -0.7498962}, {{0, 1, 0, 95}, -0.03795987}}};
    field_probes(&p, NULL, NULL);
}

void headdim_09(void **state)
{
    (void)state;
    static const probe_case p = {"headdim-09",
                                 ATTN_F32,
                                 {1, 3, 4, 2, 2, 24, 16},
                                 90,
                                 1e-5,
                                 NULL,
                                 2,
                                 {{{0, 0, 0, 0}, -0.3871555}, {{0, 2, 1, 15}, 0.1675684}}};
    field_probes(&p, NULL, NULL);
}

void lse_01(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        call_make(&c, *backend, ATTN_F32, (dims){1, 2, 1600, 2, 2, 8, 8});
        tensor_fill(&c.q, 0);
        tensor_fill(&c.k, 0);
        tensor_fill(&c.v, 1);
        call_run(&c);
        tensor_all_near(*backend, &c.lse, 7.377759, 1e-5);
        call_free(&c);
    }
}

void lse_02(void **state)
{
    (void)state;
    static const attn_dtype dtypes[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
    for (int i = 0; i < 3; i++) {
        tensor out[3], lse[3];
        attn_error error = ATTN_ERROR_INIT;
        for (int n = 0; n < 3; n++) {
            tensor_make(&out[n], dtypes[i], 4, (int64_t[]){1, 1, 1, 2});
            tensor_make(&lse[n], ATTN_F32, 3, (int64_t[]){1, 1, 1});
            tensor_fill(&out[n], n == 2 ? 7 : 0);
            tensor_fill(&lse[n], n == 2 ? 7 : -INFINITY);
        }
        attn_status status =
            attn_merge(&out[0].dl, &lse[0].dl, &out[1].dl, &lse[1].dl, &out[2].dl, &lse[2].dl, &error);
        if (status) fail_msg("attn_merge: %s", error.text);
        tensor_all_near("out", &out[2], 0, 0);
        tensor_all_near("lse", &lse[2], -INFINITY, 0);
        for (int n = 0; n < 3; n++) tensor_free(&out[n]), tensor_free(&lse[n]);
    }
}
