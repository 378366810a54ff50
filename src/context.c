/* context.c: opening a context, and what it can list. */
#include "context.h"

#include "core/threads.h"
#include "kernels/isa.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static void init_host(attn_context *c, const attn_options *o)
{
    c->host = (attn_host){.size = sizeof c->host,
                          .isa = c->isa_cap,
                          .context = c,
                          .alloc = host_alloc,
                          .release = host_release,
                          .parallel_for = host_parallel_for,
                          .log = host_log};
    c->parallel_for = o->parallel_for ? o->parallel_for : attn_pool_parallel_for;
    c->parallel_user = o->parallel_for ? o->parallel_user : NULL;
}

/* ---- opening ------------------------------------------------------------------------------------ */

/* An option beats its environment variable; a variable that is set but empty counts as unset. */
static const char *setting(const attn_options *o, const char *value, const char *variable)
{
    if (value || o->flags & ATTN_OPEN_IGNORE_ENV) return value;
    const char *text = getenv(variable);
    return text && *text ? text : NULL;
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
    }
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

static const char *platform_names(char *text, size_t bytes)
{
    size_t used = 0;
    for (size_t i = 0; attn_platform_at(i) && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i ? ", " : "", attn_platform_at(i)->name);
    return text;
}

static attn_status init_platform(attn_context *c, const attn_options *o, attn_error *error)
{
    char names[128];
    c->platform = o->platform ? attn_platform_named(o->platform) : attn_platform_detect();
    if (c->platform) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_UNKNOWN_NAME,
                     "platform '%.60s' is not known to this build; it knows %s", o->platform,
                     platform_names(names, sizeof names));
}

static attn_status init_registry(attn_context *c, const attn_options *o, attn_error *error)
{
    const char *path = setting(o, o->module_path, "ATTN_MODULE_PATH");
    const char *allow = o->plugins;
    if (!allow && !(o->flags & ATTN_OPEN_IGNORE_ENV)) allow = getenv("ATTN_PLUGINS");
    ATTN_TRY(attn_registry_init(&c->registry, &c->allocator, error));
    ATTN_TRY(attn_registry_load(&c->registry, path ? path : ATTN_MODULE_FOLDER, allow, error));
    for (size_t i = 0; i < c->registry.module_count; i++)
        attn_context_log(c, c->registry.modules[i].kind ? ATTN_LOG_WARNING : ATTN_LOG_INFO, "module %s: %s",
                         c->registry.modules[i].path, c->registry.modules[i].text);
    return attn_registry_set_overrides(&c->registry, o->overrides, error);
}

static attn_status init_config(attn_context *c, const attn_options *o, attn_error *error)
{
    attn_config_sources sources = {.flag_backend = o->backend, .json = o->config};
    if (!(o->flags & ATTN_OPEN_IGNORE_ENV)) sources.environment = getenv("DIFFUSION_ATTENTION_BACKEND");
    return attn_config_read(&c->config, &c->allocator, &sources, error);
}

static attn_status init(attn_context *c, const attn_options *o, attn_error *error)
{
    c->log = o->log, c->log_user = o->log_user;
    c->trace = o->trace, c->trace_user = o->trace_user;
    attn_workspaces_init(&c->workspaces, &c->allocator);
    attn_plans_init(&c->plans, o->plan_cache);
    attn_lock_init(&c->log_lock);
    c->config.allocator = &c->allocator;
    c->registry.allocator = &c->allocator;
    init_host(c, o);
    ATTN_TRY(init_isa(c, o, error));
    ATTN_TRY(init_threads(c, o, error));
    ATTN_TRY(init_platform(c, o, error));
    ATTN_TRY(init_registry(c, o, error));
    return init_config(c, o, error);
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
    attn_workspaces_clear(&c->workspaces);
    attn_config_clear(&c->config);
    attn_registry_clear(&c->registry);
    while (c->logged) {
        attn_logged *next = c->logged->next;
        attn_drop(&c->allocator, c->logged);
        c->logged = next;
    }
    attn_lock_destroy(&c->log_lock);
    attn_drop(&c->allocator, c->isa_cap);
    if (c->pool_held) attn_pool_release();
    attn_allocator allocator = c->allocator;
    attn_drop(&allocator, c);
}

/* ---- lists -------------------------------------------------------------------------------------- */

void attn_context_get_info(const attn_context *c, attn_context_info *info)
{
    attn_context_info ours = {.threads = c->host.threads,
                              .platform = c->platform->name,
                              .isa = attn_isa_name(*c->isa_cap ? c->isa_cap : NULL),
                              .isa_text = c->isa_text,
                              .thread_text = c->thread_text};
    attn_give_struct(info, &ours, sizeof ours);
}

int attn_backend_at(const attn_context *c, size_t index, attn_backend_info *info)
{
    const attn_backend *b = attn_registry_backend_at(&c->registry, index);
    if (!b) return 0;
    attn_backend_info ours = {.mask = b->mask,
                              .spans = b->spans,
                              .from_module = b->from_module,
                              .name = b->name,
                              .log_name = b->log_name,
                              .family = b->family,
                              .platforms = b->platforms,
                              .head_sizes = b->head_sizes,
                              .needs = b->needs};
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
                           .module = slot->module < 0 ? "built-in" : c->registry.modules[slot->module].name};
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
