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

/* Clauses of a sentence that may be too many for it. */
typedef struct attn_clauses {
    int count;       /* of all that were added */
    int kept;        /* of those in text */
    char text[2048]; /* clauses, each ended by a newline */
} attn_clauses;

void attn_clauses_add(attn_clauses *list, const char *clause);
/* "first; second; and 3 more": whole clauses as they fit, the first at least (cut at a word if it must be).
 * Returns text. */
const char *attn_clauses_say(const attn_clauses *list, char *text, size_t bytes);

/* Collects what speaks against one candidate: keeps the first kind and the clauses, tells each to the sink.
 */
struct attn_reasons {
    attn_trace_fn sink; /* may be NULL */
    void *user;
    attn_trace who; /* role, source, backend, implementation of the candidate */
    int count;
    attn_kind first;
    attn_clauses clauses;
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
