/* outcome.h: the outputs of a call as numbers, for comparing one run with another. */
#ifndef ATTN_CLI_OUTCOME_H
#define ATTN_CLI_OUTCOME_H

#include <attn/attn.h>

#include "tensor.h"

struct outcome {
    double *out; /* out and then joint_out */
    double *lse; /* NULL: none */
    int64_t out_count, lse_count;
};

/* Copies the outputs of args. Freed by outcome_free, also after a failure. Fails: out_of_memory. */
attn_status outcome_read(const attn_args *args, struct outcome *outcome, attn_error *error);
void outcome_free(struct outcome *outcome);

/* 1 when both hold the same numbers, bit by bit. */
int outcome_same(const struct outcome *a, const struct outcome *b);

#endif
