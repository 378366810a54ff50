/* vec_avx512.h: vectors of 16 floats for the files of AVX-512 sets. Everything is static, so that the linker
 * can never pick a copy built for another CPU. */
#ifndef ATTN_KERNELS_VEC_AVX512_H
#define ATTN_KERNELS_VEC_AVX512_H

#include <immintrin.h>
#include <stdint.h>

typedef __m512 vec;

#define v_zero()       _mm512_setzero_ps()
#define v_set1(x)      _mm512_set1_ps(x)
#define v_load(p)      _mm512_load_ps(p)
#define v_loadu(p)     _mm512_loadu_ps(p)
#define v_store(p, x)  _mm512_store_ps(p, x)
#define v_storeu(p, x) _mm512_storeu_ps(p, x)
#define v_add(a, b)    _mm512_add_ps(a, b)
#define v_sub(a, b)    _mm512_sub_ps(a, b)
#define v_mul(a, b)    _mm512_mul_ps(a, b)
#define v_div(a, b)    _mm512_div_ps(a, b)
#define v_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define v_max(a, b)    _mm512_max_ps(a, b)
#define v_abs(x)       _mm512_abs_ps(x)
#define v_round(x)     _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define v_sum(x)       _mm512_reduce_add_ps(x)
#define v_top(x)       _mm512_reduce_max_ps(x)

/* a < b ? x : y, lane by lane; likewise for a == b. */
#define v_pick_less(a, b, x, y)  _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x)
#define v_pick_equal(a, b, x, y) _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ), y, x)
#define v_any_nan(x)             (_mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q) != 0)

/* p * 2^n, and 0 where x < -126: neither denormals nor the NaN that -inf - round(-inf) leaves in p get out.
 */
#define v_ldexp(p, n, x)                                                                                     \
    _mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x, _mm512_set1_ps(-126.0f), _CMP_NLT_UQ), p, n)

static inline vec v_copysign(vec x, vec sign)
{
    return _mm512_or_ps(_mm512_abs_ps(x), _mm512_and_ps(sign, _mm512_set1_ps(-0.0f)));
}

static inline __mmask16 below(int64_t count)
{
    return count >= 16 ? 0xffff : count <= 0 ? 0 : (__mmask16)((1u << count) - 1);
}

/* The first `count` lanes are read, the others are 0. */
static inline vec v_load_part(const float *p, int64_t count)
{
    return _mm512_maskz_loadu_ps(below(count), p);
}

/* Lanes whose column first + lane lies outside [lo, hi) become -inf. */
static inline vec v_range(vec x, int64_t first, int64_t lo, int64_t hi)
{
    __mmask16 inside = (__mmask16)(below(hi - first) & ~below(lo - first));
    return _mm512_mask_blend_ps(inside, _mm512_set1_ps(-__builtin_inff()), x);
}

/* Lanes with a zero byte become -inf. */
static inline vec v_keep(vec x, const uint8_t *keep, int64_t count)
{
    __m128i bytes = _mm_maskz_loadu_epi8(below(count), keep);
    return _mm512_mask_blend_ps(_mm_test_epi8_mask(bytes, bytes), _mm512_set1_ps(-__builtin_inff()), x);
}

static inline vec v_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}

static inline void v_store_f16(uint16_t *p, vec x)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline vec v_load_bf16(const uint16_t *p)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/* 16 x 16 in four steps: pairs within 128 bits, quadruples, then the 128-bit quarters twice. */
static inline void v_transpose(vec t[16])
{
    vec a[16];
    for (int i = 0; i < 16; i += 2) {
        a[i] = _mm512_unpacklo_ps(t[i], t[i + 1]);
        a[i + 1] = _mm512_unpackhi_ps(t[i], t[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        t[i] = _mm512_shuffle_ps(a[i], a[i + 2], 0x44);
        t[i + 1] = _mm512_shuffle_ps(a[i], a[i + 2], 0xee);
        t[i + 2] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        t[i + 3] = _mm512_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        a[i] = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88);
        a[i + 4] = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        a[i + 8] = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88);
        a[i + 12] = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(a[i], a[i + 8], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(a[i + 4], a[i + 12], 0x88);
        t[i + 8] = _mm512_shuffle_f32x4(a[i], a[i + 8], 0xdd);
        t[i + 12] = _mm512_shuffle_f32x4(a[i + 4], a[i + 12], 0xdd);
    }
}

/* Round to nearest even; a NaN stays one even when its low bits are cut off. */
static inline void v_store_bf16(uint16_t *p, vec x)
{
    __m512i b = _mm512_castps_si512(x),
            odd = _mm512_and_si512(_mm512_srli_epi32(b, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(b, _mm512_set1_epi32(0x7fff)), odd);
    __m512i quiet = _mm512_or_si512(b, _mm512_set1_epi32(0x400000));
    rounded = _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet);
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16)));
}

/* Lane n: the sum of all lanes of t[n]. Two vectors become one in each step, half as wide. */
static inline vec v_sums(vec t[16])
{
    for (int i = 0; i < 8; i++)
        t[i] = _mm512_add_ps(_mm512_unpacklo_ps(t[2 * i], t[2 * i + 1]),
                             _mm512_unpackhi_ps(t[2 * i], t[2 * i + 1]));
    for (int i = 0; i < 4; i++)
        t[i] = _mm512_add_ps(_mm512_shuffle_ps(t[2 * i], t[2 * i + 1], 0x44),
                             _mm512_shuffle_ps(t[2 * i], t[2 * i + 1], 0xee));
    for (int n = 2; n > 0; n--) {
        for (int i = 0; i < n; i++)
            t[i] = _mm512_add_ps(_mm512_shuffle_f32x4(t[2 * i], t[2 * i + 1], 0x88),
                                 _mm512_shuffle_f32x4(t[2 * i], t[2 * i + 1], 0xdd));
    }
    return t[0];
}

#endif
