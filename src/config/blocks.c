/* blocks.c: typed blocks are rows; one loop checks them all. */
#include "config/spec.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef enum field_type { NUMBER, INT, CHOICE, PICK, TEXT, LAYERS } field_type;
typedef enum shape { TABLE, VALUE } shape;

static const struct block {
    const char *key;
    shape shape;
    const char *owners;
} blocks[] = {
#define BLOCK(key, shape, owners) {#key, shape, owners},
#define FIELD(block, key, type, null, def, low, high, choices)
#include "config/blocks.def"
#undef BLOCK
#undef FIELD
};
enum { BLOCKS = sizeof blocks / sizeof *blocks };

typedef struct field {
    const char *block, *key;
    field_type type;
    const char *null, *standard, *low, *high, *choices;
} field;

static const field fields[] = {
#define BLOCK(key, shape, owners)
#define FIELD(block, key, type, null, def, low, high, choices)                                               \
    {#block, #key, type, null, def, low, high, choices},
#include "config/blocks.def"
#undef BLOCK
#undef FIELD
};
enum { FIELDS = sizeof fields / sizeof *fields };

static const struct block *find_block(const char *key)
{
    for (int i = 0; i < BLOCKS; i++)
        if (!strcmp(blocks[i].key, key)) return &blocks[i];
    return NULL;
}

const char *attn_block_at(size_t index)
{
    return index < BLOCKS ? blocks[index].key : NULL;
}

bool attn_block_known(const char *key)
{
    return find_block(key) != NULL;
}

const char *attn_block_owners(const char *key)
{
    return find_block(key)->owners;
}

static bool listed(const char *words, const char *word, bool any_case)
{
    size_t length = strlen(word);
    for (const char *p = words; *p; p += strcspn(p, " "), p += *p == ' ')
        if (strcspn(p, " ") == length && !(any_case ? strncasecmp : strncmp)(p, word, length)) return true;
    return false;
}

bool attn_block_owned(const char *key, const char *backend)
{
    return listed(attn_block_owners(key), backend, true);
}

const char *attn_block_fields(const char *key, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < FIELDS && used < bytes; i++)
        if (!strcmp(fields[i].block, key))
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", fields[i].key);
    return text;
}

const char *attn_json_type(const json_t *value)
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

/* The value as the user would recognise it, cut to a few words. */
static const char *show(const json_t *value, char *text, size_t bytes)
{
    char *dump = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    snprintf(text, bytes, "%.60s", dump ? dump : "?");
    free(dump);
    return text;
}

/* ---- one field ---------------------------------------------------------------------------------- */

static attn_status bad_value(const char *path, const field *f, const json_t *value, const char *expected,
                             attn_error *error)
{
    char shown[64];
    return attn_fail(error, ATTN_KIND_INVALID_VALUE, "%s.%s is %s; it is %s", path, f->key,
                     show(value, shown, sizeof shown), expected);
}

static const char *range(const field *f, const char *what, char *text, size_t bytes)
{
    if (*f->low && *f->high)
        snprintf(text, bytes, "%s from %s to %s", what, f->low, f->high);
    else if (*f->low)
        snprintf(text, bytes, "%s of at least %s", what, f->low);
    else
        snprintf(text, bytes, "%s", what);
    return text;
}

/* The bounds of the rows are whole numbers, which need no locale. */
static bool within(const field *f, double number)
{
    return isfinite(number) && (!*f->low || number >= (double)atoi(f->low)) &&
           (!*f->high || number <= (double)atoi(f->high));
}

static attn_status read_number(const char *path, const field *f, json_t *value, json_t **normal,
                               attn_error *error)
{
    char expected[96];
    bool whole = f->type == INT;
    if ((whole ? !json_is_integer(value) : !json_is_number(value)) || !within(f, json_number_value(value)))
        return bad_value(path, f, value,
                         range(f, whole ? "a whole number" : "a number", expected, sizeof expected), error);
    *normal = whole ? json_incref(value) : json_real(json_number_value(value));
    return ATTN_OK;
}

static attn_status read_choice(const char *path, const field *f, json_t *value, json_t **normal,
                               attn_error *error)
{
    char number[32] = "", expected[96];
    const char *word = json_string_value(value);
    if (f->type == PICK && json_is_integer(value)) {
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        word = number;
    } else if (f->type == PICK) {
        word = NULL;
    }
    snprintf(expected, sizeof expected, "one of %s", f->choices);
    if (!word || !listed(f->choices, word, false)) return bad_value(path, f, value, expected, error);
    *normal = json_incref(value);
    return ATTN_OK;
}

static attn_status read_text(const char *path, const field *f, json_t *value, json_t **normal,
                             attn_error *error)
{
    if (!json_is_string(value)) return bad_value(path, f, value, "a string", error);
    *normal = json_incref(value);
    return ATTN_OK;
}

/* ---- selectors: "0-3,38" or [0, 1, 2] ------------------------------------------------------------ */

enum { LAYER_MOST = 65535 };

/* A set of layers while it is read. */
typedef struct layer_set {
    bool has[LAYER_MOST + 1];
} layer_set;

static json_t *layer_array(const layer_set *set)
{
    json_t *list = json_array();
    for (int i = 0; i <= LAYER_MOST; i++)
        if (set->has[i]) json_array_append_new(list, json_integer(i));
    return list;
}

static const char *skip_blanks(const char *p)
{
    return p + strspn(p, " \t");
}

/* Reads digits; NULL when there are none or too many. */
static const char *layer_number(const char *p, int64_t *number)
{
    *number = 0;
    if (*p < '0' || *p > '9') return NULL;
    for (; *p >= '0' && *p <= '9'; p++) {
        *number = *number * 10 + (*p - '0');
        if (*number > LAYER_MOST) return NULL;
    }
    return skip_blanks(p);
}

/* One item "N" or "A-B"; NULL when it is neither. */
static const char *layer_item(const char *p, layer_set *set)
{
    int64_t first, last;
    p = layer_number(p, &first);
    if (!p) return NULL;
    last = first;
    if (*p == '-') p = layer_number(skip_blanks(p + 1), &last);
    if (!p || last < first) return NULL;
    for (int64_t i = first; i <= last; i++) set->has[i] = true;
    return p;
}

static bool read_layer_text(const char *text, layer_set *set)
{
    for (const char *p = skip_blanks(text); *p; p = skip_blanks(p)) {
        if (*p == ',') {
            p++;
            continue;
        }
        p = layer_item(p, set);
        if (!p || (*p && *p != ',')) return false;
    }
    return true;
}

static attn_status read_layer_list(const char *path, const field *f, json_t *list, layer_set *set,
                                   attn_error *error)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        if (!json_is_integer(item))
            return attn_fail(error, ATTN_KIND_INVALID_TYPE,
                             "%s.%s: the selector holds %s; it holds whole numbers", path, f->key,
                             attn_json_type(item));
        int64_t layer = json_integer_value(item);
        if (layer < 0 || layer > LAYER_MOST)
            return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                             "%s.%s: the selector holds %" PRId64 "; layers are 0 to %d", path, f->key, layer,
                             LAYER_MOST);
        set->has[layer] = true;
    }
    return ATTN_OK;
}

static attn_status read_layers(const char *path, const field *f, json_t *value, json_t **normal,
                               attn_error *error)
{
    attn_status status = ATTN_OK;
    const char *text = json_string_value(value);
    layer_set *set = calloc(1, sizeof *set);
    if (!set) return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for %s.%s", path, f->key);
    if (json_is_array(value))
        status = read_layer_list(path, f, value, set, error);
    else if (!text)
        status = attn_fail(error, ATTN_KIND_INVALID_TYPE,
                           "%s.%s: the selector is %s; it is text such as \"0-3,38\" or a list of layers",
                           path, f->key, attn_json_type(value));
    else if (!read_layer_text(text, set))
        status =
            attn_fail(error, ATTN_KIND_INVALID_VALUE,
                      "%s.%s: the selector is '%.60s'; its items are N or A-B with A <= B, as in \"0-3,38\"",
                      path, f->key, text);
    *normal = status ? NULL : layer_array(set);
    free(set);
    return status;
}

/* ---- a whole block ------------------------------------------------------------------------------ */

static attn_status (*const readers[])(const char *, const field *, json_t *, json_t **, attn_error *) = {
    [NUMBER] = read_number, [INT] = read_number, [CHOICE] = read_choice,
    [PICK] = read_choice,   [TEXT] = read_text,  [LAYERS] = read_layers,
};

static attn_status read_field(const char *path, const field *f, json_t *value, json_t **normal,
                              attn_error *error)
{
    if (!value || (json_is_null(value) && *f->null)) {
        *normal = json_loads(value ? f->null : f->standard, JSON_DECODE_ANY, NULL);
        return ATTN_OK;
    }
    return readers[f->type](path, f, value, normal, error);
}

/* Rules across fields. */
static attn_status check_across(const char *path, const char *key, json_t *block, attn_error *error)
{
    if (strcmp(key, "skip_softmax")) return ATTN_OK;
    if (json_is_null(json_object_get(block, "target_sparsity")) ||
        json_is_null(json_object_get(block, "threshold")))
        return ATTN_OK;
    return attn_fail(error, ATTN_KIND_MUTUALLY_EXCLUSIVE,
                     "%s has target_sparsity and threshold; give one of the two", path);
}

static bool field_of(const char *block, const char *key)
{
    for (int i = 0; i < FIELDS; i++)
        if (!strcmp(fields[i].block, block) && !strcmp(fields[i].key, key)) return true;
    return false;
}

static attn_status check_keys(const char *path, const char *block, json_t *value, attn_error *error)
{
    const char *key;
    json_t *item;
    char names[160];
    json_object_foreach(value, key, item)
    {
        if (field_of(block, key)) continue;
        const char *words[FIELDS], *near;
        size_t count = 0;
        for (int i = 0; i < FIELDS; i++)
            if (!strcmp(fields[i].block, block)) words[count++] = fields[i].key;
        near = attn_nearest(key, words, count);
        return attn_fail(error, ATTN_KIND_UNKNOWN_OR_MISSING_KEY, "%s.%.60s is no key of %s;%s%s%s it has %s",
                         path, key, block, near ? " did you mean " : "", near ? near : "", near ? "?" : "",
                         attn_block_fields(block, names, sizeof names));
    }
    return ATTN_OK;
}

static attn_status read_table(const char *path, const char *key, json_t *value, json_t *table,
                              attn_error *error)
{
    ATTN_TRY(check_keys(path, key, value, error));
    for (int i = 0; i < FIELDS; i++) {
        json_t *normal = NULL;
        if (strcmp(fields[i].block, key)) continue;
        ATTN_TRY(read_field(path, &fields[i], json_object_get(value, fields[i].key), &normal, error));
        json_object_set_new(table, fields[i].key, normal);
    }
    return check_across(path, key, table, error);
}

static attn_status read_value(const char *path, const char *key, json_t *value, json_t **normal,
                              attn_error *error)
{
    char above[256];
    /* The path of the block names the value itself. */
    snprintf(above, sizeof above, "%.*s", (int)(strlen(path) - strlen(key) - 1), path);
    for (int i = 0; i < FIELDS; i++)
        if (!strcmp(fields[i].block, key)) return read_field(above, &fields[i], value, normal, error);
    return ATTN_OK;
}

attn_status attn_block_read(const char *path, const char *key, json_t *value, json_t **normal,
                            attn_error *error)
{
    const struct block *block = find_block(key);
    *normal = NULL;
    if (block->shape == VALUE) return read_value(path, key, value, normal, error);
    if (!json_is_object(value))
        return attn_fail(error, ATTN_KIND_INVALID_TYPE, "%s is %s; it is an object with some of its fields",
                         path, attn_json_type(value));
    json_t *table = json_object();
    attn_status status = read_table(path, key, value, table, error);
    if (status)
        json_decref(table);
    else
        *normal = table;
    return status;
}
