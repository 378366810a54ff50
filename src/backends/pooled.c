/* pooled.c: copies, means, lists, flash, and back, for a few heads at a time. */
#include "backends/pooled.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backends/flash.h"
#include "backends/pooled_select.h"
#include "sparse/clock.h"

/* Copies of so many bytes stay in the caches between the steps. */
#define GROUP_BYTES ((int64_t)16 << 20)

enum { Q, K, V, KINDS };

/* Memory of one group of heads; each part is [heads][...]. */
typedef struct parts {
    char *copy[KINDS];  /* [S, D] in q's type */
    float *mean[KINDS]; /* [blocks, D]; V with a gate only */
    float *out, *lse;   /* [S, D], [S] */
    float *coarse;      /* [blocks, D], with a gate */
    int32_t *counts;    /* [blocks] */
    int32_t *lists;     /* [blocks, capacity] */
    float *work;        /* of a worker: two rows of scores, a block of rows */
    char *shared, *scratch;
    size_t bytes;
} parts;

typedef struct job {
    const attn_host *host;
    const attn_call *call;
    const attn_problem *p;
    const pooled_spec *spec;
    const attn_kernels *kernels;
    int64_t sample, head, heads; /* of the group */
    int64_t group;               /* heads that there is memory for */
    int64_t capacity;
    int64_t work_floats;
    attn_problem inner;
    flash_plan *plan;
    attn_workspace flash;
    size_t stride; /* of flash's scratch */
    parts m;
    attn_dtype gate_dtype;
    int64_t gate_stride[4];
} job;

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- memory ---------------------------------------------------------------------------------------- */

/* The next part of an allocation; with memory NULL only the size is counted. Sticks at SIZE_MAX. */
static void *take(parts *m, char *memory, int64_t a, int64_t b, size_t size)
{
    size_t bytes, at = m->bytes;
    if (at == SIZE_MAX || __builtin_mul_overflow((size_t)a, (size_t)b, &bytes) ||
        __builtin_mul_overflow(bytes, size, &bytes) || __builtin_add_overflow(at, bytes, &m->bytes) ||
        __builtin_add_overflow(m->bytes, (size_t)63, &m->bytes)) {
        m->bytes = SIZE_MAX;
        return NULL;
    }
    m->bytes = m->bytes / 64 * 64;
    return memory ? memory + at : NULL;
}

static void lay_out(job *j, char *memory)
{
    const attn_problem *p = j->p;
    parts *m = &j->m;
    int64_t rows = j->group * p->q_len, blocks = j->group * j->spec->blocks, d = p->head_dim;
    int gate = j->spec->gate != NULL;
    m->bytes = 0;
    for (int i = 0; i < KINDS; i++) m->copy[i] = take(m, memory, rows, d, attn_dtype_bytes(p->dtype));
    for (int i = 0; i < KINDS; i++)
        m->mean[i] = take(m, memory, i < V || gate ? blocks : 0, d, sizeof(float));
    m->out = take(m, memory, rows, d, sizeof(float));
    m->lse = take(m, memory, j->call->lse ? rows : 0, 1, sizeof(float));
    m->coarse = take(m, memory, gate ? blocks : 0, d, sizeof(float));
    m->counts = take(m, memory, blocks, 1, sizeof(int32_t));
    m->lists = take(m, memory, blocks, j->capacity, sizeof(int32_t));
    m->work = take(m, memory, j->call->workers, j->work_floats, sizeof(float));
    m->shared = take(m, memory, 1, 1, j->flash.shared_bytes);
    m->scratch = take(m, memory, j->call->workers, 1, j->stride);
}

/* ---- the steps -------------------------------------------------------------------------------------- */

static const char *token_row(const job *j, const void *tensor, const int64_t *stride, int64_t token,
                             int64_t head)
{
    int64_t at = j->sample * stride[0] + token * stride[1] + head * stride[2];
    return (const char *)tensor + at * (int64_t)attn_dtype_bytes(j->p->dtype);
}

static int64_t token_at(const job *j, int64_t place)
{
    return j->spec->order ? j->spec->order[place] : place;
}

static int64_t rows_of(const job *j, int64_t block)
{
    return j->spec->starts[block + 1] - j->spec->starts[block];
}

/* Where a block of the group's q, k or v is copied to. */
static char *copy_of(const job *j, int kind, int64_t head, int64_t block)
{
    int64_t at = (head * j->p->q_len + j->spec->starts[block]) * j->p->head_dim;
    return j->m.copy[kind] + at * (int64_t)attn_dtype_bytes(j->p->dtype);
}

/* One block of q, k or v. rows: room for the block in f32. */
static void copy_block(const job *j, int kind, int64_t head, int64_t block, float *rows)
{
    const attn_problem *p = j->p;
    const void *tensors[KINDS] = {j->call->q, j->call->k, j->call->v};
    const int64_t *strides[KINDS] = {p->q_stride, p->k_stride, p->v_stride};
    int64_t d = p->head_dim, step = strides[kind][3], first = j->spec->starts[block], n = rows_of(j, block);
    size_t bytes = (size_t)d * attn_dtype_bytes(p->dtype);
    int rounds = kind == V ? j->spec->round_v : j->spec->round_qk;
    int plain = !rounds && (step == 1 || d == 1);
    char *to = copy_of(j, kind, head, block);
    for (int64_t r = 0; r < n; r++) {
        const char *row = token_row(j, tensors[kind], strides[kind], token_at(j, first + r), j->head + head);
        if (plain)
            memcpy(to + (size_t)r * bytes, row, bytes);
        else
            j->kernels->widen(rows + r * d, row, (int32_t)p->dtype, step, d);
    }
    if (plain) return;
    if (rounds) pooled_round(rows, n * d);
    j->kernels->narrow(to, (int32_t)p->dtype, 1, rows, 1, n * d);
}

static void take_mean(const job *j, int kind, int64_t head, int64_t block, float *rows)
{
    int64_t d = j->p->head_dim, n = rows_of(j, block);
    float *mean = j->m.mean[kind] + (head * j->spec->blocks + block) * d;
    j->kernels->widen(rows, copy_of(j, kind, head, block), (int32_t)j->p->dtype, 1, n * d);
    memset(mean, 0, (size_t)d * sizeof *mean);
    for (int64_t r = 0; r < n; r++)
        for (int64_t i = 0; i < d; i++) mean[i] += rows[r * d + i];
    for (int64_t i = 0; i < d; i++) mean[i] /= (float)n;
}

static float *work_of(const job *j, int32_t worker)
{
    return j->m.work + worker * j->work_floats;
}

static void gather(void *arg, int64_t index, int32_t worker)
{
    const job *j = arg;
    if (attn_call_cancelled(j->call)) return;
    for (int kind = 0; kind < KINDS; kind++)
        copy_block(j, kind, index / j->spec->blocks, index % j->spec->blocks, work_of(j, worker));
}

static void average(void *arg, int64_t index, int32_t worker)
{
    const job *j = arg;
    int kinds = j->spec->gate ? KINDS : V;
    if (attn_call_cancelled(j->call)) return;
    for (int kind = 0; kind < kinds; kind++)
        take_mean(j, kind, index / j->spec->blocks, index % j->spec->blocks, work_of(j, worker));
}

static void choose(void *arg, int64_t index, int32_t worker)
{
    const job *j = arg;
    const pooled_spec *s = j->spec;
    int64_t blocks = s->blocks, head = index / blocks, block = index % blocks, d = j->p->head_dim, count = 0;
    float *scores = work_of(j, worker), *copy = scores + blocks;
    int32_t *list = j->m.lists + index * j->capacity;
    pooled_scores(j->m.mean[Q] + index * d, j->m.mean[K] + head * blocks * d, blocks, d, (float)j->p->scale,
                  scores);
    for (; count < (block < s->always ? blocks : s->always); count++) list[count] = (int32_t)count;
    if (block >= s->always)
        count += pooled_best(scores + s->always, blocks - s->always, s->keep, (int32_t)s->always, copy,
                             list + count);
    j->m.counts[index] = (int32_t)count;
    if (s->gate) pooled_attend(scores, j->m.mean[V] + head * blocks * d, blocks, d, j->m.coarse + index * d);
}

static void add_gated(const job *j, int64_t token, int64_t head, const float *coarse, float *gate, float *row)
{
    const int64_t *stride = j->gate_stride;
    const DLTensor *t = j->spec->gate;
    int64_t at = j->sample * stride[0] + token * stride[1] + (j->head + head) * stride[2];
    const char *from = (const char *)t->data + t->byte_offset + at * (int64_t)attn_dtype_bytes(j->gate_dtype);
    j->kernels->widen(gate, from, (int32_t)j->gate_dtype, stride[3], j->p->head_dim);
    for (int64_t i = 0; i < j->p->head_dim; i++) row[i] += gate[i] * coarse[i];
}

static void scatter(void *arg, int64_t index, int32_t worker)
{
    const job *j = arg;
    const attn_problem *p = j->p;
    int64_t blocks = j->spec->blocks, head = index / blocks, block = index % blocks, d = p->head_dim;
    float *gate = work_of(j, worker);
    for (int64_t place = j->spec->starts[block]; place < j->spec->starts[block + 1]; place++) {
        int64_t token = token_at(j, place), h = j->head + head;
        float *row = j->m.out + (head * p->q_len + place) * d;
        if (j->spec->gate) add_gated(j, token, head, j->m.coarse + index * d, gate, row);
        int64_t at = j->sample * p->out_stride[0] + token * p->out_stride[1] + h * p->out_stride[2];
        j->kernels->narrow((char *)j->call->out + at * (int64_t)attn_dtype_bytes(p->out_dtype),
                           (int32_t)p->out_dtype, p->out_stride[3], row, 1, d);
        if (j->call->lse)
            j->call->lse[j->sample * p->lse_stride[0] + h * p->lse_stride[1] + token * p->lse_stride[2]] =
                j->m.lse[head * p->q_len + place];
    }
}

/* ---- a group of heads --------------------------------------------------------------------------------- */

static attn_status attend(job *j, attn_error *error)
{
    attn_problem p = j->inner;
    flash_extra extra = {.row_starts = j->spec->starts, .key_starts = j->spec->starts};
    p.heads = p.kv_heads = j->heads;
    attn_call call = {.size = sizeof call,
                      .problem = &p,
                      .q = j->m.copy[Q],
                      .k = j->m.copy[K],
                      .v = j->m.copy[V],
                      .out = j->m.out,
                      .lse = j->call->lse ? j->m.lse : NULL,
                      .cancel = j->call->cancel,
                      .shared = j->m.shared,
                      .scratch = j->m.scratch,
                      .scratch_stride = j->stride,
                      .workers = j->call->workers};
    call.blocks = (attn_block_lists){.counts = j->m.counts,
                                     .blocks = j->m.lists,
                                     .count_stride = {0, j->spec->blocks, 1},
                                     .block_stride = {0, j->spec->blocks * j->capacity, j->capacity},
                                     .batch = 1,
                                     .heads = j->heads,
                                     .capacity = j->capacity,
                                     .q_len = p.q_len,
                                     .kv_len = p.kv_len,
                                     .block_q = j->spec->largest,
                                     .block_k = j->spec->largest,
                                     .q_blocks = j->spec->blocks,
                                     .kv_blocks = j->spec->blocks};
    return flash_execute(j->host, j->plan, &call, &extra, error);
}

static attn_status run_group(job *j, attn_error *error)
{
    int64_t items = j->heads * j->spec->blocks;
    j->host->parallel_for(j->host, items, j->call->workers, gather, j);
    double start = sparse_clock();
    j->host->parallel_for(j->host, items, j->call->workers, average, j);
    j->host->parallel_for(j->host, items, j->call->workers, choose, j);
    attn_call_chose(j->call, sparse_clock() - start);
    attn_status status = attend(j, error);
    if (!status) j->host->parallel_for(j->host, items, j->call->workers, scatter, j);
    return status;
}

static void report(const job *j)
{
    attn_report *report = attn_call_report(j->call);
    const pooled_spec *s = j->spec;
    if (!report) return;
    int64_t rest = s->blocks - s->always, lists = j->p->batch * j->p->heads;
    int64_t kept = s->always + smaller(s->keep, rest);
    report->kept = lists * (s->always * s->blocks + rest * kept);
    report->total = lists * s->blocks * s->blocks;
    if (kept == s->blocks)
        snprintf(report->text, sizeof report->text, "all blocks (%" PRId64 " %s)", s->blocks, s->what);
    else
        snprintf(report->text, sizeof report->text, "%" PRId64 " of %" PRId64 " %s (%.1f %%)", kept,
                 s->blocks, s->what, 100 * (double)report->kept / (double)report->total);
}

/* ---- preparing ----------------------------------------------------------------------------------------- */

/* The call that flash sees: one sample, rows of each head side by side. */
static void set_inner(job *j)
{
    const attn_problem *p = j->p;
    const int64_t rows[4] = {0, p->head_dim, p->q_len * p->head_dim, 1};
    attn_problem *inner = &j->inner;
    *inner = (attn_problem){.size = sizeof *inner,
                            .dtype = p->dtype,
                            .out_dtype = ATTN_F32,
                            .device_type = p->device_type,
                            .features = ATTN_FEATURE(BLOCK_MAP) | (p->features & ATTN_FEATURE(LSE)),
                            .batch = 1,
                            .heads = j->group,
                            .kv_heads = j->group,
                            .q_len = p->q_len,
                            .kv_len = p->kv_len,
                            .head_dim = p->head_dim,
                            .value_head_dim = p->head_dim,
                            .align = 4,
                            .scale = p->scale,
                            .lse_stride = {0, p->q_len, 1},
                            .block_q = j->spec->largest,
                            .block_k = j->spec->largest};
    memcpy(inner->q_stride, rows, sizeof rows);
    memcpy(inner->k_stride, rows, sizeof rows);
    memcpy(inner->v_stride, rows, sizeof rows);
    memcpy(inner->out_stride, rows, sizeof rows);
}

/* Shape, type and place of the gate. */
static attn_status read_gate(job *j, attn_error *error)
{
    const DLTensor *t = j->spec->gate;
    const attn_problem *p = j->p;
    const int64_t want[4] = {p->batch, p->q_len, p->heads, p->value_head_dim};
    if (!t) return ATTN_OK;
    if (t->ndim != 4 || !t->shape || memcmp(t->shape, want, sizeof want) || !t->data)
        return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                         "gate_compress has another shape than the output, which is [%" PRId64 ", %" PRId64
                         ", %" PRId64 ", %" PRId64 "]; give one gate for each value of it",
                         want[0], want[1], want[2], want[3]);
    j->gate_dtype = attn_dtype_from_dl(t->dtype);
    if (j->gate_dtype != p->dtype && j->gate_dtype != ATTN_F32)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE, "gate_compress is %s; it is of q's type (%s) or f32",
                         j->gate_dtype ? attn_dtype_name(j->gate_dtype) : "of an unknown type",
                         attn_dtype_name(p->dtype));
    if (t->device.device_type != kDLCPU && t->device.device_type != kDLCUDAHost)
        return attn_fail(error, ATTN_KIND_DEVICE_MISMATCH,
                         "gate_compress lives on DLPack device type %d; it is in host memory like q",
                         (int)t->device.device_type);
    for (int64_t i = 3, dense = 1; i >= 0; dense *= t->shape[i--])
        j->gate_stride[i] = t->shape[i] > 1 ? (t->strides ? t->strides[i] : dense) : 0;
    return ATTN_OK;
}

static attn_status prepare(job *j, attn_error *error)
{
    const attn_problem *p = j->p;
    const pooled_spec *s = j->spec;
    int64_t row = p->head_dim * (3 * (int64_t)attn_dtype_bytes(p->dtype) + (int64_t)sizeof(float));
    j->group = row > 0 && p->q_len > 0 ? GROUP_BYTES / row / p->q_len : 1;
    j->group = j->group < 1 ? 1 : smaller(j->group, p->heads);
    j->capacity = s->always > 0 ? s->blocks : smaller(s->keep, s->blocks);
    j->work_floats = 2 * s->blocks > s->largest * p->head_dim ? 2 * s->blocks : s->largest * p->head_dim;
    attn_status status = read_gate(j, error);
    if (status) return status;
    set_inner(j);
    const flash_ask ask = {.q_blocks = s->blocks, .kv_blocks = s->blocks};
    status = flash_plan_make(j->host, &j->inner, &ask, &j->plan, &j->flash, error);
    if (status) return status;
    j->kernels = &j->plan->kernels;
    j->stride = (j->flash.thread_bytes + 63) / 64 * 64;
    return ATTN_OK;
}

static attn_status run_all(job *j, attn_error *error)
{
    attn_status status = ATTN_OK;
    for (j->sample = 0; !status && j->sample < j->p->batch; j->sample++)
        for (j->head = 0; !status && j->head < j->p->heads; j->head += j->group) {
            j->heads = smaller(j->group, j->p->heads - j->head);
            status = run_group(j, error);
        }
    return status;
}

attn_status pooled_run(const attn_host *host, const attn_call *call, const pooled_spec *spec,
                       attn_error *error)
{
    job j = {.host = host, .call = call, .p = call->problem, .spec = spec};
    attn_status status = prepare(&j, error);
    char *memory = NULL;
    if (!status) {
        lay_out(&j, NULL);
        memory = j.m.bytes < SIZE_MAX ? host->alloc(host, j.m.bytes, 64) : NULL;
        if (!memory)
            status = attn_fail(error, ATTN_KIND_OUT_OF_MEMORY,
                               "no memory for %" PRId64 " heads in the order of %" PRId64
                               " %s; use fewer threads or "
                               "shorter sequences",
                               j.group, spec->blocks, spec->what);
    }
    if (!status) {
        lay_out(&j, memory);
        report(&j);
        status = run_all(&j, error);
    }
    if (memory) host->release(host, memory);
    flash_plan_drop(host, j.plan);
    return status;
}

/* ---- what the implementations share ------------------------------------------------------------------ */

void pooled_accept(const char *name, const attn_problem *p, attn_reasons *reasons)
{
    if (p->q_len != p->kv_len)
        attn_reason(reasons, ATTN_KIND_FEATURE_UNSUPPORTED,
                    "%s is for self-attention, and this call has %" PRId64 " queries and %" PRId64
                    " keys; use FLASH_ATTN for such a role",
                    name, p->q_len, p->kv_len);
}

attn_status pooled_plan(const attn_host *host, const attn_problem *p, void **state, attn_workspace *workspace,
                        attn_error *error)
{
    flash_plan *dense;
    attn_status status = flash_plan_make(host, p, NULL, &dense, workspace, error);
    *state = dense;
    return status;
}

void pooled_drop(const attn_host *host, void *state)
{
    flash_plan_drop(host, state);
}

attn_status pooled_three(const attn_params *params, const char *name, int64_t three[3], int *given,
                         attn_error *error)
{
    const int64_t *values = NULL;
    int64_t count = 0;
    int32_t columns = 0;
    attn_status status = attn_params_ints(params, name, &values, &count, &columns, error);
    *given = !status && values != NULL;
    if (status || !values) return status;
    /* Of a parameter with a row for each sample the first one counts. */
    if (count < 3 || (columns != 3 && count != 3))
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "%s has %" PRId64 " numbers; it has three: frames, rows, columns", name, count);
    memcpy(three, values, 3 * sizeof *three);
    return ATTN_OK;
}
