/* contenders.c: opens one context for each backend that a command compares. */
#include "contenders.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli.h"

/* Checked before minutes of measuring, with the nearest name. */
static attn_status check_name(const attn_context *context, const char *name, attn_error *error)
{
    const char *names[2 * CONTENDERS_MAX] = {NULL};
    attn_backend_info info = {.size = sizeof info};
    for (size_t i = 0; attn_backend_at(context, i, &info); i++) {
        if (strcmp(info.name, name) == 0) return ATTN_OK;
        if (i + 1 < sizeof names / sizeof *names) names[i] = info.name;
    }
    attn_plugin_info plugin = {.size = sizeof plugin};
    for (size_t i = 0; attn_plugin_at(context, i, &plugin); i++)
        if (strcasecmp(plugin.name, name) == 0) return ATTN_OK;
    const char *near = cli_nearest(name, names);
    return cli_fail(error, ATTN_KIND_UNKNOWN_BACKEND,
                    "--backends names '%s', which is no backend%s%s%s; 'attn list' prints them", name,
                    near ? "; the nearest is '" : "", near ? near : "", near ? "'" : "");
}

attn_status contenders_add(struct contenders *set, const struct context_values *values, const char *name,
                           attn_error *error)
{
    if (set->count == CONTENDERS_MAX)
        return cli_fail(error, ATTN_KIND_INVALID_VALUE, "more than %d candidates", CONTENDERS_MAX);
    char *copy = strdup(name);
    if (!copy) return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the list of candidates");
    attn_status status = context_open(values, NULL, &set->contexts[set->count], error);
    if (status)
        free(copy);
    else
        set->names[set->count++] = copy;
    return status;
}

static attn_status add_backend(struct contenders *set, const struct context_values *values, const char *name,
                               size_t length, attn_error *error)
{
    struct context_values one = *values;
    char *copy = strndup(name, length);
    if (!copy) return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the name of a backend");
    one.backend = copy;
    attn_status status = contenders_add(set, &one, copy, error);
    if (!status) status = check_name(set->contexts[set->count - 1], copy, error);
    free(copy);
    return status;
}

static int has_backend(const struct contenders *set, const char *name, size_t length)
{
    for (size_t i = 0; i < set->count; i++)
        if (strlen(set->names[i]) == length && memcmp(set->names[i], name, length) == 0) return 1;
    return 0;
}

/* all: of the names with a domain before them, which are not those of these commands, nothing is said. */
static attn_status add_backends(struct contenders *set, const struct context_values *values, const char *list,
                                int all, attn_error *error)
{
    attn_status status = ATTN_OK;
    for (const char *at = list; !status && *at;) {
        at += strspn(at, ", ");
        size_t n = strcspn(at, ", ");
        if (n && !(all && memchr(at, ':', n)) && !has_backend(set, at, n))
            status = add_backend(set, values, at, n, error);
        at += n;
    }
    return status;
}

/* Plugins are compared each by its own name, not by the dispatcher's before them. */
static int is_plugin(const attn_context *context, const char *impl)
{
    attn_plugin_info plugin = {.size = sizeof plugin};
    for (size_t i = 0; attn_plugin_at(context, i, &plugin); i++)
        if (strcmp(plugin.implementation, impl) == 0) return 1;
    return 0;
}

/* The platform whose implementations run on the device that --device names. */
static const char *platform_of(const struct context_values *values, attn_context *context)
{
    DLDevice device;
    attn_context_info info = {.size = sizeof info};
    if (context_device(values->device, &device, NULL) || device.device_type == kDLCPU) return "cpu";
    attn_context_get_info(context, &info);
    return info.platform;
}

/* Every backend that has code for the device of the commands' tensors. */
static attn_status add_all_backends(struct contenders *set, const struct context_values *values,
                                    attn_error *error)
{
    attn_context *context;
    attn_impl_info impl = {.size = sizeof impl};
    attn_status status = context_open(values, NULL, &context, error);
    if (status) return status;
    for (size_t i = 0; !status && attn_impl_at(context, i, &impl); i++)
        if (strcmp(impl.platform, platform_of(values, context)) == 0 && !is_plugin(context, impl.name))
            status = add_backends(set, values, impl.backends, 1, error);
    attn_plugin_info plugin = {.size = sizeof plugin};
    for (size_t i = 0; !status && attn_plugin_at(context, i, &plugin); i++)
        if (strcmp(plugin.platform, platform_of(values, context)) == 0)
            status = add_backends(set, values, plugin.name, 0, error);
    attn_close(context);
    if (!status && set->count == 0)
        return cli_fail(error, ATTN_KIND_PACKAGE_MISSING,
                        "there is no implementation for %s to measure; attn list shows what there is",
                        values->device ? values->device : "host memory");
    return status;
}

attn_status contenders_open(struct contenders *set, const struct context_values *values,
                            const struct option_texts *backends, attn_error *error)
{
    attn_status status = ATTN_OK;
    for (size_t i = 0; !status && i < backends->count; i++)
        status = add_backends(set, values, backends->items[i], 0, error);
    if (!status && set->count == 0) status = add_all_backends(set, values, error);
    return status;
}

void contenders_close(struct contenders *set)
{
    for (size_t i = 0; i < set->count; i++) {
        attn_close(set->contexts[i]);
        free((void *)(uintptr_t)set->names[i]);
    }
    set->count = 0;
}
