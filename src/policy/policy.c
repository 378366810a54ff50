/* policy.c: the rule of a domain is a row. */
#include "policy/policy.h"

typedef attn_status policy_fn(attn_court *, const attn_config *, const attn_question *, const attn_problem *,
                              attn_choice *, attn_error *);

static policy_fn *const policies[] = {
    [ATTN_DOMAIN_DIFFUSION] = attn_policy_diffusion,
    [ATTN_DOMAIN_LLM] = attn_policy_llm,
    [ATTN_DOMAIN_VISION] = attn_policy_vision,
};

attn_status attn_policy_choose(attn_court *court, const attn_config *config, const attn_question *question,
                               const attn_problem *problem, attn_choice *choice, attn_error *error)
{
    return policies[question->domain](court, config, question, problem, choice, error);
}

void attn_policy_tell(const attn_court *court, int32_t event, const char *backend, const char *impl,
                      const char *text)
{
    if (!court->sink) return;
    attn_trace trace = {.size = sizeof trace,
                        .event = event,
                        .usable = 1,
                        .role = court->role,
                        .source = court->source,
                        .backend = backend,
                        .implementation = impl,
                        .text = text};
    court->sink(court->user, &trace);
}
