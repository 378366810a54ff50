/* context.c: opening a context, and what it can list. */
#include "context.h"

#include "core/cpu.h"
#include "core/text.h"
#include "core/threads.h"
#include "kernels/isa.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void attn_context_log(const attn_context *context, int32_t level, const char *format, ...)
{
    char line[1024];
    va_list list;
    if (!context->log) return;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    context->log(context->log_user, level, line);
}

/* ---- the host that implementations see ---------------------------------------------------------- */

static const attn_context *owner(const attn_host *host)
{
    return host->context;
}

static void *host_alloc(const attn_host *host, size_t bytes, size_t align)
{
    return attn_take(&owner(host)->allocator, bytes, align);
}

static void host_release(const attn_host *host, void *memory)
{
    attn_drop(&owner(host)->allocator, memory);
}

static void host_parallel_for(const attn_host *host, int64_t count, int32_t workers, attn_task_fn task,
                              void *arg)
{
    owner(host)->parallel_for(owner(host)->parallel_user, count, workers, task, arg);
}

static void host_log(const attn_host *host, int32_t level, const char *text)
{
    attn_context_log(owner(host), level, "%s", text);
}

static int host_tuned(const attn_host *host, const attn_problem *problem, const char *key, int64_t *value)
{
    return attn_profile_value(owner(host)->profile, host->isa, problem, key, value);
}

static void init_host(attn_context *c, const attn_options *o)
{
    c->host = (attn_host){.size = sizeof c->host,
                          .isa = c->isa_cap,
                          .context = c,
                          .alloc = host_alloc,
                          .release = host_release,
                          .parallel_for = host_parallel_for,
                          .log = host_log,
                          .tuned = host_tuned,
                          .run_blocks = attn_forward_blocks};
    c->parallel_for = o->parallel_for ? o->parallel_for : attn_pool_parallel_for;
    c->parallel_user = o->parallel_for ? o->parallel_user : &c->pool;
}

/* ---- opening ------------------------------------------------------------------------------------ */

/* An option beats its environment variable; a variable that is set but empty counts as unset. */
static const char *setting(const attn_options *o, const char *value, const char *variable)
{
    if (value || o->flags & ATTN_OPEN_IGNORE_ENV) return value;
    const char *text = getenv(variable);
    return text && *text ? text : NULL;
}

static attn_status init_spin(attn_context *c, const attn_options *o, attn_error *error)
{
    const char *text = o->spin_us ? NULL : setting(o, NULL, "ATTN_SPIN_US");
    if (o->spin_us > ATTN_SPIN_US_MOST)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "spin_us is %d; it is 1 to %d microseconds, 0 for the default or negative for none",
                         o->spin_us, ATTN_SPIN_US_MOST);
    c->pool.spin_us = o->spin_us > 0 ? o->spin_us : o->spin_us < 0 ? 0 : ATTN_SPIN_US;
    if (text && !attn_spin_read(text, &c->pool.spin_us))
        attn_context_log(
            c, ATTN_LOG_WARNING,
            "ATTN_SPIN_US='%.60s' is ignored: it is no number from 0 to %d; threads stay awake for "
            "%d microseconds",
            text, ATTN_SPIN_US_MOST, ATTN_SPIN_US);
    return ATTN_OK;
}

static attn_status init_threads(attn_context *c, const attn_options *o, attn_error *error)
{
    enum { MOST = ATTN_POOL_WORKERS_MAX };
    if (o->threads < 0 || o->threads > MOST)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "threads is %d; it is 1 to %d, or 0 for what the machine allows", o->threads, MOST);
    c->host.threads =
        attn_threads_default(!(o->flags & ATTN_OPEN_IGNORE_ENV), c->thread_text, sizeof c->thread_text);
    if (o->threads) {
        c->host.threads = o->threads;
        snprintf(c->thread_text, sizeof c->thread_text, "%d threads: asked for by the caller", o->threads);
    } else if (!(o->flags & ATTN_OPEN_IGNORE_ENV) && attn_threads_environment_ignored()) {
        attn_context_log(c, ATTN_LOG_WARNING, "%s", c->thread_text);
    }
    ATTN_TRY(init_spin(c, o, error));
    if (o->parallel_for) return ATTN_OK;
    ATTN_TRY(attn_pool_acquire(error));
    c->pool_held = true;
    return ATTN_OK;
}

static attn_status init_isa(attn_context *c, const attn_options *o, attn_error *error)
{
    const char *cap = setting(o, o->isa, "ATTN_ISA");
    if (cap && !attn_isa_name(cap))
        return attn_fail(error, ATTN_KIND_UNKNOWN_NAME,
                         "%s is '%.60s', which names no kernel set; `attn info` lists those of this build",
                         o->isa ? "isa" : "ATTN_ISA", cap);
    c->isa_cap = attn_copy_text(&c->allocator, cap ? cap : "");
    if (!c->isa_cap) return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a context");
    c->host.isa = c->isa_cap;
    attn_isa_describe(cap, c->isa_text, sizeof c->isa_text);
    return ATTN_OK;
}

/* A profile is used when it is asked for and never otherwise; one that cannot be used is told, not passed
 * over.
 */
static attn_status init_profile(attn_context *c, const attn_options *o, attn_error *error)
{
    const char *path = setting(o, o->profile, "ATTN_PROFILE");
    attn_cpu_name(c->cpu_name, sizeof c->cpu_name);
    c->profile_path = attn_copy_text(&c->allocator, path ? path : "");
    if (!c->profile_path) return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a context");
    if (!*c->profile_path) return ATTN_OK;
    ATTN_TRY(attn_profile_load(c->profile_path, c->cpu_name, &c->allocator, &c->profile, error));
    attn_context_log(c, ATTN_LOG_INFO, "profile %s with %d rows is in force", c->profile_path,
                     attn_profile_count(c->profile));
    return ATTN_OK;
}

static attn_status init_registry(attn_context *c, const attn_options *o, attn_error *error)
{
    const char *path = setting(o, o->module_path, "ATTN_MODULE_PATH");
    bool standard = !o->module_path; /* the installed folder is looked at unless the caller names a path */
    const char *allow = o->plugins;
    if (!allow && !(o->flags & ATTN_OPEN_IGNORE_ENV)) allow = getenv("ATTN_PLUGINS");
    /* An allow-list that vLLM users already have is honoured as well. */
    if (!allow && !(o->flags & ATTN_OPEN_IGNORE_ENV)) allow = getenv("VLLM_PLUGINS");
    ATTN_TRY(attn_registry_init(&c->registry, &c->allocator, error));
    if (path) ATTN_TRY(attn_registry_load(&c->registry, path, true, allow, error));
    if (standard) ATTN_TRY(attn_registry_load(&c->registry, ATTN_MODULE_FOLDER, false, allow, error));
    for (size_t i = 0; i < c->registry.module_count; i++)
        attn_context_log(c, c->registry.modules[i].kind ? ATTN_LOG_WARNING : ATTN_LOG_INFO, "module %s: %s",
                         c->registry.modules[i].path, c->registry.modules[i].text);
    ATTN_TRY(attn_registry_ready(&c->registry, error));
    return attn_registry_set_overrides(&c->registry, o->overrides, error);
}

/* ---- platform ----------------------------------------------------------------------------------- */

static attn_status add_probe(attn_context *c, const attn_platform *platform, bool external, attn_error *error)
{
    attn_probed *more = attn_take_zeroed(&c->allocator, (c->probe_count + 1) * sizeof *more);
    if (!more)
        return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the results of the platform probes");
    if (c->probes) memcpy(more, c->probes, c->probe_count * sizeof *more);
    attn_drop(&c->allocator, c->probes);
    c->probes = more;
    attn_probed *p = &more[c->probe_count++];
    attn_probe(platform, external, p);
    attn_context_log(c, p->positive && external ? ATTN_LOG_INFO : ATTN_LOG_DEBUG, "platform %s%s: %s: %s",
                     p->name, external ? " (from a module)" : "", p->positive ? "yes" : "no", p->why);
    return ATTN_OK;
}

static attn_status probe_all(attn_context *c, attn_error *error)
{
    for (size_t i = 0; attn_platform_at(i); i++) ATTN_TRY(add_probe(c, attn_platform_at(i), false, error));
    for (size_t i = 0; i < c->registry.platform_count; i++)
        ATTN_TRY(add_probe(c, c->registry.platforms[i].platform, true, error));
    return ATTN_OK;
}

static const char *probe_names(const attn_context *c, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "cpu");
    for (size_t i = 0; i < c->probe_count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, ", %s", c->probes[i].name);
    return text;
}

/* A pinned platform must be there; cpu always is. */
static attn_status pin_platform(attn_context *c, const char *name, attn_error *error)
{
    char names[256];
    const attn_probed *no = NULL;
    c->platform = &attn_platform_cpu;
    if (!strcmp(name, attn_platform_cpu.name)) return ATTN_OK;
    for (size_t i = c->probe_count; i-- > 0;) {
        const attn_probed *p = &c->probes[i];
        if (strcmp(p->name, name)) continue;
        if (p->positive) {
            c->platform = p->platform;
            return ATTN_OK;
        }
        no = p;
    }
    if (no)
        return attn_fail(
            error, ATTN_KIND_PACKAGE_MISSING,
            "platform %.60s was pinned but its probe says no: %.200s; install it or leave the pin out", name,
            no->why);
    return attn_fail(error, ATTN_KIND_UNKNOWN_NAME, "platform '%.60s' is not known; there are %s", name,
                     probe_names(c, names, sizeof names));
}

/* Nothing found is a cpu machine: that is what can run there. */
static attn_status find_platform(attn_context *c, attn_error *error)
{
    ATTN_TRY(attn_arbitrate(c->probes, c->probe_count, &c->platform, error));
    if (!c->platform) c->platform = &attn_platform_cpu;
    return ATTN_OK;
}

/* A described machine is of a platform that this build or one of its modules knows, or of none. */
static attn_status check_described(const attn_context *c, attn_error *error)
{
    const char *name = c->facts.platform, *names[16] = {"none", "cpu"};
    size_t count = 2;
    bool known = !strcmp(name, "none") || attn_platform_named(name);
    for (size_t i = 0; i < c->registry.platform_count; i++)
        known = known || !strcmp(name, c->registry.platforms[i].platform->name);
    if (known) return ATTN_OK;
    for (size_t i = 0; attn_platform_at(i) && count < 16; i++) names[count++] = attn_platform_at(i)->name;
    const char *near = attn_nearest(name, names, count);
    return attn_fail(error, ATTN_KIND_UNKNOWN_NAME,
                     "the facts are of platform '%.31s';%s%s%s there are cuda, rocm, npu, xpu, musa, cpu, "
                     "none and those of "
                     "loaded modules",
                     name, near ? " did you mean " : "", near ? near : "", near ? "?" : "");
}

static attn_status init_platform(attn_context *c, const attn_options *o, attn_error *error)
{
    attn_platform_facts(&attn_platform_cpu, &c->cpu_facts);
    if (o->facts) {
        c->facts = *o->facts;
        c->platform = &attn_platform_cpu;
        if (*c->facts.unknown)
            attn_context_log(c, ATTN_LOG_WARNING,
                             "the facts list packages that this version does not know: %s", c->facts.unknown);
        return check_described(c, error);
    }
    ATTN_TRY(probe_all(c, error));
    ATTN_TRY(o->platform ? pin_platform(c, o->platform, error) : find_platform(c, error));
    attn_platform_facts(c->platform, &c->facts);
    return ATTN_OK;
}

static attn_status gather_config(attn_context *c, const attn_options *o, attn_error *error)
{
    const char *said = o->backend          ? "backend"
                       : o->config         ? "config"
                       : o->llm_backend    ? "llm_backend"
                       : o->llm_config     ? "llm_config"
                       : o->vision_backend ? "vision_backend"
                                           : NULL;
    if (o->settings && said)
        return attn_fail(error, ATTN_KIND_MUTUALLY_EXCLUSIVE,
                         "attn_options.settings and attn_options.%s say the same thing; give one of them",
                         said);
    if (o->settings) return attn_config_copy(o->settings, &c->config, error);
    ATTN_TRY(attn_config_new(&c->config, error));
    if (o->config) ATTN_TRY(attn_config_set_json(c->config, o->config, error));
    if (o->llm_backend)
        ATTN_TRY(attn_config_set_option(c->config, "attention-backend", o->llm_backend, error));
    if (o->llm_config) ATTN_TRY(attn_config_set_option(c->config, "attention-config", o->llm_config, error));
    if (o->vision_backend)
        ATTN_TRY(attn_config_set_option(c->config, "mm-attention-backend", o->vision_backend, error));
    return attn_config_set_backend(c->config, o->backend, error);
}

/* What domains llm and vision take beside their options. */
static attn_status init_domains(attn_context *c, const attn_options *o, attn_error *error)
{
    const char *layout = setting(o, NULL, "VLLM_KV_CACHE_LAYOUT"), *vision = c->config->vision_flag;
    const char *warning;
    for (size_t i = 0; (warning = attn_config_warning_at(c->config, i)); i++)
        attn_context_log(c, ATTN_LOG_WARNING, "%s", warning);
    if (layout && strcmp(layout, "NHD") && strcmp(layout, "HND"))
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "VLLM_KV_CACHE_LAYOUT is '%.60s'; it is NHD or HND",
                         layout);
    ATTN_TRY(attn_config_keep(c->config, &c->config->kv_layout, layout, error));
    c->obsolete = setting(o, NULL, "VLLM_ATTENTION_BACKEND") != NULL;
    if (!vision || attn_registry_named(&c->registry, ATTN_DOMAIN_VISION, vision)) return ATTN_OK;
    return attn_fail(
        error, ATTN_KIND_UNKNOWN_BACKEND,
        "--mm-attention-backend asks for '%.60s', which is no backend of domain vision; `attn list --domain "
        "vision` names them",
        vision);
}

/* Switches of AITER, which the environment sets on a live machine. */
static void read_aiter(attn_context *c, const attn_options *o)
{
    static const struct {
        uint32_t bit;
        const char *gate, *variable;
        bool standard;
    } switches[] = {{ATTN_AITER(mla), "VLLM_ROCM_USE_AITER", "VLLM_ROCM_USE_AITER_MLA", true},
                    {ATTN_AITER(mha), "VLLM_ROCM_USE_AITER", "VLLM_ROCM_USE_AITER_MHA", true},
                    {ATTN_AITER(vision), NULL, "SGLANG_USE_AITER", false}};
    attn_facts *f = &c->facts;
    bool device = f->has_capability && f->major == 9 && (f->minor == 4 || f->minor == 5);
    if (strcmp(f->platform, "rocm") || !device || !attn_facts_have(f, "aiter")) return;
    f->aiter |= ATTN_AITER(found);
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        const char *gate = switches[i].gate ? setting(o, NULL, switches[i].gate) : "1";
        const char *value = setting(o, NULL, switches[i].variable);
        bool on = value ? !strcmp(value, "1") || !strcasecmp(value, "true") : switches[i].standard;
        if (gate && (!strcmp(gate, "1") || !strcasecmp(gate, "true")) && on) f->aiter |= switches[i].bit;
    }
}

static attn_status init_config(attn_context *c, const attn_options *o, attn_error *error)
{
    const char *value = o->flags & ATTN_OPEN_IGNORE_ENV ? NULL : getenv("DIFFUSION_ATTENTION_BACKEND");
    ATTN_TRY(gather_config(c, o, error));
    if (value && !c->config->environment) ATTN_TRY(attn_config_set_environment(c->config, value, error));
    ATTN_TRY(attn_config_normalise(c->config, error));
    ATTN_TRY(init_domains(c, o, error));
    ATTN_TRY(attn_config_normalise(c->config, error));
    if (c->facts.live) read_aiter(c, o);
    if (!c->config->from_environment) return ATTN_OK;
    char *roles = json_dumps(c->config->roles, JSON_COMPACT);
    attn_context_log(
        c, ATTN_LOG_INFO, "DIFFUSION_ATTENTION_BACKEND='%s' sets the default to %s; per role: %s",
        c->config->environment, attn_spec_backend(c->config->default_spec), roles ? roles : "{}");
    free(roles);
    return ATTN_OK;
}

static attn_status init(attn_context *c, const attn_options *o, attn_error *error)
{
    c->one_llm = (o->flags & ATTN_OPEN_ONE_LLM) != 0;
    c->log = o->log, c->log_user = o->log_user;
    c->trace = o->trace, c->trace_user = o->trace_user;
    attn_workspaces_init(&c->workspaces, &c->allocator);
    attn_plans_init(&c->plans, o->plan_cache);
    attn_lock_init(&c->answers.lock);
    attn_lock_init(&c->spaces_lock);
    attn_lock_init(&c->log_lock);
    c->registry.allocator = &c->allocator;
    init_host(c, o);
    ATTN_TRY(init_isa(c, o, error));
    ATTN_TRY(init_profile(c, o, error));
    ATTN_TRY(init_threads(c, o, error));
    ATTN_TRY(init_registry(c, o, error));
    ATTN_TRY(init_platform(c, o, error));
    return init_config(c, o, error);
}

static attn_status check_flags(const attn_options *o, attn_error *error)
{
    const uint32_t known = ATTN_OPEN_IGNORE_ENV | ATTN_OPEN_ONE_LLM;
    if (!(o->flags & ~known)) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                     "attn_options.flags is 0x%x; its bits are ATTN_OPEN_IGNORE_ENV and ATTN_OPEN_ONE_LLM",
                     o->flags);
}

static attn_status check_allocator(const attn_allocator *allocator, attn_error *error)
{
    if (!allocator || (allocator->alloc && allocator->release)) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                     "allocator.%s is NULL; give both functions or no allocator",
                     allocator->alloc ? "release" : "alloc");
}

attn_status attn_open(const attn_options *options, attn_context **context, attn_error *error)
{
    attn_options o;
    size_t least = offsetof(attn_options, backend);
    if (!context)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "context is NULL; pass the address of an attn_context pointer");
    *context = NULL;
    if (!attn_copy_struct(&o, sizeof o, options, options ? options->size : 0, least))
        return attn_fail(error, ATTN_KIND_INVALID_STRUCT,
                         "attn_options.size is %u; it is at least %zu, set it to sizeof(attn_options)",
                         options->size, least);
    ATTN_TRY(check_flags(&o, error));
    ATTN_TRY(check_allocator(o.allocator, error));
    const attn_allocator *allocator = o.allocator ? o.allocator : &attn_malloc_allocator;
    attn_context *c = attn_take_zeroed(allocator, sizeof *c);
    if (!c)
        return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a context of %zu bytes", sizeof *c);
    c->allocator = *allocator;
    attn_status status = init(c, &o, error);
    if (status)
        attn_close(c);
    else
        *context = c;
    return status;
}

void attn_close(attn_context *c)
{
    if (!c) return;
    attn_plans_clear(c);
    attn_answers_clear(c);
    attn_workspaces_clear(&c->workspaces);
    attn_spaces_clear(c);
    attn_config_free(c->config);
    attn_registry_clear(&c->registry);
    while (c->logged) {
        attn_logged *next = c->logged->next;
        attn_drop(&c->allocator, c->logged);
        c->logged = next;
    }
    attn_lock_destroy(&c->log_lock);
    attn_drop(&c->allocator, c->isa_cap);
    attn_profile_free(c->profile);
    attn_drop(&c->allocator, c->profile_path);
    attn_drop(&c->allocator, c->probes);
    if (c->pool_held) attn_pool_release();
    attn_allocator allocator = c->allocator;
    attn_drop(&allocator, c);
}

/* ---- lists -------------------------------------------------------------------------------------- */

void attn_context_get_info(const attn_context *c, attn_context_info *info)
{
    attn_context_info ours = {.threads = c->host.threads,
                              .platform = c->facts.platform,
                              .isa = attn_isa_name(*c->isa_cap ? c->isa_cap : NULL),
                              .isa_text = c->isa_text,
                              .thread_text = c->thread_text,
                              .cpu = c->cpu_name,
                              .profile = c->profile_path,
                              .forward_states = atomic_load(&c->forward_states)};
    attn_give_struct(info, &ours, sizeof ours);
}

int attn_backend_at(const attn_context *c, size_t index, attn_backend_info *info)
{
    return attn_domain_backend_at(c, ATTN_DOMAIN_DIFFUSION, index, info);
}

int attn_domain_backend_at(const attn_context *c, attn_domain domain, size_t index, attn_backend_info *info)
{
    const attn_backend *b = attn_registry_domain_at(&c->registry, domain, index);
    if (!b) return 0;
    attn_backend_info ours = {.mask = b->mask,
                              .spans = b->spans,
                              .from_module = b->from_module,
                              .name = b->name,
                              .log_name = b->log_name,
                              .family = b->family,
                              .platforms = b->platforms,
                              .head_sizes = b->head_sizes,
                              .needs = b->needs,
                              .dispatches = b == attn_registry_dispatcher()};
    attn_give_struct(info, &ours, sizeof ours);
    return 1;
}

int attn_plugin_at(const attn_context *c, size_t index, attn_plugin_info *info)
{
    size_t i = 0;
    for (; i < c->registry.impl_count; i++)
        if (c->registry.impls[i]->plugin && !index--) break;
    if (i == c->registry.impl_count) return 0;
    const attn_impl_slot *slot = c->registry.impls[i];
    attn_plugin_info ours = {.selects = slot->plugin->about.select != NULL,
                             .name = slot->plugin->name,
                             .implementation = slot->impl.name,
                             .summary = slot->impl.summary,
                             .platform = slot->impl.platform,
                             .path = c->registry.modules[slot->module].path,
                             .features = slot->impl.features,
                             .geometry = slot->plugin->about.geometry != NULL};
    attn_give_struct(info, &ours, sizeof ours);
    return 1;
}

int attn_impl_at(const attn_context *c, size_t index, attn_impl_info *info)
{
    if (index >= c->registry.impl_count) return 0;
    const attn_impl_slot *slot = c->registry.impls[index];
    attn_impl_info ours = {.head_dim_max = slot->impl.head_dim_max,
                           .features = slot->impl.features,
                           .dtypes = slot->impl.dtypes,
                           .name = slot->impl.name,
                           .summary = slot->impl.summary,
                           .platform = slot->impl.platform,
                           .backends = slot->served,
                           .module = slot->module < 0 ? "built-in" : c->registry.modules[slot->module].name,
                           .flags = slot->impl.flags};
    attn_give_struct(info, &ours, sizeof ours);
    return 1;
}

int attn_module_at(const attn_context *c, size_t index, attn_module_info *info)
{
    if (index >= c->registry.module_count) return 0;
    const attn_module_slot *m = &c->registry.modules[index];
    attn_module_info ours = {
        .kind = m->kind, .path = m->path, .name = m->name, .version = m->version, .text = m->text};
    attn_give_struct(info, &ours, sizeof ours);
    return 1;
}

const attn_facts *attn_context_facts(const attn_context *c)
{
    return &c->facts;
}

int attn_probe_at(const attn_context *c, size_t index, attn_probe_info *info)
{
    if (index >= c->probe_count) return 0;
    const attn_probed *p = &c->probes[index];
    attn_probe_info ours = {
        .positive = p->positive, .external = p->external, .name = p->name, .text = p->why};
    attn_give_struct(info, &ours, sizeof ours);
    return 1;
}

attn_status attn_override_set(attn_context *c, const char *backend, const char *implementation,
                              attn_error *error)
{
    if (!c || !backend)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "%s is NULL; pass an open context and a backend's name", c ? "backend" : "context");
    ATTN_TRY(attn_registry_set_override(&c->registry, backend, implementation, error));
    attn_context_log(c, ATTN_LOG_INFO, "override: %s is served by %s", backend,
                     implementation ? implementation : "its own order again");
    return ATTN_OK;
}

int attn_override_at(const attn_context *c, size_t index, attn_override_info *info)
{
    const attn_backend *b;
    for (size_t i = 0; (b = attn_registry_any_at(&c->registry, i)); i++) {
        const attn_impl_slot *slot = attn_registry_override(&c->registry, b);
        if (!slot || index-- > 0) continue;
        attn_override_info ours = {.backend = b->served, .implementation = slot->impl.name};
        attn_give_struct(info, &ours, sizeof ours);
        return 1;
    }
    return 0;
}

const char *attn_kernel_set_at(size_t index, int *usable)
{
    return attn_isa_at(index, usable);
}
