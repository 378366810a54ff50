/* check_bound.c: error bounds from dtype, sizes and data. */
#include "check_bound.h"

#include <math.h>
#include <stdlib.h>

#include "cli.h"

/* Largest Euclidean norm and largest magnitude of a tensor's rows. */
static int row_bounds(const DLTensor *tensor, double *norm, double *magnitude)
{
    int64_t count = tensor_count(tensor), width = tensor->shape[tensor->ndim - 1];
    double *values = tensor_values(tensor);
    if (!values) return 0;
    for (int64_t i = 0; i < count; i += width) {
        double sum = 0;
        for (int64_t d = 0; d < width; d++) {
            sum += values[i + d] * values[i + d];
            if (fabs(values[i + d]) > *magnitude) *magnitude = fabs(values[i + d]);
        }
        if (sqrt(sum) > *norm) *norm = sqrt(sum);
    }
    free(values);
    return 1;
}

static int bounds_of(const DLTensor *a, const DLTensor *b, double *norm, double *magnitude)
{
    *norm = *magnitude = 0;
    return row_bounds(a, norm, magnitude) && (!b || row_bounds(b, norm, magnitude));
}

static void rounding_of(const struct outcome *exact, attn_dtype dtype, double *largest, double *norm)
{
    double sum = 0;
    *largest = 0;
    for (int64_t i = 0; i < exact->out_count; i++) {
        double error = fabs(tensor_round(dtype, exact->out[i]) - exact->out[i]);
        if (error > *largest) *largest = error;
        sum += error * error;
    }
    *norm = sqrt(sum);
}

/* Generated additive masks stay below 4. */
#define MASK_MAX 4.0

attn_status check_bound_of(const struct generated *call, const struct outcome *exact, attn_dtype out_dtype,
                           struct check_bound *bound, attn_error *error)
{
    const attn_args *args = &call->args;
    const struct problem *p = &call->problem;
    double q, k, v, unused, r, norm;
    if (!bounds_of(args->q, args->joint_q, &q, &unused) || !bounds_of(args->k, args->joint_k, &k, &unused) ||
        !bounds_of(args->v, args->joint_v, &unused, &v))
        return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the error bound");
    double dim = (double)p->head_dim, scale = p->scale > 0 ? p->scale : 1 / sqrt(dim);
    double score = scale * q * k + (p->mask == PROBLEM_MASK_ADDITIVE ? MASK_MAX : 0);
    if (p->alibi) score += (double)p->kv_len / 2; /* the largest slope is one half */
    double terms = 16 + sqrt((double)(p->kv_len + p->joint)) / 2 + score * (2 + sqrt(dim) / 8);
    rounding_of(exact, out_dtype, &r, &norm);
    bound->f32 = 0x1p-24 * v * terms;
    bound->weights = 0x1p-9 * v;
    bound->lse = 0x1p-24 * terms;
    bound->max_abs = 2 * r + bound->f32;
    bound->norm = 2 * norm + bound->f32 * sqrt((double)exact->out_count);
    return ATTN_OK;
}

struct check_bound check_bound_bf16_weights(const struct check_bound *bound, int64_t out_count)
{
    struct check_bound wide = *bound;
    wide.f32 += bound->weights;
    wide.max_abs += bound->weights;
    wide.norm += bound->weights * sqrt((double)out_count);
    return wide;
}

struct check_bound check_bound_device(const struct check_bound *bound, attn_dtype dtype, int64_t out_count)
{
    struct check_bound wide = *bound;
    double value = bound->weights * 0x1p9; /* V */
    double more = 3 * bound->f32 + (dtype == ATTN_BF16 ? 0x1p-8 : dtype == ATTN_F16 ? 0x1p-11 : 0) * value;
    wide.f32 += more;
    wide.max_abs += more;
    wide.norm += more * sqrt((double)out_count);
    wide.lse *= 4;
    return wide;
}

static attn_status too_far(const char *what, int64_t at, double found, double expected, double allowed,
                           const char *other, attn_error *error)
{
    return cli_fail(error, ATTN_KIND_INTERNAL, "%s[%lld] is %.9g, %s has %.9g; the error %.3g is beyond %.3g",
                    what, (long long)at, found, other, expected, fabs(found - expected), allowed);
}

static void use(double part, double allowed, double *share)
{
    if (part > 0 && part / allowed > *share) *share = part / allowed;
}

static double distance(const struct outcome *a, const struct outcome *b)
{
    double sum = 0;
    for (int64_t i = 0; i < b->out_count; i++) sum += (a->out[i] - b->out[i]) * (a->out[i] - b->out[i]);
    return sqrt(sum);
}

static attn_status compare_out(const struct outcome *found, const struct outcome *other,
                               const struct check_bound *bound, double factor, const char *name,
                               double *share, attn_error *error)
{
    struct tensor_error out;
    tensor_compare(found->out, other->out, other->out_count, &out);
    if (out.worst < 0) return ATTN_OK;
    if (!(out.max_abs <= factor * bound->max_abs))
        return too_far("out", out.worst, found->out[out.worst], other->out[out.worst],
                       factor * bound->max_abs, name, error);
    double norm = distance(found, other);
    if (!(norm <= factor * bound->norm))
        return cli_fail(error, ATTN_KIND_INTERNAL, "out differs from %s by %.3g in norm, beyond %.3g", name,
                        norm, factor * bound->norm);
    double r = (bound->max_abs - bound->f32) / 2;
    use(out.max_abs - r, factor * bound->max_abs - r, share);
    return ATTN_OK;
}

static attn_status compare_lse(const struct outcome *found, const struct outcome *other,
                               const struct check_bound *bound, double factor, const char *name,
                               double *share, attn_error *error)
{
    struct tensor_error lse;
    if (!found->lse || !other->lse) return ATTN_OK;
    tensor_compare(found->lse, other->lse, found->lse_count, &lse);
    if (lse.worst < 0) return ATTN_OK;
    double allowed = factor * (bound->lse + 0x1p-24 * fabs(other->lse[lse.worst]));
    if (!(lse.max_abs <= allowed))
        return too_far("lse", lse.worst, found->lse[lse.worst], other->lse[lse.worst], allowed, name, error);
    use(lse.max_abs, allowed, share);
    return ATTN_OK;
}

attn_status check_against(const struct outcome *found, const struct outcome *exact,
                          const struct check_bound *bound, double *share, attn_error *error)
{
    attn_status status = compare_out(found, exact, bound, 1, "the exact result", share, error);
    return status ? status : compare_lse(found, exact, bound, 1, "the exact result", share, error);
}

attn_status check_between(const struct outcome *found, const struct outcome *other,
                          const struct check_bound *bound, const char *name, attn_error *error)
{
    double unused = 0;
    attn_status status = compare_out(found, other, bound, 2, name, &unused, error);
    return status ? status : compare_lse(found, other, bound, 2, name, &unused, error);
}
