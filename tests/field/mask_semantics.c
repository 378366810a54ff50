/* mask_semantics.c: what a mask means, in every form it may be given. */
#include "field.h"

#include <math.h>
#include <string.h>

/* Sets a mask's or key mask's elements from a list. */
static void set_values(const tensor *t, const double *values)
{
    int64_t count = tensor_count(&t->dl);
    for (int64_t n = 0; n < count; n++) tensor_set_flat(&t->dl, n, values[n]);
}

static tensor key_mask_01;

static void arrange_01(test_call *c)
{
    tensor_make(&key_mask_01, ATTN_BOOL, 2, (int64_t[]){1, 4});
    set_values(&key_mask_01, (const double[]){1, 1, 1, 0});
    c->args.key_mask = &key_mask_01.dl;
}

static void rows_are_not_zero(const test_call *c)
{
    for (int64_t i = 0; i < 6; i++)
        for (int64_t h = 0; h < 2; h++) {
            double sum = 0;
            for (int64_t x = 0; x < 8; x++) sum += fabs(tensor_get(&c->out.dl, (int64_t[]){0, i, h, x}));
            assert_true(sum > 0);
        }
    tensor_free(&key_mask_01);
}

void mask_semantics_01(void **state)
{
    (void)state;
    static const probe_case p = {
        "mask-semantics-01",
        ATTN_F32,
        {1, 6, 4, 2, 2, 8, 8},
        20,
        1e-5,
        arrange_01,
        3,
        {{{0, 0, 0, 0}, -0.1051909}, {{0, 4, 1, 3}, -0.2745591}, {{0, 5, 0, 7}, 0.01940606}}};
    field_probes(&p, keep_by_key_mask, rows_are_not_zero);
}

static void arrange_03(test_call *c)
{
    call_mask(c, ATTN_BOOL, 2, 1, 1, 5);
    set_values(&c->mask, (const double[]){1, 1, 1, 1, 1, 1, 1, 0, 0, 0});
}

void mask_semantics_03(void **state)
{
    (void)state;
    static const probe_case p = {
        "mask-semantics-03",
        ATTN_F32,
        {2, 3, 5, 2, 2, 8, 8},
        26,
        1e-5,
        arrange_03,
        3,
        {{{0, 0, 0, 0}, -0.02064774}, {{1, 0, 0, 0}, 0.174734}, {{1, 2, 1, 7}, -0.2131987}}};
    field_probes(&p, keep_by_mask, NULL);
}

/* ---- mask-semantics-04: a backend without masks refuses, and an automatic choice moves on ---- */

static void make_04(test_call *c, const char *backend, trace_text *trace)
{
    call_make(c, backend, ATTN_BF16, (dims){1, 10, 10, 8, 8, 64, 64});
    c->args.lse = NULL; /* the module has no LSE either; the mask alone is to be refused */
    c->options.module_path = FIXTURE("no_mask");
    c->options.overrides = "FLASH_ATTN=no_mask_dense";
    c->options.trace = trace_collect;
    c->options.trace_user = trace;
    call_mix32(c, 1, 2, 3);
    call_mask(c, ATTN_BOOL, 1, 1, 10, 10);
    tensor_fill(&c->mask, 0);
}

void mask_semantics_04(void **state)
{
    (void)state;
    test_call c;
    trace_text trace = {"", 0};
    make_04(&c, "FLASH_ATTN", &trace);
    assert_int_equal(call_try(&c), ATTN_UNSUPPORTED);
    assert_int_equal(c.error.kind, ATTN_KIND_FEATURE_UNSUPPORTED);
    text_has(c.error.text, "FLASH_ATTN");
    text_has(c.error.text, "mask");
    call_free(&c);

    memset(&trace, 0, sizeof trace);
    make_04(&c, "auto", &trace);
    call_run(&c);
    assert_string_not_equal(c.implementation, "no_mask_dense");
    tensor_all_near("auto", &c.out, 0, 0);
    assert_true(trace.reasons > 0);
    text_has(trace.text, "no_mask_dense");
    text_has(trace.text, "mask");
    call_free(&c);
}

static void arrange_05(test_call *c)
{
    call_mask(c, ATTN_BOOL, 1, 1, 1, 6);
    set_values(&c->mask, (const double[]){1, 0, 1, 0, 1, 0});
}

void mask_semantics_05(void **state)
{
    (void)state;
    static const probe_case p = {"mask-semantics-05",
                                 ATTN_F32,
                                 {1, 4, 6, 1, 1, 16, 16},
                                 29,
                                 1e-5,
                                 arrange_05,
                                 2,
                                 {{{0, 0, 0, 0}, 0.4558509}, {{0, 3, 0, 15}, 0.3154865}}};
    field_probes(&p, keep_by_mask, NULL);
}

static void arrange_07(test_call *c)
{
    static const double column[] = {0.5, -1, 2, 0, -3, 1.25};
    call_mask(c, ATTN_F32, 1, 1, 4, 6);
    for (int64_t n = 0; n < 24; n++)
        tensor_set_flat(&c->mask.dl, n, column[n % 6] * (1 + 0.1 * (double)(n / 6)));
}

void mask_semantics_07(void **state)
{
    (void)state;
    static const probe_case p = {"mask-semantics-07",
                                 ATTN_F32,
                                 {1, 4, 6, 1, 1, 16, 16},
                                 29,
                                 1e-5,
                                 arrange_07,
                                 2,
                                 {{{0, 0, 0, 0}, 0.6398558}, {{0, 3, 0, 15}, 0.6609757}}};
    field_probes(&p, field_no_truth, NULL);
}

static void arrange_10(test_call *c)
{
    call_mask(c, ATTN_BOOL, 1, 1, 1, 7);
    set_values(&c->mask, (const double[]){1, 1, 0, 1, 1, 1, 0});
}

void mask_semantics_10(void **state)
{
    (void)state;
    static const probe_case p = {"mask-semantics-10",
                                 ATTN_F16,
                                 {1, 5, 7, 2, 2, 8, 8},
                                 38,
                                 2e-3,
                                 arrange_10,
                                 2,
                                 {{{0, 0, 0, 0}, -0.1768851}, {{0, 4, 1, 7}, -0.4066476}}};
    field_probes(&p, keep_by_mask, NULL);
}

/* ---- mask-semantics-11: a mask of another dtype is converted or refused by both names ---- */

static void make_11(test_call *c, const char *backend, attn_dtype mask_dtype)
{
    call_make(c, backend, ATTN_F16, (dims){1, 4, 4, 2, 2, 16, 16});
    call_mix32(c, 41, 42, 43);
    call_mask(c, mask_dtype, 1, 1, 4, 4);
    for (int64_t n = 0; n < 16; n++) tensor_set_flat(&c->mask.dl, n, n % 4 <= 2 ? 0 : -INFINITY);
}

void mask_semantics_11(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call wide, narrow;
        make_11(&wide, *backend, ATTN_F32);
        make_11(&narrow, *backend, ATTN_BF16);
        call_run(&wide);
        if (call_try(&narrow) == ATTN_OK) {
            tensor_near(*backend, &narrow.out.dl, &wide.out.dl, 2e-3);
        } else {
            text_has(narrow.error.text, "bf16");
            text_has(narrow.error.text, "fp16");
        }
        call_free(&wide);
        call_free(&narrow);
    }
}
