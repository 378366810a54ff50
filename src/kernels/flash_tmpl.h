/* flash_tmpl.h: the vector kernel set, once for every instruction set. Included by one file per set, which
 * defines before: LANES, CHUNK, CASES(X) (X(1) ... X(CHUNK)), type vec and the functions v_*. Everything here
 * is static, so that the linker can never pick a copy built for another CPU. */
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/kernels.h"

#define PANEL         (2 * LANES)
#define AHEAD         16 /* rows of K and V that are fetched before they are packed */
#define ALWAYS_INLINE static inline __attribute__((always_inline))
/* Register tiles are loops over constants that must vanish. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* ---- functions of a vector ---------------------------------------------------------------------- */

/* 2^x for x <= 0: x = n + f with f in [-1/2, 1/2], and a polynomial for 2^f. Below 2^-126 the result is 0;
 * NaN stays NaN. The coefficients come from a Remez exchange for the relative error at degree 5 (7.5e-8),
 * after which the constant term is set to 1 (1.6e-7), so that the largest score has the weight 1 exactly. */
ALWAYS_INLINE vec v_exp2(vec x)
{
    vec n = v_round(x), f = v_sub(x, n);
    vec p = v_set1(0.00132764721678f);
    p = v_fma(p, f, v_set1(0.00967554133102f));
    p = v_fma(p, f, v_set1(0.0555071327288f));
    p = v_fma(p, f, v_set1(0.24022119724f));
    p = v_fma(p, f, v_set1(0.693146967065f));
    p = v_fma(p, f, v_set1(1.0f));
    return v_ldexp(p, n, x);
}

/* The same at degree 6 (2.6e-9), for a result that is not a weight but part of a score. */
ALWAYS_INLINE vec v_exp2_fine(vec x)
{
    vec n = v_round(x), f = v_sub(x, n);
    vec p = v_set1(0.000155946781613f);
    p = v_fma(p, f, v_set1(0.00134066439024f));
    p = v_fma(p, f, v_set1(0.00961769297299f));
    p = v_fma(p, f, v_set1(0.0555031055101f));
    p = v_fma(p, f, v_set1(0.240226527829f));
    p = v_fma(p, f, v_set1(0.693147214968f));
    p = v_fma(p, f, v_set1(1.0f));
    return v_ldexp(p, n, x);
}

/* Near zero x + x^3 P(x^2), P from a Remez exchange on |x| <= 5/8 (relative error 4.4e-9); further out
 * (1 - e) / (1 + e) with e = exp(-2 |x|), which would cancel near zero. */
ALWAYS_INLINE vec v_tanh(vec x)
{
    vec a = v_abs(x), u = v_mul(x, x);
    vec p = v_set1(-0.00570498690798f);
    p = v_fma(p, u, v_set1(0.020639087127f));
    p = v_fma(p, u, v_set1(-0.0537397150319f));
    p = v_fma(p, u, v_set1(0.133314421972f));
    p = v_fma(p, u, v_set1(-0.33333281942f));
    vec near = v_fma(v_mul(p, u), x, x);
    vec e = v_exp2_fine(v_mul(a, v_set1(-2.88539008178f)));
    vec far = v_div(v_sub(v_set1(1.0f), e), v_add(v_set1(1.0f), e));
    return v_pick_less(a, v_set1(0.625f), near, v_copysign(far, x));
}

/* ---- conversion --------------------------------------------------------------------------------- */

static float element(const void *src, int32_t type, int64_t i)
{
    if (type == ATTN_ELEMENT_F32) return ((const float *)src)[i];
    uint16_t half = ((const uint16_t *)src)[i];
    return type == ATTN_ELEMENT_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static void widen(float *dst, const void *src, int32_t type, int64_t stride, int64_t n)
{
    int64_t i = 0;
    if (stride == 1 && type == ATTN_ELEMENT_F32) {
        if (n > 0) memcpy(dst, src, (size_t)n * sizeof *dst);
        return;
    }
    if (stride == 1 && type == ATTN_ELEMENT_F16) {
        for (; i + LANES <= n; i += LANES) v_storeu(dst + i, v_load_f16((const uint16_t *)src + i));
    } else if (stride == 1) {
        for (; i + LANES <= n; i += LANES) v_storeu(dst + i, v_load_bf16((const uint16_t *)src + i));
    }
    for (; i < n; i++) dst[i] = element(src, type, i * stride);
}

static void narrow(void *dst, int32_t type, int64_t stride, const float *src, float factor, int64_t n)
{
    int64_t i = 0;
    vec by = v_set1(factor);
    if (stride == 1 && type == ATTN_ELEMENT_F32) {
        for (; i + LANES <= n; i += LANES) v_storeu((float *)dst + i, v_mul(v_loadu(src + i), by));
    } else if (stride == 1 && type == ATTN_ELEMENT_F16) {
        for (; i + LANES <= n; i += LANES) v_store_f16((uint16_t *)dst + i, v_mul(v_loadu(src + i), by));
    } else if (stride == 1) {
        for (; i + LANES <= n; i += LANES) v_store_bf16((uint16_t *)dst + i, v_mul(v_loadu(src + i), by));
    }
    for (; i < n; i++) {
        float x = src[i] * factor;
        if (type == ATTN_ELEMENT_F32)
            ((float *)dst)[i * stride] = x;
        else
            ((uint16_t *)dst)[i * stride] = type == ATTN_ELEMENT_F16 ? f32_to_f16(x) : f32_to_bf16(x);
    }
}

static int64_t bytes_of(int32_t type)
{
    return type == ATTN_ELEMENT_F32 ? 4 : 2;
}

static const void *at(const void *base, int32_t type, int64_t elements)
{
    return (const char *)base + elements * bytes_of(type);
}

/* Row j of n, if there is one, is on its way to the cache while earlier rows are packed. */
static void expect_row(const void *base, int32_t type, int64_t row_stride, int64_t stride, int64_t j,
                       int64_t n, int64_t d)
{
    if (j < n) attn_prefetch(at(base, type, j * row_stride), stride, d, bytes_of(type));
}

/* ---- packing ------------------------------------------------------------------------------------ */

/* dst[i * ld + r] = rows[r][i] * scale for LANES rows of n columns. Stores are LANES wide and in ascending
 * order: with ld < LANES each overwrites what the one before wrote too far. */
ALWAYS_INLINE void transpose_rows(float *dst, int64_t ld, const float *const *rows, int64_t n, float scale)
{
    const vec by = v_set1(scale);
    int64_t i = 0;
    vec t[LANES];
    for (; i + LANES <= n; i += LANES) {
        UNROLL for (int r = 0; r < LANES; r++) t[r] = v_loadu(rows[r] + i);
        v_transpose(t);
        UNROLL for (int r = 0; r < LANES; r++) v_storeu(dst + (i + r) * ld, v_mul(t[r], by));
    }
    for (; i < n; i++) {
        float column[LANES];
        for (int r = 0; r < LANES; r++) column[r] = rows[r][i];
        v_storeu(dst + i * ld, v_mul(v_loadu(column), by));
    }
}

/* A row as plain f32: itself when it is that already, else a copy in `copy`. */
static const float *plain_row(const void *row, int32_t type, int64_t stride, int64_t d, float *copy)
{
    if (type == ATTN_ELEMENT_F32 && stride == 1) return row;
    widen(copy, row, type, stride, d);
    return copy;
}

/* Packed Q: chunks of [d][CHUNK], LANES rows at a time. */
static void pack_queries(void *dst, const void *const *rows, int32_t count, int32_t type, int64_t stride,
                         int64_t d, float scale, float *tmp)
{
    int32_t chunks = attn_chunks(count, CHUNK);
    memset(tmp, 0, (size_t)d * sizeof *tmp); /* a row of zeros */
    for (int32_t c = 0; c < chunks; c++) {
        float *chunk = (float *)dst + (int64_t)c * CHUNK * d;
        int32_t r = attn_chunk_start(count, chunks, c), end = attn_chunk_start(count, chunks, c + 1);
        for (int32_t first = 0; first < CHUNK; first += LANES, r += LANES) {
            const float *lines[LANES];
            for (int n = 0; n < LANES; n++)
                lines[n] = r + n < end ? plain_row(rows[r + n], type, stride, d, tmp + (n + 1) * d) : tmp;
            transpose_rows(chunk + first, CHUNK, lines, d, scale);
        }
    }
}

/* Up to LANES keys, and a row of zeros for the rest. */
static void pack_lanes(float *dst, const void *src, int32_t type, int64_t row_stride, int64_t stride,
                       int64_t keys, int64_t d, float *tmp)
{
    const float *lines[LANES];
    if (keys < LANES) memset(tmp + keys * d, 0, (size_t)d * sizeof *tmp);
    for (int r = 0; r < LANES; r++)
        lines[r] = r < keys ? plain_row(at(src, type, r * row_stride), type, stride, d, tmp + r * d)
                            : tmp + keys * d;
    transpose_rows(dst, PANEL, lines, d, 1);
}

/* Packed K: panels of [d][PANEL]. */
static void pack_keys(void *dst, const void *src, int32_t type, int64_t row_stride, int64_t stride,
                      int64_t keys, int64_t d, float *tmp)
{
    int64_t padded = attn_round_up(keys, PANEL);
    for (int64_t j = 0; j < padded; j += LANES) {
        int64_t left = keys - j < 0 ? 0 : keys - j < LANES ? keys - j : LANES;
        float *panel = (float *)dst + j / PANEL * PANEL * d + j % PANEL;
        for (int r = 0; r < LANES; r++) expect_row(src, type, row_stride, stride, j + AHEAD + r, keys, d);
        pack_lanes(panel, left ? at(src, type, j * row_stride) : src, type, row_stride, stride, left, d, tmp);
    }
}

/* Packed V: panels of [block][PANEL] columns; the last is [block][LANES] when that is enough. */
static int pack_values(void *dst, const void *src, int32_t type, int64_t row_stride, int64_t stride,
                       int64_t keys, int64_t block, int64_t dv, float *tmp)
{
    int64_t padded = attn_round_up(dv, LANES);
    int direct = type == ATTN_ELEMENT_F32 && stride == 1 && padded == dv;
    vec check[2] = {v_zero(), v_zero()}; /* x * 0 is NaN for what is not finite, and stays NaN in a sum */
    for (int64_t j = 0; j < keys; j++) {
        const float *row = at(src, type, j * row_stride);
        expect_row(src, type, row_stride, stride, j + AHEAD, keys, dv);
        if (!direct) {
            widen(tmp, row, type, stride, dv);
            memset(tmp + dv, 0, (size_t)(padded - dv) * sizeof *tmp);
            row = tmp;
        }
        for (int64_t i = 0; i < padded; i += LANES) {
            int64_t column = i / PANEL * PANEL, width = padded - column >= PANEL ? PANEL : LANES;
            vec x = v_loadu(row + i);
            check[i / LANES % 2] = v_fma(x, v_zero(), check[i / LANES % 2]);
            v_store((float *)dst + column * block + j * width + (i - column), x);
        }
    }
    return v_any_nan(v_add(check[0], check[1]));
}

/* ---- products ----------------------------------------------------------------------------------- */

/* `rows` rows of scores against the first `vecs` vectors of a panel of keys, with all sums in registers. */
ALWAYS_INLINE void scores_tile(const int rows, const int vecs, float *s, const float *q, const float *k,
                               int64_t valid, int64_t d, float *best)
{
    vec sum[CHUNK][2];
    UNROLL for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = v_zero();
    for (int64_t i = 0; i < d; i++) {
        vec k0 = v_load(k + i * PANEL), k1 = vecs == 2 ? v_load(k + i * PANEL + LANES) : v_zero();
        UNROLL for (int r = 0; r < rows; r++)
        {
            vec a = v_set1(q[i * CHUNK + r]);
            sum[r][0] = v_fma(a, k0, sum[r][0]);
            if (vecs == 2) sum[r][1] = v_fma(a, k1, sum[r][1]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
    {
        vec x = sum[r][0], y = sum[r][1], top = v_load(best + r * ATTN_LANES_MAX);
        if (valid < LANES) x = v_range(x, 0, 0, valid);
        if (vecs == 2 && valid < PANEL) y = v_range(y, LANES, 0, valid);
        v_store(s + r * ATTN_SCORE_LD, x);
        if (vecs == 2) v_store(s + r * ATTN_SCORE_LD + LANES, y);
        v_store(best + r * ATTN_LANES_MAX, v_max(top, vecs == 2 ? v_max(x, y) : x));
    }
}

static void scores(float *s, const void *q, const void *k, int32_t rows, int64_t keys, int64_t d, float *best)
{
    int32_t chunks = attn_chunks(rows, CHUNK);
    for (int32_t r = 0; r < rows; r++) v_store(best + r * ATTN_LANES_MAX, v_set1(-INFINITY));
    for (int64_t j = 0; j < keys; j += PANEL) {
        const float *panel = (const float *)k + j * d;
        for (int32_t c = 0; c < chunks; c++) {
            int32_t first = attn_chunk_start(rows, chunks, c);
            float *tile = s + first * ATTN_SCORE_LD + j, *top = best + first * ATTN_LANES_MAX;
            const float *chunk = (const float *)q + (int64_t)c * CHUNK * d;
            switch (attn_chunk_start(rows, chunks, c + 1) - first) {
#define X(n)                                                                                                 \
    case n:                                                                                                  \
        if (keys - j > LANES)                                                                                \
            scores_tile(n, 2, tile, chunk, panel, keys - j, d, top);                                         \
        else                                                                                                 \
            scores_tile(n, 1, tile, chunk, panel, keys - j, d, top);                                         \
        break;
                CASES(X)
#undef X
            }
        }
    }
}

/* `rows` rows of output in one panel of `vecs` vectors of columns. The tile starts from zero and the old
 * output joins at the end: the sums stay short, which keeps long sequences exact. */
ALWAYS_INLINE void values_tile(const int rows, const int vecs, float *o, int64_t ld, const float *p,
                               const float *v, int64_t keys, const float *alpha)
{
    vec sum[CHUNK][2];
    UNROLL for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = v_zero();
    for (int64_t j = 0; j < keys; j++) {
        vec v0 = v_load(v + j * vecs * LANES),
            v1 = vecs == 2 ? v_load(v + j * vecs * LANES + LANES) : v_zero();
        UNROLL for (int r = 0; r < rows; r++)
        {
            vec a = v_set1(p[r * ATTN_SCORE_LD + j]);
            sum[r][0] = v_fma(a, v0, sum[r][0]);
            if (vecs == 2) sum[r][1] = v_fma(a, v1, sum[r][1]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
    {
        float *out = o + r * ld;
        vec by = v_set1(alpha[r]);
        v_store(out, v_fma(v_load(out), by, sum[r][0]));
        if (vecs == 2) v_store(out + LANES, v_fma(v_load(out + LANES), by, sum[r][1]));
    }
}

static void values(float *o, const float *p, const void *v, int64_t block, int64_t skip, int64_t first,
                   int64_t keys, int32_t rows, int64_t dv, const float *alpha)
{
    int64_t padded = attn_round_up(dv, LANES);
    p += first;
    for (int64_t i = 0; i < padded; i += PANEL) {
        const float *panel = (const float *)v + i * block;
        int two = padded - i >= PANEL;
        panel += (skip + first) * (two ? PANEL : LANES);
        switch (rows) {
#define X(n)                                                                                                 \
    case n:                                                                                                  \
        if (two)                                                                                             \
            values_tile(n, 2, o + i, padded, p, panel, keys, alpha);                                         \
        else                                                                                                 \
            values_tile(n, 1, o + i, padded, p, panel, keys, alpha);                                         \
        break;
            CASES(X)
#undef X
        }
    }
}

/* ---- rows of scores ----------------------------------------------------------------------------- */

/* One vector of columns from j on; a partial one needs care with what lies behind the masks. */
ALWAYS_INLINE vec edit_vec(vec x, int64_t j, int64_t left, const attn_edit *e)
{
    const vec hidden = v_set1(-INFINITY);
    if (e->scale != 1) x = v_mul(x, v_set1(e->scale));
    if (e->cap > 0) x = v_mul(v_set1(e->cap), v_tanh(v_mul(x, v_set1(1 / e->cap))));
    if (e->bias) {
        vec b = left >= LANES ? v_loadu(e->bias + j) : v_load_part(e->bias + j, left);
        x = v_pick_equal(b, hidden, hidden, v_add(x, b));
    }
    if (e->keep) x = v_keep(x, e->keep + j, left);
    if (j < e->lo || j + LANES > e->hi) x = v_range(x, j, e->lo, e->hi);
    return x;
}

static void edit(float *s, int64_t keys, const attn_edit *e, float *best)
{
    vec top = v_set1(-INFINITY);
    int64_t j = 0;
    for (; j + LANES <= keys; j += LANES) {
        vec x = edit_vec(v_load(s + j), j, LANES, e);
        v_store(s + j, x);
        top = v_max(top, x);
    }
    if (j < keys) {
        vec x = edit_vec(v_load(s + j), j, keys - j, e);
        v_store(s + j, x);
        top = v_max(top, x);
    }
    v_store(best, top);
}

/* One row: exponentials in place, the return value is their sum. Products with 1 are skipped by the compiler
 * when `scaled` is the constant 0. */
ALWAYS_INLINE vec exp_vec(vec x, const int scaled, float factor, float unit, float base)
{
    if (!scaled) return v_exp2(v_sub(x, v_set1(base)));
    return v_exp2(v_mul(v_fma(x, v_set1(factor), v_set1(-base)), v_set1(unit)));
}

ALWAYS_INLINE float exp_row(float *s, int64_t keys, const int scaled, float factor, float unit, float base)
{
    vec sum[4] = {v_zero(), v_zero(), v_zero(), v_zero()};
    int64_t j = 0;
    for (; j + 4 * LANES <= keys; j += 4 * LANES) {
        UNROLL for (int i = 0; i < 4; i++)
        {
            vec x = exp_vec(v_load(s + j + i * LANES), scaled, factor, unit, base);
            v_store(s + j + i * LANES, x);
            sum[i] = v_add(sum[i], x);
        }
    }
    for (; j < keys; j += LANES) {
        vec x = exp_vec(v_load(s + j), scaled, factor, unit, base);
        v_store(s + j, x);
        sum[0] = v_add(sum[0], x);
    }
    return v_sum(v_add(v_add(sum[0], sum[1]), v_add(sum[2], sum[3])));
}

/* What happens once a row is done for many rows at a time, in the lanes of vectors. */
static void softmax(float *s, int32_t rows, int64_t keys, float factor, float unit, const float *best,
                    float *m, float *l, float *alpha)
{
    for (int32_t first = 0; first < rows; first += LANES, s += LANES * ATTN_SCORE_LD) {
        int32_t count = rows - first < LANES ? rows - first : LANES;
        float tops[LANES] = {0}, sums[LANES] = {0}, decays[LANES];
        for (int32_t r = 0; r < count; r++) tops[r] = v_top(v_load(best + (first + r) * ATTN_LANES_MAX));
        vec none = v_set1(-INFINITY), before = v_load_part(m + first, count);
        vec top = v_max(v_mul(v_loadu(tops), v_set1(factor)), before);
        vec base = v_pick_equal(top, none, v_zero(), top);
        vec decay = v_exp2(v_mul(v_sub(before, base), v_set1(unit)));
        v_storeu(tops, base);
        for (int32_t r = 0; r < count; r++) {
            float *row = s + r * ATTN_SCORE_LD;
            sums[r] = factor == 1 && unit == 1 ? exp_row(row, keys, 0, 1, 1, tops[r])
                                               : exp_row(row, keys, 1, factor, unit, tops[r]);
        }
        vec sum = v_fma(v_load_part(l + first, count), decay, v_loadu(sums));
        v_storeu(tops, top);
        v_storeu(sums, sum);
        v_storeu(decays, decay);
        memcpy(m + first, tops, (size_t)count * sizeof *m);
        memcpy(l + first, sums, (size_t)count * sizeof *l);
        memcpy(alpha + first, decays, (size_t)count * sizeof *alpha);
    }
}

#include "kernels/flash_direct.h"

#define KERNEL_SET(set)                                                                                      \
    {                                                                                                        \
        .name = set, .chunk = CHUNK, .panel = PANEL, .lanes = LANES, .packed_bytes = sizeof(float),          \
        .pair = 1, .types = ATTN_TYPES_ALL, .widen = widen, .narrow = narrow, .pack_queries = pack_queries,  \
        .pack_keys = pack_keys, .pack_values = pack_values, .scores = scores, .edit = edit,                  \
        .softmax = softmax, .values = values, .direct_queries = direct_queries,                              \
        .direct_scores = direct_scores, .direct_values = direct_values, .direct_finite = direct_finite       \
    }
