/* reference_numbers.c: element types to double and back, each rounded once and independent of the CPU. */
#include "backends/reference.h"

#include "kernels/eight.h"

#include <string.h>

/* ---- 16-bit formats --------------------------------------------------------------------------- */

/* A sign, exponent bits (biased, all ones: infinity or NaN), mantissa bits. */
typedef struct format {
    int exponent, mantissa;
} format;

static const format f16 = {5, 10}, bf16 = {8, 7};

static double from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t to_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double widen(uint16_t half, format f)
{
    int64_t bias = (1 << (f.exponent - 1)) - 1, top = (1 << f.exponent) - 1;
    uint64_t sign = (uint64_t)(half >> 15) << 63;
    int64_t exponent = half >> f.mantissa & top;
    uint64_t mantissa = half & (((uint64_t)1 << f.mantissa) - 1);
    if (exponent == 0) { /* a denormal is a whole number of the smallest steps */
        double step = from_bits((uint64_t)(1023 + 1 - bias - f.mantissa) << 52);
        double value = (double)mantissa * step;
        return sign ? -value : value;
    }
    uint64_t wide = exponent == top ? 2047 : (uint64_t)(exponent - bias + 1023);
    return from_bits(sign | wide << 52 | mantissa << (52 - f.mantissa));
}

/* The steps of 2^shift in m, to nearest, ties to even. */
static uint64_t round_shift(uint64_t m, int64_t shift)
{
    if (shift > 53) return 0;
    uint64_t steps = m >> shift, rest = m & (((uint64_t)1 << shift) - 1), half = (uint64_t)1 << (shift - 1);
    return steps + (rest > half || (rest == half && (steps & 1)));
}

static uint16_t narrow(double value, format f)
{
    int64_t bias = (1 << (f.exponent - 1)) - 1, lowest = 1 - bias;
    uint64_t bits = to_bits(value), sign = bits >> 63 << 15, size = bits << 1 >> 1;
    uint64_t infinity = (((uint64_t)1 << f.exponent) - 1) << f.mantissa;
    int64_t exponent = (int64_t)(size >> 52) - 1023, shift = 52 - f.mantissa;
    if (size > (uint64_t)2047 << 52) /* NaN stays one, quiet, with what fits of its payload */
        return (uint16_t)(sign | infinity | (uint64_t)1 << (f.mantissa - 1) |
                          (size >> shift & (((uint64_t)1 << f.mantissa) - 1)));
    if (exponent > bias) return (uint16_t)(sign | infinity);
    if (exponent == -1023) return (uint16_t)sign; /* zero and denormal doubles */
    uint64_t m = (size & (((uint64_t)1 << 52) - 1)) | (uint64_t)1 << 52;
    if (exponent < lowest) return (uint16_t)(sign | round_shift(m, shift + lowest - exponent));
    /* m's leading one adds one to the exponent field, and so does a carry out of the mantissa. */
    return (uint16_t)(sign | (((uint64_t)(exponent - lowest) << f.mantissa) + round_shift(m, shift)));
}

/* ---- rows of elements ------------------------------------------------------------------------- */

#define LOAD(type, convert)                                                                                  \
    for (int64_t i = 0; i < n; i++) to[i * to_stride] = convert(((const type *)from)[i * from_stride])
#define STORE(type, convert)                                                                                 \
    for (int64_t i = 0; i < n; i++) ((type *)to)[i * to_stride] = convert(from[i])
#define WIDEN_F16(x)   widen(x, f16)
#define WIDEN_BF16(x)  widen(x, bf16)
#define WIDEN_E4M3(x)  (double)eight_to_f32(x, eight_e4m3)
#define WIDEN_E5M2(x)  (double)eight_to_f32(x, eight_e5m2)
#define NARROW_F16(x)  narrow(x, f16)
#define NARROW_BF16(x) narrow(x, bf16)

void reference_load(attn_dtype dtype, const void *from, int64_t from_stride, int64_t n, double *to,
                    int64_t to_stride)
{
    switch (dtype) {
    case ATTN_F32:
        LOAD(float, (double));
        break;
    case ATTN_F64:
        LOAD(double, (double));
        break;
    case ATTN_F16:
        LOAD(uint16_t, WIDEN_F16);
        break;
    case ATTN_BF16:
        LOAD(uint16_t, WIDEN_BF16);
        break;
    case ATTN_F8E4M3:
        LOAD(uint8_t, WIDEN_E4M3);
        break;
    case ATTN_F8E5M2:
        LOAD(uint8_t, WIDEN_E5M2);
        break;
    case ATTN_I8:
        LOAD(int8_t, (double));
        break;
    }
}

void reference_store(attn_dtype dtype, void *to, int64_t to_stride, int64_t n, const double *from)
{
    switch (dtype) {
    case ATTN_F32:
        STORE(float, (float));
        break;
    case ATTN_F64:
        STORE(double, (double));
        break;
    case ATTN_F16:
        STORE(uint16_t, NARROW_F16);
        break;
    case ATTN_BF16:
        STORE(uint16_t, NARROW_BF16);
        break;
    }
}
