/* cubes.h: a grid of tokens cut into cubes. */
#ifndef ATTN_SPARSE_CUBES_H
#define ATTN_SPARSE_CUBES_H

#include <attn/module.h>

/* Frames, rows, columns. Tokens of a sequence run through a grid with columns fastest. */
typedef struct sparse_cubes {
    int64_t grid[3], cube[3];
    int64_t count[3]; /* cubes along each axis; the last ones are cut off by the end of the grid */
    int64_t tokens, cubes;
} sparse_cubes;

/* Fails: invalid_value when a size is below 1 (grid: below 0) or their products do not fit. */
attn_status sparse_cubes_make(const int64_t grid[3], const int64_t cube[3], sparse_cubes *cubes,
                              attn_error *error);
/* Cubes run like tokens, columns fastest. starts: cubes + 1, the place of the first token of each cube and
 * the end; order: tokens, the token at each place. Cubes at the end of the grid have their real size. */
void sparse_cubes_order(const sparse_cubes *cubes, int64_t *starts, int64_t *order);

/* Blocks to keep when a share of them is left out: rounded up, at least one of them. */
int64_t sparse_keep_of(double sparsity, int64_t blocks);

#endif
