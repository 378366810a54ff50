/* judge.h: the only place that says yes or no, and it collects every reason. */
#ifndef ATTN_REGISTRY_JUDGE_H
#define ATTN_REGISTRY_JUDGE_H

#include "registry/contract.h"

/* What candidates are judged against. */
typedef struct attn_court {
    const attn_registry *registry;
    const attn_host *host;
    const attn_facts *facts; /* live: implementations are judged; else the contract */
    int64_t head_size;       /* 0 or less: not known */
    bool permitted;          /* the model permits TRTLLM as a default */
    uint64_t demoted; /* bits of implementations that failed at run time; automatic choices pass them over */
    const char *role, *source;
    const attn_impl_slot *plugin; /* that the dispatcher's name stands for; NULL: none was named */
    const char *qkv_layout;       /* that the model declares; NULL: none */
    const char *impl_overrides;   /* of the layer, "BACKEND=implementation,..."; NULL: none */
    attn_trace_fn sink;           /* may be NULL */
    void *user;
} attn_court;

/* What is wanted is in the problem; sizes of 0 are not known yet and pass. */
void attn_judge_impl(const attn_court *court, const attn_impl_slot *slot, const attn_problem *problem,
                     attn_reasons *reasons);

typedef struct attn_verdict {
    const attn_backend *backend;
    const attn_impl_slot *slot; /* NULL: refused, or judged by the contract alone */
    bool usable;
    attn_kind kind;       /* of the first reason */
    attn_clauses clauses; /* reasons of the first refused implementation, or of the backend */
} attn_verdict;

/* Judges a backend: its contract for the platform, then the implementations behind it in order; an override
 * is the only candidate when there is one. */
void attn_judge_backend(const attn_court *court, const attn_backend *backend, const attn_problem *problem,
                        attn_verdict *verdict);

#endif
