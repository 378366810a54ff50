/* flash_scalar.c: the portable kernel set. It is the truth that the others are compared with: plain loops. */
#include <math.h>
#include <string.h>

#include "kernels/half.h"
#include "kernels/kernels.h"

enum { CHUNK = 4, PANEL = 16, LANES = 8 };

static float element(const void *src, int32_t type, int64_t i)
{
    if (type == ATTN_ELEMENT_F32) return ((const float *)src)[i];
    uint16_t half = ((const uint16_t *)src)[i];
    return type == ATTN_ELEMENT_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static void widen(float *dst, const void *src, int32_t type, int64_t stride, int64_t n)
{
    for (int64_t i = 0; i < n; i++) dst[i] = element(src, type, i * stride);
}

static void narrow(void *dst, int32_t type, int64_t stride, const float *src, float factor, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float x = src[i] * factor;
        if (type == ATTN_ELEMENT_F32)
            ((float *)dst)[i * stride] = x;
        else
            ((uint16_t *)dst)[i * stride] = type == ATTN_ELEMENT_F16 ? f32_to_f16(x) : f32_to_bf16(x);
    }
}

static const void *at(const void *base, int32_t type, int64_t elements)
{
    return (const char *)base + elements * (type == ATTN_ELEMENT_F32 ? 4 : 2);
}

/* Packed Q: chunks of [d][CHUNK]. */
static void pack_queries(void *dst, const void *const *rows, int32_t count, int32_t type, int64_t stride,
                         int64_t d, float scale, float *tmp)
{
    (void)tmp;
    int32_t chunks = attn_chunks(count, CHUNK);
    for (int32_t c = 0; c < chunks; c++) {
        float *q = (float *)dst + (int64_t)c * CHUNK * d;
        int32_t first = attn_chunk_start(count, chunks, c), end = attn_chunk_start(count, chunks, c + 1);
        memset(q, 0, (size_t)(CHUNK * d) * sizeof *q);
        for (int32_t r = first; r < end; r++) {
            for (int64_t i = 0; i < d; i++)
                q[i * CHUNK + r - first] = element(rows[r], type, i * stride) * scale;
        }
    }
}

/* Packed K: panels of [d][PANEL]. */
static void pack_keys(void *dst, const void *src, int32_t type, int64_t row_stride, int64_t stride,
                      int64_t keys, int64_t d, float *tmp)
{
    (void)tmp;
    memset(dst, 0, (size_t)(attn_round_up(keys, PANEL) * d) * sizeof(float));
    for (int64_t j = 0; j < keys; j++) {
        const void *row = at(src, type, j * row_stride);
        float *k = (float *)dst + j / PANEL * PANEL * d + j % PANEL;
        for (int64_t i = 0; i < d; i++) k[i * PANEL] = element(row, type, i * stride);
    }
}

/* Packed V: panels of [block][PANEL] columns; the last is [block][LANES] when that is enough. */
static int64_t panel_width(int64_t column, int64_t dv)
{
    return attn_round_up(dv, LANES) - column >= PANEL ? PANEL : LANES;
}

static int pack_values(void *dst, const void *src, int32_t type, int64_t row_stride, int64_t stride,
                       int64_t keys, int64_t block, int64_t dv, float *tmp)
{
    int broken = 0;
    int64_t padded = attn_round_up(dv, LANES);
    for (int64_t j = 0; j < keys; j++) {
        widen(tmp, at(src, type, j * row_stride), type, stride, dv);
        memset(tmp + dv, 0, (size_t)(padded - dv) * sizeof *tmp);
        for (int64_t i = 0; i < dv; i++) broken |= !isfinite(tmp[i]);
        for (int64_t i = 0, w; i < padded; i += w) {
            w = panel_width(i, dv);
            memcpy((float *)dst + i * block + j * w, tmp + i, (size_t)w * sizeof *tmp);
        }
    }
    return broken;
}

/* One chunk of rows against one panel of keys. */
static void scores_tile(float *s, const float *q, const float *k, int32_t rows, int64_t valid, int64_t d,
                        float *best)
{
    float sum[CHUNK][PANEL] = {{0}};
    for (int64_t i = 0; i < d; i++) {
        for (int32_t r = 0; r < CHUNK; r++) {
            for (int32_t j = 0; j < PANEL; j++) sum[r][j] += q[i * CHUNK + r] * k[i * PANEL + j];
        }
    }
    for (int32_t r = 0; r < rows; r++) {
        for (int32_t j = 0; j < PANEL; j++) {
            float x = j < valid ? sum[r][j] : -INFINITY;
            s[r * ATTN_SCORE_LD + j] = x;
            if (x > best[r * ATTN_LANES_MAX]) best[r * ATTN_LANES_MAX] = x;
        }
    }
}

static void scores(float *s, const void *q, const void *k, int32_t rows, int64_t keys, int64_t d, float *best)
{
    int32_t chunks = attn_chunks(rows, CHUNK);
    for (int32_t r = 0; r < rows; r++) best[r * ATTN_LANES_MAX] = -INFINITY;
    for (int64_t j = 0; j < keys; j += PANEL) {
        for (int32_t c = 0; c < chunks; c++) {
            int32_t first = attn_chunk_start(rows, chunks, c);
            scores_tile(s + first * ATTN_SCORE_LD + j, (const float *)q + (int64_t)c * CHUNK * d,
                        (const float *)k + j * d, attn_chunk_start(rows, chunks, c + 1) - first, keys - j, d,
                        best + first * ATTN_LANES_MAX);
        }
    }
}

static void edit(float *s, int64_t keys, const attn_edit *e, float *best)
{
    best[0] = -INFINITY;
    for (int64_t j = 0; j < keys; j++) {
        float x = s[j] * e->scale;
        if (e->cap > 0) x = e->cap * tanhf(x / e->cap);
        if (e->bias) x = e->bias[j] == -INFINITY ? -INFINITY : x + e->bias[j];
        if (e->keep && !e->keep[j]) x = -INFINITY;
        if (j < e->lo || j >= e->hi) x = -INFINITY;
        s[j] = x;
        if (x > best[0]) best[0] = x;
    }
}

static void softmax(float *s, int32_t rows, int64_t keys, float factor, float unit, const float *best,
                    float *m, float *l, float *alpha)
{
    for (int32_t r = 0; r < rows; r++) {
        float tile = best[r * ATTN_LANES_MAX] * factor, top = tile > m[r] ? tile : m[r];
        float base = top == -INFINITY ? 0 : top, sum = 0;
        for (int64_t j = 0; j < keys; j++) {
            float p = exp2f((s[r * ATTN_SCORE_LD + j] * factor - base) * unit);
            s[r * ATTN_SCORE_LD + j] = p;
            sum += p;
        }
        alpha[r] = exp2f((m[r] - base) * unit);
        l[r] = l[r] * alpha[r] + sum;
        m[r] = top;
    }
}

static void values(float *o, const float *p, const void *v, int64_t block, int64_t skip, int64_t first,
                   int64_t keys, int32_t rows, int64_t dv, const float *alpha)
{
    int64_t padded = attn_round_up(dv, LANES);
    p += first;
    for (int64_t i = 0, w; i < padded; i += w) {
        w = panel_width(i, dv);
        const float *panel = (const float *)v + i * block + (skip + first) * w;
        for (int32_t r = 0; r < rows; r++) {
            float sum[PANEL] = {0};
            for (int64_t j = 0; j < keys; j++) {
                for (int64_t n = 0; n < w; n++) sum[n] += p[r * ATTN_SCORE_LD + j] * panel[j * w + n];
            }
            float *out = o + r * padded + i;
            for (int64_t n = 0; n < w; n++) out[n] = out[n] * alpha[r] + sum[n];
        }
    }
}

/* ---- K and V where they are ----------------------------------------------------------------------- */

static void direct_queries(void *dst, const void *const *rows, int32_t count, int32_t type, int64_t stride,
                           int64_t d, float scale)
{
    for (int32_t r = 0; r < count; r++) {
        float *q = (float *)dst + r * attn_direct_width(d);
        for (int64_t i = 0; i < d; i++) q[i] = element(rows[r], type, i * stride) * scale;
    }
}

static void direct_scores(float *s, const void *q, const void *const *k, int32_t type, int32_t rows,
                          int64_t keys, int64_t known, int64_t d, float *best)
{
    (void)known;
    for (int32_t r = 0; r < rows; r++) {
        const float *query = (const float *)q + r * attn_direct_width(d);
        float *top = best + r * ATTN_LANES_MAX;
        *top = -INFINITY;
        for (int64_t j = 0; j < attn_round_up(keys, LANES); j++) {
            float sum = j < keys ? 0 : -INFINITY;
            for (int64_t i = 0; i < d && j < keys; i++) sum += query[i] * element(k[j], type, i);
            s[r * ATTN_SCORE_LD + j] = sum;
            if (sum > *top) *top = sum;
        }
    }
}

static void direct_values(float *o, const float *p, const void *const *v, int32_t type, int64_t first,
                          int64_t keys, int64_t known, int32_t rows, int64_t dv, const float *alpha)
{
    int64_t padded = attn_round_up(dv, LANES);
    (void)known;
    for (int32_t r = 0; r < rows; r++) {
        for (int64_t i = 0; i < dv; i++) {
            float sum = 0;
            for (int64_t j = first; j < first + keys; j++)
                sum += p[r * ATTN_SCORE_LD + j] * element(v[j], type, i);
            o[r * padded + i] = o[r * padded + i] * alpha[r] + sum;
        }
    }
}

static int direct_finite(const void *const *v, int32_t type, int64_t keys, int64_t dv)
{
    int finite = 1;
    for (int64_t j = 0; j < keys; j++) {
        for (int64_t i = 0; i < dv; i++) finite &= isfinite(element(v[j], type, i)) != 0;
    }
    return finite;
}

extern const attn_kernels attn_kernels_scalar;
const attn_kernels attn_kernels_scalar = {
    .name = "scalar",
    .chunk = CHUNK,
    .panel = PANEL,
    .lanes = LANES,
    .packed_bytes = sizeof(float),
    .pair = 1,
    .types = ATTN_TYPES_ALL,
    .widen = widen,
    .narrow = narrow,
    .pack_queries = pack_queries,
    .pack_keys = pack_keys,
    .pack_values = pack_values,
    .scores = scores,
    .edit = edit,
    .softmax = softmax,
    .values = values,
    .direct_queries = direct_queries,
    .direct_scores = direct_scores,
    .direct_values = direct_values,
    .direct_finite = direct_finite,
};
