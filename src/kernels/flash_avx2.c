/* flash_avx2.c: the kernel set for AVX2 with FMA and F16C: vectors of 8, register tiles of 6 x 2. */
#if defined(__x86_64__)
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* 6 x 2 sums, 2 vectors of B and a broadcast are 15 of 16 registers. */
#define CHUNK    6
#define LANES    8
#define CASES(X) X(1) X(2) X(3) X(4) X(5) X(6)

typedef __m256 vec;

#define v_zero()       _mm256_setzero_ps()
#define v_set1(x)      _mm256_set1_ps(x)
#define v_load(p)      _mm256_load_ps(p)
#define v_loadu(p)     _mm256_loadu_ps(p)
#define v_store(p, x)  _mm256_store_ps(p, x)
#define v_storeu(p, x) _mm256_storeu_ps(p, x)
#define v_add(a, b)    _mm256_add_ps(a, b)
#define v_sub(a, b)    _mm256_sub_ps(a, b)
#define v_mul(a, b)    _mm256_mul_ps(a, b)
#define v_div(a, b)    _mm256_div_ps(a, b)
#define v_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define v_max(a, b)    _mm256_max_ps(a, b)
#define v_abs(x)       _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x)
#define v_round(x)     _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

/* a < b ? x : y, lane by lane; likewise for a == b. */
#define v_pick_less(a, b, x, y)  _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ))
#define v_pick_equal(a, b, x, y) _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_EQ_OQ))
#define v_any_nan(x)             (_mm256_movemask_ps(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)) != 0)

static inline float v_sum(vec x)
{
    __m128 a = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    a = _mm_add_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}

static inline float v_top(vec x)
{
    __m128 a = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    a = _mm_max_ps(a, _mm_movehl_ps(a, a));
    return _mm_cvtss_f32(_mm_max_ss(a, _mm_movehdup_ps(a)));
}

/* p * 2^n by adding n to the exponent of p, and 0 where x < -126, where that would leave the normal numbers
 * (and where -inf - round(-inf) left a NaN in p). A NaN in x keeps p, which is NaN. */
static inline vec v_ldexp(vec p, vec n, vec x)
{
    __m256i shift = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    vec scaled = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), shift));
    return _mm256_and_ps(scaled, _mm256_cmp_ps(x, _mm256_set1_ps(-126.0f), _CMP_NLT_UQ));
}

static inline vec v_copysign(vec x, vec sign)
{
    return _mm256_or_ps(v_abs(x), _mm256_and_ps(sign, _mm256_set1_ps(-0.0f)));
}

/* All bits in the lanes below `count`. */
static inline __m256i below(int64_t count)
{
    int lanes = count >= LANES ? LANES : count <= 0 ? 0 : (int)count;
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(lanes), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* The first `count` lanes are read, the others are 0. */
static inline vec v_load_part(const float *p, int64_t count)
{
    return count >= LANES ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, below(count));
}

/* Lanes whose column first + lane lies outside [lo, hi) become -inf. */
static inline vec v_range(vec x, int64_t first, int64_t lo, int64_t hi)
{
    __m256i inside = _mm256_andnot_si256(below(lo - first), below(hi - first));
    return _mm256_blendv_ps(_mm256_set1_ps(-__builtin_inff()), x, _mm256_castsi256_ps(inside));
}

/* Lanes with a zero byte become -inf. */
static inline vec v_keep(vec x, const uint8_t *keep, int64_t count)
{
    uint64_t bytes = 0;
    if (count >= LANES)
        memcpy(&bytes, keep, LANES);
    else
        memcpy(&bytes, keep, (size_t)count);
    __m256i wide = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)bytes));
    vec none = _mm256_castsi256_ps(_mm256_cmpeq_epi32(wide, _mm256_setzero_si256()));
    return _mm256_blendv_ps(x, _mm256_set1_ps(-__builtin_inff()), none);
}

static inline vec v_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

static inline void v_store_f16(uint16_t *p, vec x)
{
    _mm_storeu_si128((__m128i *)p, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

static inline vec v_load_bf16(const uint16_t *p)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

/* Round to nearest even; a NaN stays one even when its low bits are cut off. */
static inline void v_store_bf16(uint16_t *p, vec x)
{
    __m256i b = _mm256_castps_si256(x),
            odd = _mm256_and_si256(_mm256_srli_epi32(b, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(b, _mm256_set1_epi32(0x7fff)), odd);
    __m256 quiet = _mm256_or_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(0x400000)));
    __m256 unordered = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    rounded = _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded), quiet, unordered));
    rounded = _mm256_srli_epi32(rounded, 16);
    _mm_storeu_si128((__m128i *)p,
                     _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1)));
}

/* 8 x 8 in three steps: pairs within 128 bits, quadruples, then the halves. */
static inline void v_transpose(vec t[8])
{
    vec a[8];
    for (int i = 0; i < 8; i += 2) {
        a[i] = _mm256_unpacklo_ps(t[i], t[i + 1]);
        a[i + 1] = _mm256_unpackhi_ps(t[i], t[i + 1]);
    }
    vec b[8];
    for (int i = 0; i < 8; i += 4) {
        b[i] = _mm256_shuffle_ps(a[i], a[i + 2], 0x44);
        b[i + 1] = _mm256_shuffle_ps(a[i], a[i + 2], 0xee);
        b[i + 2] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0x44);
        b[i + 3] = _mm256_shuffle_ps(a[i + 1], a[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
    }
}

/* Lane n: the sum of all lanes of t[n]. Two vectors become one in each step, half as wide. */
static inline vec v_sums(vec t[8])
{
    for (int i = 0; i < 4; i++)
        t[i] = _mm256_add_ps(_mm256_unpacklo_ps(t[2 * i], t[2 * i + 1]),
                             _mm256_unpackhi_ps(t[2 * i], t[2 * i + 1]));
    for (int i = 0; i < 2; i++)
        t[i] = _mm256_add_ps(_mm256_shuffle_ps(t[2 * i], t[2 * i + 1], 0x44),
                             _mm256_shuffle_ps(t[2 * i], t[2 * i + 1], 0xee));
    return _mm256_add_ps(_mm256_permute2f128_ps(t[0], t[1], 0x20), _mm256_permute2f128_ps(t[0], t[1], 0x31));
}

#include "kernels/flash_tmpl.h"

extern const attn_kernels attn_kernels_avx2;
const attn_kernels attn_kernels_avx2 = KERNEL_SET("avx2");
#else
typedef int attn_no_avx2;
#endif
