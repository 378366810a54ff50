/* generate_values.c: what generated tensors hold. Every tensor has a stream of its own, drawn in the order of
 * its indices, so that values depend neither on dtype nor on layout. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "generate_store.h"
#include "tensor.h"

void generate_stream(const struct problem *problem, enum slot_id id, struct random_stream *random)
{
    random_seed(random, problem->seed * SLOT_STREAMS + id);
    random_seed(random, random_next(random));
}

/* ---- floating tensors -------------------------------------------------------------------------- */

#define STEPS 126 /* values are -STEPS ... STEPS over 32 */

/* The encodings of all values in a dtype, one after the other. */
struct encodings {
    size_t size;
    char bytes[8 * (2 * STEPS + 1)];
};

static void encode(const struct problem *problem, attn_dtype dtype, int cached, struct encodings *table)
{
    table->size = attn_dtype_bytes(dtype);
    for (int i = 0; i <= 2 * STEPS; i++) {
        double value = (double)(i - STEPS) / 32;
        tensor_store(table->bytes + (size_t)i * table->size, dtype,
                     cached ? generate_stored(problem, value) : value);
    }
}

/* Index of a value, bell-shaped: four numbers of six bits, added. */
static size_t bell(uint64_t bits)
{
    return (size_t)((bits & 63) + (bits >> 6 & 63) + (bits >> 12 & 63) + (bits >> 18 & 63));
}

static void fill_row(const struct encodings *table, char *at, int64_t step, int64_t count,
                     struct random_stream *random)
{
    for (int64_t c = 0; c < count; c += 2) {
        uint64_t bits = random_next(random);
        memcpy(at + c * step, table->bytes + bell(bits) * table->size, table->size);
        if (c + 1 < count)
            memcpy(at + (c + 1) * step, table->bytes + bell(bits >> 24) * table->size, table->size);
    }
}

static void fill_bell(const struct problem *problem, struct slot *slot, enum slot_id id)
{
    struct random_stream random;
    struct encodings table;
    if (!slot->dl.data) return;
    generate_stream(problem, id, &random);
    encode(problem, slot->dtype, id == SLOT_K || id == SLOT_V, &table);
    for (int64_t b = 0; b < slot->shape[0]; b++)
        for (int64_t s = 0; s < slot->shape[1] && !cli_interrupted(); s++)
            for (int64_t h = 0; h < slot->shape[2]; h++)
                fill_row(&table, slot_at(slot, b, s, h, 0), slot->strides[3] * (int64_t)table.size,
                         slot->shape[3], &random);
}

/* ---- masks ------------------------------------------------------------------------------------- */

/* Whole rows are hidden now and then, and additive masks hide with -inf. */
static double mask_value(const struct slot *mask, struct random_stream *random, int row_hidden)
{
    uint64_t bits = random_next(random);
    int hidden = row_hidden || bits % 4 == 0;
    if (mask->dtype == ATTN_BOOL) return !hidden;
    if (mask->dtype == ATTN_U8 || mask->dtype == ATTN_I8)
        return hidden ? 0
                      : (double)(1 + (bits >> 8) % 127) * (mask->dtype == ATTN_I8 && bits >> 16 & 1 ? -1 : 1);
    if (row_hidden || bits % 8 == 0) return -(double)INFINITY;
    return (double)((int64_t)(bits >> 8 & 63) - 32) / 8;
}

static void fill_mask(const struct problem *problem, struct slot *mask)
{
    struct random_stream random;
    if (!mask->dl.data) return;
    generate_stream(problem, SLOT_MASK, &random);
    for (int64_t b = 0; b < mask->shape[0]; b++)
        for (int64_t h = 0; h < mask->shape[1]; h++)
            for (int64_t q = 0; q < mask->shape[2] && !cli_interrupted(); q++) {
                /* A mask without a query axis would hide a whole sample. */
                int row_hidden = mask->shape[2] > 1 && random_below(&random, 16) == 0;
                for (int64_t k = 0; k < mask->shape[3]; k++)
                    tensor_store(slot_at(mask, b, h, q, k), mask->dtype,
                                 mask_value(mask, &random, row_hidden));
            }
}

/* Padding: keys up to a random length; every eighth sample or so has none. */
static void fill_padding(struct slot *mask, struct random_stream *random)
{
    for (int64_t b = 0; b < mask->shape[2]; b++) {
        int64_t keys = mask->shape[3], valid = (int64_t)random_below(random, (uint64_t)keys + 1);
        if (random_below(random, 8) != 0 && valid == 0) valid = keys;
        for (int64_t k = 0; k < keys; k++) *slot_at(mask, 0, 0, b, k) = k < valid;
    }
}

static void fill_key_mask(const struct problem *problem, struct slot *mask, enum slot_id id)
{
    struct random_stream random;
    if (!mask->dl.data) return;
    generate_stream(problem, id, &random);
    if (problem->mask == PROBLEM_MASK_KEY) {
        fill_padding(mask, &random);
        return;
    }
    for (int64_t b = 0; b < mask->shape[2]; b++)
        for (int64_t k = 0; k < mask->shape[3]; k++)
            *slot_at(mask, 0, 0, b, k) = random_below(&random, 4) != 0;
}

/* ---- lengths, sequences, spans ----------------------------------------------------------------- */

static void fill_lengths(const struct problem *problem, struct slot *lengths)
{
    struct random_stream random;
    if (!lengths->dl.data) return;
    generate_stream(problem, SLOT_LENGTHS, &random);
    for (int64_t b = 0; b < lengths->shape[3]; b++) {
        int64_t n = problem->lengths ? problem->lengths
                                     : (int64_t)random_below(&random, (uint64_t)problem->kv_len + 1);
        tensor_store(slot_at(lengths, 0, 0, 0, b), lengths->dtype, (double)n);
    }
}

static int ascending(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* count sorted numbers in [0, total]. */
static void cut(struct random_stream *random, int64_t total, int64_t *cuts, int64_t count)
{
    for (int64_t i = 0; i < count; i++) cuts[i] = (int64_t)random_below(random, (uint64_t)total + 1);
    qsort(cuts, (size_t)count, sizeof *cuts, ascending);
}

/* Sequence bounds 0 ... total; sequences may be empty. */
static void fill_bounds(const struct problem *problem, struct slot *cu, enum slot_id id, int64_t total)
{
    struct random_stream random;
    if (!cu->dl.data) return;
    generate_stream(problem, id, &random);
    int64_t count = cu->shape[3] - 1, *cuts = malloc((size_t)(count + 1) * sizeof *cuts);
    if (cuts) cut(&random, total, cuts, count - 1);
    for (int64_t i = 0; i <= count; i++) {
        /* Without memory for the cuts the first sequence is everything. */
        int64_t at = i == 0 ? 0 : i == count || !cuts ? total : cuts[i - 1];
        tensor_store(slot_at(cu, 0, 0, 0, i), cu->dtype, (double)at);
    }
    free(cuts);
}

static void fill_spans(const struct problem *problem, struct generate_store *store)
{
    struct random_stream random;
    if (!store->spans) return;
    random_seed(&random, problem->seed * SLOT_STREAMS + SLOT_STREAMS * 101u);
    int64_t *cuts = (int64_t *)(void *)store->spans; /* pairs of numbers, as spans are */
    _Static_assert(sizeof(attn_span) == 2 * sizeof(int64_t), "a span is two numbers");
    cut(&random, problem->kv_len, cuts, 2 * problem->spans);
}

/* Queries in pieces; the gaps before the pieces add up to the keys that have no query. */
static void fill_ranges(const struct problem *problem, struct generate_store *store)
{
    struct random_stream random;
    if (!store->ranges) return;
    random_seed(&random, problem->seed * SLOT_STREAMS + SLOT_STREAMS * 103u);
    int64_t spare = problem->kv_len > problem->q_len ? problem->kv_len - problem->q_len : 0, start = 0,
            gap = 0;
    for (int64_t i = 0; i < problem->ranges; i++) {
        int64_t rest = problem->q_len - start;
        int64_t end = i + 1 == problem->ranges ? problem->q_len
                                               : start + (int64_t)random_below(&random, (uint64_t)rest + 1);
        gap += (int64_t)random_below(&random, (uint64_t)(spare - gap) + 1);
        store->ranges[i] = (attn_query_range){start, end, start + gap};
        start = end;
    }
}

/* ---- hidden keys ------------------------------------------------------------------------------- */

static int mask_hides(const struct problem *problem, const struct generate_store *store, int64_t b, int64_t j)
{
    const struct slot *key_mask = &store->slots[SLOT_KEY_MASK], *mask = &store->slots[SLOT_MASK];
    if (key_mask->dl.data && !*slot_at(key_mask, 0, 0, key_mask->shape[2] > 1 ? b : 0, j)) return 1;
    if (!mask->dl.data || mask->shape[1] > 1 || mask->shape[2] > 1) return 0;
    double value = tensor_fetch(slot_at(mask, mask->shape[0] > 1 ? b : 0, 0, 0, mask->shape[3] > 1 ? j : 0),
                                mask->dtype);
    return problem->mask == PROBLEM_MASK_KEEP ? value == 0 : value == -(double)INFINITY;
}

int generate_hidden(const struct problem *problem, const struct generate_store *store, int64_t b, int64_t j)
{
    const struct slot *lengths = &store->slots[SLOT_LENGTHS];
    int64_t valid = problem->kv_len;
    if (mask_hides(problem, store, b, j)) return 1;
    if (lengths->dl.data) valid = (int64_t)tensor_fetch(slot_at(lengths, 0, 0, 0, b), lengths->dtype);
    if (j >= valid) return 1;
    if (problem->spans || problem->ranges || problem->joint || problem->prefix || problem->q_len == 0)
        return 0;
    int64_t first = problem->alignment == ATTN_TOP_LEFT ? problem->start : valid - problem->q_len;
    int64_t last = first + problem->q_len - 1;
    return (problem->causal && j > last) || (problem->left >= 0 && j < first - problem->left) ||
           (problem->right >= 0 && j > last + problem->right);
}

static void poison_row(const struct slot *slot, int64_t b, int64_t j, double value)
{
    for (int64_t h = 0; h < slot->shape[2]; h++)
        for (int64_t d = 0; d < slot->shape[3]; d++)
            tensor_store(slot_at(slot, b, j, h, d), slot->dtype, value);
}

static void poison_hidden(const struct problem *problem, struct generate_store *store)
{
    if (!problem->hidden_nan || problem->packed) return;
    for (int64_t b = 0; b < problem->batch; b++)
        for (int64_t j = 0; j < problem->kv_len; j++) {
            if (!generate_hidden(problem, store, b, j)) continue;
            poison_row(&store->slots[SLOT_K], b, j, j % 2 ? (double)INFINITY : (double)NAN);
            poison_row(&store->slots[SLOT_V], b, j, j % 3 ? (double)NAN : -(double)INFINITY);
        }
}

/* One list: `listed` of `blocks` numbers, ascending, each as likely as the others. */
static void fill_list(struct random_stream *random, int32_t *list, int64_t listed, int64_t blocks)
{
    for (int64_t j = 0, taken = 0; taken < listed; j++)
        if ((int64_t)random_below(random, (uint64_t)(blocks - j)) < listed - taken)
            list[taken++] = (int32_t)j;
}

static void fill_map(const struct problem *problem, struct generate_store *store)
{
    struct slot *counts = &store->slots[SLOT_COUNTS], *lists = &store->slots[SLOT_BLOCKS];
    struct random_stream random;
    if (problem->sparse < 0) return;
    int64_t blocks = (problem->kv_len + problem->joint + problem->block_k - 1) / problem->block_k;
    generate_stream(problem, SLOT_BLOCKS, &random);
    for (int64_t b = 0; b < lists->shape[0]; b++)
        for (int64_t h = 0; h < lists->shape[1]; h++)
            for (int64_t i = 0; i < lists->shape[2]; i++) {
                tensor_store(slot_at(counts, 0, b, h, i), ATTN_I32, (double)lists->shape[3]);
                fill_list(&random, (int32_t *)(void *)slot_at(lists, b, h, i, 0), lists->shape[3], blocks);
            }
}

/* The first channels of each key are its value. */
static void fill_latent(const struct problem *problem, struct generate_store *store)
{
    const struct slot *k = &store->slots[SLOT_K], *v = &store->slots[SLOT_V];
    size_t size = attn_dtype_bytes(v->dtype);
    if (!problem->latent || !k->dl.data || !v->dl.data) return;
    for (int64_t b = 0; b < v->shape[0]; b++)
        for (int64_t s = 0; s < v->shape[1]; s++)
            for (int64_t h = 0; h < v->shape[2]; h++)
                for (int64_t d = 0; d < v->shape[3]; d++)
                    memcpy(slot_at(v, b, s, h, d), slot_at(k, b, s, h, d), size);
}

void generate_vectors(const struct problem *problem, struct generate_store *store)
{
    fill_map(problem, store);
    fill_lengths(problem, &store->slots[SLOT_LENGTHS]);
    fill_bounds(problem, &store->slots[SLOT_CU_Q], SLOT_CU_Q, problem->q_len);
    fill_bounds(problem, &store->slots[SLOT_CU_K], SLOT_CU_K, problem->kv_len);
    fill_spans(problem, store);
    fill_ranges(problem, store);
    generate_cache_vectors(problem, store);
}

void generate_values(const struct problem *problem, struct generate_store *store)
{
    static const enum slot_id floating[] = {SLOT_Q,       SLOT_K,       SLOT_V,      SLOT_SINKS,
                                            SLOT_JOINT_Q, SLOT_JOINT_K, SLOT_JOINT_V};
    for (size_t i = 0; i < sizeof floating / sizeof *floating; i++)
        fill_bell(problem, &store->slots[floating[i]], floating[i]);
    fill_mask(problem, &store->slots[SLOT_MASK]);
    fill_key_mask(problem, &store->slots[SLOT_KEY_MASK], SLOT_KEY_MASK);
    fill_key_mask(problem, &store->slots[SLOT_JOINT_KEY_MASK], SLOT_JOINT_KEY_MASK);
    generate_vectors(problem, store);
    poison_hidden(problem, store);
    fill_latent(problem, store);
    generate_cache(problem, store);
}
