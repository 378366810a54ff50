/* parse.c: the structured configuration, {"default": ..., "per_role": {...}}. */
#include "config/spec.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct block {
    const char *key, *owners;
} blocks[] = {
#define X(key, owners) {#key, owners},
#include "config/blocks.def"
#undef X
};
enum { BLOCKS = sizeof blocks / sizeof *blocks };

enum { PATH = 256 };

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    default:
        return "null";
    }
}

static bool is_spec_key(const char *key)
{
    for (int i = 0; i < BLOCKS; i++)
        if (!strcmp(key, blocks[i].key)) return true;
    return !strcmp(key, "backend");
}

static bool owns(const struct block *block, const char *backend)
{
    size_t length = strlen(backend);
    for (const char *p = block->owners; *p; p += strcspn(p, " "), p += *p == ' ')
        if (strcspn(p, " ") == length && !strncasecmp(p, backend, length)) return true;
    return false;
}

static attn_status check_blocks(const char *path, json_t *spec, const char *backend, attn_error *error)
{
    for (int i = 0; i < BLOCKS; i++) {
        const json_t *value = json_object_get(spec, blocks[i].key);
        if (!value || json_is_null(value)) continue;
        if (!owns(&blocks[i], backend))
            return attn_fail(
                error, ATTN_KIND_BLOCK_BACKEND_MISMATCH,
                "%s carries the block '%s' with backend %s; only %s may carry it, remove the block", path,
                blocks[i].key, backend, blocks[i].owners);
        return attn_fail(
            error, ATTN_KIND_NOT_IMPLEMENTED,
            "%s carries the block '%s'; this version has no implementation of %s that reads it, remove the "
            "block",
            path, blocks[i].key, backend);
    }
    return ATTN_OK;
}

static attn_status check_spec_keys(const char *path, json_t *spec, attn_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach(spec, key, value)
    {
        if (!is_spec_key(key))
            return attn_fail(
                error, ATTN_KIND_UNKNOWN_OR_MISSING_KEY,
                "%s has the unknown key '%s'; a spec has backend, skip_softmax, quant, block_sparse, "
                "fastvideo_vsa_topk",
                path, key);
    }
    return ATTN_OK;
}

/* A bare name or a mapping with at least "backend". */
static attn_status read_spec(const char *path, json_t *value, const char **backend, attn_error *error)
{
    *backend = json_string_value(value);
    if (*backend) return ATTN_OK;
    if (!json_is_object(value))
        return attn_fail(error, ATTN_KIND_INVALID_TYPE,
                         "%s is %s; it is a backend name or an object with \"backend\"", path,
                         type_name(value));
    ATTN_TRY(check_spec_keys(path, value, error));
    const json_t *name = json_object_get(value, "backend");
    if (!name)
        return attn_fail(error, ATTN_KIND_UNKNOWN_OR_MISSING_KEY, "%s has no key \"backend\"; add it", path);
    *backend = json_string_value(name);
    if (!*backend)
        return attn_fail(error, ATTN_KIND_INVALID_TYPE, "%s.backend is %s; it is a string", path,
                         type_name(name));
    return check_blocks(path, value, *backend, error);
}

static bool any_spec_key(json_t *table)
{
    const char *key;
    json_t *value;
    json_object_foreach(table, key, value)
    {
        if (is_spec_key(key)) return true;
    }
    return false;
}

static attn_status check_leaf(const char *role, json_t *table, attn_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach(table, key, value)
    {
        if (!is_spec_key(key))
            return attn_fail(
                error, ATTN_KIND_MIXED_ROLE_ENTRY,
                "per_role.%s mixes spec keys with '%s'; nested roles and a spec stand on different levels",
                role, key);
    }
    return ATTN_OK;
}

static attn_status read_roles(attn_config *c, const char *prefix, json_t *table, int depth,
                              attn_error *error);

static attn_status read_role(attn_config *c, const char *role, json_t *value, int depth, attn_error *error)
{
    char path[PATH + 16];
    const char *backend;
    snprintf(path, sizeof path, "per_role.%s", role);
    if (json_is_object(value)) {
        if (!json_object_size(value))
            return attn_fail(error, ATTN_KIND_EMPTY_ROLE_ENTRY,
                             "%s is empty; name a backend or remove the role", path);
        if (!any_spec_key(value)) return read_roles(c, role, value, depth + 1, error);
        ATTN_TRY(check_leaf(role, value, error));
    }
    ATTN_TRY(read_spec(path, value, &backend, error));
    return attn_config_set_role(c, role, backend, error);
}

/* Nested tables flatten with dots; of two spellings of one role the one met later wins. */
static attn_status read_roles(attn_config *c, const char *prefix, json_t *table, int depth, attn_error *error)
{
    enum { DEPTH = 16 };
    const char *key;
    json_t *value;
    if (depth > DEPTH)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "per_role.%s is nested more than %d levels deep",
                         prefix, DEPTH);
    json_object_foreach(table, key, value)
    {
        char role[PATH];
        int length = snprintf(role, sizeof role, "%s%s%s", prefix, *prefix ? "." : "", key);
        if (length < 0 || (size_t)length >= sizeof role)
            return attn_fail(error, ATTN_KIND_INVALID_VALUE, "the role '%.40s...' is longer than %d bytes",
                             role, PATH - 1);
        ATTN_TRY(read_role(c, role, value, depth, error));
    }
    return ATTN_OK;
}

static attn_status read_default(attn_config *c, json_t *value, attn_error *error)
{
    const char *backend;
    if (json_is_null(value)) return ATTN_OK;
    ATTN_TRY(read_spec("default", value, &backend, error));
    if (attn_is_auto(backend)) {
        c->auto_said = true;
        return ATTN_OK;
    }
    c->default_backend = attn_copy_text(c->allocator, backend);
    return c->default_backend ? ATTN_OK
                              : attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the configuration");
}

static attn_status read_root(attn_config *c, json_t *root, attn_error *error)
{
    const char *key;
    json_t *value;
    if (!json_is_object(root))
        return attn_fail(
            error, ATTN_KIND_INVALID_TYPE,
            "the attention configuration is %s; it is an object with \"default\" and \"per_role\"",
            type_name(root));
    json_object_foreach(root, key, value)
    {
        if (!strcmp(key, "default"))
            ATTN_TRY(read_default(c, value, error));
        else if (strcmp(key, "per_role"))
            return attn_fail(
                error, ATTN_KIND_UNKNOWN_OR_MISSING_KEY,
                "the attention configuration has the unknown key '%s'; it has \"default\" and \"per_role\"",
                key);
        else if (json_is_object(value))
            ATTN_TRY(read_roles(c, "", value, 0, error));
        else if (!json_is_null(value))
            return attn_fail(error, ATTN_KIND_INVALID_TYPE,
                             "per_role is %s; it is an object from role to backend", type_name(value));
    }
    return ATTN_OK;
}

attn_status attn_config_parse_json(attn_config *c, const char *json, attn_error *error)
{
    json_error_t at;
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &at);
    if (!root)
        return attn_fail(error, ATTN_KIND_SYNTAX,
                         "the attention configuration is not JSON at line %d, column %d: %s", at.line,
                         at.column, at.text);
    attn_status status = read_root(c, root, error);
    json_decref(root);
    return status;
}
