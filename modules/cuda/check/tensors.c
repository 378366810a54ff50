/* tensors.c: one tensor in three forms, and how two of them differ. */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void make(tensor *t, attn_dtype dtype, int ndim, const int64_t *shape, int64_t inner, int wide)
{
    int64_t step = inner, dense = 1;
    memset(t, 0, sizeof *t);
    t->dtype = dtype;
    for (int i = ndim - 1; i >= 0; i--) {
        t->shape[i] = shape[i];
        t->strides[i] = step, t->wide_strides[i] = dense;
        step *= shape[i], dense *= shape[i];
    }
    t->elements = step, t->count = dense;
    t->bytes = (size_t)(step ? step : 1) * attn_dtype_bytes(dtype);
    for (int f = 0; f < FORMS; f++) {
        int own = f == WIDE && wide;
        t->dl[f] = (DLTensor){.device = {f == DEVICE ? kDLCUDA : kDLCPU, 0},
                              .ndim = ndim,
                              .dtype = attn_dtype_to_dl(own ? ATTN_F64 : dtype),
                              .shape = t->shape,
                              .strides = own ? t->wide_strides : t->strides};
    }
    t->dl[HOST].data = calloc(1, t->bytes);
    t->dl[WIDE].data = wide ? calloc((size_t)dense + 1, 8) : t->dl[HOST].data;
    need(t->dl[HOST].data && t->dl[WIDE].data, "no memory");
    cuda(cudaMalloc(&t->dl[DEVICE].data, t->bytes), "cudaMalloc");
}

void drop(tensor *t)
{
    if (t->dl[WIDE].data != t->dl[HOST].data) free(t->dl[WIDE].data);
    free(t->dl[HOST].data);
    if (t->dl[DEVICE].data) cudaFree(t->dl[DEVICE].data);
    memset(t, 0, sizeof *t);
}

int64_t offset_of(const tensor *t, int64_t flat)
{
    int64_t at = 0;
    for (int i = t->dl[HOST].ndim - 1; i >= 0; i--) {
        at += flat % t->shape[i] * t->strides[i];
        flat /= t->shape[i];
    }
    return at;
}

void set(tensor *t, int64_t flat, double x)
{
    int64_t at = offset_of(t, flat);
    set_element(t->dtype, t->dl[HOST].data, at, x);
    if (t->dl[WIDE].data != t->dl[HOST].data)
        ((double *)t->dl[WIDE].data)[flat] = element(t->dtype, t->dl[HOST].data, at);
}

void upload(tensor *t)
{
    cuda(cudaMemcpy(t->dl[DEVICE].data, t->dl[HOST].data, t->bytes, cudaMemcpyHostToDevice), "upload");
}

void fill(tensor *t, double scale)
{
    for (int64_t i = 0; i < t->count; i++) set(t, i, random_normal() * scale);
}
void poison(tensor *t)
{
    cuda(cudaMemset(t->dl[DEVICE].data, 0xa5, t->bytes), "memset");
}

int64_t compare(tensor *t, const void *want, int wide, double *worst, double *l2)
{
    double error = 0, norm = 0;
    int64_t wrong = 0;
    cuda(cudaMemcpy(t->dl[HOST].data, t->dl[DEVICE].data, t->bytes, cudaMemcpyDeviceToHost), "download");
    *worst = 0;
    for (int64_t i = 0; i < t->count; i++) {
        double got = element(t->dtype, t->dl[HOST].data, offset_of(t, i));
        double truth = wide ? ((const double *)want)[i] : (double)((const float *)want)[i];
        if (isfinite(got) && isfinite(truth)) {
            double e = fabs(got - truth);
            if (e > *worst) *worst = e;
            error += e * e, norm += truth * truth;
        } else if (!(isnan(got) && isnan(truth)) && got != truth) {
            wrong++;
        }
    }
    *l2 = norm > 0 ? sqrt(error / norm) : sqrt(error);
    return wrong;
}
