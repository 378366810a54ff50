/* llm.c: --attention-config and --attention-backend become ten numbers. */
#include "config/llm.h"

#include "config/spec.h"
#include "core/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BACKEND_FLAG "--attention-backend"
#define CONFIG_FLAG  "--attention-config"

typedef enum field_type { NAME, PICK, SWITCH, MAYBE, WHOLE } field_type;

static const struct field {
    const char *key;
    field_type type;
    const char *standard, *choices;
} fields[] = {
#define X(field, type, standard, choices, meaning) {#field, type, #standard, choices},
#include "config/llm_fields.def"
#undef X
};

static int find_field(const char *key)
{
    for (int i = 0; i < ATTN_LLM_FIELDS; i++)
        if (!strcmp(fields[i].key, key)) return i;
    return -1;
}

/* ---- merging ------------------------------------------------------------------------------------ */

/* A key that was said before is replaced, and that is told. */
static attn_status set_key(json_t *tree, const char *key, json_t *value, json_t *warnings, attn_error *error)
{
    json_t *old = json_object_get(tree, key);
    if (json_is_object(old) && json_is_object(value)) return attn_llm_merge_json(old, value, warnings, error);
    if (old)
        json_array_append_new(warnings, json_sprintf(CONFIG_FLAG ": '%s' was given more than once; the last "
                                                                 "value counts",
                                                     key));
    if (!json_object_set(tree, key, value)) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for " CONFIG_FLAG);
}

attn_status attn_llm_merge_json(json_t *tree, json_t *more, json_t *warnings, attn_error *error)
{
    const char *key;
    json_t *value;
    if (!json_is_object(more))
        return attn_fail(error, ATTN_KIND_INVALID_TYPE,
                         CONFIG_FLAG " is %s; it is an object such as {\"backend\": "
                                     "\"FLASH_ATTN\"}",
                         attn_json_type(more));
    json_object_foreach(more, key, value)
    {
        ATTN_TRY(set_key(tree, key, value, warnings, error));
    }
    return ATTN_OK;
}

/* A list grows by one item; what was there before as one value becomes its first. */
static attn_status append_item(json_t *tree, const char *key, json_t *item, attn_error *error)
{
    json_t *list = json_object_get(tree, key);
    if (!json_is_array(list)) {
        json_t *made = json_array();
        if (list) json_array_append(made, list);
        json_object_set_new(tree, key, made);
        list = json_object_get(tree, key);
    }
    if (list && !json_array_append(list, item)) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for " CONFIG_FLAG);
}

/* The object that the parts of a path before its last lead to; made where it is missing. */
static json_t *descend(json_t *tree, const char **path, size_t *length)
{
    for (;;) {
        char part[128];
        size_t step = strcspn(*path, ".");
        if (step >= *length) return tree;
        if (!step || step >= sizeof part) return NULL;
        snprintf(part, sizeof part, "%.*s", (int)step, *path);
        json_t *inner = json_object_get(tree, part);
        if (!json_is_object(inner) && json_object_set_new(tree, part, json_object())) return NULL;
        tree = json_object_get(tree, part);
        *path += step + 1;
        *length -= step + 1;
    }
}

attn_status attn_llm_merge_path(json_t *tree, const char *path, const char *value, unsigned laws,
                                json_t *warnings, attn_error *error)
{
    char key[128];
    const char *last = path;
    size_t length = strlen(path);
    bool append = length && path[length - 1] == '+';
    length -= append;
    json_t *place = length ? descend(tree, &last, &length) : NULL;
    if (!place || !length || length >= sizeof key)
        return attn_fail(
            error, ATTN_KIND_SYNTAX,
            CONFIG_FLAG ".%.120s has an empty or too long part; write it as " CONFIG_FLAG ".KEY VALUE", path);
    snprintf(key, sizeof key, "%.*s", (int)length, last);
    json_t *parsed = attn_dotted_value(value, laws);
    if (!parsed)
        return attn_fail(error, ATTN_KIND_SYNTAX,
                         CONFIG_FLAG ".%.120s: the value is not UTF-8 text; correct its bytes", path);
    attn_status status =
        append ? append_item(place, key, parsed, error) : set_key(place, key, parsed, warnings, error);
    json_decref(parsed);
    return status;
}

/* ---- reading ------------------------------------------------------------------------------------ */

static attn_status bad_value(const struct field *f, attn_kind kind, const json_t *value, const char *expected,
                             attn_error *error)
{
    char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    attn_status status =
        attn_fail(error, kind, CONFIG_FLAG ".%s is %.80s; it is %s", f->key, dump ? dump : "?", expected);
    free(dump);
    return status;
}

static attn_status unknown_backend(const char *where, const char *name, attn_error *error)
{
    char names[512];
    const char *near = attn_llm_nearest(name);
    return attn_fail(error, ATTN_KIND_UNKNOWN_BACKEND,
                     "%s asks for '%.80s', which is no backend;%s%s%s valid: auto, %s", where, name,
                     near ? " did you mean " : "", near ? near : "", near ? "?" : "",
                     attn_llm_join(names, sizeof names));
}

/* auto and absence leave the choice open. */
static attn_status read_name(const char *where, const char *name, int64_t *number, attn_error *error)
{
    *number = attn_is_auto(name) ? ATTN_LLM_NULL : attn_llm_find(name);
    return *number >= 0 || attn_is_auto(name) ? ATTN_OK : unknown_backend(where, name, error);
}

static bool picked(const char *choices, int64_t number)
{
    char *end;
    for (const char *p = choices; *p; p = end) {
        int64_t one = strtoll(p, &end, 10);
        if (end == p) return false;
        if (one == number) return true;
    }
    return false;
}

static attn_status read_number(const struct field *f, const json_t *value, int64_t *number, attn_error *error)
{
    char expected[64];
    bool whole = json_is_integer(value);
    *number = json_integer_value(value);
    if (f->type == WHOLE) {
        if (whole && *number >= 0) return ATTN_OK;
        return bad_value(f, whole ? ATTN_KIND_INVALID_VALUE : ATTN_KIND_INVALID_TYPE, value,
                         "a whole number of at least 0", error);
    }
    if (whole && picked(f->choices, *number)) return ATTN_OK;
    snprintf(expected, sizeof expected, "one of %s, or null", f->choices);
    return bad_value(f, whole ? ATTN_KIND_INVALID_VALUE : ATTN_KIND_INVALID_TYPE, value, expected, error);
}

static attn_status read_switch(const struct field *f, const json_t *value, int64_t *number, attn_error *error)
{
    bool whole = json_is_integer(value);
    *number = json_is_boolean(value) ? json_is_true(value) : json_integer_value(value);
    if (json_is_boolean(value) || (whole && (*number == 0 || *number == 1))) return ATTN_OK;
    return bad_value(f, whole ? ATTN_KIND_INVALID_VALUE : ATTN_KIND_INVALID_TYPE, value,
                     f->type == MAYBE ? "true, false, 1, 0 or null" : "true, false, 1 or 0", error);
}

static attn_status read_field(const struct field *f, const json_t *value, int64_t *number, attn_error *error)
{
    if (json_is_null(value) && f->type != SWITCH && f->type != WHOLE) {
        *number = ATTN_LLM_NULL;
        return ATTN_OK;
    }
    if (f->type == SWITCH || f->type == MAYBE) return read_switch(f, value, number, error);
    if (f->type != NAME) return read_number(f, value, number, error);
    if (!json_is_string(value))
        return bad_value(f, ATTN_KIND_INVALID_TYPE, value, "the name of a backend, \"auto\" or null", error);
    return read_name(CONFIG_FLAG ".backend", json_string_value(value), number, error);
}

static attn_status unknown_key(const char *key, attn_error *error)
{
    const char *words[ATTN_LLM_FIELDS];
    char list[512] = "";
    for (int i = 0; i < ATTN_LLM_FIELDS; i++) {
        size_t used = strlen(list);
        words[i] = fields[i].key;
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", words[i]);
    }
    const char *near = attn_nearest(key, words, ATTN_LLM_FIELDS);
    return attn_fail(error, ATTN_KIND_UNKNOWN_OR_MISSING_KEY,
                     CONFIG_FLAG ".%.80s is no known key;%s%s%s the keys are %s", key,
                     near ? " did you mean " : "", near ? near : "", near ? "?" : "", list);
}

static void set_defaults(attn_llm_settings *s)
{
    for (int i = 0; i < ATTN_LLM_FIELDS; i++) {
        json_t *standard = json_loads(fields[i].standard, JSON_DECODE_ANY, NULL);
        s->value[i] = json_is_null(standard)      ? ATTN_LLM_NULL
                      : json_is_boolean(standard) ? json_is_true(standard)
                                                  : json_integer_value(standard);
        json_decref(standard);
    }
    s->source = "platform default";
    s->explicit_auto = false;
}

/* Both say the same thing, also when they agree; a structured auto says nothing. */
static attn_status apply_flag(attn_llm_settings *s, const char *flag, attn_error *error)
{
    int64_t *backend = &ATTN_LLM_SETTING(s, backend), named;
    if (*backend >= 0) s->source = "attention_config.backend";
    if (!flag) return ATTN_OK;
    ATTN_TRY(read_name(BACKEND_FLAG, flag, &named, error));
    if (*backend >= 0)
        return attn_fail(error, ATTN_KIND_MUTUALLY_EXCLUSIVE_BACKEND_OPTIONS,
                         BACKEND_FLAG " (%.60s) and " CONFIG_FLAG
                                      ".backend (%s) both name a backend; give one of them",
                         flag, attn_llm_names[*backend].name);
    *backend = named;
    s->source = named >= 0 ? BACKEND_FLAG : s->source;
    s->explicit_auto = named < 0;
    return ATTN_OK;
}

attn_status attn_llm_settings_read(attn_llm_settings *s, json_t *tree, const char *flag, attn_error *error)
{
    const char *key;
    json_t *value;
    set_defaults(s);
    json_object_foreach(tree, key, value)
    {
        int i = find_field(key);
        if (i < 0) return unknown_key(key, error);
        ATTN_TRY(read_field(&fields[i], value, &s->value[i], error));
    }
    return apply_flag(s, flag, error);
}

/* ---- telling ------------------------------------------------------------------------------------ */

json_t *attn_llm_settings_json(const attn_llm_settings *s)
{
    json_t *object = json_object();
    for (int i = 0; i < ATTN_LLM_FIELDS; i++) {
        int64_t number = s->value[i];
        bool is_switch = fields[i].type == SWITCH || fields[i].type == MAYBE;
        json_t *value = number == ATTN_LLM_NULL  ? json_null()
                        : is_switch              ? json_boolean(number)
                        : fields[i].type == NAME ? json_string(attn_llm_names[number].name)
                                                 : json_integer(number);
        json_object_set_new(object, fields[i].key, value);
    }
    return object;
}

uint64_t attn_llm_settings_hash(const attn_llm_settings *s)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < ATTN_LLM_FIELDS; i++)
        for (int byte = 0; byte < 8; byte++)
            hash = (hash ^ (((uint64_t)s->value[i] >> 8 * byte) & 0xff)) * 0x100000001b3u;
    return hash;
}
