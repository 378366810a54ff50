/* reference.c: tests of the reference implementation against the definitions, written out element by element.
 */
#include "backends/reference.h"
#include "core/fail.h"
#include "core/threads.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a host and a generator ------------------------------------------------------------------- */

static void pool_for(const attn_host *host, int64_t count, int32_t workers, attn_task_fn task, void *arg)
{
    (void)host;
    attn_pool_parallel_for(NULL, count, workers, task, arg);
}

static const attn_host host = {.size = sizeof host, .threads = 8, .parallel_for = pool_for};

static uint32_t seed;

static int64_t pick(int64_t low, int64_t high)
{
    seed = seed * 1664525u + 1013904223u;
    return low + (int64_t)(seed >> 8) % (high - low + 1);
}

static double pick_real(void)
{
    return (double)pick(-2000, 2000) / 1000;
}

static float *floats(int64_t n)
{
    float *memory = malloc((size_t)n * sizeof *memory + 1);
    assert_non_null(memory);
    for (int64_t i = 0; i < n; i++) memory[i] = (float)pick_real();
    return memory;
}

/* ---- one random call on dense f32 tensors ----------------------------------------------------- */

enum { SPANS = 2, RANGES = 2, SAMPLES = 3 };

typedef struct example {
    attn_problem p;
    attn_call call;
    float *q, *k, *v, *out, *lse, *scores, *sinks;
    void *mask;
    uint8_t *key_mask;
    int32_t lengths[SAMPLES];
    int64_t cu_q[SAMPLES + 1], cu_k[SAMPLES + 1];
    attn_span spans[SPANS];
    attn_query_range ranges[RANGES];
    int64_t samples; /* on the batch axis of the tensors: 1 when packed */
} example;

static void dense(int64_t stride[4], int64_t rows, int64_t heads, int64_t channels, int packed)
{
    stride[0] = packed ? 0 : rows * heads * channels;
    stride[1] = heads * channels;
    stride[2] = channels;
    stride[3] = 1;
}

static void pick_sizes(example *x)
{
    attn_problem *p = &x->p;
    int packed = pick(0, 4) == 0;
    p->batch = pick(1, SAMPLES);
    p->kv_heads = pick(1, 2);
    p->heads = p->kv_heads * pick(1, 2);
    p->head_dim = pick(1, 9);
    p->value_head_dim = pick(1, 19);
    p->q_len = pick(0, 40);
    p->kv_len = pick(0, 150);
    x->samples = packed ? 1 : p->batch;
    if (!packed) return;
    for (int64_t b = 1; b < p->batch; b++) {
        x->cu_q[b] = pick(x->cu_q[b - 1], p->q_len);
        x->cu_k[b] = pick(x->cu_k[b - 1], p->kv_len);
    }
    x->cu_q[p->batch] = p->q_len;
    x->cu_k[p->batch] = p->kv_len;
    x->call.cu_q = (attn_index){x->cu_q, 1, p->batch + 1, 64};
    x->call.cu_k = (attn_index){x->cu_k, 1, p->batch + 1, 64};
}

static void pick_structure(example *x)
{
    attn_problem *p = &x->p;
    p->scale = pick(0, 1) ? 0.35 : -1.5;
    p->softcap = pick(0, 1) ? 2.5 : 0;
    p->causal = (int32_t)pick(0, 1);
    p->alignment = (int32_t)pick(0, 1);
    p->window = (uint32_t)pick(0, 3);
    p->window_left = pick(0, 60);
    p->window_right = pick(0, 60);
    if (p->alignment) x->call.query_start = pick(0, 30);
    if (!x->call.cu_q.data && pick(0, 1)) {
        for (int64_t b = 0; b < p->batch; b++) x->lengths[b] = (int32_t)pick(0, p->kv_len);
        x->call.kv_lengths = (attn_index){x->lengths, 1, p->batch, 32};
    }
    if (x->call.cu_q.data || pick(0, 2)) return;
    for (int s = 0; s < SPANS; s++) {
        x->spans[s].start = pick(0, 100);
        x->spans[s].end = x->spans[s].start + pick(0, 40);
    }
    x->call.spans = x->spans;
    x->call.span_count = SPANS;
    int64_t cut = pick(0, p->q_len);
    x->ranges[0] = (attn_query_range){0, cut, pick(0, 100)};
    x->ranges[1] = (attn_query_range){cut, p->q_len, pick(0, 100)};
    x->call.query_ranges = x->ranges;
    x->call.query_range_count = pick(0, 1) ? RANGES : 0;
}

static void pick_masks(example *x)
{
    attn_problem *p = &x->p;
    int64_t sizes[4] = {p->batch, p->heads, p->q_len, p->kv_len}, n = 1;
    p->mask_form = x->call.cu_q.data ? ATTN_FORM_NONE : (int32_t)pick(0, 2);
    for (int axis = 3; axis >= 0; axis--) {
        if (sizes[axis] < 2 || pick(0, 2) == 0) continue; /* broadcast: stride 0 */
        p->mask_stride[axis] = n;
        n *= sizes[axis];
    }
    if (p->mask_form == ATTN_FORM_KEEP) {
        p->mask_dtype = ATTN_U8;
        x->mask = malloc((size_t)n);
        for (int64_t i = 0; i < n; i++) ((uint8_t *)x->mask)[i] = pick(0, 1) ? (uint8_t)pick(1, 255) : 0;
    } else if (p->mask_form == ATTN_FORM_ADDITIVE) {
        p->mask_dtype = ATTN_F32;
        x->mask = floats(n);
        for (int64_t i = 0; i < n; i++)
            if (pick(0, 2) == 0) ((float *)x->mask)[i] = -INFINITY;
    }
    x->call.mask = x->mask;
    if (pick(0, 2) == 0 && !x->call.cu_q.data) {
        p->key_mask_stride[0] = p->kv_len;
        p->key_mask_stride[1] = 1;
        x->key_mask = malloc((size_t)(p->batch * p->kv_len) + 1);
        for (int64_t i = 0; i < p->batch * p->kv_len; i++) x->key_mask[i] = (uint8_t)pick(0, 1);
        x->call.key_mask = x->key_mask;
    }
}

static void make(example *x, uint32_t number)
{
    attn_problem *p = &x->p;
    memset(x, 0, sizeof *x);
    seed = number * 2654435761u + 1;
    p->size = sizeof *p;
    p->dtype = p->out_dtype = ATTN_F32;
    pick_sizes(x);
    pick_structure(x);
    pick_masks(x);
    int packed = x->call.cu_q.data != NULL;
    dense(p->q_stride, p->q_len, p->heads, p->head_dim, packed);
    dense(p->k_stride, p->kv_len, p->kv_heads, p->head_dim, packed);
    dense(p->v_stride, p->kv_len, p->kv_heads, p->value_head_dim, packed);
    dense(p->out_stride, p->q_len, p->heads, p->value_head_dim, packed);
    p->lse_stride[0] = packed ? 0 : p->heads * p->q_len;
    p->lse_stride[1] = p->q_len;
    p->lse_stride[2] = 1;
    x->q = floats(x->samples * p->q_len * p->heads * p->head_dim);
    x->k = floats(x->samples * p->kv_len * p->kv_heads * p->head_dim);
    x->v = floats(x->samples * p->kv_len * p->kv_heads * p->value_head_dim);
    x->out = floats(x->samples * p->q_len * p->heads * p->value_head_dim);
    x->lse = floats(x->samples * p->heads * p->q_len);
    x->sinks = floats(p->heads);
    if (!packed) {
        p->scores_dtype = ATTN_F32;
        p->scores_mode = (int32_t)pick(ATTN_SCORES_SCALED, ATTN_SCORES_PROBS);
        dense(p->scores_stride, p->heads, p->q_len, p->kv_len, 0);
        x->scores = floats(p->batch * p->heads * p->q_len * p->kv_len);
        x->call.scores = x->scores;
    }
    x->call.size = sizeof x->call;
    x->call.problem = p;
    x->call.q = x->q;
    x->call.k = x->k;
    x->call.v = x->v;
    x->call.out = x->out;
    x->call.lse = x->lse;
    if (pick(0, 1)) x->call.sinks = x->sinks;
}

static void drop(example *x)
{
    void *const all[] = {x->q, x->k, x->v, x->out, x->lse, x->scores, x->sinks, x->mask, x->key_mask};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* Runs with scratch of exactly the planned size, filled with NaN. */
static attn_status run(attn_call *call, int32_t workers, attn_error *error)
{
    attn_workspace workspace;
    void *state;
    assert_int_equal(attn_reference_impl.plan(&host, call->problem, &state, &workspace, NULL), ATTN_OK);
    call->workers = workers;
    call->scratch_stride = (workspace.thread_bytes + 63) / 64 * 64;
    call->shared = malloc(workspace.shared_bytes);
    size_t bytes = call->scratch_stride * (size_t)(workers - 1) + workspace.thread_bytes;
    assert_int_equal(posix_memalign(&call->scratch, 64, bytes), 0);
    memset(call->scratch, 0xff, bytes);
    attn_status status = attn_reference_impl.run(&host, state, call, error);
    free(call->shared);
    free(call->scratch);
    return status;
}

/* ---- the definitions -------------------------------------------------------------------------- */

static int attends(const example *x, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const attn_problem *p = &x->p;
    attn_rows rows = attn_call_rows(&x->call, b);
    int64_t at = p->alignment == ATTN_TOP_LEFT ? i + x->call.query_start : i + rows.kv_len - rows.q_len;
    for (uint32_t r = 0; r < x->call.query_range_count; r++)
        if (x->ranges[r].local_start <= i && i < x->ranges[r].local_end)
            at = x->ranges[r].global_start + i - x->ranges[r].local_start;
    int seen = !p->causal && !x->call.span_count;
    seen |= j <= at;
    for (uint32_t s = 0; s < x->call.span_count; s++)
        seen |= x->spans[s].start <= at && at < x->spans[s].end && j < x->spans[s].end;
    if (p->window & ATTN_WINDOW_LEFT) seen &= j >= at - p->window_left;
    if (p->window & ATTN_WINDOW_RIGHT) seen &= j <= at + p->window_right;
    if (x->key_mask) seen &= x->key_mask[b * p->kv_len + j] != 0;
    int64_t m = b * p->mask_stride[0] + h * p->mask_stride[1] + i * p->mask_stride[2] + j * p->mask_stride[3];
    if (p->mask_form == ATTN_FORM_KEEP) seen &= ((const uint8_t *)x->mask)[m] != 0;
    if (p->mask_form == ATTN_FORM_ADDITIVE) seen &= ((const float *)x->mask)[m] != -INFINITY;
    return seen && j < rows.kv_len;
}

static int64_t first_row(const int64_t *cu, int64_t b, const example *x)
{
    return x->call.cu_q.data ? cu[b] : 0;
}

/* Stage 1, 2 or 3 of the scores output for one pair. */
static long double score(const example *x, int64_t b, int64_t h, int64_t i, int64_t j, int32_t stage)
{
    const attn_problem *p = &x->p;
    const float *q =
        x->q + b * p->q_stride[0] + (first_row(x->cu_q, b, x) + i) * p->q_stride[1] + h * p->q_stride[2];
    const float *k = x->k + b * p->k_stride[0] + (first_row(x->cu_k, b, x) + j) * p->k_stride[1] +
                     h / (p->heads / p->kv_heads) * p->k_stride[2];
    long double s = 0;
    for (int64_t c = 0; c < p->head_dim; c++) s += (long double)q[c] * k[c];
    s *= p->scale;
    if (stage >= ATTN_SCORES_CAPPED && p->softcap > 0) s = p->softcap * tanhl(s / p->softcap);
    if (stage < ATTN_SCORES_MASKED) return s;
    if (!attends(x, b, h, i, j)) return -INFINITY;
    if (p->mask_form != ATTN_FORM_ADDITIVE) return s;
    return s + ((const float *)x->mask)[b * p->mask_stride[0] + h * p->mask_stride[1] +
                                        i * p->mask_stride[2] + j * p->mask_stride[3]];
}

static void check_near(double got, long double want)
{
    if (isinf(want)) {
        assert_true(got == (double)want);
        return;
    }
    if (!(fabsl(got - want) <= 1e-7L * fabsl(want) + 1e-11L))
        print_error("got %.9g, want %.9g in example %u\n", got, (double)want, seed);
    assert_true(fabsl(got - want) <= 1e-7L * fabsl(want) + 1e-11L);
}

static void check_row(const example *x, int64_t b, int64_t h, int64_t i, int64_t keys)
{
    const attn_problem *p = &x->p;
    const attn_call *call = &x->call;
    int64_t row = first_row(x->cu_q, b, x) + i, kept = 0;
    long double sum = call->sinks ? expl(call->sinks[h]) : 0;
    for (int64_t j = 0; j < keys; j++) {
        kept += attends(x, b, h, i, j);
        if (attends(x, b, h, i, j)) sum += expl(score(x, b, h, i, j, ATTN_SCORES_MASKED));
    }
    for (int64_t c = 0; c < p->value_head_dim; c++) {
        long double out = 0;
        const float *v = x->v + b * p->v_stride[0] + first_row(x->cu_k, b, x) * p->v_stride[1] +
                         h / (p->heads / p->kv_heads) * p->v_stride[2] + c;
        for (int64_t j = 0; j < keys; j++)
            if (attends(x, b, h, i, j))
                out += expl(score(x, b, h, i, j, ATTN_SCORES_MASKED)) * v[j * p->v_stride[1]];
        check_near(x->out[b * p->out_stride[0] + row * p->out_stride[1] + h * p->out_stride[2] + c],
                   kept ? out / sum : 0);
    }
    check_near(x->lse[b * p->lse_stride[0] + h * p->lse_stride[1] + row], kept ? logl(sum) : -INFINITY);
    for (int64_t j = 0; x->scores && j < keys; j++) {
        long double s = score(x, b, h, i, j, p->scores_mode);
        if (p->scores_mode == ATTN_SCORES_PROBS) s = attends(x, b, h, i, j) ? expl(s) / sum : 0;
        check_near(x->scores[((b * p->heads + h) * p->q_len + i) * p->kv_len + j], s);
    }
}

static void check(const example *x)
{
    for (int64_t b = 0; b < x->p.batch; b++) {
        attn_rows rows = attn_call_rows(&x->call, b);
        int64_t keys = x->call.cu_k.data ? rows.kv_len : x->p.kv_len;
        for (int64_t h = 0; h < x->p.heads; h++)
            for (int64_t i = 0; i < rows.q_len; i++) check_row(x, b, h, i, keys);
    }
}

/* ---- tests ------------------------------------------------------------------------------------ */

enum { EXAMPLES = 150 };

static int pool_open(void **state)
{
    (void)state;
    return attn_pool_acquire(NULL);
}

static int pool_close(void **state)
{
    (void)state;
    attn_pool_release();
    return 0;
}

static void agrees_with_the_definitions(void **state)
{
    (void)state;
    for (uint32_t number = 0; number < EXAMPLES; number++) {
        example x;
        make(&x, number);
        assert_int_equal(run(&x.call, 1, NULL), ATTN_OK);
        check(&x);
        drop(&x);
    }
}

/* NaN in K and V of keys that no row attends to leaves every bit of the results as it is; so does any number
 * of workers. */
static void hidden_values_and_workers_change_no_bit(void **state)
{
    (void)state;
    int64_t hidden = 0;
    for (uint32_t number = 0; number < EXAMPLES; number++) {
        example x;
        make(&x, number);
        const attn_problem *p = &x.p;
        size_t outs = (size_t)(x.samples * p->q_len * p->heads * p->value_head_dim),
               lses = (size_t)(x.samples * p->heads * p->q_len);
        assert_int_equal(run(&x.call, 1, NULL), ATTN_OK);
        float *out = x.out, *lse = x.lse;
        x.call.out = x.out = floats((int64_t)outs);
        x.call.lse = x.lse = floats((int64_t)lses);
        for (int64_t b = 0; b < x.samples && !x.call.cu_q.data; b++)
            for (int64_t j = 0; j < p->kv_len; j++) {
                int seen = 0;
                for (int64_t n = 0; n < p->heads * p->q_len; n++)
                    seen |= attends(&x, b, n % p->heads, n / p->heads, j);
                hidden += !seen;
                for (int64_t n = 0; !seen && n < p->k_stride[1]; n++)
                    x.k[b * p->k_stride[0] + j * p->k_stride[1] + n] = NAN;
                for (int64_t n = 0; !seen && n < p->v_stride[1]; n++)
                    x.v[b * p->v_stride[0] + j * p->v_stride[1] + n] = NAN;
            }
        assert_int_equal(run(&x.call, (int32_t)pick(2, 8), NULL), ATTN_OK);
        assert_memory_equal(out, x.out, outs * sizeof *out);
        assert_memory_equal(lse, x.lse, lses * sizeof *lse);
        free(out);
        free(lse);
        drop(&x);
    }
    assert_true(hidden > 100);
}

/* The same numbers behind other strides, among them an inner one that is not 1, give the same bits. */
static void strides_change_no_bit(void **state)
{
    (void)state;
    for (uint32_t number = 0; number < EXAMPLES; number++) {
        example x;
        make(&x, number);
        attn_problem *p = &x.p;
        int64_t n = x.samples * p->kv_len * p->kv_heads * p->head_dim, rows = x.samples * p->kv_len;
        size_t outs = (size_t)(x.samples * p->q_len * p->heads * p->value_head_dim) * sizeof(float);
        assert_int_equal(run(&x.call, 1, NULL), ATTN_OK);
        float *out = x.out, *turned = malloc((size_t)n * sizeof *turned + 1);
        x.call.out = x.out = floats((int64_t)(outs / sizeof *out));
        for (int64_t i = 0; i < n; i++) { /* [heads, channels, samples and rows] */
            int64_t c = i % p->head_dim, h = i / p->head_dim % p->kv_heads,
                    row = i / p->head_dim / p->kv_heads;
            turned[(h * p->head_dim + c) * rows + row] = x.k[i];
        }
        int64_t strides[4] = {p->k_stride[0] ? p->kv_len : 0, 1, p->head_dim * rows, rows};
        memcpy(p->k_stride, strides, sizeof strides);
        x.call.k = turned;
        assert_int_equal(run(&x.call, 2, NULL), ATTN_OK);
        assert_memory_equal(out, x.out, outs);
        free(out);
        free(turned);
        drop(&x);
    }
}

static void an_empty_row_is_zero_whatever_the_sink(void **state)
{
    (void)state;
    float k = NAN, v = INFINITY, q = 1, out = 5, lse = 5, sink = 50;
    uint8_t hide = 0;
    attn_problem p = {.size = sizeof p,
                      .dtype = ATTN_F32,
                      .out_dtype = ATTN_F32,
                      .batch = 1,
                      .heads = 1,
                      .kv_heads = 1,
                      .q_len = 1,
                      .kv_len = 1,
                      .head_dim = 1,
                      .value_head_dim = 1,
                      .scale = 1};
    attn_call call = {.size = sizeof call,
                      .problem = &p,
                      .q = &q,
                      .k = &k,
                      .v = &v,
                      .out = &out,
                      .lse = &lse,
                      .sinks = &sink,
                      .key_mask = &hide};
    assert_int_equal(run(&call, 1, NULL), ATTN_OK);
    assert_true(out == 0 && lse == -INFINITY);
    out = lse = 5;
    p.kv_len = 0;
    call.k = call.v = NULL;
    assert_int_equal(run(&call, 1, NULL), ATTN_OK);
    assert_true(out == 0 && lse == -INFINITY);
    out = 5;
    p.q_len = 0;
    assert_int_equal(run(&call, 1, NULL), ATTN_OK);
    p.batch = p.heads = p.kv_heads = 0;
    assert_int_equal(run(&call, 1, NULL), ATTN_OK);
    assert_true(out == 5);
}

static void the_cancel_flag_ends_a_call(void **state)
{
    (void)state;
    int32_t cancel = 0;
    example x;
    for (uint32_t number = 0; make(&x, number), x.p.q_len == 0; number++) drop(&x);
    x.call.cancel = &cancel;
    attn_error error = ATTN_ERROR_INIT;
    assert_int_equal(run(&x.call, 2, &error), ATTN_OK);
    cancel = 1;
    assert_int_equal(run(&x.call, 2, &error), ATTN_CANCELLED);
    assert_int_equal(error.kind, ATTN_KIND_CANCELLED);
    drop(&x);
}

static void scores_of_packed_sequences_are_refused(void **state)
{
    (void)state;
    attn_problem p = {.size = sizeof p, .features = ATTN_FEATURE(PACKED)};
    attn_trace who = {.size = sizeof who};
    attn_reasons reasons;
    attn_reasons_start(&reasons, NULL, NULL, &who);
    attn_reference_impl.accept(&host, &p, &reasons);
    assert_int_equal(reasons.count, 0);
    p.features |= ATTN_FEATURE(SCORES);
    attn_reference_impl.accept(&host, &p, &reasons);
    assert_int_equal(reasons.count, 1);
    assert_int_equal(reasons.first, ATTN_KIND_FEATURE_UNSUPPORTED);
}

static void the_workspace_is_linear(void **state)
{
    (void)state;
    attn_problem p = {.size = sizeof p,
                      .batch = 1,
                      .heads = 1,
                      .kv_heads = 1,
                      .q_len = 16384,
                      .kv_len = 16384,
                      .head_dim = 128,
                      .value_head_dim = 128};
    attn_workspace once, twice;
    attn_error error = ATTN_ERROR_INIT;
    void *plan;
    assert_int_equal(attn_reference_impl.plan(&host, &p, &plan, &once, NULL), ATTN_OK);
    assert_true(once.thread_bytes < 4 << 20);
    p.kv_len = p.q_len = 32768;
    assert_int_equal(attn_reference_impl.plan(&host, &p, &plan, &twice, NULL), ATTN_OK);
    assert_true(twice.thread_bytes <= 2 * once.thread_bytes && twice.shared_bytes == once.shared_bytes);
    p.kv_len = INT64_MAX;
    assert_int_equal(attn_reference_impl.plan(&host, &p, &plan, &twice, &error), ATTN_OUT_OF_MEMORY);
}

/* 16-bit inputs are read exactly and the output is rounded once, also to f32. */
static void sixteen_bit_tensors_are_exact(void **state)
{
    (void)state;
    static const attn_dtype dtypes[] = {ATTN_F16, ATTN_BF16, ATTN_F64};
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        attn_dtype t = dtypes[d];
        double q = 0.5, k[2] = {1, -3}, v[2] = {2, 0.75}, out = 0;
        uint64_t q_bits = 0, k_bits[2] = {0}, v_bits[2] = {0}, out_bits = 0;
        float wide = 0;
        reference_store(t, &q_bits, 1, 1, &q);
        reference_store(t, k_bits, 1, 2, k);
        reference_store(t, v_bits, 1, 2, v);
        attn_problem p = {.size = sizeof p,
                          .dtype = t,
                          .out_dtype = t,
                          .batch = 1,
                          .heads = 1,
                          .kv_heads = 1,
                          .q_len = 1,
                          .kv_len = 2,
                          .head_dim = 1,
                          .value_head_dim = 1,
                          .scale = 1,
                          .k_stride = {2, 1, 1, 1},
                          .v_stride = {2, 1, 1, 1}};
        attn_call call = {
            .size = sizeof call, .problem = &p, .q = &q_bits, .k = k_bits, .v = v_bits, .out = &out_bits};
        double exact = (exp(0.5) * 2 + exp(-1.5) * 0.75) / (exp(0.5) + exp(-1.5)), rounded;
        uint64_t exact_bits = 0;
        assert_int_equal(run(&call, 1, NULL), ATTN_OK);
        reference_load(t, &out_bits, 1, 1, &out, 1);
        reference_store(t, &exact_bits, 1, 1, &exact);
        reference_load(t, &exact_bits, 1, 1, &rounded, 1);
        assert_true(fabs(out - rounded) <= (t == ATTN_F64 ? 1e-15 : 0));
        p.out_dtype = ATTN_F32;
        call.out = &wide;
        assert_int_equal(run(&call, 1, NULL), ATTN_OK);
        assert_true(wide == (float)exact);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(agrees_with_the_definitions),
        cmocka_unit_test(hidden_values_and_workers_change_no_bit),
        cmocka_unit_test(strides_change_no_bit),
        cmocka_unit_test(an_empty_row_is_zero_whatever_the_sink),
        cmocka_unit_test(the_cancel_flag_ends_a_call),
        cmocka_unit_test(scores_of_packed_sequences_are_refused),
        cmocka_unit_test(the_workspace_is_linear),
        cmocka_unit_test(sixteen_bit_tensors_are_exact),
    };
    return cmocka_run_group_tests_name("reference", tests, pool_open, pool_close);
}
