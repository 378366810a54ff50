/* diffusion.c: configuration, then the platform's rows; an explicit choice is obeyed or refused. */
#include "policy/policy.h"

#include <stdio.h>
#include <string.h>

static const struct route {
    const char *platform;
    const attn_backend *backend;
    attn_condition conditions[2];
    const char *why;
} routes[] = {
#define ROW_llm(...)
#define ROW_vision(...)
#define ROW_diffusion(platform, backend, first, second, why)                                                 \
    {platform, &attn_built_in_backends[ATTN_BACKEND_##backend], {first, second}, why},
#define X(domain, ...) ROW_##domain(__VA_ARGS__)
#include "registry/routes.def"
#undef X
};
enum { ROUTES = sizeof routes / sizeof *routes };

static attn_status unknown(const attn_court *court, const char *name, attn_error *error)
{
    char names[256], plugins[200], upper[64];
    const char *near = attn_registry_nearest(court->registry, name);
    snprintf(upper, sizeof upper, "%s", name);
    for (char *p = upper; *p; p++)
        if (*p >= 'a' && *p <= 'z') *p = (char)(*p - 'a' + 'A');
    return attn_fail(
        error, ATTN_KIND_UNKNOWN_BACKEND,
        "role '%.60s' asks for '%s' (%.90s), which is no backend;%s%s%s valid: %s; sparse plugins: %s",
        court->role, upper, court->source, near ? " did you mean " : "", near ? near : "", near ? "?" : "",
        attn_registry_names(court->registry, names, sizeof names),
        attn_registry_plugins(court->registry, plugins, sizeof plugins));
}

/* What could be taken instead, for the way out of a refusal. */
static const char *usable_instead(const attn_court *court, const attn_problem *problem, char *text,
                                  size_t bytes)
{
    attn_court quiet = *court;
    const attn_backend *b;
    quiet.sink = NULL;
    text[0] = 0;
    for (size_t i = 0; (b = attn_registry_backend_at(court->registry, i)); i++) {
        attn_verdict v;
        attn_judge_backend(&quiet, b, problem, &v);
        size_t used = strlen(text);
        if (v.usable) snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", b->name);
    }
    return *text ? text : "none";
}

/* For the whole picture: whom the loop over the routes did not reach. */
static void judge_rest(const attn_court *court, const attn_problem *problem, uint64_t judged)
{
    const attn_backend *b;
    for (size_t i = 0; court->sink && (b = attn_registry_backend_at(court->registry, i)); i++) {
        attn_verdict v;
        if (i >= 64 || !(judged >> i & 1)) attn_judge_backend(court, b, problem, &v);
    }
}

static size_t index_of(const attn_court *court, const attn_backend *backend)
{
    size_t i = 0;
    while (attn_registry_backend_at(court->registry, i) != backend) i++;
    return i;
}

static void take(attn_choice *choice, const attn_verdict *v, const char *reason)
{
    choice->backend = v->backend;
    choice->slot = v->slot;
    snprintf(choice->reason, sizeof choice->reason, "%s", reason);
}

/* The backend of a name as written: one of the registry, else the dispatcher when a plugin has the name.
 * NULL: neither. */
static const attn_backend *named(const attn_court *court, const char *name)
{
    const attn_backend *b = attn_registry_backend(court->registry, name);
    if (!b && attn_registry_plugin_known(court->registry, name)) return attn_registry_dispatcher();
    return b;
}

/* A plugin is found when the layer is built, never at the first step. */
static attn_status find_plugin(attn_court *court, const attn_backend *b, const attn_choice *choice,
                               attn_error *error)
{
    attn_error why = ATTN_ERROR_INIT;
    court->plugin = NULL;
    if (b != attn_registry_dispatcher() || attn_registry_override(court->registry, b)) return ATTN_OK;
    if (!attn_spec_check_params(choice->spec, &why) &&
        !attn_registry_plugin(court->registry, attn_spec_plugin(choice->spec), &court->plugin, &why))
        return ATTN_OK;
    return attn_fail(error, why.kind, "role '%.60s' via %.90s: %s", court->role, court->source, why.text);
}

static attn_status obey(attn_court *court, const char *name, const attn_problem *problem, attn_choice *choice,
                        attn_error *error)
{
    attn_verdict v;
    char instead[200], why[230];
    const attn_backend *b = named(court, name);
    if (!b) {
        judge_rest(court, problem, 0);
        return unknown(court, name, error);
    }
    ATTN_TRY(find_plugin(court, b, choice, error));
    attn_judge_backend(court, b, problem, &v);
    judge_rest(court, problem, (uint64_t)1 << index_of(court, b) % 64);
    if (!v.usable)
        return attn_fail(error, v.kind,
                         "%s, chosen by %.90s for role '%.40s', cannot run here: %s; usable instead: %s",
                         b->name, court->source, court->role, attn_clauses_say(&v.clauses, why, sizeof why),
                         usable_instead(court, problem, instead, sizeof instead));
    take(choice, &v, "chosen by name");
    return ATTN_OK;
}

static void pass_over(attn_clauses *passed, const char *backend, const char *why)
{
    char clause[400];
    snprintf(clause, sizeof clause, "%s was passed over: %s", backend, why);
    attn_clauses_add(passed, clause);
}

/* What stands against a route before its backend is judged; NULL: nothing. */
static const char *against(const attn_court *court, const struct route *route)
{
    for (int i = 0; i < 2; i++) {
        const char *why =
            attn_contract_condition(route->conditions[i], court->facts, court->head_size, court->permitted);
        if (why) return why;
    }
    return NULL;
}

static bool try_route(const attn_court *court, const struct route *route, const attn_problem *problem,
                      uint64_t *judged, attn_clauses *passed, attn_verdict *v)
{
    char reasons[300];
    const char *why = against(court, route);
    if (why) {
        pass_over(passed, route->backend->name, why);
        return false;
    }
    attn_judge_backend(court, route->backend, problem, v);
    *judged |= (uint64_t)1 << index_of(court, v->backend);
    if (!v->usable)
        pass_over(passed, route->backend->name, attn_clauses_say(&v->clauses, reasons, sizeof reasons));
    return v->usable;
}

/* Rows for "*" are those of platforms without rows of their own, which modules bring; an unidentified machine
 * has none. */
static bool applies(const struct route *route, const char *platform)
{
    bool own = false;
    for (int i = 0; i < ROUTES; i++) own = own || !strcmp(routes[i].platform, platform);
    if (!strcmp(route->platform, "*")) return !own && strcmp(platform, "none");
    return !strcmp(route->platform, platform);
}

static attn_status choose(const attn_court *court, const attn_problem *problem, attn_choice *choice,
                          attn_error *error)
{
    char over[360] = "", reason[512];
    attn_clauses passed = {0};
    uint64_t judged = 0; /* routes name built-in backends, which are fewer than 64 */
    attn_verdict v = {.kind = ATTN_KIND_NOT_IMPLEMENTED};
    for (int i = 0; i < ROUTES && !choice->backend; i++) {
        if (!applies(&routes[i], court->facts->platform) ||
            !try_route(court, &routes[i], problem, &judged, &passed, &v))
            continue;
        attn_clauses_say(&passed, over, sizeof over);
        snprintf(reason, sizeof reason, "automatic choice for %s: %s%s%s", court->facts->platform,
                 routes[i].why, *over ? "; " : "", over);
        take(choice, &v, reason);
    }
    judge_rest(court, problem, judged);
    if (choice->backend) return ATTN_OK;
    /* The last candidate takes everything that can run at all, so its reason is the telling one. */
    return attn_fail(error, v.kind, "no backend of platform %s can be chosen for role '%.60s': %s",
                     court->facts->platform, court->role,
                     passed.count ? attn_clauses_say(&passed, over, sizeof over)
                                  : "it has no automatic choice; name a backend such as TORCH_SDPA");
}

static const char *look_up(attn_court *court, const attn_config *config, const char *category,
                           attn_choice *choice)
{
    memset(choice, 0, sizeof *choice);
    choice->spec = attn_config_lookup(config, court->role, category, choice->source);
    court->source = choice->source;
    choice->explicit_choice = choice->spec != NULL;
    return choice->spec ? attn_spec_backend(choice->spec) : NULL;
}

attn_status attn_policy_diffusion(attn_court *court, const attn_config *config, const attn_question *question,
                                  const attn_problem *problem, attn_choice *choice, attn_error *error)
{
    const char *asked = look_up(court, config, question->category, choice);
    attn_policy_tell(court, ATTN_TRACE_SOURCE, asked ? asked : "auto", NULL,
                     asked ? "the configuration names a backend"
                           : "the configuration names none, the platform chooses");
    ATTN_TRY(asked ? obey(court, asked, problem, choice, error) : choose(court, problem, choice, error));
    attn_policy_tell(court, ATTN_TRACE_CHOICE, choice->backend->name,
                     choice->slot ? choice->slot->impl.name : NULL, choice->reason);
    return ATTN_OK;
}

attn_status attn_policy_capability(attn_court *court, const attn_config *config,
                                   const attn_question *question, attn_choice *choice, attn_error *error)
{
    attn_problem none = {.size = sizeof none};
    const char *asked = look_up(court, config, question->category, choice);
    court->head_size = ATTN_HEAD_SIZE_UNKNOWN;
    court->permitted = true;
    if (!asked) return choose(court, &none, choice, error);
    choice->backend = named(court, asked);
    if (!choice->backend) return unknown(court, asked, error);
    ATTN_TRY(find_plugin(court, choice->backend, choice, error));
    const char *import = choice->backend->imports;
    if (*import && !attn_facts_have(court->facts, import))
        return attn_fail(error, ATTN_KIND_PACKAGE_MISSING,
                         "%s cannot be asked for its capabilities: it needs the package %s; install it",
                         choice->backend->name, import);
    return ATTN_OK;
}
