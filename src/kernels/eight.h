/* eight.h: 8-bit floating types as bits, to f32 and back, in portable C. */
#ifndef ATTN_KERNELS_EIGHT_H
#define ATTN_KERNELS_EIGHT_H

#include "kernels/half.h"

/* Mantissa bits, exponent bias, the bits of the largest finite number and of a NaN. */
typedef struct eight_format {
    int mantissa, bias;
    uint8_t most, nan;
} eight_format;

static const eight_format eight_e4m3 = {3, 7, 0x7e, 0x7f}; /* no infinity: 448 is the largest */
static const eight_format eight_e5m2 = {2, 15, 0x7b, 0x7e};

static inline float eight_to_f32(uint8_t bits, eight_format f)
{
    uint32_t sign = (uint32_t)(bits & 0x80u) << 24, rest = bits & 0x7fu;
    if (f.mantissa == 3 ? rest == 0x7fu : rest > 0x7cu) return bits_f32(sign | 0x7fc00000u);
    if (f.mantissa == 2 && rest == 0x7cu) return bits_f32(sign | 0x7f800000u);
    /* The exponent is moved by a multiplication, which also makes subnormals right. */
    float size = bits_f32(rest << (23 - f.mantissa)) * bits_f32((uint32_t)(254 - f.bias) << 23);
    return bits_f32(sign | f32_bits(size));
}

/* To nearest even, at most the largest finite number; NaN stays one. */
static inline uint8_t f32_to_eight(float x, eight_format f)
{
    uint32_t b = f32_bits(x), sign = b >> 24 & 0x80u, a = b & 0x7fffffffu;
    const int shift = 23 - f.mantissa;
    if (a > 0x7f800000u) return (uint8_t)(sign | f.nan);
    if (a < (uint32_t)(128 - f.bias) << 23) { /* subnormal: the adder rounds to a multiple of the step */
        uint32_t magic = (uint32_t)(128 - f.bias - f.mantissa + 23) << 23;
        return (uint8_t)(sign | (f32_bits(bits_f32(a) + bits_f32(magic)) - magic));
    }
    uint32_t r =
        (a - ((uint32_t)(127 - f.bias) << 23) + ((1u << (shift - 1)) - 1) + (a >> shift & 1u)) >> shift;
    return (uint8_t)(sign | (r > f.most ? f.most : r));
}

#endif
