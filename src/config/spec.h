/* spec.h: what the user asked for, normalised: a default and a table of roles. */
#ifndef ATTN_CONFIG_SPEC_H
#define ATTN_CONFIG_SPEC_H

#include "core/fail.h"
#include "core/memory.h"

typedef struct attn_role_entry {
    char *role;
    char *backend; /* as the user wrote it */
} attn_role_entry;

typedef struct attn_config {
    const attn_allocator *allocator;
    char *default_backend; /* NULL: unset */
    bool auto_said;        /* an explicit "auto" as default keeps the environment out */
    attn_role_entry *roles;
    size_t role_count;
} attn_config;

/* Where the three sources of a configuration come from; each may be NULL. */
typedef struct attn_config_sources {
    const char *flag_backend;
    const char *json;
    const char *environment; /* value of DIFFUSION_ATTENTION_BACKEND; blank counts as unset */
} attn_config_sources;

/* Fails with the kinds of the configuration rules; the config is then empty. */
attn_status attn_config_read(attn_config *config, const attn_allocator *allocator,
                             const attn_config_sources *sources, attn_error *error);
void attn_config_clear(attn_config *config);

enum { ATTN_SOURCE_TEXT = 256 };
/* The backend a role was given, or NULL for the platform's choice, and the source in the contract's words. */
const char *attn_config_lookup(const attn_config *config, const char *role, const char *category,
                               char source[ATTN_SOURCE_TEXT]);

/* parse.c: reads the JSON part into the config. */
attn_status attn_config_parse_json(attn_config *config, const char *json, attn_error *error);
/* Sets (or with "auto" removes) one role. */
attn_status attn_config_set_role(attn_config *config, const char *role, const char *backend,
                                 attn_error *error);
bool attn_is_auto(const char *name);

#endif
