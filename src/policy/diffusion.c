/* diffusion.c: configuration, then the platform's rows; an explicit choice is obeyed or refused. */
#include "policy/policy.h"

#include <stdio.h>
#include <string.h>

static const struct route {
    const char *platform, *backend, *why;
} routes[] = {
#define X(domain, platform, backend, why) {platform, backend, why},
#include "registry/routes.def"
#undef X
};
enum { ROUTES = sizeof routes / sizeof *routes };

static void tell(const attn_court *court, int32_t event, const char *backend, const char *impl,
                 const char *text)
{
    if (!court->sink) return;
    attn_trace trace = {sizeof trace, event, 1, 0, court->role, court->source, backend, impl, text};
    court->sink(court->user, &trace);
}

static attn_status unknown(const attn_court *court, const char *name, attn_error *error)
{
    char names[256], upper[64];
    const char *near = attn_registry_nearest(court->registry, name);
    snprintf(upper, sizeof upper, "%s", name);
    for (char *p = upper; *p; p++)
        if (*p >= 'a' && *p <= 'z') *p = (char)(*p - 'a' + 'A');
    return attn_fail(error, ATTN_KIND_UNKNOWN_BACKEND,
                     "role '%.60s' asks for '%s' (%.90s), which is no backend;%s%s%s valid: %s", court->role,
                     upper, court->source, near ? " did you mean " : "", near ? near : "", near ? "?" : "",
                     attn_registry_names(court->registry, names, sizeof names));
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
        if (v.slot) snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", b->name);
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

static attn_status obey(const attn_court *court, const char *name, const attn_problem *problem,
                        attn_choice *choice, attn_error *error)
{
    attn_verdict v;
    char instead[256];
    const attn_backend *b = attn_registry_backend(court->registry, name);
    if (!b) {
        judge_rest(court, problem, 0);
        return unknown(court, name, error);
    }
    attn_judge_backend(court, b, problem, &v);
    judge_rest(court, problem, (uint64_t)1 << index_of(court, b) % 64);
    if (!v.slot)
        return attn_fail(error, v.kind,
                         "%s, chosen by %.90s for role '%.40s', cannot run here: %.200s; usable instead: %s",
                         b->name, court->source, court->role, v.text,
                         usable_instead(court, problem, instead, sizeof instead));
    take(choice, &v, "chosen by name");
    return ATTN_OK;
}

static void pass_over(char *text, size_t bytes, const attn_verdict *v)
{
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s%s was passed over: %.300s", used ? "; " : "", v->backend->name,
             v->text);
}

static attn_status choose(const attn_court *court, const attn_problem *problem, attn_choice *choice,
                          attn_error *error)
{
    char passed[400] = "", reason[512];
    uint64_t judged = 0; /* routes name built-in backends, which are fewer than 64 */
    for (int i = 0; i < ROUTES; i++) {
        attn_verdict v;
        if (strcmp(routes[i].platform, court->platform) || choice->slot) continue;
        attn_judge_backend(court, attn_registry_backend(court->registry, routes[i].backend), problem, &v);
        judged |= (uint64_t)1 << index_of(court, v.backend);
        if (!v.slot) {
            pass_over(passed, sizeof passed, &v);
            continue;
        }
        snprintf(reason, sizeof reason, "automatic choice for %s: %s%s%s", court->platform, routes[i].why,
                 *passed ? "; " : "", passed);
        take(choice, &v, reason);
    }
    judge_rest(court, problem, judged);
    if (choice->slot) return ATTN_OK;
    return attn_fail(error, *passed ? ATTN_KIND_FEATURE_UNSUPPORTED : ATTN_KIND_NOT_IMPLEMENTED,
                     "no backend of %s can run role '%.60s': %.380s", court->platform, court->role,
                     *passed ? passed : "the platform has no routes; name a backend");
}

attn_status attn_policy_diffusion(attn_court *court, const attn_config *config, const char *category,
                                  const attn_problem *problem, attn_choice *choice, attn_error *error)
{
    memset(choice, 0, sizeof *choice);
    const char *asked = attn_config_lookup(config, court->role, category, choice->source);
    court->source = choice->source;
    choice->explicit_choice = asked != NULL;
    tell(court, ATTN_TRACE_SOURCE, asked ? asked : "auto", NULL,
         asked ? "the configuration names a backend" : "the configuration names none, the platform chooses");
    ATTN_TRY(asked ? obey(court, asked, problem, choice, error) : choose(court, problem, choice, error));
    tell(court, ATTN_TRACE_CHOICE, choice->backend->name, choice->slot->impl.name, choice->reason);
    return ATTN_OK;
}
