/* llm.h: what the user said about domains llm and vision. */
#ifndef ATTN_CONFIG_LLM_H
#define ATTN_CONFIG_LLM_H

#include "core/fail.h"
#include "core/llm.h"

#include <jansson.h>

enum {
#define X(field, type, standard, choices, meaning) ATTN_LLM_FIELD_##field,
#include "config/llm_fields.def"
#undef X
    ATTN_LLM_FIELDS
};

/* Every field as a number: a switch 0 or 1, a backend its ATTN_LLM_NAME_*, ATTN_LLM_NULL for null. */
enum { ATTN_LLM_NULL = -1 };
typedef struct attn_llm_settings {
    int64_t value[ATTN_LLM_FIELDS];
    const char *source; /* who named the backend, or "platform default" */
    bool explicit_auto; /* --attention-backend auto */
} attn_llm_settings;
#define ATTN_LLM_SETTING(s, field) ((s)->value[ATTN_LLM_FIELD_##field])

/* Reads the merged object (NULL: none) and the flag (NULL: not given). */
attn_status attn_llm_settings_read(attn_llm_settings *settings, json_t *tree, const char *flag,
                                   attn_error *error);
/* The ten fields as an object; a new reference. */
json_t *attn_llm_settings_json(const attn_llm_settings *settings);
uint64_t attn_llm_settings_hash(const attn_llm_settings *settings);

/* Adds a JSON object, or one dotted path, to what was said before; warnings is an array of sentences. */
attn_status attn_llm_merge_json(json_t *tree, json_t *more, json_t *warnings, attn_error *error);
attn_status attn_llm_merge_path(json_t *tree, const char *path, const char *value, unsigned laws,
                                json_t *warnings, attn_error *error);

#endif
