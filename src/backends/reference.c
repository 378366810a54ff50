/* reference.c: attention in double precision by plain loops, every feature; all others are judged by it.
 *
 * A task is a block of query rows of one head. It holds the scores of its rows against all keys:
 *   1. bias:   -infinity for each key that a row does not attend to, else what the mask adds
 *   2. scores: softcap(scale * q . k) + bias, over tiles of K turned so that keys are innermost
 *   3. weights exp(score - max), their sum, and the sink's share
 *   4. out = weights V / sum, over tiles of V with channels innermost
 * -infinity stays the mark of an excluded key, which is skipped and never multiplied: what lies behind a mask
 * may be NaN. Every sum runs over channels or keys in ascending order, so a row's result depends on nothing
 * but its own inputs. */
#include "backends/reference.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum {
    TILE = 64, /* keys */
    ROWS = 16, /* query rows of a block, at most */
    STEP = 4,  /* channels of one pass over the keys of a tile */
    WIDE = 16  /* channels of one pass over the values of a tile */
};

/* Scores of one block stay below this where fewer rows can see to it. */
#define BLOCK_BYTES ((int64_t)32 << 20)

static int64_t round_up(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* ---- plan ------------------------------------------------------------------------------------- */

static int64_t block_rows(const attn_problem *p)
{
    int64_t rows = ROWS;
    while (rows > 1 && p->kv_len > BLOCK_BYTES / (int64_t)sizeof(double) / rows) rows /= 2;
    return rows;
}

/* Scratch of one worker, in doubles. */
typedef struct layout {
    int64_t rows;                        /* query rows of a block */
    int64_t keys;                        /* doubles in a row of scores: whole tiles */
    int64_t depth;                       /* doubles in a row of q: whole steps */
    int64_t channels;                    /* doubles in a row of out: whole inner loops */
    int64_t q, tile, out, scores, total; /* where each part starts */
} layout;

static layout make_layout(const attn_problem *p)
{
    layout l = {.rows = block_rows(p),
                .keys = round_up(p->kv_len, TILE),
                .depth = round_up(p->head_dim, STEP),
                .channels = round_up(p->value_head_dim, WIDE)};
    int64_t widest = l.depth > l.channels ? l.depth : l.channels;
    l.tile = l.q + l.rows * l.depth;
    l.out = l.tile + TILE * widest;
    l.scores = l.out + l.rows * l.channels;
    l.total = l.scores + l.rows * l.keys;
    return l;
}

static void accept(const attn_host *host, const attn_problem *p, attn_reasons *reasons)
{
    (void)host;
    if ((p->features & ATTN_FEATURE(PACKED)) && (p->features & ATTN_FEATURE(SCORES)))
        attn_reason(reasons, ATTN_KIND_FEATURE_UNSUPPORTED,
                    "scores of packed sequences have no shape; pass the sequences one by one, or no scores");
}

static attn_status plan(const attn_host *host, const attn_problem *p, void **state, attn_workspace *workspace,
                        attn_error *error)
{
    const int64_t most = INT64_MAX / 1024;
    (void)host;
    *state = NULL;
    if (p->kv_len > most || p->batch > most)
        return attn_fail(
            error, ATTN_KIND_OUT_OF_MEMORY,
            "%lld keys in %lld samples need more memory than can be addressed; the most is %lld of each",
            (long long)p->kv_len, (long long)p->batch, (long long)most);
    workspace->shared_bytes = (size_t)(p->batch + 1) * sizeof(int64_t);
    workspace->thread_bytes = (size_t)make_layout(p).total * sizeof(double);
    return ATTN_OK;
}

static void describe(const attn_host *host, const void *state, char *text, size_t bytes)
{
    (void)host;
    (void)state;
    snprintf(text, bytes, "plain loops in double, at most %d rows a block, tiles of %d keys", ROWS, TILE);
}

/* ---- inner loops ------------------------------------------------------------------------------ */

/* dots[t] = sum over channels of q[c] keys[c][t], a few channels a pass so that dots stays in registers. */
static void dot_keys(const double *q, const double *restrict keys, int64_t channels, double *restrict dots)
{
    for (int t = 0; t < TILE; t++) dots[t] = 0;
    for (int64_t c = 0; c < channels; c += STEP) {
        const double *k = keys + c * TILE;
        for (int t = 0; t < TILE; t++)
            dots[t] = dots[t] + q[c] * k[t] + q[c + 1] * k[TILE + t] + q[c + 2] * k[2 * TILE + t] +
                      q[c + 3] * k[3 * TILE + t];
    }
}

/* out[t] += sum over keys of weights[j] values[j][t]. */
static void add_values(const double *weights, const double *values, int64_t keys, double *out)
{
    double sum[WIDE];
    memcpy(sum, out, sizeof sum);
    for (int64_t j = 0; j < keys; j++) {
        if (weights[j] < 0) continue;
        for (int t = 0; t < WIDE; t++) sum[t] += weights[j] * values[j * WIDE + t];
    }
    memcpy(out, sum, sizeof sum);
}

/* ---- one block of rows ------------------------------------------------------------------------ */

typedef struct job {
    const attn_call *call;
    const int64_t *first_block; /* of each sample; one more: the number of blocks */
    layout layout;
    int raw_scores; /* the scores output shows excluded keys too */
    _Atomic int cancelled;
} job;

typedef struct block {
    const attn_call *call;
    const attn_problem *p;
    const layout *l;
    attn_rows rows; /* of the sample */
    int64_t b, h, kv_head;
    int64_t i0, n; /* query rows of the sample */
    int64_t keys;  /* that the rows look at: the valid ones, or all when the scores are an output */
    int raw_scores;
    double *q, *tile, *out, *scores;
} block;

static const void *at(const void *base, attn_dtype dtype, int64_t offset)
{
    return (const char *)base + offset * (int64_t)attn_dtype_bytes(dtype);
}

static void load_queries(const block *k)
{
    const attn_problem *p = k->p;
    memset(k->q, 0, (size_t)(k->n * k->l->depth) * sizeof *k->q);
    for (int64_t r = 0; r < k->n; r++) {
        int64_t offset =
            k->b * p->q_stride[0] + (k->rows.q0 + k->i0 + r) * p->q_stride[1] + k->h * p->q_stride[2];
        reference_load(p->dtype, at(k->call->q, p->dtype, offset), p->q_stride[3], p->head_dim,
                       k->q + r * k->l->depth, 1);
    }
}

/* Channels [from, from + n) of a key or value, with its scale. */
static void load_row(const block *k, const void *base, const int64_t *stride, const float *scale,
                     const int64_t *scale_stride, int64_t key, int64_t from, int64_t n, double *to,
                     int64_t to_stride)
{
    const attn_problem *p = k->p;
    attn_dtype stored = p->kv_dtype ? p->kv_dtype : p->dtype;
    int64_t offset = attn_call_key(k->call, stride, &k->rows, k->b, k->kv_head, key);
    reference_load(stored, at(base, stored, offset + from * stride[3]), stride[3], n, to, to_stride);
    if (!scale) return;
    double by = scale[attn_call_key(k->call, scale_stride, &k->rows, k->b, k->kv_head, key)];
    for (int64_t i = 0; i < n; i++) to[i * to_stride] *= by;
}

/* tile[channel][key]; what is past the last key or channel is zero. */
static void load_keys(const block *k, int64_t first, int64_t n)
{
    const attn_problem *p = k->p;
    int64_t set = n < TILE ? 0 : p->head_dim;
    memset(k->tile + set * TILE, 0, (size_t)((k->l->depth - set) * TILE) * sizeof *k->tile);
    for (int64_t j = 0; j < n; j++)
        load_row(k, k->call->k, p->k_stride, k->call->k_scale, p->k_scale_stride, first + j, 0, p->head_dim,
                 k->tile + j, TILE);
}

/* tile[group][key][channel in group]; channels past the last are zero. */
static void load_values(const block *k, int64_t first, int64_t n)
{
    const attn_problem *p = k->p;
    if (p->value_head_dim < k->l->channels)
        memset(k->tile, 0, (size_t)(TILE * k->l->channels) * sizeof *k->tile);
    for (int64_t j = 0; j < n; j++) {
        for (int64_t c = 0; c < p->value_head_dim; c += WIDE) {
            int64_t width = p->value_head_dim - c < WIDE ? p->value_head_dim - c : WIDE;
            load_row(k, k->call->v, p->v_stride, k->call->v_scale, p->v_scale_stride, first + j, c, width,
                     k->tile + c * TILE + j * WIDE, 1);
        }
    }
}

/* Writes part of a row of the scores output when it is asked for in this mode. */
static void show_scores(const block *k, int32_t mode, int64_t r, int64_t first, int64_t n,
                        const double *scores)
{
    const attn_problem *p = k->p;
    if (!k->call->scores || p->scores_mode != mode) return;
    int64_t offset = k->b * p->scores_stride[0] + k->h * p->scores_stride[1] +
                     (k->i0 + r) * p->scores_stride[2] + first * p->scores_stride[3];
    reference_store(p->scores_dtype,
                    (char *)k->call->scores + offset * (int64_t)attn_dtype_bytes(p->scores_dtype),
                    p->scores_stride[3], n, scores);
}

/* scores: on entry the bias of n keys from first on, on exit their scores. */
static void score_row(const block *k, int64_t r, int64_t first, int64_t n, double *scores)
{
    const attn_problem *p = k->p;
    double s[TILE];
    dot_keys(k->q + r * k->l->depth, k->tile, k->l->depth, s);
    for (int64_t t = 0; t < n; t++) s[t] *= p->scale;
    show_scores(k, ATTN_SCORES_SCALED, r, first, n, s);
    if (p->softcap > 0)
        for (int64_t t = 0; t < n; t++) s[t] = p->softcap * tanh(s[t] / p->softcap);
    show_scores(k, ATTN_SCORES_CAPPED, r, first, n, s);
    for (int64_t t = 0; t < n; t++) scores[t] = scores[t] == -INFINITY ? -INFINITY : s[t] + scores[t];
}

/* A tile that no row attends to is not even read. */
static void score_tile(const block *k, const reference_row *rows, int64_t first)
{
    int64_t n = k->keys - first < TILE ? k->keys - first : TILE;
    int64_t kept[ROWS], any = k->raw_scores;
    for (int64_t r = 0; r < k->n; r++)
        any |= kept[r] = reference_bias(&rows[r], first, n, k->scores + r * k->l->keys + first);
    if (!any) return;
    load_keys(k, first, n);
    for (int64_t r = 0; r < k->n; r++)
        if (kept[r] || k->raw_scores) score_row(k, r, first, n, k->scores + r * k->l->keys + first);
}

/* Scores become weights. Returns their sum with the sink's; 0 when the row attends to no key, whatever the
 * sink. lse: the natural logarithm of the sum of exp(score). */
static double weigh(const block *k, double *scores, double *lse)
{
    double most = -INFINITY, sum = 0;
    int64_t kept = 0;
    for (int64_t j = 0; j < k->keys; j++) {
        kept += scores[j] != -INFINITY;
        if (scores[j] > most) most = scores[j];
    }
    *lse = -INFINITY;
    if (!kept) return 0;
    if (k->call->sinks) {
        if (k->call->sinks[k->h] > most) most = k->call->sinks[k->h];
        sum = exp(k->call->sinks[k->h] - most);
    }
    for (int64_t j = 0; j < k->keys; j++) {
        if (scores[j] == -INFINITY) continue;
        scores[j] = exp(scores[j] - most);
        sum += scores[j];
    }
    *lse = most + log(sum);
    return sum;
}

static int attends(const double *weights, int64_t n)
{
    for (int64_t j = 0; j < n; j++)
        if (!(weights[j] < 0)) return 1;
    return 0;
}

static void add_tile(const block *k, int64_t first)
{
    int64_t n = k->rows.kv_len - first < TILE ? k->rows.kv_len - first : TILE;
    int kept[ROWS], any = 0;
    for (int64_t r = 0; r < k->n; r++) any |= kept[r] = attends(k->scores + r * k->l->keys + first, n);
    if (!any) return;
    load_values(k, first, n);
    for (int64_t r = 0; r < k->n; r++)
        for (int64_t c = 0; kept[r] && c < k->l->channels; c += WIDE)
            add_values(k->scores + r * k->l->keys + first, k->tile + c * TILE, n,
                       k->out + r * k->l->channels + c);
}

static void write_row(const block *k, int64_t r, double sum, double lse)
{
    const attn_problem *p = k->p;
    int64_t i = k->rows.q0 + k->i0 + r;
    double *out = k->out + r * k->l->channels, *weights = k->scores + r * k->l->keys;
    for (int64_t c = 0; c < p->value_head_dim; c++) out[c] = sum == 0 ? 0 : out[c] / sum;
    int64_t offset = k->b * p->out_stride[0] + i * p->out_stride[1] + k->h * p->out_stride[2];
    reference_store(p->out_dtype, (char *)k->call->out + offset * (int64_t)attn_dtype_bytes(p->out_dtype),
                    p->out_stride[3], p->value_head_dim, out);
    if (k->call->lse)
        k->call->lse[k->b * p->lse_stride[0] + k->h * p->lse_stride[1] + i * p->lse_stride[2]] = (float)lse;
    if (!k->call->scores || p->scores_mode != ATTN_SCORES_PROBS) return;
    for (int64_t j = 0; j < k->keys; j++) weights[j] = weights[j] < 0 ? 0 : weights[j] / sum;
    show_scores(k, ATTN_SCORES_PROBS, r, 0, k->keys, weights);
}

static void run_block(const block *k)
{
    reference_row rows[ROWS];
    double sum[ROWS], lse[ROWS];
    for (int64_t r = 0; r < k->n; r++) rows[r] = reference_row_at(k->call, &k->rows, k->b, k->h, k->i0 + r);
    load_queries(k);
    for (int64_t first = 0; first < k->keys; first += TILE) score_tile(k, rows, first);
    for (int64_t r = 0; r < k->n; r++) {
        show_scores(k, ATTN_SCORES_MASKED, r, 0, k->keys, k->scores + r * k->l->keys);
        sum[r] = weigh(k, k->scores + r * k->l->keys, &lse[r]);
    }
    memset(k->out, 0, (size_t)(k->n * k->l->channels) * sizeof *k->out);
    for (int64_t first = 0; first < k->rows.kv_len; first += TILE) add_tile(k, first);
    for (int64_t r = 0; r < k->n; r++) write_row(k, r, sum[r], lse[r]);
}

/* ---- the call --------------------------------------------------------------------------------- */

/* The sample that a block belongs to: the last one whose first block is not after it. */
static int64_t sample_of(const job *j, int64_t index)
{
    int64_t low = 0, high = j->call->problem->batch;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (j->first_block[middle] <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void task(void *arg, int64_t index, int32_t worker)
{
    job *j = arg;
    const attn_call *call = j->call;
    const attn_problem *p = call->problem;
    if (attn_call_cancelled(call)) {
        atomic_store(&j->cancelled, 1);
        return;
    }
    double *scratch = (double *)(void *)((char *)call->scratch + (size_t)worker * call->scratch_stride);
    block k = {.call = call, .p = p, .l = &j->layout, .raw_scores = j->raw_scores};
    k.h = index % p->heads;
    k.kv_head = k.h / (p->heads / p->kv_heads);
    k.b = sample_of(j, index / p->heads);
    k.rows = attn_call_rows(call, k.b);
    k.i0 = (index / p->heads - j->first_block[k.b]) * j->layout.rows;
    k.n = k.rows.q_len - k.i0 < j->layout.rows ? k.rows.q_len - k.i0 : j->layout.rows;
    k.keys = call->scores ? p->kv_len : k.rows.kv_len;
    k.q = scratch + j->layout.q;
    k.tile = scratch + j->layout.tile;
    k.out = scratch + j->layout.out;
    k.scores = scratch + j->layout.scores;
    run_block(&k);
}

static attn_status run(const attn_host *host, const void *state, const attn_call *call, attn_error *error)
{
    (void)state;
    const attn_problem *p = call->problem;
    int64_t *first_block = call->shared;
    job j = {.call = call, .first_block = first_block, .layout = make_layout(p)};
    j.raw_scores =
        call->scores && (p->scores_mode == ATTN_SCORES_SCALED || p->scores_mode == ATTN_SCORES_CAPPED);
    first_block[0] = 0;
    for (int64_t b = 0; b < p->batch; b++)
        first_block[b + 1] =
            first_block[b] + round_up(attn_call_rows(call, b).q_len, j.layout.rows) / j.layout.rows;
    host->parallel_for(host, first_block[p->batch] * p->heads, call->workers, task, &j);
    if (!j.cancelled) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_CANCELLED,
                     "the call was cancelled by its cancel flag; its outputs are undefined");
}

static const char *const backends[] = {
    "TORCH_SDPA",    "llm:CPU_ATTN",       "llm:TRITON_MLA", "llm:FLASHMLA_SPARSE",
    "llm:TREE_ATTN", "llm:FLEX_ATTENTION", "vision:sdpa",    NULL};

const attn_impl attn_reference_impl = {
    .size = sizeof(attn_impl),
    .name = "cpu_reference",
    .summary = "double precision by plain loops, every feature; the judge of all others",
    .platform = "cpu",
    .backends = backends,
#define ATTN_X(name, bit, text, sentence) | ATTN_FEATURE(name)
    .features = 0 ATTN_FEATURE_LIST(ATTN_X),
#undef ATTN_X
    .dtypes = 1u << ATTN_F32 | 1u << ATTN_F16 | 1u << ATTN_BF16 | 1u << ATTN_F64,
    .head_dim_max = 1024,
    .accept = accept,
    .plan = plan,
    .run = run,
    .describe = describe,
};
