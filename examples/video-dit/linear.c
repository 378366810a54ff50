/* linear.c: the small dense pieces that run once per clip or step. */
#include "linear.h"
#include "shape.h"
#include <cblas.h>
#include <math.h>
#include <string.h>

void linear(const float *w, const float *bias, const float *x, float *y, int out, int in)
{
    if (bias)
        memcpy(y, bias, (size_t)out * sizeof *y);
    else
        memset(y, 0, (size_t)out * sizeof *y);
    cblas_sgemv(CblasRowMajor, CblasNoTrans, out, in, 1, w, in, x, 1, 1, y, 1);
}

void fourier(const double *u, int count, float *to)
{
    for (int i = 0; i < count; i++, to += FEATURE) {
        to[0] = (float)u[i];
        for (int k = 0; k < WAVES; k++) {
            double angle = ldexp(3.14159265358979323846, k) * u[i];
            to[1 + k] = (float)sin(angle);
            to[1 + WAVES + k] = (float)cos(angle);
        }
    }
}

void silu(float *x, int count)
{
    for (int i = 0; i < count; i++) x[i] /= 1 + expf(-x[i]);
}
