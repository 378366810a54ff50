/* pooled.h: block-sparse attention over blocks that are chosen by their means: the common part of VSA and
 * RainFusion.
 *
 * Works on copies of a few heads at a time, in the order of the blocks: the copy makes blocks of rows that
 * lie apart, sees them once for their means, and rounds what is to be rounded. The chosen lists are run by
 * flash. */
#ifndef ATTN_BACKENDS_POOLED_H
#define ATTN_BACKENDS_POOLED_H

#include <attn/module.h>

typedef struct pooled_spec {
    int64_t blocks;        /* of queries and of keys alike */
    int64_t largest;       /* rows of the largest block */
    const int64_t *starts; /* blocks + 1: first place of each block, and the end */
    const int64_t *order;  /* the token at each place; NULL: places are tokens */
    int64_t always;        /* the first blocks are kept by all, and keep all */
    int64_t keep; /* further blocks that every other query block keeps, those of the best mean scores */
    int round_qk, round_v; /* to fp8, block by block with a scale that is a power of two */
    const DLTensor *gate;  /* [B, S, H, D] of q's type or f32: attention over the means, times this, is added
                              to the  output; NULL: none */
    const char *what;      /* of a block, in reports: "cubes" */
} pooled_spec;

/* Runs a call with as many keys as queries, equal heads and head sizes, without masks. Reports what it kept.
 * Fails: out_of_memory, cancelled, invalid_shape, invalid_dtype (gate). */
attn_status pooled_run(const attn_host *host, const attn_call *call, const pooled_spec *spec,
                       attn_error *error);

/* What both are for: as many keys as queries. name: the backend. */
void pooled_accept(const char *name, const attn_problem *p, attn_reasons *reasons);

/* Plan and drop of implementations whose own dense passes are flash's: the state is a flash_plan. */
attn_status pooled_plan(const attn_host *host, const attn_problem *p, void **state, attn_workspace *workspace,
                        attn_error *error);
void pooled_drop(const attn_host *host, void *state);

/* Three whole numbers; leaves them as they are when the parameter is absent. */
attn_status pooled_three(const attn_params *params, const char *name, int64_t three[3], int *given,
                         attn_error *error);

#endif
