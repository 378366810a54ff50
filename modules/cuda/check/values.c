/* values.c: failures, random numbers and elements of tensors. */
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int failures;

void need(int ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "gpu-check: %s\n", what);
    exit(4);
}

void cuda(cudaError_t code, const char *what)
{
    if (!code) return;
    fprintf(stderr, "gpu-check: %s: %s\n", what, cudaGetErrorString(code));
    exit(4);
}

/* ---- random numbers ------------------------------------------------------------------------------------ */

uint64_t random_state = 1;

uint32_t random_word(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

int64_t random_below(int64_t n)
{
    return (int64_t)(random_word() % (uint32_t)n);
}

double random_unit(void)
{
    return ((double)random_word() + 0.5) / 4294967296.0;
}

double random_normal(void)
{
    return sqrt(-2 * log(random_unit())) * cos(6.283185307179586 * random_unit());
}
int chance(int percent)
{
    return random_below(100) < percent;
}

/* ---- element types ------------------------------------------------------------------------------------- */

uint16_t to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    if (isnan(x)) return 0x7fc0;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, 4);
    return x;
}

__extension__ typedef _Float16 half;

uint16_t to_f16(float x)
{
    half h = (half)x;
    uint16_t u;
    memcpy(&u, &h, 2);
    return u;
}

static float from_f16(uint16_t u)
{
    half h;
    memcpy(&h, &u, 2);
    return (float)h;
}

double element(attn_dtype dtype, const void *data, int64_t at)
{
    switch (dtype) {
    case ATTN_F16:
        return from_f16(((const uint16_t *)data)[at]);
    case ATTN_BF16:
        return from_bf16(((const uint16_t *)data)[at]);
    case ATTN_F64:
        return ((const double *)data)[at];
    default:
        return ((const float *)data)[at];
    }
}

void set_element(attn_dtype dtype, void *data, int64_t at, double x)
{
    switch (dtype) {
    case ATTN_F16:
        ((uint16_t *)data)[at] = to_f16((float)x);
        break;
    case ATTN_BF16:
        ((uint16_t *)data)[at] = to_bf16((float)x);
        break;
    case ATTN_F64:
        ((double *)data)[at] = x;
        break;
    default:
        ((float *)data)[at] = (float)x;
    }
}
