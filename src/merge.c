/* merge.c: two partial results over disjoint keys become one, by their log-sum-exps. */
#include "core/tensor.h"

#include "core/dtype.h"
#include "kernels/half.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct part {
    attn_view out, lse;
} part;

static attn_status read_part(const char *out_name, const char *lse_name, const DLTensor *out,
                             const DLTensor *lse, part *p, attn_error *error)
{
    if (!out || !lse)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "%s is NULL; a merge needs both outputs and both lse", out ? lse_name : out_name);
    ATTN_TRY(attn_view_read(out_name, out, 4, 4, &p->out, error));
    ATTN_TRY(attn_view_read(lse_name, lse, 3, 3, &p->lse, error));
    if (p->out.device.device_type != kDLCPU || p->lse.device.device_type != kDLCPU)
        return attn_fail(error, ATTN_KIND_DEVICE_MISMATCH,
                         "%s or %s is not in host memory; merge on the host", out_name, lse_name);
    if (p->lse.dtype != ATTN_F32)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE, "%s is %s; it is fp32", lse_name,
                         attn_dtype_word(p->lse.dtype));
    bool fits = p->lse.shape[0] == p->out.shape[0] && p->lse.shape[1] == p->out.shape[2] &&
                p->lse.shape[2] == p->out.shape[1];
    char a[96], b[96];
    if (!fits)
        return attn_fail(
            error, ATTN_KIND_INVALID_SHAPE, "%s has shape %s for %s of shape %s; it is [batch, heads, rows]",
            lse_name, attn_view_shape(&p->lse, a, sizeof a), out_name, attn_view_shape(&p->out, b, sizeof b));
    return ATTN_OK;
}

static bool readable(attn_dtype t)
{
    return t == ATTN_F32 || t == ATTN_F64 || t == ATTN_F16 || t == ATTN_BF16;
}

static double read_number(const void *from, attn_dtype t)
{
    switch (t) {
    case ATTN_F64:
        return *(const double *)from;
    case ATTN_F16:
        return f16_to_f32(*(const uint16_t *)from);
    case ATTN_BF16:
        return bf16_to_f32(*(const uint16_t *)from);
    default:
        return *(const float *)from;
    }
}

static void write_number(void *to, attn_dtype t, double value)
{
    switch (t) {
    case ATTN_F64:
        *(double *)to = value;
        break;
    case ATTN_F16:
        *(uint16_t *)to = f32_to_f16((float)value);
        break;
    case ATTN_BF16:
        *(uint16_t *)to = f32_to_bf16((float)value);
        break;
    default:
        *(float *)to = (float)value;
    }
}

static attn_status check_alike(const part *a, const part *b, attn_error *error)
{
    char x[96], y[96];
    if (a->out.dtype != b->out.dtype || !readable(a->out.dtype))
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE,
                         "%s %s, %s %s: a merge takes one type of fp32, fp16, bf16, fp64", a->out.name,
                         attn_dtype_word(a->out.dtype), b->out.name, attn_dtype_word(b->out.dtype));
    if (memcmp(a->out.shape, b->out.shape, sizeof a->out.shape))
        return attn_fail(error, ATTN_KIND_INVALID_SHAPE, "%s has shape %s and %s %s; make them equal",
                         a->out.name, attn_view_shape(&a->out, x, sizeof x), b->out.name,
                         attn_view_shape(&b->out, y, sizeof y));
    return ATTN_OK;
}

static char *at(const attn_view *v, int64_t i, int64_t j, int64_t k)
{
    int64_t width = (int64_t)attn_dtype_bytes(v->dtype);
    return v->data + (i * v->stride[0] + j * v->stride[1] + k * v->stride[2]) * width;
}

/* Weights of the two parts; two empty parts weigh nothing. */
static double weights(double la, double lb, double *wa, double *wb)
{
    double most = la > lb ? la : lb;
    *wa = *wb = 0;
    /* What is not a number, or infinitely heavy, has no honest weight: it shows in the result. */
    if (isnan(la) || isnan(lb) || la == INFINITY || lb == INFINITY) return *wa = *wb = NAN;
    if (most == -INFINITY) return -INFINITY;
    double ea = exp(la - most), eb = exp(lb - most), sum = ea + eb;
    *wa = ea / sum;
    *wb = eb / sum;
    return most + log(sum);
}

static void merge_row(const part *a, const part *b, const part *to, int64_t batch, int64_t row, int64_t head)
{
    double wa, wb,
        lse = weights(*(float *)(void *)at(&a->lse, batch, head, row),
                      *(float *)(void *)at(&b->lse, batch, head, row), &wa, &wb);
    attn_dtype t = to->out.dtype;
    int64_t width = (int64_t)attn_dtype_bytes(t);
    for (int64_t d = 0; d < to->out.shape[3]; d++) {
        double x = read_number(at(&a->out, batch, row, head) + d * a->out.stride[3] * width, t);
        double y = read_number(at(&b->out, batch, row, head) + d * b->out.stride[3] * width, t);
        /* A part of weight 0 is left out, so that whatever it holds cannot spread. */
        double sum = (wa == 0 ? 0 : wa * x) + (wb == 0 ? 0 : wb * y);
        write_number(at(&to->out, batch, row, head) + d * to->out.stride[3] * width, t, sum);
    }
    *(float *)(void *)at(&to->lse, batch, head, row) = (float)lse;
}

static bool same_place(const attn_view *a, const attn_view *b)
{
    return a->data == b->data && a->dtype == b->dtype && a->ndim == b->ndim &&
           !memcmp(a->stride, b->stride, sizeof a->stride);
}

/* The result may be one of the parts, element for element, but not lie across one. */
static attn_status check_target(const part *a, const part *b, const part *to, attn_error *error)
{
    const attn_view *outputs[] = {&to->out, &to->lse}, *inputs[] = {&a->out, &a->lse, &b->out, &b->lse};
    for (int o = 0; o < 2; o++) {
        ATTN_TRY(attn_view_writable(outputs[o], error));
        for (int i = 0; i < 4; i++)
            if (!same_place(outputs[o], inputs[i]) && attn_views_overlap(outputs[o], inputs[i]))
                return attn_fail(
                    error, ATTN_KIND_INVALID_LAYOUT,
                    "%s overlaps %s in memory; make it the same tensor or give it memory of its own",
                    outputs[o]->name, inputs[i]->name);
    }
    if (attn_views_overlap(&to->out, &to->lse))
        return attn_fail(error, ATTN_KIND_INVALID_LAYOUT,
                         "out overlaps lse in memory; give each memory of its own");
    return ATTN_OK;
}

attn_status attn_merge(const DLTensor *out_a, const DLTensor *lse_a, const DLTensor *out_b,
                       const DLTensor *lse_b, const DLTensor *out, const DLTensor *lse, attn_error *error)
{
    part a, b, to;
    ATTN_TRY(read_part("out_a", "lse_a", out_a, lse_a, &a, error));
    ATTN_TRY(read_part("out_b", "lse_b", out_b, lse_b, &b, error));
    ATTN_TRY(read_part("out", "lse", out, lse, &to, error));
    ATTN_TRY(check_alike(&a, &b, error));
    ATTN_TRY(check_alike(&a, &to, error));
    ATTN_TRY(check_target(&a, &b, &to, error));
    for (int64_t i = 0; i < a.out.shape[0]; i++)
        for (int64_t s = 0; s < a.out.shape[1]; s++)
            for (int64_t h = 0; h < a.out.shape[2]; h++) merge_row(&a, &b, &to, i, s, h);
    return ATTN_OK;
}
