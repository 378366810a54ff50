/* cubes.c: a grid of tokens cut into cubes. */
#include "sparse/cubes.h"

#include <inttypes.h>
#include <math.h>

enum { T, H, W, AXES };

attn_status sparse_cubes_make(const int64_t grid[3], const int64_t cube[3], sparse_cubes *c,
                              attn_error *error)
{
    c->tokens = c->cubes = 1;
    for (int i = 0; i < AXES; i++) {
        if (grid[i] < 0 || cube[i] < 1 || grid[i] > INT64_MAX / 4 || cube[i] > INT64_MAX / 4)
            return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                             "a grid of %" PRId64 " x %" PRId64 " x %" PRId64
                             " tokens cannot be cut into cubes of %" PRId64 " x %" PRId64 " x %" PRId64
                             "; sizes of a grid are 0 or more, of a cube 1 or more",
                             grid[T], grid[H], grid[W], cube[T], cube[H], cube[W]);
        c->grid[i] = grid[i];
        c->cube[i] = cube[i];
        c->count[i] = (grid[i] + cube[i] - 1) / cube[i];
        if (__builtin_mul_overflow(c->tokens, grid[i], &c->tokens) ||
            __builtin_mul_overflow(c->cubes, c->count[i], &c->cubes))
            return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                             "a grid of %" PRId64 " x %" PRId64 " x %" PRId64
                             " tokens has more than 64 bits count",
                             grid[T], grid[H], grid[W]);
    }
    return ATTN_OK;
}

/* End of cube i along an axis. */
static int64_t end_of(const sparse_cubes *c, int axis, int64_t i)
{
    int64_t end = (i + 1) * c->cube[axis];
    return end < c->grid[axis] ? end : c->grid[axis];
}

/* The tokens of one cube from `place` on; returns the place behind them. */
static int64_t fill_cube(const sparse_cubes *c, int64_t t, int64_t h, int64_t w, int64_t place,
                         int64_t *order)
{
    for (int64_t z = t * c->cube[T]; z < end_of(c, T, t); z++)
        for (int64_t y = h * c->cube[H]; y < end_of(c, H, h); y++)
            for (int64_t x = w * c->cube[W]; x < end_of(c, W, w); x++)
                order[place++] = (z * c->grid[H] + y) * c->grid[W] + x;
    return place;
}

void sparse_cubes_order(const sparse_cubes *c, int64_t *starts, int64_t *order)
{
    int64_t n = 0, place = 0;
    for (int64_t t = 0; t < c->count[T]; t++)
        for (int64_t h = 0; h < c->count[H]; h++)
            for (int64_t w = 0; w < c->count[W]; w++) {
                starts[n++] = place;
                place = fill_cube(c, t, h, w, place, order);
            }
    starts[n] = place;
}

int64_t sparse_keep_of(double sparsity, int64_t blocks)
{
    /* A product that is whole but for rounding stays whole. */
    int64_t keep = (int64_t)ceil((1 - sparsity) * (double)blocks - 1e-9);
    return keep < 1 ? 1 : keep > blocks ? blocks : keep;
}
