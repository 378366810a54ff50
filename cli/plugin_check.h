/* plugin_check.h: runs a sparse plugin on a problem and says whether what it did holds. */
#ifndef ATTN_CLI_PLUGIN_CHECK_H
#define ATTN_CLI_PLUGIN_CHECK_H

#include <attn/attn.h>

#include "problem.h"

enum plugin_verdict { PLUGIN_PASSED, PLUGIN_FAILED, PLUGIN_REFUSED };

/* A plugin in a context whose configuration names it, and the reference beside it. Nothing is owned. */
struct plugin_subject {
    attn_plugin_info info;
    attn_context *context, *reference;
    const attn_params *params; /* of every call; NULL: none */
};

struct plugin_result {
    enum plugin_verdict verdict;
    attn_error error; /* of a failure or a refusal */
    char text[PROBLEM_TEXT_BYTES];
    char report[160];           /* what the run told of itself, "" when nothing */
    char map[64];               /* selectors: how the output was judged */
    double kept;                /* share of the pairs of blocks that were computed; 1 without blocks */
    double cosine, relative_l2; /* against dense attention in double precision; not judged; NaN: not run */
};

/* Runs the problem twice into poisoned outputs, with a per-forward state whose frames and patches make up the
 * queries. Every element must be written and finite, both runs must have the same bits and nothing around the
 * outputs may change. A selector's output is also held against the reference under the map that it chose,
 * which is read back from a run whose values tell the keys apart. */
void plugin_check(const struct plugin_subject *subject, const struct problem *problem,
                  struct plugin_result *result);

#endif
