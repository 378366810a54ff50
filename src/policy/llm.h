/* llm.h: the parts of the rule of domain llm. */
#ifndef ATTN_POLICY_LLM_H
#define ATTN_POLICY_LLM_H

#include "policy/policy.h"

/* Who may be chosen, with what speaks against each. */
typedef struct attn_llm_candidate {
    int name;
    const attn_impl_slot *slot; /* NULL where only the contract is asked */
    attn_llm_reasons reasons;
} attn_llm_candidate;

enum { ATTN_LLM_CANDIDATES = 8 };
typedef struct attn_llm_list {
    int count;
    attn_llm_candidate item[ATTN_LLM_CANDIDATES];
} attn_llm_list;

/* llm_routes.c: the candidates of a platform for a question, in order; reasons are left empty. named: the
 * backend that the user named, or -1; it matters to rows that count when it is theirs. */
void attn_llm_candidates(const attn_facts *facts, const attn_llm_case *question, int named,
                         attn_llm_list *list);

typedef enum attn_llm_rule { ATTN_LLM_VALIDATED, ATTN_LLM_FIXED, ATTN_LLM_LISTED } attn_llm_rule;
typedef struct attn_llm_platform {
    const char *name;
    attn_llm_rule rule;
    attn_kind mla, sparse; /* of the refusal; none: no refusal */
    int64_t block, multiple;
    const char *layout;
    int32_t passed_over; /* level of the log for candidates that were refused */
} attn_llm_platform;
/* A platform without a row of its own validates. */
const attn_llm_platform *attn_llm_platform_of(const attn_facts *facts);

/* llm_answer.c: what follows from a choice; warnings are sentences joined in choice->warning. */
void attn_llm_fill_answer(const attn_facts *facts, const attn_config *config, const attn_llm_case *question,
                          int name, attn_choice *choice);
void attn_llm_warn(attn_choice *choice, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* llm_prefill.c: the backend of MLA prefill, NULL: none is there. */
const char *attn_llm_prefill(const attn_facts *facts, const attn_llm_settings *settings,
                             const attn_llm_case *question, bool *takes_fp8, bool *is_flash);

#endif
