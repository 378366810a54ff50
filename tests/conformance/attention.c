/* attention.c: runs a folder of operator cases through one backend and compares; it computes nothing itself.
 */
#include "index.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

typedef enum outcome { PASSED, FAILED, SKIPPED } outcome;

/* A case as attention sees it. Arrays built here (a past put before keys, a padded mask) are owned. */
typedef struct problem {
    index_case *c;
    attn_layer_options layer;
    attn_args args;
    DLTensor tensor[12];
    int64_t shape[12][4], strides[12][4];
    int tensors;
    int64_t b, h, hk, d, dv, queries, past, fresh, keys;
    void *owned[9]; /* keys, values, mask, Y, scores; pages of keys and values, block table, lengths */
    int owns;
    attn_cache cache;          /* with --paged */
    npy key, value, y, scores; /* key, value: [B, Hk, keys, D], the presents; y, scores: what comes out */
    char why[768];
} problem;

__attribute__((format(printf, 3, 4))) static outcome say(problem *p, outcome o, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(p->why, sizeof p->why, format, list);
    va_end(list);
    return o;
}

/* A view with axes permuted to what attention wants. */
static DLTensor *view(problem *p, const npy *array, int ndim, const int64_t *shape, const int64_t *strides)
{
    int n = p->tensors++;
    memcpy(p->shape[n], shape, (size_t)ndim * sizeof *shape);
    memcpy(p->strides[n], strides, (size_t)ndim * sizeof *strides);
    p->tensor[n] = (DLTensor){.data = array->data,
                              .device = {kDLCPU, 0},
                              .ndim = ndim,
                              .dtype = attn_dtype_to_dl(array->dtype),
                              .shape = p->shape[n],
                              .strides = p->strides[n]};
    return &p->tensor[n];
}

/* [B, S, H, D] over an array of rank 4 (B, H, S, D) or of rank 3 (B, S, H * D). */
static DLTensor *bsnd(problem *p, const npy *array, int64_t s, int64_t h, int64_t d)
{
    int64_t shape[4] = {p->b, s, h, d};
    int64_t split[4] = {h * s * d, d, s * d, 1}, packed[4] = {s * h * d, h * d, d, 1};
    return view(p, array, 4, shape, array->rank == 3 ? packed : split);
}

static int make(problem *p, npy *array, attn_dtype dtype, int rank, const int64_t *shape)
{
    memset(array, 0, sizeof *array);
    array->dtype = dtype;
    array->rank = rank;
    array->count = 1;
    for (int i = 0; i < rank; i++) array->count *= array->shape[i] = shape[i];
    array->bytes = (size_t)array->count * attn_dtype_bytes(dtype);
    array->data = malloc(array->bytes + 1);
    if (!array->data) return -1;
    memset(array->data, 0xff, array->bytes); /* NaN where nothing is written */
    p->owned[p->owns++] = array->data;
    return 0;
}

/* ---- shapes ---- */

static outcome read_heads(problem *p, const npy *array, const char *name, const char *attr, int64_t *heads,
                          int64_t *length, int64_t *size)
{
    if (array->rank == 4) {
        *heads = array->shape[1], *length = array->shape[2], *size = array->shape[3];
        return PASSED;
    }
    if (array->rank != 3) return say(p, FAILED, "%s has rank %d, expected 3 or 4", name, array->rank);
    double n = index_number(p->c, attr, 0);
    if (!(n >= 1) || n != floor(n) || array->shape[2] % (int64_t)n)
        return say(p, FAILED, "%s of rank 3 needs %s that divides %lld", name, attr,
                   (long long)array->shape[2]);
    *heads = (int64_t)n, *length = array->shape[1], *size = array->shape[2] / *heads;
    return PASSED;
}

static outcome read_shapes(problem *p, const npy *q, const npy *k, const npy *v)
{
    int64_t hv, sv, dk;
    if (!q || !k || !v) return say(p, FAILED, "one of Q, K, V is missing");
    p->b = q->rank ? q->shape[0] : 0;
    if (read_heads(p, q, "Q", "q_num_heads", &p->h, &p->queries, &p->d)) return FAILED;
    if (read_heads(p, k, "K", "kv_num_heads", &p->hk, &p->fresh, &dk)) return FAILED;
    if (read_heads(p, v, "V", "kv_num_heads", &hv, &sv, &p->dv)) return FAILED;
    if (dk != p->d || hv != p->hk || sv != p->fresh || k->shape[0] != p->b || v->shape[0] != p->b)
        return say(p, FAILED, "the shapes of Q, K and V do not fit together");
    return PASSED;
}

/* ---- keys: a past goes before them ---- */

static void copy_rows(npy *to, int64_t start, const npy *from, int64_t b, int64_t hk, int64_t length,
                      int64_t size)
{
    size_t bytes = attn_dtype_bytes(to->dtype), row = (size_t)size * bytes;
    for (int64_t n = 0; n < b * hk; n++)
        for (int64_t s = 0; s < length; s++) {
            int64_t at = from->rank == 3 ? ((n / hk) * length + s) * hk + n % hk : n * length + s;
            memcpy((char *)to->data + (size_t)(n * to->shape[2] + start + s) * row,
                   (char *)from->data + (size_t)at * row, row);
        }
}

static outcome concatenate(problem *p, npy *whole, const npy *past, const npy *fresh, int64_t size)
{
    if (past && (past->rank != 4 || past->shape[0] != p->b || past->shape[1] != p->hk ||
                 past->shape[2] != p->past || past->shape[3] != size || past->dtype != fresh->dtype))
        return say(p, FAILED, "the past does not fit the new keys and values");
    if (make(p, whole, fresh->dtype, 4, (int64_t[]){p->b, p->hk, p->keys, size}))
        return say(p, FAILED, "no memory for the keys");
    if (past) copy_rows(whole, 0, past, p->b, p->hk, p->past, size);
    copy_rows(whole, p->past, fresh, p->b, p->hk, p->fresh, size);
    return PASSED;
}

/* ---- mask: broadcast from the right, padded with "masked" when it is too short ---- */

static void pad_row(npy *to, const npy *from, int64_t row, int64_t have)
{
    size_t bytes = attn_dtype_bytes(to->dtype), length = (size_t)to->shape[3];
    char *at = (char *)to->data + (size_t)row * length * bytes;
    static const uint16_t half_excluded = 0xfc00;
    static const float float_excluded = -INFINITY;
    static const double double_excluded = -INFINITY;
    static const uint8_t hidden = 0;
    const void *excluded = to->dtype == ATTN_F32   ? (const void *)&float_excluded
                           : to->dtype == ATTN_F64 ? (const void *)&double_excluded
                           : to->dtype == ATTN_F16 ? (const void *)&half_excluded
                                                   : (const void *)&hidden;
    memcpy(at, (char *)from->data + (size_t)(row * have) * bytes, (size_t)have * bytes);
    for (size_t j = (size_t)have; j < length; j++) memcpy(at + j * bytes, excluded, bytes);
}

static outcome read_mask(problem *p)
{
    const npy *mask = index_in(p->c, "attn_mask");
    int64_t shape[4] = {1, 1, 1, 1}, strides[4], dense = 1;
    if (!mask) return PASSED;
    if (mask->rank < 1 || mask->rank > 4) return say(p, FAILED, "attn_mask has rank %d", mask->rank);
    for (int i = 0; i < mask->rank; i++) shape[4 - mask->rank + i] = mask->shape[i];
    npy padded;
    if (shape[3] < p->keys && shape[3] != 1) {
        int64_t have = shape[3], rows = shape[0] * shape[1] * shape[2];
        shape[3] = p->keys;
        if (make(p, &padded, mask->dtype, 4, shape)) return say(p, FAILED, "no memory for the mask");
        for (int64_t row = 0; row < rows; row++) pad_row(&padded, mask, row, have);
        mask = &padded;
    }
    for (int i = 3; i >= 0; i--) {
        strides[i] = shape[i] == 1 ? 0 : dense;
        dense *= shape[i];
    }
    p->args.mask = view(p, mask, 4, shape, strides);
    p->args.mask_kind = mask->dtype == ATTN_BOOL ? ATTN_MASK_KEEP : ATTN_MASK_ADDITIVE;
    return PASSED;
}

/* ---- options ---- */

static outcome read_positions(problem *p)
{
    const npy *lengths = index_in(p->c, "nonpad_kv_seqlen");
    double left = index_number(p->c, "left_window_size", -1),
           right = index_number(p->c, "right_window_size", -1);
    p->layer.causal = index_number(p->c, "is_causal", 0) != 0;
    if (left >= 0) p->layer.window |= ATTN_WINDOW_LEFT, p->layer.window_left = (int64_t)left;
    if (right >= 0) p->layer.window |= ATTN_WINDOW_RIGHT, p->layer.window_right = (int64_t)right;
    if (lengths && p->past) return say(p, FAILED, "a past and nonpad_kv_seqlen exclude each other");
    if (lengths) p->args.kv_lengths = view(p, lengths, 1, lengths->shape, (int64_t[]){1});
    if (lengths || !(p->layer.causal || p->layer.window)) return PASSED;
    p->layer.alignment = ATTN_TOP_LEFT;
    p->args.query_start = p->past;
    return PASSED;
}

/* Score functions that a layer has by name. */
static outcome read_modifier(problem *p)
{
    const char *word = index_word(p->c, "score_mod"), *after = index_word(p->c, "prob_mod");
    if (after)
        return say(p, SKIPPED, "prob_mod %s is a probability function that attention does not have", after);
    if (!word) return PASSED;
    if (!strcmp(word, "causal_top_left")) {
        p->layer.causal = 1;
        p->layer.alignment = ATTN_TOP_LEFT;
        return PASSED;
    }
    if (strcmp(word, "softcap"))
        return say(p, SKIPPED, "score_mod %s is a score function that attention does not have", word);
    p->layer.softcap = index_number(p->c, "score_mod_value", 0);
    return PASSED;
}

static outcome read_numbers(problem *p)
{
    p->layer.heads = p->h;
    p->layer.kv_heads = p->hk;
    p->layer.head_dim = p->d;
    p->layer.value_head_dim = p->dv;
    p->layer.softcap = index_number(p->c, "softcap", 0);
    p->layer.scale = index_number(p->c, "scale", 0);
    if (index_word(p->c, "scale") && p->layer.scale == 0)
        return say(p, SKIPPED, "a scale of 0 means the default scale here");
    return read_modifier(p);
}

static outcome make_outputs(problem *p, attn_dtype dtype)
{
    const slot *y = index_out(p->c, "Y"), *scores = index_out(p->c, "qk_matmul_output");
    if (!y) return say(p, FAILED, "output Y is missing");
    int64_t n = p->b * p->queries * p->h * p->dv;
    if (y->array.count != n)
        return say(p, FAILED, "Y has %lld elements, the inputs give %lld", (long long)y->array.count,
                   (long long)n);
    if (make(p, &p->y, dtype, y->array.rank, y->array.shape)) return say(p, FAILED, "no memory for Y");
    p->args.out = bsnd(p, &p->y, p->queries, p->h, p->dv);
    if (!scores) return PASSED;
    int64_t shape[4] = {p->b, p->h, p->queries, p->keys};
    if (make(p, &p->scores, scores->array.dtype, 4, shape)) return say(p, FAILED, "no memory for the scores");
    p->args.scores = view(p, &p->scores, 4, shape,
                          (int64_t[]){shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1});
    p->args.scores_mode = ATTN_SCORES_SCALED + (int32_t)index_number(p->c, "qk_matmul_output_mode", 0);
    return PASSED;
}

static outcome read_problem(problem *p)
{
    const npy *q = index_in(p->c, "Q"), *k = index_in(p->c, "K"), *v = index_in(p->c, "V");
    const npy *past = index_in(p->c, "past_key"), *past_value = index_in(p->c, "past_value");
    outcome o = read_shapes(p, q, k, v);
    if (!past != !past_value) return say(p, FAILED, "past_key and past_value come together");
    p->past = past && past->rank == 4 ? past->shape[2] : 0;
    p->keys = p->past + p->fresh;
    if (!o) o = read_numbers(p);
    if (!o) o = concatenate(p, &p->key, past, k, p->d);
    if (!o) o = concatenate(p, &p->value, past_value, v, p->dv);
    if (!o) o = read_mask(p);
    if (!o) o = index_word(p->c, "score_mod") ? PASSED : read_positions(p);
    if (!o) o = make_outputs(p, q->dtype);
    if (o) return o;
    p->args.q = bsnd(p, q, p->queries, p->h, p->d);
    /* Without a past the arrays go in as they lie, packed heads and all. */
    p->args.k = bsnd(p, past ? &p->key : k, p->keys, p->hk, p->d);
    p->args.v = bsnd(p, past ? &p->value : v, p->keys, p->hk, p->dv);
    return p->c->broken[0] ? say(p, FAILED, "%s", p->c->broken) : PASSED;
}

/* ---- the same keys and values in a cache ---- */

/* Pages lie in reverse order. */
static void fill_pages(const problem *p, npy *pages, const DLTensor *from, int64_t block)
{
    size_t bytes = attn_dtype_bytes(pages->dtype);
    int64_t width = pages->shape[3], blocks = p->keys / block, last = pages->shape[0] - 1;
    for (int64_t b = 0; b < p->b; b++)
        for (int64_t j = 0; j < p->keys; j++)
            for (int64_t h = 0; h < p->hk; h++)
                for (int64_t d = 0; d < width; d++) {
                    int64_t page = last - (b * blocks + j / block);
                    int64_t to = ((page * block + j % block) * p->hk + h) * width + d;
                    int64_t at = b * from->strides[0] + j * from->strides[1] + h * from->strides[2] +
                                 d * from->strides[3];
                    memcpy((char *)pages->data + (size_t)to * bytes, (char *)from->data + (size_t)at * bytes,
                           bytes);
                }
}

static outcome page(problem *p, int64_t most)
{
    npy k, v, table, lengths;
    int64_t block = most < p->keys ? most : p->keys;
    attn_dtype dtype = index_in(p->c, "Q")->dtype;
    if (p->args.scores || dtype == ATTN_F64 || !p->keys)
        return say(p, SKIPPED, "a cache holds no f64, and gives no scores");
    while (p->keys % block) block--;
    int64_t blocks = p->keys / block, total = p->b * blocks;
    if (make(p, &k, dtype, 4, (int64_t[]){total, block, p->hk, p->d}) ||
        make(p, &v, dtype, 4, (int64_t[]){total, block, p->hk, p->dv}) ||
        make(p, &table, ATTN_I64, 2, (int64_t[]){p->b, blocks}) || make(p, &lengths, ATTN_I64, 1, &p->b))
        return say(p, FAILED, "no memory for the pages");
    fill_pages(p, &k, p->args.k, block);
    fill_pages(p, &v, p->args.v, block);
    for (int64_t n = 0; n < total; n++) ((int64_t *)table.data)[n] = total - 1 - n;
    for (int64_t b = 0; b < p->b; b++) ((int64_t *)lengths.data)[b] = p->keys;
    int64_t dense_k[] = {block * p->hk * p->d, p->hk * p->d, p->d, 1},
            dense_v[] = {block * p->hk * p->dv, p->hk * p->dv, p->dv, 1};
    p->cache = (attn_cache){.size = sizeof p->cache,
                            .k = view(p, &k, 4, k.shape, dense_k),
                            .v = view(p, &v, 4, v.shape, dense_v)};
    p->args.k = p->args.v = NULL;
    p->args.cache = &p->cache;
    p->args.block_table = view(p, &table, 2, table.shape, (int64_t[]){blocks, 1});
    if (!p->args.kv_lengths) p->args.kv_lengths = view(p, &lengths, 1, lengths.shape, (int64_t[]){1});
    return PASSED;
}

/* ---- run and compare ---- */

static outcome run(problem *p, attn_context *context, const char *backend)
{
    attn_layer *layer = NULL;
    attn_error error = ATTN_ERROR_INIT;
    attn_status status = attn_layer_open(context, &p->layer, &layer, &error);
    if (status == ATTN_OK) status = attn_forward(layer, &p->args, &error);
    attn_layer_close(layer);
    if (status == ATTN_OK) return PASSED;
    /* Debug scores and f64 are promised by the reference alone. */
    int may_refuse =
        strcmp(backend, "TORCH_SDPA") && (p->args.scores || index_in(p->c, "Q")->dtype == ATTN_F64);
    if (status == ATTN_UNSUPPORTED && may_refuse) return say(p, SKIPPED, "refused: %s", error.text);
    return say(p, FAILED, "%s (%s): %s", attn_status_name(status), attn_kind_name(error.kind), error.text);
}

static outcome compare(problem *p, const slot *want, const npy *got)
{
    if (got->count != want->array.count)
        return say(p, FAILED, "%s has %lld elements, expected %lld", want->name, (long long)got->count,
                   (long long)want->array.count);
    for (int64_t n = 0; n < got->count; n++) {
        double g = npy_get(got, n), w = npy_get(&want->array, n);
        int agrees = isinf(w) || isinf(g) ? g == w : fabs(g - w) <= want->atol + want->rtol * fabs(w);
        if (!agrees)
            return say(p, FAILED, "%s element %lld is %.9g, expected %.9g (rtol %g, atol %g)", want->name,
                       (long long)n, g, w, want->rtol, want->atol);
    }
    return PASSED;
}

static outcome compare_all(problem *p)
{
    outcome o = PASSED;
    for (int i = 0; i < p->c->outputs && !o; i++) {
        const slot *want = &p->c->out[i];
        const npy *got = !strcmp(want->name, "Y")                  ? &p->y
                         : !strcmp(want->name, "qk_matmul_output") ? &p->scores
                         : !strcmp(want->name, "present_key")      ? &p->key
                         : !strcmp(want->name, "present_value")    ? &p->value
                                                                   : NULL;
        o = got ? compare(p, want, got) : say(p, FAILED, "output %s is unknown", want->name);
    }
    return o;
}

static outcome run_case(index_case *c, attn_context *context, const char *backend, int64_t paged)
{
    problem p = {.c = c, .layer = {.size = sizeof p.layer}, .args = {.size = sizeof p.args}};
    outcome o = PASSED;
    if (c->broken[0])
        o = say(&p, FAILED, "%s", c->broken);
    else if (strcmp(c->op, "Attention") && strcmp(c->op, "FlexAttention"))
        o = say(&p, SKIPPED, "operator %s is not attention", c->op[0] ? c->op : "(none)");
    if (!o) o = read_problem(&p);
    if (!o && paged) o = page(&p, paged);
    if (!o) o = run(&p, context, backend);
    if (!o) o = compare_all(&p);
    if (o) printf("%s %s: %s\n", o == FAILED ? "FAIL" : "skip", c->name, p.why);
    for (int i = 0; i < p.owns; i++) free(p.owned[i]);
    return o;
}

/* Counts outcomes; an index that cannot be read further is one failure more. */
static void run_folder(const char *folder, attn_context *context, const char *backend, int64_t paged,
                       int64_t *counts)
{
    char path[2048];
    snprintf(path, sizeof path, "%s/cases.txt", folder);
    index_reader reader = {fopen(path, "r"), folder, 0};
    index_case *c = malloc(sizeof *c);
    if (!reader.file || !c) {
        printf("FAIL %s: cannot be read\n", path);
        counts[FAILED]++;
    }
    for (int more = reader.file && c; more;) {
        more = index_next(&reader, c);
        if (more > 0) counts[run_case(c, context, backend, paged)]++;
        if (more < 0) printf("FAIL %s: %s\n", path, c->broken), counts[FAILED]++;
        more = more > 0;
        index_free(c);
    }
    if (reader.file) fclose(reader.file);
    free(c);
}

static int usage(FILE *to, int code)
{
    fputs("usage: attention [--backend NAME] [--paged N] DIR...\n"
          "Runs the Attention and FlexAttention cases of each folder's cases.txt. The default backend is\n"
          "TORCH_SDPA. With --paged keys and values go into pages of at most N tokens. Exit code 0: every "
          "case that ran agreed; 1: one failed, or none ran; 2: usage.\n",
          to);
    return code;
}

int main(int argc, char **argv)
{
    const char *backend = "TORCH_SDPA";
    int first = 1;
    if (argc > 1 && !strcmp(argv[1], "--help")) return usage(stdout, 0);
    int64_t paged = 0;
    if (argc > 2 && !strcmp(argv[1], "--backend")) backend = argv[2], first = 3;
    if (argc > first + 1 && !strcmp(argv[first], "--paged")) paged = atoll(argv[first + 1]), first += 2;
    if (first >= argc || argv[first][0] == '-') return usage(stderr, 2);
    attn_options options = {.size = sizeof options, .backend = backend, .module_path = ""};
    attn_context *context = NULL;
    attn_error error = ATTN_ERROR_INIT;
    if (attn_open(&options, &context, &error) != ATTN_OK) {
        fprintf(stderr, "attention: %s\n", error.text);
        return 1;
    }
    int64_t counts[3] = {0};
    for (int i = first; i < argc; i++) run_folder(argv[i], context, backend, paged, counts);
    attn_close(context);
    printf("%lld passed, %lld failed, %lld skipped\n", (long long)counts[PASSED], (long long)counts[FAILED],
           (long long)counts[SKIPPED]);
    return counts[FAILED] || counts[PASSED] + counts[FAILED] == 0;
}
