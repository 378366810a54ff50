/* llm_query.h: what a question of domain llm says, as JSON or as "key=value,key". */
#ifndef ATTN_CLI_LLM_QUERY_H
#define ATTN_CLI_LLM_QUERY_H

#include <attn/attn.h>
#include <jansson.h>

struct llm_query {
    attn_llm_query llm; /* its kv_cache_dtype points to kv_cache_dtype */
    char kv_cache_dtype[64];
    int64_t head_size; /* 0: not said */
    attn_dtype dtype;  /* 0: not said */
};

/* An object with any of the keys of llm_query_key_at; null values count as absent. Fails:
 * unknown_or_missing_key, invalid_type, invalid_value. */
attn_status llm_query_read(json_t *object, struct llm_query *query, attn_error *error);
/* The same from one word: JSON, or "use_mla,kv_cache_dtype=fp8" where a bare key means true. */
attn_status llm_query_parse(const char *text, struct llm_query *query, attn_error *error);
/* The keys with their meaning, for help and pages; NULL past the end. */
const char *llm_query_key_at(size_t index, const char **meaning);

#endif
