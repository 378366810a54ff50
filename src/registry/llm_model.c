/* llm_model.c: what follows from a language model itself: its family, and how its checkpoint wants the cache.
 */
#include "core/fail.h"
#include "core/llm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- prefix language models --------------------------------------------------------------------- */

static const char *const families[] = {
#define X(family) #family,
#include "registry/llm_families.def"
#undef X
};
enum { FAMILIES = sizeof families / sizeof *families };

const char *attn_llm_prefix_family_at(size_t index)
{
    return index < FAMILIES ? families[index] : NULL;
}

int attn_llm_is_prefix_lm(const char *model_type, int32_t said)
{
    if (said >= 0) return said != 0;
    for (int i = 0; model_type && i < FAMILIES; i++)
        if (!strcmp(families[i], model_type)) return 1;
    return 0;
}

/* ---- storage of the cache ----------------------------------------------------------------------- */

/* Whether one entry of the skip list means this layer; false in *known for an entry that means nothing. */
static bool entry_means(const char *entry, const attn_llm_cache_query *q, bool *known)
{
    *known = entry != NULL;
    if (entry && !strcmp(entry, "sliding_window")) return q->sliding_window != 0;
    size_t digits = entry ? strspn(entry, "0123456789") : 0;
    *known = digits && digits < 10 && !entry[digits];
    return *known && strtol(entry, NULL, 10) == q->layer;
}

static attn_status read_skip(const attn_llm_cache_query *q, bool *skipped, attn_error *error)
{
    *skipped = false;
    if (q->layer < 0)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "layer is %d; layers are counted from 0", q->layer);
    if (q->skip_count && !q->skip)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "skip is NULL and skip_count %zu; set it to 0",
                         q->skip_count);
    for (size_t i = 0; i < q->skip_count; i++) {
        bool known;
        *skipped = entry_means(q->skip[i], q, &known) || *skipped;
        if (!known)
            return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                             "skip[%zu] is '%.60s'; it is the index of a layer or sliding_window", i,
                             q->skip[i] ? q->skip[i] : "(null)");
    }
    return ATTN_OK;
}

/* The storage type in force where the skip list says nothing. */
static attn_status read_names(const attn_llm_cache_query *q, int *kv, attn_error *error)
{
    char names[160];
    const char *scheme = q->checkpoint && !*q->checkpoint ? "fp8" : q->checkpoint;
    *kv = q->kv_cache_dtype ? attn_kv_find(q->kv_cache_dtype) : ATTN_KV_auto;
    if (*kv < 0)
        return attn_fail(error, ATTN_KIND_INVALID_KV_CACHE_DTYPE,
                         "kv_cache_dtype is '%.60s', which is no storage type; there are %s",
                         q->kv_cache_dtype, attn_kv_list(names, sizeof names));
    if (*kv != ATTN_KV_auto || !scheme) return ATTN_OK;
    *kv = attn_kv_find_any_case(scheme);
    if (*kv < 0)
        return attn_fail(error, ATTN_KIND_INVALID_KV_CACHE_DTYPE,
                         "the checkpoint's KV scheme is '%.60s', which is no storage type; there are %s",
                         q->checkpoint, attn_kv_list(names, sizeof names));
    return ATTN_OK;
}

attn_status attn_llm_cache_resolve(const attn_llm_cache_query *query, attn_llm_cache_storage *storage,
                                   attn_error *error)
{
    attn_llm_cache_query q;
    bool skipped;
    int kv;
    size_t least = offsetof(attn_llm_cache_query, checkpoint);
    if (!query || !attn_copy_struct(&q, sizeof q, query, query->size, least))
        return attn_fail(error, ATTN_KIND_INVALID_STRUCT,
                         "attn_llm_cache_query.size is %u; it is at least %zu, set it to "
                         "sizeof(attn_llm_cache_query)",
                         query ? query->size : 0, least);
    if (!storage)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "storage is NULL; give a struct for the answer");
    ATTN_TRY(read_skip(&q, &skipped, error));
    ATTN_TRY(read_names(&q, &kv, error));
    if (skipped) kv = ATTN_KV_auto;
    attn_llm_cache_storage ours = {.skipped = skipped,
                                   .kv_cache_dtype = attn_kv_name(kv),
                                   .dtype = attn_kv_elements(kv, q.model_dtype),
                                   .scales = attn_kv_scales(kv)};
    attn_give_struct(storage, &ours, sizeof ours);
    return ATTN_OK;
}
