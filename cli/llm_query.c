/* llm_query.c: what a question of domain llm says, as JSON or as "key=value,key". */
#include "llm_query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum kind { SIZE, NUMBER, TEXT, DTYPE, TYPE, FLAG };

static const struct key {
    const char *name;
    enum kind kind;
    size_t offset;
    uint32_t bit;
    const char *meaning;
} keys[] = {
#define X(kind, key, place, meaning) {#key, kind, offsetof(struct llm_query, place), 0, meaning},
#include "llm_query.def"
#undef X
#define X(name, bit, text, sentence) {text, FLAG, 0, (uint32_t)1 << bit, sentence},
    ATTN_LLM_FLAG_LIST(X)
#undef X
};

#define KEYS (sizeof keys / sizeof *keys)

const char *llm_query_key_at(size_t index, const char **meaning)
{
    if (index >= KEYS) return NULL;
    if (meaning) *meaning = keys[index].meaning;
    return keys[index].name;
}

static const struct {
    const char *word;
    attn_dtype dtype;
} dtype_words[] = {{"fp16", ATTN_F16},      {"float16", ATTN_F16}, {"bf16", ATTN_BF16},
                   {"bfloat16", ATTN_BF16}, {"fp32", ATTN_F32},    {"float32", ATTN_F32}};

static attn_status read_dtype(const char *word, attn_dtype *dtype, attn_error *error)
{
    *dtype = attn_dtype_from_name(word);
    for (size_t i = 0; !*dtype && i < sizeof dtype_words / sizeof *dtype_words; i++)
        if (!strcmp(dtype_words[i].word, word)) *dtype = dtype_words[i].dtype;
    return *dtype ? ATTN_OK
                  : cli_fail(error, ATTN_KIND_INVALID_VALUE,
                             "query.dtype is '%.60s'; it is fp16, bf16 or fp32", word);
}

static const char *const types[] = {
#define X(name, value, text, words) [value] = text,
    ATTN_LLM_TYPE_LIST(X)
#undef X
};

static attn_status read_type(const char *word, int32_t *type, attn_error *error)
{
    for (int32_t i = 0; i < (int32_t)(sizeof types / sizeof *types); i++) {
        if (strcmp(types[i], word) != 0) continue;
        *type = i;
        return ATTN_OK;
    }
    return cli_fail(error, ATTN_KIND_INVALID_VALUE,
                    "query.attn_type is '%.60s'; it is decoder, encoder, encoder_only or encoder_decoder",
                    word);
}

static attn_status bad_type(const struct key *key, const char *expected, attn_error *error)
{
    return cli_fail(error, ATTN_KIND_INVALID_TYPE, "query.%s has another type; it is %s", key->name,
                    expected);
}

static attn_status read_text(const struct key *key, const json_t *value, void *place, attn_error *error)
{
    const char *word = json_string_value(value);
    if (!word) return bad_type(key, "a text", error);
    if (key->kind == DTYPE) return read_dtype(word, place, error);
    if (key->kind == TYPE) return read_type(word, place, error);
    snprintf(place, sizeof((struct llm_query *)0)->kv_cache_dtype, "%s", word);
    return ATTN_OK;
}

static attn_status read_number(const struct key *key, const json_t *value, void *place, attn_error *error)
{
    int64_t number = json_integer_value(value);
    if (!json_is_integer(value)) return bad_type(key, "a whole number", error);
    if (number < 1 || number > INT32_MAX)
        return cli_fail(error, ATTN_KIND_INVALID_VALUE, "query.%s is %lld; it is at least 1", key->name,
                        (long long)number);
    if (key->kind == SIZE)
        *(int64_t *)place = number;
    else
        *(int32_t *)place = (int32_t)number;
    return ATTN_OK;
}

static attn_status read_key(const struct key *key, const json_t *value, struct llm_query *query,
                            attn_error *error)
{
    void *place = (char *)query + key->offset;
    if (json_is_null(value)) return ATTN_OK;
    if (key->kind == SIZE || key->kind == NUMBER) return read_number(key, value, place, error);
    if (key->kind != FLAG) return read_text(key, value, place, error);
    if (!json_is_boolean(value)) return bad_type(key, "true or false", error);
    query->llm.flags = json_is_true(value) ? query->llm.flags | key->bit : query->llm.flags & ~key->bit;
    return ATTN_OK;
}

static attn_status unknown_key(const char *name, attn_error *error)
{
    const char *names[KEYS + 1] = {NULL};
    char list[512] = "";
    for (size_t i = 0; i < KEYS; i++) {
        size_t used = strlen(list);
        names[i] = keys[i].name;
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", names[i]);
    }
    const char *near = cli_nearest(name, names);
    return cli_fail(error, ATTN_KIND_UNKNOWN_OR_MISSING_KEY,
                    "query has an unknown key '%.60s'%s%s%s; its keys are %s", name,
                    near ? ", did you mean '" : "", near ? near : "", near ? "'" : "", list);
}

attn_status llm_query_read(json_t *object, struct llm_query *query, attn_error *error)
{
    const char *name;
    json_t *value;
    memset(query, 0, sizeof *query);
    query->llm.size = sizeof query->llm;
    if (object && !json_is_object(object))
        return cli_fail(error, ATTN_KIND_INVALID_TYPE,
                        "query is no object; it is one such as {\"head_size\": 128}");
    json_object_foreach(object, name, value)
    {
        size_t i = 0;
        while (i < KEYS && strcmp(keys[i].name, name) != 0) i++;
        attn_status status = i < KEYS ? read_key(&keys[i], value, query, error) : unknown_key(name, error);
        if (status) return status;
    }
    if (*query->kv_cache_dtype) query->llm.kv_cache_dtype = query->kv_cache_dtype;
    return ATTN_OK;
}

/* "use_mla,block_size=16" as an object; values are JSON where they parse, else text. */
static json_t *object_of(const char *text)
{
    json_t *object = json_object();
    for (const char *at = text; *at;) {
        char word[160], *value;
        size_t n = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), at);
        value = strchr(word, '=');
        if (value) *value++ = '\0';
        json_t *parsed = value ? json_loads(value, JSON_DECODE_ANY, NULL) : json_true();
        json_object_set_new(object, word, parsed ? parsed : json_string(value));
        at += n + (at[n] == ',');
    }
    return object;
}

attn_status llm_query_parse(const char *text, struct llm_query *query, attn_error *error)
{
    json_error_t at;
    json_t *object = *text == '{' ? json_loads(text, JSON_REJECT_DUPLICATES, &at) : object_of(text);
    if (!object)
        return cli_fail(error, ATTN_KIND_SYNTAX, "--query is not JSON at line %d, column %d: %s", at.line,
                        at.column, at.text);
    attn_status status = llm_query_read(object, query, error);
    json_decref(object);
    return status;
}
