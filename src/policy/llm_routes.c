/* llm_routes.c: the lists of candidates of domain llm, and the routes of every domain as rows to print. */
#include "policy/llm.h"

#include <string.h>

#define NONE ATTN_KIND_NONE
static const attn_llm_platform platforms[] = {
#define MLA_NOT_SUPPORTED_ON_PLATFORM    ATTN_KIND_MLA_NOT_SUPPORTED_ON_PLATFORM
#define SPARSE_NOT_SUPPORTED_ON_PLATFORM ATTN_KIND_SPARSE_NOT_SUPPORTED_ON_PLATFORM
#define X(platform, rule, mla, sparse, block, multiple, layout, passed_over)                                 \
    {platform, ATTN_LLM_##rule, mla, sparse, block, multiple, layout, ATTN_LOG_##passed_over},
#include "registry/llm_platforms.def"
#undef X
};

const attn_llm_platform *attn_llm_platform_of(const attn_facts *facts)
{
    static const attn_llm_platform other = {"", ATTN_LLM_VALIDATED, NONE, NONE, 0, 0, "", ATTN_LOG_DEBUG};
    for (size_t i = 0; i < sizeof platforms / sizeof *platforms; i++)
        if (!strcmp(platforms[i].name, facts->platform)) return &platforms[i];
    return &other;
}

/* ---- scopes and conditions ---------------------------------------------------------------------- */

typedef struct view {
    const attn_facts *f;
    const attn_llm_case *q;
    int named, row; /* the backend that the user named, and that of the row */
} view;

typedef bool holds_fn(const view *v);

static bool mla(const view *v)
{
    return ATTN_LLM_HAS(v->q, MLA);
}

static bool ten(const view *v)
{
    return v->f->has_capability && v->f->major == 10;
}

static bool encoder(const view *v)
{
    return ATTN_LLM_HAS(v->q, VISION_ENCODER);
}

static bool scope_STANDARD_10(const view *v)
{
    return !encoder(v) && !mla(v) && ten(v);
}

static bool scope_STANDARD_OTHER(const view *v)
{
    return !encoder(v) && !mla(v) && !ten(v);
}

static bool scope_MLA_10(const view *v)
{
    return !encoder(v) && mla(v) && ten(v);
}

static bool scope_MLA_OTHER(const view *v)
{
    return !encoder(v) && mla(v) && !ten(v);
}

static bool scope_ENCODER_80(const view *v)
{
    return encoder(v) && v->f->has_capability && v->f->major >= 8;
}

static bool scope_ENCODER_BELOW(const view *v)
{
    return encoder(v) && !scope_ENCODER_80(v);
}

static bool scope_SPARSE(const view *v)
{
    return ATTN_LLM_HAS(v->q, SPARSE);
}

static bool scope_DENSE_MLA(const view *v)
{
    return mla(v) && !scope_SPARSE(v);
}

static bool scope_DENSE_STANDARD(const view *v)
{
    return !mla(v) && !scope_SPARSE(v);
}

static bool scope_EVERY(const view *v)
{
    (void)v;
    return true;
}

static bool condition_ALWAYS(const view *v)
{
    (void)v;
    return true;
}

enum { FEW_HEADS = 16 };

static bool condition_PAIR_FLASHINFER_FIRST(const view *v)
{
    return attn_kv_quantised(v->q->kv) || (v->q->num_heads > 0 && v->q->num_heads <= FEW_HEADS);
}

static bool condition_PAIR_FLASHMLA_FIRST(const view *v)
{
    return !condition_PAIR_FLASHINFER_FIRST(v);
}

/* Facts that say nothing of switches have at least the package. */
static bool condition_AITER_FOUND(const view *v)
{
    bool device = v->f->has_capability && v->f->major == 9 && (v->f->minor == 4 || v->f->minor == 5);
    return v->f->aiter & ATTN_AITER(found) || (!v->f->aiter && device && attn_facts_have(v->f, "aiter"));
}

static bool condition_AITER_MLA(const view *v)
{
    return v->f->aiter & ATTN_AITER(mla);
}

static bool condition_AITER_MHA(const view *v)
{
    return v->f->aiter & ATTN_AITER(mha);
}

static bool condition_NAMED_OR_F32(const view *v)
{
    return v->named == v->row || v->q->dtype == ATTN_F32;
}

static bool condition_NAMED_OR_NONE(const view *v)
{
    return v->named == v->row || v->named < 0;
}

static bool condition_LIVE(const view *v)
{
    return v->f->live;
}

static const char *const scope_words[] = {
#define X(scope, words, meaning) words,
#include "registry/llm_scopes.def"
#undef X
};
enum {
#define X(scope, words, meaning) SCOPE_##scope,
#include "registry/llm_scopes.def"
#undef X
};
static const char *const condition_words[] = {
#define X(condition, words) words,
#include "registry/llm_conditions.def"
#undef X
};
enum {
#define X(condition, words) CONDITION_##condition,
#include "registry/llm_conditions.def"
#undef X
};
static holds_fn *const scopes[] = {
#define X(scope, words, meaning) scope_##scope,
#include "registry/llm_scopes.def"
#undef X
};
static holds_fn *const conditions[] = {
#define X(condition, words) condition_##condition,
#include "registry/llm_conditions.def"
#undef X
};

/* ---- the lists ---------------------------------------------------------------------------------- */

static const struct route {
    const char *platform;
    int name, scope, condition;
} routes[] = {
#define ROW_diffusion(...)
#define ROW_vision(...)
#define ROW_llm(platform, backend, scope, condition, why)                                                    \
    {platform, ATTN_LLM_NAME_##backend, SCOPE_##scope, CONDITION_##condition},
#define X(domain, ...) ROW_##domain(__VA_ARGS__)
#include "registry/routes.def"
#undef X
#undef ROW_diffusion
#undef ROW_vision
#undef ROW_llm
};
enum { ROUTES = sizeof routes / sizeof *routes };

static bool listed(const attn_llm_list *list, int name)
{
    for (int i = 0; i < list->count; i++)
        if (list->item[i].name == name) return true;
    return false;
}

void attn_llm_candidates(const attn_facts *facts, const attn_llm_case *q, int named, attn_llm_list *list)
{
    list->count = 0;
    for (int i = 0; i < ROUTES && list->count < ATTN_LLM_CANDIDATES; i++) {
        view v = {facts, q, named, routes[i].name};
        if (strcmp(routes[i].platform, facts->platform) || listed(list, routes[i].name) ||
            !scopes[routes[i].scope](&v) || !conditions[routes[i].condition](&v))
            continue;
        attn_llm_candidate *c = &list->item[list->count++];
        c->name = routes[i].name;
        c->slot = NULL;
        c->reasons.count = 0;
    }
}

/* ---- as rows to print --------------------------------------------------------------------------- */

static const struct printed {
    attn_domain domain;
    const char *platform, *scope, *backend, *condition;
} printed[] = {
#define ROW_diffusion(platform, backend, first, second, why)                                                 \
    {ATTN_DOMAIN_DIFFUSION, platform, "all", #backend, why},
#define ROW_llm(platform, backend, scope, condition, why)                                                    \
    {ATTN_DOMAIN_LLM, platform, #scope, #backend, #condition},
#define ROW_vision(platform, backend, cc, condition, why) {ATTN_DOMAIN_VISION, platform, cc, #backend, why},
#define X(domain, ...)                                    ROW_##domain(__VA_ARGS__)
#include "registry/routes.def"
#undef X
};
enum { PRINTED = sizeof printed / sizeof *printed };

/* The words of a scope or a condition of domain llm by its name in the rows. */
static const char *words_of(const char *name, bool scope)
{
#define X(scope_, words, meaning)                                                                            \
    if (scope && !strcmp(name, #scope_)) return scope_words[SCOPE_##scope_];
#include "registry/llm_scopes.def"
#undef X
#define X(condition, words)                                                                                  \
    if (!scope && !strcmp(name, #condition)) return condition_words[CONDITION_##condition];
#include "registry/llm_conditions.def"
#undef X
    return name;
}

int attn_route_at(attn_domain domain, size_t index, attn_route_info *info)
{
    for (int i = 0; i < PRINTED; i++) {
        const struct printed *p = &printed[i];
        int32_t rank = 1;
        if (p->domain != domain || index-- > 0) continue;
        for (int j = i; j-- > 0;)
            if (printed[j].domain == domain && !strcmp(printed[j].platform, p->platform) &&
                (domain == ATTN_DOMAIN_VISION || !strcmp(printed[j].scope, p->scope)))
                rank++;
        bool llm = domain == ATTN_DOMAIN_LLM;
        attn_route_info ours = {.rank = rank,
                                .platform = p->platform,
                                .scope = llm ? words_of(p->scope, true) : p->scope,
                                .backend = p->backend,
                                .condition = llm ? words_of(p->condition, false) : p->condition};
        attn_give_struct(info, &ours, sizeof ours);
        return 1;
    }
    return 0;
}
