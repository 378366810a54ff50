/* selectors.c: the selectors of modules/selectors against their definitions in plain loops of double. */
#include "support.h"

#include <attn/module.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint32_t seed = 7;

static double draw(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (double)(seed >> 8) / (1 << 24) * 2 - 1;
}

static const attn_sparse *find(const char *name)
{
    static void *handle;
    if (!handle) handle = dlopen(TEST_SELECTORS, RTLD_NOW | RTLD_LOCAL);
    if (!handle) fail_msg("%s", dlerror());
    attn_module_fn entry;
    *(void **)&entry = dlsym(handle, "attn_module_v1");
    assert_non_null(entry);
    for (const attn_sparse *const *s = entry()->sparse; *s; s++)
        if (!strcmp((*s)->name, name)) return *s;
    fail_msg("no selector %s", name);
    return NULL;
}

/* ---- a call by hand ---------------------------------------------------------------------------------- */

static void *host_alloc(const attn_host *host, size_t bytes, size_t align)
{
    (void)host;
    void *memory = aligned_alloc(align, (bytes + align - 1) / align * align);
    if (memory) memset(memory, 0xff, bytes); /* NaN, where nobody writes */
    return memory;
}

static void host_release(const attn_host *host, void *memory)
{
    (void)host;
    free(memory);
}

/* Backwards and over all workers, so that order and worker cannot matter. */
static void host_parallel_for(const attn_host *host, int64_t count, int32_t workers, attn_task_fn task,
                              void *arg)
{
    (void)host;
    for (int64_t i = count; i-- > 0;) task(arg, i, (int32_t)(i % workers));
}

static const attn_host host = {.size = sizeof host,
                               .threads = 3,
                               .alloc = host_alloc,
                               .release = host_release,
                               .parallel_for = host_parallel_for};

typedef struct fixture {
    attn_problem problem;
    attn_call call;
    attn_sparse_call sparse;
    attn_forward_state forward;
    attn_error error;
    attn_params *params;
    attn_block_map *map;
    int64_t latent[3], patch[3], step, block_q, block_k;
    uint16_t *q, *k;
} fixture;

static uint16_t bf16(double value)
{
    uint16_t bits;
    attn_store(ATTN_BF16, &bits, 0, (float)value);
    return bits;
}

/* Rows lie apart by more than the heads need, so that strides count. */
static uint16_t *random_rows(int64_t rows, int64_t heads, int64_t channels, double size)
{
    uint16_t *data = malloc((size_t)(rows * (heads * channels + 8)) * sizeof *data);
    assert_non_null(data);
    for (int64_t i = 0; i < rows * (heads * channels + 8); i++) data[i] = bf16(draw() * size);
    return data;
}

static void set_strides(int64_t stride[4], int64_t rows, int64_t heads, int64_t channels)
{
    stride[1] = heads * channels + 8;
    stride[0] = rows * stride[1];
    stride[2] = channels;
    stride[3] = 1;
}

static void make(fixture *f, int64_t batch, int64_t heads, int64_t kv_heads, int64_t q_len, int64_t kv_len,
                 int64_t d)
{
    memset(f, 0, sizeof *f);
    f->problem = (attn_problem){.size = sizeof f->problem,
                                .dtype = ATTN_BF16,
                                .batch = batch,
                                .heads = heads,
                                .kv_heads = kv_heads,
                                .q_len = q_len,
                                .kv_len = kv_len,
                                .head_dim = d,
                                .value_head_dim = d,
                                .scale = 1 / sqrt((double)d)};
    f->q = random_rows(batch * q_len, heads, d, 3);
    f->k = random_rows(batch * kv_len, kv_heads, d, 3);
    set_strides(f->problem.q_stride, q_len, heads, d);
    set_strides(f->problem.k_stride, kv_len, kv_heads, d);
    f->call = (attn_call){.size = sizeof f->call, .problem = &f->problem, .workers = 3, .layer_index = -1};
    f->error = (attn_error)ATTN_ERROR_INIT;
    f->sparse = (attn_sparse_call){.size = sizeof f->sparse,
                                   .problem = &f->problem,
                                   .q = f->q,
                                   .k = f->k,
                                   .call = &f->call,
                                   .host = &host,
                                   .error = &f->error};
    f->block_q = f->block_k = 64;
}

static void publish(fixture *f, int64_t t, int64_t h, int64_t w, int64_t patch)
{
    int64_t latent[3] = {t, h * patch, w * patch}, sizes[3] = {1, patch, patch};
    memcpy(f->latent, latent, sizeof latent);
    memcpy(f->patch, sizes, sizeof sizes);
    f->forward = (attn_forward_state){.size = sizeof f->forward,
                                      .samples = 1,
                                      .denoise_step = &f->step,
                                      .latent_shape = f->latent,
                                      .patch_size = f->patch};
    f->sparse.forward = &f->forward;
}

/* Returns what the selector returns; after 0 the map is in f->map and has been checked. */
static int run(fixture *f, const char *selector, const char *params)
{
    attn_block_shape shape = {.size = sizeof shape,
                              .batch = f->problem.batch,
                              .heads = f->problem.heads,
                              .q_len = f->problem.q_len,
                              .kv_len = f->problem.kv_len,
                              .block_q = f->block_q,
                              .block_k = f->block_k};
    attn_block_map_free(f->map);
    attn_params_free(f->params);
    f->map = NULL, f->params = NULL;
    if (attn_params_parse(params, &f->params, &f->error)) fail_msg("%s", f->error.text);
    if (attn_block_map_new(&shape, &f->map, &f->error)) fail_msg("%s", f->error.text);
    f->sparse.params = f->params;
    int status = find(selector)->select(&f->sparse, f->map);
    if (!status && attn_block_map_check(f->map, &f->error)) fail_msg("%s: %s", selector, f->error.text);
    return status;
}

static void run_well(fixture *f, const char *selector, const char *params)
{
    if (run(f, selector, params)) fail_msg("%s %s: %s", selector, params, f->error.text);
}

static void run_badly(fixture *f, const char *selector, const char *params, attn_kind kind, const char *word)
{
    if (!run(f, selector, params)) fail_msg("%s took %s", selector, params);
    if (f->error.kind != kind)
        fail_msg("%s %s is %s: %s", selector, params, attn_kind_name(f->error.kind), f->error.text);
    text_has(f->error.text, word);
}

static void drop(fixture *f)
{
    attn_block_map_free(f->map);
    attn_params_free(f->params);
    free(f->q);
    free(f->k);
}

static int64_t blocks_of(int64_t n, int64_t block)
{
    return (n + block - 1) / block;
}

static int64_t lesser(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int kept(const fixture *f, int64_t b, int64_t h, int64_t i, int64_t j)
{
    int32_t *count, *list = attn_sparse_list(f->map, b, h, i, &count);
    for (int32_t n = 0; n < *count; n++)
        if (list[n] == j) return 1;
    return 0;
}

static int64_t listed(const fixture *f, int64_t b, int64_t h, int64_t i)
{
    int32_t *count;
    (void)attn_sparse_list(f->map, b, h, i, &count);
    return *count;
}

/* ---- by place: a key block is kept exactly when a pair of tokens is -------------------------------------
 */

typedef int (*pair_fn)(const void *rule, int64_t b, int64_t h, int64_t query, int64_t key);

static int any_pair(const fixture *f, pair_fn pair, const void *rule, int64_t b, int64_t h, int64_t i,
                    int64_t j)
{
    for (int64_t q = i * f->block_q; q < lesser((i + 1) * f->block_q, f->problem.q_len); q++)
        for (int64_t k = j * f->block_k; k < lesser((j + 1) * f->block_k, f->problem.kv_len); k++)
            if (pair(rule, b, h, q, k)) return 1;
    return 0;
}

static void keeps_pairs(const fixture *f, pair_fn pair, const void *rule)
{
    for (int64_t b = 0; b < f->problem.batch; b++)
        for (int64_t h = 0; h < f->problem.heads; h++)
            for (int64_t i = 0; i < blocks_of(f->problem.q_len, f->block_q); i++)
                for (int64_t j = 0; j < blocks_of(f->problem.kv_len, f->block_k); j++)
                    if (kept(f, b, h, i, j) != any_pair(f, pair, rule, b, h, i, j))
                        fail_msg("sample %d, head %d, query block %d, key block %d: %d", (int)b, (int)h,
                                 (int)i, (int)j, kept(f, b, h, i, j));
}

typedef struct radial_rule {
    int64_t patches, sink;
    double decay;
} radial_rule;

static int radial_pair(const void *rule, int64_t b, int64_t h, int64_t query, int64_t key)
{
    const radial_rule *r = rule;
    int64_t distance = llabs(query / r->patches - key / r->patches), group = 1;
    int64_t apart = llabs(query % r->patches - key % r->patches);
    (void)b, (void)h;
    while (group * 2 <= distance) group *= 2;
    double width = r->decay * (double)r->patches / (double)group;
    if (key / r->patches < r->sink) return 1;
    if (width >= 1) return (double)apart + 1 <= width;
    return apart == 0 && distance % (int64_t)ceil(1 / width) == 0;
}

static void radial_is_its_definition(void **state)
{
    (void)state;
    static const struct {
        int64_t t, h, w, block_q, block_k, sink;
        double decay;
        const char *params;
    } rows[] = {{16, 4, 8, 16, 16, 1, 1, "{}"},
                {9, 3, 5, 16, 8, 1, 0.5, "{\"decay\": 0.5}"},
                {20, 1, 3, 4, 4, 0, 0.2, "{\"decay\": 0.2, \"sink_frames\": 0}"},
                {33, 2, 2, 1, 1, 0, 1, "{\"sink_frames\": 0}"},
                {5, 7, 3, 64, 32, 2, 1, "{\"sink_frames\": 2}"},
                {3, 5, 5, 64, 64, 9, 4, "{\"decay\": 4, \"sink_frames\": 9}"}};
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        fixture f;
        int64_t tokens = rows[n].t * rows[n].h * rows[n].w;
        make(&f, 2, 2, 2, tokens, tokens, 8);
        publish(&f, rows[n].t, rows[n].h, rows[n].w, 2);
        f.block_q = rows[n].block_q, f.block_k = rows[n].block_k;
        run_well(&f, "radial", rows[n].params);
        keeps_pairs(&f, radial_pair, &(radial_rule){rows[n].h * rows[n].w, rows[n].sink, rows[n].decay});
        drop(&f);
    }
}

static void radial_grows_like_n_log_n(void **state)
{
    (void)state;
    double share[2];
    for (int n = 0; n < 2; n++) {
        fixture f;
        attn_block_stats stats = {.size = sizeof stats};
        make(&f, 1, 1, 1, (int64_t)4096 << n, (int64_t)4096 << n, 2);
        publish(&f, 32 << n, 16, 8, 2);
        f.block_q = f.block_k = 4;
        run_well(&f, "radial", "{}");
        assert_int_equal(attn_block_map_stats(f.map, -1, -1, &stats, &f.error), ATTN_OK);
        share[n] = stats.share;
        drop(&f);
    }
    assert_true(share[1] < 0.7 * share[0]);
}

typedef struct tile_rule {
    int64_t n[3], tile[3], window[3];
    int tiles_first;
} tile_rule;

/* The tile of a token along each axis, by walking over all tokens in their order. */
static void tile_of(const tile_rule *r, int64_t token, int64_t at[3])
{
    int64_t tiles[3], left = token;
    for (int i = 0; i < 3; i++) tiles[i] = blocks_of(r->n[i], r->tile[i]);
    if (!r->tiles_first) {
        at[0] = token / (r->n[1] * r->n[2]) / r->tile[0];
        at[1] = token / r->n[2] % r->n[1] / r->tile[1];
        at[2] = token % r->n[2] / r->tile[2];
        return;
    }
    for (at[0] = 0; at[0] < tiles[0]; at[0]++)
        for (at[1] = 0; at[1] < tiles[1]; at[1]++)
            for (at[2] = 0; at[2] < tiles[2]; at[2]++) {
                int64_t size = 1;
                for (int i = 0; i < 3; i++) size *= lesser(r->tile[i], r->n[i] - at[i] * r->tile[i]);
                if (left < size) return;
                left -= size;
            }
}

/* The window's middle is the query's tile, moved inwards so far that the window lies inside. */
static int tile_pair(const void *rule, int64_t b, int64_t h, int64_t query, int64_t key)
{
    const tile_rule *r = (const tile_rule *)rule + h;
    int64_t q[3], k[3];
    (void)b;
    tile_of(r, query, q);
    tile_of(r, key, k);
    for (int i = 0; i < 3; i++) {
        int64_t tiles = blocks_of(r->n[i], r->tile[i]), half = r->window[i] / 2, middle = q[i];
        if (r->window[i] >= tiles) continue;
        if (middle < half) middle = half;
        if (middle > tiles - 1 - half) middle = tiles - 1 - half;
        if (llabs(k[i] - middle) > half) return 0;
    }
    return 1;
}

static void sliding_tile_is_its_definition(void **state)
{
    (void)state;
    static const struct {
        tile_rule rule;
        int64_t block_q, block_k;
        const char *params;
    } rows[] = {
        {{{8, 8, 8}, {4, 4, 4}, {3, 3, 3}, 0}, 64, 64, "{}"},
        {{{12, 8, 8}, {2, 4, 4}, {3, 1, 1}, 0}, 32, 32, "{\"tile\": [2, 4, 4], \"window\": [3, 1, 1]}"},
        {{{12, 8, 8}, {2, 4, 4}, {3, 1, 1}, 1},
         32,
         32,
         "{\"tile\": [2, 4, 4], \"window\": [3, 1, 1], \"order\": \"tiles\"}"},
        {{{7, 5, 6}, {3, 2, 4}, {1, 3, 1}, 0}, 16, 8, "{\"tile\": [3, 2, 4], \"window\": [1, 3, 1]}"},
        {{{7, 5, 6}, {3, 2, 4}, {1, 3, 1}, 1},
         16,
         8,
         "{\"tile\": [3, 2, 4], \"window\": [1, 3, 1], \"order\": \"tiles\"}"},
        {{{6, 4, 4}, {1, 1, 1}, {5, 3, 99}, 0}, 1, 1, "{\"tile\": [1, 1, 1], \"window\": [5, 3, 99]}"},
    };
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        fixture f;
        const tile_rule *r = &rows[n].rule, rules[2] = {*r, *r};
        int64_t tokens = r->n[0] * r->n[1] * r->n[2];
        make(&f, 1, 2, 1, tokens, tokens, 8);
        publish(&f, r->n[0], r->n[1], r->n[2], 2);
        f.block_q = rows[n].block_q, f.block_k = rows[n].block_k;
        run_well(&f, "sliding_tile", rows[n].params);
        keeps_pairs(&f, tile_pair, rules);
        drop(&f);
    }
}

static void write_text(char *path, const char *text)
{
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
}

static void sliding_tile_reads_windows_of_layers_heads_and_steps(void **state)
{
    (void)state;
    char path[] = "/tmp/attn-windows-XXXXXX", params[128];
    write_text(path, "{\"tile\": [2, 2, 2], \"window\": [1, 1, 1], \"rules\": ["
                     "{\"layers\": [3], \"heads\": [1], \"window\": [3, 1, 1]},"
                     "{\"layers\": [3], \"steps\": [4, 5], \"window\": [1, 3, 1]},"
                     "{\"heads\": [0], \"window\": [1, 1, 3]}]}");
    snprintf(params, sizeof params, "{\"file\": \"%s\"}", path);
    tile_rule plain = {{8, 8, 8}, {2, 2, 2}, {1, 1, 1}, 0}, t = plain, h = plain, w = plain;
    t.window[0] = h.window[1] = w.window[2] = 3;
    const struct {
        int64_t layer, step;
        tile_rule rules[2];
    } rows[] = {{3, 0, {w, t}}, {3, 5, {h, t}}, {2, 5, {w, plain}}, {-1, 0, {w, plain}}};
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        fixture f;
        make(&f, 1, 2, 2, 512, 512, 8);
        publish(&f, 8, 8, 8, 1);
        f.block_q = f.block_k = 16;
        f.call.layer_index = rows[n].layer;
        f.step = rows[n].step;
        run_well(&f, "sliding_tile", params);
        keeps_pairs(&f, tile_pair, rows[n].rules);
        drop(&f);
    }
    unlink(path);
}

static void a_grid_can_be_given(void **state)
{
    (void)state;
    fixture f;
    make(&f, 1, 1, 1, 96, 96, 8);
    f.block_q = f.block_k = 8;
    run_well(&f, "radial", "{\"grid\": [6, 4, 4]}");
    keeps_pairs(&f, radial_pair, &(radial_rule){16, 1, 1});
    publish(&f, 3, 4, 4, 2); /* the parameter goes before what is published */
    run_well(&f, "radial", "{\"grid\": [6, 4, 4]}");
    run_badly(&f, "radial", "{}", ATTN_KIND_INVALID_SHAPE, "3 x 4 x 4");
    run_badly(&f, "radial", "{\"grid\": [6, 16]}", ATTN_KIND_INVALID_VALUE, "2 numbers");
    run_badly(&f, "sliding_tile", "{\"grid\": [6, 4, 5]}", ATTN_KIND_INVALID_SHAPE,
              "correct the parameter grid");
    f.sparse.forward = NULL;
    run_badly(&f, "sliding_tile", "{}", ATTN_KIND_FEATURE_UNSUPPORTED, "publish");
    f.problem.kv_len = 48;
    run_badly(&f, "radial", "{\"grid\": [6, 4, 4]}", ATTN_KIND_INVALID_SHAPE, "48 keys");
    drop(&f);
}

/* ---- by means ----------------------------------------------------------------------------------------- */

static double element(const uint16_t *data, const int64_t stride[4], int64_t b, int64_t s, int64_t h,
                      int64_t d)
{
    return (double)attn_load(ATTN_BF16, data, b * stride[0] + s * stride[1] + h * stride[2] + d);
}

/* scale * mean(queries [q0, q1)) . mean(keys of block j) */
static double mean_score(const fixture *f, int64_t b, int64_t h, int64_t q0, int64_t q1, int64_t j)
{
    const attn_problem *p = &f->problem;
    int64_t k0 = j * f->block_k, k1 = lesser(k0 + f->block_k, p->kv_len);
    double dot = 0;
    for (int64_t d = 0; d < p->head_dim; d++) {
        double q = 0, k = 0;
        for (int64_t s = q0; s < q1; s++) q += element(f->q, p->q_stride, b, s, h, d);
        for (int64_t s = k0; s < k1; s++)
            k += element(f->k, p->k_stride, b, s, h * p->kv_heads / p->heads, d);
        dot += q / (double)(q1 - q0) * k / (double)(k1 - k0);
    }
    return dot * p->scale;
}

/* Key blocks that causal order leaves to a query block. */
static int64_t left_to(const fixture *f, int64_t i)
{
    int64_t last = lesser((i + 1) * f->block_q, f->problem.q_len) - 1 + f->problem.kv_len - f->problem.q_len;
    int64_t all = blocks_of(f->problem.kv_len, f->block_k);
    if (!f->problem.causal) return all;
    return last < 0 ? 1 : lesser(last / f->block_k + 1, all);
}

static void check_topk(const fixture *f, int64_t topk)
{
    for (int64_t b = 0; b < f->problem.batch; b++)
        for (int64_t h = 0; h < f->problem.heads; h++)
            for (int64_t i = 0; i < blocks_of(f->problem.q_len, f->block_q); i++) {
                int64_t q0 = i * f->block_q, q1 = lesser(q0 + f->block_q, f->problem.q_len),
                        left = left_to(f, i);
                double least = INFINITY, most = -INFINITY;
                for (int64_t j = 0; j < left; j++) {
                    double score = mean_score(f, b, h, q0, q1, j);
                    if (kept(f, b, h, i, j))
                        least = score < least ? score : least;
                    else
                        most = score > most ? score : most;
                }
                assert_int_equal(listed(f, b, h, i), lesser(topk, left));
                assert_true(least >= most - 1e-4);
            }
}

static void mean_topk_is_its_definition(void **state)
{
    (void)state;
    fixture f;
    make(&f, 2, 4, 2, 200, 500, 24);
    f.block_q = 32, f.block_k = 16;
    run_well(&f, "mean_topk", "{\"topk\": 5}");
    check_topk(&f, 5);
    run_well(&f, "mean_topk", "{}");
    check_topk(&f, 4); /* an eighth of 32 */
    run_well(&f, "mean_topk", "{\"topk\": 1000}");
    check_topk(&f, 32);
    run_well(&f, "mean_topk", "{\"share\": 0}");
    check_topk(&f, 1);
    f.problem.causal = 1;
    run_well(&f, "mean_topk", "{\"topk\": 20}");
    check_topk(&f, 20);
    drop(&f);
}

/* Keys behind a sample's length, here not a number, have no say. */
static void keys_behind_a_length_are_not_seen(void **state)
{
    (void)state;
    static const int64_t lengths[2] = {130, 500};
    fixture f;
    make(&f, 2, 2, 2, 96, 500, 24);
    f.block_q = 32, f.block_k = 16;
    f.call.kv_lengths = (attn_index){lengths, 1, 2, 64};
    for (int64_t s = 130; s < 500; s++)
        for (int64_t d = 0; d < 48; d++) f.k[s * f.problem.k_stride[1] + d] = 0x7fc0;
    for (int n = 0; n < 2; n++) {
        run_well(&f, n ? "mean_mass" : "mean_topk", n ? "{\"mass\": 1, \"wide\": 1}" : "{\"topk\": 6}");
        for (int64_t i = 0; i < 3; i++) {
            assert_int_equal(listed(&f, 0, 0, i), n ? 9 : 6);
            assert_int_equal(listed(&f, 1, 0, i), n ? 32 : 6);
            for (int64_t j = 9; j < 32; j++) assert_int_equal(kept(&f, 0, 1, i, j), 0);
        }
    }
    drop(&f);
}

/* The same numbers, two elements apart. */
static void channels_may_lie_apart(void **state)
{
    (void)state;
    fixture f, g;
    seed = 5;
    make(&f, 1, 2, 2, 256, 256, 16);
    make(&g, 1, 2, 2, 256, 256, 32);
    for (int64_t s = 0; s < 256; s++)
        for (int64_t h = 0; h < 2; h++)
            for (int64_t d = 0; d < 16; d++) {
                g.q[s * g.problem.q_stride[1] + h * 32 + 2 * d] = f.q[s * f.problem.q_stride[1] + h * 16 + d];
                g.k[s * g.problem.k_stride[1] + h * 32 + 2 * d] = f.k[s * f.problem.k_stride[1] + h * 16 + d];
            }
    g.problem.head_dim = 16;
    g.problem.scale = f.problem.scale;
    g.problem.q_stride[3] = g.problem.k_stride[3] = 2;
    run_well(&f, "mean_topk", "{\"topk\": 2}");
    run_well(&g, "mean_topk", "{\"topk\": 2}");
    for (int64_t h = 0; h < 2; h++)
        for (int64_t i = 0; i < 4; i++)
            for (int64_t j = 0; j < 4; j++) assert_int_equal(kept(&f, 0, h, i, j), kept(&g, 0, h, i, j));
    drop(&f);
    drop(&g);
}

/* The mass of key block j, for runs of rows. */
static void masses(const fixture *f, int64_t b, int64_t h, int64_t i, int64_t rows, int64_t left,
                   double *mass)
{
    int64_t q0 = i * f->block_q, q1 = lesser(q0 + f->block_q, f->problem.q_len);
    memset(mass, 0, (size_t)left * sizeof *mass);
    for (int64_t r = q0; r < q1; r += rows) {
        double sum = 0, e[64];
        int64_t end = lesser(r + rows, q1);
        for (int64_t j = 0; j < left; j++) sum += e[j] = exp(mean_score(f, b, h, r, end, j));
        for (int64_t j = 0; j < left; j++) mass[j] += e[j] / sum * (double)(end - r) / (double)(q1 - q0);
    }
}

/* The list is the shortest that holds enough, at most `most` long. */
static void check_mass(const fixture *f, int64_t b, int64_t h, int64_t i, int64_t rows, double enough,
                       int64_t most)
{
    double mass[64], held = 0, least = INFINITY, dropped = 0;
    int64_t left = left_to(f, i);
    masses(f, b, h, i, rows, left, mass);
    for (int64_t j = 0; j < left; j++)
        if (kept(f, b, h, i, j)) {
            held += mass[j];
            least = mass[j] < least ? mass[j] : least;
        } else {
            dropped = mass[j] > dropped ? mass[j] : dropped;
        }
    int64_t count = listed(f, b, h, i);
    assert_true(count >= 1 && count <= most);
    assert_true(least >= dropped - 1e-5);
    assert_true(count == most || count == left || held >= enough - 1e-5);
    assert_true(count == 1 || held - least < enough + 1e-5);
}

static void mean_mass_is_its_definition(void **state)
{
    (void)state;
    fixture f;
    make(&f, 2, 4, 2, 150, 500, 24);
    f.block_q = 32, f.block_k = 16;
    for (int causal = 0; causal < 2; causal++) {
        f.problem.causal = causal;
        for (int64_t b = 0; b < 2; b++)
            for (int64_t h = 0; h < 4; h++)
                for (int64_t i = 0; i < 5; i++) {
                    if (!b && !h && !i) run_well(&f, "mean_mass", "{\"mass\": 0.8, \"wide\": 1}");
                    check_mass(&f, b, h, i, 16, 0.8, 32);
                }
        run_well(&f, "mean_mass", "{\"mass\": 0.9, \"rows\": 5, \"wide\": 1, \"budget\": [1, 0.25, 0, 0.5]}");
        static const int64_t most[] = {32, 8, 1, 16};
        for (int64_t h = 0; h < 4; h++)
            for (int64_t i = 0; i < 5; i++) check_mass(&f, 1, h, i, 5, 0.9, most[h]);
    }
    drop(&f);
}

/* One head looks at one place, the other everywhere. */
static void wide_heads_stay_dense(void **state)
{
    (void)state;
    fixture f;
    make(&f, 1, 2, 2, 512, 512, 16);
    f.block_q = f.block_k = 32;
    for (int64_t s = 0; s < 512; s++)
        for (int64_t h = 0; h < 2; h++)
            for (int64_t d = 0; d < 16; d++) {
                int64_t at = s * f.problem.q_stride[1] + h * 16 + d;
                f.q[at] = f.k[at] = bf16(h ? 0.01 * draw() : s / 32 == d ? 9 : 0);
            }
    run_well(&f, "mean_mass", "{}");
    for (int64_t i = 0; i < 16; i++) {
        assert_int_equal(listed(&f, 0, 0, i), 1);
        assert_true(kept(&f, 0, 0, i, i));
        assert_int_equal(listed(&f, 0, 1, i), 16);
    }
    run_well(&f, "mean_mass", "{\"mass\": 0.5, \"wide\": 1}");
    assert_int_equal(listed(&f, 0, 1, 3), 8);
    drop(&f);
}

static void nothing_depends_on_workers(void **state)
{
    (void)state;
    static const char *const names[] = {"mean_topk", "mean_mass", "radial", "sliding_tile"};
    for (size_t n = 0; n < 4; n++) {
        fixture f, g;
        seed = 99;
        make(&f, 1, 3, 3, 1024, 1024, 40);
        seed = 99;
        make(&g, 1, 3, 3, 1024, 1024, 40);
        publish(&f, 16, 8, 8, 1);
        publish(&g, 16, 8, 8, 1);
        g.call.workers = 1;
        run_well(&f, names[n], "{}");
        run_well(&g, names[n], "{}");
        for (int64_t h = 0; h < 3; h++)
            for (int64_t i = 0; i < 16; i++)
                for (int64_t j = 0; j < 16; j++) assert_int_equal(kept(&f, 0, h, i, j), kept(&g, 0, h, i, j));
        drop(&f);
        drop(&g);
    }
}

static void wrong_parameters_are_told(void **state)
{
    (void)state;
    fixture f;
    make(&f, 1, 2, 2, 128, 128, 8);
    publish(&f, 8, 4, 4, 1);
    run_badly(&f, "radial", "{\"decai\": 1}", ATTN_KIND_UNKNOWN_OR_MISSING_KEY, "decai");
    run_badly(&f, "radial", "{\"decay\": 0}", ATTN_KIND_INVALID_VALUE, "decay");
    run_badly(&f, "radial", "{\"sink_frames\": -1}", ATTN_KIND_INVALID_VALUE, "sink_frames");
    run_badly(&f, "sliding_tile", "{\"window\": [3, 2, 3]}", ATTN_KIND_INVALID_VALUE, "odd");
    run_badly(&f, "sliding_tile", "{\"window\": [3, 3]}", ATTN_KIND_INVALID_VALUE, "window");
    run_badly(&f, "sliding_tile", "{\"tile\": [0, 4, 4]}", ATTN_KIND_INVALID_VALUE, "tile");
    run_badly(&f, "sliding_tile", "{\"order\": \"rows\"}", ATTN_KIND_INVALID_VALUE, "frames tiles");
    run_badly(&f, "sliding_tile", "{\"file\": \"/nowhere/windows.json\"}", ATTN_KIND_IO,
              "/nowhere/windows.json");
    run_badly(&f, "mean_topk", "{\"topk\": 0}", ATTN_KIND_INVALID_VALUE, "topk");
    run_badly(&f, "mean_topk", "{\"topk\": 2, \"share\": 0.5}", ATTN_KIND_MUTUALLY_EXCLUSIVE,
              "leave one out");
    run_badly(&f, "mean_mass", "{\"mass\": 1.5}", ATTN_KIND_INVALID_VALUE, "mass");
    run_badly(&f, "mean_mass", "{\"rows\": 0}", ATTN_KIND_INVALID_VALUE, "rows");
    run_badly(&f, "mean_mass", "{\"budget\": [0.5]}", ATTN_KIND_INVALID_VALUE, "2 heads");
    run_badly(&f, "mean_mass", "{\"budget\": [0.5, 2]}", ATTN_KIND_INVALID_VALUE, "head 1");
    run_badly(&f, "mean_mass", "{\"budget\": \"much\"}", ATTN_KIND_INVALID_TYPE, "text");
    drop(&f);
}

static void wrong_files_are_told(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        attn_kind kind;
        const char *word;
    } rows[] = {
        {"{\"rules\": [", ATTN_KIND_SYNTAX, ""},
        {"{\"rule\": []}", ATTN_KIND_UNKNOWN_OR_MISSING_KEY, "rule"},
        {"{\"rules\": 3}", ATTN_KIND_INVALID_TYPE, "list"},
        {"{\"rules\": [{\"heads\": [0]}]}", ATTN_KIND_INVALID_VALUE, "window"},
        {"{\"rules\": [{\"window\": [1, 4, 1]}]}", ATTN_KIND_INVALID_VALUE, "odd"},
        {"{\"rules\": [{\"head\": [1], \"window\": [1, 1, 1]}]}", ATTN_KIND_UNKNOWN_OR_MISSING_KEY, "head"},
        {"{\"rules\": [{\"heads\": 1, \"window\": [1, 1, 1]}]}", ATTN_KIND_INVALID_TYPE, "heads"}};
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        char path[] = "/tmp/attn-windows-XXXXXX", params[128];
        fixture f;
        make(&f, 1, 2, 2, 128, 128, 8);
        publish(&f, 8, 4, 4, 1);
        write_text(path, rows[n].text);
        snprintf(params, sizeof params, "{\"file\": \"%s\"}", path);
        run_badly(&f, "sliding_tile", params, rows[n].kind, rows[n].word);
        unlink(path);
        drop(&f);
    }
}

/* ---- as a user turns them on -------------------------------------------------------------------------- */

typedef struct live {
    test_call call;
    attn_context *context;
    attn_layer *layer;
    attn_forward_state forward;
    int64_t step, total, latent[3], patch[3];
    char config[256];
} live;

/* A layer over a video of 8 x 8 x 8 tokens whose role self has the selector; steps are published. */
static void live_open(live *l, const char *role, const char *selector, const char *extra)
{
    *l = (live){.total = 4, .latent = {8, 8, 8}, .patch = {1, 1, 1}};
    snprintf(l->config, sizeof l->config, "{\"per_role\": {\"self\": {\"backend\": \"%s\", \"extra\": %s}}}",
             selector, extra);
    call_make(&l->call, NULL, ATTN_BF16, (dims){1, 512, 512, 2, 2, 32, 32});
    call_mix32(&l->call, 1, 2, 3);
    l->forward = (attn_forward_state){.size = sizeof l->forward,
                                      .samples = 1,
                                      .denoise_step = &l->step,
                                      .denoise_total = &l->total,
                                      .latent_shape = l->latent,
                                      .patch_size = l->patch};
    l->call.options.config = l->config;
    l->call.options.module_path = TEST_SELECTORS;
    l->call.layer.role = role;
    l->call.args.forward = &l->forward;
    l->context = context_open(&l->call.options);
    l->layer = layer_open(l->context, &l->call.layer);
}

static attn_layer_info live_run(live *l)
{
    attn_layer_info info = {.size = sizeof info};
    if (attn_forward(l->layer, &l->call.args, &l->call.error)) fail_msg("%s", l->call.error.text);
    attn_layer_get_info(l->layer, &info);
    return info;
}

static void live_close(live *l)
{
    attn_layer_close(l->layer);
    attn_close(l->context);
    call_free(&l->call);
}

static void a_name_in_the_configuration_turns_one_on(void **state)
{
    (void)state;
    static const char *const names[] = {"mean_mass", "mean_topk", "radial", "sliding_tile"};
    for (size_t n = 0; n < 4; n++) {
        live self, cross;
        live_open(&self, "self", names[n],
                  n == 3 ? "{\"tile\": [2, 2, 2]}"
                  : n    ? "{}"
                         : "{\"mass\": 0.5, \"wide\": 1}");
        live_open(&cross, "cross", names[n], "{}");
        attn_layer_info info = live_run(&self);
        assert_string_equal(info.backend, "SPARSE_ATTN");
        text_has(info.implementation, names[n]);
        text_has(info.report, "% of blocks (heads:");
        assert_true(info.map_seconds > 0);
        assert_true(n == 2 || info.kept_share < 1);
        info = live_run(&cross);
        assert_string_equal(info.backend, "FLASH_ATTN");
        live_close(&self);
        live_close(&cross);
    }
}

/* All blocks are the dense result; a step of the schedule is too, and says so. */
static void all_blocks_and_exempt_steps_are_dense(void **state)
{
    (void)state;
    live all, some, dense;
    live_open(&dense, "other", "mean_mass", "{}");
    live_open(&all, "self", "mean_mass", "{\"mass\": 1, \"wide\": 0}");
    live_open(&some, "self", "mean_topk", "{\"topk\": 1, \"start_step\": 1, \"end_step\": 1}");
    live_run(&dense);
    assert_true(live_run(&all).kept_share == 1);
    tensor_near("all blocks", &all.call.out.dl, &dense.call.out.dl, 1e-2);
    attn_layer_info info = live_run(&some);
    text_has(info.report, "dense:step 0");
    assert_true(info.map_seconds == 0);
    tensor_near("step 0", &some.call.out.dl, &dense.call.out.dl, 1e-2);
    some.step = 2;
    info = live_run(&some);
    value_near("kept", info.kept_share, 1.0 / 8, 1e-9);
    assert_int_equal(info.sparse_calls, 1);
    some.step = 3;
    text_has(live_run(&some).report, "dense:step 3");
    live_close(&all);
    live_close(&some);
    live_close(&dense);
}

/* Reports of hosts that are older than the time of the choice end before it. */
static void an_older_host_is_told_no_time(void **state)
{
    (void)state;
    attn_report report = {.size = offsetof(attn_report, map_seconds)};
    attn_call call = {.size = sizeof call, .report = &report};
    attn_call_chose(&call, 2);
    assert_true(report.map_seconds == 0);
    report.size = sizeof report;
    attn_call_chose(&call, 2);
    attn_call_chose(&call, 1);
    assert_true(report.map_seconds == 3);
    call.size = offsetof(attn_call, report);
    attn_call_chose(&call, 1);
    call = (attn_call){.size = sizeof call};
    attn_call_chose(&call, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_older_host_is_told_no_time),
        cmocka_unit_test(radial_is_its_definition),
        cmocka_unit_test(radial_grows_like_n_log_n),
        cmocka_unit_test(sliding_tile_is_its_definition),
        cmocka_unit_test(sliding_tile_reads_windows_of_layers_heads_and_steps),
        cmocka_unit_test(a_grid_can_be_given),
        cmocka_unit_test(mean_topk_is_its_definition),
        cmocka_unit_test(mean_mass_is_its_definition),
        cmocka_unit_test(keys_behind_a_length_are_not_seen),
        cmocka_unit_test(channels_may_lie_apart),
        cmocka_unit_test(wide_heads_stay_dense),
        cmocka_unit_test(nothing_depends_on_workers),
        cmocka_unit_test(wrong_parameters_are_told),
        cmocka_unit_test(wrong_files_are_told),
        cmocka_unit_test(a_name_in_the_configuration_turns_one_on),
        cmocka_unit_test(all_blocks_and_exempt_steps_are_dense),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
