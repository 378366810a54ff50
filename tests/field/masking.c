/* masking.c: rows with nothing to attend to, and what lies behind a mask. */
#include "field.h"

#include <math.h>
#include <string.h>

static double keep_upper_left(int64_t n, const void *arg)
{
    (void)arg;
    return n / 8 < 4 && n % 8 < 4;
}

static void arrange_01(test_call *c)
{
    call_mask(c, ATTN_BOOL, 1, 1, 8, 8);
    tensor_generate(&c->mask, keep_upper_left, NULL);
}

static void empty_rows(const test_call *c)
{
    for (int64_t i = 4; i < 8; i++) {
        for (int64_t x = 0; x < 8; x++) assert_true(tensor_get(&c->out.dl, (int64_t[]){0, i, 0, x}) == 0);
        assert_true(tensor_get(&c->lse.dl, (int64_t[]){0, 0, i}) == -INFINITY);
    }
}

void masking_01(void **state)
{
    (void)state;
    static const probe_case p = {"masking-01",
                                 ATTN_F32,
                                 {1, 8, 8, 1, 1, 8, 8},
                                 1,
                                 1e-5,
                                 arrange_01,
                                 2,
                                 {{{0, 0, 0, 0}, -0.2534295}, {{0, 3, 0, 7}, 0.0969815}}};
    field_probes(&p, keep_by_mask, empty_rows);
}

static void all_hidden(const char *backend, attn_dtype dtype, int as_key_mask)
{
    test_call c;
    tensor key_mask;
    call_make(&c, backend, dtype, (dims){1, 3, 5, 2, 2, 16, 16});
    call_mix32(&c, 7, 8, 9);
    tensor_make(&key_mask, ATTN_BOOL, 2, (int64_t[]){1, 5});
    tensor_fill(&key_mask, 0);
    if (as_key_mask) {
        c.args.key_mask = &key_mask.dl;
    } else {
        call_mask(&c, ATTN_BOOL, 1, 1, 1, 5);
        tensor_fill(&c.mask, 0);
    }
    call_run(&c);
    tensor_all_near(backend, &c.out, 0, 0);
    tensor_all_near(backend, &c.lse, -INFINITY, 0);
    tensor_free(&key_mask);
    call_free(&c);
}

void masking_03(void **state)
{
    (void)state;
    static const attn_dtype dtypes[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
    FOR_BACKENDS(backend)
    for (int i = 0; i < 3; i++) {
        all_hidden(*backend, dtypes[i], 0);
        all_hidden(*backend, dtypes[i], 1);
    }
}

static double band(int64_t n, const void *arg)
{
    int64_t i = n / 640, j = n % 640;
    (void)arg;
    return i - 9 <= j && j <= i ? 0 : -INFINITY;
}

void masking_04(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        call_make(&c, *backend, ATTN_F32, (dims){1, 640, 640, 1, 1, 4, 4});
        tensor_fill(&c.q, 1);
        tensor_fill(&c.k, 1);
        tensor_fill(&c.v, 1);
        call_mask(&c, ATTN_F32, 1, 1, 640, 640);
        tensor_generate(&c.mask, band, NULL);
        call_run(&c);
        tensor_all_near(*backend, &c.out, 1, 1e-6);
        call_free(&c);
    }
}

void masking_06(void **state)
{
    (void)state;
    static const double rows[] = {0, 0, 0, 1, 1.5}, lse[] = {-INFINITY, -INFINITY, -INFINITY, 0, 0.6931472};
    FOR_BACKENDS(backend)
    {
        test_call c;
        call_make(&c, *backend, ATTN_F32, (dims){1, 5, 2, 1, 1, 4, 4});
        tensor_fill(&c.q, 0);
        tensor_fill(&c.k, 0);
        fill_key_index(&c.v, 1);
        c.layer.causal = 1;
        call_run(&c);
        for (int64_t i = 0; i < 5; i++) {
            for (int64_t x = 0; x < 4; x++)
                value_near(*backend, tensor_get(&c.out.dl, (int64_t[]){0, i, 0, x}), rows[i], 1e-6);
            value_near(*backend, tensor_get(&c.lse.dl, (int64_t[]){0, 0, i}), lse[i], 1e-6);
        }
        call_free(&c);
    }
}

static double counting_up(int64_t n, const void *arg)
{
    (void)arg;
    return (double)n;
}

static void hidden_value(const char *backend, double poison)
{
    test_call c;
    call_make(&c, backend, ATTN_F32, (dims){1, 2, 2, 1, 1, 4, 4});
    tensor_generate(&c.q, counting_up, NULL);
    tensor_generate(&c.k, counting_up, NULL);
    tensor_generate(&c.v, counting_up, NULL);
    tensor_set(&c.k.dl, (int64_t[]){0, 1, 0, 0}, poison);
    tensor_set(&c.v.dl, (int64_t[]){0, 1, 0, 0}, poison);
    call_mask(&c, ATTN_BOOL, 1, 1, 2, 2);
    tensor_fill(&c.mask, 0);
    tensor_set(&c.mask.dl, (int64_t[]){0, 0, 0, 0}, 1);
    tensor_set(&c.mask.dl, (int64_t[]){0, 0, 1, 0}, 1);
    call_run(&c);
    for (int64_t n = 0; n < 8; n++) value_near(backend, tensor_flat(&c.out.dl, n), (double)(n % 4), 0);
    call_free(&c);
}

void masking_07(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        hidden_value(*backend, NAN);
        hidden_value(*backend, INFINITY);
        hidden_value(*backend, -INFINITY);
    }
}

/* ---- masking-09: one bad sample in a batch of three ---- */

static const int64_t lengths_09[3] = {6, 0, 4};

static double keep_09(int64_t n, const void *arg)
{
    (void)arg;
    return n % 6 < lengths_09[n / 6];
}

static void make_09(test_call *c, const char *backend, tensor *lengths)
{
    call_make(c, backend, ATTN_F32, (dims){3, 4, 6, 2, 2, 8, 8});
    c->options.threads = 2;
    call_mix32(c, 14, 15, 16);
    for (int64_t n = 96; n < 192; n++) {
        tensor_set_flat(&c->k.dl, n, NAN);
        tensor_set_flat(&c->v.dl, n, NAN);
    }
    call_mask(c, ATTN_BOOL, 3, 1, 1, 6);
    tensor_generate(&c->mask, keep_09, NULL);
    tensor_make(lengths, ATTN_I32, 1, (int64_t[]){3});
    for (int64_t b = 0; b < 3; b++) tensor_set(&lengths->dl, &b, b == 1 ? 0 : 6);
    c->args.kv_lengths = &lengths->dl;
}

/* The same call with nothing but sample b. */
static void alone_09(test_call *c, int64_t b)
{
    static const size_t at_q = 4 * 2 * 8, at_k = 6 * 2 * 8;
    for (DLTensor **t =
             (DLTensor *[]){&c->q.dl, &c->k.dl, &c->v.dl, &c->out.dl, &c->lse.dl, &c->mask.dl, NULL};
         *t; t++)
        (*t)->shape[0] = 1;
    c->q.dl.byte_offset = (uint64_t)b * at_q * 4;
    c->k.dl.byte_offset = c->v.dl.byte_offset = (uint64_t)b * at_k * 4;
    c->mask.dl.byte_offset = (uint64_t)b * 6;
    DLTensor *lengths = (DLTensor *)(uintptr_t)c->args.kv_lengths;
    lengths->shape[0] = 1;
    lengths->byte_offset = (uint64_t)b * 4;
}

static void check_09(const char *backend)
{
    test_call whole;
    tensor lengths;
    make_09(&whole, backend, &lengths);
    call_run(&whole);
    for (int64_t n = 0; n < 192; n++) assert_false(isnan(tensor_flat(&whole.out.dl, n)));
    for (int64_t n = 64; n < 128; n++) assert_true(tensor_flat(&whole.out.dl, n) == 0);
    for (int64_t b = 0; b < 3; b += 2) {
        test_call one;
        tensor its;
        make_09(&one, backend, &its);
        alone_09(&one, b);
        call_run(&one);
        for (int64_t n = 0; n < 64; n++)
            assert_true(tensor_flat(&one.out.dl, n) == tensor_flat(&whole.out.dl, b * 64 + n));
        for (int64_t n = 0; n < 8; n++)
            assert_true(tensor_flat(&one.lse.dl, n) == tensor_flat(&whole.lse.dl, b * 8 + n));
        tensor_free(&its);
        call_free(&one);
    }
    tensor_free(&lengths);
    call_free(&whole);
}

void masking_09(void **state)
{
    (void)state;
    FOR_BACKENDS(backend) check_09(*backend);
}
