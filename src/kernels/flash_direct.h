/* flash_direct.h: the leaves for few rows of the vector kernel sets: K and V are read where they are.
 * Included at the end of flash_tmpl.h, and like it static.
 *
 * Nothing but the memory limits these: rows of K and V are fetched into the second cache FETCH rows ahead. */

#define FETCH ATTN_ROWS_AHEAD
#define WIDE  (LANES == 16 ? 4 : 2) /* vectors of columns whose sums a register tile of values holds */

static void direct_queries(void *dst, const void *const *rows, int32_t count, int32_t type, int64_t stride,
                           int64_t d, float scale)
{
    for (int32_t r = 0; r < count; r++) {
        float *q = (float *)dst + r * attn_direct_width(d);
        widen(q, rows[r], type, stride, d);
        for (int64_t i = 0; i < d; i++) q[i] *= scale;
        memset(q + d, 0, (size_t)(attn_direct_width(d) - d) * sizeof *q);
    }
}

/* Elements [i, i + LANES) of a row of n; those from n on are 0. */
ALWAYS_INLINE vec row_vec(const void *row, const int32_t type, int64_t i, int64_t n)
{
    float part[LANES] = {0};
    const void *from = at(row, type, i);
    if (n - i >= LANES) {
        if (type == ATTN_ELEMENT_F32) return v_loadu((const float *)from);
        if (type == ATTN_ELEMENT_F16) return v_load_f16((const uint16_t *)from);
        return v_load_bf16((const uint16_t *)from);
    }
    if (type == ATTN_ELEMENT_F32) return v_load_part((const float *)from, n - i);
    widen(part, from, type, 1, n - i);
    return v_loadu(part);
}

ALWAYS_INLINE void fetch(const void *const *rows, const int32_t type, int64_t j, int64_t known, int64_t first,
                         int64_t end)
{
    if (j >= known) return;
    const char *row = at(rows[j], type, first);
    for (int64_t at = 0; at < (end - first) * bytes_of(type); at += 64) __builtin_prefetch(row + at, 0, 2);
}

/* LANES scores: those of `rows` rows for LANES / rows keys from j on, row by row. The last key stands in for
 * keys behind it. */
ALWAYS_INLINE vec direct_sums(const int rows, const float *q, const void *const *k, const int32_t type,
                              int64_t j, int64_t keys, int64_t d)
{
    const int group = LANES / rows;
    vec sum[LANES];
    const void *row[LANES];
    UNROLL for (int n = 0; n < LANES; n++) sum[n] = v_zero();
    UNROLL for (int n = 0; n < group; n++) row[n] = k[j + n < keys ? j + n : keys - 1];
    for (int64_t i = 0; i < d; i += LANES) {
        UNROLL for (int n = 0; n < group; n++)
        {
            vec x = row_vec(row[n], type, i, d);
            UNROLL for (int r = 0; r < rows; r++) sum[r * group + n] =
                v_fma(v_load(q + r * attn_direct_width(d) + i), x, sum[r * group + n]);
        }
    }
    return v_sums(sum);
}

/* `rows` rows of scores for LANES keys. */
ALWAYS_INLINE void direct_tile(const int rows, float *s, const float *q, const void *const *k,
                               const int32_t type, int64_t j, int64_t keys, int64_t known, int64_t d,
                               int fetches)
{
    const int group = LANES / rows;
    for (int64_t end = j + LANES; j < end && j < keys; j += group) {
        float part[LANES];
        for (int n = 0; n < group && fetches; n++) fetch(k, type, j + n + FETCH, known, 0, d);
        v_storeu(part, direct_sums(rows, q, k, type, j, keys, d));
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

ALWAYS_INLINE void direct_scores_of(float *s, const float *q, const void *const *k, const int32_t type,
                                    int32_t rows, int64_t keys, int64_t known, int64_t d)
{
    int64_t width = attn_direct_width(d);
    for (int64_t j = 0; j < keys; j += LANES) {
        for (int32_t r = 0, step; r < rows; r += step) {
            float *to = s + r * ATTN_SCORE_LD;
            step = rows - r >= 4 ? 4 : rows - r >= 2 ? 2 : 1;
            if (step == 4)
                direct_tile(4, to, q + r * width, k, type, j, keys, known, d, r == 0);
            else if (step == 2)
                direct_tile(2, to, q + r * width, k, type, j, keys, known, d, r == 0);
            else
                direct_tile(1, to, q + r * width, k, type, j, keys, known, d, r == 0);
        }
    }
}

static void direct_scores(float *s, const void *q, const void *const *k, int32_t type, int32_t rows,
                          int64_t keys, int64_t known, int64_t d, float *best)
{
    if (type == ATTN_ELEMENT_F32)
        direct_scores_of(s, q, k, ATTN_ELEMENT_F32, rows, keys, known, d);
    else if (type == ATTN_ELEMENT_F16)
        direct_scores_of(s, q, k, ATTN_ELEMENT_F16, rows, keys, known, d);
    else
        direct_scores_of(s, q, k, ATTN_ELEMENT_BF16, rows, keys, known, d);
    for (int32_t r = 0; r < rows; r++) close_row(s + r * ATTN_SCORE_LD, keys, best + r * ATTN_LANES_MAX);
}

/* `rows` rows of `vecs` vectors of columns from i on. */
ALWAYS_INLINE void direct_values_tile(const int rows, const int vecs, float *o, int64_t ld, const float *p,
                                      const void *const *v, const int32_t type, int64_t first, int64_t end,
                                      int64_t known, int64_t i, int64_t dv, const float *alpha)
{
    vec sum[4][4];
    int64_t last = i + vecs * LANES < dv ? i + vecs * LANES : dv;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int n = 0; n < vecs; n++) sum[r][n] = v_zero();
    for (int64_t j = first; j < end; j++) {
        const void *row = v[j];
        vec x[4];
        fetch(v, type, j + FETCH, known, i, last);
        UNROLL for (int n = 0; n < vecs; n++) x[n] = row_vec(row, type, i + n * LANES, dv);
        UNROLL for (int r = 0; r < rows; r++)
        {
            vec a = v_set1(p[r * ATTN_SCORE_LD + j]);
            UNROLL for (int n = 0; n < vecs; n++) sum[r][n] = v_fma(a, x[n], sum[r][n]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++)
    {
        float *out = o + r * ld + i;
        vec by = v_set1(alpha[r]);
        UNROLL for (int n = 0; n < vecs; n++)
            v_store(out + n * LANES, v_fma(v_load(out + n * LANES), by, sum[r][n]));
    }
}

ALWAYS_INLINE void direct_values_of(float *o, const float *p, const void *const *v, const int32_t type,
                                    int64_t first, int64_t end, int64_t known, int32_t rows, int64_t dv,
                                    const float *alpha)
{
    int64_t ld = attn_round_up(dv, LANES);
    for (int64_t i = 0, wide; i < dv; i += wide) {
        int many = dv - i >= WIDE * LANES;
        wide = many ? WIDE * LANES : LANES;
        for (int32_t r = 0, step; r < rows; r += step) {
            float *to = o + r * ld;
            const float *from = p + r * ATTN_SCORE_LD, *by = alpha + r;
            int64_t fetched = r == 0 ? known : 0;
            step = rows - r >= 4 ? 4 : 1;
            if (step == 4 && many)
                direct_values_tile(4, WIDE, to, ld, from, v, type, first, end, fetched, i, dv, by);
            else if (step == 4)
                direct_values_tile(4, 1, to, ld, from, v, type, first, end, fetched, i, dv, by);
            else if (many)
                direct_values_tile(1, WIDE, to, ld, from, v, type, first, end, fetched, i, dv, by);
            else
                direct_values_tile(1, 1, to, ld, from, v, type, first, end, fetched, i, dv, by);
        }
    }
}

static void direct_values(float *o, const float *p, const void *const *v, int32_t type, int64_t first,
                          int64_t keys, int64_t known, int32_t rows, int64_t dv, const float *alpha)
{
    int64_t end = first + keys;
    if (type == ATTN_ELEMENT_F32)
        direct_values_of(o, p, v, ATTN_ELEMENT_F32, first, end, known, rows, dv, alpha);
    else if (type == ATTN_ELEMENT_F16)
        direct_values_of(o, p, v, ATTN_ELEMENT_F16, first, end, known, rows, dv, alpha);
    else
        direct_values_of(o, p, v, ATTN_ELEMENT_BF16, first, end, known, rows, dv, alpha);
}

static int direct_finite(const void *const *v, int32_t type, int64_t keys, int64_t dv)
{
    vec check = v_zero(); /* x * 0 is NaN for what is not finite, and stays NaN in a sum */
    for (int64_t j = 0; j < keys; j++) {
        const void *row = v[j];
        for (int64_t i = 0; i < dv; i += LANES) check = v_fma(row_vec(row, type, i, dv), v_zero(), check);
    }
    return !v_any_nan(check);
}
