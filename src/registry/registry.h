/* registry.h: which backends, implementations and modules a context has. */
#ifndef ATTN_REGISTRY_REGISTRY_H
#define ATTN_REGISTRY_REGISTRY_H

#include "core/fail.h"
#include "core/llm.h"
#include "core/memory.h"

#include <stdatomic.h>

typedef struct attn_backend {
    const char *name, *log_name, *family, *platforms;
    int mask, spans;
    const char *head_sizes, *needs, *imports;
    bool from_module;
    attn_domain domain;
    const char *served; /* what an implementation calls it: the name, of another domain than diffusion with
                           "llm:" or "vision:" before it */
} attn_backend;

/* Rows of backends.def by number, so that other tables name backends in a way that the compiler checks. */
enum {
#define X(name, log, family, platforms, mask, spans, heads, needs, imports) ATTN_BACKEND_##name,
#include "registry/backends.def"
#undef X
    ATTN_BACKENDS
};

enum {
#define X(name, platforms, refused, cuda, summary) ATTN_VISION_##name,
#include "registry/vision.def"
#undef X
    ATTN_VISION_BACKENDS
};

typedef struct attn_impl_slot {
    attn_impl impl;                   /* copied and zero-filled: a module may have a shorter struct */
    int module;                       /* index into modules, -1: built in */
    char *served;                     /* "FLASH_ATTN, TORCH_SDPA" */
    const struct attn_plugin *plugin; /* NULL: an implementation of its own; see plugins.c */
} attn_impl_slot;

/* A sparse plugin as it was registered; its implementation is made of it. */
typedef struct attn_plugin {
    attn_sparse about; /* zero-filled copy; forward, select and geometry are set */
    char impl_name[80];
    const char *name; /* within impl_name, behind "plugin:" */
} attn_plugin;

typedef struct attn_module_slot {
    attn_kind kind; /* none: accepted */
    void *handle;   /* of dlopen, NULL when refused */
    char *path, *name, *version, *text;
    char *stem;  /* the name that the file's own name gives */
    bool denied; /* by the list of allowed modules */
} attn_module_slot;

/* A platform that a module brought. */
typedef struct attn_platform_slot {
    const attn_platform *platform;
    int module;
} attn_platform_slot;

/* A device that a module serves; copied and zero-filled. */
typedef struct attn_device_slot {
    attn_device device;
    int module;
} attn_device_slot;

enum { ATTN_DEVICES = 16 }; /* kinds of devices that one context can serve */

typedef struct attn_registry {
    const attn_allocator *allocator;
    attn_backend *extra; /* backends that modules brought */
    size_t extra_count;
    attn_impl_slot **impls; /* in order of preference */
    size_t impl_count;
    attn_module_slot *modules;
    size_t module_count;
    attn_platform_slot *platforms;
    size_t platform_count;
    attn_device_slot devices[ATTN_DEVICES];
    size_t device_count;
    /* One slot a backend, NULL: no override. The only part that changes after opening, with its generation.
     */
    _Atomic(const attn_impl_slot *) *overrides;
    _Atomic uint64_t generation;
    char *searched; /* where modules were looked for, for messages */
} attn_registry;

attn_status attn_registry_init(attn_registry *registry, const attn_allocator *allocator, attn_error *error);
void attn_registry_clear(attn_registry *registry);

extern const attn_backend attn_built_in_backends[ATTN_BACKENDS];
extern const attn_backend attn_llm_backends[ATTN_LLM_NAMES];
extern const attn_backend attn_vision_backends[ATTN_VISION_BACKENDS];
/* Of domain diffusion, built in and brought by modules; a name with "llm:" or "vision:" before it is one of
 * that domain. Case-insensitive; NULL: unknown. */
const attn_backend *attn_registry_backend(const attn_registry *registry, const char *name);
const attn_backend *attn_registry_backend_at(const attn_registry *registry, size_t index);
/* Of one domain. */
const attn_backend *attn_registry_domain_at(const attn_registry *registry, attn_domain domain, size_t index);
const attn_backend *attn_registry_named(const attn_registry *registry, attn_domain domain, const char *name);
/* An implementation serves it, on whatever platform. */
bool attn_registry_served(const attn_registry *registry, const attn_backend *backend);
/* Of all domains: those of diffusion, llm and vision that are built in, then those of modules. */
const attn_backend *attn_registry_any_at(const attn_registry *registry, size_t index);
/* All names, "A, B, C". Returns text. */
const char *attn_registry_names(const attn_registry *registry, char *text, size_t bytes);
/* The known name nearest to a misspelt one, or NULL when none is near. */
const char *attn_registry_nearest(const attn_registry *registry, const char *name);
const attn_impl_slot *attn_registry_impl(const attn_registry *registry, const char *name);
bool attn_impl_serves(const attn_impl *impl, const char *backend);
#define ATTN_ANY_PLATFORM "*" /* of an implementation that runs others' kernels, wherever tensors are */
bool attn_impl_on(const attn_impl *impl, const attn_facts *facts);
const attn_impl_slot *attn_registry_override(const attn_registry *registry, const attn_backend *backend);

/* Makes room for overrides; call once, when all backends are known. */
attn_status attn_registry_ready(attn_registry *registry, attn_error *error);
/* impl NULL clears. Fails: unknown_backend, unknown_name. */
attn_status attn_registry_set_override(attn_registry *registry, const char *backend, const char *impl,
                                       attn_error *error);
/* "BACKEND=implementation,...". */
attn_status attn_registry_set_overrides(attn_registry *registry, const char *text, attn_error *error);

/* Adds one implementation (and the backends it brings); the slot is placed by rank. Fails: module_abi (a
 * needed field is missing), module_clash, out_of_memory. */
attn_status attn_registry_add(attn_registry *registry, const attn_impl *impl, int module, attn_error *error);
/* Fails: module_abi, out_of_memory. */
attn_status attn_registry_add_platform(attn_registry *registry, const attn_platform *platform, int module,
                                       attn_error *error);
/* Fails: module_abi (a needed function is missing), out_of_memory (there are too many). */
attn_status attn_registry_add_device(attn_registry *registry, const attn_device *device, int module,
                                     attn_error *error);
/* Who serves a DLDeviceType; NULL: nobody. */
const attn_device *attn_registry_device(const attn_registry *registry, int32_t device_type);
void attn_registry_remove_module(attn_registry *registry, int module);

/* plugins.c: adds what the library makes of a sparse plugin. Of equal names (whatever their case) the first
 * stays; *shadowed tells that this one is not it. Fails: module_abi, module_no_entry, module_clash,
 * out_of_memory. */
attn_status attn_registry_add_plugin(attn_registry *registry, const attn_sparse *about, const char *name,
                                     int module, bool *shadowed, attn_error *error);
/* The backend behind which plugins stand. */
const attn_backend *attn_registry_dispatcher(void);
/* The names of plugins, "a, b", or "none". Returns text. */
const char *attn_registry_plugins(const attn_registry *registry, char *text, size_t bytes);
/* Whether a name is that of a plugin, or of a module file that could not be loaded. */
bool attn_registry_plugin_known(const attn_registry *registry, const char *name);
/* Fails: sparse_name_required (name is ""), sparse_plugin_missing, sparse_plugin_broken; each names what is
 * installed. */
attn_status attn_registry_plugin(const attn_registry *registry, const char *name, const attn_impl_slot **slot,
                                 attn_error *error);
/* The capability without which a plugin lacks a feature, "supports_attention_mask". Returns text. */
const char *attn_plugin_capability(int feature_bit, char *text, size_t bytes);

/* loader.c: loads the modules of a colon-separated path of files and folders. Refusals become rows. Fails
 * only when memory ends. allow: comma-separated names, NULL: all. asked: a user named the path, so that an
 * entry that is not there becomes a refused row; the default folder rarely exists. */
attn_status attn_registry_load(attn_registry *registry, const char *path, bool asked, const char *allow,
                               attn_error *error);

#endif
