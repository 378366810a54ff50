/* loader.c: modules come in whole or not at all, and a bad one harms no other. */
#include "registry/registry.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static attn_status no_memory(attn_error *error)
{
    return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY,
                     "no memory for the list of modules; free some and open again");
}

/* "/x/libattn-cuda.so" and "/x/attn_cuda.so" are the module "cuda": its name before any code of it has run.
 */
static void stem_of(const char *path, char *stem, size_t bytes)
{
    static const char *const prefixes[] = {"lib", "attn_", "attn-"};
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
        if (!strncmp(name, prefixes[i], strlen(prefixes[i]))) name += strlen(prefixes[i]);
    snprintf(stem, bytes, "%.*s", (int)strcspn(name, "."), name);
}

static bool allowed(const char *allow, const char *name)
{
    size_t length = strlen(name);
    for (const char *p = allow; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (strcspn(p, ",") == length && !strncmp(p, name, length)) return true;
    return !allow;
}

/* What one file came to before it is kept as a row. */
typedef struct outcome {
    attn_error error;
    void *handle;
    const attn_module *module; /* NULL: the file is a sparse plugin */
    bool denied;
    char note[200]; /* of a file that was accepted */
} outcome;

static attn_status open_file(const char *path, outcome *o)
{
    struct stat info;
    if (stat(path, &info))
        return attn_fail(&o->error, ATTN_KIND_MODULE_UNLOADABLE,
                         "module %.160s cannot be read: %s; check the module path", path, strerror(errno));
    o->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (o->handle) return ATTN_OK;
    const char *why = dlerror();
    return attn_fail(&o->error, ATTN_KIND_MODULE_UNLOADABLE,
                     "module %.160s cannot be loaded, the loader says: %s; rebuild or remove it", path,
                     why ? why : "nothing");
}

/* A plugin's functions and what it says of itself; false when the file exports none of them. */
static bool find_plugin(void *handle, attn_sparse *about)
{
    const void *said = dlsym(handle, "attn_sparse_about");
    void *forward = dlsym(handle, "attn_sparse_forward"), *select = dlsym(handle, "attn_sparse_select"),
         *geometry = dlsym(handle, "attn_sparse_geometry");
    *about =
        (attn_sparse){.size = sizeof *about, .abi_major = ATTN_MODULE_MAJOR, .abi_minor = ATTN_MODULE_MINOR};
    uint32_t size = said ? *(const uint32_t *)said : 0;
    if (said) memcpy(about, said, size < sizeof *about ? size : sizeof *about);
    if (!about->forward && forward) memcpy(&about->forward, &forward, sizeof forward);
    if (!about->select && select) memcpy(&about->select, &select, sizeof select);
    if (!about->geometry && geometry) memcpy(&about->geometry, &geometry, sizeof geometry);
    if (said) about->size = size < sizeof *about ? size : sizeof *about; /* also a size that is impossible */
    return forward || select || said;
}

static attn_status add_plugin(attn_registry *r, const attn_sparse *about, const char *name, int module,
                              outcome *o, attn_error *error)
{
    bool shadowed;
    ATTN_TRY(attn_registry_add_plugin(r, about, name, module, &shadowed, error));
    size_t used = strlen(o->note);
    snprintf(o->note + used, sizeof o->note - used, "%ssparse plugin '%.60s', %s%s", used ? "; " : "", name,
             about->forward ? "kernel form" : "selector form",
             shadowed ? ", is not used: one of that name was loaded before" : "");
    return ATTN_OK;
}

static attn_status find_entry(const char *path, outcome *o)
{
    attn_module_fn entry;
    void *symbol = dlsym(o->handle, ATTN_MODULE_SYMBOL);
    if (!symbol)
        return attn_fail(
            &o->error, ATTN_KIND_MODULE_NO_ENTRY,
            "module %.160s exports no symbol %s, nor attn_sparse_forward or attn_sparse_select, which "
            "this library looks for; export one with ATTN_MODULE_EXPORT",
            path, ATTN_MODULE_SYMBOL);
    memcpy(&entry, &symbol, sizeof entry);
    o->module = entry();
    if (o->module) return ATTN_OK;
    return attn_fail(&o->error, ATTN_KIND_MODULE_NO_ENTRY,
                     "module %.160s: %s returned NULL; this library expects a pointer to an attn_module",
                     path, ATTN_MODULE_SYMBOL);
}

static attn_status check_header(const char *path, outcome *o)
{
    const attn_module *m = o->module;
    size_t versioned = offsetof(attn_module, name), needed = offsetof(attn_module, platforms);
    if (m->size < versioned)
        return attn_fail(
            &o->error, ATTN_KIND_MODULE_ABI,
            "module %.160s has a header of %u bytes, too short to carry its version; this library (module "
            "interface %d.%d) needs at least %zu, rebuild it",
            path, m->size, ATTN_MODULE_MAJOR, ATTN_MODULE_MINOR, versioned);
    if (m->abi_major != ATTN_MODULE_MAJOR)
        return attn_fail(&o->error, ATTN_KIND_MODULE_ABI,
                         "module %.160s was built for module interface %u.%u; this library speaks %d.%d, "
                         "rebuild one of the "
                         "two",
                         path, m->abi_major, m->abi_minor, ATTN_MODULE_MAJOR, ATTN_MODULE_MINOR);
    if (m->size < needed || !m->name)
        return attn_fail(&o->error, ATTN_KIND_MODULE_ABI,
                         "module %.160s (interface %u.%u) has a header of %u bytes%s; this library needs at "
                         "least %zu and a name",
                         path, m->abi_major, m->abi_minor, m->size, m->size < needed ? "" : " and no name",
                         needed);
    return ATTN_OK;
}

static attn_status check_allowed(const char *path, const char *name, const char *allow, outcome *o)
{
    if (allowed(allow, name)) return ATTN_OK;
    o->denied = true;
    return attn_fail(&o->error, ATTN_KIND_MODULE_UNLOADABLE,
                     "module %.160s ('%s') was not loaded: the list of allowed modules (ATTN_PLUGINS, else "
                     "VLLM_PLUGINS) is '%s'; add it there",
                     path, name, allow);
}

static attn_status add_parts(attn_registry *r, const attn_module *m, int module, outcome *o, attn_error *why)
{
    static const attn_sparse *const no_plugins[] = {NULL};
    static const attn_impl *const no_impls[] = {NULL};
    static const attn_platform *const no_platforms[] = {NULL};
    static const attn_device *const no_devices[] = {NULL};
    /* A header from before platforms ends where they begin, one from before devices likewise. */
    bool has_platforms = m->size >= offsetof(attn_module, platforms) + sizeof m->platforms && m->platforms;
    bool has_devices = m->size >= offsetof(attn_module, devices) + sizeof m->devices && m->devices;
    for (const attn_impl *const *impl = m->impls ? m->impls : no_impls; *impl; impl++)
        ATTN_TRY(attn_registry_add(r, *impl, module, why));
    for (const attn_platform *const *p = has_platforms ? m->platforms : no_platforms; *p; p++)
        ATTN_TRY(attn_registry_add_platform(r, *p, module, why));
    for (const attn_device *const *d = has_devices ? m->devices : no_devices; *d; d++)
        ATTN_TRY(attn_registry_add_device(r, *d, module, why));
    bool has_plugins = m->size >= offsetof(attn_module, sparse) + sizeof m->sparse && m->sparse;
    for (const attn_sparse *const *p = has_plugins ? m->sparse : no_plugins; *p; p++)
        ATTN_TRY(add_plugin(r, *p, (*p)->name, module, o, why));
    return ATTN_OK;
}

/* All or nothing: what was added before a failure is taken out again. */
static attn_status add_all(attn_registry *r, const char *path, int module, outcome *o)
{
    attn_error why = ATTN_ERROR_INIT;
    size_t backends = r->extra_count;
    if (!add_parts(r, o->module, module, o, &why)) return ATTN_OK;
    attn_registry_remove_module(r, module);
    r->extra_count = backends;
    return attn_fail(&o->error, why.kind, "module %.160s: %.400s", path, why.text);
}

static attn_status add_file_plugin(attn_registry *r, const char *path, const char *stem, int module,
                                   const attn_sparse *about, outcome *o)
{
    attn_error why = ATTN_ERROR_INIT;
    if (!add_plugin(r, about, stem, module, o, &why)) return ATTN_OK;
    return attn_fail(&o->error, why.kind, "module %.160s: %.400s", path, why.text);
}

static char *copy(const attn_registry *r, const char *text)
{
    return attn_copy_text(r->allocator, text ? text : "");
}

/* Every file becomes a row, so that a list can show what was refused and why. */
static attn_status add_row(attn_registry *r, const char *path, attn_module_slot **row, attn_error *error)
{
    attn_module_slot *more = attn_take_zeroed(r->allocator, (r->module_count + 1) * sizeof *more);
    if (!more) return no_memory(error);
    if (r->modules) memcpy(more, r->modules, r->module_count * sizeof *more);
    attn_drop(r->allocator, r->modules);
    r->modules = more;
    *row = &more[r->module_count++];
    (*row)->path = copy(r, path);
    return (*row)->path ? ATTN_OK : no_memory(error);
}

static attn_status try_module(attn_registry *r, const char *path, const char *stem, const char *allow,
                              int index, outcome *o)
{
    attn_sparse about;
    ATTN_TRY(check_allowed(path, stem, allow, o));
    ATTN_TRY(open_file(path, o));
    if (!dlsym(o->handle, ATTN_MODULE_SYMBOL) && find_plugin(o->handle, &about))
        return add_file_plugin(r, path, stem, index, &about, o);
    ATTN_TRY(find_entry(path, o));
    ATTN_TRY(check_header(path, o));
    ATTN_TRY(add_all(r, path, index, o));
    return ATTN_OK;
}

static bool known_path(const attn_registry *r, const char *path)
{
    for (size_t i = 0; i < r->module_count; i++)
        if (!strcmp(r->modules[i].path, path)) return true;
    return false;
}

static attn_status load_file(attn_registry *r, const char *given, const char *allow, attn_error *error)
{
    char real[PATH_MAX];
    const char *path = realpath(given, real) ? real : given;
    attn_module_slot *row = NULL;
    if (known_path(r, path)) return ATTN_OK;
    ATTN_TRY(add_row(r, path, &row, error));
    outcome o = {.error = ATTN_ERROR_INIT};
    char stem[128];
    stem_of(given, stem, sizeof stem); /* a link's own name counts, not its target's */
    try_module(r, path, stem, allow, (int)r->module_count - 1, &o);
    row->kind = o.error.kind;
    row->denied = o.denied;
    row->stem = copy(r, stem);
    row->handle = o.error.kind ? NULL : o.handle;
    bool readable = !o.error.kind; /* a refused header is not trusted beyond what was checked */
    char loaded[220];
    snprintf(loaded, sizeof loaded, "loaded%s%s", *o.note ? ": " : "", o.note);
    row->name = copy(r, !readable ? "" : o.module ? o.module->name : stem);
    row->version = copy(r, readable && o.module ? o.module->version : "");
    row->text = copy(r, o.error.kind ? o.error.text : loaded);
    if (o.error.kind && o.handle) dlclose(o.handle);
    if (!row->name || !row->version || !row->text || !row->stem || row->kind == ATTN_KIND_OUT_OF_MEMORY)
        return no_memory(error);
    return ATTN_OK;
}

static int is_shared_object(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 3 && !strcmp(entry->d_name + length - 3, ".so");
}

static attn_status load_folder(attn_registry *r, const char *folder, const char *allow, attn_error *error)
{
    struct dirent **entries;
    /* Sorted, so that two machines with the same files choose alike. */
    int count = scandir(folder, &entries, is_shared_object, alphasort);
    attn_status status = count < 0 ? load_file(r, folder, allow, error) : ATTN_OK; /* its row says why */
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        int length = snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (!status && length > 0 && (size_t)length < sizeof path) status = load_file(r, path, allow, error);
        free(entries[i]);
    }
    if (count >= 0) free(entries);
    return status;
}

/* For messages: every place that was looked at. */
static attn_status note_searched(attn_registry *r, const char *path, attn_error *error)
{
    const char *before = r->searched ? r->searched : "";
    size_t bytes = strlen(before) + strlen(path) + 2;
    char *both = attn_take(r->allocator, bytes, 1);
    if (!both) return no_memory(error);
    snprintf(both, bytes, "%s%s%s", before, *before ? ":" : "", path);
    attn_drop(r->allocator, r->searched);
    r->searched = both;
    return ATTN_OK;
}

attn_status attn_registry_load(attn_registry *r, const char *path, bool asked, const char *allow,
                               attn_error *error)
{
    ATTN_TRY(note_searched(r, path, error));
    for (const char *p = path; *p;) {
        char item[PATH_MAX];
        struct stat info;
        size_t length = strcspn(p, ":");
        snprintf(item, sizeof item, "%.*s", (int)(length < sizeof item ? length : sizeof item - 1), p);
        bool there = !stat(item, &info);
        if (there && S_ISDIR(info.st_mode))
            ATTN_TRY(load_folder(r, item, allow, error));
        else if (length && (there || asked))
            ATTN_TRY(load_file(r, item, allow, error));
        p += length + (p[length] == ':');
    }
    return ATTN_OK;
}
