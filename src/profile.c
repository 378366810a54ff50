/* profile.c: reads a profile and finds the row for a problem. */
#include "profile.h"

#include "core/fail.h"
#include "core/memory.h"
#include "core/text.h"
#include "kernels/isa.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { NONE = -1 };

typedef struct profile_row {
    attn_dtype dtype;
    int64_t head_dim, value_head_dim, q_up_to, kv_up_to, isa;
    int64_t bq, bk, cache; /* NONE: not said */
} profile_row;

struct attn_profile {
    const attn_allocator *allocator;
    size_t count;
    profile_row rows[];
};

/* ---- the file ----------------------------------------------------------------------------------- */

/* Keys that a plan can ask for are last. need 0: may be left out. Those without a place are for people. */
static const struct row_key {
    const char *name;
    json_type type;
    int need;
    int64_t most; /* of numbers from 1 on */
    size_t place; /* of an int64_t in profile_row */
} row_keys[] = {
    {"dtype", JSON_STRING, 1, 0, 0},
    {"isa", JSON_STRING, 1, 0, 0},
    {"head_dim", JSON_INTEGER, 1, 1024, offsetof(profile_row, head_dim)},
    {"value_head_dim", JSON_INTEGER, 1, 1024, offsetof(profile_row, value_head_dim)},
    {"q_up_to", JSON_INTEGER, 1, (int64_t)1 << 62, offsetof(profile_row, q_up_to)},
    {"kv_up_to", JSON_INTEGER, 1, (int64_t)1 << 62, offsetof(profile_row, kv_up_to)},
    {"bq", JSON_INTEGER, 0, 65536, offsetof(profile_row, bq)},
    {"bk", JSON_INTEGER, 0, 65536, offsetof(profile_row, bk)},
    {"cache", JSON_TRUE, 0, 0, 0},
    {"gflops", JSON_REAL, 0, 0, 0},
    {"default_gflops", JSON_REAL, 0, 0, 0},
};
enum { ROW_KEYS = sizeof row_keys / sizeof *row_keys };

static const char *const root_keys[] = {"version", "cpu", "rows", "libattn", "threads", "made_by"};
enum { ROOT_KEYS = sizeof root_keys / sizeof *root_keys };

static attn_status unknown_key(const char *path, const char *where, const char *key, const char *const *names,
                               size_t count, attn_error *error)
{
    const char *near = attn_nearest(key, names, count);
    return attn_fail(
        error, ATTN_KIND_UNKNOWN_OR_MISSING_KEY,
        "the profile %.160s has the unknown key '%.60s' in %s;%s%s%s write it anew with attn tune", path, key,
        where, near ? " did you mean " : "", near ? near : "", near ? "?" : "");
}

static attn_status missing_key(const char *path, const char *where, const char *key, attn_error *error)
{
    return attn_fail(error, ATTN_KIND_UNKNOWN_OR_MISSING_KEY,
                     "the profile %.160s has no key '%s' in %s; write it anew with attn tune", path, key,
                     where);
}

static attn_status check_row_keys(const char *path, const char *where, json_t *row, attn_error *error)
{
    const char *names[ROW_KEYS], *key;
    json_t *value;
    for (int i = 0; i < ROW_KEYS; i++) {
        names[i] = row_keys[i].name;
        if (row_keys[i].need && !json_object_get(row, names[i]))
            return missing_key(path, where, names[i], error);
    }
    json_object_foreach(row, key, value)
    {
        int i = 0;
        while (i < ROW_KEYS && strcmp(key, names[i])) i++;
        if (i == ROW_KEYS) return unknown_key(path, where, key, names, ROW_KEYS, error);
        json_type type = json_typeof(value), want = row_keys[i].type;
        bool right = type == want || (want == JSON_REAL && type == JSON_INTEGER) ||
                     (want == JSON_TRUE && type == JSON_FALSE);
        if (!right)
            return attn_fail(error, ATTN_KIND_INVALID_TYPE, "the profile %.160s: '%s' in %s is no %s", path,
                             key, where,
                             want == JSON_STRING    ? "text"
                             : want == JSON_INTEGER ? "whole number"
                             : want == JSON_REAL    ? "number"
                                                    : "boolean");
    }
    return ATTN_OK;
}

static attn_status read_numbers(const char *path, const char *where, const json_t *object, profile_row *row,
                                attn_error *error)
{
    for (int i = 0; i < ROW_KEYS; i++) {
        const struct row_key *key = &row_keys[i];
        const json_t *value = json_object_get(object, key->name);
        if (key->type != JSON_INTEGER || !value) continue;
        int64_t number = json_integer_value(value);
        if (number < 1 || number > key->most)
            return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                             "the profile %.160s: '%s' in %s is %lld; it is 1 to %lld", path, key->name,
                             where, (long long)number, (long long)key->most);
        memcpy((char *)row + key->place, &number, sizeof number);
    }
    if (!(row->q_up_to & (row->q_up_to - 1)) && !(row->kv_up_to & (row->kv_up_to - 1))) return ATTN_OK;
    return attn_fail(
        error, ATTN_KIND_INVALID_VALUE,
        "the profile %.160s: q_up_to and kv_up_to in %s are %lld and %lld; they are powers of two", path,
        where, (long long)row->q_up_to, (long long)row->kv_up_to);
}

static int64_t isa_index(const char *name)
{
    const char *known;
    for (size_t i = 0; (known = attn_isa_at(i, NULL)); i++)
        if (!strcmp(known, name)) return (int64_t)i;
    return NONE;
}

static attn_status read_names(const char *path, const char *where, const json_t *object, profile_row *row,
                              attn_error *error)
{
    const char *dtype = json_string_value(json_object_get(object, "dtype"));
    const char *isa = json_string_value(json_object_get(object, "isa"));
    row->dtype = attn_dtype_from_name(dtype);
    row->isa = isa_index(isa);
    if (row->dtype && row->isa != NONE) return ATTN_OK;
    return attn_fail(
        error, ATTN_KIND_UNKNOWN_NAME,
        "the profile %.160s: %s names the %s '%.60s', which this build lacks; write it anew with attn "
        "tune",
        path, where, row->dtype ? "kernel set" : "dtype", row->dtype ? isa : dtype);
}

static attn_status read_row(const char *path, size_t index, json_t *object, profile_row *row,
                            attn_error *error)
{
    char where[32];
    snprintf(where, sizeof where, "rows[%zu]", index);
    *row = (profile_row){.bq = NONE, .bk = NONE, .cache = NONE};
    if (!json_is_object(object))
        return attn_fail(error, ATTN_KIND_INVALID_TYPE, "the profile %.160s: %s is no object", path, where);
    ATTN_TRY(check_row_keys(path, where, object, error));
    ATTN_TRY(read_names(path, where, object, row, error));
    const json_t *cache = json_object_get(object, "cache");
    if (cache) row->cache = json_is_true(cache);
    return read_numbers(path, where, object, row, error);
}

static attn_status check_root_keys(const char *path, json_t *root, attn_error *error)
{
    const char *key;
    json_t *value;
    for (int i = 0; i < 3; i++)
        if (!json_object_get(root, root_keys[i])) return missing_key(path, "the root", root_keys[i], error);
    json_object_foreach(root, key, value)
    {
        int i = 0;
        while (i < ROOT_KEYS && strcmp(key, root_keys[i])) i++;
        if (i == ROOT_KEYS) return unknown_key(path, "the root", key, root_keys, ROOT_KEYS, error);
    }
    return ATTN_OK;
}

static attn_status check_root(const char *path, const char *cpu, json_t *root, attn_error *error)
{
    if (!json_is_object(root))
        return attn_fail(error, ATTN_KIND_INVALID_TYPE, "the profile %.160s is no JSON object", path);
    ATTN_TRY(check_root_keys(path, root, error));
    const json_t *version = json_object_get(root, "version"), *name = json_object_get(root, "cpu");
    if (!json_is_integer(version) || json_integer_value(version) != ATTN_PROFILE_VERSION)
        return attn_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "the profile %.160s is of version %lld; this library reads version %d, write it anew with "
            "attn tune",
            path, (long long)json_integer_value(version), ATTN_PROFILE_VERSION);
    if (!json_is_string(name) || !json_is_array(json_object_get(root, "rows")))
        return attn_fail(error, ATTN_KIND_INVALID_TYPE,
                         "the profile %.160s: cpu is a text and rows is a list", path);
    if (!strcmp(json_string_value(name), cpu)) return ATTN_OK;
    return attn_fail(
        error, ATTN_KIND_INVALID_VALUE,
        "the profile %.160s was measured on '%.100s' and this CPU is '%.100s'; run attn tune here, or "
        "use none",
        path, json_string_value(name), cpu);
}

static attn_status read_root(const char *path, const char *cpu, const attn_allocator *allocator, json_t *root,
                             attn_profile **profile, attn_error *error)
{
    ATTN_TRY(check_root(path, cpu, root, error));
    json_t *rows = json_object_get(root, "rows");
    size_t count = json_array_size(rows);
    attn_profile *made = attn_take_zeroed(allocator, sizeof *made + count * sizeof *made->rows);
    if (!made) return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a profile of %zu rows", count);
    made->allocator = allocator;
    made->count = count;
    attn_status status = ATTN_OK;
    for (size_t i = 0; !status && i < count; i++)
        status = read_row(path, i, json_array_get(rows, i), &made->rows[i], error);
    if (status)
        attn_profile_free(made);
    else
        *profile = made;
    return status;
}

attn_status attn_profile_load(const char *path, const char *cpu, const attn_allocator *allocator,
                              attn_profile **profile, attn_error *error)
{
    json_error_t at;
    *profile = NULL;
    FILE *file = fopen(path, "rbe");
    if (!file)
        return attn_fail(error, ATTN_KIND_IO,
                         "the profile %.160s cannot be read: %s; check its path or use none", path,
                         strerror(errno));
    json_t *root = json_loadf(file, JSON_REJECT_DUPLICATES, &at);
    fclose(file);
    if (!root)
        return attn_fail(error, ATTN_KIND_SYNTAX,
                         "the profile %.160s is not JSON at line %d, column %d: %.160s", path, at.line,
                         at.column, at.text);
    attn_status status = read_root(path, cpu, allocator, root, profile, error);
    json_decref(root);
    return status;
}

void attn_profile_free(attn_profile *profile)
{
    if (profile) attn_drop(profile->allocator, profile);
}

int attn_profile_count(const attn_profile *profile)
{
    return profile ? (int)profile->count : 0;
}

/* ---- finding ------------------------------------------------------------------------------------ */

/* (up_to / 2, up_to]; the class of 1 holds 0 as well. */
static bool in_class(int64_t length, int64_t up_to)
{
    return length <= up_to && (up_to == 1 || length > up_to / 2);
}

static bool holds(const profile_row *row, const char *cap, const attn_problem *p)
{
    return row->dtype == p->dtype && row->head_dim == p->head_dim &&
           row->value_head_dim == p->value_head_dim && in_class(p->q_len, row->q_up_to) &&
           in_class(p->kv_len, row->kv_up_to) && (!cap || !*cap || row->isa <= isa_index(cap));
}

static int64_t value_of(const profile_row *row, const char *key)
{
    const struct {
        const char *key;
        int64_t value;
    } values[] = {{"isa", row->isa}, {"bq", row->bq}, {"bk", row->bk}, {"cache", row->cache}};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        if (!strcmp(values[i].key, key)) return values[i].value;
    return NONE;
}

bool attn_profile_value(const attn_profile *profile, const char *cap, const attn_problem *problem,
                        const char *key, int64_t *value)
{
    for (size_t i = 0; profile && i < profile->count; i++) {
        if (!holds(&profile->rows[i], cap, problem)) continue;
        int64_t found = value_of(&profile->rows[i], key);
        if (found != NONE) *value = found;
        return found != NONE;
    }
    return false;
}
