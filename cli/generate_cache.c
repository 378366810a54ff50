/* generate_cache.c: keys and values of a problem in the pages of a cache, in a random order, and what else
 * servers ask for: slopes, trees, lists and ranges. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "generate_store.h"
#include "tensor.h"

/* ---- 8-bit types ------------------------------------------------------------------------------- */

static double eight_value(attn_dtype dtype, int bits)
{
    int mantissa = dtype == ATTN_F8E4M3 ? 3 : 2, bias = dtype == ATTN_F8E4M3 ? 7 : 15;
    int exponent = bits >> mantissa, fraction = bits & ((1 << mantissa) - 1);
    return exponent ? ldexp((1 << mantissa) + fraction, exponent - bias - mantissa)
                    : ldexp(fraction, 1 - bias - mantissa);
}

/* Bits of the nearest number, by halving: larger bits are larger numbers. */
static uint8_t eight_bits(attn_dtype dtype, double value)
{
    int low = 0, high = dtype == ATTN_F8E4M3 ? 0x7e : 0x7b;
    double size = fabs(value);
    if (isnan(value)) return 0x7f;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (eight_value(dtype, middle) <= size)
            low = middle;
        else
            high = middle;
    }
    if (size - eight_value(dtype, low) > eight_value(dtype, high) - size) low = high;
    return (uint8_t)(low | (signbit(value) ? 0x80 : 0));
}

static int is_eight(attn_dtype dtype)
{
    return dtype == ATTN_F8E4M3 || dtype == ATTN_F8E5M2;
}

double generate_stored(const struct problem *problem, double value)
{
    const struct problem_kv *kv = problem_kv_at(problem->kv);
    if (!kv || !is_eight(kv->dtype)) return value; /* the others hold all values of problems */
    uint8_t bits = eight_bits(kv->dtype, value / kv->scale);
    double size = eight_value(kv->dtype, bits & 0x7f) * kv->scale;
    return bits & 0x80 ? -size : size;
}

static void store(const struct slot *pages, char *at, double scale, double value)
{
    if (is_eight(pages->dtype))
        *(uint8_t *)at = eight_bits(pages->dtype, value / scale);
    else if (pages->dtype == ATTN_I8)
        *(int8_t *)at = (int8_t)(isfinite(value) ? value / scale : 0);
    else
        tensor_store(at, pages->dtype, value);
}

/* ---- pages ------------------------------------------------------------------------------------- */

/* Key (row of the plain tensor) `key` of request b. */
static int64_t plain_row(const struct problem *problem, const struct generate_store *s, int64_t b,
                         int64_t key)
{
    const struct slot *cu = &s->slots[SLOT_CU_K];
    return problem->packed ? (int64_t)tensor_fetch(slot_at(cu, 0, 0, 0, b), cu->dtype) + key : key;
}

static char *page_at(const struct problem *problem, const struct slot *pages, int64_t page, int64_t token,
                     int64_t head)
{
    int hnd = problem->layout == PROBLEM_BNSD;
    return slot_at(pages, page, hnd ? head : token, hnd ? token : head, 0);
}

static void put_row(const struct problem *problem, const struct slot *plain, const struct slot *pages,
                    char *to, const char *from)
{
    const struct problem_kv *kv = problem_kv_at(problem->kv);
    int64_t width = plain->shape[3], size = (int64_t)attn_dtype_bytes(pages->dtype);
    int64_t step = plain->strides[3] * (int64_t)attn_dtype_bytes(plain->dtype);
    if (pages->dtype == plain->dtype && plain->strides[3] == 1) {
        memcpy(to, from, (size_t)(width * size));
        return;
    }
    for (int64_t d = 0; d < width; d++)
        store(pages, to + d * size, kv ? kv->scale : 1, tensor_fetch(from + d * step, plain->dtype));
}

static void fill_pages(const struct problem *problem, struct generate_store *s, enum slot_id plain_id,
                       enum slot_id id)
{
    const struct slot *plain = &s->slots[plain_id], *pages = &s->slots[id], *table = &s->slots[SLOT_TABLE],
                      *contexts = &s->slots[SLOT_CONTEXTS];
    if (!pages->dl.data) return;
    for (int64_t b = 0; b < generate_requests(problem) && !cli_interrupted(); b++) {
        int64_t keys = (int64_t)tensor_fetch(slot_at(contexts, 0, 0, 0, b), contexts->dtype);
        for (int64_t j = 0; j < keys; j++) {
            int64_t page = (int64_t)tensor_fetch(slot_at(table, 0, 0, b, j / problem->paged), table->dtype);
            for (int64_t h = 0; h < problem->kv_heads; h++)
                put_row(problem, plain, pages, page_at(problem, pages, page, j % problem->paged, h),
                        slot_at(plain, problem->packed ? 0 : b, plain_row(problem, s, b, j), h, 0));
        }
    }
}

static void fill_scale(const struct problem *problem, struct slot *scale)
{
    if (!scale->dl.data) return;
    for (int64_t i = 0; i < scale->extent; i++)
        ((float *)scale->dl.data)[i] = (float)problem_kv_at(problem->kv)->scale;
}

void generate_cache(const struct problem *problem, struct generate_store *s)
{
    if (!problem->paged || problem->plain) return;
    fill_pages(problem, s, SLOT_K, SLOT_PAGES_K);
    fill_pages(problem, s, SLOT_V, SLOT_PAGES_V);
    fill_scale(problem, &s->slots[SLOT_SCALE_K]);
    fill_scale(problem, &s->slots[SLOT_SCALE_V]);
}

/* ---- numbers ----------------------------------------------------------------------------------- */

/* Each entry once, in an order drawn as it is filled. */
static void fill_table(const struct problem *problem, struct generate_store *s)
{
    struct slot *table = &s->slots[SLOT_TABLE];
    struct random_stream random;
    if (!table->dl.data) return;
    generate_stream(problem, SLOT_TABLE, &random);
    int64_t rows = table->shape[2], width = table->shape[3], taken = 0;
    for (int64_t b = 0; b < rows; b++)
        for (int64_t n = 0; n < width; n++, taken++) {
            /* The new number takes a random place, the one that was there moves to the end. */
            int64_t other = (int64_t)random_below(&random, (uint64_t)taken + 1);
            char *at = slot_at(table, 0, 0, b, n), *from = slot_at(table, 0, 0, other / width, other % width);
            double moved = other == taken ? (double)taken : tensor_fetch(from, table->dtype);
            tensor_store(at, table->dtype, moved);
            if (other != taken) tensor_store(from, table->dtype, (double)taken);
        }
}

static void fill_contexts(const struct problem *problem, struct generate_store *s)
{
    const struct slot *contexts = &s->slots[SLOT_CONTEXTS], *lengths = &s->slots[SLOT_LENGTHS];
    if (!contexts->dl.data) return;
    for (int64_t b = 0; b < contexts->shape[3]; b++) {
        double keys = (double)problem->kv_len;
        if (problem->packed)
            keys = (double)(plain_row(problem, s, b + 1, 0) - plain_row(problem, s, b, 0));
        else if (lengths->dl.data)
            keys = tensor_fetch(slot_at(lengths, 0, 0, 0, b), lengths->dtype);
        tensor_store(slot_at(contexts, 0, 0, 0, b), contexts->dtype, keys);
    }
}

/* Each node sees itself and what an earlier node sees. */
static void fill_tree(const struct problem *problem, struct slot *tree)
{
    struct random_stream random;
    if (!tree->dl.data) return;
    generate_stream(problem, SLOT_TREE, &random);
    for (int64_t i = 0; i < tree->shape[2]; i++) {
        int64_t parent = i ? (int64_t)random_below(&random, (uint64_t)i) : 0;
        for (int64_t j = 0; j < tree->shape[3]; j++)
            *slot_at(tree, 0, 0, i, j) = i == j || (i && j <= parent && *slot_at(tree, 0, 0, parent, j));
    }
}

/* Positions in no order; some repeat, some are negative. */
static void fill_select(const struct problem *problem, struct slot *list)
{
    struct random_stream random;
    if (!list->dl.data) return;
    generate_stream(problem, SLOT_SELECT, &random);
    for (int64_t b = 0; b < list->shape[1]; b++)
        for (int64_t i = 0; i < list->shape[2]; i++)
            for (int64_t e = 0; e < list->shape[3]; e++)
                tensor_store(slot_at(list, 0, b, i, e), list->dtype,
                             (double)random_below(&random, (uint64_t)problem->kv_len + 2) - 1);
}

static void fill_prefix(const struct problem *problem, struct generate_store *s)
{
    struct random_stream random;
    random_seed(&random, problem->seed * SLOT_STREAMS + SLOT_STREAMS * 107u);
    for (int64_t n = 0; n < problem->prefix; n++) {
        int64_t start = (int64_t)random_below(&random, (uint64_t)problem->kv_len + 1);
        s->prefix[n] = (attn_prefix_range){n * generate_requests(problem) / problem->prefix, start,
                                           start + (int64_t)random_below(&random, 50)};
    }
}

void generate_cache_vectors(const struct problem *problem, struct generate_store *s)
{
    struct slot *alibi = &s->slots[SLOT_ALIBI];
    fill_table(problem, s);
    fill_contexts(problem, s);
    fill_tree(problem, &s->slots[SLOT_TREE]);
    fill_select(problem, &s->slots[SLOT_SELECT]);
    if (s->prefix && generate_requests(problem) > 0) fill_prefix(problem, s);
    for (int64_t h = 0; alibi->dl.data && h < problem->heads; h++)
        tensor_store(slot_at(alibi, 0, 0, 0, h), ATTN_F32, exp2((double)-(1 + h % 8)));
}
