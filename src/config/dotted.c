/* dotted.c: --diffusion-attention-config.PATH VALUE as a part of one JSON object. */
#include "config/spec.h"

#include <stdio.h>
#include <string.h>

/* Size suffixes of numbers: decimal in lower case, binary in upper case. */
static const struct suffix {
    char letter;
    double factor;
} suffixes[] = {{'k', 1e3},    {'m', 1e6},    {'g', 1e9},    {'t', 1e12},
                {'K', 0x1p10}, {'M', 0x1p20}, {'G', 0x1p30}, {'T', 0x1p40}};

static json_t *scaled(const char *value)
{
    char digits[64];
    size_t length = strlen(value);
    if (length < 2 || length > sizeof digits) return NULL;
    memcpy(digits, value, length - 1);
    digits[length - 1] = 0;
    json_t *number = json_loads(digits, JSON_DECODE_ANY, NULL), *result = NULL;
    for (size_t i = 0; json_is_number(number) && i < sizeof suffixes / sizeof *suffixes; i++) {
        double product = json_number_value(number) * suffixes[i].factor;
        if (value[length - 1] == suffixes[i].letter && product == (double)(int64_t)product &&
            product < 0x1p62)
            result = json_integer((int64_t)product);
    }
    json_decref(number);
    return result;
}

/* "A,B" as a list of texts, for a path that ends in '+'; NULL when an item is not UTF-8. */
static json_t *split(const char *value)
{
    json_t *list = json_array();
    for (const char *p = value;; p++) {
        size_t length = strcspn(p, ",");
        if (json_array_append_new(list, json_stringn(p, length))) {
            json_decref(list);
            return NULL;
        }
        p += length;
        if (!*p) return list;
    }
}

json_t *attn_dotted_value(const char *value, unsigned laws)
{
    json_t *parsed = json_loads(value, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (!parsed && laws & ATTN_LAW_SUFFIXES) parsed = scaled(value);
    return parsed ? parsed : json_string(value);
}

/* Objects merge key by key, anything else replaces. Keys and values were checked before. */
static void merge(json_t *into, json_t *from)
{
    const char *key;
    json_t *value;
    json_object_foreach(from, key, value)
    {
        json_t *old = json_object_get(into, key);
        if (json_is_object(old) && json_is_object(value))
            merge(old, value);
        else
            json_object_set(into, key, value);
    }
}

enum { PARTS = 32, PART = 128 };

/* Puts value (a reference that is taken) into nested objects, from the last part of the path to the first.
 * NULL: a part is not UTF-8. */
static json_t *nest(char parts[PARTS][PART], int count, json_t *value)
{
    for (int i = count - 1; i >= 0 && value; i--) {
        json_t *outer = json_object();
        if (json_object_set_new(outer, parts[i], value)) {
            json_decref(outer);
            outer = NULL;
        }
        value = outer;
    }
    return value;
}

static attn_status read_parts(const char *path, size_t length, char parts[PARTS][PART], int *count,
                              attn_error *error)
{
    *count = 0;
    for (size_t at = 0; at <= length;) {
        size_t step = strcspn(path + at, ".");
        if (step > length - at) step = length - at;
        if (!step || step >= PART)
            return attn_fail(error, ATTN_KIND_SYNTAX,
                             "the path '%.120s' has a part of %zu bytes; write it as default.backend or "
                             "per_role.self.backend",
                             path, step);
        if (*count == PARTS)
            return attn_fail(error, ATTN_KIND_INVALID_VALUE, "the path '%.60s...' has more than %d parts",
                             path, PARTS);
        snprintf(parts[(*count)++], PART, "%.*s", (int)step, path + at);
        at += step + 1;
    }
    return ATTN_OK;
}

attn_status attn_config_add_path(json_t *root, const char *path, const char *value, attn_error *error)
{
    char parts[PARTS][PART];
    int count;
    size_t length = strlen(path);
    bool list = length && path[length - 1] == '+';
    ATTN_TRY(read_parts(path, length - list, parts, &count, error));
    unsigned laws = attn_option_laws("diffusion-attention-config");
    json_t *parsed = list && laws & ATTN_LAW_SPLITS ? split(value) : attn_dotted_value(value, laws);
    json_t *nested = parsed ? nest(parts, count, parsed) : NULL;
    if (!nested)
        return attn_fail(error, ATTN_KIND_SYNTAX,
                         "the path '%.120s' or its value is not UTF-8 text; correct its bytes", path);
    merge(root, nested);
    json_decref(nested);
    return ATTN_OK;
}
