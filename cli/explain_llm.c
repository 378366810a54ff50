/* explain_llm.c: what follows from a choice of domain llm. */
#include <stdio.h>
#include <string.h>

#include "explain_report.h"
#include "resolve_llm.h"

void explain_add_llm(json_t *role, attn_context *context, const attn_layer_options *site)
{
    attn_error error = ATTN_ERROR_INIT;
    attn_resolution r = {.size = sizeof r};
    attn_llm_query llm = *site->llm;
    if (!llm.num_heads) llm.num_heads = (int32_t)site->heads;
    if (!llm.kv_heads) llm.kv_heads = (int32_t)(site->kv_heads ? site->kv_heads : site->heads);
    attn_query q = {.size = sizeof q,
                    .role = site->role,
                    .head_size = site->head_dim,
                    .needs = site->needs,
                    .dtype = site->dtype,
                    .domain = ATTN_DOMAIN_LLM,
                    .llm = &llm};
    if (attn_resolve(context, &q, &r, NULL, NULL, &error)) return;
    json_t *fields = json_object();
    resolve_llm_fields(fields, &r);
    json_object_set_new(role, "llm", fields);
}

void explain_print_llm(const json_t *role)
{
    json_t *fields = json_object_get(role, "llm"), *value;
    const char *key;
    int first = 1;
    json_object_foreach(fields, key, value)
    {
        if (json_is_null(value) || json_is_false(value)) continue;
        printf("%s%s", first ? "with        " : ", ", key);
        if (json_is_string(value)) printf(" %s", json_string_value(value));
        if (json_is_integer(value)) printf(" %d", (int)json_integer_value(value));
        first = 0;
    }
    if (!first) printf("\n");
}
