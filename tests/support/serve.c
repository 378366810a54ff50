/* serve.c: calls over a paged cache as a server makes them, and the plain double evaluation they are held
 * against. */
#include "serve.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- numbers ---- */

uint32_t serve_draw(uint32_t *seed)
{
    uint32_t x = *seed += 0x9E3779B9u;
    x ^= x >> 16, x *= 0x85EBCA6Bu, x ^= x >> 13, x *= 0xC2B2AE35u;
    return x ^ x >> 16;
}

int64_t serve_below(uint32_t *seed, int64_t bound)
{
    return (int64_t)(serve_draw(seed) % (uint32_t)bound);
}

double serve_real(uint32_t *seed)
{
    return (double)(serve_below(seed, 255) - 127) / 128;
}

double serve_eight(attn_dtype dtype, uint8_t bits)
{
    if (dtype == ATTN_I8) return (int8_t)bits;
    int mantissa = dtype == ATTN_F8E4M3 ? 3 : 2, bias = dtype == ATTN_F8E4M3 ? 7 : 15;
    int exponent = (bits & 0x7f) >> mantissa, fraction = bits & ((1 << mantissa) - 1);
    double size = exponent ? ldexp((1 << mantissa) + fraction, exponent - bias - mantissa)
                           : ldexp(fraction, 1 - bias - mantissa);
    if (dtype == ATTN_F8E4M3 && (bits & 0x7f) == 0x7f) return NAN;
    if (dtype == ATTN_F8E5M2 && exponent == 31) size = fraction ? NAN : INFINITY;
    return bits & 0x80 ? -size : size;
}

/* ---- tensors ---- */

static int is_eight(attn_dtype t)
{
    return attn_dtype_bytes(t) == 1;
}

static int64_t blocks_of(const serve_shape *p, int64_t b)
{
    return (p->kv_len[b] + p->block - 1) / p->block;
}

static int64_t table_width(const serve_shape *p)
{
    int64_t most = 1;
    for (int64_t b = 0; b < p->requests; b++)
        if (blocks_of(p, b) > most) most = blocks_of(p, b);
    return most + 1; /* one column that nobody needs */
}

static int64_t page_count(const serve_shape *p)
{
    int64_t n = 3;
    for (int64_t b = 0; b < p->requests; b++) n += blocks_of(p, b);
    return n + n / 2;
}

static void make_pages(tensor *t, const serve_shape *p, int64_t width, int scale)
{
    int64_t nhd[] = {page_count(p), p->block, p->kv_heads, width}, hnd[] = {nhd[0], nhd[2], nhd[1], nhd[3]};
    tensor_make(t, scale ? ATTN_F32 : p->stored, scale ? 3 : 4, p->layout == ATTN_CACHE_HND ? hnd : nhd);
}

static void make_scale(tensor *t, const serve_shape *p)
{
    if (p->scales == 1) tensor_make(t, ATTN_F32, 1, (int64_t[]){1});
    if (p->scales == 2) tensor_make(t, ATTN_F32, 1, (int64_t[]){p->kv_heads});
    if (p->scales == 3) make_pages(t, p, 0, 1);
}

/* Index of a token and head in pages or their scales. */
static void place(const serve *s, int64_t page, int64_t token, int64_t head, int64_t *index)
{
    int hnd = s->shape.layout == ATTN_CACHE_HND;
    index[0] = page, index[1] = hnd ? head : token, index[2] = hnd ? token : head;
}

static double read_scale(const serve *s, const tensor *t, const int64_t *index, int64_t head)
{
    if (!t->memory) return 1;
    if (s->shape.scales == 3) return tensor_get(&t->dl, index);
    return tensor_get(&t->dl, (int64_t[]){s->shape.scales == 2 ? head : 0});
}

static void free_places(serve *s, int64_t *pages, uint32_t *seed)
{
    int64_t n = page_count(&s->shape);
    for (int64_t i = 0; i < n; i++) pages[i] = i;
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = serve_below(seed, i + 1), held = pages[i];
        pages[i] = pages[j], pages[j] = held;
    }
}

static void fill_table(serve *s, uint32_t *seed)
{
    int64_t *pages = malloc((size_t)page_count(&s->shape) * sizeof *pages), next = 0;
    assert_non_null(pages);
    free_places(s, pages, seed);
    tensor_fill(&s->table, -7); /* nothing looks at entries that no key needs */
    for (int64_t b = 0; b < s->shape.requests; b++)
        for (int64_t n = 0; n < blocks_of(&s->shape, b); n++)
            tensor_set(&s->table.dl, (int64_t[]){b, n}, (double)pages[next++]);
    free(pages);
}

/* One key or value; the double that it stands for goes to *truth. */
static void put(serve *s, const tensor *pages, int64_t *index, double scale, uint32_t *seed, double *truth)
{
    attn_dtype t = s->shape.stored;
    if (is_eight(t)) {
        uint8_t bits = (uint8_t)serve_below(seed, t == ATTN_F8E4M3 ? 0x48 : t == ATTN_F8E5M2 ? 0x40 : 128);
        bits |= (uint8_t)(serve_draw(seed) & 0x80);
        tensor_set(&pages->dl, index, t == ATTN_I8 ? (double)(int8_t)bits : bits);
        *truth = serve_eight(t, bits) * scale;
    } else {
        tensor_set(&pages->dl, index, serve_real(seed));
        *truth = tensor_get(&pages->dl, index);
    }
}

static void fill_side(serve *s, const tensor *pages, const tensor *scale, int64_t width, double **truth,
                      uint32_t *seed)
{
    const serve_shape *p = &s->shape;
    for (int64_t b = 0; b < p->requests; b++) {
        truth[b] = malloc((size_t)(p->kv_len[b] * p->kv_heads * width + 1) * sizeof **truth);
        assert_non_null(truth[b]);
        for (int64_t j = 0; j < p->kv_len[b]; j++)
            for (int64_t h = 0; h < p->kv_heads; h++) {
                int64_t index[4];
                place(s, (int64_t)tensor_get(&s->table.dl, (int64_t[]){b, j / p->block}), j % p->block, h,
                      index);
                if (scale->memory && p->scales == 3)
                    tensor_set(&scale->dl, index, (1 + serve_real(seed) / 2) / 64);
                double by = read_scale(s, scale, index, h);
                for (int64_t c = 0; c < width; c++) {
                    index[3] = c;
                    put(s, pages, index, by, seed, &truth[b][(j * p->kv_heads + h) * width + c]);
                }
            }
    }
}

static void fill_scale(const serve *s, const tensor *t)
{
    if (t->memory && s->shape.scales < 3)
        for (int64_t i = 0; i < tensor_count(&t->dl); i++)
            tensor_set_flat(&t->dl, i, s->shape.stored == ATTN_I8 ? (double)(1 + i) / 128 : 0.5 + (double)i);
}

static void make_queries(serve *s, uint32_t *seed)
{
    const serve_shape *p = &s->shape;
    int64_t total = 0;
    for (int64_t b = 0; b < p->requests; b++) total += p->q_len[b];
    if (p->batched) {
        tensor_make(&s->q, p->dtype, 4, (int64_t[]){p->requests, p->q_len[0], p->heads, p->d});
        tensor_make(&s->out, p->dtype, 4, (int64_t[]){p->requests, p->q_len[0], p->heads, p->dv});
        tensor_make(&s->lse, ATTN_F32, 3, (int64_t[]){p->requests, p->heads, p->q_len[0]});
    } else {
        tensor_make(&s->q, p->dtype, 3, (int64_t[]){total, p->heads, p->d});
        tensor_make(&s->out, p->dtype, 3, (int64_t[]){total, p->heads, p->dv});
        tensor_make(&s->lse, ATTN_F32, 2, (int64_t[]){p->heads, total});
        tensor_make(&s->cu_q, ATTN_I32, 1, (int64_t[]){p->requests + 1});
        total = 0;
        for (int64_t b = 0; b <= p->requests; b++) {
            tensor_set(&s->cu_q.dl, &b, (double)total);
            if (b < p->requests) total += p->q_len[b];
        }
    }
    for (int64_t i = 0; i < tensor_count(&s->q.dl); i++) tensor_set_flat(&s->q.dl, i, 2 * serve_real(seed));
}

static void set_args(serve *s, const char *backend)
{
    const serve_shape *p = &s->shape;
    s->options = (attn_options){.size = sizeof s->options, .backend = backend, .module_path = ""};
    s->layer = (attn_layer_options){.size = sizeof s->layer,
                                    .heads = p->heads,
                                    .kv_heads = p->kv_heads,
                                    .head_dim = p->d,
                                    .value_head_dim = p->dv};
    s->cache = (attn_cache){.size = sizeof s->cache,
                            .layout = p->layout,
                            .k = &s->k.dl,
                            .v = p->latent ? NULL : &s->v.dl,
                            .k_scale = s->k_scale.memory ? &s->k_scale.dl : NULL,
                            .v_scale = s->v_scale.memory ? &s->v_scale.dl : NULL};
    s->args = (attn_args){.size = sizeof s->args,
                          .q = &s->q.dl,
                          .out = &s->out.dl,
                          .lse = &s->lse.dl,
                          .cache = &s->cache,
                          .block_table = &s->table.dl,
                          .kv_lengths = &s->lengths.dl,
                          .cu_seqlens_q = p->batched ? NULL : &s->cu_q.dl};
}

void serve_make(serve *s, const char *backend, const serve_shape *shape)
{
    memset(s, 0, sizeof *s);
    s->shape = *shape;
    serve_shape *p = &s->shape;
    uint32_t seed = p->seed;
    if (!p->stored) p->stored = p->dtype;
    make_pages(&s->k, p, p->d, 0);
    if (!p->latent) make_pages(&s->v, p, p->dv, 0);
    make_scale(&s->k_scale, p);
    if (!p->latent) make_scale(&s->v_scale, p);
    fill_scale(s, &s->k_scale);
    fill_scale(s, &s->v_scale);
    tensor_make(&s->table, seed % 2 ? ATTN_I32 : ATTN_I64, 2, (int64_t[]){p->requests, table_width(p)});
    tensor_make(&s->lengths, seed % 3 ? ATTN_I32 : ATTN_I64, 1, &p->requests);
    for (int64_t b = 0; b < p->requests; b++) tensor_set(&s->lengths.dl, &b, (double)p->kv_len[b]);
    fill_table(s, &seed);
    fill_side(s, &s->k, &s->k_scale, p->d, s->keys, &seed);
    if (!p->latent) fill_side(s, &s->v, &s->v_scale, p->dv, s->values, &seed);
    make_queries(s, &seed);
    set_args(s, backend);
}

void serve_free(serve *s)
{
    tensor *all[] = {&s->q,     &s->out,     &s->lse,  &s->k,     &s->v,     &s->k_scale, &s->v_scale,
                     &s->table, &s->lengths, &s->cu_q, &s->alibi, &s->sinks, &s->tree,    &s->selected};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tensor_free(all[i]);
    for (int b = 0; b < SERVE_MOST; b++) free(s->keys[b]), free(s->values[b]);
}

/* ---- moving pages ---- */

static void move_pages(const serve *s, tensor *t, const tensor *before)
{
    if (!t->memory) return;
    size_t page = t->bytes / (size_t)t->shape[0];
    char *old = malloc(t->bytes);
    assert_non_null(old);
    memcpy(old, t->memory, t->bytes);
    memset(t->memory, 0xff, t->bytes);
    for (int64_t b = 0; b < s->shape.requests; b++)
        for (int64_t n = 0; n < blocks_of(&s->shape, b); n++) {
            int64_t at[] = {b, n};
            memcpy((char *)t->memory + page * (size_t)tensor_get(&s->table.dl, at),
                   old + page * (size_t)tensor_get(&before->dl, at), page);
        }
    free(old);
}

void serve_shuffle(serve *s, uint32_t seed)
{
    tensor before;
    tensor_make(&before, ATTN_I64, 2, s->table.shape);
    tensor_copy(&before.dl, &s->table.dl);
    fill_table(s, &seed);
    move_pages(s, &s->k, &before);
    move_pages(s, &s->v, &before);
    if (s->shape.scales == 3) {
        move_pages(s, &s->k_scale, &before);
        move_pages(s, &s->v_scale, &before);
    }
    tensor_free(&before);
}

/* ---- calls ---- */

attn_status serve_try(serve *s)
{
    attn_context *context = NULL;
    attn_layer *layer = NULL;
    s->error = (attn_error)ATTN_ERROR_INIT;
    attn_status status = attn_open(&s->options, &context, &s->error);
    if (!status) status = attn_layer_open(context, &s->layer, &layer, &s->error);
    if (!status) status = attn_forward(layer, &s->args, &s->error);
    if (!status) {
        attn_layer_info info = {.size = sizeof info};
        attn_layer_get_info(layer, &info);
        snprintf(s->plan, sizeof s->plan, "%s", info.plan);
    }
    attn_layer_close(layer);
    attn_close(context);
    return status;
}

void serve_run(serve *s)
{
    if (serve_try(s) != ATTN_OK) fail_msg("%s refused the call: %s", s->options.backend, s->error.text);
}

static int64_t row_of(const serve *s, int64_t b, int64_t i)
{
    for (int64_t n = 0; n < b; n++) i += s->shape.q_len[n];
    return i;
}

static double at_row(const serve *s, const tensor *t, int64_t b, int64_t i, int64_t h, int64_t c)
{
    if (s->shape.batched) return tensor_get(&t->dl, (int64_t[]){b, i, h, c});
    return tensor_get(&t->dl, (int64_t[]){row_of(s, b, i), h, c});
}

double serve_out(const serve *s, int64_t b, int64_t i, int64_t h, int64_t c)
{
    return at_row(s, &s->out, b, i, h, c);
}

double serve_lse(const serve *s, int64_t b, int64_t i, int64_t h)
{
    if (s->shape.batched) return tensor_get(&s->lse.dl, (int64_t[]){b, h, i});
    return tensor_get(&s->lse.dl, (int64_t[]){h, row_of(s, b, i)});
}

/* ---- the definitions ---- */

static int in_range(const serve *s, int64_t b, int64_t position, int64_t key)
{
    for (uint32_t r = 0; r < s->args.prefix_range_count; r++) {
        const attn_prefix_range *g = &s->ranges[r];
        if (g->request == b && g->start <= position && position < g->end && g->start <= key && key < g->end)
            return 1;
    }
    return 0;
}

static int is_selected(const serve *s, int64_t b, int64_t i, int64_t key)
{
    if (!s->args.selected) return 1;
    int64_t entries = s->selected.shape[s->selected.dl.ndim - 1];
    for (int64_t e = 0; e < entries; e++) {
        double entry = s->shape.batched ? tensor_get(&s->selected.dl, (int64_t[]){b, i, e})
                                        : tensor_get(&s->selected.dl, (int64_t[]){row_of(s, b, i), e});
        if (entry == (double)key) return 1;
    }
    return 0;
}

static int keeps(const serve *s, int64_t b, int64_t i, int64_t key)
{
    int64_t first = s->shape.kv_len[b] - s->shape.q_len[b], position = first + i;
    if (!is_selected(s, b, i, key)) return 0;
    if (s->args.tree_mask)
        return key < first ||
               tensor_get(&s->tree.dl, (int64_t[]){s->tree.shape[0] > 1 ? b : 0, i, key - first}) != 0;
    if (in_range(s, b, position, key)) return 1;
    if (s->layer.causal && key > position) return 0;
    if (s->layer.window & ATTN_WINDOW_LEFT && position - key > s->layer.window_left) return 0;
    return !(s->layer.window & ATTN_WINDOW_RIGHT && key - position > s->layer.window_right);
}

static double score(const serve *s, int64_t b, int64_t i, int64_t h, int64_t key)
{
    const serve_shape *p = &s->shape;
    const double *k = s->keys[b] + (key * p->kv_heads + h / (p->heads / p->kv_heads)) * p->d;
    double sum = 0, scale = s->layer.scale != 0 ? s->layer.scale : 1 / sqrt((double)p->d);
    for (int64_t c = 0; c < p->d; c++) sum += at_row(s, &s->q, b, i, h, c) * k[c];
    sum *= scale;
    if (s->layer.softcap > 0) sum = s->layer.softcap * tanh(sum / s->layer.softcap);
    if (s->args.alibi_slopes)
        sum -= tensor_get(&s->alibi.dl, &h) * fabs((double)(p->kv_len[b] - p->q_len[b] + i - key));
    return sum;
}

static void check_row(const char *label, const serve *s, int64_t b, int64_t i, int64_t h, double *w,
                      double atol)
{
    const serve_shape *p = &s->shape;
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < p->kv_len[b]; j++) {
        w[j] = keeps(s, b, i, j) ? score(s, b, i, h, j) : -INFINITY;
        top = fmax(top, w[j]);
    }
    for (int64_t j = 0; j < p->kv_len[b]; j++) sum += w[j] = w[j] == -INFINITY ? 0 : exp(w[j] - top);
    if (s->args.sinks && sum > 0) sum += exp(tensor_get(&s->sinks.dl, &h) - top);
    const double *values = p->latent ? s->keys[b] : s->values[b];
    int64_t width = p->latent ? p->d : p->dv;
    for (int64_t c = 0; c < p->dv; c++) {
        double value = 0;
        for (int64_t j = 0; j < p->kv_len[b]; j++)
            if (w[j] > 0)
                value += w[j] / sum * values[(j * p->kv_heads + h / (p->heads / p->kv_heads)) * width + c];
        value_near(label, serve_out(s, b, i, h, c), value, atol);
    }
    value_near(label, serve_lse(s, b, i, h), sum > 0 ? top + log(sum) : -INFINITY, atol);
}

void serve_check(const char *label, const serve *s, double atol)
{
    int64_t most = 1;
    for (int64_t b = 0; b < s->shape.requests; b++)
        if (s->shape.kv_len[b] > most) most = s->shape.kv_len[b];
    double *weights = malloc((size_t)most * sizeof *weights);
    assert_non_null(weights);
    for (int64_t b = 0; b < s->shape.requests; b++)
        for (int64_t i = 0; i < s->shape.q_len[b]; i++)
            for (int64_t h = 0; h < s->shape.heads; h++) check_row(label, s, b, i, h, weights, atol);
    free(weights);
}

/* ---- additions ---- */

void serve_add_alibi(serve *s)
{
    tensor_make(&s->alibi, ATTN_F32, 1, &s->shape.heads);
    for (int64_t h = 0; h < s->shape.heads; h++) tensor_set(&s->alibi.dl, &h, exp2((double)-(1 + h % 8)));
    s->args.alibi_slopes = &s->alibi.dl;
}

void serve_add_sinks(serve *s)
{
    tensor_make(&s->sinks, ATTN_F32, 1, &s->shape.heads);
    for (int64_t h = 0; h < s->shape.heads; h++) tensor_set(&s->sinks.dl, &h, (double)h / 2 - 1);
    s->args.sinks = &s->sinks.dl;
}

/* Each node sees itself and one earlier node's ancestors. */
void serve_add_tree(serve *s, int64_t most)
{
    uint32_t seed = s->shape.seed + 5;
    int64_t own = s->shape.seed % 2 ? s->shape.requests : 1;
    tensor_make(&s->tree, ATTN_BOOL, 3, (int64_t[]){own, most, most});
    tensor_fill(&s->tree, 0);
    for (int64_t b = 0; b < own; b++)
        for (int64_t i = 0; i < most; i++) {
            int64_t parent = i ? serve_below(&seed, i) : -1;
            tensor_set(&s->tree.dl, (int64_t[]){b, i, i}, 1);
            for (int64_t j = 0; j <= parent; j++)
                tensor_set(&s->tree.dl, (int64_t[]){b, i, j},
                           tensor_get(&s->tree.dl, (int64_t[]){b, parent, j}) != 0);
        }
    s->args.tree_mask = &s->tree.dl;
}

/* Positions of keys, positions behind the end, negative and repeated ones, in no order. */
void serve_add_selected(serve *s, int64_t entries)
{
    const serve_shape *p = &s->shape;
    uint32_t seed = p->seed + 9;
    int64_t rows = row_of(s, p->requests, 0);
    attn_dtype type = p->seed % 2 ? ATTN_I32 : ATTN_I64;
    if (p->batched)
        tensor_make(&s->selected, type, 3, (int64_t[]){p->requests, p->q_len[0], entries});
    else
        tensor_make(&s->selected, type, 2, (int64_t[]){rows, entries});
    for (int64_t b = 0, at = 0; b < p->requests; b++)
        for (int64_t n = 0; n < p->q_len[b] * entries; n++, at++)
            tensor_set_flat(&s->selected.dl, at, (double)serve_below(&seed, p->kv_len[b] + 6) - 3);
    s->args.selected = &s->selected.dl;
}

void serve_add_ranges(serve *s)
{
    uint32_t seed = s->shape.seed + 3;
    for (int64_t b = 0; b < s->shape.requests; b++)
        for (int n = 0; n < 2; n++) {
            int64_t start = serve_below(&seed, s->shape.kv_len[b] + 1);
            s->ranges[s->args.prefix_range_count++] =
                (attn_prefix_range){b, start, start + serve_below(&seed, 40)};
        }
    s->args.prefix_ranges = s->ranges;
}
