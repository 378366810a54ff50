/* tune.h: what attn tune tries, measures and keeps. */
#ifndef ATTN_CLI_TUNE_H
#define ATTN_CLI_TUNE_H

#include <attn/attn.h>
#include <jansson.h>

#include "bench.h"
#include "options_context.h"

/* What a row of a profile can say. isa "": nothing, the library's own choice. */
struct tune_choice {
    char isa[24];
    int64_t rows, keys; /* 0: not said */
    int cache;          /* blocks by the machine's level-2 cache */
};

/* A candidate with its times; seconds 0: it did not run. */
struct tune_trial {
    struct tune_choice choice;
    char name[64], plan[160];
    double seconds;
};

#define TUNE_TRIALS_MAX (CONTENDERS_MAX + 8)

/* One problem: everything that was tried, and what is kept. */
struct tune_result {
    const struct problem *problem;
    size_t count;
    struct tune_trial trials[TUNE_TRIALS_MAX];
    struct tune_choice kept;
    double flop, kept_seconds, default_seconds; /* of the last comparison */
    attn_error error;                           /* why nothing could be measured; kind none: it was */
};

/* Measures the candidates for one problem: kernel sets, then blocks, then the winner against the default once
 * more. Fails: cancelled, out_of_memory, and what is wrong with the request. */
attn_status tune_problem(struct bench_setup *setup, const struct context_values *values,
                         struct tune_result *result, attn_error *error);

/* The text of a candidate: a row of a profile. */
json_t *tune_row(const struct problem *problem, const struct tune_choice *choice);
/* A whole profile of no rows. */
json_t *tune_profile(const char *cpu);
/* Adds a result's row; 0 when an earlier row holds for the same calls. */
int tune_add(json_t *profile, const struct tune_result *result);

#endif
