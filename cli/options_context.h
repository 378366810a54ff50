/* options_context.h: the options that choose a backend, and the context they open. */
#ifndef ATTN_CLI_OPTIONS_CONTEXT_H
#define ATTN_CLI_OPTIONS_CONTEXT_H

#include <attn/attn.h>

#include "options.h"

/* Values of options_context.def. Zero means: not given. */
struct context_values {
    const char *backend, *config, *role, *category;
    struct option_texts overrides, paths;
    struct option_texts settings; /* of domains llm and vision, in the order in which they were said */
    const char *domain;
    const char *module_path, *platform, *facts, *device, *isa, *config_file, *profile;
    int64_t threads, vsa_topk;
    int verbose;
    int modules_told; /* the command lists refused modules itself */
};

/* Rows of a command whose struct of values T has a `struct context_values` called `context`: all of
 * options_context.def, or only those of options_run.def, which it includes. Needs
 *   #define X(kind, field, name, letter, argument, help, min, max) CONTEXT_ROW(struct values, kind, ...)
 * around the include:
 *   #define X(...) CONTEXT_ROW(struct values, __VA_ARGS__)
 *   #include "options_context.def"
 *   #undef X */
#define CONTEXT_ROW(T, kind, field, name, letter, argument, help, min, max)                                  \
    {OPTION_##kind, name, letter, argument, help, offsetof(T, context.field), min, max},

/* Every reason told while a context lives, for a command that prints them after a refusal. Zeroed at first.
 */
struct context_reasons {
    char **lines; /* "BACKEND/implementation: kind: sentence" */
    size_t count;
};
void context_reasons_free(struct context_reasons *reasons);

/* The configuration that the options and the environment make, for whoever prints it; free with
 * attn_config_free. */
attn_status context_config(const struct context_values *values, attn_config **config, attn_error *error);

/* Opens a context as the options say, and tells of refused modules once when a path was named. reasons NULL:
 * not collected. Texts of values must outlive the call only. */
attn_status context_open(const struct context_values *values, struct context_reasons *reasons,
                         attn_context **context, attn_error *error);

/* The domain that the options name. Fails: unknown_name. */
attn_status context_domain(const struct context_values *values, attn_domain *domain, attn_error *error);

/* "cpu", "cuda", "cuda:1"; NULL: cpu. Fails: unknown_name. */
attn_status context_device(const char *text, DLDevice *device, attn_error *error);
/* Fills role, category, domain and device of a layer. Fails: unknown_name (device). */
attn_status context_site(const struct context_values *values, attn_layer_options *layer, attn_error *error);

#endif
