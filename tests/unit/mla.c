/* mla.c: latent attention: over the compressed cache, with expanded heads, over lists of keys; and the names
 * of domains llm and vision that run it. */
#include "serve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { H = 8, LATENT = 64, ROPE = 16, NOPE = 24, DV = 32, QUERIES = 37, KEYS = 150 };

/* A small latent layer: c and the rotary key of each token, and what expands c for each head. */
typedef struct latent_model {
    float up_k[H][NOPE][LATENT], up_v[H][DV][LATENT];
    float c[KEYS][LATENT + ROPE];
    float q[QUERIES][H][NOPE + ROPE];
} latent_model;

static latent_model *make_model(uint32_t seed)
{
    latent_model *m = malloc(sizeof *m);
    assert_non_null(m);
    float *all = (float *)m;
    for (size_t i = 0; i < sizeof *m / sizeof *all; i++) all[i] = (float)serve_real(&seed);
    for (size_t i = 0; i < sizeof m->up_k / sizeof *all; i++) all[i] /= 4;
    for (size_t i = 0; i < sizeof m->up_v / sizeof *all; i++) (&m->up_v[0][0][0])[i] /= 4;
    return m;
}

static void forward(const char *backend, const attn_layer_options *layer, const attn_args *args)
{
    attn_options options = {.size = sizeof options, .backend = backend, .module_path = ""};
    attn_context *context = context_open(&options);
    attn_layer *site = layer_open(context, layer);
    attn_error error = ATTN_ERROR_INIT;
    if (attn_forward(site, args, &error)) fail_msg("%s: %s", backend, error.text);
    attn_layer_close(site);
    attn_close(context);
}

/* Prefill: each head has keys [W_k c, rope] and values W_v c. */
static void run_expanded(const latent_model *m, const char *backend, tensor *out)
{
    test_call c;
    call_make(&c, backend, ATTN_F32, (dims){1, QUERIES, KEYS, H, H, NOPE + ROPE, DV});
    memcpy(c.q.memory, m->q, sizeof m->q);
    for (int64_t j = 0; j < KEYS; j++)
        for (int64_t h = 0; h < H; h++) {
            for (int64_t d = 0; d < NOPE; d++) {
                double sum = 0;
                for (int64_t i = 0; i < LATENT; i++) sum += (double)m->up_k[h][d][i] * m->c[j][i];
                tensor_set(&c.k.dl, (int64_t[]){0, j, h, d}, sum);
            }
            for (int64_t d = 0; d < ROPE; d++)
                tensor_set(&c.k.dl, (int64_t[]){0, j, h, NOPE + d}, m->c[j][LATENT + d]);
            for (int64_t d = 0; d < DV; d++) {
                double sum = 0;
                for (int64_t i = 0; i < LATENT; i++) sum += (double)m->up_v[h][d][i] * m->c[j][i];
                tensor_set(&c.v.dl, (int64_t[]){0, j, h, d}, sum);
            }
        }
    c.layer.causal = 1;
    call_run(&c);
    tensor_make(out, ATTN_F32, 4, c.out.shape);
    memcpy(out->memory, c.out.memory, c.out.bytes);
    call_free(&c);
}

/* A latent cache of pages that attn_cache_write fills with c and the rotary part apart. */
typedef struct latent_cache {
    tensor pages, table, lengths;
    attn_cache cache;
} latent_cache;

static void make_cache(const latent_model *m, latent_cache *l, int64_t block)
{
    int64_t blocks = (KEYS + block - 1) / block, keys = KEYS;
    tensor c, rope, slots;
    tensor_make(&l->pages, ATTN_F32, 4, (int64_t[]){blocks + 2, block, 1, LATENT + ROPE});
    tensor_make(&l->table, ATTN_I32, 2, (int64_t[]){1, blocks});
    tensor_make(&l->lengths, ATTN_I32, 1, (int64_t[]){1});
    tensor_fill(&l->lengths, KEYS);
    tensor_make(&slots, ATTN_I64, 1, &keys);
    for (int64_t n = 0; n < blocks; n++)
        tensor_set(&l->table.dl, (int64_t[]){0, n}, (double)(blocks + 1 - n));
    for (int64_t j = 0; j < KEYS; j++)
        tensor_set(&slots.dl, &j, (double)((blocks + 1 - j / block) * block + j % block));
    int64_t strides[] = {LATENT + ROPE, LATENT + ROPE, 1};
    tensor_view(&c, ATTN_F32, 3, (int64_t[]){KEYS, 1, LATENT}, strides, (void *)(uintptr_t)m->c);
    tensor_view(&rope, ATTN_F32, 3, (int64_t[]){KEYS, 1, ROPE}, strides, (void *)(uintptr_t)&m->c[0][LATENT]);
    l->cache = (attn_cache){.size = sizeof l->cache, .k = &l->pages.dl};
    attn_cache_rows rows = {.size = sizeof rows, .k = &c.dl, .k_rest = &rope.dl, .slots = &slots.dl};
    attn_context *context = context_open(&(attn_options){.size = sizeof(attn_options), .module_path = ""});
    attn_error error = ATTN_ERROR_INIT;
    if (attn_cache_write(context, &l->cache, &rows, &error)) fail_msg("attn_cache_write: %s", error.text);
    attn_close(context);
    tensor_free(&slots);
}

static void free_cache(latent_cache *l)
{
    tensor_free(&l->pages);
    tensor_free(&l->table);
    tensor_free(&l->lengths);
}

/* Decode: queries go through W_k, all heads share the latent keys, results go through W_v. */
static void run_absorbed(const latent_model *m, const char *backend, tensor *out)
{
    latent_cache l;
    tensor q, latent;
    make_cache(m, &l, 32);
    tensor_make(&q, ATTN_F32, 4, (int64_t[]){1, QUERIES, H, LATENT + ROPE});
    tensor_make(&latent, ATTN_F32, 4, (int64_t[]){1, QUERIES, H, LATENT});
    for (int64_t i = 0; i < QUERIES; i++)
        for (int64_t h = 0; h < H; h++) {
            for (int64_t x = 0; x < LATENT; x++) {
                double sum = 0;
                for (int64_t d = 0; d < NOPE; d++) sum += (double)m->up_k[h][d][x] * m->q[i][h][d];
                tensor_set(&q.dl, (int64_t[]){0, i, h, x}, sum);
            }
            for (int64_t d = 0; d < ROPE; d++)
                tensor_set(&q.dl, (int64_t[]){0, i, h, LATENT + d}, m->q[i][h][NOPE + d]);
        }
    attn_layer_options layer = {.size = sizeof layer,
                                .heads = H,
                                .kv_heads = 1,
                                .head_dim = LATENT + ROPE,
                                .value_head_dim = LATENT,
                                .scale = 1 / sqrt((double)(NOPE + ROPE)),
                                .causal = 1};
    attn_args args = {.size = sizeof args,
                      .q = &q.dl,
                      .out = &latent.dl,
                      .cache = &l.cache,
                      .block_table = &l.table.dl,
                      .kv_lengths = &l.lengths.dl};
    forward(backend, &layer, &args);
    tensor_make(out, ATTN_F32, 4, (int64_t[]){1, QUERIES, H, DV});
    for (int64_t i = 0; i < QUERIES; i++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t d = 0; d < DV; d++) {
                double sum = 0;
                for (int64_t x = 0; x < LATENT; x++)
                    sum += (double)m->up_v[h][d][x] * tensor_get(&latent.dl, (int64_t[]){0, i, h, x});
                tensor_set(&out->dl, (int64_t[]){0, i, h, d}, sum);
            }
    free_cache(&l);
    tensor_free(&q);
    tensor_free(&latent);
}

static void absorbed_equals_expanded(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    for (uint32_t seed = 1; seed < 4; seed++) {
        tensor expanded, absorbed;
        latent_model *m = make_model(seed);
        run_expanded(m, *backend, &expanded);
        run_absorbed(m, *backend, &absorbed);
        tensor_near(*backend, &absorbed.dl, &expanded.dl, 3e-6);
        tensor_free(&expanded);
        tensor_free(&absorbed);
        free(m);
    }
}

/* ---- decode and lists ---- */

static const serve_shape decode = {.requests = 3,
                                   .q_len = {1, 1, 1},
                                   .kv_len = {200, 65, 1},
                                   .heads = 128,
                                   .kv_heads = 1,
                                   .d = 576,
                                   .dv = 512,
                                   .block = 64,
                                   .latent = 1};

static void latent_decode(void **state)
{
    static const attn_dtype types[] = {ATTN_F32, ATTN_BF16, ATTN_BF16, ATTN_F32};
    static const attn_dtype stored[] = {0, 0, ATTN_F8E4M3, ATTN_I8};
    (void)state;
    FOR_BACKENDS(backend)
    for (uint32_t n = 0; n < 8; n++) {
        serve_shape p = decode;
        serve s;
        p.dtype = types[n % 4], p.stored = stored[n % 4], p.scales = stored[n % 4] ? 3 : 0, p.seed = n;
        if (n > 3) p.heads = 16; /* few rows, which are not packed */
        serve_make(&s, *backend, &p);
        serve_run(&s);
        serve_check(*backend, &s, p.dtype == ATTN_BF16 ? 3e-2 : 1e-4);
        serve_free(&s);
    }
}

/* A list of all keys in any order gives the bits of no list. */
static void a_list_of_all_keys_changes_no_bit(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    for (uint32_t n = 0; n < 4; n++) {
        serve_shape p = decode;
        serve s;
        p.dtype = n % 2 ? ATTN_BF16 : ATTN_F32, p.heads = n / 2 ? 8 : 64, p.seed = n;
        serve_make(&s, *backend, &p);
        serve_run(&s);
        void *before = malloc(s.out.bytes);
        assert_non_null(before);
        memcpy(before, s.out.memory, s.out.bytes);
        serve_add_selected(&s, 210);
        for (int64_t b = 0; b < 3; b++)
            for (int64_t e = 0; e < 210; e++)
                tensor_set(&s.selected.dl, (int64_t[]){b, e}, (double)((e * 79 + b) % 210));
        tensor_fill(&s.out, NAN);
        serve_run(&s);
        assert_memory_equal(before, s.out.memory, s.out.bytes);
        free(before);
        serve_free(&s);
    }
}

static void sparse_latent_prefill(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    for (uint32_t n = 0; n < 3; n++) {
        serve_shape p = decode;
        serve s;
        p.dtype = ATTN_F32, p.d = 80, p.dv = 64, p.seed = n, p.q_len[0] = 30, p.q_len[1] = 65,
        p.heads = n ? 40 : 8;
        serve_make(&s, *backend, &p);
        s.layer.causal = 1;
        serve_add_selected(&s, 40);
        serve_run(&s);
        serve_check(*backend, &s, 5e-5);
        serve_free(&s);
    }
}

/* ---- names ---- */

static void names_of_the_domains_run(void **state)
{
    static const struct {
        attn_domain domain;
        uint32_t flags;
        const char *asked, *backend;
    } rows[] = {
        {ATTN_DOMAIN_LLM, 0, NULL, "CPU_ATTN"},
        {ATTN_DOMAIN_LLM, 0, "CPU_ATTN", "CPU_ATTN"},
        {ATTN_DOMAIN_LLM, 0, "TREE_ATTN", "TREE_ATTN"},
        {ATTN_DOMAIN_LLM, 0, "FLEX_ATTENTION", "FLEX_ATTENTION"},
        {ATTN_DOMAIN_LLM, ATTN_LLM_FLAG(MLA), "TRITON_MLA", "TRITON_MLA"},
        {ATTN_DOMAIN_LLM, ATTN_LLM_FLAG(MLA) | ATTN_LLM_FLAG(SPARSE), "FLASHMLA_SPARSE", "FLASHMLA_SPARSE"},
        {ATTN_DOMAIN_VISION, 0, NULL, "sdpa"}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        serve_shape p = decode;
        serve s;
        attn_llm_query query = {.size = sizeof query, .flags = rows[i].flags};
        p.dtype = ATTN_F32, p.heads = 8, p.d = 80, p.dv = 64;
        serve_make(&s, NULL, &p);
        attn_options options = {.size = sizeof options, .module_path = "", .llm_backend = rows[i].asked};
        attn_context *context = context_open(&options);
        s.layer.domain = rows[i].domain;
        if (rows[i].domain == ATTN_DOMAIN_LLM) s.layer.llm = &query;
        attn_layer *layer = layer_open(context, &s.layer);
        attn_layer_info info = {.size = sizeof info};
        attn_layer_get_info(layer, &info);
        assert_string_equal(info.backend, rows[i].backend);
        attn_error error = ATTN_ERROR_INIT;
        if (attn_forward(layer, &s.args, &error)) fail_msg("%s: %s", rows[i].backend, error.text);
        serve_check(rows[i].backend, &s, 5e-5);
        attn_layer_close(layer);
        attn_close(context);
        serve_free(&s);
    }
}

/* Packed images of an encoder: no order, borders by cu_seqlens, every head size of theirs. */
static void vision_encoders_run(void **state)
{
    static const int64_t sizes[] = {64, 72, 80, 96, 128};
    (void)state;
    for (int n = 0; n < TEST_ROUNDS(10); n++) {
        test_call c;
        tensor cu, out, lse;
        int64_t d = sizes[n % 5], at[] = {0, 49, 49, 130}, first = 0;
        attn_dtype type = n / 5 ? ATTN_BF16 : ATTN_F32;
        call_make(&c, NULL, type, (dims){1, 130, 130, 4, 4, d, d});
        call_mix32(&c, 1, 2, 3);
        tensor_make(&cu, ATTN_I32, 1, (int64_t[]){4});
        for (int64_t i = 0; i < 4; i++) tensor_set(&cu.dl, &i, (double)at[i]);
        c.args.cu_seqlens_q = c.args.cu_seqlens_k = &cu.dl;
        c.layer.domain = ATTN_DOMAIN_VISION;
        call_run(&c);
        assert_string_equal(c.backend, "sdpa");
        assert_string_equal(c.implementation, "cpu_flash");
        for (int i = 0; i < 3; first = at[++i]) {
            test_call one;
            int64_t rows = at[i + 1] - at[i];
            call_make(&one, NULL, ATTN_F32, (dims){1, rows, rows, 4, 4, d, d});
            for (int64_t x = 0; x < rows * 4 * d; x++) {
                tensor_set_flat(&one.q.dl, x, tensor_flat(&c.q.dl, first * 4 * d + x));
                tensor_set_flat(&one.k.dl, x, tensor_flat(&c.k.dl, first * 4 * d + x));
                tensor_set_flat(&one.v.dl, x, tensor_flat(&c.v.dl, first * 4 * d + x));
            }
            call_truth(&one, NULL, &out, &lse);
            for (int64_t x = 0; x < rows * 4 * d; x++)
                value_near("an image", tensor_flat(&c.out.dl, first * 4 * d + x), tensor_flat(&out.dl, x),
                           type == ATTN_BF16 ? 1e-2 : 1e-5);
            tensor_free(&out);
            tensor_free(&lse);
            call_free(&one);
        }
        tensor_free(&cu);
        call_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absorbed_equals_expanded),          cmocka_unit_test(latent_decode),
        cmocka_unit_test(a_list_of_all_keys_changes_no_bit), cmocka_unit_test(sparse_latent_prefill),
        cmocka_unit_test(names_of_the_domains_run),          cmocka_unit_test(vision_encoders_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
