/* explain_contract.c: compares a site with the contracts of backends. */
#include "explain_contract.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int explain_contract_has_size(const char *words, int64_t size)
{
    long multiple, most;
    if (sscanf(words, "multiples of %ld up to %ld", &multiple, &most) == 2)
        return multiple > 0 && size % multiple == 0 && size <= most;
    if (strcmp(words, "any") == 0) return 1;
    for (char *end; *words; words = end) {
        int64_t one = strtoll(words, &end, 10);
        if (end == words) return 0;
        if (one == size) return 1;
    }
    return 0;
}

static int find_backend(const attn_context *context, const char *name, attn_backend_info *info)
{
    for (size_t i = 0; attn_backend_at(context, i, info); i++)
        if (strcmp(info->name, name) == 0) return 1;
    return 0;
}

static json_t *beyond(const attn_backend_info *backend, const attn_layer_options *site)
{
    const uint64_t masks = ATTN_FEATURE(MASK_KEEP) | ATTN_FEATURE(MASK_ADDITIVE) | ATTN_FEATURE(KEY_MASK);
    json_t *list = json_array();
    if (!explain_contract_has_size(backend->head_sizes, site->head_dim))
        json_array_append_new(list, json_sprintf("head size %" PRId64 ": the contract of %s has %s",
                                                 site->head_dim, backend->name, backend->head_sizes));
    if (site->needs & masks && !backend->mask)
        json_array_append_new(list,
                              json_sprintf("attention masks: the contract of %s has none", backend->name));
    if (site->needs & ATTN_FEATURE(SPANS) && !backend->spans)
        json_array_append_new(
            list, json_sprintf("full-attention spans: the contract of %s has none", backend->name));
    return list;
}

void explain_mark_contract(json_t *role, const attn_context *context, const attn_layer_options *site)
{
    json_t *candidates = json_object_get(role, "candidates"), *candidate;
    size_t i;
    json_array_foreach(candidates, i, candidate)
    {
        const char *name = json_string_value(json_object_get(candidate, "backend"));
        attn_backend_info info = {.size = sizeof info};
        if (!json_is_true(json_object_get(candidate, "usable")) || !name ||
            !find_backend(context, name, &info))
            continue;
        json_object_set_new(candidate, "beyond_contract", beyond(&info, site));
    }
}
