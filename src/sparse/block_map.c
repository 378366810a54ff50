/* block_map.c: block maps as values: made, converted, counted, drawn. */
#include "sparse/lists.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- owned maps ------------------------------------------------------------------------------------ */

/* One allocation: the map, its tensors and their memory. */
typedef struct owned {
    attn_block_map map;
    DLTensor counts, blocks;
    int64_t shape[4];
} owned;

static int multiply(int64_t *product, int64_t by)
{
    return !__builtin_mul_overflow(*product, by, product);
}

static attn_status no_room(const attn_block_lists *l, attn_error *error)
{
    return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY,
                     "no memory for a block map of %" PRId64 " samples, %" PRId64 " heads, %" PRId64
                     " query blocks and %" PRId64 " entries a list; share lists or take larger blocks",
                     l->batch, l->heads, l->q_blocks, l->capacity);
}

/* The grid, batch, heads and capacity that a shape asks for. */
static attn_status read_shape(const attn_block_shape *shape, attn_block_lists *l, attn_error *error)
{
    memset(l, 0, sizeof *l);
    if (!shape || shape->size < sizeof *shape)
        return attn_fail(
            error, ATTN_KIND_INVALID_STRUCT, "%s; set attn_block_shape.size to sizeof(attn_block_shape)",
            shape ? "the shape of the block map is too short" : "the shape of the block map is NULL");
    attn_status status = sparse_grid(shape->q_len, shape->kv_len, shape->block_q, shape->block_k, l, error);
    if (status) return status;
    if (shape->flags || shape->batch < 0 || shape->heads < 0 || shape->capacity < 0)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "a block map of %" PRId64 " samples, %" PRId64 " heads, capacity %" PRId64
                         " and flags 0x%x cannot be made; the numbers are 0 or more and there are no flags",
                         shape->batch, shape->heads, shape->capacity, shape->flags);
    l->batch = shape->batch, l->heads = shape->heads;
    l->capacity = shape->capacity && shape->capacity < l->kv_blocks ? shape->capacity : l->kv_blocks;
    return ATTN_OK;
}

static owned *allocate(const attn_block_lists *l)
{
    int64_t lists = l->batch, entries, bytes;
    if (!multiply(&lists, l->heads) || !multiply(&lists, l->q_blocks)) return NULL;
    entries = lists;
    if (!multiply(&entries, l->capacity) || __builtin_add_overflow(entries, lists, &bytes) ||
        !multiply(&bytes, (int64_t)sizeof(int32_t)) ||
        __builtin_add_overflow(bytes, (int64_t)sizeof(owned), &bytes) || (uint64_t)bytes > SIZE_MAX)
        return NULL;
    owned *o = calloc(1, (size_t)bytes);
    if (!o) return NULL;
    int32_t *counts = (int32_t *)(void *)(o + 1);
    memcpy(o->shape, (int64_t[]){l->batch, l->heads, l->q_blocks, l->capacity}, sizeof o->shape);
    o->counts = (DLTensor){counts, {kDLCPU, 0}, 3, {kDLInt, 32, 1}, o->shape, NULL, 0};
    o->blocks = (DLTensor){counts + lists, {kDLCPU, 0}, 4, {kDLInt, 32, 1}, o->shape, NULL, 0};
    o->map = (attn_block_map){sizeof o->map, 0,         l->block_q, l->block_k,
                              l->q_len,      l->kv_len, &o->counts, &o->blocks};
    return o;
}

/* The new map, and its lists to write to. */
static attn_status make(attn_block_lists *l, attn_block_map **map, attn_error *error)
{
    owned *o = allocate(l);
    if (!o) return no_room(l, error);
    attn_status status = sparse_lists_read(&o->counts, &o->blocks, l, error);
    if (status)
        free(o);
    else
        *map = &o->map;
    return status;
}

static attn_status check_place(attn_block_map **map, attn_error *error)
{
    if (!map) return attn_fail(error, ATTN_KIND_INVALID_VALUE, "map is NULL; pass a place for the block map");
    *map = NULL;
    return ATTN_OK;
}

attn_status attn_block_map_new(const attn_block_shape *shape, attn_block_map **map, attn_error *error)
{
    attn_block_lists l;
    attn_status status;
    if ((status = check_place(map, error)) || (status = read_shape(shape, &l, error))) return status;
    return make(&l, map, error);
}

void attn_block_map_free(attn_block_map *map)
{
    free(map);
}

/* Appends to a list of an owned map. */
static void add(const attn_block_lists *l, int64_t b, int64_t h, int64_t i, int64_t block)
{
    int64_t count;
    int32_t *list = (int32_t *)(uintptr_t)attn_block_list(l, b, h, i, &count);
    int32_t *counts = (int32_t *)(uintptr_t)l->counts;
    list[count] = (int32_t)block;
    counts[b * l->count_stride[0] + h * l->count_stride[1] + i * l->count_stride[2]]++;
}

static int64_t longest_row(const attn_block_lists *l, const uint8_t *keep)
{
    int64_t most = 0, rows = l->batch * l->heads * l->q_blocks;
    for (int64_t r = 0; r < rows; r++) {
        int64_t count = 0;
        for (int64_t j = 0; j < l->kv_blocks; j++) count += keep[r * l->kv_blocks + j] != 0;
        if (count > most) most = count;
    }
    return most;
}

attn_status attn_block_map_from_mask(const attn_block_shape *shape, const uint8_t *keep, attn_block_map **map,
                                     attn_error *error)
{
    attn_block_lists l;
    attn_status status;
    if ((status = check_place(map, error)) || (status = read_shape(shape, &l, error))) return status;
    if (!keep) return attn_fail(error, ATTN_KIND_INVALID_VALUE, "keep is NULL; pass the mask over blocks");
    int64_t most = longest_row(&l, keep);
    if (most > l.capacity)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "the mask keeps %" PRId64
                         " key blocks in one row and the lists have room for %" PRId64 "; raise the capacity",
                         most, l.capacity);
    if (!shape->capacity) l.capacity = most;
    if ((status = make(&l, map, error))) return status;
    for (int64_t b = 0; b < l.batch; b++)
        for (int64_t h = 0; h < l.heads; h++)
            for (int64_t i = 0; i < l.q_blocks; i++)
                for (int64_t j = 0; j < l.kv_blocks; j++)
                    if (keep[((b * l.heads + h) * l.q_blocks + i) * l.kv_blocks + j]) add(&l, b, h, i, j);
    return ATTN_OK;
}

attn_status attn_block_map_check(const attn_block_map *map, attn_error *error)
{
    attn_block_lists l;
    return attn_block_map_lists(map, &l, error);
}

/* ---- conversion ------------------------------------------------------------------------------------ */

/* Marks the blocks of size `to` that the old blocks of one list touch. */
static void mark(const attn_block_lists *from, int64_t b, int64_t h, int64_t i, const attn_block_lists *to,
                 uint8_t *keep)
{
    int64_t count;
    const int32_t *list = attn_block_list(from, b, h, i, &count);
    for (int64_t n = 0; n < count; n++) {
        int64_t first = list[n] * from->block_k, end = sparse_block_end(list[n], from->block_k, from->kv_len);
        memset(keep + first / to->block_k, 1, (size_t)((end - 1) / to->block_k - first / to->block_k + 1));
    }
}

/* The union of what the old query blocks that lie in new block i keep. */
static void mark_row(const attn_block_lists *from, int64_t b, int64_t h, const attn_block_lists *to,
                     int64_t i, uint8_t *keep)
{
    int64_t first = i * to->block_q, end = sparse_block_end(i, to->block_q, to->q_len);
    memset(keep, 0, (size_t)to->kv_blocks);
    for (int64_t old = first / from->block_q; old <= (end - 1) / from->block_q; old++)
        mark(from, b, h, old, to, keep);
}

static void convert(const attn_block_lists *from, const attn_block_lists *to, uint8_t *keep)
{
    for (int64_t b = 0; b < to->batch; b++)
        for (int64_t h = 0; h < to->heads; h++)
            for (int64_t i = 0; i < to->q_blocks; i++) {
                mark_row(from, b, h, to, i, keep);
                for (int64_t j = 0; j < to->kv_blocks; j++)
                    if (keep[j]) add(to, b, h, i, j);
            }
}

/* Every old block is made of whole new ones; the one block of a short sequence is as well. */
static int divides(int64_t fresh, int64_t old, int64_t len)
{
    return old % fresh == 0 || (old >= len && fresh >= len) || len == 0;
}

attn_status attn_block_map_convert(const attn_block_map *map, int64_t block_q, int64_t block_k,
                                   attn_block_map **converted, int *exact, attn_error *error)
{
    attn_block_lists from, to = {0};
    attn_status status;
    if ((status = check_place(converted, error)) || (status = attn_block_map_lists(map, &from, error)) ||
        (status = sparse_grid(from.q_len, from.kv_len, block_q, block_k, &to, error)))
        return status;
    to.batch = from.batch, to.heads = from.heads, to.capacity = to.kv_blocks;
    if (exact)
        *exact = divides(block_q, from.block_q, from.q_len) && divides(block_k, from.block_k, from.kv_len);
    uint8_t *keep = malloc((size_t)to.kv_blocks + 1);
    if (!keep) return no_room(&to, error);
    if (!(status = make(&to, converted, error))) convert(&from, &to, keep);
    free(keep);
    return status;
}

/* ---- statistics and text --------------------------------------------------------------------------- */

static attn_status check_index(const char *what, int64_t index, int64_t count, int64_t least,
                               attn_error *error)
{
    if (index >= least && index < count) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                     "%s %" PRId64 " is asked for and the block map has %" PRId64
                     "; they are numbered from 0%s",
                     what, index, count, least < 0 ? ", and -1 means all" : "");
}

/* Adds one list; scores counts the scores it computes. */
static void count_list(const attn_block_lists *l, int64_t b, int64_t h, int64_t i, attn_block_stats *s,
                       double *scores)
{
    int64_t count, keys = 0;
    const int32_t *list = attn_block_list(l, b, h, i, &count);
    for (int64_t n = 0; n < count; n++)
        keys += sparse_block_end(list[n], l->block_k, l->kv_len) - list[n] * l->block_k;
    *scores += (double)keys * (double)(sparse_block_end(i, l->block_q, l->q_len) - i * l->block_q);
    s->kept += count;
    s->empty += count == 0;
    if (!s->lists || count < s->shortest) s->shortest = count;
    if (count > s->longest) s->longest = count;
    s->lists++;
}

attn_status attn_block_map_stats(const attn_block_map *map, int64_t sample, int64_t head,
                                 attn_block_stats *stats, attn_error *error)
{
    attn_block_lists l;
    attn_status status;
    double scores = 0;
    uint32_t size = stats ? stats->size : 0;
    if ((status = attn_block_map_lists(map, &l, error)) ||
        (status = check_index("sample", sample, l.batch, -1, error)) ||
        (status = check_index("head", head, l.heads, -1, error)))
        return status;
    if (size < sizeof *stats)
        return attn_fail(error, ATTN_KIND_INVALID_STRUCT,
                         "attn_block_stats.size is %u; set it to sizeof(attn_block_stats)", size);
    attn_block_stats s = {
        .size = size, .batch = l.batch, .heads = l.heads, .q_blocks = l.q_blocks, .kv_blocks = l.kv_blocks};
    for (int64_t b = sample < 0 ? 0 : sample; b < (sample < 0 ? l.batch : sample + 1); b++)
        for (int64_t h = head < 0 ? 0 : head; h < (head < 0 ? l.heads : head + 1); h++)
            for (int64_t i = 0; i < l.q_blocks; i++) count_list(&l, b, h, i, &s, &scores);
    s.total = s.lists * l.kv_blocks;
    double all = (double)(l.q_blocks ? s.lists / l.q_blocks : 0) * (double)l.q_len * (double)l.kv_len;
    s.share = all > 0 ? scores / all : 0;
    *stats = s;
    return ATTN_OK;
}

/* Puts one character where there is room for it and the end. */
static void put(char *text, size_t bytes, size_t *used, char c)
{
    if (*used + 1 < bytes) text[*used] = c;
    ++*used;
}

attn_status attn_block_map_text(const attn_block_map *map, int64_t sample, int64_t head, char *text,
                                size_t bytes, size_t *needed, attn_error *error)
{
    attn_block_lists l;
    attn_status status;
    size_t used = 0;
    if ((status = attn_block_map_lists(map, &l, error)) ||
        (status = check_index("sample", sample, l.batch, 0, error)) ||
        (status = check_index("head", head, l.heads, 0, error)))
        return status;
    for (int64_t i = 0; i < l.q_blocks; i++) {
        int64_t count, next = 0;
        const int32_t *list = attn_block_list(&l, sample, head, i, &count);
        for (int64_t j = 0; j < l.kv_blocks; j++) {
            int kept = next < count && list[next] == j;
            next += kept;
            put(text, bytes, &used, kept ? '#' : '.');
        }
        put(text, bytes, &used, '\n');
    }
    if (bytes) text[used < bytes ? used : bytes - 1] = 0;
    if (needed) *needed = used + 1;
    return ATTN_OK;
}
