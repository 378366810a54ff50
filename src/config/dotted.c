/* dotted.c: --diffusion-attention-config.PATH VALUE as a part of one JSON object. */
#include "config/spec.h"

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

/* "A,B" as a list of texts, for a path that ends in '+'. */
static json_t *split(const char *value)
{
    json_t *list = json_array();
    for (const char *p = value;; p++) {
        size_t length = strcspn(p, ",");
        json_array_append_new(list, json_stringn(p, length));
        p += length;
        if (!*p) return list;
    }
}

static json_t *parse_value(const char *value)
{
    json_t *parsed = json_loads(value, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL);
    if (!parsed) parsed = scaled(value);
    return parsed ? parsed : json_string(value);
}

/* Objects merge key by key, anything else replaces. */
static void merge(json_t *into, const char *key, json_t *value)
{
    json_t *old = json_object_get(into, key);
    const char *inner;
    json_t *item;
    if (!json_is_object(old) || !json_is_object(value)) {
        json_object_set(into, key, value);
        return;
    }
    json_object_foreach(value, inner, item)
    {
        merge(old, inner, item);
    }
}

attn_status attn_config_add_path(json_t *root, const char *path, const char *value, attn_error *error)
{
    char key[128];
    json_t *at = root;
    size_t length = strlen(path);
    bool list = length && path[length - 1] == '+';
    if (list) length--;
    for (const char *p = path, *end = path + length; p <= end; p++) {
        size_t step = strcspn(p, ".");
        if (step > (size_t)(end - p)) step = (size_t)(end - p);
        if (!step || step >= sizeof key)
            return attn_fail(error, ATTN_KIND_SYNTAX,
                             "the path '%.120s' has a part of %zu bytes; write it as default.backend or "
                             "per_role.self.backend",
                             path, step);
        memcpy(key, p, step);
        key[step] = 0;
        p += step;
        if (p >= end) break;
        json_t *next = json_object_get(at, key);
        if (!json_is_object(next)) {
            next = json_object();
            json_object_set_new(at, key, next);
        }
        at = next;
    }
    json_t *parsed = list ? split(value) : parse_value(value);
    if (!parsed) return attn_fail(error, ATTN_KIND_SYNTAX, "the value of '%.120s' is not UTF-8 text", path);
    merge(at, key, parsed);
    json_decref(parsed);
    return ATTN_OK;
}
