/* shape.c: shapes of zero, shapes that do not fit, head sizes that a backend lacks, packed sequences. */
#include "field.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void shape_01(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        call_make(&c, *backend, ATTN_F16, (dims){7, 0, 0, 9, 7, 7, 7});
        c.layer.causal = 1;
        assert_int_equal(call_try(&c), ATTN_INVALID_ARGUMENT);
        text_has(c.error.text, "9");
        text_has(c.error.text, "7");
        c.layer.kv_heads = 0; /* 9: the tensors then disagree with the layer */
        assert_int_equal(call_try(&c), ATTN_INVALID_ARGUMENT);
        text_has(c.error.text, "9");
        text_has(c.error.text, "7");
        call_free(&c);
    }
}

/* Every implementation that a context has, by name through an override of a backend it serves. */
static void each_implementation(void (*run)(const char *backend, const char *override))
{
    attn_options options = {.size = sizeof options, .module_path = ""};
    attn_context *context = context_open(&options);
    attn_impl_info info = {.size = sizeof info};
    int ran = 0;
    for (size_t i = 0; attn_impl_at(context, i, &info); i++) {
        char backend[64], override[192];
        snprintf(backend, sizeof backend, "%.*s", (int)strcspn(info.backends, ", "), info.backends);
        snprintf(override, sizeof override, "%s=%s", backend, info.name);
        run(backend, override);
        ran++;
    }
    attn_close(context);
    assert_true(ran >= 2);
}

static void empty_batch(const char *backend, const char *override)
{
    test_call c;
    call_make(&c, backend, ATTN_F16, (dims){0, 16, 16, 4, 4, 64, 64});
    c.options.overrides = override;
    call_run(&c);
    call_free(&c);
}

void shape_04(void **state)
{
    (void)state;
    each_implementation(empty_batch);
    empty_batch("auto", NULL);
}

static void no_keys(const char *backend, const char *override)
{
    test_call c;
    call_make(&c, backend, ATTN_BF16, (dims){2, 3, 0, 2, 2, 64, 64});
    c.options.overrides = override;
    call_mix32(&c, 1, 2, 3);
    if (call_try(&c) == ATTN_UNSUPPORTED && strstr(c.error.text, "is for self-attention")) {
        call_free(&c);
        return; /* with 3 queries and no keys it is none */
    }
    call_run(&c);
    tensor_all_near(backend, &c.out, 0, 0);
    tensor_all_near(backend, &c.lse, -INFINITY, 0);
    call_free(&c);
}

void shape_05(void **state)
{
    (void)state;
    each_implementation(no_keys);
}

static void tile_plus_one(const char *backend, int64_t length)
{
    static const int threads[] = {1, 2, 4};
    test_call c[3];
    tensor out, lse;
    for (int i = 0; i < 3; i++) {
        call_make(&c[i], backend, ATTN_F32, (dims){1, length, length, 1, 1, 64, 64});
        call_mix32(&c[i], 63, 64, 65);
        c[i].options.threads = threads[i];
        call_run(&c[i]);
        tensor_same(backend, &c[i].out.dl, &c[0].out.dl);
        tensor_same(backend, &c[i].lse.dl, &c[0].lse.dl);
    }
    call_truth(&c[0], NULL, &out, &lse);
    tensor_near(backend, &c[0].out.dl, &out.dl, 1e-5);
    tensor_near(backend, &c[0].lse.dl, &lse.dl, 1e-5);
    tensor_free(&out);
    tensor_free(&lse);
    for (int i = 0; i < 3; i++) call_free(&c[i]);
}

void shape_08(void **state)
{
    (void)state;
    static const int64_t lengths[] = {31, 32, 33, 34, 63, 65};
    FOR_BACKENDS(backend)
    for (int i = 0; i < 6; i++) tile_plus_one(*backend, lengths[i]);
}

void shape_10(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        call_make(&c, *backend, ATTN_F32, (dims){1, 4, 4, 2, 2, 16, 16});
        c.k.dl.dtype = c.v.dl.dtype = attn_dtype_to_dl(ATTN_F16);
        assert_int_equal(call_try(&c), ATTN_INVALID_ARGUMENT);
        assert_int_equal(c.error.kind, ATTN_KIND_INVALID_DTYPE);
        text_has(c.error.text, "q");
        text_has(c.error.text, "fp32");
        text_has(c.error.text, "k");
        text_has(c.error.text, "v");
        char *first = strstr(c.error.text, "fp16"); /* once for k, once for v */
        assert_non_null(first);
        text_has(first + 1, "fp16");
        call_free(&c);
    }
}

void headdim_03(void **state)
{
    (void)state;
    trace_text trace = {"", 0};
    attn_options options = {.size = sizeof options,
                            .backend = "FLASH_ATTN",
                            .module_path = FIXTURE("two_widths"),
                            .overrides = "FLASH_ATTN=two_widths_dense",
                            .trace = trace_collect,
                            .trace_user = &trace};
    attn_layer_options site = {.size = sizeof site, .heads = 8, .head_dim = 160, .dtype = ATTN_BF16};
    attn_error error = ATTN_ERROR_INIT;
    attn_layer *layer = NULL;
    attn_context *context = context_open(&options);
    assert_int_equal(attn_layer_open(context, &site, &layer, &error), ATTN_UNSUPPORTED);
    assert_int_equal(error.kind, ATTN_KIND_HEAD_SIZE_UNSUPPORTED);
    text_has(error.text, "160");
    text_has(error.text, "64");
    text_has(error.text, "128");
    attn_close(context);

    memset(&trace, 0, sizeof trace);
    options.backend = "auto";
    context = context_open(&options);
    layer = layer_open(context, &site);
    attn_layer_info info = {.size = sizeof info};
    attn_layer_get_info(layer, &info);
    assert_string_not_equal(info.implementation, "two_widths_dense");
    text_has(trace.text, "two_widths_dense");
    text_has(trace.text, "160");
    attn_layer_close(layer);
    attn_close(context);
}

/* ---- packed sequences ---- */

typedef struct packed {
    const char *id;
    int64_t segments, cu_q[5], cu_k[5], h, hk, d;
    uint32_t seed;
    int causal, probes;
    probe probe[4]; /* at: 0, row, head, channel */
} packed;

static void set_cu(tensor *cu, attn_dtype dtype, const int64_t *values, int64_t segments)
{
    tensor_make(cu, dtype, 1, (int64_t[]){segments + 1});
    for (int64_t n = 0; n <= segments; n++) tensor_set(&cu->dl, &n, (double)values[n]);
}

/* Drops a leading axis of one, so that the tensor is [T, H, D] (or lse [H, T]). */
static void drop_axis(tensor *t)
{
    t->dl.ndim--;
    t->dl.shape++;
    t->dl.strides++;
}

/* A segment alone gives the same numbers as inside the packed call. */
static void check_segments(const packed *p, const test_call *whole, const char *backend)
{
    for (int64_t n = 0; n < p->segments; n++) {
        int64_t q0 = p->cu_q[n], k0 = p->cu_k[n];
        test_call one;
        tensor out, lse;
        call_make(&one, backend, ATTN_F32,
                  (dims){1, p->cu_q[n + 1] - q0, p->cu_k[n + 1] - k0, p->h, p->hk, p->d, p->d});
        for (int64_t i = 0; i < tensor_count(&one.q.dl); i++)
            tensor_set_flat(&one.q.dl, i, tensor_flat(&whole->q.dl, q0 * p->h * p->d + i));
        for (int64_t i = 0; i < tensor_count(&one.k.dl); i++) {
            tensor_set_flat(&one.k.dl, i, tensor_flat(&whole->k.dl, k0 * p->hk * p->d + i));
            tensor_set_flat(&one.v.dl, i, tensor_flat(&whole->v.dl, k0 * p->hk * p->d + i));
        }
        call_truth(&one, p->causal ? keep_bottom_right : NULL, &out, &lse);
        for (int64_t i = 0; i < tensor_count(&out.dl); i++)
            value_near(p->id, tensor_flat(&whole->out.dl, q0 * p->h * p->d + i), tensor_flat(&out.dl, i),
                       1e-5);
        tensor_free(&out);
        tensor_free(&lse);
        call_free(&one);
    }
}

static void run_packed(const packed *p, const char *backend, attn_dtype index, int rank)
{
    test_call c;
    tensor cu_q, cu_k;
    int64_t rows = p->cu_q[p->segments];
    call_make(&c, backend, ATTN_F32, (dims){1, rows, p->cu_k[p->segments], p->h, p->hk, p->d, p->d});
    call_mix32(&c, p->seed, p->seed + 1, p->seed + 2);
    set_cu(&cu_q, index, p->cu_q, p->segments);
    set_cu(&cu_k, index, p->cu_k, p->segments);
    c.args.cu_seqlens_q = &cu_q.dl;
    c.args.cu_seqlens_k = &cu_k.dl;
    c.layer.causal = p->causal;
    if (rank == 3)
        for (tensor **t = (tensor *[]){&c.q, &c.k, &c.v, &c.out, &c.lse, NULL}; *t; t++) drop_axis(*t);
    call_run(&c);
    for (int i = 0; i < p->probes; i++)
        value_near(p->id, tensor_get(&c.out.dl, p->probe[i].at + (rank == 3)), p->probe[i].value, 1e-5);
    for (int64_t n = 0; n < tensor_count(&c.lse.dl); n++) assert_false(isnan(tensor_flat(&c.lse.dl, n)));
    check_segments(p, &c, backend);
    tensor_free(&cu_q);
    tensor_free(&cu_k);
    call_free(&c);
}

static void run_packed_everywhere(const packed *p)
{
    FOR_BACKENDS(backend)
    {
        run_packed(p, *backend, ATTN_I32, 4);
        run_packed(p, *backend, ATTN_I64, 3);
    }
}

void varlen_01(void **state)
{
    (void)state;
    static const packed p = {"varlen-01",
                             4,
                             {0, 0, 3, 3, 5},
                             {0, 2, 5, 5, 6},
                             2,
                             2,
                             8,
                             100,
                             0,
                             4,
                             {{{0, 0, 0, 0}, 0.2860647},
                              {{0, 2, 1, 7}, 0.09028343},
                              {{0, 3, 0, 0}, 0.4246025},
                              {{0, 4, 1, 5}, -0.910657}}};
    run_packed_everywhere(&p);
}

void varlen_03(void **state)
{
    (void)state;
    static const packed p = {"varlen-03",
                             4,
                             {0, 0, 1, 1, 2},
                             {0, 0, 3, 3, 8},
                             9,
                             3,
                             64,
                             106,
                             1,
                             2,
                             {{{0, 0, 0, 0}, 0.2539256}, {{0, 1, 8, 63}, 0.1755947}}};
    run_packed_everywhere(&p);
}
