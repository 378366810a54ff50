/* diffusion_selection FILE...: runs selection vectors, one JSON object a line, through attn_resolve. Prints a
 * line per failure and closes with "N passed, M failed". */
#include "vectors.h"

#include <attn/attn.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct answer {
    attn_error error;
    attn_resolution resolution;
    char backend[64], log_name[64]; /* copies that outlive the context */
} answer;

static const char *text_at(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static attn_status fill_config(const json_t *config, attn_config *c, attn_error *error)
{
    json_t *dotted = json_object_get(config, "dotted"), *flag = json_object_get(config, "flag_config"),
           *value;
    json_t *topk = json_object_get(config, "flag_vsa_topk");
    const char *path;
    attn_status status = attn_config_set_backend(c, text_at(config, "flag_backend"), error);
    if (!status) status = attn_config_set_environment(c, text_at(config, "env"), error);
    if (!status && flag && !json_is_null(flag)) {
        char *dump = json_dumps(flag, JSON_ENCODE_ANY);
        status = attn_config_set_json(c, dump, error);
        free(dump);
    }
    json_object_foreach(dotted, path, value)
    {
        if (!status) status = attn_config_set_path(c, path, json_string_value(value), error);
    }
    if (!status && json_is_integer(topk))
        status = attn_config_set_vsa_topk(c, json_integer_value(topk), error);
    return status;
}

static int32_t mode_of(const json_t *query)
{
    const char *mode = text_at(query, "mode");
    if (mode && !strcmp(mode, "capability")) return ATTN_RESOLVE_CAPABILITY;
    return mode && !strcmp(mode, "construct") ? ATTN_RESOLVE_CONSTRUCT : ATTN_RESOLVE_SELECT;
}

static void ask(const json_t *query, attn_context *context, answer *a)
{
    attn_query q = {.size = sizeof q,
                    .mode = mode_of(query),
                    .role = text_at(query, "role"),
                    .category = text_at(query, "role_category"),
                    .head_size = json_integer_value(json_object_get(query, "head_size")),
                    .permit_trtllm = json_is_true(json_object_get(query, "allow_trtllm_default"))};
    if (attn_resolve(context, &q, &a->resolution, NULL, NULL, &a->error)) return;
    snprintf(a->backend, sizeof a->backend, "%s", a->resolution.backend);
    snprintf(a->log_name, sizeof a->log_name, "%s", a->resolution.log_name);
}

static void resolve(const json_t *vector, answer *a)
{
    attn_config *config = NULL;
    attn_facts *facts = NULL;
    attn_context *context = NULL;
    char *dump = json_dumps(json_object_get(vector, "facts"), 0);
    *a = (answer){.error = ATTN_ERROR_INIT, .resolution = {.size = sizeof a->resolution}};
    attn_status status = attn_facts_parse(dump, &facts, &a->error);
    if (!status) status = attn_config_new(&config, &a->error);
    if (!status) status = fill_config(json_object_get(vector, "config"), config, &a->error);
    attn_options o = {.size = sizeof o,
                      .flags = ATTN_OPEN_IGNORE_ENV,
                      .module_path = "",
                      .settings = config,
                      .facts = facts};
    if (!status) status = attn_open(&o, &context, &a->error);
    if (!status) ask(json_object_get(vector, "query"), context, a);
    attn_close(context);
    attn_config_free(config);
    attn_facts_free(facts);
    free(dump);
}

/* Numbers compare as numbers: 1 and 1.0 are one value. */
static int alike(json_t *a, json_t *b)
{
    const char *key;
    json_t *value;
    if (json_is_number(a) && json_is_number(b))
        return fabs(json_number_value(a) - json_number_value(b)) < 1e-12;
    if (!json_is_object(a) || !json_is_object(b)) return json_equal(a, b);
    if (json_object_size(a) != json_object_size(b)) return 0;
    json_object_foreach(a, key, value)
    {
        json_t *other = json_object_get(b, key);
        if (!other || !alike(value, other)) return 0;
    }
    return 1;
}

static int handed_over(const json_t *expect, const answer *a)
{
    json_t *want = json_object_get(expect, "kwargs");
    if (!want) return 1;
    json_t *got = *a->resolution.handover ? json_loads(a->resolution.handover, 0, NULL) : json_null();
    int same = json_is_null(want) ? json_is_null(got) : alike(want, got);
    json_decref(got);
    return same;
}

/* "" when the answer agrees, else what does not. */
static const char *compare_success(const json_t *expect, const answer *a)
{
    const char *source = text_at(expect, "source"), *log_name = text_at(expect, "log_name");
    const json_t *mask = json_object_get(expect, "supports_attention_mask");
    if (a->error.kind) return "ok";
    if (strcmp(a->backend, text_at(expect, "backend"))) return "backend";
    if (source && strcmp(a->resolution.source, source)) return "source";
    if (log_name && strcmp(a->log_name, log_name)) return "log_name";
    if (json_is_boolean(mask) && json_is_true(mask) != (a->resolution.supports_mask != 0))
        return "supports_attention_mask";
    return handed_over(expect, a) ? "" : "kwargs";
}

static const char *compare_failure(const json_t *expect, const answer *a)
{
    if (!a->error.kind) return "ok";
    if (strcmp(text_at(expect, "error_kind"), attn_kind_name(a->error.kind))) return "error_kind";
    return vectors_mention(a->error.text, json_object_get(expect, "error_mentions")) ? "" : "error_mentions";
}

static int check(const json_t *vector)
{
    answer a;
    const json_t *expect = json_object_get(vector, "expect");
    const char *contested = text_at(vector, "contested");
    resolve(vector, &a);
    const char *wrong = json_is_true(json_object_get(expect, "ok")) ? compare_success(expect, &a)
                                                                    : compare_failure(expect, &a);
    if (!*wrong) return 1;
    char *dump = json_dumps(expect, JSON_COMPACT);
    printf("%s%s%s: %s differs: got '%s' via '%s' handing over '%s', error %s (%s); expected %s\n",
           text_at(vector, "id"), contested ? " contested " : "", contested ? contested : "", wrong,
           a.backend, a.resolution.source, a.resolution.handover, attn_kind_name(a.error.kind), a.error.text,
           dump);
    free(dump);
    return 0;
}

int main(int argc, char **argv)
{
    return vectors_run(argv + 1, argc - 1, check);
}
