/* tensor.c: test tensors: memory, elements, generators, comparisons. */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- 16-bit floats, written for tests so that they do not share the library's rounding ---- */

static double half_to_double(uint16_t bits)
{
    int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    double magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                       : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                      : ldexp(fraction, -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}

static uint16_t double_to_half(double x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    double a = fabs(x);
    if (isnan(x)) return 0x7e00;
    if (a >= 65520) return (uint16_t)(sign | 0x7c00);
    int exponent;
    frexp(a, &exponent); /* a in [2^(exponent-1), 2^exponent) */
    int scale = exponent - 11 < -24 ? -24 : exponent - 11;
    double units = nearbyint(ldexp(a, -scale)); /* default rounding is to nearest even */
    if (units == 2048) units = 1024, scale++;
    if (units < 1024) return (uint16_t)(sign | (uint16_t)units);
    return (uint16_t)(sign | ((unsigned)(scale + 25) << 10) | ((unsigned)units & 1023u));
}

static double bf16_to_double(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float f;
    memcpy(&f, &wide, 4);
    return f;
}

static uint16_t double_to_bf16(double x)
{
    float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    if (isnan(x)) return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

/* ---- elements ---- */

static char *address(const DLTensor *t, const int64_t *index)
{
    int64_t offset = 0, dense = 1;
    for (int i = t->ndim - 1; i >= 0; i--) {
        offset += index[i] * (t->strides ? t->strides[i] : dense);
        dense *= t->shape[i];
    }
    return (char *)t->data + t->byte_offset + offset * (t->dtype.bits / 8);
}

double tensor_get(const DLTensor *t, const int64_t *index)
{
    const char *p = address(t, index);
    float f;
    double d;
    uint16_t h;
    int32_t i;
    int64_t l;
    switch (attn_dtype_from_dl(t->dtype)) {
    case ATTN_F32:
        memcpy(&f, p, 4);
        return f;
    case ATTN_F64:
        memcpy(&d, p, 8);
        return d;
    case ATTN_F16:
        memcpy(&h, p, 2);
        return half_to_double(h);
    case ATTN_BF16:
        memcpy(&h, p, 2);
        return bf16_to_double(h);
    case ATTN_I32:
        memcpy(&i, p, 4);
        return i;
    case ATTN_I64:
        memcpy(&l, p, 8);
        return (double)l;
    case ATTN_I8:
        return *(const int8_t *)p;
    default:
        return *(const uint8_t *)p;
    }
}

void tensor_set(const DLTensor *t, const int64_t *index, double value)
{
    char *p = address(t, index);
    float f = (float)value;
    uint16_t h;
    int32_t i;
    int64_t l;
    switch (attn_dtype_from_dl(t->dtype)) {
    case ATTN_F32:
        memcpy(p, &f, 4);
        break;
    case ATTN_F64:
        memcpy(p, &value, 8);
        break;
    case ATTN_F16:
        h = double_to_half(value), memcpy(p, &h, 2);
        break;
    case ATTN_BF16:
        h = double_to_bf16(value), memcpy(p, &h, 2);
        break;
    case ATTN_I32:
        i = (int32_t)value, memcpy(p, &i, 4);
        break;
    case ATTN_I64:
        l = (int64_t)value, memcpy(p, &l, 8);
        break;
    case ATTN_I8:
        *(int8_t *)p = (int8_t)value;
        break;
    default:
        *(uint8_t *)p = (uint8_t)value;
        break;
    }
}

static void unflatten(const DLTensor *t, int64_t flat, int64_t *index)
{
    for (int i = t->ndim - 1; i >= 0; i--) {
        index[i] = flat % t->shape[i];
        flat /= t->shape[i];
    }
}

double tensor_flat(const DLTensor *t, int64_t flat)
{
    int64_t index[4] = {0};
    unflatten(t, flat, index);
    return tensor_get(t, index);
}

void tensor_set_flat(const DLTensor *t, int64_t flat, double value)
{
    int64_t index[4] = {0};
    unflatten(t, flat, index);
    tensor_set(t, index, value);
}

int64_t tensor_count(const DLTensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->ndim; i++) n *= t->shape[i];
    return n;
}

/* ---- memory ---- */

void tensor_view(tensor *t, attn_dtype dtype, int ndim, const int64_t *shape, const int64_t *strides,
                 void *data)
{
    memset(t, 0, sizeof *t);
    t->dl.data = data;
    t->dl.ndim = ndim;
    t->dl.dtype = attn_dtype_to_dl(dtype);
    t->dl.shape = t->shape;
    t->dl.strides = t->strides;
    memcpy(t->shape, shape, (size_t)ndim * sizeof *shape);
    memcpy(t->strides, strides, (size_t)ndim * sizeof *strides);
    t->dl.device = (DLDevice){kDLCPU, 0};
}

void tensor_make(tensor *t, attn_dtype dtype, int ndim, const int64_t *shape)
{
    int64_t strides[4], n = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        strides[i] = n;
        n *= shape[i];
    }
    size_t bytes = (size_t)n * attn_dtype_bytes(dtype);
    void *memory = malloc(bytes ? bytes : 1);
    assert_non_null(memory);
    memset(memory, 0xff, bytes ? bytes : 1);
    tensor_view(t, dtype, ndim, shape, strides, memory);
    t->memory = memory;
    t->bytes = bytes;
}

void tensor_free(tensor *t)
{
    free(t->memory);
    t->memory = NULL;
}

/* ---- generators ---- */

void tensor_generate(const tensor *t, double (*value)(int64_t n, const void *arg), const void *arg)
{
    int64_t count = tensor_count(&t->dl);
    for (int64_t n = 0; n < count; n++) tensor_set_flat(&t->dl, n, value(n, arg));
}

static double constant(int64_t n, const void *arg)
{
    (void)n;
    return *(const double *)arg;
}

void tensor_fill(const tensor *t, double value)
{
    tensor_generate(t, constant, &value);
}

typedef struct mix {
    uint32_t seed;
    double scale;
} mix;

static double mix32(int64_t n, const void *arg)
{
    const mix *m = arg;
    uint32_t h = (uint32_t)n + m->seed * 0x9E3779B9u;
    h ^= h >> 16;
    h *= 0x85EBCA6Bu;
    h ^= h >> 13;
    h *= 0xC2B2AE35u;
    h ^= h >> 16;
    return ((double)(h >> 8) / 8388608.0 - 1) * m->scale;
}

void tensor_mix32(const tensor *t, uint32_t seed, double scale)
{
    mix m = {seed, scale};
    tensor_generate(t, mix32, &m);
}

void tensor_copy(const DLTensor *to, const DLTensor *from)
{
    int64_t count = tensor_count(from);
    for (int64_t n = 0; n < count; n++) tensor_set_flat(to, n, tensor_flat(from, n));
}

/* ---- comparisons ---- */

void value_near(const char *label, double got, double want, double atol)
{
    int same_infinity = isinf(want) && isinf(got) && signbit(got) == signbit(want);
    if (same_infinity || fabs(got - want) <= atol) return;
    fail_msg("%s: got %.9g, expected %.9g within %g", label, got, want, atol);
}

void tensor_all_near(const char *label, const tensor *t, double value, double atol)
{
    int64_t count = tensor_count(&t->dl);
    for (int64_t n = 0; n < count; n++) value_near(label, tensor_flat(&t->dl, n), value, atol);
}

void tensor_near(const char *label, const DLTensor *got, const DLTensor *want, double atol)
{
    int64_t count = tensor_count(want);
    assert_int_equal(tensor_count(got), count);
    for (int64_t n = 0; n < count; n++) value_near(label, tensor_flat(got, n), tensor_flat(want, n), atol);
}

void tensor_same(const char *label, const DLTensor *got, const DLTensor *want)
{
    int64_t count = tensor_count(want);
    assert_int_equal(tensor_count(got), count);
    for (int64_t n = 0; n < count; n++) {
        double a = tensor_flat(got, n), b = tensor_flat(want, n);
        if (!(a == b) || signbit(a) != signbit(b))
            fail_msg("%s: element %lld is %.17g in one run and %.17g in the other", label, (long long)n, a,
                     b);
    }
}

void text_has(const char *text, const char *word)
{
    if (!strstr(text, word)) fail_msg("the text \"%s\" does not name \"%s\"", text, word);
}
