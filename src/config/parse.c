/* parse.c: the structured configuration, {"default": ..., "per_role": {...}}. */
#include "config/spec.h"
#include "core/names.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { PATH = 256 };

/* Parameters of a plugin stand with the plugin's name or the dispatcher's; other backends have typed blocks.
 */
static bool takes_extra(const json_t *spec)
{
    const char *name = json_string_value(json_object_get(spec, "backend"));
    return name && (!strcasecmp(name, ATTN_DISPATCHER) || !attn_backend_is_built_in(name));
}

static bool is_spec_key(const json_t *spec, const char *key)
{
    return !strcmp(key, "backend") || attn_block_known(key) || (!strcmp(key, "extra") && takes_extra(spec));
}

/* "backend, skip_softmax, ..." */
static const char *spec_keys(char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "backend");
    for (size_t i = 0; attn_block_at(i) && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, ", %s", attn_block_at(i));
    return text;
}

static const char *nearest_spec_key(const char *key)
{
    const char *words[16] = {"backend"};
    size_t count = 1;
    for (; count < 16 && attn_block_at(count - 1); count++) words[count] = attn_block_at(count - 1);
    return attn_nearest(key, words, count);
}

static attn_status unknown_key(const char *path, const char *key, const char *near, const char *valid,
                               attn_error *error)
{
    return attn_fail(error, ATTN_KIND_UNKNOWN_OR_MISSING_KEY,
                     "%s.%.60s is no known key;%s%s%s the keys are %s", path, key,
                     near ? " did you mean " : "", near ? near : "", near ? "?" : "", valid);
}

static attn_status check_spec_keys(const char *path, json_t *spec, attn_error *error)
{
    const char *key;
    json_t *value;
    char keys[128];
    json_object_foreach(spec, key, value)
    {
        if (!is_spec_key(spec, key))
            return unknown_key(path, key, nearest_spec_key(key), spec_keys(keys, sizeof keys), error);
    }
    return ATTN_OK;
}

/* A block's own fields first, then whether it may stand here: the user learns of the nearer mistake. */
static attn_status read_block(const char *path, const char *key, json_t *value, json_t *spec,
                              attn_error *error)
{
    char block[PATH + 64];
    const char *backend = attn_spec_backend(spec);
    json_t *normal;
    snprintf(block, sizeof block, "%s.%s", path, key);
    ATTN_TRY(attn_block_read(block, key, value, &normal, error));
    json_object_set_new(spec, key, normal);
    if (attn_block_owned(key, backend)) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_BLOCK_BACKEND_MISMATCH,
                     "%s stands with backend %.60s, which does not own it; it belongs to %s, remove the "
                     "block or change the "
                     "backend",
                     block, backend, attn_block_owners(key));
}

static attn_status read_extra(const char *path, json_t *extra, json_t *spec, attn_error *error)
{
    if (!extra || json_is_null(extra)) return ATTN_OK;
    if (!json_is_object(extra))
        return attn_fail(error, ATTN_KIND_INVALID_TYPE,
                         "%s.extra is %s; it is an object with the parameters of a sparse plugin", path,
                         attn_json_type(extra));
    json_object_set(spec, "extra", extra);
    return ATTN_OK;
}

static attn_status read_mapping(const char *path, json_t *value, json_t *spec, attn_error *error)
{
    ATTN_TRY(check_spec_keys(path, value, error));
    json_t *name = json_object_get(value, "backend");
    if (!name)
        return attn_fail(error, ATTN_KIND_UNKNOWN_OR_MISSING_KEY, "%s has no key \"backend\"; add it", path);
    if (!json_is_string(name))
        return attn_fail(error, ATTN_KIND_INVALID_TYPE,
                         "%s.backend (AttentionSpec.backend) is %s; it is a string", path,
                         attn_json_type(name));
    json_object_set(spec, "backend", name);
    ATTN_TRY(read_extra(path, json_object_get(value, "extra"), spec, error));
    for (size_t i = 0; attn_block_at(i); i++) {
        json_t *block = json_object_get(value, attn_block_at(i));
        if (block && !json_is_null(block)) ATTN_TRY(read_block(path, attn_block_at(i), block, spec, error));
    }
    return ATTN_OK;
}

/* A bare name or a mapping with at least "backend". *spec is a new reference. */
static attn_status read_spec(const char *path, json_t *value, json_t **spec, attn_error *error)
{
    *spec = json_object();
    attn_status status = ATTN_OK;
    if (json_is_string(value))
        json_object_set(*spec, "backend", value);
    else if (json_is_object(value))
        status = read_mapping(path, value, *spec, error);
    else
        status = attn_fail(error, ATTN_KIND_INVALID_TYPE,
                           "%s is %s; it is a backend name or an object with \"backend\"", path,
                           attn_json_type(value));
    if (status) json_decref(*spec);
    return status;
}

static bool any_spec_key(json_t *table)
{
    const char *key;
    json_t *value;
    json_object_foreach(table, key, value)
    {
        if (is_spec_key(table, key)) return true;
    }
    return false;
}

static attn_status check_leaf(const char *role, json_t *table, attn_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach(table, key, value)
    {
        if (is_spec_key(table, key)) continue;
        const char *near = nearest_spec_key(key);
        return attn_fail(error, ATTN_KIND_MIXED_ROLE_ENTRY,
                         "per_role.%s mixes spec keys with '%.60s';%s%s%s nested roles and a spec stand on "
                         "different levels",
                         role, key, near ? " did you mean " : "", near ? near : "", near ? "?" : "");
    }
    return ATTN_OK;
}

static attn_status read_roles(attn_config *c, const char *prefix, json_t *table, int depth,
                              attn_error *error);

static attn_status read_role(attn_config *c, const char *role, json_t *value, int depth, attn_error *error)
{
    char path[PATH + 16];
    json_t *spec;
    snprintf(path, sizeof path, "per_role.%s", role);
    if (json_is_object(value)) {
        if (!json_object_size(value))
            return attn_fail(error, ATTN_KIND_EMPTY_ROLE_ENTRY,
                             "%s is empty; name a backend or remove the role", path);
        if (!any_spec_key(value)) return read_roles(c, role, value, depth + 1, error);
        ATTN_TRY(check_leaf(role, value, error));
    }
    ATTN_TRY(read_spec(path, value, &spec, error));
    json_object_del(c->roles, role);
    if (attn_is_auto(attn_spec_backend(spec)))
        json_decref(spec);
    else
        json_object_set_new(c->roles, role, spec);
    return ATTN_OK;
}

/* Nested tables flatten with dots; of two spellings of one role the one met later wins. */
static attn_status read_roles(attn_config *c, const char *prefix, json_t *table, int depth, attn_error *error)
{
    enum { DEPTH = 16 };
    const char *key;
    json_t *value;
    if (depth > DEPTH)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "per_role.%.60s is nested more than %d levels deep",
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
    json_t *spec;
    if (json_is_null(value)) return ATTN_OK;
    ATTN_TRY(read_spec("default", value, &spec, error));
    if (attn_is_auto(attn_spec_backend(spec))) {
        c->auto_by = "attention_config.default";
        json_decref(spec);
    } else {
        json_decref(c->default_spec);
        c->default_spec = spec;
    }
    return ATTN_OK;
}

attn_status attn_config_read_root(attn_config *c, json_t *root, attn_error *error)
{
    const char *key;
    json_t *value;
    if (!json_is_object(root))
        return attn_fail(error, ATTN_KIND_INVALID_TYPE,
                         "attention_config is %s; it is an object with \"default\" and \"per_role\"",
                         attn_json_type(root));
    json_object_foreach(root, key, value)
    {
        static const char *const words[] = {"default", "per_role"};
        if (!strcmp(key, "default"))
            ATTN_TRY(read_default(c, value, error));
        else if (strcmp(key, "per_role"))
            return unknown_key("attention_config", key, attn_nearest(key, words, 2), "default, per_role",
                               error);
        else if (json_is_object(value))
            ATTN_TRY(read_roles(c, "", value, 0, error));
        else if (!json_is_null(value))
            return attn_fail(error, ATTN_KIND_INVALID_TYPE,
                             "per_role is %s; it is an object from role to spec", attn_json_type(value));
    }
    return ATTN_OK;
}
