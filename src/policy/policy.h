/* policy.h: a domain's rule from a question to a backend and an implementation. */
#ifndef ATTN_POLICY_POLICY_H
#define ATTN_POLICY_POLICY_H

#include "config/spec.h"
#include "registry/judge.h"
#include "registry/llm.h"

/* What domain llm says beside the choice; see attn_resolution. */
typedef struct attn_llm_answer {
    const char *variant, *layout, *kv_cache_dtype, *prefill;
    int64_t block;
    int32_t flash_version;
    bool trtllm_prefill, trtllm_decode, query_fp8, pads_value;
} attn_llm_answer;

typedef struct attn_choice {
    const attn_backend *backend;
    const attn_impl_slot *slot; /* NULL when only the contract was asked */
    json_t *spec;               /* borrowed from the configuration; NULL: the platform's default */
    bool explicit_choice;
    char source[ATTN_SOURCE_TEXT];
    char reason[512]; /* one sentence; for an automatic choice it says who was passed over and why */
    attn_llm_answer llm;
    char warning[512];   /* what should be logged beside the choice; "" for nothing */
    char rejected[1024]; /* domain llm: candidates that were refused, "{NAME: [reason, reason]}"; "" for none
                          */
    int32_t rejected_level; /* of the log; at ATTN_LOG_INFO the line says that the choice overrides them */
} attn_choice;

/* What is asked. Strings are the caller's. */
typedef struct attn_question {
    attn_domain domain;
    const char *category;      /* domain diffusion; NULL: none */
    const char *model_backend; /* domain vision: the model's own wish; NULL: none */
    attn_llm_case llm;         /* domain llm, without the settings */
} attn_question;

/* Resolves one site by the rule of its domain. court->role, sink and user are the caller's; the source is
 * filled here. With a sink every other backend is judged as well and told. Fails with unknown_backend and the
 * kinds of refusal. */
attn_status attn_policy_choose(attn_court *court, const attn_config *config, const attn_question *question,
                               const attn_problem *problem, attn_choice *choice, attn_error *error);

attn_status attn_policy_diffusion(attn_court *court, const attn_config *config, const attn_question *question,
                                  const attn_problem *problem, attn_choice *choice, attn_error *error);
attn_status attn_policy_llm(attn_court *court, const attn_config *config, const attn_question *question,
                            const attn_problem *problem, attn_choice *choice, attn_error *error);
attn_status attn_policy_vision(attn_court *court, const attn_config *config, const attn_question *question,
                               const attn_problem *problem, attn_choice *choice, attn_error *error);

/* Reads what the caller said into a case; NULL: all defaults. Fails: invalid_struct, invalid_value,
 * invalid_kv_cache_dtype. */
attn_status attn_llm_read_query(const attn_llm_query *query, attn_llm_case *question, attn_error *error);
/* All fields of a question, "(head_size=128, dtype=bf16, ...)". Returns text. */
const char *attn_llm_query_text(const attn_llm_case *question, char *text, size_t bytes);

/* The capability query: a configured backend straight from the registry, else the platform's default without
 * a head size; nothing is judged that the contract leaves to later. */
attn_status attn_policy_capability(attn_court *court, const attn_config *config,
                                   const attn_question *question, attn_choice *choice, attn_error *error);

/* Values that a backend checks when its layer is built. */
attn_status attn_policy_construct(const attn_court *court, const attn_choice *choice, attn_error *error);

/* One step of the walk, for the sink. */
void attn_policy_tell(const attn_court *court, int32_t event, const char *backend, const char *impl,
                      const char *text);

#endif
