/* flash_products.h: the two packed products, once for every vector kernel set. Included by a file that has
 * LANES, PANEL, CHUNK, CASES and type vec with v_*, and that says what one step of a sum multiplies. A `word`
 * is what is packed for a step (one f32, or a pair of bf16) and `wvec` LANES of them; w_load(p) reads aligned
 * memory, w_set1(x) puts one word into every lane, w_dot(a, b, sum) is sum + a b, lane by lane, as vec.
 * `steps` counts words along the sum. */

/* `rows` rows of scores against the first `vecs` vectors of a panel of keys, with all sums in registers. */
ALWAYS_INLINE void scores_tile(const int rows, const int vecs, float *s, const word *q, const word *k,
                               int64_t valid, int64_t steps, float *best)
{
    vec sum[CHUNK][2];
    UNROLL for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = v_zero();
    for (int64_t i = 0; i < steps; i++) {
        wvec k0 = w_load(k + i * PANEL), k1 = k0;
        if (vecs == 2) k1 = w_load(k + i * PANEL + LANES);
        UNROLL for (int r = 0; r < rows; r++)
        {
            wvec a = w_set1(q[i * CHUNK + r]);
            sum[r][0] = w_dot(a, k0, sum[r][0]);
            if (vecs == 2) sum[r][1] = w_dot(a, k1, sum[r][1]);
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

ALWAYS_INLINE void scores_of_words(float *s, const word *q, const word *k, int32_t rows, int64_t keys,
                                   int64_t steps, float *best)
{
    int32_t chunks = attn_chunks(rows, CHUNK);
    for (int32_t r = 0; r < rows; r++) v_store(best + r * ATTN_LANES_MAX, v_set1(-INFINITY));
    for (int64_t j = 0; j < keys; j += PANEL) {
        const word *panel = k + j * steps;
        for (int32_t c = 0; c < chunks; c++) {
            int32_t first = attn_chunk_start(rows, chunks, c);
            float *tile = s + first * ATTN_SCORE_LD + j, *top = best + first * ATTN_LANES_MAX;
            const word *chunk = q + (int64_t)c * CHUNK * steps;
            switch (attn_chunk_start(rows, chunks, c + 1) - first) {
#define X(n)                                                                                                 \
    case n:                                                                                                  \
        if (keys - j > LANES)                                                                                \
            scores_tile(n, 2, tile, chunk, panel, keys - j, steps, top);                                     \
        else                                                                                                 \
            scores_tile(n, 1, tile, chunk, panel, keys - j, steps, top);                                     \
        break;
                CASES(X)
#undef X
            }
        }
    }
}

/* `rows` rows of output in one panel of `vecs` vectors of columns. The tile starts from zero and the old
 * output joins at the end: the sums stay short, which keeps long sequences exact. */
ALWAYS_INLINE void values_tile(const int rows, const int vecs, float *o, int64_t ld, const word *p,
                               const word *v, int64_t steps, const float *alpha)
{
    vec sum[CHUNK][2];
    UNROLL for (int r = 0; r < rows; r++) sum[r][0] = sum[r][1] = v_zero();
    for (int64_t j = 0; j < steps; j++) {
        wvec v0 = w_load(v + j * vecs * LANES), v1 = v0;
        if (vecs == 2) v1 = w_load(v + j * vecs * LANES + LANES);
        UNROLL for (int r = 0; r < rows; r++)
        {
            wvec a = w_set1(p[r * ATTN_SCORE_LD + j]);
            sum[r][0] = w_dot(a, v0, sum[r][0]);
            if (vecs == 2) sum[r][1] = w_dot(a, v1, sum[r][1]);
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

/* p is at the first weight that counts; v holds panels of `block` words, of which `skip` come before it. */
ALWAYS_INLINE void values_of_words(float *o, const word *p, const word *v, int64_t block, int64_t skip,
                                   int64_t steps, int32_t rows, int64_t dv, const float *alpha)
{
    int64_t padded = attn_round_up(dv, LANES);
    for (int64_t i = 0; i < padded; i += PANEL) {
        int two = padded - i >= PANEL;
        const word *panel = v + i * block + skip * (two ? PANEL : LANES);
        switch (rows) {
#define X(n)                                                                                                 \
    case n:                                                                                                  \
        if (two)                                                                                             \
            values_tile(n, 2, o + i, padded, p, panel, steps, alpha);                                        \
        else                                                                                                 \
            values_tile(n, 1, o + i, padded, p, panel, steps, alpha);                                        \
        break;
            CASES(X)
#undef X
        }
    }
}
