/* selectors.h: what the selectors of this folder share. A selector fills, for each query block, the list of
 * key blocks that it attends to; the library's kernels do the rest. */
#ifndef ATTN_SELECTORS_H
#define ATTN_SELECTORS_H

#include <attn/module.h>

extern const attn_sparse selector_sliding_tile, selector_radial, selector_mean_topk, selector_mean_mass;

/* ---- video tokens (grid.c) ----------------------------------------------------------------------- */

/* Tokens of a video as frames, rows and columns; columns are fastest. */
typedef struct video_grid {
    int64_t size[3];
} video_grid;

/* The parameter "grid", or else what the pipeline publishes: latent_shape over patch_size. Queries and keys
 * are these tokens. Fails: invalid_shape, invalid_value when neither fits the sequence. */
attn_status selector_grid(const attn_sparse_call *call, const char *selector, video_grid *grid);

/* ---- block maps ---------------------------------------------------------------------------------- */

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t blocks_of(int64_t length, int64_t block)
{
    return (length + block - 1) / block;
}

/* A query block of one sample and head: what a task of parallel_for does. */
typedef struct block_place {
    int64_t sample, head, block;
} block_place;

static inline block_place place_of(const attn_sparse_call *call, const attn_block_map *map, int64_t index)
{
    int64_t blocks = blocks_of(map->q_len, map->block_q), heads = call->problem->heads;
    return (block_place){index / blocks / heads, index / blocks % heads, index % blocks};
}

static inline int64_t place_count(const attn_sparse_call *call, const attn_block_map *map)
{
    return call->problem->batch * call->problem->heads * blocks_of(map->q_len, map->block_q);
}

/* Key blocks that a query block can see at all: those that the sample's length and causal order leave; at
 * least one. */
static inline int64_t visible_blocks(const attn_sparse_call *call, const attn_block_map *map, block_place at)
{
    const attn_problem *p = call->problem;
    int64_t keys = attn_call_rows(call->call, at.sample).kv_len,
            end = smaller((at.block + 1) * map->block_q, p->q_len);
    end += p->alignment == ATTN_TOP_LEFT ? call->call->query_start : keys - p->q_len;
    if (!p->causal) end = keys;
    return blocks_of(larger(1, smaller(end, keys)), map->block_k);
}

#endif
