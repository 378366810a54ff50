/* flash_tile.c: one block of query rows against one block of packed keys. */
#include <math.h>
#include <string.h>

#include "backends/flash_rows.h"

/* ---- masks that differ from row to row -------------------------------------------------------------- */

static int64_t mask_bytes(const attn_problem *p)
{
    return p->mask_form == ATTN_FORM_KEEP ? 1 : (int64_t)flash_element_bytes(p->mask_dtype);
}

static const char *mask_row(const flash_rows *job, int32_t r, int64_t key)
{
    const int64_t *stride = job->p->mask_stride;
    int64_t i = job->unit->rows.q0 + flash_row_of(job, r);
    int64_t at = job->unit->batch * stride[0] + flash_head_of(job, r) * stride[1] + i * stride[2] +
                 (job->unit->rows.k0 + key) * stride[3];
    return (const char *)job->call->mask + at * mask_bytes(job->p);
}

enum { SEES_NOTHING = 0, SEES_SOME = 1, SEES_ALL = 2 };

static int scan_keep(const uint8_t *keep, int64_t stride, int64_t n)
{
    if (stride == 1) {
        if (!memchr(keep, 0, (size_t)n)) return SEES_ALL;
        return keep[0] || memcmp(keep, keep + 1, (size_t)(n - 1)) ? SEES_SOME : SEES_NOTHING;
    }
    int64_t seen = 0;
    for (int64_t j = 0; j < n; j++) seen += keep[j * stride] != 0;
    return seen == n ? SEES_ALL : seen ? SEES_SOME : SEES_NOTHING;
}

/* Stops at the first key that is not excluded, as a rule the first one. */
static int scan_bias(const void *bias, attn_dtype dtype, int64_t stride, int64_t n)
{
    const uint16_t *half = bias, none = dtype == ATTN_F16 ? 0xfc00 : 0xff80;
    for (int64_t j = 0; j < n; j++) {
        if (dtype == ATTN_F32 ? ((const float *)bias)[j * stride] != -INFINITY : half[j * stride] != none)
            return SEES_SOME;
    }
    return SEES_NOTHING;
}

static int scan_row(const flash_rows *job, const flash_tile *t, int32_t r)
{
    const attn_problem *p = job->p;
    int64_t lo = job->ranges[r].lo, hi = job->ranges[r].hi;
    if (lo < t->first) lo = t->first;
    if (hi > t->first + t->keys) hi = t->first + t->keys;
    if (lo >= hi) return SEES_NOTHING;
    const char *mask = mask_row(job, r, lo);
    if (p->mask_form == ATTN_FORM_KEEP) return scan_keep((const uint8_t *)mask, p->mask_stride[3], hi - lo);
    return scan_bias(mask, p->mask_dtype, p->mask_stride[3], hi - lo);
}

/* What the rows see of the tile through the mask: a tile that nobody sees is skipped, one that everybody sees
 * in full needs no mask. */
static int scan_mask(const flash_rows *job, const flash_tile *t)
{
    int nothing = 1, all = 1;
    for (int32_t r = 0; r < job->rows && (nothing || all); r++) {
        int sees = scan_row(job, t, r);
        if (sees != SEES_NOTHING) nothing = 0;
        if (sees != SEES_ALL) all = 0;
    }
    return nothing ? SEES_NOTHING : all ? SEES_ALL : SEES_SOME;
}

/* ---- editing the scores ------------------------------------------------------------------------------- */

/* Rows that the mask is broadcast over share one converted copy. */
static void set_mask(const flash_rows *job, const flash_tile *t, int32_t r, attn_edit *e, const void **last)
{
    const attn_problem *p = job->p;
    int64_t stride = p->mask_stride[3];
    const void *mask = mask_row(job, r, t->first);
    int fresh = *last != mask;
    *last = mask;
    if (p->mask_form == ATTN_FORM_ADDITIVE) {
        e->bias = job->bias;
        if (p->mask_dtype == ATTN_F32 && stride == 1)
            e->bias = mask;
        else if (fresh)
            job->kernels->widen(job->bias, mask, p->mask_dtype, stride, t->keys);
        return;
    }
    const uint8_t *keep = mask;
    e->keep = stride == 1 && !t->block->masked ? keep : job->row_keep;
    if (e->keep == keep || !fresh) return;
    for (int64_t j = 0; j < t->keys; j++)
        job->row_keep[j] = keep[j * stride] && (!t->block->masked || job->key_keep[j]);
}

/* Adds what the head's slope makes of the distances. */
static void set_slopes(const flash_rows *job, const flash_tile *t, int32_t r, attn_edit *e)
{
    const flash_unit *unit = job->unit;
    float slope = (float)(job->call->alibi[flash_head_of(job, r)] * (job->natural ? 1 : LOG2E));
    int64_t position = attn_row_position(job->call, &unit->sample, unit->row + flash_row_of(job, r));
    for (int64_t j = 0; j < t->keys; j++) {
        int64_t key = unit->list ? unit->list[t->first + j] : t->first + j;
        int64_t distance = key > position ? key - position : position - key;
        job->slopes[j] = (e->bias ? e->bias[j] : 0) - slope * (float)distance;
    }
    e->bias = job->slopes;
}

static int64_t tree_start(const flash_rows *job)
{
    return job->unit->sample.kv_len - job->unit->sample.q_len;
}

/* Takes out what the row's line of the tree hides, beside what is hidden already. */
static void set_tree(const flash_rows *job, const flash_tile *t, int32_t r, attn_edit *e)
{
    const flash_unit *unit = job->unit;
    const int64_t *stride = job->call->tree_stride;
    int64_t start = tree_start(job);
    const uint8_t *tree =
        job->call->tree + unit->batch * stride[0] + (unit->row + flash_row_of(job, r)) * stride[1];
    for (int64_t j = 0; j < t->keys; j++) {
        int64_t key = unit->list ? unit->list[t->first + j] : t->first + j;
        job->tree_keep[j] = (!e->keep || e->keep[j]) && (key < start || tree[(key - start) * stride[2]]);
    }
    e->keep = job->tree_keep;
}

/* What has to be done to the scores of a tile. */
typedef struct tile_edits {
    int hidden; /* some rows do not see all keys, by their intervals */
    int use_mask;
    int use_tree;
    const void *last; /* mask row of the row before */
} tile_edits;

/* s: scores of row r, and so for the functions that follow. */
static void edit_rows(const flash_rows *job, const flash_tile *t, tile_edits *edits, int32_t r, int32_t rows,
                      float *s)
{
    for (int32_t end = r + rows; r < end; r++, s += ATTN_SCORE_LD) {
        attn_edit e = {
            .scale = job->factor,
            .cap = job->cap,
            .lo = job->ranges[r].lo - t->first,
            .hi = job->ranges[r].hi - t->first,
        };
        e.lo = e.lo < 0 ? 0 : e.lo > t->keys ? t->keys : e.lo;
        e.hi = e.hi < 0 ? 0 : e.hi > t->keys ? t->keys : e.hi;
        if (t->block->masked) e.keep = job->key_keep;
        if (edits->use_mask && e.lo < e.hi) set_mask(job, t, r, &e, &edits->last);
        if (edits->use_tree && e.lo < e.hi) set_tree(job, t, r, &e);
        if (job->call->alibi && e.lo < e.hi) set_slopes(job, t, r, &e);
        if (e.scale != 1 || e.cap > 0 || e.keep || e.bias || e.lo > 0 || e.hi < t->keys)
            job->kernels->edit(s, t->keys, &e, job->best + r * ATTN_LANES_MAX);
    }
}

/* ---- softmax and values ------------------------------------------------------------------------------ */

static void softmax(const flash_rows *job, const flash_tile *t, int32_t r, int32_t rows, float *s,
                    float factor)
{
    job->kernels->softmax(s, rows, t->keys, factor, job->natural ? (float)LOG2E : 1,
                          job->best + r * ATTN_LANES_MAX, job->top + r, job->sum + r, job->decay + r);
}

/* Rows from r on, the packed queries of which start at q. */
static void scores(const flash_rows *job, const flash_tile *t, int32_t r, int32_t rows, const void *q,
                   float *s)
{
    const attn_kernels *k = job->kernels;
    const attn_problem *p = job->p;
    float *best = job->best + r * ATTN_LANES_MAX;
    if (t->key_rows) {
        k->direct_scores(s, q, t->key_rows + t->skip, job->run->plan->type, rows, t->keys,
                         t->known_keys - t->skip, p->head_dim, best);
        return;
    }
    k->scores(s, q, t->packed_keys + flash_key_bytes(job->run, t->skip), rows, t->keys, p->head_dim, best);
}

static void values(const flash_rows *job, const flash_tile *t, int32_t r, int32_t rows, const float *s,
                   int64_t from, int64_t keys, const float *decay)
{
    const attn_kernels *k = job->kernels;
    float *out = job->out + r * flash_out_ld(job);
    if (t->value_rows)
        k->direct_values(out, s, t->value_rows + t->skip, job->run->plan->type, from, keys,
                         t->known_values - t->skip, rows, job->p->value_head_dim, decay);
    else
        k->values(out, s, t->packed_values, t->block->keys, t->skip, from, keys, rows, job->p->value_head_dim,
                  decay);
}

/* V holds an infinity or a NaN: a weight of 0 does not hide it. */
static int broken(const flash_rows *job, const flash_tile *t)
{
    if (!t->value_rows) return t->block->broken;
    return !job->kernels->direct_finite(t->value_rows + t->skip, job->run->plan->type, t->keys,
                                        job->p->value_head_dim);
}

/* While the multipliers are busy, the rows of the mask that come next are fetched, with the last tile the
 * rows of the output, and with the first one the queries that this worker will most likely take next. */
static void expect_rows(const flash_rows *job, const flash_tile *t, int use_mask, int32_t r, int32_t rows)
{
    const attn_problem *p = job->p;
    int64_t element = (int64_t)flash_element_bytes(p->dtype),
            out = (int64_t)flash_element_bytes(p->out_dtype);
    for (int32_t n = r + rows; use_mask && p->mask_stride[2] && n < r + 2 * rows && n < job->rows; n++)
        attn_prefetch(mask_row(job, n, t->first), p->mask_stride[3], t->keys, mask_bytes(p));
    for (int32_t n = 0; n < rows && t->last && !t->key_rows; n++)
        attn_prefetch_write(flash_out_row(job, r + n), p->out_stride[3], p->value_head_dim, out);
    for (int32_t n = 0; n < rows && t->starts && job->first_next >= 0; n++)
        attn_prefetch(flash_query_row(job, job->first_next + flash_row_of(job, r + n) - job->first,
                                      flash_head_of(job, r + n)),
                      p->q_stride[3], p->head_dim, element);
}

/* What rows [r, r + rows) see of the tile: their keys end where the last row's do. Returns whether some of
 * what is left is hidden from some row. */
static int cut_tile(const flash_rows *job, flash_tile *t, int32_t r, int32_t rows)
{
    int64_t lo = 0, least = INT64_MAX, most = 0;
    for (int32_t end = r + rows; r < end; r++) {
        const attn_interval *keys = &job->ranges[r];
        if (keys->lo > lo) lo = keys->lo;
        if (keys->hi < least) least = keys->hi;
        if (keys->hi > most) most = keys->hi;
    }
    if (most < t->first + t->keys) t->keys = most > t->first ? most - t->first : 0;
    return lo > t->first || least < t->first + t->keys;
}

/* All steps go chunk by chunk, so that the scores stay in the nearest cache. */
static void add_chunk(const flash_rows *job, const flash_tile *t, tile_edits *edits, int32_t r, int32_t rows,
                      const void *queries)
{
    flash_tile seen = *t;
    int hidden = edits->hidden && cut_tile(job, &seen, r, rows);
    edits->last = NULL; /* a copied row of the mask is as long as the keys of its chunk */
    int any = hidden || t->block->masked || edits->use_mask || edits->use_tree || job->cap > 0 ||
              job->call->alibi != NULL;
    if (t->starts || t->last || edits->use_mask) expect_rows(job, t, edits->use_mask, r, rows);
    if (seen.keys == 0) return;
    scores(job, &seen, r, rows, queries, job->scores);
    if (any) edit_rows(job, &seen, edits, r, rows, job->scores);
    softmax(job, &seen, r, rows, job->scores, any ? 1 : job->factor);
    values(job, &seen, r, rows, job->scores, 0, seen.keys, job->decay + r);
}

static void add_tile(const flash_rows *job, const flash_tile *t, tile_edits *edits)
{
    const attn_kernels *k = job->kernels;
    int32_t chunks = t->key_rows ? 1 : attn_chunks(job->rows, k->chunk);
    size_t step = (size_t)(k->chunk * attn_round_up(job->p->head_dim, k->pair)) * (size_t)k->packed_bytes;
    for (int32_t c = 0; c < chunks; c++) {
        int32_t r = attn_chunk_start(job->rows, chunks, c);
        add_chunk(job, t, edits, r, attn_chunk_start(job->rows, chunks, c + 1) - r,
                  (const char *)job->queries + (size_t)c * step);
    }
}

/* V has infinities or NaN, which a weight of zero would not hide: each row takes the runs of keys that it
 * sees. */
static void add_tile_by_runs(const flash_rows *job, const flash_tile *t, tile_edits *edits)
{
    const float one = 1;
    scores(job, t, 0, job->rows, job->queries, job->scores);
    for (int32_t r = 0; r < job->rows; r++) {
        float *row = job->scores + r * ATTN_SCORE_LD;
        const float *decay = job->decay + r;
        edit_rows(job, t, edits, r, 1, row);
        for (int64_t j = 0; j < t->keys; j++) job->seen[j] = row[j] != -INFINITY;
        softmax(job, t, r, 1, row, 1);
        for (int64_t j = 0, end; j < t->keys; j = end + 1) {
            for (end = j; end < t->keys && job->seen[end]; end++) {
            }
            if (end == j) continue;
            values(job, t, r, 1, row, j, end - j, decay);
            decay = &one;
        }
    }
}

/* Whether the tile's best score is, for each row, so far below what the row has seen that the tile is left
 * out. */
static int negligible(const flash_rows *job, int edited)
{
    const flash_extra *extra = &job->run->extra;
    double part = extra->skip > 0 ? extra->skip : extra->skip_factor / (double)job->unit->rows.kv_len;
    float below = (float)log2(part < 1 ? part : 1), tops[ATTN_CHUNK_MAX], none[ATTN_CHUNK_MAX];
    int32_t step = job->kernels->chunk;
    for (int32_t r = 0; r < job->rows; r += step) {
        int32_t rows = job->rows - r < step ? job->rows - r : step;
        for (int32_t n = 0; n < rows; n++) tops[n] = -INFINITY, none[n] = 0;
        float sums[ATTN_CHUNK_MAX];
        memcpy(sums, none, sizeof sums);
        /* A softmax over no columns gives the maxima alone. */
        job->kernels->softmax(job->scores + r * ATTN_SCORE_LD, rows, 0, edited ? 1 : job->factor, 1,
                              job->best + r * ATTN_LANES_MAX, tops, sums, none);
        for (int32_t n = 0; n < rows; n++)
            if (!(tops[n] == -INFINITY || tops[n] < job->top[r + n] + below)) return 0;
    }
    return 1;
}

/* All rows have their scores before any of them goes on, since it is the tile as a whole that is left out. */
static void add_tile_or_skip(const flash_rows *job, const flash_tile *t, tile_edits *edits)
{
    const attn_kernels *k = job->kernels;
    int any = edits->hidden || t->block->masked || edits->use_mask || job->cap > 0;
    int32_t chunks = attn_chunks(job->rows, k->chunk);
    scores(job, t, 0, job->rows, job->queries, job->scores);
    if (any) edit_rows(job, t, edits, 0, job->rows, job->scores);
    atomic_fetch_add_explicit(job->run->extra.tiles, 1, memory_order_relaxed);
    if (negligible(job, any)) {
        atomic_fetch_add_explicit(job->run->extra.skipped, 1, memory_order_relaxed);
        return;
    }
    for (int32_t c = 0; c < chunks; c++) {
        int32_t r = attn_chunk_start(job->rows, chunks, c),
                rows = attn_chunk_start(job->rows, chunks, c + 1) - r;
        float *s = job->scores + r * ATTN_SCORE_LD;
        softmax(job, t, r, rows, s, any ? 1 : job->factor);
        values(job, t, r, rows, s, 0, t->keys, job->decay + r);
    }
}

void flash_do_tile(const flash_rows *job, const flash_tile *t)
{
    tile_edits edits = {.use_mask = job->masked_rows};
    for (int32_t r = 0; r < job->rows && !edits.hidden; r++)
        edits.hidden = job->ranges[r].lo > t->first || job->ranges[r].hi < t->first + t->keys;
    if (edits.use_mask) {
        int sees = scan_mask(job, t);
        if (sees == SEES_NOTHING) return;
        if (sees == SEES_ALL) edits.use_mask = 0;
    }
    edits.use_tree = job->call->tree && t->first + t->keys > tree_start(job);
    if (job->unit->list && job->call->tree) edits.use_tree = 1;
    if (t->block->masked) flash_key_keep(job->run, job->unit, t->first, t->keys, job->key_keep);
    if ((edits.hidden || t->block->masked || edits.use_mask || edits.use_tree) && broken(job, t))
        add_tile_by_runs(job, t, &edits);
    else if (job->run->extra.tiles)
        add_tile_or_skip(job, t, &edits);
    else
        add_tile(job, t, &edits);
}

/* ---- several tiles at once --------------------------------------------------------------------------- */

/* Maxima of a further tile join those of the ones before. */
static void join_best(float *best, const float *more, int64_t n)
{
    for (int64_t i = 0; i < n; i++) best[i] = more[i] > best[i] ? more[i] : best[i];
}

static int64_t columns_of(const flash_rows *job, const flash_tile *t)
{
    return attn_round_up(t->keys,
                         job->kernels->lanes > job->kernels->pair ? job->kernels->lanes : job->kernels->pair);
}

/* One chunk of rows. The columns between two tiles are those that end a tile's last vector, which are -inf.
 */
static void add_chunks(const flash_rows *job, const flash_tile *tiles, int32_t count, int32_t r, int32_t rows,
                       const void *queries)
{
    const attn_kernels *k = job->kernels;
    float *best = job->best + r * ATTN_LANES_MAX, *s = job->scores;
    _Alignas(64) float more[ATTN_CHUNK_MAX * ATTN_LANES_MAX];
    int64_t column = 0, columns = 0;
    for (int32_t n = 0; n < count; n++) {
        const flash_tile *t = &tiles[n];
        k->scores(s + column, queries, t->packed_keys + flash_key_bytes(job->run, t->skip), rows, t->keys,
                  job->p->head_dim, n ? more : best);
        if (n) join_best(best, more, rows * ATTN_LANES_MAX);
        columns = column + t->keys;
        column += columns_of(job, t);
    }
    k->softmax(s, rows, columns, job->factor, job->natural ? (float)LOG2E : 1, best, job->top + r,
               job->sum + r, job->decay + r);
    const float *decay = job->decay + r;
    const char *weights = (const char *)s;
    float ones[ATTN_CHUNK_MAX];
    for (int32_t n = 0; n < rows; n++) ones[n] = 1;
    for (int32_t n = 0; n < count; n++) {
        const flash_tile *t = &tiles[n];
        k->values(job->out + r * flash_out_ld(job), (const float *)(const void *)weights, t->packed_values,
                  t->block->keys, t->skip, 0, t->keys, rows, job->p->value_head_dim, n ? ones : decay);
        weights += columns_of(job, t) * k->packed_bytes;
    }
}

void flash_do_tiles(const flash_rows *job, const flash_tile *tiles, int32_t count)
{
    const attn_kernels *k = job->kernels;
    int32_t chunks = attn_chunks(job->rows, k->chunk);
    size_t step = (size_t)(k->chunk * attn_round_up(job->p->head_dim, k->pair)) * (size_t)k->packed_bytes;
    for (int32_t c = 0; c < chunks; c++) {
        int32_t r = attn_chunk_start(job->rows, chunks, c);
        add_chunks(job, tiles, count, r, attn_chunk_start(job->rows, chunks, c + 1) - r,
                   (const char *)job->queries + (size_t)c * step);
    }
}
