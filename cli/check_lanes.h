/* check_lanes.h: the ways in which attn check runs a problem: each implementation, kernel set and thread
 * count. */
#ifndef ATTN_CLI_CHECK_LANES_H
#define ATTN_CLI_CHECK_LANES_H

#include <attn/attn.h>

#include "outcome.h"

#define CHECK_REFERENCE "TORCH_SDPA" /* the backend that serves every feature and judges the others */

/* The first reason against the lane's own backend in the refusal met last; "" before. */
struct check_reason {
    char backend[64];
    char text[512];
};

/* What a lane's result is held against, beside the exact one. */
enum check_rule {
    CHECK_EXACT,  /* nothing */
    CHECK_SCALAR, /* the scalar kernel set, within twice the bound */
    CHECK_SAME    /* the same kernel set with one thread, bit by bit */
};

struct check_lane {
    char implementation[64], backend[64], isa[32]; /* isa: on another device its name, "cuda:0" */
    DLDevice device;
    uint32_t flags; /* of the implementation: ATTN_IMPL_* */
    int32_t threads;
    enum check_rule rule;
    size_t base;           /* lane that rule means */
    attn_context *context; /* NULL: this machine cannot; error says why */
    attn_error error;
    int64_t passed, failed, skipped;
    struct check_reason *reason;
    double share;           /* largest part of an allowed error that was used */
    struct outcome outcome; /* of the problem at hand; out NULL: none */
};

struct check_lanes {
    struct check_lane *items;
    size_t count;
    attn_context *reference;
};

struct check_choice {
    const char *backend, *isa, *module_path; /* NULL: all */
    const char *device;                      /* as --device says it; NULL: cpu */
};

/* Opens a lane for each implementation of platform cpu, kernel set, and thread counts 2 and 3 of the best
 * set; on another device one for each implementation of its platform. Freed by check_lanes_close, also after
 * a failure. Fails like attn_open; unknown_backend when none is left. */
attn_status check_lanes_open(const struct check_choice *choice, struct check_lanes *lanes, attn_error *error);
void check_lanes_close(struct check_lanes *lanes);

#endif
