/* template.c: a complete small module. Copy the folder, rename the three words "template", write your kernel
 * in `run`. It computes plain attention in one thread a row block: right, short, slow. */
#include <attn/module.h>

#include <math.h>
#include <string.h>

/* What plan prepares and run reads. A real kernel keeps tile sizes here. */
typedef struct plan_state {
    int64_t rows; /* query rows a task */
} plan_state;

/* The host has already checked features, element types and head sizes against the struct below. */
static void accept(const attn_host *host, const attn_problem *problem, attn_reasons *reasons)
{
    (void)host;
    if (problem->kv_len > (int64_t)1 << 24)
        attn_reason(reasons, ATTN_KIND_FEATURE_UNSUPPORTED,
                    "template_plain takes at most 2^24 keys, not %lld", (long long)problem->kv_len);
}

static attn_status plan(const attn_host *host, const attn_problem *problem, void **state,
                        attn_workspace *workspace, attn_error *error)
{
    plan_state *s = host->alloc(host, sizeof *s, 16);
    if (!s) return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a plan of template_plain");
    s->rows = 16;
    workspace->shared_bytes = 0;
    workspace->thread_bytes = sizeof(double) * (size_t)(problem->kv_len + problem->value_head_dim);
    *state = s;
    return ATTN_OK;
}

static void drop(const attn_host *host, void *state)
{
    host->release(host, state);
}

/* Everything a task needs; one lives on the stack of run. */
typedef struct job {
    const attn_call *call;
    const plan_state *state;
    int64_t blocks; /* row blocks a head */
} job;

static const float *at(const void *base, const int64_t stride[4], int64_t b, int64_t s, int64_t h)
{
    return (const float *)base + b * stride[0] + s * stride[1] + h * stride[2];
}

/* Keys [0, end) that row i sees: all valid ones, or up to its own position when causal, bottom-right. */
static int64_t end_of_row(const attn_problem *p, const attn_rows *rows, int64_t i)
{
    int64_t end = rows->kv_len;
    if (p->causal && i + rows->kv_len - rows->q_len + 1 < end) end = i + rows->kv_len - rows->q_len + 1;
    return end > 0 ? end : 0;
}

/* softmax of the scores in place; returns their log-sum-exp, or -inf when there is no key. */
static double softmax(double *score, int64_t n)
{
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < n; j++) most = score[j] > most ? score[j] : most;
    for (int64_t j = 0; j < n; j++) sum += score[j] = exp(score[j] - most);
    for (int64_t j = 0; j < n; j++) score[j] /= sum;
    return n ? most + log(sum) : -INFINITY;
}

static void row(const attn_call *call, int64_t b, int64_t h, int64_t i, double *score)
{
    const attn_problem *p = call->problem;
    attn_rows rows = attn_call_rows(call, b);
    int64_t kv_head = h / (p->heads / p->kv_heads), n = end_of_row(p, &rows, i);
    double *sum = score + p->kv_len;
    const float *q = at(call->q, p->q_stride, b, i, h);
    for (int64_t j = 0; j < n; j++) {
        const float *k = at(call->k, p->k_stride, b, j, kv_head);
        double dot = 0;
        for (int64_t d = 0; d < p->head_dim; d++) dot += (double)q[d] * (double)k[d];
        score[j] = dot * p->scale;
    }
    double lse = softmax(score, n);
    memset(sum, 0, sizeof *sum * (size_t)p->value_head_dim);
    for (int64_t j = 0; j < n; j++) {
        const float *v = at(call->v, p->v_stride, b, j, kv_head);
        for (int64_t d = 0; d < p->value_head_dim; d++) sum[d] += score[j] * (double)v[d];
    }
    float *out = (float *)call->out + b * p->out_stride[0] + i * p->out_stride[1] + h * p->out_stride[2];
    for (int64_t d = 0; d < p->value_head_dim; d++) out[d] = (float)sum[d];
    if (call->lse) call->lse[b * p->lse_stride[0] + h * p->lse_stride[1] + i * p->lse_stride[2]] = (float)lse;
}

static void task(void *arg, int64_t index, int32_t worker)
{
    const job *j = arg;
    const attn_call *call = j->call;
    int64_t head = index / j->blocks, first = index % j->blocks * j->state->rows;
    double *scratch = (double *)(void *)((char *)call->scratch + (size_t)worker * call->scratch_stride);
    if (attn_call_cancelled(call)) return;
    for (int64_t i = first; i < first + j->state->rows && i < call->problem->q_len; i++)
        row(call, head / call->problem->heads, head % call->problem->heads, i, scratch);
}

static attn_status run(const attn_host *host, const void *state, const attn_call *call, attn_error *error)
{
    const attn_problem *p = call->problem;
    job j = {call, state, 0};
    (void)error;
    j.blocks = (p->q_len + j.state->rows - 1) / j.state->rows;
    host->parallel_for(host, p->batch * p->heads * j.blocks, call->workers, task, &j);
    return ATTN_OK;
}

static const char *const backends[] = {"TORCH_SDPA", NULL};

static const attn_impl template_plain = {
    .size = sizeof(attn_impl),
    .rank = 100, /* after those of the library; an override puts it first */
    .name = "template_plain",
    .summary = "plain attention in fp32, the example of a module",
    .platform = "cpu",
    .backends = backends,
    .features = ATTN_FEATURE(CAUSAL) | ATTN_FEATURE(LENGTHS) | ATTN_FEATURE(LSE) | ATTN_FEATURE(GROUPED) |
                ATTN_FEATURE(VALUE_DIM) | ATTN_FEATURE(BATCH_INVARIANT),
    .dtypes = (uint64_t)1 << ATTN_F32,
    .head_dim_max = 256,
    .accept = accept,
    .plan = plan,
    .run = run,
    .drop = drop,
};

static const attn_impl *const impls[] = {&template_plain, NULL};

static const attn_module module = {
    .size = sizeof(attn_module),
    .abi_major = ATTN_MODULE_MAJOR,
    .abi_minor = ATTN_MODULE_MINOR,
    .name = "template",
    .version = "1.0",
    .license = "Apache-2.0",
    .impls = impls,
};

ATTN_MODULE_EXPORT const attn_module *attn_module_v1(void);

const attn_module *attn_module_v1(void)
{
    return &module;
}
