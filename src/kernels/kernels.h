/* kernels.h: what a CPU kernel set is, and what its callers must guarantee.
 *
 * A kernel set is a table of leaves: pointers, strides and sizes in, no context, no allocation, no error.
 * All sizes are counts of elements, all strides are in elements. Q, K, V and P travel between the leaves of
 * one set in a packed form that only this set understands, so packing, products and softmax come together: a
 * set gives all of them or none. Packed data, scores, maxima, outputs and tmp start at multiples of 64 bytes;
 * tensors in memory only at multiples of their element. */
#ifndef ATTN_KERNELS_KERNELS_H
#define ATTN_KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

/* Element types of tensors in memory. */
enum { ATTN_ELEMENT_F32 = 1, ATTN_ELEMENT_F16 = 2, ATTN_ELEMENT_BF16 = 3 };
#define ATTN_TYPES_ALL (1u << ATTN_ELEMENT_F32 | 1u << ATTN_ELEMENT_F16 | 1u << ATTN_ELEMENT_BF16)

#define ATTN_KEYS_MAX 384 /* keys of a tile at most */
#define ATTN_SCORE_LD                                                                                        \
    400 /* row distance of the score tile; a constant lets one pointer reach every row, and                  \
           400 floats (25 cache lines) spread the rows over the sets of a cache */
#define ATTN_LANES_MAX  16 /* widest vector, and the floats of running maxima kept for each row */
#define ATTN_CHUNK_MAX  16 /* most query rows that one register tile takes, of any set */
#define ATTN_PANEL_MAX  32 /* widest panel of any set */
#define ATTN_ROWS_AHEAD 64 /* rows behind those at work that are fetched, where K and V are read in place */

/* How a row of scores is changed before the softmax, in this order: scale, cap, bias, keep, range. */
typedef struct attn_edit {
    float scale;         /* scores become score * scale, for sets that have `scale_last`; else 1 */
    float cap;           /* > 0: scores become cap * tanh(score / cap); 0: off */
    const float *bias;   /* added; -inf hides the key whatever its score is; NULL: none */
    const uint8_t *keep; /* a zero byte hides the key; NULL: none */
    int64_t lo, hi;      /* keys outside [lo, hi) are hidden; 0 <= lo, hi <= keys */
} attn_edit;

typedef struct attn_kernels {
    const char *name;
    int32_t chunk;        /* query rows of the register tile */
    int32_t panel;        /* keys of a packed panel of K; a multiple of `lanes` */
    int32_t lanes;        /* value columns are padded to a multiple of this */
    int32_t packed_bytes; /* of one packed element of Q, K, V */
    int32_t pair;         /* head sizes of Q and K and keys of V are padded to a multiple of this */
    int32_t scale_last;   /* Q is packed with the sign of the scale only, because it would be rounded; the
                             size of the scale is given to `edit`, or else to `softmax` */
    uint32_t types;       /* element types of Q, K and V that the set packs: bits (1 << type) */

    /* dst[i] = src[i * stride] as f32. */
    void (*widen)(float *dst, const void *src, int32_t type, int64_t stride, int64_t n);
    /* dst[i * stride] = src[i] * factor, rounded to nearest even. */
    void (*narrow)(void *dst, int32_t type, int64_t stride, const float *src, float factor, int64_t n);

    /* Packs rows of Q, multiplied by scale, chunk by chunk (attn_chunk_start). dst: attn_packed_queries
     * bytes. tmp: ATTN_CHUNK_MAX * (d + ATTN_LANES_MAX) floats. */
    void (*pack_queries)(void *dst, const void *const *rows, int32_t count, int32_t type, int64_t stride,
                         int64_t d, float scale, float *tmp);
    /* Packs `keys` rows of K into panels, the last one padded with zeros. tmp as above. */
    void (*pack_keys)(void *dst, const void *src, int32_t type, int64_t row_stride, int64_t stride,
                      int64_t keys, int64_t d, float *tmp);
    /* Packs `keys` rows of V as the first of a block of `block` rows. Returns non-zero when a value is not
     * finite. tmp: dv + ATTN_LANES_MAX floats. */
    int (*pack_values)(void *dst, const void *src, int32_t type, int64_t row_stride, int64_t stride,
                       int64_t keys, int64_t block, int64_t dv, float *tmp);
    /* s[r][j] = q[r] . k[j] for j in [0, keys); columns up to the end of the last vector become -inf.
     * best: ATTN_LANES_MAX floats a row; some of them hold the maxima of the row's lanes afterwards. */
    void (*scores)(float *s, const void *q, const void *k, int32_t rows, int64_t keys, int64_t d,
                   float *best);
    /* Edits columns [0, keys) of one row of scores, sets -inf up to the end of the vector, takes its maxima.
     */
    void (*edit)(float *s, int64_t keys, const attn_edit *edit, float *best);
    /* Online softmax of `rows` rows: m' = max(m, factor best), alpha = 2^(unit (m - m')), p = 2^(unit (factor
     * s - m')) in place of s, l' = l alpha + sum p. unit is 1 for scores in base 2 and log2(e) for natural
     * ones, factor > 0 is what scores lack to be either. A maximum of -inf is replaced by 0 in the
     * differences, so that nothing-yet gives p = 0 and alpha = 0, never NaN. Weights of packed_bytes each
     * start where the row of scores starts. */
    void (*softmax)(float *s, int32_t rows, int64_t keys, float factor, float unit, const float *best,
                    float *m, float *l, float *alpha);
    /* o[r] = o[r] * alpha[r] + sum over keys j in [first, first + keys) of p[r][j] v[skip + j], for one chunk
     * of rows. skip is a multiple of the panel. o: rows of dv columns, padded to lanes. */
    void (*values)(float *o, const float *p, const void *v, int64_t block, int64_t skip, int64_t first,
                   int64_t keys, int32_t rows, int64_t dv, const float *alpha);

    /* Few rows do not repay packing: the same with K and V where they are, row j of adjacent elements at
     * k[j] or v[j]. `known` rows exist, of which those behind `keys` are soon asked for as well: at most
     * ATTN_ROWS_AHEAD of them are fetched into the cache.
     *
     * dst: attn_direct_queries bytes. */
    void (*direct_queries)(void *dst, const void *const *rows, int32_t count, int32_t type, int64_t stride,
                           int64_t d, float scale);
    void (*direct_scores)(float *s, const void *q, const void *const *k, int32_t type, int32_t rows,
                          int64_t keys, int64_t known, int64_t d, float *best);
    void (*direct_values)(float *o, const float *p, const void *const *v, int32_t type, int64_t first,
                          int64_t keys, int64_t known, int32_t rows, int64_t dv, const float *alpha);
    /* Whether all values of the rows are finite. */
    int (*direct_finite)(const void *const *v, int32_t type, int64_t keys, int64_t dv);
} attn_kernels;

static inline int64_t attn_round_up(int64_t n, int64_t step)
{
    return (n + step - 1) / step * step;
}

/* Rows are cut into as few chunks as possible, all of nearly the same size: a short last chunk would leave
 * the multipliers waiting for their own results. Chunk c is [start(c), start(c + 1)). */
static inline int32_t attn_chunks(int32_t rows, int32_t chunk)
{
    return (rows + chunk - 1) / chunk;
}

static inline int32_t attn_chunk_start(int32_t rows, int32_t chunks, int32_t c)
{
    return (int32_t)((int64_t)rows * c / chunks);
}

/* Compilers take a function that does nothing but prefetch for one without effect, and drop its calls; the
 * empty statement is an effect. */
#define ATTN_PREFETCHES __asm__ volatile("")

/* Rows of a tensor lie far apart, each at the start of another page, where no hardware prefetcher expects
 * them. */
static inline void attn_prefetch(const void *row, int64_t stride, int64_t n, int64_t element_bytes)
{
    ATTN_PREFETCHES;
    if (stride != 1) return;
    for (int64_t at = 0; at < n * element_bytes; at += 64) __builtin_prefetch((const char *)row + at, 0, 2);
}

static inline void attn_prefetch_write(void *row, int64_t stride, int64_t n, int64_t element_bytes)
{
    ATTN_PREFETCHES;
    if (stride != 1) return;
    for (int64_t at = 0; at < n * element_bytes; at += 64) __builtin_prefetch((char *)row + at, 1, 2);
}

/* Elements of a row of queries of the direct form. */
static inline int64_t attn_direct_width(int64_t d)
{
    return attn_round_up(d, ATTN_PANEL_MAX);
}

static inline size_t attn_direct_queries(const attn_kernels *k, int32_t rows, int64_t d)
{
    return (size_t)(rows * attn_direct_width(d)) * (size_t)k->packed_bytes;
}

/* Bytes of packed queries; the slack takes the vectors that are stored over the end of a chunk. */
static inline size_t attn_packed_queries(const attn_kernels *k, int32_t rows, int64_t d)
{
    int64_t elements = (int64_t)attn_chunks(rows, k->chunk) * k->chunk * attn_round_up(d, k->pair);
    return (size_t)(elements + ATTN_LANES_MAX) * (size_t)k->packed_bytes;
}

#endif
