/* flash_tmpl.h: the vector kernel set, once for every instruction set. Included by one file per set, which
 * defines before: LANES, CHUNK, CASES(X) (X(1) ... X(CHUNK)), type vec and the functions v_*. Everything here
 * is static, so that the linker can never pick a copy built for another CPU. */
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/kernels.h"
#include "kernels/vec_math.h"

#define PANEL (2 * LANES)
#define AHEAD 16 /* rows of K and V that are fetched before they are packed */

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

typedef float word;
typedef vec wvec;
#define w_load(p)      v_load(p)
#define w_set1(x)      v_set1(x)
#define w_dot(a, b, c) v_fma(a, b, c)
#include "kernels/flash_products.h"

static void scores(float *s, const void *q, const void *k, int32_t rows, int64_t keys, int64_t d, float *best)
{
    scores_of_words(s, q, k, rows, keys, d, best);
}

static void values(float *o, const float *p, const void *v, int64_t block, int64_t skip, int64_t first,
                   int64_t keys, int32_t rows, int64_t dv, const float *alpha)
{
    values_of_words(o, p + first, v, block, skip + first, keys, rows, dv, alpha);
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
