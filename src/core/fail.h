/* fail.h: every failure and every reason passes here. */
#ifndef ATTN_CORE_FAIL_H
#define ATTN_CORE_FAIL_H

#include <attn/module.h>
#include <stdbool.h>

/* Forwards a failure: returns from the calling function with the status. */
#define ATTN_TRY(expression)                                                                                 \
    do {                                                                                                     \
        attn_status attn_try_status = (expression);                                                          \
        if (attn_try_status) return attn_try_status;                                                         \
    } while (0)

/* Collects what speaks against one candidate: keeps the first kind and the joined text, tells each to the
 * sink. */
struct attn_reasons {
    attn_trace_fn sink; /* may be NULL */
    void *user;
    attn_trace who; /* role, source, backend, implementation of the candidate */
    int count;
    attn_kind first;
    char text[400]; /* "first; second; ..." cut at the end */
};

/* The first kind of a status that is a failure; INTERNAL for a status that has none. */
attn_kind attn_kind_of(attn_status status);

void attn_reasons_start(attn_reasons *reasons, attn_trace_fn sink, void *user, const attn_trace *who);

/* Copies `size` bytes that a caller filled into a struct of ours and clears the rest; false when size is
 * impossible (smaller than `least`). */
bool attn_copy_struct(void *ours, size_t our_size, const void *theirs, uint32_t their_size, size_t least);
/* The other direction: fills at most the caller's size and keeps the caller's size field. */
void attn_give_struct(void *theirs, const void *ours, size_t our_size);

#endif
