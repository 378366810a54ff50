/* policy.h: a domain's rule from a role to a backend and an implementation. */
#ifndef ATTN_POLICY_POLICY_H
#define ATTN_POLICY_POLICY_H

#include "config/spec.h"
#include "registry/judge.h"

typedef struct attn_choice {
    const attn_backend *backend;
    const attn_impl_slot *slot; /* NULL when only the contract was asked */
    json_t *spec;               /* borrowed from the configuration; NULL: the platform's default */
    bool explicit_choice;
    char source[ATTN_SOURCE_TEXT];
    char reason[512]; /* one sentence; for an automatic choice it says who was passed over and why */
} attn_choice;

/* Resolves one role. court->role, sink and user are the caller's; the source is filled here. With a sink
 * every other backend is judged as well and told. Fails with unknown_backend and the kinds of refusal. */
attn_status attn_policy_diffusion(attn_court *court, const attn_config *config, const char *category,
                                  const attn_problem *problem, attn_choice *choice, attn_error *error);

/* The capability query: a configured backend straight from the registry, else the platform's default without
 * a head size; nothing is judged that the contract leaves to later. */
attn_status attn_policy_capability(attn_court *court, const attn_config *config, const char *category,
                                   attn_choice *choice, attn_error *error);

/* Values that a backend checks when its layer is built. */
attn_status attn_policy_construct(const attn_court *court, const attn_choice *choice, attn_error *error);

#endif
