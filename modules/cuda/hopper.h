/* hopper.h: the warpgroup kernel's instances, as the host sees them. */
#ifndef ATTN_CUDA_HOPPER_H
#define ATTN_CUDA_HOPPER_H

#include "device.h"

#include <cuda.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct attn_cuda_hopper_tile {
    int32_t size, value_size; /* the largest head sizes it takes */
    int32_t least;            /* keys of a problem from which on it is the better one */
    int32_t groups, keys;     /* warpgroups of 64 query rows; keys a tile */
    int32_t width;            /* columns of a box of shared memory */
    int32_t queries;          /* buffers of Q */
    int32_t map;              /* walks block maps, and does nothing else */
    int32_t blocks;           /* that a multiprocessor holds */
    int32_t threads, bytes;   /* bytes: of shared memory */
} attn_cuda_hopper_tile;

/* One call by value. `pack` query heads that share a key head share a tile as well: row r of a warpgroup is
 * position r / pack in head r % pack. */
typedef struct attn_cuda_hopper_call {
    CUtensorMap q, k, v, out;
    attn_cuda_call c;
    int32_t pack, positions; /* pack * positions <= 64: rows of a warpgroup */
    int32_t store;           /* out goes through its map */
    int32_t order;           /* 1: the longest rows of all heads first */
    int32_t piece;           /* with a map: keys that one copy brings, 64 or 128 */
} attn_cuda_hopper_call;

/* The kernel of instance `index` for one element type. */
const void *attn_cuda_hopper_f16(int32_t index);
const void *attn_cuda_hopper_bf16(int32_t index);

/* NULL past the end. */
const attn_cuda_hopper_tile *attn_cuda_hopper_tile_at(int32_t index);

/* Says how rows are packed and makes the maps. call->c is filled. */
attn_status attn_cuda_hopper_map(attn_cuda_hopper_call *call, const attn_cuda_hopper_tile *tile,
                                 const char *who, attn_error *error);

/* hopper.c: the instance for a problem, or NULL; lets it use its shared memory on the current device; runs
 * it, with the workspace of attn_cuda_listed_bytes when there is a map. call: maps are not made. */
const attn_cuda_hopper_tile *attn_cuda_hopper_choose(const attn_problem *p);
cudaError_t attn_cuda_hopper_ready(const attn_cuda_hopper_tile *tile, attn_dtype dtype);
attn_status attn_cuda_hopper_run(const attn_cuda_hopper_tile *tile, attn_cuda_hopper_call *call,
                                 void *workspace, const char *who, cudaStream_t stream, attn_error *error);

cudaError_t attn_cuda_hopper_launch(const attn_cuda_hopper_call *call, const attn_cuda_hopper_tile *tile,
                                    const void *kernel, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
