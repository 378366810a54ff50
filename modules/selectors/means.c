/* means.c: means of blocks, products of means, and the largest of them. Loops run along independent results,
 * so that wider vectors change no bit. */
#include "means.h"

#include <string.h>

/* Versions for wider vectors, chosen when the module is loaded. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("default", "avx2", "avx512f")))
#else
#define WIDE
#endif

enum { VECTOR = 16 /* floats */ };

/* ---- sums ---------------------------------------------------------------------------------------- */

/* Rows of all heads of one sample, in elements. */
typedef struct rows_view {
    const void *data;
    int64_t at, row, head, channel; /* the first element, and strides */
    int64_t heads, channels;
    attn_dtype dtype;
} rows_view;

static rows_view rows_of(const void *data, const attn_problem *p, const int64_t *stride, int64_t heads,
                         int64_t sample, int64_t first)
{
    return (rows_view){data,
                       sample * stride[0] + first * stride[1],
                       stride[1],
                       stride[2],
                       stride[3] ? stride[3] : 1,
                       heads,
                       p->head_dim,
                       p->dtype};
}

/* Four rows at a time, so that the sums are not read and written for each. */
static inline void sum_as(attn_dtype dtype, int64_t channel, const rows_view *v, int64_t rows,
                          float *restrict sum)
{
    int64_t at = v->at, step = v->row;
    for (; rows >= 4; rows -= 4, at += 4 * step)
        for (int64_t h = 0; h < v->heads; h++)
            for (int64_t d = 0; d < v->channels; d++) {
                int64_t i = at + h * v->head + d * channel;
                sum[h * v->channels + d] +=
                    (attn_load(dtype, v->data, i) + attn_load(dtype, v->data, i + step)) +
                    (attn_load(dtype, v->data, i + 2 * step) + attn_load(dtype, v->data, i + 3 * step));
            }
    for (; rows > 0; rows--, at += step)
        for (int64_t h = 0; h < v->heads; h++)
            for (int64_t d = 0; d < v->channels; d++)
                sum[h * v->channels + d] += attn_load(dtype, v->data, at + h * v->head + d * channel);
}

/* The type and the distance of channels are constants in the usual lines, so that the loops are plain. */
WIDE static void sum_rows(const rows_view *v, int64_t rows, float *sum)
{
    if (v->channel != 1)
        sum_as(v->dtype, v->channel, v, rows, sum);
    else if (v->dtype == ATTN_BF16)
        sum_as(ATTN_BF16, 1, v, rows, sum);
    else if (v->dtype == ATTN_F16)
        sum_as(ATTN_F16, 1, v, rows, sum);
    else
        sum_as(ATTN_F32, 1, v, rows, sum);
}

static void mean_rows(const rows_view *v, int64_t rows, float scale, float *mean)
{
    memset(mean, 0, (size_t)(v->heads * v->channels) * sizeof *mean);
    sum_rows(v, rows, mean);
    for (int64_t d = 0; d < v->heads * v->channels; d++) mean[d] *= scale / (float)rows;
}

/* ---- key blocks ---------------------------------------------------------------------------------- */

static float *keys_of(const means *m, int64_t sample, int64_t kv_head)
{
    const attn_problem *p = m->call->problem;
    return m->keys + (sample * p->kv_heads + kv_head) * p->head_dim * m->room;
}

/* One key block of one sample. */
static void mean_keys(void *arg, int64_t index, int32_t worker)
{
    const means *m = arg;
    const attn_problem *p = m->call->problem;
    int64_t sample = index / m->blocks, j = index % m->blocks, first = j * m->map->block_k;
    int64_t left =
        attn_call_rows(m->call->call, sample).kv_len - first; /* what lies behind is not looked at */
    float *mean = means_scratch_of(m, worker).queries;
    if (left < 1) return;
    rows_view v = rows_of(m->call->k, p, p->k_stride, p->kv_heads, sample, first);
    mean_rows(&v, smaller(m->map->block_k, left), 1, mean);
    for (int64_t h = 0; h < p->kv_heads; h++) {
        float *keys = keys_of(m, sample, h);
        for (int64_t d = 0; d < p->head_dim; d++) keys[d * m->room + j] = mean[h * p->head_dim + d];
    }
}

static float *take(const attn_sparse_call *call, size_t floats)
{
    float *memory = call->host->alloc(call->host, floats * sizeof *memory, 64);
    if (memory) memset(memory, 0, floats * sizeof *memory);
    return memory;
}

static size_t scratch_floats(const means *m)
{
    const attn_problem *p = m->call->problem;
    int64_t runs = blocks_of(m->map->block_q, m->rows);
    int64_t floats = (runs + 1) * p->heads * p->head_dim + (MEANS_RUNS + 3) * m->room;
    return (size_t)(blocks_of(floats, VECTOR) * VECTOR);
}

attn_status means_open(means *m, const attn_sparse_call *call, const attn_block_map *map, int64_t rows)
{
    const attn_problem *p = call->problem;
    *m = (means){.call = call, .map = map, .blocks = blocks_of(map->kv_len, map->block_k)};
    m->rows = smaller(rows, map->block_q);
    m->room = blocks_of(m->blocks, VECTOR) * VECTOR;
    m->worker_floats = scratch_floats(m);
    size_t keys = (size_t)(p->batch * p->kv_heads * p->head_dim) * (size_t)m->room;
    m->keys = take(call, keys);
    m->scratch = take(call, m->worker_floats * (size_t)call->call->workers);
    if (!m->keys || !m->scratch) {
        means_close(m);
        return attn_fail(call->error, ATTN_KIND_OUT_OF_MEMORY,
                         "no memory for the means of key blocks, %zu numbers; take larger blocks", keys);
    }
    call->host->parallel_for(call->host, p->batch * m->blocks, call->call->workers, mean_keys, m);
    return ATTN_OK;
}

void means_close(means *m)
{
    if (m->keys) m->call->host->release(m->call->host, m->keys);
    if (m->scratch) m->call->host->release(m->call->host, m->scratch);
    m->keys = m->scratch = NULL;
}

means_scratch means_scratch_of(const means *m, int32_t worker)
{
    means_scratch s = {.scores = m->scratch + (size_t)worker * m->worker_floats};
    s.mass = s.scores + MEANS_RUNS * m->room;
    s.order = (int32_t *)(void *)(s.mass + m->room);
    s.keep = (uint8_t *)(s.order + m->room);
    s.queries = s.mass + 3 * m->room;
    return s;
}

/* ---- query blocks -------------------------------------------------------------------------------- */

int64_t means_rows(const means *m, int64_t block, int64_t run)
{
    int64_t end = smaller((block + 1) * m->map->block_q, m->map->q_len);
    return larger(0, smaller(m->rows, end - block * m->map->block_q - run * m->rows));
}

int64_t means_read(const means *m, int64_t sample, int64_t block, means_scratch *s)
{
    const attn_problem *p = m->call->problem;
    int64_t run = 0;
    for (int64_t rows; (rows = means_rows(m, block, run)) > 0; run++) {
        rows_view v =
            rows_of(m->call->q, p, p->q_stride, p->heads, sample, block * m->map->block_q + run * m->rows);
        mean_rows(&v, rows, (float)p->scale, s->queries + run * p->heads * p->head_dim);
    }
    return run;
}

/* scores[j] = sum of query[d] keys[d][j] */
WIDE static void multiply_one(const float *query, const float *keys, float *restrict scores, int64_t channels,
                              int64_t room)
{
    for (int64_t j = 0; j < room; j++) scores[j] = 0;
    for (int64_t d = 0; d < channels; d++)
        for (int64_t j = 0; j < room; j++) scores[j] += query[d] * keys[d * room + j];
}

/* The same for four queries, which reads the keys once. */
WIDE static void multiply_four(const float *query, int64_t step, const float *keys, float *restrict scores,
                               int64_t channels, int64_t room)
{
    float *s0 = scores, *s1 = s0 + room, *s2 = s1 + room, *s3 = s2 + room;
    for (int64_t j = 0; j < MEANS_RUNS * room; j++) scores[j] = 0;
    for (int64_t d = 0; d < channels; d++) {
        const float *k = keys + d * room, *q = query + d;
        float q0 = q[0], q1 = q[step], q2 = q[2 * step], q3 = q[3 * step];
        for (int64_t j = 0; j < room; j++) {
            s0[j] += q0 * k[j];
            s1[j] += q1 * k[j];
            s2[j] += q2 * k[j];
            s3[j] += q3 * k[j];
        }
    }
}

void means_score(const means *m, block_place at, int64_t run, int64_t runs, means_scratch *s)
{
    const attn_problem *p = m->call->problem;
    const float *keys = keys_of(m, at.sample, at.head / (p->heads / p->kv_heads));
    int64_t step = p->heads * p->head_dim;
    const float *query = s->queries + run * step + at.head * p->head_dim;
    if (runs == MEANS_RUNS) {
        multiply_four(query, step, keys, s->scores, p->head_dim, m->room);
        return;
    }
    for (int64_t r = 0; r < runs; r++)
        multiply_one(query + r * step, keys, s->scores + r * m->room, p->head_dim, m->room);
}

/* ---- the largest --------------------------------------------------------------------------------- */

static int before(const float *values, int32_t a, int32_t b)
{
    return values[a] > values[b] || (values[a] == values[b] && a < b);
}

static void swap(int32_t *a, int32_t *b)
{
    int32_t moved = *a;
    *a = *b;
    *b = moved;
}

/* Brings what is larger than one of order[first..end) before it. Returns its place; *sum is of those before.
 */
static int64_t divide(const float *values, int32_t *order, int64_t first, int64_t end, double *sum)
{
    int64_t place = first;
    swap(&order[first + (end - first) / 2], &order[end - 1]);
    *sum = 0;
    for (int64_t i = first; i < end - 1; i++) {
        if (!before(values, order[i], order[end - 1])) continue;
        *sum += (double)values[order[i]];
        swap(&order[i], &order[place++]);
    }
    swap(&order[place], &order[end - 1]);
    return place;
}

/* A sort that leaves alone what lies wholly on one side: an entry is marked when those before it are too few.
 */
void mark_largest(const float *values, int64_t count, double enough, int64_t most, int32_t *order,
                  uint8_t *keep)
{
    int64_t first = 0, end = count;
    double held = 0;
    for (int64_t i = 0; i < count; i++) order[i] = (int32_t)i;
    while (first < end) {
        double sum;
        int64_t place = divide(values, order, first, end, &sum);
        if (place > 0 && (place >= most || held + sum >= enough)) {
            end = place;
        } else {
            held += sum + (double)values[order[place]];
            first = place + 1;
        }
    }
    for (int64_t i = 0; i < first; i++) keep[order[i]] = 1;
}

void list_marked(uint8_t *keep, int64_t blocks, int32_t *list, int32_t *count)
{
    for (int64_t j = 0; j < blocks; j++)
        if (keep[j]) list[(*count)++] = (int32_t)j;
    memset(keep, 0, (size_t)blocks);
}
