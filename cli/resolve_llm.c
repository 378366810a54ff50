/* resolve_llm.c: answers of domains llm and vision as JSON. */
#include "resolve_llm.h"

#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "llm_query.h"

/* ---- the configuration of a line ---------------------------------------------------------------- */

static attn_status set_option(attn_config *config, const char *option, const json_t *value, attn_error *error)
{
    const char *word = json_string_value(value);
    char *text = word ? NULL : json_dumps(value, JSON_ENCODE_ANY);
    attn_status status = word || text ? attn_config_set_option(config, option, word ? word : text, error)
                                      : cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for config");
    free(text);
    return status;
}

attn_status resolve_domain_config(attn_domain domain, json_t *said, attn_config *config, attn_error *error)
{
    const char *key;
    json_t *value;
    attn_status status = ATTN_OK;
    json_object_foreach(said, key, value)
    {
        char option[160];
        snprintf(option, sizeof option, "attention-config.%.120s", key);
        if (status || json_is_null(value)) continue;
        if (domain == ATTN_DOMAIN_VISION && strcmp(key, "mm_attention_backend") != 0)
            status = cli_fail(error, ATTN_KIND_UNKNOWN_OR_MISSING_KEY,
                              "config has an unknown key '%.80s'; its key is mm_attention_backend", key);
        else if (domain == ATTN_DOMAIN_VISION)
            status = set_option(config, "mm-attention-backend", value, error);
        else
            status = set_option(config, strcmp(key, "backend") ? option : "attention-backend", value, error);
    }
    return status;
}

/* ---- what is heard while a question is answered -------------------------------------------------- */

struct ear {
    json_t *rejected, *all, *notes; /* all: NULL where nobody asked */
};

static void hear(void *user, const attn_trace *trace)
{
    struct ear *ear = user;
    if (trace->event == ATTN_TRACE_NOTE && !trace->backend)
        json_array_append_new(ear->notes, json_string(trace->text));
    if (trace->event != ATTN_TRACE_REASON) return;
    if (ear->all)
        json_array_append_new(ear->all, json_pack("{s:s*, s:s*, s:s, s:s*}", "backend", trace->backend,
                                                  "implementation", trace->implementation, "kind",
                                                  attn_kind_name(trace->kind), "text", trace->text));
    if (!trace->rank) return;
    json_t *list = json_object_get(ear->rejected, trace->backend);
    if (!list && !json_object_set_new(ear->rejected, trace->backend, json_array()))
        list = json_object_get(ear->rejected, trace->backend);
    json_array_append_new(list, json_string(trace->text));
}

/* ---- answers ------------------------------------------------------------------------------------ */

static json_t *text_or_null(const char *text)
{
    return text && *text ? json_string(text) : json_null();
}

void resolve_llm_fields(json_t *out, const attn_resolution *r)
{
    int there = r->backend != NULL;
    json_object_set_new(out, "variant", text_or_null(r->variant));
    json_object_set_new(out, "kv_layout", text_or_null(r->kv_layout));
    json_object_set_new(out, "kv_cache_dtype", text_or_null(r->kv_cache_dtype));
    json_object_set_new(out, "block_size", r->block_size ? json_integer(r->block_size) : json_null());
    json_object_set_new(out, "flash_attn_version",
                        r->flash_attn_version ? json_integer(r->flash_attn_version) : json_null());
    json_object_set_new(out, "mla_prefill", text_or_null(r->mla_prefill));
    json_object_set_new(out, "pads_value", there ? json_boolean(r->pads_value) : json_null());
    json_object_set_new(out, "trtllm_prefill", there ? json_boolean(r->trtllm_prefill) : json_null());
    json_object_set_new(out, "trtllm_decode", there ? json_boolean(r->trtllm_decode) : json_null());
    json_object_set_new(out, "query_fp8", there ? json_boolean(r->query_fp8) : json_null());
}

static void add_answer(json_t *out, attn_domain domain, const attn_resolution *r)
{
    json_object_set_new(out, "backend", text_or_null(r->backend));
    json_object_set_new(out, "implementation", text_or_null(r->implementation));
    json_object_set_new(out, "source", text_or_null(r->source));
    json_object_set_new(out, "reason", text_or_null(r->reason));
    if (domain == ATTN_DOMAIN_LLM) resolve_llm_fields(out, r);
}

void resolve_domain_nothing(attn_domain domain, json_t *out)
{
    attn_resolution nothing = {.size = sizeof nothing};
    add_answer(out, domain, &nothing);
    json_object_set_new(out, "reasons", json_null());
    json_object_set_new(out, "warnings", json_array());
}

/* {"head_size", "dtype", "model_backend"}. */
static attn_status read_vision(json_t *query, attn_query *q, attn_error *error)
{
    const char *key;
    json_t *value;
    json_object_foreach(query, key, value)
    {
        if (!strcmp(key, "model_backend"))
            q->model_backend = json_string_value(value);
        else if (!strcmp(key, "head_size"))
            q->head_size = json_integer_value(value);
        else
            return cli_fail(error, ATTN_KIND_UNKNOWN_OR_MISSING_KEY,
                            "query has an unknown key '%.80s'; its keys are model_backend and head_size",
                            key);
    }
    return ATTN_OK;
}

static attn_status ask(attn_context *context, attn_domain domain, json_t *query, struct ear *ear,
                       attn_resolution *r, attn_error *error)
{
    struct llm_query llm;
    attn_query q = {.size = sizeof q, .domain = domain};
    attn_status status =
        domain == ATTN_DOMAIN_LLM ? llm_query_read(query, &llm, error) : read_vision(query, &q, error);
    if (status) return status;
    if (domain == ATTN_DOMAIN_LLM) {
        q.llm = &llm.llm;
        q.head_size = llm.head_size;
        q.dtype = llm.dtype;
    }
    return attn_resolve(context, &q, r, hear, ear, error);
}

attn_status resolve_domain(attn_context *context, attn_domain domain, json_t *query, json_t *out, json_t *all,
                           attn_error *error)
{
    struct ear ear = {json_object(), all, json_array()};
    attn_resolution r = {.size = sizeof r};
    attn_status status = ask(context, domain, query, &ear, &r, error);
    add_answer(out, domain, &r);
    json_object_set_new(out, "reasons",
                        json_object_size(ear.rejected) ? json_incref(ear.rejected) : json_null());
    json_object_set_new(out, "warnings", ear.notes);
    json_decref(ear.rejected);
    return status;
}
