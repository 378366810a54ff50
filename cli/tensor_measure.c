/* tensor_measure.c: how far two results are apart, and how much work a call is. */
#include <math.h>
#include <stdlib.h>

#include "tensor.h"

static int same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

void tensor_compare(const double *values, const double *exact, int64_t count, struct tensor_error *error)
{
    double dot = 0, square_a = 0, square_b = 0, square_difference = 0;
    int broken = 0;
    *error = (struct tensor_error){.worst = count ? 0 : -1, .count = count};
    for (int64_t i = 0; i < count; i++) {
        double a = values[i], b = exact[i];
        if (!isfinite(a) || !isfinite(b)) {
            error->not_finite += !isfinite(a);
            error->not_finite_exact += !isfinite(b);
            error->not_finite_both += same(a, b);
            if (same(a, b) || broken) continue;
            broken = 1;
            error->worst = i;
            continue;
        }
        dot += a * b;
        square_a += a * a;
        square_b += b * b;
        square_difference += (a - b) * (a - b);
        if (fabs(a - b) > error->max_abs && !broken) {
            error->max_abs = fabs(a - b);
            error->worst = i;
        }
    }
    error->relative_l2 = square_difference > 0 ? sqrt(square_difference / square_b) : 0;
    error->cosine = square_a > 0 && square_b > 0   ? dot / sqrt(square_a * square_b)
                    : square_a > 0 || square_b > 0 ? 0
                                                   : 1;
    if (error->cosine > 1) error->cosine = 1; /* rounding */
    if (!broken) return;
    error->max_abs = error->relative_l2 = INFINITY;
    error->cosine = 0;
}

/* ---- work -------------------------------------------------------------------------------------- */

static int64_t at_or(const DLTensor *tensor, int64_t index, int64_t otherwise)
{
    return tensor ? (int64_t)tensor_at(tensor, index) : otherwise;
}

/* The keys of one sample. before[j] counts those before key j that a key mask keeps; NULL: all are kept. */
struct keys {
    int64_t count;
    const int64_t *before;
};

static int64_t kept_between(const struct keys *keys, int64_t first, int64_t last)
{
    if (last < first) return 0;
    return keys->before ? keys->before[last + 1] - keys->before[first] : last - first + 1;
}

/* Keys that one query at a position keeps. */
static int64_t kept_keys(const attn_layer_options *layer, int64_t position, const struct keys *keys)
{
    int64_t first = 0, last = keys->count - 1;
    if (layer->causal && position < last) last = position;
    if (layer->window & ATTN_WINDOW_RIGHT && layer->window_right < last - position)
        last = position + layer->window_right;
    if (layer->window & ATTN_WINDOW_LEFT && position - layer->window_left > first)
        first = position - layer->window_left;
    return kept_between(keys, first, last);
}

static double pairs_of(const attn_layer_options *layer, int64_t queries, const struct keys *keys,
                       int64_t start)
{
    double pairs = 0;
    if (!layer->causal && !layer->window)
        return (double)queries * (double)kept_between(keys, 0, keys->count - 1);
    for (int64_t i = 0; i < queries; i++) {
        int64_t position = layer->alignment == ATTN_TOP_LEFT ? i + start : i + keys->count - queries;
        pairs += (double)kept_keys(layer, position, keys);
    }
    return pairs;
}

/* Running counts of the keys that row b of a key mask keeps; NULL without a mask, with joint keys, whose
 * order the mask does not follow, or without memory, when all keys are counted. */
static int64_t *count_kept(const attn_args *args, int64_t b)
{
    const DLTensor *mask = args->key_mask;
    if (!mask || args->joint_k) return NULL;
    int64_t keys = mask->shape[1], row = mask->shape[0] > 1 ? b : 0;
    int64_t *before = malloc(((size_t)keys + 1) * sizeof *before);
    if (!before) return NULL;
    before[0] = 0;
    for (int64_t j = 0; j < keys; j++) before[j + 1] = before[j] + (tensor_at(mask, row * keys + j) != 0);
    return before;
}

/* Pairs of one list of a block map: of `rows` queries from `first` on and the keys of listed blocks. */
static double list_pairs(const attn_layer_options *layer, const attn_block_map *map, int64_t list,
                         int64_t first, int64_t rows, int64_t corner, const struct keys *keys)
{
    double pairs = 0;
    int64_t most = map->blocks->shape[3], count = (int64_t)tensor_at(map->counts, list);
    for (int64_t n = 0; n < count; n++) {
        int64_t start = (int64_t)tensor_at(map->blocks, list * most + n) * map->block_k,
                end = start + map->block_k;
        struct keys part = {end < keys->count ? end : keys->count, keys->before};
        struct keys before = {start < part.count ? start : part.count, keys->before};
        int all = !layer->causal && !layer->window;
        for (int64_t i = first; i < first + rows; i += all ? rows : 1) {
            double seen =
                (double)(kept_keys(layer, i + corner, &part) - kept_keys(layer, i + corner, &before));
            pairs += seen * (double)(all ? rows : 1);
        }
    }
    return pairs;
}

/* Pairs of a sample, as a mean over the heads of its block map. */
static double map_pairs(const attn_layer_options *layer, const attn_args *args, int64_t b, int64_t queries,
                        const struct keys *keys)
{
    const attn_block_map *map = args->block_map;
    const int64_t *shape = map->counts->shape;
    int64_t corner = layer->alignment == ATTN_TOP_LEFT ? args->query_start : keys->count - queries;
    double pairs = 0;
    for (int64_t h = 0; h < shape[1]; h++)
        for (int64_t i = 0; i < shape[2]; i++) {
            int64_t first = i * map->block_q, rest = queries - first;
            int64_t list = ((shape[0] > 1 ? b : 0) * shape[1] + h) * shape[2] + i;
            pairs +=
                list_pairs(layer, map, list, first, rest < map->block_q ? rest : map->block_q, corner, keys);
        }
    return shape[1] ? pairs / (double)shape[1] : 0;
}

double tensor_flops(const attn_layer_options *layer, const attn_args *args)
{
    int packed = args->cu_seqlens_q != NULL && args->cu_seqlens_k != NULL;
    int sequence = args->q->ndim - 3;
    int64_t queries = args->q->shape[sequence], count = args->k->shape[args->k->ndim - 3];
    int64_t samples = packed ? args->cu_seqlens_q->shape[0] - 1 : args->q->ndim == 4 ? args->q->shape[0] : 1;
    int64_t value_dim = args->v->shape[args->v->ndim - 1], head_dim = args->q->shape[args->q->ndim - 1];
    double pairs = 0;
    if (args->joint_q) queries += args->joint_q->shape[1];
    if (args->joint_k) count += args->joint_k->shape[1];
    for (int64_t b = 0; b < samples; b++) {
        int64_t n = packed ? at_or(args->cu_seqlens_q, b + 1, 0) - at_or(args->cu_seqlens_q, b, 0) : queries;
        int64_t m = packed ? at_or(args->cu_seqlens_k, b + 1, 0) - at_or(args->cu_seqlens_k, b, 0) : count;
        int64_t length = at_or(args->kv_lengths, b, m), *before = count_kept(args, b);
        struct keys keys = {length < m ? length : m, before};
        pairs += args->block_map ? map_pairs(layer, args, b, n, &keys)
                                 : pairs_of(layer, n, &keys, args->query_start);
        free(before);
    }
    return 2.0 * (double)(head_dim + value_dim) * (double)args->q->shape[args->q->ndim - 2] * pairs;
}
