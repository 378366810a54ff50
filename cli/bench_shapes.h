/* bench_shapes.h: the rows of bench/shapes.def, and problems cut down to what a machine can run. */
#ifndef ATTN_CLI_BENCH_SHAPES_H
#define ATTN_CLI_BENCH_SHAPES_H

#include <stddef.h>

#include "problem.h"

struct bench_shape {
    const char *model, *site, *problem, *source;
    int usual; /* measured when the user names nothing */
};

/* Row by index; NULL past the end. */
const struct bench_shape *bench_shape_at(size_t index);

/* 1 when the model's name holds the word, in any case of letters. */
int bench_shape_matches(const struct bench_shape *shape, const char *word);

/* Divides both sequence lengths by scale, rounding up. Lengths of up to 512 stay as they are and longer ones
 * stay at 512 or above: a text prompt or a single query is part of what makes the shape. */
void bench_scale(struct problem *problem, double scale);

/* The smallest of 1, 1.5, 2, 3, 4, 6, 8 ... that brings a problem to BENCH_FLOP or as near as scaling can.
 * The same on every machine, so that results can be laid side by side. */
#define BENCH_FLOP 8e9
double bench_scale_for(const struct problem *problem);

/* FLOP of a problem by the formula below. */
double bench_flop(const struct problem *problem);
#define BENCH_FLOP_TEXT "2 B H Sq Skv (D + Dv), also for causal problems and windows"
/* Bytes of q, k, v and out, each counted once. */
double bench_bytes(const struct problem *problem);

#endif
