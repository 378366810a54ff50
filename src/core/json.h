/* json.h: JSON files, read with errors that name the place. */
#ifndef ATTN_CORE_JSON_H
#define ATTN_CORE_JSON_H

#include "core/fail.h"

#include <jansson.h>

/* what: "facts", "configuration". *root is a new reference. Fails: io, syntax (with line and column). */
attn_status attn_json_load_file(const char *what, const char *path, json_t **root, attn_error *error);

#endif
