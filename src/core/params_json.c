/* params_json.c: tables of typed values from JSON, and back. */
#include "core/params.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 16 };

typedef struct reader {
    attn_arena *arena;
    const char *what;
    attn_error *error;
} reader;

static attn_status no_memory(const reader *r)
{
    return attn_fail(r->error, ATTN_KIND_OUT_OF_MEMORY, "no memory for %.60s; shorten it", r->what);
}

/* What kind of numbers a flat list holds; NONE when other things are in it. An empty list has no wrong
 * number. */
static attn_param_type numbers_of(const json_t *list)
{
    attn_param_type type = ATTN_PARAM_INTS;
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        if (!json_is_number(item)) return ATTN_PARAM_NONE;
        if (json_is_real(item)) type = ATTN_PARAM_NUMBERS;
    }
    return type;
}

/* Rows of equal length, all of numbers; NONE when it is no such thing. */
static attn_param_type rows_of(const json_t *list, size_t *columns)
{
    attn_param_type type = ATTN_PARAM_INTS;
    size_t i;
    json_t *row;
    *columns = json_array_size(json_array_get(list, 0));
    json_array_foreach(list, i, row)
    {
        attn_param_type one = json_is_array(row) ? numbers_of(row) : ATTN_PARAM_NONE;
        if (one == ATTN_PARAM_NONE || json_array_size(row) != *columns) return ATTN_PARAM_NONE;
        if (one == ATTN_PARAM_NUMBERS) type = one;
    }
    return *columns ? type : ATTN_PARAM_NONE;
}

static const json_t *element(const json_t *list, size_t columns, size_t i)
{
    return columns ? json_array_get(json_array_get(list, i / columns), i % columns) : json_array_get(list, i);
}

static attn_status read_numbers(const reader *r, const json_t *list, attn_param_type type, size_t columns,
                                attn_param *p)
{
    size_t count = json_array_size(list) * (columns ? columns : 1);
    int64_t *integers = NULL;
    double *numbers = NULL;
    void *memory = attn_arena_take(r->arena, (count ? count : 1) * sizeof(int64_t), sizeof(int64_t));
    if (!memory) return no_memory(r);
    if (type == ATTN_PARAM_INTS)
        integers = memory;
    else
        numbers = memory;
    for (size_t i = 0; i < count; i++) {
        const json_t *value = element(list, columns, i);
        if (integers)
            integers[i] = json_integer_value(value);
        else
            numbers[i] = json_number_value(value);
    }
    p->type = type;
    p->columns = (int32_t)columns;
    p->count = (int64_t)count;
    if (integers)
        p->value.integers = integers;
    else
        p->value.numbers = numbers;
    return ATTN_OK;
}

static attn_status read_value(const reader *r, const json_t *value, attn_param *p, int depth);

static attn_status too_deep(const reader *r)
{
    return attn_fail(r->error, ATTN_KIND_INVALID_VALUE,
                     "%.60s is nested more than %d levels deep; flatten it", r->what, DEPTH);
}

static attn_status make_table(const reader *r, size_t count, attn_params **table, attn_param **items)
{
    *table = attn_arena_take(r->arena, sizeof **table, _Alignof(attn_params));
    *items = attn_arena_take(r->arena, (count ? count : 1) * sizeof **items, _Alignof(attn_param));
    if (!*table || !*items) return no_memory(r);
    **table = (attn_params){sizeof **table, (uint32_t)count, *items};
    return ATTN_OK;
}

static attn_status read_list(const reader *r, const json_t *list, attn_param *p, int depth)
{
    size_t columns = 0, i;
    json_t *item;
    attn_params *table;
    attn_param *items;
    attn_param_type type = numbers_of(list);
    if (type) return read_numbers(r, list, type, 0, p);
    type = rows_of(list, &columns);
    if (type) return read_numbers(r, list, type, columns, p);
    ATTN_TRY(make_table(r, json_array_size(list), &table, &items));
    json_array_foreach(list, i, item)
    {
        items[i] = attn_param_make(NULL, ATTN_PARAM_NONE);
        ATTN_TRY(read_value(r, item, &items[i], depth + 1));
    }
    p->type = ATTN_PARAM_LIST;
    p->value.table = table;
    return ATTN_OK;
}

static attn_status read_table(const reader *r, const json_t *object, attn_params **table, int depth)
{
    attn_param *items;
    const char *key;
    json_t *value;
    size_t i = 0;
    if (depth > DEPTH) return too_deep(r);
    ATTN_TRY(make_table(r, json_object_size(object), table, &items));
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        const char *name = attn_arena_text(r->arena, key);
        if (!name) return no_memory(r);
        items[i] = attn_param_make(name, ATTN_PARAM_NONE);
        ATTN_TRY(read_value(r, value, &items[i], depth));
        i++;
    }
    return ATTN_OK;
}

static attn_status read_value(const reader *r, const json_t *value, attn_param *p, int depth)
{
    attn_params *table;
    if (depth > DEPTH) return too_deep(r);
    switch (json_typeof(value)) {
    case JSON_TRUE:
    case JSON_FALSE:
        p->type = ATTN_PARAM_BOOL;
        p->value.integer = json_is_true(value);
        return ATTN_OK;
    case JSON_INTEGER:
        p->type = ATTN_PARAM_INT;
        p->value.integer = json_integer_value(value);
        return ATTN_OK;
    case JSON_REAL:
        p->type = ATTN_PARAM_NUMBER;
        p->value.number = json_real_value(value);
        return ATTN_OK;
    case JSON_STRING:
        p->type = ATTN_PARAM_TEXT;
        p->value.text = attn_arena_text(r->arena, json_string_value(value));
        return p->value.text ? ATTN_OK : no_memory(r);
    case JSON_ARRAY:
        return read_list(r, value, p, depth);
    case JSON_OBJECT:
        ATTN_TRY(read_table(r, value, &table, depth + 1));
        p->type = ATTN_PARAM_TABLE;
        p->value.table = table;
        return ATTN_OK;
    default:
        p->type = ATTN_PARAM_NONE;
        return ATTN_OK;
    }
}

attn_status attn_params_from_json(attn_arena *arena, const char *what, const json_t *object,
                                  attn_params *params, attn_error *error)
{
    reader r = {arena, what, error};
    attn_params *table;
    if (!json_is_object(object))
        return attn_fail(error, ATTN_KIND_INVALID_TYPE,
                         "%.60s is no JSON object; write {\"name\": value, ...}", what);
    ATTN_TRY(read_table(&r, object, &table, 0));
    *params = *table;
    return ATTN_OK;
}

/* ---- the public pair ------------------------------------------------------------------------------ */

/* A table of the caller's with its memory behind it. */
typedef struct parsed {
    attn_params params;
    attn_arena arena;
} parsed;

attn_status attn_params_parse(const char *json, attn_params **params, attn_error *error)
{
    json_error_t at;
    if (!json || !params)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "%s is NULL; pass text and a place for the table",
                         json ? "params" : "json");
    *params = NULL;
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &at);
    if (!root)
        return attn_fail(error, ATTN_KIND_SYNTAX, "the parameters are not JSON at line %d, column %d: %.160s",
                         at.line, at.column, at.text);
    parsed *p = calloc(1, sizeof *p);
    if (p) p->arena.allocator = &attn_malloc_allocator;
    attn_status status =
        p ? attn_params_from_json(&p->arena, "the table of parameters", root, &p->params, error)
          : attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for parameters");
    json_decref(root);
    if (!status)
        *params = &p->params;
    else if (p)
        attn_params_free(&p->params);
    return status;
}

void attn_params_free(attn_params *params)
{
    parsed *p = (parsed *)(void *)params; /* its first field */
    if (!p) return;
    attn_arena_clear(&p->arena);
    free(p);
}

static json_t *value_to_json(const attn_param *p, int depth);

static json_t *table_to_json(const attn_params *params, bool named, int depth)
{
    json_t *root = named ? json_object() : json_array();
    bool whole = params && params->size >= sizeof *params && params->items && depth <= DEPTH;
    for (uint32_t i = 0; whole && root && i < params->count; i++) {
        json_t *value = value_to_json(&params->items[i], depth);
        if (!named)
            json_array_append_new(root, value);
        else if (params->items[i].name)
            json_object_set_new(root, params->items[i].name, value);
        else
            json_decref(value);
    }
    return root;
}

static json_t *number_to_json(const attn_param *p, int64_t i)
{
    if (p->type == ATTN_PARAM_INTS) return json_integer(p->value.integers[i]);
    json_t *number = json_real(p->value.numbers[i]);
    return number ? number : json_string("<not finite>");
}

static json_t *list_to_json(const attn_param *p)
{
    json_t *list = json_array(), *row = list;
    for (int64_t i = 0; i < p->count; i++) {
        if (p->columns > 0 && i % p->columns == 0) json_array_append_new(list, row = json_array());
        json_array_append_new(row, number_to_json(p, i));
    }
    return list;
}

static json_t *value_to_json(const attn_param *p, int depth)
{
    char word[32];
    json_t *number;
    switch (p->type) {
    case ATTN_PARAM_NONE:
        return json_null();
    case ATTN_PARAM_BOOL:
        return json_boolean(p->value.integer != 0);
    case ATTN_PARAM_INT:
        return json_integer(p->value.integer);
    case ATTN_PARAM_NUMBER:
        number = json_real(p->value.number);
        return number ? number : json_string("<not finite>");
    case ATTN_PARAM_TEXT:
        number = json_string(p->value.text ? p->value.text : "");
        return number ? number : json_string("<not UTF-8>");
    case ATTN_PARAM_INTS:
    case ATTN_PARAM_NUMBERS:
        return list_to_json(p);
    case ATTN_PARAM_LIST:
    case ATTN_PARAM_TABLE:
        return table_to_json(p->value.table, p->type == ATTN_PARAM_TABLE, depth + 1);
    default:
        snprintf(word, sizeof word, "<%s>", attn_param_type_name(p->type));
        return json_string(word);
    }
}

attn_status attn_params_format(const attn_params *params, char *text, size_t bytes, size_t *needed,
                               attn_error *error)
{
    json_t *root = table_to_json(params, true, 0);
    char *dump = root ? json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(root);
    if (!dump) return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the text of parameters");
    if (needed) *needed = strlen(dump) + 1;
    if (text && bytes) snprintf(text, bytes, "%s", dump);
    free(dump);
    return ATTN_OK;
}
