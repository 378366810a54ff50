/* judge.h: the only place that says yes or no, and it collects every reason. */
#ifndef ATTN_REGISTRY_JUDGE_H
#define ATTN_REGISTRY_JUDGE_H

#include "registry/registry.h"

/* What candidates are judged against. */
typedef struct attn_court {
    const attn_registry *registry;
    const attn_host *host;
    const char *platform;
    int32_t arch; /* major * 10 + minor; 0: none */
    const char *role, *source;
    attn_trace_fn sink; /* may be NULL */
    void *user;
} attn_court;

/* What is wanted is in the problem; sizes of 0 are not known yet and pass. */
void attn_judge_impl(const attn_court *court, const attn_impl *impl, const attn_problem *problem,
                     attn_reasons *reasons);

typedef struct attn_verdict {
    const attn_backend *backend;
    const attn_impl_slot *slot; /* NULL: refused */
    attn_kind kind;             /* of the first reason */
    char text[400];             /* reasons of the first refused implementation, or of the backend */
} attn_verdict;

/* Judges a backend: its contract for the platform, then the implementations behind it in order; an override
 * is the only candidate when there is one. */
void attn_judge_backend(const attn_court *court, const attn_backend *backend, const attn_problem *problem,
                        attn_verdict *verdict);

/* words: separated by single blanks. */
bool attn_word_in(const char *words, const char *word);

#endif
