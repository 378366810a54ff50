/* contenders.h: the backends that a command compares, each with a context of its own. */
#ifndef ATTN_CLI_CONTENDERS_H
#define ATTN_CLI_CONTENDERS_H

#include <attn/attn.h>

#include "options_context.h"

#define CONTENDERS_MAX 32

struct contenders {
    size_t count;
    const char *names[CONTENDERS_MAX]; /* owned */
    attn_context *contexts[CONTENDERS_MAX];
};

/* Opens a context for each backend of `backends`, "NAME,..." texts of --backends; without any, for every
 * backend that has code for host memory. Closed by contenders_close, also after a failure. Fails:
 * unknown_backend, package_missing, invalid_value, and as context_open. */
attn_status contenders_open(struct contenders *set, const struct context_values *values,
                            const struct option_texts *backends, attn_error *error);
/* Adds one more under a name of its own; values say its backend. Fails: invalid_value (the set is full), and
 * as context_open. */
attn_status contenders_add(struct contenders *set, const struct context_values *values, const char *name,
                           attn_error *error);
void contenders_close(struct contenders *set);

#endif
