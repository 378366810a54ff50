/* flash_avx512_bf16.c: the kernel set for AVX-512 with BF16, for bf16 tensors: vdpbf16ps multiplies pairs.
 *
 * Q, K and V stay bf16, weights are rounded to bf16 before they meet V, all sums and the softmax are fp32.
 * Rounding the weights leaves a relative L2 error of at most 2e-3 with fp32 output; with bf16 output, which
 * is rounded once more, 2.6e-3. A pair of elements is one 32-bit word: two channels of Q and K, two keys of V
 * and of the weights. */
#if defined(__x86_64__)
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/kernels.h"
#include "kernels/vec_avx512.h"
#include "kernels/vec_math.h"

#define CHUNK    12 /* 12 x 2 sums, 2 vectors of B and a broadcast leave a few of 32 registers free */
#define LANES    16
#define PANEL    32
#define AHEAD    16 /* rows of K and V that are fetched before they are packed */
#define CASES(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)

/* A pair of bf16. */
typedef uint32_t word;
typedef __m512i wvec;
#define w_load(p)      _mm512_load_si512(p)
#define w_set1(x)      _mm512_set1_epi32((int32_t)(x))
#define w_dot(a, b, c) _mm512_dpbf16_ps(c, (__m512bh)(a), (__m512bh)(b))

/* ---- packing ------------------------------------------------------------------------------------ */

static int64_t words_of(int64_t d)
{
    return (d + 1) / 2;
}

static void expect_row(const uint16_t *src, int64_t row_stride, int64_t stride, int64_t j, int64_t n,
                       int64_t d)
{
    if (j < n) attn_prefetch(src + j * row_stride, stride, d, 2);
}

/* A row as whole words: itself when it is that already, else a copy in `copy`. */
static const uint16_t *whole_words(const uint16_t *row, int64_t stride, int64_t d, float scale,
                                   uint16_t *copy)
{
    if (stride == 1 && d % 2 == 0 && scale == 1) return row;
    copy[words_of(d) * 2 - 1] = 0;
    for (int64_t i = 0; i < d; i++) copy[i] = row[i * stride];
    for (int64_t i = 0; i < d && scale != 1; i++) copy[i] = f32_to_bf16(bf16_to_f32(copy[i]) * scale);
    return copy;
}

/* dst[i * ld + r] = word i of rows[r], for LANES rows of n words. Stores are LANES wide and in ascending
 * order: with ld < LANES each overwrites what the one before wrote too far. */
static void transpose_words(uint32_t *dst, int64_t ld, const uint16_t *const *rows, int64_t n)
{
    for (int64_t i = 0; i < n; i += LANES) {
        __mmask16 some = below(n - i);
        vec t[LANES];
        UNROLL for (int r = 0; r < LANES; r++) t[r] = _mm512_maskz_loadu_ps(some, rows[r] + 2 * i);
        v_transpose(t);
        UNROLL for (int r = 0; r < LANES; r++)
        {
            if (i + r < n) _mm512_storeu_ps(dst + (i + r) * ld, t[r]);
        }
    }
}

/* Packed Q: chunks of [words][CHUNK]. */
static void pack_queries(void *dst, const void *const *rows, int32_t count, int32_t type, int64_t stride,
                         int64_t d, float scale, float *tmp)
{
    int64_t words = words_of(d);
    int32_t chunks = attn_chunks(count, CHUNK);
    uint16_t *copies = (uint16_t *)(void *)tmp, *zeros = copies + CHUNK * 2 * words;
    (void)type;
    memset(zeros, 0, (size_t)words * 4);
    for (int32_t c = 0; c < chunks; c++) {
        const uint16_t *lines[LANES];
        int32_t first = attn_chunk_start(count, chunks, c),
                rest = attn_chunk_start(count, chunks, c + 1) - first;
        for (int r = 0; r < LANES; r++)
            lines[r] =
                r < rest ? whole_words(rows[first + r], stride, d, scale, copies + r * 2 * words) : zeros;
        transpose_words((uint32_t *)dst + (int64_t)c * CHUNK * words, CHUNK, lines, words);
    }
}

/* Packed K: panels of [words][PANEL]. */
static void pack_keys(void *dst, const void *src, int32_t type, int64_t row_stride, int64_t stride,
                      int64_t keys, int64_t d, float *tmp)
{
    int64_t words = words_of(d), padded = attn_round_up(keys, PANEL);
    const uint16_t *base = src;
    uint16_t *copies = (uint16_t *)(void *)tmp, *zeros = copies + LANES * 2 * words;
    (void)type;
    memset(zeros, 0, (size_t)words * 4);
    for (int64_t j = 0; j < padded; j += LANES) {
        const uint16_t *lines[LANES];
        for (int r = 0; r < LANES; r++) {
            expect_row(base, row_stride, stride, j + AHEAD + r, keys, d);
            lines[r] = zeros;
            if (j + r < keys)
                lines[r] = whole_words(base + (j + r) * row_stride, stride, d, 1, copies + r * 2 * words);
        }
        transpose_words((uint32_t *)dst + j / PANEL * PANEL * words + j % PANEL, PANEL, lines, words);
    }
}

/* Up to 32 columns of one row. */
ALWAYS_INLINE __m512i columns(const uint16_t *row, int64_t stride, int64_t i, int64_t dv)
{
    uint16_t part[2 * LANES] = {0};
    __mmask32 some = dv - i >= 32 ? 0xffffffffu : (__mmask32)((1u << (dv - i)) - 1);
    if (stride == 1) return _mm512_maskz_loadu_epi16(some, row + i);
    for (int n = 0; n < 2 * LANES && i + n < dv; n++) part[n] = row[(i + n) * stride];
    return _mm512_loadu_si512(part);
}

/* Words of row `a` below and row `b` above, for 16 of their 32 columns. */
ALWAYS_INLINE __m512i interleave(__m512i a, __m512i b, const int second)
{
    const __m512i step = _mm512_set1_epi32(0x00200000 | (second ? 0x00100010 : 0));
    const __m512i column =
        _mm512_setr_epi32(0, 0x10001, 0x20002, 0x30003, 0x40004, 0x50005, 0x60006, 0x70007, 0x80008, 0x90009,
                          0xa000a, 0xb000b, 0xc000c, 0xd000d, 0xe000e, 0xf000f);
    return _mm512_permutex2var_epi16(a, _mm512_add_epi32(column, step), b);
}

/* Largest sizes so far: the bits of x without the sign. */
ALWAYS_INLINE __m512i larger_size(__m512i largest, __m512i x)
{
    return _mm512_max_epu16(largest, _mm512_and_si512(x, _mm512_set1_epi16(0x7fff)));
}

ALWAYS_INLINE int all_finite(__m512i largest)
{
    return _mm512_cmpge_epu16_mask(largest, _mm512_set1_epi16(0x7f80)) == 0;
}

/* Packed V: panels of [pairs of the block][PANEL] words; the last is [pairs][LANES] when that is enough. */
static int pack_values(void *dst, const void *src, int32_t type, int64_t row_stride, int64_t stride,
                       int64_t keys, int64_t block, int64_t dv, float *tmp)
{
    int64_t padded = attn_round_up(dv, LANES), pairs = words_of(block);
    __m512i largest = _mm512_setzero_si512();
    (void)type;
    (void)tmp;
    for (int64_t j = 0; j < keys; j += 2) {
        const uint16_t *row = (const uint16_t *)src + j * row_stride;
        expect_row(src, row_stride, stride, j + AHEAD, keys, dv);
        expect_row(src, row_stride, stride, j + AHEAD + 1, keys, dv);
        for (int64_t i = 0; i < dv; i += PANEL) {
            int two = padded - i >= PANEL;
            __m512i a = columns(row, stride, i, dv), b = _mm512_setzero_si512();
            uint32_t *to = (uint32_t *)dst + i * pairs + j / 2 * (two ? PANEL : LANES);
            if (j + 1 < keys) b = columns(row + row_stride, stride, i, dv);
            largest = larger_size(larger_size(largest, a), b);
            _mm512_store_si512(to, interleave(a, b, 0));
            if (two) _mm512_store_si512(to + LANES, interleave(a, b, 1));
        }
    }
    return !all_finite(largest);
}

/* ---- products ----------------------------------------------------------------------------------- */

#include "kernels/flash_products.h"

static void scores(float *s, const void *q, const void *k, int32_t rows, int64_t keys, int64_t d, float *best)
{
    scores_of_words(s, q, k, rows, keys, words_of(d), best);
}

/* One key that shares its pair with a key outside the range: that one's weight and value must not enter. */
static void add_half(float *o, const uint32_t *p, const uint32_t *v, int64_t pairs, int64_t skip, int64_t key,
                     int32_t rows, int64_t dv)
{
    int64_t padded = attn_round_up(dv, LANES);
    const uint32_t half = key % 2 ? 0xffff0000u : 0xffffu;
    for (int64_t i = 0; i < padded; i += LANES) {
        int64_t column = i / PANEL * PANEL, width = padded - column >= PANEL ? PANEL : LANES;
        const uint32_t *from = v + column * pairs + (skip + key) / 2 * width + (i - column);
        __m512i one = _mm512_and_si512(_mm512_load_si512(from), _mm512_set1_epi32((int32_t)half));
        for (int32_t r = 0; r < rows; r++) {
            uint32_t weight = p[r * ATTN_SCORE_LD + key / 2] & half;
            vec sum = w_dot(w_set1(weight), one, v_zero());
            v_store(o + r * padded + i, v_add(v_load(o + r * padded + i), sum));
        }
    }
}

static void values(float *o, const float *p, const void *v, int64_t block, int64_t skip, int64_t first,
                   int64_t keys, int32_t rows, int64_t dv, const float *alpha)
{
    int64_t pairs = words_of(block), end = first + keys;
    int64_t start = words_of(first), whole = end / 2 > start ? end / 2 - start : 0;
    const uint32_t *weights = (const uint32_t *)(const void *)p;
    values_of_words(o, weights + start, v, pairs, skip / 2 + start, whole, rows, dv, alpha);
    if (first % 2) add_half(o, weights, v, pairs, skip, first, rows, dv);
    if (end % 2 && end - 1 >= first + first % 2) add_half(o, weights, v, pairs, skip, end - 1, rows, dv);
}

/* ---- softmax ------------------------------------------------------------------------------------ */

/* 2^x for x <= 0 at degree 4 (relative error 3.6e-6, so that sums and LSE are much better than the weights).
 * -inf
 * - round(-inf) leaves a NaN in p, which scaling by 2^-inf turns into 0; a NaN in x is also in n and stays.
 */
ALWAYS_INLINE vec exp2_rough(vec x)
{
    vec n = v_round(x), f = v_sub(x, n);
    vec p = v_set1(0.00957010190808f);
    p = v_fma(p, f, v_set1(0.0559178603193f));
    p = v_fma(p, f, v_set1(0.240247448279f));
    p = v_fma(p, f, v_set1(0.693121814737f));
    p = v_fma(p, f, v_set1(1.0f));
    return _mm512_scalef_ps(p, n);
}

/* 32 scores become 32 weights. The sum is taken before they are rounded. */
ALWAYS_INLINE void weigh(float *s, int64_t j, vec x, vec y, vec sum[2])
{
    x = exp2_rough(x);
    y = exp2_rough(y);
    _mm512_store_si512((uint16_t *)(void *)s + j, (__m512i)_mm512_cvtne2ps_pbh(y, x));
    sum[0] = v_add(sum[0], x);
    sum[1] = v_add(sum[1], y);
}

/* One row. Weights are written behind the scores that are read. */
ALWAYS_INLINE float exp_row(float *s, int64_t keys, const int natural, float factor, float unit, float base)
{
    const vec b = v_set1(-base), f = v_set1(factor), u = v_set1(unit);
    vec sum[2] = {v_zero(), v_zero()};
    int64_t j = 0;
    for (; j + PANEL <= keys; j += PANEL) {
        vec x = v_fma(v_load(s + j), f, b), y = v_fma(v_load(s + j + LANES), f, b);
        if (natural) x = v_mul(x, u), y = v_mul(y, u);
        weigh(s, j, x, y, sum);
    }
    if (j < keys) {
        vec none = v_set1(-INFINITY), x = v_fma(v_load(s + j), f, b), y = none;
        if (keys - j > LANES) y = v_fma(v_load(s + j + LANES), f, b);
        if (natural) x = v_mul(x, u), y = v_mul(y, u);
        weigh(s, j, x, y, sum);
    }
    return v_sum(v_add(sum[0], sum[1]));
}

/* What happens once a row is done for a chunk of rows at a time, in the lanes of vectors. */
static void softmax(float *s, int32_t rows, int64_t keys, float factor, float unit, const float *best,
                    float *m, float *l, float *alpha)
{
    for (int32_t first = 0; first < rows; first += LANES, s += LANES * ATTN_SCORE_LD) {
        int32_t count = rows - first < LANES ? rows - first : LANES;
        __mmask16 some = below(count);
        float tops[LANES] = {0}, sums[LANES] = {0};
        for (int32_t r = 0; r < count; r++) tops[r] = v_top(v_load(best + (first + r) * ATTN_LANES_MAX));
        vec none = v_set1(-INFINITY), before = _mm512_maskz_loadu_ps(some, m + first);
        vec top = v_max(v_mul(v_loadu(tops), v_set1(factor)), before);
        vec base = v_pick_equal(top, none, v_zero(), top);
        vec decay = v_exp2(v_mul(v_sub(before, base), v_set1(unit)));
        v_storeu(tops, base);
        for (int32_t r = 0; r < count; r++) {
            float *row = s + r * ATTN_SCORE_LD;
            sums[r] = unit == 1 ? exp_row(row, keys, 0, factor, 1, tops[r])
                                : exp_row(row, keys, 1, factor, unit, tops[r]);
        }
        vec sum = v_fma(_mm512_maskz_loadu_ps(some, l + first), decay, v_loadu(sums));
        _mm512_mask_storeu_ps(alpha + first, some, decay);
        _mm512_mask_storeu_ps(l + first, some, sum);
        _mm512_mask_storeu_ps(m + first, some, top);
    }
}

#include "kernels/flash_direct_bf16.h"

/* Conversions and edits of f32 scores come from avx512. */
extern const attn_kernels attn_kernels_avx512_bf16;
const attn_kernels attn_kernels_avx512_bf16 = {
    .name = "avx512_bf16",
    .chunk = CHUNK,
    .panel = PANEL,
    .lanes = LANES,
    .packed_bytes = sizeof(uint16_t),
    .pair = 2,
    .scale_last = 1,
    .types = 1u << ATTN_ELEMENT_BF16,
    .pack_queries = pack_queries,
    .pack_keys = pack_keys,
    .pack_values = pack_values,
    .scores = scores,
    .softmax = softmax,
    .values = values,
    .direct_queries = direct_queries,
    .direct_scores = direct_scores,
    .direct_values = direct_values,
    .direct_finite = direct_finite,
};
#else
typedef int attn_no_avx512_bf16;
#endif
