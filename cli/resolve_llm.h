/* resolve_llm.h: answers of domains llm and vision as JSON. */
#ifndef ATTN_CLI_RESOLVE_LLM_H
#define ATTN_CLI_RESOLVE_LLM_H

#include <attn/attn.h>
#include <jansson.h>

/* Sets what a line's config says: {"backend", the fields of --attention-config} for llm,
 * {"mm_attention_backend"} for vision. Fails: unknown_or_missing_key, invalid_type, and the kinds of a
 * configuration. */
attn_status resolve_domain_config(attn_domain domain, json_t *said, attn_config *config, attn_error *error);

/* Asks, and puts the whole answer into out: every key is there, null where there is nothing to say. all: an
 * array that receives every reason, NULL: none. */
attn_status resolve_domain(attn_context *context, attn_domain domain, json_t *query, json_t *out, json_t *all,
                           attn_error *error);
/* What follows from a choice of domain llm: variant, kv_layout, block_size, ... */
void resolve_llm_fields(json_t *out, const attn_resolution *resolution);
/* The same keys, all null, for a question that failed before it could be asked. */
void resolve_domain_nothing(attn_domain domain, json_t *out);

#endif
