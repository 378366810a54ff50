/* shorthand.c: a sparse plugin and its parameters, in the two ways to write them. */
#include "config/spec.h"
#include "core/names.h"

#include <string.h>
#include <strings.h>

/* The extra table of a shorthand is the table of parameters; one that holds a table "params" and nothing else
 * is that table. */
static json_t *hoisted(json_t *extra)
{
    json_t *inner = json_object_get(extra, "params");
    if (json_object_size(extra) == 1 && json_is_object(inner)) return json_incref(inner);
    return extra ? json_incref(extra) : json_object();
}

json_t *attn_spec_long(json_t *spec)
{
    const char *name = attn_spec_backend(spec);
    if (!name || attn_backend_is_built_in(name)) return json_incref(spec);
    return json_pack("{s:s, s:{s:s, s:o}}", "backend", ATTN_DISPATCHER, "extra", "backend", name, "params",
                     hoisted(json_object_get(spec, "extra")));
}

json_t *attn_spec_static(const json_t *long_spec)
{
    json_t *extra = json_object_get(long_spec, "extra"), *params = json_object_get(extra, "params");
    if (json_is_object(params)) return json_incref(params);
    if (params && json_is_null(params)) return json_object();
    json_t *flat = json_object(), *value;
    const char *key;
    json_object_foreach(extra, key, value)
    {
        if (strcmp(key, "backend")) json_object_set(flat, key, value);
    }
    return flat;
}

attn_status attn_spec_check_params(const json_t *spec, attn_error *error)
{
    const char *name = attn_spec_backend(spec);
    json_t *params = json_object_get(json_object_get(spec, "extra"), "params");
    bool explicit_form = name && !strcasecmp(name, ATTN_DISPATCHER);
    if (!explicit_form || !params || json_is_object(params) || json_is_null(params)) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_INVALID_TYPE,
                     "extra.params is %s; it is an object with the parameters of the plugin, or null",
                     attn_json_type(params));
}

const char *attn_spec_plugin(const json_t *spec)
{
    const char *name = attn_spec_backend(spec);
    if (name && strcasecmp(name, ATTN_DISPATCHER)) return name;
    name = json_string_value(json_object_get(json_object_get(spec, "extra"), "backend"));
    return name ? name : "";
}
