/* resolve.c: a role without a layer, on this machine or a described one, and the cache of answers. */
#include "context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Models that permit TRTLLM_ATTN as an automatic choice, by pipeline class. */
static const char *const permitted[] = {"MiniMaxH3Pipeline", "WanPipeline", "WanImageToVideoPipeline",
                                        "WanVACEPipeline", "WanS2VPipeline"};

int attn_model_permits_trtllm(const char *pipeline_class)
{
    for (size_t i = 0; pipeline_class && i < sizeof permitted / sizeof *permitted; i++)
        if (!strcmp(pipeline_class, permitted[i])) return 1;
    return 0;
}

attn_status attn_question_read(attn_domain domain, const attn_llm_query *llm, int64_t head_size,
                               attn_dtype dtype, int64_t heads, int64_t kv_heads, attn_question *question,
                               attn_error *error)
{
    memset(question, 0, sizeof *question);
    question->domain = domain;
    if (domain < ATTN_DOMAIN_DIFFUSION || domain > ATTN_DOMAIN_VISION)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "domain is %d; it is 0 (diffusion), 1 (llm) or 2 (vision)", domain);
    ATTN_TRY(attn_llm_read_query(llm, &question->llm, error));
    attn_llm_case *c = &question->llm;
    c->head_size = head_size > 0 ? head_size : 0;
    c->dtype = dtype;
    if (!c->num_heads && heads <= INT32_MAX) c->num_heads = (int32_t)heads;
    if (!c->kv_heads && kv_heads <= INT32_MAX) c->kv_heads = (int32_t)kv_heads;
    return ATTN_OK;
}

static attn_status read_query(const attn_query *query, attn_query *q, attn_error *error)
{
    size_t least = offsetof(attn_query, needs);
    if (!query || !attn_copy_struct(q, sizeof *q, query, query->size, least))
        return attn_fail(error, ATTN_KIND_INVALID_STRUCT,
                         "attn_query.size is %u; it is at least %zu, set it to sizeof(attn_query)",
                         query ? query->size : 0, least);
    if (q->mode >= ATTN_RESOLVE_SELECT && q->mode <= ATTN_RESOLVE_CONSTRUCT) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                     "mode is %d; it is 0 (select), 1 (capability) or 2 (construct)", q->mode);
}

static attn_status choose(attn_context *c, attn_court *court, const attn_query *q,
                          const attn_question *question, attn_choice *choice, attn_error *error)
{
    attn_problem problem = {.size = sizeof problem, .features = q->needs, .dtype = q->dtype};
    bool diffusion = q->domain == ATTN_DOMAIN_DIFFUSION;
    if (diffusion && q->mode == ATTN_RESOLVE_CAPABILITY)
        return attn_policy_capability(court, c->config, question, choice, error);
    if (q->head_size > 0) problem.head_dim = problem.value_head_dim = q->head_size;
    ATTN_TRY(attn_policy_choose(court, c->config, question, &problem, choice, error));
    return diffusion && q->mode == ATTN_RESOLVE_CONSTRUCT ? attn_policy_construct(court, choice, error)
                                                          : ATTN_OK;
}

static attn_status hand_over(const attn_choice *choice, attn_resolution *r, attn_error *error)
{
    bool diffusion = choice->backend->domain == ATTN_DOMAIN_DIFFUSION;
    json_t *table = diffusion ? attn_spec_handover(choice->backend->name, choice->spec) : NULL;
    if (!table) return ATTN_OK;
    char *text = json_dumps(table, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(table);
    size_t bytes = text ? strlen(text) + 1 : 0;
    if (bytes && bytes <= sizeof r->handover) memcpy(r->handover, text, bytes);
    free(text);
    if (bytes && bytes <= sizeof r->handover) return ATTN_OK;
    return attn_fail(
        error, ATTN_KIND_INVALID_VALUE,
        "the typed blocks of %s make %zu bytes of JSON; at most %zu are handed over, shorten skip_layers",
        choice->backend->name, bytes, sizeof r->handover);
}

/* ---- the cache: success only, until an override changes ------------------------------------------- */

static uint64_t mix(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *p = bytes;
    for (size_t i = 0; i < count; i++) hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

static uint64_t hash_query(const attn_query *q, const attn_llm_case *llm, const char *role)
{
    const char *wish = or_empty(q->model_backend);
    uint64_t hash = mix(0xcbf29ce484222325u, role, strlen(role) + 1);
    if (q->category) hash = mix(hash, q->category, strlen(q->category) + 1);
    int64_t numbers[] = {q->mode, q->head_size, (int64_t)q->needs, q->permit_trtllm, q->dtype, q->domain};
    hash = mix(mix(hash, numbers, sizeof numbers), llm, sizeof *llm);
    return mix(hash, wish, strlen(wish) + 1);
}

static bool same_query(const attn_answer *a, const attn_query *q, const attn_llm_case *llm, const char *role)
{
    return a->query.mode == q->mode && a->query.head_size == q->head_size && a->query.needs == q->needs &&
           a->query.permit_trtllm == q->permit_trtllm && a->query.dtype == q->dtype &&
           a->query.domain == q->domain && !memcmp(&a->llm, llm, sizeof *llm) && !strcmp(a->role, role) &&
           a->has_category == (q->category != NULL) && !strcmp(a->category, or_empty(q->category)) &&
           !strcmp(a->model_backend, or_empty(q->model_backend));
}

static bool recall(attn_context *c, const attn_query *q, const attn_llm_case *llm, const char *role,
                   attn_resolution *resolution)
{
    attn_answers *answers = &c->answers;
    uint64_t hash = hash_query(q, llm, role);
    attn_lock_take(&answers->lock);
    const attn_answer *a = answers->rows[hash % ATTN_ANSWERS];
    bool found = a && a->generation == atomic_load(&c->registry.generation) && same_query(a, q, llm, role);
    if (found) attn_give_struct(resolution, &a->resolution, sizeof a->resolution);
    attn_lock_give(&answers->lock);
    return found;
}

/* One answer a slot: a newer question takes the place of an older one. Without memory nothing is kept. */
static void remember(attn_context *c, const attn_query *q, const attn_llm_case *llm, const char *role,
                     uint64_t generation, const attn_resolution *r)
{
    const char *category = or_empty(q->category), *wish = or_empty(q->model_backend);
    size_t roles = strlen(role) + 1, categories = strlen(category) + 1, wishes = strlen(wish) + 1;
    attn_answer *a = attn_take(&c->allocator, sizeof *a + roles + categories + wishes, 16);
    if (!a) return;
    *a = (attn_answer){.query = *q,
                       .llm = *llm,
                       .generation = generation,
                       .resolution = *r,
                       .has_category = q->category != NULL};
    a->query.role = a->query.category = a->query.model_backend = NULL; /* the caller's; our copies follow */
    a->query.llm = NULL;
    a->role = memcpy(a + 1, role, roles);
    a->category = memcpy(a->role + roles, category, categories);
    a->model_backend = memcpy(a->category + categories, wish, wishes);
    attn_lock_take(&c->answers.lock);
    attn_answer **slot = &c->answers.rows[hash_query(q, llm, role) % ATTN_ANSWERS], *old = *slot;
    *slot = a;
    attn_lock_give(&c->answers.lock);
    attn_drop(&c->allocator, old);
}

void attn_answers_clear(attn_context *c)
{
    for (size_t i = 0; i < ATTN_ANSWERS; i++) attn_drop(&c->allocator, c->answers.rows[i]);
    attn_lock_destroy(&c->answers.lock);
}

/* ---- the call ----------------------------------------------------------------------------------- */

static void fill(const attn_choice *choice, attn_resolution *r)
{
    r->explicit_choice = choice->explicit_choice;
    r->supports_mask = choice->backend->mask;
    r->supports_spans = choice->backend->spans;
    r->backend = choice->backend->name;
    r->log_name = choice->backend->log_name;
    r->implementation = choice->slot ? choice->slot->impl.name : NULL;
    snprintf(r->source, sizeof r->source, "%s", choice->source);
    snprintf(r->reason, sizeof r->reason, "%s", choice->reason);
    r->domain = choice->backend->domain;
    if (r->domain != ATTN_DOMAIN_LLM) return;
    const attn_llm_answer *a = &choice->llm;
    r->flash_attn_version = a->flash_version;
    r->variant = a->variant;
    r->kv_layout = a->layout;
    r->kv_cache_dtype = a->kv_cache_dtype;
    r->mla_prefill = a->prefill;
    r->block_size = a->block;
    r->trtllm_prefill = a->trtllm_prefill;
    r->trtllm_decode = a->trtllm_decode;
    r->query_fp8 = a->query_fp8;
    r->pads_value = a->pads_value;
}

static attn_status resolve(attn_context *c, const attn_query *q, const attn_question *question,
                           const char *role, attn_resolution *resolution, attn_trace_fn sink, void *user,
                           attn_error *error)
{
    attn_choice choice;
    attn_resolution r = {.size = sizeof r};
    uint64_t generation = atomic_load(&c->registry.generation);
    attn_court court = {.registry = &c->registry,
                        .host = &c->host,
                        .facts = &c->facts,
                        .head_size = q->head_size,
                        .permitted = q->permit_trtllm != 0,
                        .role = role,
                        .sink = sink,
                        .user = user};
    ATTN_TRY(choose(c, &court, q, question, &choice, error));
    ATTN_TRY(attn_check_mix(c, role, q->head_size, choice.backend, error));
    fill(&choice, &r);
    ATTN_TRY(hand_over(&choice, &r, error));
    attn_give_struct(resolution, &r, sizeof r);
    if (q->mode != ATTN_RESOLVE_CAPABILITY) attn_log_selection(c, role, q->category, &choice);
    if (!sink) remember(c, q, &question->llm, role, generation, &r);
    return ATTN_OK;
}

attn_status attn_resolve(attn_context *c, const attn_query *query, attn_resolution *resolution,
                         attn_trace_fn sink, void *user, attn_error *error)
{
    attn_query q;
    if (!c || !resolution)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "%s is NULL; pass an open context and a place for the answer",
                         c ? "resolution" : "context");
    ATTN_TRY(read_query(query, &q, error));
    const char *role = q.role ? q.role : "self";
    attn_question question;
    ATTN_TRY(attn_question_read(q.domain, q.llm, q.head_size, q.dtype, 0, 0, &question, error));
    question.category = q.category;
    question.model_backend = q.model_backend;
    if (!sink && recall(c, &q, &question.llm, role, resolution)) return ATTN_OK;
    return resolve(c, &q, &question, role, resolution, sink, user, error);
}
