/* llm.c: the rule of domain llm: a named backend is validated, else the first valid candidate is taken. */
#include "policy/llm.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct walk {
    attn_court *court;
    const attn_config *config;
    const attn_problem *problem;
    attn_llm_case q;
    attn_choice *choice;
    int named;         /* -1: nobody named a backend */
    uint64_t encoders; /* a vision encoder on a described CUDA device: the names of its list, as bits */
} walk;

/* ---- judging one candidate ---------------------------------------------------------------------- */

/* On a live machine code must be there. The rows bind the platform they speak of; the cpu platform's own code
 * says itself what it can. */
static void judge_live(const walk *w, attn_llm_candidate *c)
{
    attn_court quiet = *w->court;
    attn_verdict v;
    quiet.sink = NULL;
    attn_judge_backend(&quiet, &attn_llm_backends[c->name], w->problem, &v);
    if (!v.slot && v.kind == ATTN_KIND_PACKAGE_MISSING) {
        attn_llm_reason(&c->reasons, ATTN_KIND_PACKAGE_MISSING, "ImportError");
        return;
    }
    c->slot = v.slot;
    if (strcmp(w->court->facts->platform, "cpu"))
        attn_llm_check(w->court->facts, &w->q, c->name, &c->reasons);
    for (const char *at = v.slot ? "" : v.clauses.text; *at; at += strcspn(at, "\n"), at += *at == '\n')
        attn_llm_reason(&c->reasons, v.kind, "%.*s", (int)strcspn(at, "\n"), at);
}

/* What is only described counts as built in unless the facts say that it is missing. */
static void judge_described(const walk *w, attn_llm_candidate *c)
{
    bool none = attn_llm_names[c->name].kind == ATTN_LLM_NONE;
    if (none || w->court->facts->missing >> c->name & 1)
        attn_llm_reason(&c->reasons, ATTN_KIND_PACKAGE_MISSING, "ImportError");
    else
        attn_llm_check(w->court->facts, &w->q, c->name, &c->reasons);
}

static void tell_candidate(const walk *w, const attn_llm_candidate *c, int rank)
{
    const attn_court *court = w->court;
    if (!court->sink) return;
    attn_trace t = {.size = sizeof t,
                    .event = ATTN_TRACE_REASON,
                    .role = court->role,
                    .source = court->source,
                    .backend = attn_llm_names[c->name].name,
                    .implementation = c->slot ? c->slot->impl.name : NULL,
                    .rank = rank};
    for (int i = 0; i < c->reasons.count; i++) {
        t.kind = c->reasons.list[i].kind;
        t.text = c->reasons.list[i].text;
        court->sink(court->user, &t);
    }
    t.event = ATTN_TRACE_CANDIDATE;
    t.usable = !c->reasons.count;
    t.kind = c->reasons.count ? c->reasons.list[0].kind : ATTN_KIND_NONE;
    t.text = c->reasons.count ? c->reasons.list[0].text : c->slot ? c->slot->impl.summary : "meets the table";
    court->sink(court->user, &t);
}

/* A slot is nothing until an implementation serves it. */
static bool is_registered(const walk *w, int name)
{
    return attn_llm_names[name].kind != ATTN_LLM_SLOT || w->encoders >> name & 1 ||
           attn_registry_served(w->court->registry, &attn_llm_backends[name]);
}

/* Code of this machine that does more than its name promises elsewhere; told, since a move to another machine
 * would lose it. */
static void tell_beyond(const walk *w, const attn_llm_candidate *c)
{
    attn_llm_reasons beyond = {.count = 0};
    char text[200];
    if (!w->court->sink || !c->slot || c->reasons.count) return;
    attn_llm_check(w->court->facts, &w->q, c->name, &beyond);
    for (int i = 0; i < beyond.count; i++) {
        snprintf(text, sizeof text, "the table has: %s", beyond.list[i].text);
        attn_policy_tell(w->court, ATTN_TRACE_NOTE, attn_llm_names[c->name].name, c->slot->impl.name, text);
    }
}

static void judge(const walk *w, attn_llm_candidate *c, int rank)
{
    c->slot = NULL;
    c->reasons.count = 0;
    if (!is_registered(w, c->name))
        attn_llm_reason(&c->reasons, ATTN_KIND_BACKEND_NOT_REGISTERED, "must be registered first");
    else if (w->court->facts->live)
        judge_live(w, c);
    else
        judge_described(w, c);
    tell_candidate(w, c, rank);
    tell_beyond(w, c);
}

/* Names that are no candidates of this question, for the whole picture. */
static void judge_rest(const walk *w, const attn_llm_list *list)
{
    for (int name = 0; w->court->sink && name < ATTN_LLM_NAMES; name++) {
        bool judged = name == w->named;
        for (int i = 0; i < list->count; i++) judged = judged || list->item[i].name == name;
        attn_llm_candidate c = {.name = name};
        if (!judged) judge(w, &c, 0);
    }
}

/* ---- telling ------------------------------------------------------------------------------------ */

/* "{NAME: [reason, reason], NAME: [reason]}" of those with reasons, cut at a whole name. */
static const char *list_text(const attn_llm_list *list, char *text, size_t bytes)
{
    char reasons[1024];
    size_t used = (size_t)snprintf(text, bytes, "{");
    bool first = true;
    for (int i = 0; i < list->count; i++) {
        const attn_llm_candidate *c = &list->item[i];
        if (!c->reasons.count) continue;
        attn_llm_reasons_text(&c->reasons, "", reasons, sizeof reasons);
        size_t more = (size_t)snprintf(NULL, 0, ", %s: [%s]", attn_llm_names[c->name].name, reasons);
        if (used + more + 2 > bytes) break;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s: [%s]", first ? "" : ", ",
                                 attn_llm_names[c->name].name, reasons);
        first = false;
    }
    snprintf(text + used, bytes - used, "}");
    return text;
}

static const char *flag_texts[] = {
#define X(name, bit, text, sentence) [bit] = text,
    ATTN_LLM_FLAG_LIST(X)
#undef X
};
static const char *const type_texts[] = {
#define X(name, value, text, words) [value] = text,
    ATTN_LLM_TYPE_LIST(X)
#undef X
};

const char *attn_llm_query_text(const attn_llm_case *q, char *text, size_t bytes)
{
    char block[24] = "none", heads[16] = "unknown";
    if (q->block_size) snprintf(block, sizeof block, "%" PRId64, q->block_size);
    if (q->num_heads) snprintf(heads, sizeof heads, "%d", q->num_heads);
    size_t used = (size_t)snprintf(
        text, bytes,
        "(head_size=%" PRId64 ", dtype=%s, kv_cache_dtype=%s, block_size=%s, attn_type=%s, num_heads=%s",
        q->head_size, q->dtype ? attn_dtype_name(q->dtype) : "unknown",
        q->kv == ATTN_KV_NONE ? "none" : attn_kv_name(q->kv), block, type_texts[q->attn_type], heads);
    for (size_t i = 0; i < sizeof flag_texts / sizeof *flag_texts && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, ", %s=%s", flag_texts[i],
                                 q->flags >> i & 1 ? "true" : "false");
    if (used < bytes) snprintf(text + used, bytes - used, ")");
    return text;
}

static attn_status take(walk *w, const attn_llm_candidate *c, const char *reason)
{
    w->choice->backend = &attn_llm_backends[c->name];
    w->choice->slot = c->slot;
    snprintf(w->choice->reason, sizeof w->choice->reason, "%s", reason);
    attn_llm_fill_answer(w->court->facts, w->config, &w->q, c->name, w->choice);
    return ATTN_OK;
}

/* ---- validated platforms ------------------------------------------------------------------------ */

static attn_status refuse_named(const walk *w, const attn_llm_candidate *c, attn_error *error)
{
    char reasons[1200], where[400] = "";
    const attn_llm_name *name = &attn_llm_names[c->name];
    attn_llm_reasons_text(&c->reasons, "'", reasons, sizeof reasons);
    if (w->court->facts->live && c->reasons.list[0].kind == ATTN_KIND_PACKAGE_MISSING)
        snprintf(where, sizeof where,
                 " (no implementation of it for %s is installed, modules were searched in '%.120s'; its code "
                 "is that "
                 "of %s)",
                 w->court->facts->platform, w->court->registry->searched ? w->court->registry->searched : "",
                 name->home);
    return attn_fail(error, ATTN_KIND_SELECTED_BACKEND_INVALID,
                     "%s, named by %s, is not valid for this configuration%s; name another backend or auto. "
                     "Reason: [%s]",
                     name->name, w->choice->source, where, reasons);
}

static attn_status obey(walk *w, attn_error *error)
{
    const attn_backend *b = &attn_llm_backends[w->named];
    attn_llm_candidate c = {.name = w->named};
    attn_llm_list list = {.count = 0};
    if (!is_registered(w, w->named)) {
        judge_rest(w, &list);
        return attn_fail(
            error, ATTN_KIND_BACKEND_NOT_REGISTERED,
            "%s, named by %s, must be registered first: load a module whose implementation serves %s, or "
            "name another backend",
            b->name, w->choice->source, b->served);
    }
    judge(w, &c, 1);
    judge_rest(w, &list);
    return c.reasons.count ? refuse_named(w, &c, error) : take(w, &c, "chosen by name");
}

/* A vision encoder on CUDA takes any name of its own list, and none besides. */
static attn_status obey_encoder(walk *w, attn_error *error)
{
    char names[160] = "";
    attn_llm_candidate c = {.name = w->named};
    if (w->encoders >> w->named & 1) {
        tell_candidate(w, &c, 1);
        return take(w, &c, "chosen by name, out of the list of vision encoders");
    }
    for (int i = 0; i < ATTN_LLM_NAMES; i++) {
        size_t used = strlen(names);
        if (w->encoders >> i & 1)
            snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "", attn_llm_names[i].name);
    }
    return attn_fail(error, ATTN_KIND_BACKEND_NOT_AVAILABLE_ON_PLATFORM,
                     "%s, named by %s, is no backend of vision encoders on %s; there are %s",
                     attn_llm_names[w->named].name, w->choice->source, w->court->facts->platform, names);
}

static attn_status refuse_all(const walk *w, const attn_llm_list *list, attn_error *error)
{
    char query[640], reasons[1300];
    return attn_fail(error, ATTN_KIND_NO_VALID_BACKEND,
                     "no valid attention backend for %s with %s. Reasons: %s", w->court->facts->platform,
                     attn_llm_query_text(&w->q, query, sizeof query),
                     list_text(list, reasons, sizeof reasons));
}

/* A better one may have been lost to nothing but the block size that the user gave. */
static void warn_of_block(walk *w, const attn_llm_list *list, int winner)
{
    char lost[200] = "";
    for (int i = 0; i < winner; i++) {
        const attn_llm_reasons *r = &list->item[i].reasons;
        size_t used = strlen(lost);
        if (r->count == 1 && !strcmp(r->list[0].text, "block_size not supported"))
            snprintf(lost + used, sizeof lost - used, "%s%s", used ? ", " : "",
                     attn_llm_names[list->item[i].name].name);
    }
    if (w->q.block_size && *lost)
        attn_llm_warn(w->choice,
                      "block size %" PRId64
                      " keeps out %s, so %s was chosen; give another block size, or none",
                      w->q.block_size, lost, attn_llm_names[list->item[winner].name].name);
}

static attn_status choose(walk *w, attn_error *error)
{
    attn_llm_list list;
    int winner = -1;
    char reason[512], valid[300] = "";
    attn_llm_candidates(w->court->facts, &w->q, -1, &list);
    for (int i = 0; i < list.count; i++) {
        judge(w, &list.item[i], i + 1);
        if (list.item[i].reasons.count) continue;
        size_t used = strlen(valid);
        snprintf(valid + used, sizeof valid - used, "%s%s", used ? ", " : "",
                 attn_llm_names[list.item[i].name].name);
        if (winner < 0) winner = i;
    }
    judge_rest(w, &list);
    if (winner < 0) return refuse_all(w, &list, error);
    list_text(&list, w->choice->rejected, sizeof w->choice->rejected);
    if (!strcmp(w->choice->rejected, "{}")) *w->choice->rejected = 0;
    w->choice->rejected_level = attn_llm_platform_of(w->court->facts)->passed_over;
    snprintf(reason, sizeof reason, "automatic choice for %s out of the valid %s", w->court->facts->platform,
             valid);
    warn_of_block(w, &list, winner);
    return take(w, &list.item[winner], reason);
}

/* ---- platforms that do not validate ------------------------------------------------------------- */

static attn_status refuse_kind(const walk *w, attn_kind kind, const char *what, attn_error *error)
{
    return attn_fail(error, kind,
                     "platform %s has no %s; run this model on another platform, or on this one live",
                     w->court->facts->platform, what);
}

/* A quantised cache is stored plainly where the platform has no other way. */
static attn_status plain_cache(walk *w, attn_error *error)
{
    if (!attn_kv_quantised(w->q.kv)) return ATTN_OK;
    if (ATTN_LLM_HAS(&w->q, CHUNKED_PREFILL) || ATTN_LLM_HAS(&w->q, PREFIX_CACHING))
        return attn_fail(error, ATTN_KIND_FEATURE_UNSUPPORTED,
                         "platform %s has no %s cache together with %s; use kv_cache_dtype auto",
                         w->court->facts->platform, attn_kv_name(w->q.kv),
                         ATTN_LLM_HAS(&w->q, CHUNKED_PREFILL) ? "chunked prefill" : "prefix caching");
    attn_llm_warn(w->choice, "kv_cache_dtype %s is not supported on platform %s; auto is used",
                  attn_kv_name(w->q.kv), w->court->facts->platform);
    w->choice->llm.kv_cache_dtype = "auto";
    return ATTN_OK;
}

static attn_status take_fixed(walk *w, const attn_llm_platform *platform, attn_error *error)
{
    attn_llm_list list;
    if (platform->mla && ATTN_LLM_HAS(&w->q, MLA))
        return refuse_kind(w, platform->mla, "multi-head latent attention", error);
    if (platform->sparse && ATTN_LLM_HAS(&w->q, SPARSE))
        return refuse_kind(w, platform->sparse, "sparse attention", error);
    attn_llm_candidates(w->court->facts, &w->q, w->named, &list);
    if (!list.count)
        return attn_fail(error, ATTN_KIND_BACKEND_NOT_AVAILABLE_ON_PLATFORM,
                         "%s, named by %s, is not available on platform %s; leave it to auto",
                         w->named < 0 ? "a backend" : attn_llm_names[w->named].name, w->choice->source,
                         platform->name);
    if (platform->rule == ATTN_LLM_FIXED) ATTN_TRY(plain_cache(w, error));
    if (w->named >= 0 && w->named != list.item[0].name)
        attn_llm_warn(w->choice, "%s, named by %s, is ignored: platform %s takes %s here",
                      attn_llm_names[w->named].name, w->choice->source, platform->name,
                      attn_llm_names[list.item[0].name].name);
    w->choice->explicit_choice = w->named == list.item[0].name;
    tell_candidate(w, &list.item[0], 1);
    return take(w, &list.item[0], "the platform's own, without validation");
}

/* ---- the rule ----------------------------------------------------------------------------------- */

static void start(walk *w, const attn_question *question)
{
    const attn_llm_settings *s = &w->config->llm;
    int64_t version = ATTN_LLM_SETTING(s, flash_attn_version);
    memset(w->choice, 0, sizeof *w->choice);
    w->q = question->llm;
    w->q.flash_version = version == ATTN_LLM_NULL ? 0 : (int32_t)version;
    w->q.trtllm = (int32_t)ATTN_LLM_SETTING(s, use_trtllm_attention);
    w->named = (int)ATTN_LLM_SETTING(s, backend);
    w->choice->explicit_choice = w->named >= 0;
    snprintf(w->choice->source, sizeof w->choice->source, "%s", s->source);
    w->court->source = w->choice->source;
    if (!ATTN_LLM_HAS(&w->q, VISION_ENCODER) || w->court->facts->live ||
        strcmp(w->court->facts->platform, "cuda"))
        return;
    attn_llm_list list;
    attn_llm_candidates(w->court->facts, &w->q, -1, &list);
    for (int i = 0; i < list.count; i++) w->encoders |= (uint64_t)1 << list.item[i].name;
}

attn_status attn_policy_llm(attn_court *court, const attn_config *config, const attn_question *question,
                            const attn_problem *problem, attn_choice *choice, attn_error *error)
{
    walk w = {.court = court, .config = config, .problem = problem, .choice = choice};
    start(&w, question);
    attn_policy_tell(court, ATTN_TRACE_SOURCE, w.named < 0 ? "auto" : attn_llm_names[w.named].name, NULL,
                     w.named < 0 ? "nobody named a backend, the platform's list decides"
                                 : "the user named a backend");
    const attn_llm_platform *platform = attn_llm_platform_of(court->facts);
    bool validated = court->facts->live || platform->rule == ATTN_LLM_VALIDATED;
    if (!validated)
        ATTN_TRY(take_fixed(&w, platform, error));
    else if (w.named < 0)
        ATTN_TRY(choose(&w, error));
    else
        ATTN_TRY(w.encoders ? obey_encoder(&w, error) : obey(&w, error));
    attn_policy_tell(court, ATTN_TRACE_CHOICE, choice->backend->name,
                     choice->slot ? choice->slot->impl.name : NULL, choice->reason);
    if (*choice->warning) attn_policy_tell(court, ATTN_TRACE_NOTE, NULL, NULL, choice->warning);
    return ATTN_OK;
}
