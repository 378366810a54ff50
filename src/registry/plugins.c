/* plugins.c: sparse plugins, each of which becomes an implementation behind the dispatcher. */
#include "registry/registry.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* What runs a plugin of either form; what a plugin declares is added to their features. */
extern const attn_impl attn_plugin_kernel_impl, attn_plugin_selector_impl;

static const char prefix[] = "plugin:";

/* ---- capabilities ---------------------------------------------------------------------------------- */

/* Two capabilities have names of their own; every other feature is declared by its word. */
static const struct capability {
    const char *name;
    uint64_t features;
} capabilities[] = {
    {"supports_attention_mask",
     ATTN_FEATURE(MASK_KEEP) | ATTN_FEATURE(MASK_ADDITIVE) | ATTN_FEATURE(KEY_MASK)},
    {"supports_full_attn_spans", ATTN_FEATURE(SPANS)},
};
enum { CAPABILITIES = sizeof capabilities / sizeof *capabilities };

const char *attn_plugin_capability(int bit, char *text, size_t bytes)
{
    for (int i = 0; i < CAPABILITIES; i++)
        if (capabilities[i].features >> bit & 1) return capabilities[i].name;
    const char *word = attn_feature_name(bit);
    snprintf(text, bytes, "supports_%s", word ? word : "unknown");
    return text;
}

static bool is_true(const attn_param *p)
{
    if (!p) return false;
    switch (p->type) {
    case ATTN_PARAM_BOOL:
    case ATTN_PARAM_INT:
        return p->value.integer != 0;
    case ATTN_PARAM_NUMBER:
        return p->value.number != 0;
    case ATTN_PARAM_TEXT:
        return p->value.text && *p->value.text;
    default:
        return false;
    }
}

static uint64_t declared(const attn_params *given)
{
    uint64_t features = 0;
    for (int bit = 0; attn_feature_name(bit); bit++) {
        char text[64];
        bool has = is_true(attn_params_find(given, attn_plugin_capability(bit, text, sizeof text)));
        features |= (uint64_t)has << bit;
    }
    return features & ~ATTN_FEATURE(RING); /* a ring runs kernels of its own and would pass the plugin by */
}

/* ---- adding ---------------------------------------------------------------------------------------- */

static attn_status check_about(const attn_sparse *theirs, const char *name, attn_sparse *about,
                               attn_error *error)
{
    size_t least = offsetof(attn_sparse, name);
    if (!attn_copy_struct(about, sizeof *about, theirs, theirs->size, least))
        return attn_fail(
            error, ATTN_KIND_MODULE_ABI,
            "sparse plugin '%.60s' describes itself in %u bytes; at least %zu carry its version, set "
            "size to sizeof(attn_sparse)",
            name, theirs->size, least);
    if (about->abi_major != ATTN_MODULE_MAJOR)
        return attn_fail(
            error, ATTN_KIND_MODULE_ABI,
            "sparse plugin '%.60s' was built for module interface %u.%u; this library speaks %d.%d, "
            "rebuild one of the two",
            name, about->abi_major, about->abi_minor, ATTN_MODULE_MAJOR, ATTN_MODULE_MINOR);
    if (!about->forward == !about->select)
        return attn_fail(error, ATTN_KIND_MODULE_NO_ENTRY,
                         "sparse plugin '%.60s' has %s; it is attn_sparse_forward, which computes, or "
                         "attn_sparse_select, which fills a block map",
                         name, about->forward ? "both forms" : "neither form");
    if (about->select && about->platform && strcmp(about->platform, "cpu"))
        return attn_fail(
            error, ATTN_KIND_MODULE_ABI,
            "sparse plugin '%.60s' is a selector for %.40s; selectors are for cpu, leave the field out", name,
            about->platform);
    return ATTN_OK;
}

static const attn_impl_slot *find(const attn_registry *r, const char *name)
{
    for (size_t i = 0; i < r->impl_count; i++)
        if (r->impls[i]->plugin && !strcasecmp(r->impls[i]->plugin->name, name)) return r->impls[i];
    return NULL;
}

static attn_impl impl_of(const attn_plugin *plugin)
{
    const attn_sparse *about = &plugin->about;
    attn_impl impl = about->forward ? attn_plugin_kernel_impl : attn_plugin_selector_impl;
    impl.name = plugin->impl_name;
    if (about->summary) impl.summary = about->summary;
    if (about->platform) impl.platform = about->platform;
    if (about->select && about->any_device) impl.platform = ATTN_ANY_PLATFORM;
    impl.features |= declared(about->capabilities);
    impl.data = about;
    return impl;
}

static attn_status add(attn_registry *r, attn_plugin *plugin, int module, attn_error *error)
{
    attn_impl impl = impl_of(plugin);
    attn_status status = attn_registry_add(r, &impl, module, error);
    for (size_t i = 0; !status && i < r->impl_count; i++)
        if (r->impls[i]->impl.data == &plugin->about) r->impls[i]->plugin = plugin;
    return status;
}

attn_status attn_registry_add_plugin(attn_registry *r, const attn_sparse *theirs, const char *name,
                                     int module, bool *shadowed, attn_error *error)
{
    attn_sparse about;
    if (!name || !*name || strlen(name) > sizeof((attn_plugin *)0)->impl_name - sizeof prefix)
        return attn_fail(error, ATTN_KIND_MODULE_ABI,
                         "a sparse plugin has the name '%.80s'; it has 1 to %zu bytes", name ? name : "",
                         sizeof((attn_plugin *)0)->impl_name - sizeof prefix);
    ATTN_TRY(check_about(theirs, name, &about, error));
    *shadowed = find(r, name) != NULL;
    if (*shadowed) return ATTN_OK;
    attn_plugin *plugin = attn_take_zeroed(r->allocator, sizeof *plugin);
    if (!plugin)
        return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY,
                         "no memory for the sparse plugin '%.60s'; free some and open again", name);
    plugin->about = about;
    snprintf(plugin->impl_name, sizeof plugin->impl_name, "%s%s", prefix, name);
    plugin->name = plugin->impl_name + sizeof prefix - 1;
    attn_status status = add(r, plugin, module, error);
    if (status) attn_drop(r->allocator, plugin);
    return status;
}

const attn_backend *attn_registry_dispatcher(void)
{
    return &attn_built_in_backends[ATTN_BACKEND_SPARSE_ATTN];
}

/* ---- looking up ------------------------------------------------------------------------------------ */

/* A module file of that name that was refused. */
static const attn_module_slot *refused(const attn_registry *r, const char *name)
{
    for (size_t i = 0; i < r->module_count; i++)
        if (r->modules[i].kind && r->modules[i].stem && !strcasecmp(r->modules[i].stem, name))
            return &r->modules[i];
    return NULL;
}

const char *attn_registry_plugins(const attn_registry *r, char *text, size_t bytes)
{
    size_t used = 0;
    snprintf(text, bytes, "none");
    for (size_t i = 0; i < r->impl_count && used < bytes; i++)
        if (r->impls[i]->plugin)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "",
                                     r->impls[i]->plugin->name);
    return text;
}

bool attn_registry_plugin_known(const attn_registry *r, const char *name)
{
    return find(r, name) || refused(r, name);
}

attn_status attn_registry_plugin(const attn_registry *r, const char *name, const attn_impl_slot **slot,
                                 attn_error *error)
{
    char names[300];
    const attn_module_slot *bad = refused(r, name);
    *slot = find(r, name);
    if (*slot) return ATTN_OK;
    attn_registry_plugins(r, names, sizeof names);
    if (!*name)
        return attn_fail(error, ATTN_KIND_SPARSE_NAME_REQUIRED,
                         "SPARSE_ATTN dispatches to a plugin and none was named; write {\"backend\": "
                         "\"SPARSE_ATTN\", \"extra\": {\"backend\": NAME}} or NAME itself; installed: %s",
                         names);
    if (bad && !bad->denied)
        return attn_fail(error, ATTN_KIND_SPARSE_PLUGIN_BROKEN,
                         "the sparse plugin '%.60s' cannot be used: %.500s; installed: %s", name, bad->text,
                         names);
    return attn_fail(
        error, ATTN_KIND_SPARSE_PLUGIN_MISSING,
        "no sparse plugin '%.60s' is among the modules searched in '%.300s'%s%.300s; installed: %s", name,
        r->searched ? r->searched : "", bad ? "; " : "", bad ? bad->text : "", names);
}
