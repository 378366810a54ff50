/* flash_direct_bf16.h: the leaves for few rows of the avx512_bf16 set: K and V are read where they are.
 * Included by flash_avx512_bf16.c only.
 *
 * Nothing but the memory limits these: rows of K and V are fetched into the second cache FETCH rows ahead. */

#define FETCH ATTN_ROWS_AHEAD

static void direct_queries(void *dst, const void *const *rows, int32_t count, int32_t type, int64_t stride,
                           int64_t d, float scale)
{
    int64_t width = attn_direct_width(d);
    (void)type;
    memset(dst, 0, (size_t)(count * width) * sizeof(uint16_t));
    for (int32_t r = 0; r < count; r++) {
        uint16_t *q = (uint16_t *)dst + r * width;
        for (int64_t i = 0; i < d; i++)
            q[i] = f32_to_bf16(bf16_to_f32(((const uint16_t *)rows[r])[i * stride]) * scale);
    }
}

ALWAYS_INLINE void fetch(const void *const *rows, int64_t j, int64_t known, int64_t first, int64_t end)
{
    if (j >= known) return;
    const uint16_t *row = rows[j];
    for (int64_t at = first; at < end; at += 32) __builtin_prefetch(row + at, 0, 2);
}

/* 16 scores: those of `rows` rows for 16 / rows keys from j on, row by row. The last key stands in for keys
 * behind it. */
ALWAYS_INLINE vec direct_sums(const int rows, const uint16_t *q, const void *const *k, int64_t j,
                              int64_t keys, int64_t d)
{
    const int group = LANES / rows;
    int64_t width = attn_direct_width(d);
    vec sum[LANES];
    const uint16_t *row[LANES];
    UNROLL for (int n = 0; n < LANES; n++) sum[n] = v_zero();
    UNROLL for (int n = 0; n < group; n++) row[n] = k[j + n < keys ? j + n : keys - 1];
    for (int64_t i = 0; i < d; i += 2 * LANES) {
        int whole = d - i >= 2 * LANES;
        UNROLL for (int n = 0; n < group; n++)
        {
            __m512i x = whole ? _mm512_loadu_si512(row[n] + i) : columns(row[n], 1, i, d);
            UNROLL for (int r = 0; r < rows; r++) sum[r * group + n] =
                w_dot(w_load(q + r * width + i), x, sum[r * group + n]);
        }
    }
    return v_sums(sum);
}

/* `rows` rows of scores for 16 keys. */
ALWAYS_INLINE void direct_tile(const int rows, float *s, const uint16_t *q, const void *const *k, int64_t j,
                               int64_t keys, int64_t known, int64_t d, int fetches)
{
    const int group = LANES / rows;
    for (int64_t end = j + LANES; j < end && j < keys; j += group) {
        float part[LANES];
        for (int n = 0; n < group && fetches; n++) fetch(k, j + n + FETCH, known, 0, d);
        v_storeu(part, direct_sums(rows, q, k, j, keys, d));
        UNROLL for (int r = 0; r < rows; r++)
            memcpy(s + r * ATTN_SCORE_LD + j, part + r * group, (size_t)group * sizeof *part);
    }
}

/* Puts -inf behind the scores of a row and takes the maxima. */
static void close_row(float *s, int64_t keys, float *best)
{
    vec top = v_set1(-INFINITY);
    for (int64_t j = 0; j < keys; j += LANES) {
        vec x = v_load(s + j);
        if (keys - j < LANES) {
            x = v_range(x, j, 0, keys);
            v_store(s + j, x);
        }
        top = v_max(top, x);
    }
    v_store(best, top);
}

static void direct_scores(float *s, const void *queries, const void *const *k, int32_t type, int32_t rows,
                          int64_t keys, int64_t known, int64_t d, float *best)
{
    int64_t width = attn_direct_width(d);
    (void)type;
    for (int64_t j = 0; j < keys; j += LANES) {
        for (int32_t r = 0, step; r < rows; r += step) {
            float *to = s + r * ATTN_SCORE_LD;
            const uint16_t *q = (const uint16_t *)queries + r * width;
            step = rows - r >= 4 ? 4 : rows - r >= 2 ? 2 : 1;
            if (step == 4)
                direct_tile(4, to, q, k, j, keys, known, d, r == 0);
            else if (step == 2)
                direct_tile(2, to, q, k, j, keys, known, d, r == 0);
            else
                direct_tile(1, to, q, k, j, keys, known, d, r == 0);
        }
    }
    for (int32_t r = 0; r < rows; r++) close_row(s + r * ATTN_SCORE_LD, keys, best + r * ATTN_LANES_MAX);
}

/* Two keys of 32 * `halves` columns from i on. A row that is NULL counts as zeros. The words of a vector are
 * out of order: the first holds columns 0-3, 8-11, 16-19, 24-27 of the 32, the second the others. */
ALWAYS_INLINE void add_pair(const int rows, const int halves, vec sum[4][4], const uint32_t *p,
                            uint32_t weights, const uint16_t *row, const uint16_t *next, int64_t i,
                            int64_t dv)
{
    UNROLL for (int n = 0; n < halves; n++)
    {
        /* Two halves are always whole. */
        __m512i a = row ? halves == 2 ? _mm512_loadu_si512(row + i + 32 * n) : columns(row, 1, i, dv)
                        : _mm512_setzero_si512();
        __m512i b = next ? halves == 2 ? _mm512_loadu_si512(next + i + 32 * n) : columns(next, 1, i, dv)
                         : _mm512_setzero_si512();
        __m512i low = _mm512_unpacklo_epi16(a, b), high = _mm512_unpackhi_epi16(a, b);
        UNROLL for (int r = 0; r < rows; r++)
        {
            __m512i w = _mm512_set1_epi32((int32_t)(p[r * ATTN_SCORE_LD] & weights));
            sum[r][2 * n] = w_dot(w, low, sum[r][2 * n]);
            sum[r][2 * n + 1] = w_dot(w, high, sum[r][2 * n + 1]);
        }
    }
}

/* 16 of the 32 columns of two vectors of sums, in order. */
ALWAYS_INLINE vec in_order(vec low, vec high, const int second)
{
    const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
    return _mm512_permutex2var_ps(low, _mm512_add_epi32(first, _mm512_set1_epi32(second ? 8 : 0)), high);
}

/* `rows` rows of 32 * `halves` columns from i on. */
ALWAYS_INLINE void direct_values_tile(const int rows, const int halves, float *o, int64_t ld,
                                      const uint32_t *p, const void *const *v, int64_t first, int64_t end,
                                      int64_t known, int64_t i, int64_t dv, const float *alpha)
{
    vec sum[4][4];
    int64_t last = i + 32 * halves < dv ? i + 32 * halves : dv, j = first;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int n = 0; n < 2 * halves; n++) sum[r][n] = v_zero();
    if (j % 2) {
        add_pair(rows, halves, sum, p + j / 2, 0xffff0000u, NULL, v[j], i, dv);
        j++;
    }
    for (; j + 2 <= end; j += 2) {
        fetch(v, j + FETCH, known, i, last);
        fetch(v, j + FETCH + 1, known, i, last);
        add_pair(rows, halves, sum, p + j / 2, 0xffffffffu, v[j], v[j + 1], i, dv);
    }
    if (j < end) add_pair(rows, halves, sum, p + j / 2, 0xffffu, v[j], NULL, i, dv);
    UNROLL for (int r = 0; r < rows; r++)
    {
        vec by = v_set1(alpha[r]);
        UNROLL for (int n = 0; n < 2 * halves; n++)
        {
            float *out = o + r * ld + i + n * LANES;
            vec x = in_order(sum[r][n / 2 * 2], sum[r][n / 2 * 2 + 1], n % 2);
            if (i + n * LANES < dv) v_store(out, v_fma(v_load(out), by, x));
        }
    }
}

static void direct_values(float *o, const float *p, const void *const *v, int32_t type, int64_t first,
                          int64_t keys, int64_t known, int32_t rows, int64_t dv, const float *alpha)
{
    int64_t ld = attn_round_up(dv, LANES), end = first + keys;
    (void)type;
    for (int64_t i = 0, wide; i < dv; i += wide) {
        int two = dv - i >= 64;
        wide = two ? 64 : 32;
        for (int32_t r = 0, step; r < rows; r += step) {
            float *to = o + r * ld;
            const uint32_t *from = (const uint32_t *)(const void *)(p + r * ATTN_SCORE_LD);
            const float *by = alpha + r;
            int64_t fetched = r == 0 ? known : 0;
            step = rows - r >= 4 ? 4 : 1;
            if (step == 4 && two)
                direct_values_tile(4, 2, to, ld, from, v, first, end, fetched, i, dv, by);
            else if (step == 4)
                direct_values_tile(4, 1, to, ld, from, v, first, end, fetched, i, dv, by);
            else if (two)
                direct_values_tile(1, 2, to, ld, from, v, first, end, fetched, i, dv, by);
            else
                direct_values_tile(1, 1, to, ld, from, v, first, end, fetched, i, dv, by);
        }
    }
}

static int direct_finite(const void *const *v, int32_t type, int64_t keys, int64_t dv)
{
    __m512i largest = _mm512_setzero_si512();
    (void)type;
    for (int64_t j = 0; j < keys; j++) {
        const uint16_t *row = v[j];
        for (int64_t i = 0; i < dv; i += 32) largest = larger_size(largest, columns(row, 1, i, dv));
    }
    return all_finite(largest);
}
