/* options_context.c: opens a context as the options say. */
#include "options_context.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "report.h"

#define TEXT_MAX 4096
#define FILE_MAX (1 << 20)

static void print_log(void *user, int32_t level, const char *text)
{
    (void)user;
    report_note("%s%s", level >= ATTN_LOG_WARNING ? "warning: " : "", text);
}

static void collect(void *user, const attn_trace *trace)
{
    struct context_reasons *reasons = user;
    if (trace->event != ATTN_TRACE_REASON) return;
    char **lines = realloc(reasons->lines, (reasons->count + 1) * sizeof *lines);
    if (!lines) return;
    reasons->lines = lines;
    const char *implementation = trace->implementation;
    char *line = NULL;
    if (asprintf(&line, "%s%s%s: %s: %s", trace->backend ? trace->backend : "", implementation ? "/" : "",
                 implementation ? implementation : "", attn_kind_name(trace->kind),
                 trace->text ? trace->text : "") < 0)
        return;
    lines[reasons->count++] = line;
}

void context_reasons_free(struct context_reasons *reasons)
{
    for (size_t i = 0; i < reasons->count; i++) free(reasons->lines[i]);
    free(reasons->lines);
    reasons->lines = NULL;
    reasons->count = 0;
}

/* "A=x", "B=y" become "A=x,B=y". */
static attn_status join_overrides(const struct option_texts *texts, char *joined, size_t bytes,
                                  attn_error *error)
{
    size_t used = 0;
    for (size_t i = 0; i < texts->count; i++) {
        int more = snprintf(joined + used, bytes - used, "%s%s", i ? "," : "", texts->items[i]);
        if (more < 0 || (size_t)more >= bytes - used)
            return cli_fail(error, ATTN_KIND_INVALID_VALUE, "--override: more than %zu characters in all",
                            bytes - 1);
        used += (size_t)more;
    }
    return ATTN_OK;
}

/* The contents of a file as a terminated text. */
static attn_status read_text(const char *path, char **text, attn_error *error)
{
    FILE *file = fopen(path, "rb");
    int reason = file ? 0 : errno;
    *text = file ? malloc(FILE_MAX + 1) : NULL;
    if (file && !*text) reason = ENOMEM;
    size_t bytes = *text ? fread(*text, 1, FILE_MAX + 1, file) : 0;
    if (!reason && ferror(file)) reason = errno;
    if (file) fclose(file);
    if (!reason && bytes <= FILE_MAX && memchr(*text, 0, bytes) == NULL) {
        (*text)[bytes] = 0;
        return ATTN_OK;
    }
    free(*text);
    *text = NULL;
    if (reason) return cli_fail(error, ATTN_KIND_IO, "%s: cannot be read: %s", path, strerror(reason));
    return cli_fail(error, ATTN_KIND_SYNTAX, "%s: is no text of at most %d bytes", path, FILE_MAX);
}

/* The library's sentence, with the file it is about in front. */
static attn_status in_file(const char *path, const attn_error *found, attn_error *error)
{
    return cli_fail(error, found->kind, "%.200s: %s", path, found->text);
}

/* --diffusion-attention-config: JSON, or @FILE. */
static attn_status add_json(attn_config *config, const char *json, attn_error *error)
{
    if (json[0] != '@') return attn_config_set_json(config, json, error);
    attn_error found = ATTN_ERROR_INIT;
    char *text = NULL;
    attn_status status = read_text(json + 1, &text, error);
    if (!status && attn_config_set_json(config, text, &found)) status = in_file(json + 1, &found, error);
    free(text);
    return status;
}

/* "PATH=VALUE" */
static attn_status add_path(attn_config *config, const char *word, attn_error *error)
{
    char path[256];
    const char *value = strchr(word, '=');
    if (!value || (size_t)(value - word) >= sizeof path)
        return cli_fail(error, ATTN_KIND_SYNTAX,
                        "--diffusion-attention-config.%.120s has no value; write PATH VALUE", word);
    snprintf(path, sizeof path, "%.*s", (int)(value - word), word);
    return attn_config_set_path(config, path, value + 1, error);
}

/* "NAME=VALUE" or "NAME.PATH=VALUE"; a value "@FILE" of attention-config is a file's contents. */
static attn_status add_setting(attn_config *config, const char *word, attn_error *error)
{
    char option[256];
    const char *value = strchr(word, '=');
    if (!value || (size_t)(value - word) >= sizeof option)
        return cli_fail(error, ATTN_KIND_SYNTAX, "--%.120s has no value; write KEY VALUE", word);
    snprintf(option, sizeof option, "%.*s", (int)(value - word), word);
    value++;
    if (*value != '@' || strcmp(option, "attention-config") != 0)
        return attn_config_set_option(config, option, value, error);
    attn_error found = ATTN_ERROR_INIT;
    char *text = NULL;
    attn_status status = read_text(value + 1, &text, error);
    if (!status && attn_config_set_option(config, option, text, &found))
        status = in_file(value + 1, &found, error);
    free(text);
    return status;
}

static attn_status fill_config(const struct context_values *values, attn_config *config, attn_error *error)
{
    attn_status status = ATTN_OK;
    const char *flag = values->backend          ? "diffusion-attention-backend"
                       : values->config         ? "diffusion-attention-config"
                       : values->paths.count    ? "diffusion-attention-config.PATH"
                       : values->vsa_topk       ? "fastvideo-vsa-topk"
                       : values->settings.count ? values->settings.items[0]
                                                : NULL;
    if (values->config_file && flag)
        return cli_fail(
            error, ATTN_KIND_MUTUALLY_EXCLUSIVE,
            "--config and --%.*s both configure attention; say it all in the file or all in flags",
            (int)strcspn(flag, "="), flag);
    if (values->config_file) status = attn_config_load_file(config, values->config_file, error);
    if (!status && values->backend) status = attn_config_set_backend(config, values->backend, error);
    if (!status && values->config) status = add_json(config, values->config, error);
    for (size_t i = 0; !status && i < values->paths.count; i++)
        status = add_path(config, values->paths.items[i], error);
    for (size_t i = 0; !status && i < values->settings.count; i++)
        status = add_setting(config, values->settings.items[i], error);
    if (!status && values->vsa_topk) status = attn_config_set_vsa_topk(config, values->vsa_topk, error);
    return status ? status
                  : attn_config_set_environment(config, getenv("DIFFUSION_ATTENTION_BACKEND"), error);
}

attn_status context_config(const struct context_values *values, attn_config **config, attn_error *error)
{
    attn_status status = attn_config_new(config, error);
    if (!status) status = fill_config(values, *config, error);
    if (!status) return ATTN_OK;
    attn_config_free(*config);
    *config = NULL;
    return status;
}

/* What nobody asked for but a user should know; once, as a command may open many contexts. The log says it by
 * itself. */
static void tell_warnings(const struct context_values *values, const attn_config *config)
{
    static int told;
    const char *warning;
    if (told || values->verbose) return;
    told = 1;
    for (size_t i = 0; (warning = attn_config_warning_at(config, i)); i++)
        report_note("warning: %s", warning);
    if (values->domain && !strcmp(values->domain, "llm") && getenv("VLLM_ATTENTION_BACKEND"))
        report_note(
            "warning: VLLM_ATTENTION_BACKEND is set and ignored; name the backend by --attention-backend");
}

static attn_status open_with(const struct context_values *values, attn_options *options,
                             attn_context **context, attn_error *error)
{
    char overrides[TEXT_MAX];
    attn_config *config = NULL;
    attn_facts *facts = NULL;
    attn_status status = context_config(values, &config, error);
    if (!status && values->facts) status = attn_facts_load(values->facts, &facts, error);
    if (!status && values->overrides.count) {
        status = join_overrides(&values->overrides, overrides, sizeof overrides, error);
        options->overrides = overrides;
    }
    options->settings = config;
    options->facts = facts;
    if (!status) status = attn_open(options, context, error);
    if (!status) tell_warnings(values, config);
    attn_config_free(config);
    attn_facts_free(facts);
    return status;
}

/* A refused module changes what is chosen, so whoever named a path hears of it; once, as a command may open
 * many contexts. The log says it by itself. */
static void tell_refused(const struct context_values *values, const attn_context *context)
{
    static int told;
    attn_module_info module = {.size = sizeof module};
    const char *path = values->module_path ? values->module_path : getenv("ATTN_MODULE_PATH");
    if (told || values->verbose || values->modules_told || !path || !*path) return;
    told = 1;
    for (size_t i = 0; attn_module_at(context, i, &module); i++)
        if (module.kind != ATTN_KIND_NONE) report_note("warning: %s", module.text);
}

attn_status context_open(const struct context_values *values, struct context_reasons *reasons,
                         attn_context **context, attn_error *error)
{
    attn_options options = {.size = sizeof options,
                            .threads = (int32_t)values->threads,
                            .platform = values->platform,
                            .isa = values->isa,
                            .module_path = values->module_path,
                            .profile = values->profile};
    *context = NULL;
    if (values->verbose) options.log = print_log;
    if (reasons) options.trace = collect;
    options.trace_user = reasons;
    attn_status status = open_with(values, &options, context, error);
    if (!status) tell_refused(values, *context);
    return status;
}

attn_status context_domain(const struct context_values *values, attn_domain *domain, attn_error *error)
{
    *domain = ATTN_DOMAIN_DIFFUSION;
    if (!values->domain || attn_domain_from_name(values->domain, domain)) return ATTN_OK;
    return cli_fail(error, ATTN_KIND_UNKNOWN_NAME, "--domain is \"%s\"; expected diffusion, llm or vision",
                    values->domain);
}

attn_status context_device(const char *text, DLDevice *device, attn_error *error)
{
    static const struct {
        const char *name;
        DLDeviceType type;
    } devices[] = {{"cpu", kDLCPU}, {"cuda", kDLCUDA}, {"rocm", kDLROCM}};
    const char *name = text ? text : "cpu";
    size_t length = strcspn(name, ":");
    char *end = NULL;
    long number = name[length] ? strtol(name + length + 1, &end, 10) : 0;
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        if (strlen(devices[i].name) != length || strncmp(devices[i].name, name, length) != 0) continue;
        if (end && (end == name + length + 1 || *end || number < 0 || number > INT32_MAX)) break;
        *device = (DLDevice){devices[i].type, (int32_t)number};
        return ATTN_OK;
    }
    return cli_fail(error, ATTN_KIND_UNKNOWN_NAME,
                    "--device is \"%s\"; expected cpu, cuda or rocm, and :N for another than the first",
                    name);
}

attn_status context_site(const struct context_values *values, attn_layer_options *layer, attn_error *error)
{
    attn_status status = context_domain(values, &layer->domain, error);
    if (status) return status;
    layer->role = values->role;
    layer->category = values->category;
    return context_device(values->device, &layer->device, error);
}
