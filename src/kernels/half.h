/* half.h: f16 and bf16 as bits, to f32 and back, in portable C. */
#ifndef ATTN_KERNELS_HALF_H
#define ATTN_KERNELS_HALF_H

#include <stdint.h>
#include <string.h>

static inline float bits_f32(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t f32_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float bf16_to_f32(uint16_t h)
{
    return bits_f32((uint32_t)h << 16);
}

/* Round to nearest even; a NaN stays one even when its low bits are cut off. */
static inline uint16_t f32_to_bf16(float x)
{
    uint32_t b = f32_bits(x);
    if ((b & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(b >> 16 | 0x40u);
    return (uint16_t)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}

/* The exponent is moved by a multiplication, which also makes subnormals right. */
static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, rest = (uint32_t)(h & 0x7fffu) << 13;
    if (rest >= 0x0f800000u) return bits_f32(sign | rest | 0x7f800000u);
    return bits_f32(sign | f32_bits(bits_f32(rest) * 0x1p112f));
}

static inline uint16_t f32_to_f16(float x)
{
    uint32_t b = f32_bits(x), sign = b >> 16 & 0x8000u, a = b & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u);
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* rounds to infinity from 65520 on */
    if (a < 0x38800000u) { /* subnormal: adding 0.5 lets the adder round to a multiple of 2^-24 */
        return (uint16_t)(sign | (f32_bits(bits_f32(a) + 0.5f) - 0x3f000000u));
    }
    return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13));
}

#endif
