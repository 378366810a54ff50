/* llm_selection FILE...: runs selection vectors of domain llm, one JSON object a line, through attn_resolve.
 * Prints a line per failure and closes with "N passed, M failed". */
#include "vectors.h"

#include <attn/attn.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct answer {
    attn_error error;
    attn_resolution resolution;
    char backend[64]; /* a copy that outlives the context */
    json_t *rejected; /* candidate -> reasons in order */
} answer;

static const char *text_at(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

/* ---- the question ------------------------------------------------------------------------------- */

static const struct flag {
    const char *key;
    uint32_t bit;
} flags[] = {
#define X(name, bit, text, sentence) {text, (uint32_t)1 << bit},
    ATTN_LLM_FLAG_LIST(X)
#undef X
};

static const char *const types[] = {
#define X(name, value, text, words) [value] = text,
    ATTN_LLM_TYPE_LIST(X)
#undef X
};

static attn_dtype dtype_of(const char *word)
{
    static const struct {
        const char *word;
        attn_dtype dtype;
    } words[] = {{"fp16", ATTN_F16}, {"bf16", ATTN_BF16}, {"fp32", ATTN_F32}};
    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++)
        if (!strcmp(words[i].word, word)) return words[i].dtype;
    return 0;
}

static int32_t type_of(const char *word)
{
    for (int32_t i = 0; word && i < (int32_t)(sizeof types / sizeof *types); i++)
        if (!strcmp(types[i], word)) return i;
    return -1;
}

static void read_query(const json_t *query, attn_llm_query *llm, attn_query *q)
{
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++)
        if (json_is_true(json_object_get(query, flags[i].key))) llm->flags |= flags[i].bit;
    llm->kv_cache_dtype = text_at(query, "kv_cache_dtype");
    llm->block_size = json_integer_value(json_object_get(query, "block_size"));
    llm->num_heads = (int32_t)json_integer_value(json_object_get(query, "num_heads"));
    llm->attn_type = type_of(text_at(query, "attn_type"));
    q->domain = ATTN_DOMAIN_LLM;
    q->llm = llm;
    q->head_size = json_integer_value(json_object_get(query, "head_size"));
    q->dtype = dtype_of(text_at(query, "dtype"));
}

static attn_status set_field(attn_config *config, const json_t *value, const char *key, attn_error *error)
{
    char option[96];
    if (!value || json_is_null(value)) return ATTN_OK;
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    snprintf(option, sizeof option, "attention-config.%s", key);
    attn_status status = attn_config_set_option(config, option, text, error);
    free(text);
    return status;
}

/* The backend comes by its own flag, every other key of a vector's config by the structured option. */
static attn_status fill_config(json_t *said, attn_config *config, attn_error *error)
{
    const char *key;
    json_t *value;
    attn_status status = ATTN_OK;
    json_object_foreach(said, key, value)
    {
        if (status) break;
        if (strcmp(key, "backend"))
            status = set_field(config, value, key, error);
        else if (json_is_string(value))
            status = attn_config_set_option(config, "attention-backend", json_string_value(value), error);
    }
    return status;
}

/* Reasons against candidates only; the others are told for the whole picture. */
static void collect(void *user, const attn_trace *trace)
{
    json_t *rejected = user;
    if (trace->event != ATTN_TRACE_REASON || !trace->rank) return;
    json_t *list = json_object_get(rejected, trace->backend);
    if (!list) {
        json_object_set_new(rejected, trace->backend, json_array());
        list = json_object_get(rejected, trace->backend);
    }
    json_array_append_new(list, json_string(trace->text));
}

static attn_status ask(const json_t *vector, attn_context *context, answer *a)
{
    attn_llm_query llm = {.size = sizeof llm};
    attn_query q = {.size = sizeof q};
    attn_resolution quiet = {.size = sizeof quiet};
    attn_error error = ATTN_ERROR_INIT;
    read_query(json_object_get(vector, "query"), &llm, &q);
    attn_status status = attn_resolve(context, &q, &a->resolution, collect, a->rejected, &a->error);
    /* The same without a listener, and once more from the cache. */
    for (int i = 0; i < 2; i++)
        if (attn_resolve(context, &q, &quiet, NULL, NULL, &error) != status || error.kind != a->error.kind ||
            (!status && strcmp(quiet.backend, a->resolution.backend)))
            a->error.kind = ATTN_KIND_INTERNAL;
    if (!status) snprintf(a->backend, sizeof a->backend, "%s", a->resolution.backend);
    return status;
}

static void resolve(const json_t *vector, answer *a)
{
    attn_config *config = NULL;
    attn_facts *facts = NULL;
    attn_context *context = NULL;
    char *dump = json_dumps(json_object_get(vector, "facts"), 0);
    *a = (answer){
        .error = ATTN_ERROR_INIT, .resolution = {.size = sizeof a->resolution}, .rejected = json_object()};
    attn_status status = attn_facts_parse(dump, &facts, &a->error);
    if (!status) status = attn_config_new(&config, &a->error);
    if (!status) status = fill_config(json_object_get(vector, "config"), config, &a->error);
    attn_options o = {.size = sizeof o,
                      .flags = ATTN_OPEN_IGNORE_ENV,
                      .module_path = "",
                      .settings = config,
                      .facts = facts};
    if (!status) status = attn_open(&o, &context, &a->error);
    if (!status) ask(vector, context, a);
    attn_close(context);
    attn_config_free(config);
    attn_facts_free(facts);
    free(dump);
}

/* ---- the comparison ----------------------------------------------------------------------------- */

/* The order of keys is free, that of reasons is not. null: nothing was rejected. */
static int same_reasons(const json_t *expect, const answer *a)
{
    const json_t *want = json_object_get(expect, "reasons");
    if (!want || json_is_null(want)) return json_object_size(a->rejected) == 0;
    return json_equal((json_t *)(uintptr_t)want, a->rejected);
}

/* What the text of a refusal promises, by its kind. */
static int text_holds(const answer *a)
{
    const char *text = a->error.text, *key;
    const json_t *list, *item;
    size_t i;
    json_object_foreach(a->rejected, key, list)
    {
        if (!strstr(text, key)) return 0;
        json_array_foreach(list, i, item)
        {
            if (!strstr(text, json_string_value(item))) return 0;
        }
    }
    return 1;
}

/* "" when the answer agrees, else what does not. */
static const char *compare(const json_t *expect, const answer *a)
{
    const char *backend = text_at(expect, "backend"), *kind = text_at(expect, "error");
    int ok = json_is_true(json_object_get(expect, "ok"));
    if (ok != !a->error.kind) return "ok";
    if (kind && strcmp(kind, attn_kind_name(a->error.kind))) return "error";
    if (backend && strcmp(backend, a->backend)) return "backend";
    if (!same_reasons(expect, a)) return "reasons";
    return ok || text_holds(a) ? "" : "text";
}

static int check(const json_t *vector)
{
    answer a;
    const json_t *expect = json_object_get(vector, "expect");
    resolve(vector, &a);
    const char *wrong = compare(expect, &a);
    if (*wrong) {
        char *want = json_dumps(expect, JSON_COMPACT), *got = json_dumps(a.rejected, JSON_COMPACT);
        printf("%s (%s): %s differs: got '%s', error %s (%s), reasons %s; expected %s\n",
               text_at(vector, "id"), text_at(vector, "basis"), wrong, a.backend,
               attn_kind_name(a.error.kind), a.error.text, got, want);
        free(want);
        free(got);
    }
    json_decref(a.rejected);
    return !*wrong;
}

int main(int argc, char **argv)
{
    return vectors_run(argv + 1, argc - 1, check);
}
