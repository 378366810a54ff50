/* wrong.c: a module whose implementation of SAGE_ATTN is right (MODE 0) or wrong in one way, for check.sh: a
 * self-test that cannot fail is none. */
#include <attn/module.h>
#include <math.h>
#include <string.h>

static float *row(void *base, const int64_t *stride, int64_t b, int64_t s, int64_t h)
{
    return (float *)base + b * stride[0] + s * stride[1] + h * stride[2];
}

static const float *row_of(const void *base, const int64_t *stride, int64_t b, int64_t s, int64_t h)
{
    return (const float *)base + b * stride[0] + s * stride[1] + h * stride[2];
}

static void one_row(const attn_problem *p, const attn_call *c, int64_t b, int64_t i, int64_t h)
{
    const float *q = row_of(c->q, p->q_stride, b, i, h);
    float *out = row(c->out, p->out_stride, b, i, h);
    double sum = 0, acc[64] = {0};
    for (int64_t j = 0; j < p->kv_len; j++) {
        const float *k = row_of(c->k, p->k_stride, b, j, h), *v = row_of(c->v, p->v_stride, b, j, h);
        double score = 0;
        for (int64_t d = 0; d < p->head_dim; d++) score += (double)q[d] * (double)k[d];
        double weight = exp(score * p->scale);
        sum += weight;
        for (int64_t d = 0; d < p->value_head_dim; d++) acc[d] += weight * (double)v[d];
    }
    for (int64_t d = 0; d < p->value_head_dim; d++) out[d] = p->kv_len ? (float)(acc[d] / sum) : 0;
}

static void spoil(const attn_host *host, const attn_problem *p, const attn_call *c)
{
    float *first = row(c->out, p->out_stride, 0, 0, 0);
    float *last =
        row(c->out, p->out_stride, p->batch - 1, p->q_len - 1, p->heads - 1) + p->value_head_dim - 1;
    if (MODE == 1) *last += 1e-4f;
    if (MODE == 2) last[1] = 1;
    if (MODE == 3) first[0] = nextafterf(first[0], host->threads > 1 ? 100.0f : first[0]);
    if (MODE == 4 && host->isa && strcmp(host->isa, "scalar") != 0) *first += 1e-4f;
    if (MODE == 5) *last = NAN;
}

static attn_status run(const attn_host *host, const void *state, const attn_call *call, attn_error *error)
{
    const attn_problem *p = call->problem;
    (void)state;
    (void)error;
    if (MODE == 6) return ATTN_INTERNAL;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t h = 0; h < p->heads; h++)
            for (int64_t i = 0; i < p->q_len; i++) one_row(p, call, b, i, h);
    if (p->batch > 0 && p->q_len > 0) spoil(host, p, call);
    return ATTN_OK;
}

static attn_status plan(const attn_host *host, const attn_problem *problem, void **state,
                        attn_workspace *workspace, attn_error *error)
{
    (void)host;
    (void)problem;
    (void)error;
    *state = NULL;
    memset(workspace, 0, sizeof *workspace);
    return ATTN_OK;
}

static const char *const backends[] = {"SAGE_ATTN", NULL};
static const attn_impl impl = {
    .size = sizeof impl,
    .name = "wrong",
    .summary = "an implementation for a test",
    .platform = "cpu",
    .backends = backends,
    .features = ATTN_FEATURE(VALUE_DIM),
    .dtypes = 1u << ATTN_F32,
    .head_dim_max = 64,
    .plan = plan,
    .run = run,
};
static const attn_impl *const impls[] = {&impl, NULL};
static const attn_module module = {
    .size = sizeof module,
    .abi_major = ATTN_MODULE_MAJOR,
    .abi_minor = ATTN_MODULE_MINOR,
    .name = "wrong",
    .version = "1",
    .license = "Apache-2.0",
    .impls = impls,
};

ATTN_MODULE_EXPORT const attn_module *attn_module_v1(void);
ATTN_MODULE_EXPORT const attn_module *attn_module_v1(void)
{
    return &module;
}
