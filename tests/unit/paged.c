/* paged.c: calls over a paged cache, on both implementations, against the definitions and against plain
 * tensors. */
#include "serve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The error that a type may leave in values below 1. */
static double tolerance(attn_dtype t)
{
    return t == ATTN_BF16 ? 2e-2 : t == ATTN_F16 ? 2e-3 : 2e-5;
}

/* Mixed prefill and decode; lengths that are no multiple of anything; a request without keys. */
static const serve_shape mixed = {.requests = 5,
                                  .q_len = {1, 50, 1, 21, 2},
                                  .kv_len = {301, 50, 1, 410, 0},
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .d = 40,
                                  .dv = 24,
                                  .block = 16,
                                  .dtype = ATTN_F32};

static void pages_of_every_size_layout_and_type(void **state)
{
    static const int64_t blocks[] = {1, 7, 16, 32, 128};
    static const attn_dtype types[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
    (void)state;
    FOR_BACKENDS(backend)
    for (int n = 0; n < 30; n += TEST_STEP) {
        serve_shape p = mixed;
        serve s;
        p.block = blocks[n % 5], p.layout = n / 5 % 2, p.dtype = types[n / 10], p.seed = (uint32_t)n;
        serve_make(&s, *backend, &p);
        s.layer.causal = n % 3 != 0;
        serve_run(&s);
        serve_check(*backend, &s, tolerance(p.dtype));
        serve_free(&s);
    }
}

/* What is stored counts, times its scale; the type of the queries does not matter. */
static void stored_types_and_scales(void **state)
{
    static const attn_dtype types[] = {ATTN_F8E4M3, ATTN_F8E5M2, ATTN_I8, ATTN_F32, ATTN_F16, ATTN_BF16};
    static const attn_dtype queries[] = {ATTN_F32, ATTN_BF16, ATTN_F16};
    (void)state;
    FOR_BACKENDS(backend)
    for (int n = 0; n < 72; n += TEST_STEP) {
        serve_shape p = mixed;
        serve s;
        p.stored = types[n % 6], p.scales = n / 6 % 4, p.dtype = queries[n / 24], p.layout = n % 2;
        p.seed = (uint32_t)n;
        if (p.scales && n % 6 > 2) continue;
        if (p.stored == ATTN_I8 && !p.scales) continue;
        serve_make(&s, *backend, &p);
        s.layer.causal = 1;
        serve_run(&s);
        serve_check(*backend, &s, p.dtype == ATTN_F32 ? 1e-4 : 8 * tolerance(p.dtype));
        serve_free(&s);
    }
}

/* Everything that decides which keys a row sees, in the combinations that go together. */
static void draw_structure(serve *s, uint32_t seed)
{
    int64_t most = 0;
    for (int64_t b = 0; b < s->shape.requests; b++)
        if (s->shape.q_len[b] > most) most = s->shape.q_len[b];
    s->layer.causal = seed % 4 != 0;
    if (seed % 3 == 0)
        s->layer.window = 1 + seed / 3 % 3, s->layer.window_left = 20, s->layer.window_right = 5;
    if (seed % 5 == 0) s->layer.softcap = 3;
    if (seed % 2) serve_add_sinks(s);
    if (seed % 7 < 3) serve_add_alibi(s);
    if (seed % 6 == 5) serve_add_selected(s, 64);
    if (s->layer.causal && seed % 8 < 3)
        serve_add_ranges(s);
    else if (!s->layer.window && seed % 8 > 4 && s->shape.kv_len[4] >= s->shape.q_len[4])
        serve_add_tree(s, most);
}

static void structure(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    for (uint32_t n = 0; n < 80; n++) {
        serve_shape p = mixed;
        serve s;
        p.seed = n, p.kv_len[4] = n % 2 ? 0 : 90, p.layout = (int32_t)n % 2;
        if (n % 4 == 3) {
            p.batched = 1;
            for (int b = 0; b < 5; b++) p.q_len[b] = 1 + n % 9, p.kv_len[b] += p.q_len[b];
        }
        if (n % 10 == 1) p.heads = 40; /* a list's row is not few rows then */
        serve_make(&s, *backend, &p);
        draw_structure(&s, n);
        serve_run(&s);
        serve_check(*backend, &s, 5e-5);
        serve_free(&s);
    }
}

/* ---- the same bits ---- */

static void keep_out(const serve *s, tensor *out, tensor *lse)
{
    tensor_make(out, s->shape.dtype, s->out.dl.ndim, s->out.shape);
    tensor_make(lse, ATTN_F32, s->lse.dl.ndim, s->lse.shape);
    memcpy(out->memory, s->out.memory, s->out.bytes);
    memcpy(lse->memory, s->lse.memory, s->lse.bytes);
}

static void same_bits(const serve *s, const tensor *out, const tensor *lse)
{
    assert_memory_equal(out->memory, s->out.memory, s->out.bytes);
    assert_memory_equal(lse->memory, s->lse.memory, s->lse.bytes);
}

/* Pages lie anywhere, what was in freed ones is NaN. */
static void permuted_pages_change_no_bit(void **state)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_F8E4M3, ATTN_I8};
    (void)state;
    FOR_BACKENDS(backend)
    for (uint32_t n = 0; n < 8; n++) {
        serve_shape p = mixed;
        serve s;
        tensor out, lse;
        p.stored = types[n % 4], p.scales = n % 4 > 1 ? 3 : 0, p.dtype = n / 4 ? ATTN_BF16 : ATTN_F32,
        p.seed = n;
        serve_make(&s, *backend, &p);
        draw_structure(&s, n * 5 + 1);
        serve_run(&s);
        keep_out(&s, &out, &lse);
        for (uint32_t again = 1; again < 4; again++) {
            serve_shuffle(&s, again);
            tensor_fill(&s.out, NAN);
            serve_run(&s);
            same_bits(&s, &out, &lse);
        }
        tensor_free(&out);
        tensor_free(&lse);
        serve_free(&s);
    }
}

/* The same call over plain packed tensors. */
static void run_dense(serve *s)
{
    const serve_shape *p = &s->shape;
    tensor k, v, cu_k;
    int64_t total = 0, at[3];
    for (int64_t b = 0; b < p->requests; b++) total += p->kv_len[b];
    tensor_make(&k, p->dtype, 3, (int64_t[]){total, p->kv_heads, p->d});
    tensor_make(&v, p->dtype, 3, (int64_t[]){total, p->kv_heads, p->dv});
    tensor_make(&cu_k, ATTN_I64, 1, (int64_t[]){p->requests + 1});
    total = 0;
    for (int64_t b = 0; b <= p->requests; b++) {
        tensor_set(&cu_k.dl, &b, (double)total);
        for (int64_t j = 0; b < p->requests && j < p->kv_len[b]; j++)
            for (int64_t h = 0; h < p->kv_heads; h++) {
                at[0] = total + j, at[1] = h;
                for (at[2] = 0; at[2] < p->d; at[2]++)
                    tensor_set(&k.dl, at, s->keys[b][(j * p->kv_heads + h) * p->d + at[2]]);
                for (at[2] = 0; at[2] < p->dv; at[2]++)
                    tensor_set(&v.dl, at,
                               p->latent ? s->keys[b][(j * p->kv_heads + h) * p->d + at[2]]
                                         : s->values[b][(j * p->kv_heads + h) * p->dv + at[2]]);
            }
        if (b < p->requests) total += p->kv_len[b];
    }
    attn_args paged = s->args;
    s->args.cache = NULL, s->args.block_table = NULL, s->args.kv_lengths = NULL;
    s->args.k = &k.dl, s->args.v = &v.dl, s->args.cu_seqlens_k = &cu_k.dl;
    serve_run(s);
    s->args = paged;
    tensor_free(&k);
    tensor_free(&v);
    tensor_free(&cu_k);
}

static void paged_equals_dense(void **state)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
    (void)state;
    FOR_BACKENDS(backend)
    for (uint32_t n = 0; n < 24; n++) {
        serve_shape p = mixed;
        serve s;
        tensor out, lse;
        p.dtype = types[n % 3], p.seed = n, p.block = n % 4 ? 16 : 5, p.kv_len[4] = 40;
        if (n % 5 == 4) p.latent = 1, p.kv_heads = 1, p.heads = n % 2 ? 8 : 32;
        serve_make(&s, *backend, &p);
        draw_structure(&s, n);
        serve_run(&s);
        keep_out(&s, &out, &lse);
        tensor_fill(&s.out, NAN);
        run_dense(&s);
        same_bits(&s, &out, &lse);
        tensor_free(&out);
        tensor_free(&lse);
        serve_free(&s);
    }
}

/* A request gets the same bits alone as among others, whatever the width of the table. */
static void batch_mates_change_no_bit(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    for (int64_t b = 0; b < 4; b++) {
        serve_shape p = mixed;
        serve s;
        tensor out, lse;
        p.dtype = ATTN_BF16, p.seed = 4;
        serve_make(&s, *backend, &p);
        s.layer.causal = 1;
        serve_run(&s);
        keep_out(&s, &out, &lse);
        int64_t row = 0, heads = p.heads, all = s.out.shape[0];
        for (int64_t n = 0; n < b; n++) row += p.q_len[n];
        /* The request alone: views of the same tensors. */
        int32_t cu[2] = {0, (int32_t)p.q_len[b]};
        tensor q, o, l, table, lengths, starts;
        char *from = s.q.memory, *to = s.out.memory;
        tensor_view(&q, ATTN_BF16, 3, (int64_t[]){p.q_len[b], heads, p.d}, s.q.strides,
                    from + row * heads * p.d * 2);
        tensor_view(&o, ATTN_BF16, 3, (int64_t[]){p.q_len[b], heads, p.dv}, s.out.strides,
                    to + row * heads * p.dv * 2);
        tensor_view(&l, ATTN_F32, 2, (int64_t[]){heads, p.q_len[b]}, (int64_t[]){all, 1},
                    (float *)s.lse.memory + row);
        tensor_view(&table, attn_dtype_from_dl(s.table.dl.dtype), 2,
                    (int64_t[]){1, (p.kv_len[b] + p.block - 1) / p.block}, s.table.strides,
                    (char *)s.table.memory + b * s.table.strides[0] * (s.table.dl.dtype.bits / 8));
        tensor_view(&lengths, attn_dtype_from_dl(s.lengths.dl.dtype), 1, (int64_t[]){1}, (int64_t[]){1},
                    (char *)s.lengths.memory + b * (s.lengths.dl.dtype.bits / 8));
        tensor_view(&starts, ATTN_I32, 1, (int64_t[]){2}, (int64_t[]){1}, cu);
        s.args.q = &q.dl, s.args.out = &o.dl, s.args.lse = &l.dl, s.args.block_table = &table.dl;
        s.args.kv_lengths = &lengths.dl, s.args.cu_seqlens_q = &starts.dl;
        memset(to + row * heads * p.dv * 2, 0xff, (size_t)(p.q_len[b] * heads * p.dv * 2));
        serve_run(&s);
        same_bits(&s, &out, &lse);
        tensor_free(&out);
        tensor_free(&lse);
        serve_free(&s);
    }
}

/* ---- chunks ---- */

/* A prompt of 150 tokens after 40 cached ones, at once and in chunks of 32. */
static void prefill_in_chunks_equals_at_once(void **state)
{
    enum { PROMPT = 150, BEFORE = 40, CHUNK = 32 };
    (void)state;
    FOR_BACKENDS(backend)
    for (int bf16 = 0; bf16 < 2; bf16++) {
        serve_shape p = {.requests = 1,
                         .q_len = {PROMPT},
                         .kv_len = {PROMPT + BEFORE},
                         .heads = 4,
                         .kv_heads = 2,
                         .d = 64,
                         .dv = 64,
                         .block = 16,
                         .dtype = bf16 ? ATTN_BF16 : ATTN_F32,
                         .seed = 3};
        serve s;
        tensor out, lse;
        serve_make(&s, *backend, &p);
        s.layer.causal = 1;
        serve_run(&s);
        keep_out(&s, &out, &lse);
        tensor_fill(&s.out, NAN);
        for (int64_t first = 0; first < PROMPT; first += CHUNK) {
            int64_t n = PROMPT - first < CHUNK ? PROMPT - first : CHUNK, bytes = bf16 ? 2 : 4, zero = 0;
            int32_t cu[2] = {0, (int32_t)n};
            tensor q, o, l, starts;
            tensor_view(&q, p.dtype, 3, (int64_t[]){n, 4, 64}, s.q.strides,
                        (char *)s.q.memory + first * 256 * bytes);
            tensor_view(&o, p.dtype, 3, (int64_t[]){n, 4, 64}, s.out.strides,
                        (char *)s.out.memory + first * 256 * bytes);
            tensor_view(&l, ATTN_F32, 2, (int64_t[]){4, n}, s.lse.strides, (float *)s.lse.memory + first);
            tensor_view(&starts, ATTN_I32, 1, (int64_t[]){2}, (int64_t[]){1}, cu);
            tensor_set(&s.lengths.dl, &zero, (double)(BEFORE + first + n));
            s.args.q = &q.dl, s.args.out = &o.dl, s.args.lse = &l.dl, s.args.cu_seqlens_q = &starts.dl;
            serve_run(&s);
        }
        tensor_near(*backend, &s.out.dl, &out.dl, bf16 ? 8e-3 : 2e-6);
        tensor_near(*backend, &s.lse.dl, &lse.dl, 2e-5);
        tensor_free(&out);
        tensor_free(&lse);
        serve_free(&s);
    }
}

/* ---- refusals ---- */

static void expect(serve *s, attn_kind kind, const char *word, const char *other)
{
    assert_int_not_equal(serve_try(s), ATTN_OK);
    if (s->error.kind != kind) fail_msg("kind %s: %s", attn_kind_name(s->error.kind), s->error.text);
    text_has(s->error.text, word);
    text_has(s->error.text, other);
}

static void wrong_calls_are_refused(void **state)
{
    serve s;
    (void)state;
    serve_make(&s, "FLASH_ATTN", &mixed);
    int64_t at[] = {3, 2}, zero = 0, last = 3;
    double page = tensor_get(&s.table.dl, at);
    tensor_set(&s.table.dl, at, 1000);
    expect(&s, ATTN_KIND_INVALID_VALUE, "block_table[3][2] is 1000", "410 keys of request 3");
    tensor_set(&s.table.dl, at, -1);
    expect(&s, ATTN_KIND_INVALID_VALUE, "block_table[3][2] is -1", "blocks");
    tensor_set(&s.table.dl, at, page);
    tensor_set(&s.lengths.dl, &last, 5000);
    expect(&s, ATTN_KIND_INVALID_VALUE, "kv_lengths[3] is 5000", "block_table has room for");
    tensor_set(&s.lengths.dl, &last, 410);
    tensor_set(&s.lengths.dl, &zero, -1);
    expect(&s, ATTN_KIND_INVALID_VALUE, "kv_lengths[0] is -1", "0 to that");
    tensor_set(&s.lengths.dl, &zero, 301);
    s.args.kv_lengths = NULL;
    expect(&s, ATTN_KIND_INVALID_VALUE, "kv_lengths is NULL", "block_table and kv_lengths");
    s.args.kv_lengths = &s.lengths.dl;
    s.args.k = &s.q.dl;
    expect(&s, ATTN_KIND_INVALID_VALUE, "k or v", "leave it NULL");
    s.args.k = NULL;
    s.args.cache = NULL;
    expect(&s, ATTN_KIND_INVALID_VALUE, "block_table was given without a cache", "cache");
    s.args.cache = &s.cache;
    s.cache.layout = 2;
    expect(&s, ATTN_KIND_INVALID_VALUE, "layout is 2", "NHD");
    s.cache.layout = ATTN_CACHE_HND;
    expect(&s, ATTN_KIND_INVALID_SHAPE, "HND", "kv heads");
    s.cache.layout = ATTN_CACHE_NHD;
    s.cache.k_scale = &s.lse.dl;
    expect(&s, ATTN_KIND_INVALID_VALUE, "cache.k_scale", "8-bit");
    s.cache.k_scale = NULL;
    s.cache.size = 8;
    expect(&s, ATTN_KIND_INVALID_STRUCT, "attn_cache.size is 8", "sizeof");
    s.cache.size = sizeof s.cache;
    serve_add_tree(&s, 20);
    expect(&s, ATTN_KIND_INVALID_SHAPE, "tree_mask is for 20 rows", "request 1 has 50");
    s.args.tree_mask = NULL;
    serve_add_ranges(&s);
    expect(&s, ATTN_KIND_INVALID_VALUE, "prefix_ranges", "causal bottom-right");
    s.layer.causal = 1;
    s.ranges[0].request = 4;
    expect(&s, ATTN_KIND_INVALID_VALUE, "prefix range 1", "ascend");
    s.ranges[0].request = 0;
    s.ranges[9].request = 5;
    expect(&s, ATTN_KIND_INVALID_VALUE, "prefix range 9", "request 5");
    s.ranges[9].request = 4;
    serve_run(&s);
    serve_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_of_every_size_layout_and_type),
        cmocka_unit_test(stored_types_and_scales),
        cmocka_unit_test(structure),
        cmocka_unit_test(permuted_pages_change_no_bit),
        cmocka_unit_test(paged_equals_dense),
        cmocka_unit_test(batch_mates_change_no_bit),
        cmocka_unit_test(prefill_in_chunks_equals_at_once),
        cmocka_unit_test(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
