/* registry.c: lists and loops over the rows. */
#include "registry/registry.h"

#include "core/facts.h"

#include "core/names.h"
#include "core/text.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

const attn_backend attn_built_in_backends[ATTN_BACKENDS] = {
#define X(name, log, family, platforms, mask, spans, heads, needs, imports)                                  \
    {#name, log, family, platforms, mask, spans, heads, needs, imports, false, ATTN_DOMAIN_DIFFUSION, #name},
#include "registry/backends.def"
#undef X
};

/* Features of these stand in llm_rows.def, which has several rows for a name. */
const attn_backend attn_llm_backends[ATTN_LLM_NAMES] = {
#define X(name, kind, mla, layout, per_head, non_causal, shape, home)                                        \
    {#name, #name, "llm", "all", 1, 1, "any", home, "", false, ATTN_DOMAIN_LLM, "llm:" #name},
#include "core/llm_names.def"
#undef X
};

const attn_backend attn_vision_backends[ATTN_VISION_BACKENDS] = {
#define X(name, platforms, refused, cuda, summary)                                                           \
    {#name, #name, "vision", platforms, 0, 0, "any", summary, "", false, ATTN_DOMAIN_VISION, "vision:" #name},
#include "registry/vision.def"
#undef X
};

#define X(symbol) extern const attn_impl symbol;
#include "registry/impls.def"
#undef X

static const attn_impl *const built_in[] = {
#define X(symbol) &symbol,
#include "registry/impls.def"
#undef X
};

static attn_status no_memory(attn_error *error)
{
    return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the registry; free some and open again");
}

attn_status attn_registry_init(attn_registry *r, const attn_allocator *allocator, attn_error *error)
{
    memset(r, 0, sizeof *r);
    r->allocator = allocator;
    for (size_t i = 0; i < sizeof built_in / sizeof *built_in; i++)
        ATTN_TRY(attn_registry_add(r, built_in[i], -1, error));
    return ATTN_OK;
}

static void free_slot(const attn_registry *r, attn_impl_slot *slot)
{
    attn_drop(r->allocator, slot->served);
    attn_drop(r->allocator, (void *)(uintptr_t)slot->plugin);
    attn_drop(r->allocator, slot);
}

void attn_registry_clear(attn_registry *r)
{
    for (size_t i = 0; i < r->impl_count; i++) free_slot(r, r->impls[i]);
    for (size_t i = 0; i < r->module_count; i++) {
        attn_module_slot *m = &r->modules[i];
        attn_drop(r->allocator, m->path);
        attn_drop(r->allocator, m->name);
        attn_drop(r->allocator, m->version);
        attn_drop(r->allocator, m->text);
        attn_drop(r->allocator, m->stem);
    }
    attn_drop(r->allocator, r->impls);
    attn_drop(r->allocator, r->modules);
    attn_drop(r->allocator, r->extra);
    attn_drop(r->allocator, r->overrides);
    attn_drop(r->allocator, r->platforms);
    attn_drop(r->allocator, r->searched);
}

const attn_backend *attn_registry_backend_at(const attn_registry *r, size_t i)
{
    if (i < ATTN_BACKENDS) return &attn_built_in_backends[i];
    return i - ATTN_BACKENDS < r->extra_count ? &r->extra[i - ATTN_BACKENDS] : NULL;
}

bool attn_backend_is_built_in(const char *name)
{
    for (size_t i = 0; i < ATTN_BACKENDS; i++)
        if (!strcasecmp(attn_built_in_backends[i].name, name)) return true;
    return false;
}

const attn_backend *attn_registry_domain_at(const attn_registry *r, attn_domain domain, size_t i)
{
    if (domain == ATTN_DOMAIN_LLM) return i < ATTN_LLM_NAMES ? &attn_llm_backends[i] : NULL;
    if (domain == ATTN_DOMAIN_VISION) return i < ATTN_VISION_BACKENDS ? &attn_vision_backends[i] : NULL;
    return attn_registry_backend_at(r, i);
}

const attn_backend *attn_registry_named(const attn_registry *r, attn_domain domain, const char *name)
{
    const attn_backend *b;
    for (size_t i = 0; (b = attn_registry_domain_at(r, domain, i)); i++)
        if (!strcasecmp(b->name, name)) return b;
    return NULL;
}

const attn_backend *attn_registry_any_at(const attn_registry *r, size_t i)
{
    if (i < ATTN_BACKENDS) return &attn_built_in_backends[i];
    i -= ATTN_BACKENDS;
    if (i < ATTN_LLM_NAMES) return &attn_llm_backends[i];
    i -= ATTN_LLM_NAMES;
    if (i < ATTN_VISION_BACKENDS) return &attn_vision_backends[i];
    i -= ATTN_VISION_BACKENDS;
    return i < r->extra_count ? &r->extra[i] : NULL;
}

/* The domain that stands before a name; the name after it is returned. */
static const char *split_domain(const char *name, attn_domain *domain)
{
    char word[16];
    const char *colon = strchr(name, ':');
    *domain = ATTN_DOMAIN_DIFFUSION;
    if (!colon || (size_t)(colon - name) >= sizeof word) return name;
    snprintf(word, sizeof word, "%.*s", (int)(colon - name), name);
    return attn_domain_from_name(word, domain) ? colon + 1 : name;
}

const attn_backend *attn_registry_backend(const attn_registry *r, const char *name)
{
    attn_domain domain;
    name = split_domain(name, &domain);
    return attn_registry_named(r, domain, name);
}

bool attn_registry_served(const attn_registry *r, const attn_backend *backend)
{
    for (size_t i = 0; i < r->impl_count; i++)
        if (attn_impl_serves(&r->impls[i]->impl, backend->served)) return true;
    return false;
}

const char *attn_registry_names(const attn_registry *r, char *text, size_t bytes)
{
    const attn_backend *b;
    text[0] = 0;
    for (size_t i = 0; (b = attn_registry_backend_at(r, i)); i++) {
        size_t used = strlen(text);
        snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", b->name);
    }
    return text;
}

const char *attn_registry_nearest(const attn_registry *r, const char *name)
{
    enum { MOST = 64 };
    const char *names[MOST];
    size_t count = 0;
    for (; count < MOST && attn_registry_backend_at(r, count); count++)
        names[count] = attn_registry_backend_at(r, count)->name;
    return attn_nearest(name, names, count);
}

const attn_impl_slot *attn_registry_impl(const attn_registry *r, const char *name)
{
    for (size_t i = 0; i < r->impl_count; i++)
        if (!strcmp(r->impls[i]->impl.name, name)) return r->impls[i];
    return NULL;
}

bool attn_impl_on(const attn_impl *impl, const attn_facts *facts)
{
    return !strcmp(impl->platform, facts->platform) || !strcmp(impl->platform, ATTN_ANY_PLATFORM);
}

bool attn_impl_serves(const attn_impl *impl, const char *backend)
{
    for (const char *const *b = impl->backends; *b; b++)
        if (!strcasecmp(*b, backend)) return true;
    return false;
}

static size_t backend_index(const attn_registry *r, const attn_backend *backend)
{
    size_t i = 0;
    while (attn_registry_any_at(r, i) != backend) i++;
    return i;
}

const attn_impl_slot *attn_registry_override(const attn_registry *r, const attn_backend *backend)
{
    return r->overrides ? atomic_load(&r->overrides[backend_index(r, backend)]) : NULL;
}

attn_status attn_registry_ready(attn_registry *r, attn_error *error)
{
    size_t count = 0;
    while (attn_registry_any_at(r, count)) count++;
    r->overrides = attn_take_zeroed(r->allocator, count * sizeof *r->overrides);
    return r->overrides ? ATTN_OK : no_memory(error);
}

attn_status attn_registry_set_override(attn_registry *r, const char *backend, const char *impl,
                                       attn_error *error)
{
    const attn_backend *b = attn_registry_backend(r, backend);
    const attn_impl_slot *slot = impl ? attn_registry_impl(r, impl) : NULL;
    if (!b)
        return attn_fail(error, ATTN_KIND_UNKNOWN_BACKEND,
                         "override of '%.60s': no backend has this name; see `attn list`", backend);
    if (impl && !slot)
        return attn_fail(error, ATTN_KIND_UNKNOWN_NAME,
                         "override '%.60s=%.60s': no implementation has the name '%.60s'; see `attn list`",
                         backend, impl, impl);
    if (slot && !attn_impl_serves(&slot->impl, b->served))
        return attn_fail(error, ATTN_KIND_UNKNOWN_NAME,
                         "override '%.60s=%.60s': %.60s serves %.120s, not %.60s; pick one that "
                         "serves it",
                         backend, impl, impl, slot->served, b->name);
    atomic_store(&r->overrides[backend_index(r, b)], slot);
    atomic_fetch_add(&r->generation, 1);
    return ATTN_OK;
}

attn_status attn_registry_set_overrides(attn_registry *r, const char *text, attn_error *error)
{
    for (const char *p = text; p && *p;) {
        char backend[64], impl[64];
        size_t length = strcspn(p, ","), name = strcspn(p, "=,");
        if (p[name] != '=' || name >= sizeof backend || length - name - 1 >= sizeof impl)
            return attn_fail(error, ATTN_KIND_SYNTAX, "override '%.*s' is not BACKEND=implementation",
                             (int)length, p);
        snprintf(backend, sizeof backend, "%.*s", (int)name, p);
        snprintf(impl, sizeof impl, "%.*s", (int)(length - name - 1), p + name + 1);
        ATTN_TRY(attn_registry_set_override(r, backend, impl, error));
        p += length + (p[length] == ',');
    }
    return ATTN_OK;
}

/* ---- adding ------------------------------------------------------------------------------------- */

static attn_status copy_impl(attn_impl *ours, const attn_impl *theirs, attn_error *error)
{
    size_t needed = offsetof(attn_impl, run) + sizeof theirs->run;
    if (!attn_copy_struct(ours, sizeof *ours, theirs, theirs->size, needed))
        return attn_fail(
            error, ATTN_KIND_MODULE_ABI,
            "an implementation's struct has %u bytes; this library needs at least %zu, build the module "
            "against its attn/module.h",
            theirs->size, needed);
    const char *missing = !ours->name          ? "name"
                          : !ours->summary     ? "summary"
                          : !ours->platform    ? "platform"
                          : !ours->backends    ? "backends"
                          : !ours->backends[0] ? "backends"
                          : !ours->plan        ? "plan"
                          : !ours->run         ? "run"
                                               : NULL;
    if (missing)
        return attn_fail(error, ATTN_KIND_MODULE_ABI, "implementation '%s' has no %s; fill the field",
                         ours->name ? ours->name : "(unnamed)", missing);
    return ATTN_OK;
}

static attn_status check_unique(const attn_registry *r, const attn_impl *impl, attn_error *error)
{
    const attn_impl_slot *other = attn_registry_impl(r, impl->name);
    if (!other) return ATTN_OK;
    return attn_fail(
        error, ATTN_KIND_MODULE_CLASH,
        "implementation '%s' is already offered by %s; names are unique, rename one or load one of the two",
        impl->name, other->module < 0 ? "the library itself" : r->modules[other->module].path);
}

static char *join_served(const attn_registry *r, const attn_impl *impl)
{
    size_t bytes = 1;
    for (const char *const *b = impl->backends; *b; b++) bytes += strlen(*b) + 2;
    char *text = attn_take_zeroed(r->allocator, bytes);
    for (const char *const *b = impl->backends; text && *b; b++) {
        if (*text) strcat(text, ", ");
        strcat(text, *b);
    }
    return text;
}

static attn_status add_backends(attn_registry *r, const attn_impl *impl, attn_error *error)
{
    for (const char *const *b = impl->backends; *b; b++) {
        attn_domain domain;
        split_domain(*b, &domain);
        if (attn_registry_backend(r, *b)) continue;
        if (domain != ATTN_DOMAIN_DIFFUSION)
            return attn_fail(
                error, ATTN_KIND_MODULE_ABI,
                "implementation '%.60s' serves '%.60s', which is no name of its domain; names of domains "
                "llm and vision are fixed, llm:CUSTOM is the slot for what has none",
                impl->name, *b);
        attn_backend *more = attn_take_zeroed(r->allocator, (r->extra_count + 1) * sizeof *more);
        if (!more) return no_memory(error);
        if (r->extra) memcpy(more, r->extra, r->extra_count * sizeof *more);
        attn_drop(r->allocator, r->extra);
        r->extra = more;
        more[r->extra_count++] = (attn_backend){
            *b, *b, "module", "all", 1, 1, "any", "its module", "", true, ATTN_DOMAIN_DIFFUSION, *b};
    }
    return ATTN_OK;
}

static attn_status insert(attn_registry *r, attn_impl_slot *slot, attn_error *error)
{
    attn_impl_slot **more = attn_take_zeroed(r->allocator, (r->impl_count + 1) * sizeof *more);
    if (!more) return no_memory(error);
    size_t at = 0;
    while (at < r->impl_count && r->impls[at]->impl.rank <= slot->impl.rank) at++;
    if (r->impls) {
        memcpy(more, r->impls, at * sizeof *more);
        memcpy(more + at + 1, r->impls + at, (r->impl_count - at) * sizeof *more);
    }
    more[at] = slot;
    attn_drop(r->allocator, r->impls);
    r->impls = more;
    r->impl_count++;
    return ATTN_OK;
}

attn_status attn_registry_add(attn_registry *r, const attn_impl *theirs, int module, attn_error *error)
{
    attn_impl impl;
    ATTN_TRY(copy_impl(&impl, theirs, error));
    ATTN_TRY(check_unique(r, &impl, error));
    attn_impl_slot *slot = attn_take_zeroed(r->allocator, sizeof *slot);
    if (!slot) return no_memory(error);
    slot->impl = impl;
    slot->module = module;
    /* What the library brings is tried first; a module that wants to go before it takes an override. */
    if (module >= 0 && slot->impl.rank < 0) slot->impl.rank = 0;
    slot->served = join_served(r, &impl);
    attn_status status = slot->served ? add_backends(r, &impl, error) : no_memory(error);
    if (!status) status = insert(r, slot, error);
    if (status) free_slot(r, slot);
    return status;
}

void attn_registry_remove_module(attn_registry *r, int module)
{
    size_t kept = 0;
    for (size_t i = 0; i < r->impl_count; i++) {
        if (r->impls[i]->module == module)
            free_slot(r, r->impls[i]);
        else
            r->impls[kept++] = r->impls[i];
    }
    r->impl_count = kept;
    while (r->platform_count && r->platforms[r->platform_count - 1].module == module) r->platform_count--;
    while (r->device_count && r->devices[r->device_count - 1].module == module) r->device_count--;
}

static const char *missing_of(const attn_device *d)
{
    return !d->platform  ? "platform"
           : !d->alloc   ? "alloc"
           : !d->release ? "release"
           : !d->copy    ? "copy"
           : !d->fill    ? "fill"
           : !d->wait    ? "wait"
           : !d->mark    ? "mark"
           : !d->seconds ? "seconds"
           : !d->unmark  ? "unmark"
           : !d->limits  ? "limits"
                         : NULL;
}

attn_status attn_registry_add_device(attn_registry *r, const attn_device *theirs, int module,
                                     attn_error *error)
{
    attn_device device;
    attn_copy_struct(&device, sizeof device, theirs, theirs->size, 0);
    const char *missing = missing_of(&device);
    if (missing)
        return attn_fail(error, ATTN_KIND_MODULE_ABI,
                         "the device of DLPack type %d has no %s; fill the field", (int)device.device_type,
                         missing);
    if (r->device_count == ATTN_DEVICES)
        return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY,
                         "modules offer more than %d devices; load fewer of them", ATTN_DEVICES);
    r->devices[r->device_count++] = (attn_device_slot){device, module};
    return ATTN_OK;
}

const attn_device *attn_registry_device(const attn_registry *r, int32_t device_type)
{
    for (size_t i = 0; i < r->device_count; i++)
        if (r->devices[i].device.device_type == device_type) return &r->devices[i].device;
    return NULL;
}

attn_status attn_registry_add_platform(attn_registry *r, const attn_platform *platform, int module,
                                       attn_error *error)
{
    size_t needed = offsetof(attn_platform, reserved);
    if (platform->size < needed || !platform->name)
        return attn_fail(error, ATTN_KIND_MODULE_ABI,
                         "a platform's struct has %u bytes%s; this library needs at least %zu and a name, "
                         "build the module "
                         "against its attn/module.h",
                         platform->size, platform->size < needed ? "" : " and no name", needed);
    attn_platform_slot *more = attn_take_zeroed(r->allocator, (r->platform_count + 1) * sizeof *more);
    if (!more) return no_memory(error);
    if (r->platforms) memcpy(more, r->platforms, r->platform_count * sizeof *more);
    attn_drop(r->allocator, r->platforms);
    r->platforms = more;
    more[r->platform_count++] = (attn_platform_slot){platform, module};
    return ATTN_OK;
}
