/* vision.c: the rule of domain vision: server argument, then the model's wish, then the platform's default.
 */
#include "policy/policy.h"
#include "registry/cc.h"

#include <stdio.h>
#include <string.h>

static const struct vision {
    const char *name, *refused;
    int32_t cuda;
} rows[] = {
#define X(name, platforms, refused, cuda, summary) {#name, refused, cuda},
#include "registry/vision.def"
#undef X
};

typedef bool condition_fn(const attn_facts *f);

static bool condition_ALWAYS(const attn_facts *f)
{
    (void)f;
    return true;
}

static bool condition_AITER_VISION(const attn_facts *f)
{
    return f->aiter & ATTN_AITER(vision);
}

static const struct route {
    const char *platform;
    int row;
    const char *range;
    condition_fn *condition;
} routes[] = {
#define ROW_diffusion(...)
#define ROW_llm(...)
#define ROW_vision(platform, backend, range, condition, why)                                                 \
    {platform, ATTN_VISION_##backend, range, condition_##condition},
#define X(domain, ...) ROW_##domain(__VA_ARGS__)
#include "registry/routes.def"
#undef X
};
enum { ROUTES = sizeof routes / sizeof *routes };

/* Rows of "*" stand last, so a platform's own go before them. */
static int default_of(const attn_facts *f)
{
    for (int i = 0; i < ROUTES; i++)
        if ((!strcmp(routes[i].platform, f->platform) || !strcmp(routes[i].platform, "*")) &&
            attn_cc_within(routes[i].range, f) && routes[i].condition(f))
            return routes[i].row;
    return ATTN_VISION_sdpa;
}

static attn_status unknown(const attn_court *court, const char *name, attn_error *error)
{
    char list[160] = "";
    const char *names[ATTN_VISION_BACKENDS];
    for (int i = 0; i < ATTN_VISION_BACKENDS; i++) {
        size_t used = strlen(list);
        names[i] = rows[i].name;
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", names[i]);
    }
    const char *near = attn_nearest(name, names, ATTN_VISION_BACKENDS);
    return attn_fail(error, ATTN_KIND_UNKNOWN_BACKEND,
                     "%s asks for '%.60s', which is no backend of domain vision;%s%s%s "
                     "valid: %s",
                     court->source, name, near ? " did you mean " : "", near ? near : "", near ? "?" : "",
                     list);
}

/* An error wherever the name came from: a wish never turns into another kernel in silence. CUDA of a version
 * that is not known is taken to be recent. */
static attn_status guard(const attn_court *court, int row, attn_error *error)
{
    const attn_facts *f = court->facts;
    char machine[64];
    bool recent = !f->cuda_version || f->cuda_version >= rows[row].cuda;
    if (!*rows[row].refused || strcmp(f->platform, "cuda") || !recent ||
        !attn_cc_within(rows[row].refused, f))
        return ATTN_OK;
    return attn_fail(
        error, ATTN_KIND_CAPABILITY_UNSUPPORTED,
        "%s, from %s, does not run on compute capabilities %s, and this is %s; use fa4 or triton_attn",
        rows[row].name, court->source, rows[row].refused, attn_facts_arch(f, machine, sizeof machine));
}

/* Names of other platforms' kernels are refused; a live machine also needs code behind a name. */
static attn_status judge(const attn_court *court, int row, const attn_problem *problem, attn_choice *choice,
                         attn_error *error)
{
    attn_verdict v;
    attn_judge_backend(court, &attn_vision_backends[row], problem, &v);
    choice->backend = &attn_vision_backends[row];
    choice->slot = v.slot;
    if (v.usable) return ATTN_OK;
    char why[300];
    return attn_fail(error, v.kind, "%s, from %s, cannot run here: %s", rows[row].name, court->source,
                     attn_clauses_say(&v.clauses, why, sizeof why));
}

static void judge_rest(const attn_court *court, int row, const attn_problem *problem)
{
    attn_verdict v;
    for (int i = 0; court->sink && i < ATTN_VISION_BACKENDS; i++)
        if (i != row) attn_judge_backend(court, &attn_vision_backends[i], problem, &v);
}

static attn_status find(const attn_court *court, const char *asked, int *row, attn_error *error)
{
    *row = default_of(court->facts);
    if (!asked) return ATTN_OK;
    const attn_backend *b = attn_registry_named(court->registry, ATTN_DOMAIN_VISION, asked);
    if (!b) return unknown(court, asked, error);
    *row = (int)(b - attn_vision_backends);
    return ATTN_OK;
}

attn_status attn_policy_vision(attn_court *court, const attn_config *config, const attn_question *question,
                               const attn_problem *problem, attn_choice *choice, attn_error *error)
{
    const char *asked = config->vision_flag ? config->vision_flag : question->model_backend;
    int row;
    memset(choice, 0, sizeof *choice);
    choice->explicit_choice = asked != NULL;
    snprintf(choice->source, sizeof choice->source, "%s",
             config->vision_flag       ? "--mm-attention-backend"
             : question->model_backend ? "the model's own wish"
                                       : "platform default");
    court->source = choice->source;
    attn_policy_tell(court, ATTN_TRACE_SOURCE, asked ? asked : "auto", NULL,
                     asked ? "a backend was named" : "nobody named a backend, the platform's table decides");
    ATTN_TRY(find(court, asked, &row, error));
    ATTN_TRY(guard(court, row, error));
    attn_status status = judge(court, row, problem, choice, error);
    judge_rest(court, row, problem);
    if (status) return status;
    snprintf(choice->reason, sizeof choice->reason, asked ? "chosen by name" : "default of platform %s",
             court->facts->platform);
    attn_policy_tell(court, ATTN_TRACE_CHOICE, choice->backend->name,
                     choice->slot ? choice->slot->impl.name : NULL, choice->reason);
    return ATTN_OK;
}
