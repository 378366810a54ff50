/* flash_neon.c: the kernel set for aarch64: vectors of 4, register tiles of 12 x 2. */
#if defined(__aarch64__)
#include <arm_neon.h>
#include <stdint.h>
#include <string.h>

/* 12 x 2 sums, 2 vectors of B and a broadcast are 27 of 32 registers. */
#define CHUNK    12
#define LANES    4
#define CASES(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)

typedef float32x4_t vec;

#define v_zero()       vdupq_n_f32(0)
#define v_set1(x)      vdupq_n_f32(x)
#define v_load(p)      vld1q_f32(p)
#define v_loadu(p)     vld1q_f32(p)
#define v_store(p, x)  vst1q_f32(p, x)
#define v_storeu(p, x) vst1q_f32(p, x)
#define v_add(a, b)    vaddq_f32(a, b)
#define v_sub(a, b)    vsubq_f32(a, b)
#define v_mul(a, b)    vmulq_f32(a, b)
#define v_div(a, b)    vdivq_f32(a, b)
#define v_fma(a, b, c) vfmaq_f32(c, a, b)
#define v_max(a, b)    vmaxnmq_f32(a, b) /* a number wins over a NaN */
#define v_abs(x)       vabsq_f32(x)
#define v_round(x)     vrndnq_f32(x)
#define v_sum(x)       vaddvq_f32(x)
#define v_top(x)       vmaxnmvq_f32(x)

/* a < b ? x : y, lane by lane; likewise for a == b. */
#define v_pick_less(a, b, x, y)  vbslq_f32(vcltq_f32(a, b), x, y)
#define v_pick_equal(a, b, x, y) vbslq_f32(vceqq_f32(a, b), x, y)
#define v_any_nan(x)             (vminvq_u32(vceqq_f32(x, x)) == 0)

/* p * 2^n by adding n to the exponent of p, and 0 where x < -126, where that would leave the normal numbers
 * (and where -inf - round(-inf) left a NaN in p). A NaN in x keeps p, which is NaN. */
static inline vec v_ldexp(vec p, vec n, vec x)
{
    int32x4_t shift = vshlq_n_s32(vcvtq_s32_f32(n), 23);
    uint32x4_t scaled = vreinterpretq_u32_s32(vaddq_s32(vreinterpretq_s32_f32(p), shift));
    return vreinterpretq_f32_u32(vbicq_u32(scaled, vcltq_f32(x, vdupq_n_f32(-126.0f))));
}

static inline vec v_copysign(vec x, vec sign)
{
    return vbslq_f32(vdupq_n_u32(0x80000000u), sign, x);
}

/* All bits in the lanes below `count`. */
static inline uint32x4_t below(int64_t count)
{
    static const int32_t lanes[LANES] = {0, 1, 2, 3};
    int32_t n = count >= LANES ? LANES : count <= 0 ? 0 : (int32_t)count;
    return vcltq_s32(vld1q_s32(lanes), vdupq_n_s32(n));
}

/* The first `count` lanes are read, the others are 0. */
static inline vec v_load_part(const float *p, int64_t count)
{
    float part[LANES] = {0};
    if (count >= LANES) return vld1q_f32(p);
    for (int64_t i = 0; i < count; i++) part[i] = p[i];
    return vld1q_f32(part);
}

/* Lanes whose column first + lane lies outside [lo, hi) become -inf. */
static inline vec v_range(vec x, int64_t first, int64_t lo, int64_t hi)
{
    uint32x4_t inside = vbicq_u32(below(hi - first), below(lo - first));
    return vbslq_f32(inside, x, vdupq_n_f32(-__builtin_inff()));
}

/* Lanes with a zero byte become -inf. */
static inline vec v_keep(vec x, const uint8_t *keep, int64_t count)
{
    uint32_t bytes[LANES] = {0};
    for (int64_t i = 0; i < LANES && i < count; i++) bytes[i] = keep[i];
    return vbslq_f32(vceqq_u32(vld1q_u32(bytes), vdupq_n_u32(0)), vdupq_n_f32(-__builtin_inff()), x);
}

/* Halves are loaded as integers: memory need not hold the type that converts them. */
static inline vec v_load_f16(const uint16_t *p)
{
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p)));
}

static inline void v_store_f16(uint16_t *p, vec x)
{
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x)));
}

static inline vec v_load_bf16(const uint16_t *p)
{
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
}

/* Round to nearest even; a NaN stays one even when its low bits are cut off. */
static inline void v_store_bf16(uint16_t *p, vec x)
{
    uint32x4_t b = vreinterpretq_u32_f32(x), odd = vandq_u32(vshrq_n_u32(b, 16), vdupq_n_u32(1));
    uint32x4_t rounded = vaddq_u32(vaddq_u32(b, vdupq_n_u32(0x7fff)), odd);
    uint32x4_t quiet = vorrq_u32(b, vdupq_n_u32(0x400000));
    vst1_u16(p, vshrn_n_u32(vbslq_u32(vceqq_f32(x, x), rounded, quiet), 16));
}

/* Pairs, then halves. */
static inline void v_transpose(vec t[4])
{
    float64x2_t a = vreinterpretq_f64_f32(vtrn1q_f32(t[0], t[1])),
                b = vreinterpretq_f64_f32(vtrn2q_f32(t[0], t[1]));
    float64x2_t c = vreinterpretq_f64_f32(vtrn1q_f32(t[2], t[3])),
                d = vreinterpretq_f64_f32(vtrn2q_f32(t[2], t[3]));
    t[0] = vreinterpretq_f32_f64(vtrn1q_f64(a, c));
    t[1] = vreinterpretq_f32_f64(vtrn1q_f64(b, d));
    t[2] = vreinterpretq_f32_f64(vtrn2q_f64(a, c));
    t[3] = vreinterpretq_f32_f64(vtrn2q_f64(b, d));
}

/* Lane n: the sum of all lanes of t[n]. */
static inline vec v_sums(vec t[4])
{
    return vpaddq_f32(vpaddq_f32(t[0], t[1]), vpaddq_f32(t[2], t[3]));
}

#include "kernels/flash_tmpl.h"

extern const attn_kernels attn_kernels_neon;
const attn_kernels attn_kernels_neon = KERNEL_SET("neon");
#else
typedef int attn_no_neon;
#endif
