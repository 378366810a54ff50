/* spec.h: what the user asked for, normalised: a default and a table of roles. */
#ifndef ATTN_CONFIG_SPEC_H
#define ATTN_CONFIG_SPEC_H

#include "config/llm.h"
#include "core/fail.h"
#include "core/memory.h"
#include "core/text.h"

#include <jansson.h>

/* A spec is a JSON object {"backend": as written, block: {every field}, ...}. */
struct attn_config {
    /* as given */
    char *flag_backend, *environment;
    json_t *json; /* --diffusion-attention-config, NULL: not given */
    bool json_from_file;
    json_t *dotted; /* --diffusion-attention-config.PATH; replaces json when given */
    bool has_topk;
    int64_t topk;
    char *llm_flag;    /* --attention-backend */
    json_t *llm_tree;  /* --attention-config in all its forms, merged in order; NULL: not given */
    char *kv_layout;   /* NHD or HND, NULL: not configured */
    char *vision_flag; /* --mm-attention-backend */
    json_t *warnings;  /* sentences; NULL: none */
    /* as normalised */
    attn_llm_settings llm;
    json_t *default_spec; /* NULL: unset */
    json_t *roles;        /* role -> spec */
    const char *auto_by;  /* who said "auto" as default, which keeps the environment out; NULL: nobody */
    bool from_environment;
    bool normalised;
};

/* options.c: the parsing law of an option, a column of options.def. */
enum { ATTN_LAW_REPLACES = 1, ATTN_LAW_SUFFIXES = 2, ATTN_LAW_SPLITS = 4 };
unsigned attn_option_laws(const char *name);

/* spec.c: keeps a text (NULL: takes it back) that normalising has not seen yet. */
attn_status attn_config_keep(attn_config *config, char **place, const char *text, attn_error *error);
/* spec.c: the sources become default_spec and roles. A copy carries the sources only. */
attn_status attn_config_copy(const attn_config *config, attn_config **copy, attn_error *error);
attn_status attn_config_normalise(attn_config *config, attn_error *error);
/* roles.c. The spec of a role, NULL: the platform chooses; and the source in the contract's words. */
enum { ATTN_SOURCE_TEXT = 1152 }; /* a role of 255 bytes, every one of them escaped */
json_t *attn_config_lookup(const attn_config *config, const char *role, const char *category,
                           char source[ATTN_SOURCE_TEXT]);
const char *attn_spec_backend(const json_t *spec);
bool attn_is_auto(const char *name);

/* parse.c: reads a structured configuration into default_spec and roles. */
attn_status attn_config_read_root(attn_config *config, json_t *root, attn_error *error);

/* blocks.c: checks a block's value and returns it with every default filled in; *normal is a new reference.
 */
bool attn_block_known(const char *key);
const char *attn_block_owners(const char *key);
bool attn_block_owned(const char *key, const char *backend);
attn_status attn_block_read(const char *path, const char *key, json_t *value, json_t **normal,
                            attn_error *error);
/* Iterates the keys; NULL past the end. */
const char *attn_block_at(size_t index);
/* The nearest of the keys that may stand at this level; for messages. Returns text. */
const char *attn_block_fields(const char *key, char *text, size_t bytes);
const char *attn_json_type(const json_t *value);

/* dotted.c: one --diffusion-attention-config.PATH VALUE into the object of dotted flags. */
attn_status attn_config_add_path(json_t *root, const char *path, const char *value, attn_error *error);
/* A value as typed: JSON when it parses, else a number with a suffix when the law has them, else text; a new
 * reference, NULL when it is not UTF-8. */
json_t *attn_dotted_value(const char *value, unsigned laws);

/* shorthand.c. The spec in the dispatcher's own form, {"backend": SPARSE_ATTN, "extra": {"backend": plugin,
 * "params": {...}}}, when its backend is no built-in name; else as it is. A new reference. */
json_t *attn_spec_long(json_t *spec);
/* The static parameters of a spec in that form; a new reference. */
json_t *attn_spec_static(const json_t *long_spec);
/* Fails: invalid_type, when "params" of the dispatcher's own form is no table. */
attn_status attn_spec_check_params(const json_t *spec, attn_error *error);
/* The plugin that a spec for the dispatcher names, in either form; "": none. Borrowed. */
const char *attn_spec_plugin(const json_t *spec);

/* handover.c: the flat table a backend is handed, or NULL when it is empty; a new reference. spec may be
 * NULL. */
json_t *attn_spec_handover(const char *backend, const json_t *spec);

#endif
