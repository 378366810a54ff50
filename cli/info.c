/* info.c: attn info, what the library found on this machine. */
#include <attn/attn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "docs.h"
#include "machine.h"
#include "options_context.h"
#include "report.h"

struct values {
    struct context_values context;
    int json;
};

/* JSON is UTF-8; a path or a variable need not be. Bytes that are not ASCII are then written as \xNN. */
static json_t *text_json(const char *value)
{
    json_t *text = value ? json_string(value) : json_null();
    char *escaped = text ? NULL : malloc(4 * strlen(value) + 1), *to = escaped;
    if (!escaped) return text ? text : json_null();
    for (const char *from = value; *from; from++)
        to += snprintf(to, 5, (unsigned char)*from < 0x80 ? "%c" : "\\x%02X", (unsigned char)*from);
    text = json_string(escaped);
    free(escaped);
    return text;
}

static json_t *modules_json(const attn_context *context)
{
    json_t *list = json_array();
    attn_module_info m = {.size = sizeof m};
    for (size_t i = 0; attn_module_at(context, i, &m); i++) {
        json_t *row = json_object();
        json_object_set_new(row, "path", text_json(m.path));
        json_object_set_new(row, "name", text_json(m.name));
        json_object_set_new(row, "version", text_json(m.version));
        json_object_set_new(row, "accepted", json_boolean(m.kind == ATTN_KIND_NONE));
        if (m.kind) json_object_set_new(row, "kind", json_string(attn_kind_name(m.kind)));
        json_object_set_new(row, "text", text_json(m.text));
        json_array_append_new(list, row);
    }
    return list;
}

static json_t *variables_json(void)
{
    json_t *list = json_array();
    const struct docs_variable *row;
    for (size_t i = 0; (row = docs_variable_at(i)); i++)
        json_array_append_new(list, json_pack("{s:s, s:o, s:s, s:s}", "name", row->name, "value",
                                              text_json(getenv(row->name)), "meaning", row->meaning,
                                              "default", row->unset));
    return list;
}

static json_t *probes_json(const attn_context *context)
{
    json_t *list = json_array();
    attn_probe_info p = {.size = sizeof p};
    for (size_t i = 0; attn_probe_at(context, i, &p); i++)
        json_array_append_new(list, json_pack("{s:s, s:b, s:b, s:s}", "platform", p.name, "found", p.positive,
                                              "external", p.external, "text", p.text));
    return list;
}

/* Facts of this machine in the form that --facts reads. */
static json_t *facts_json(const attn_context *context)
{
    char text[4096];
    if (attn_facts_text(attn_context_facts(context), text, sizeof text, NULL, NULL)) return json_null();
    json_t *facts = json_loads(text, 0, NULL);
    return facts ? facts : json_null();
}

static int info_json(const attn_context *context, const attn_context_info *info)
{
    json_t *object = json_pack(
        "{s:s, s:s, s:o, s:{s:s, s:i, s:s, s:s}, s:{s:i, s:s}, s:o, s:{s:s, s:s}, s:o}", "version",
        attn_version(), "platform", info->platform, "devices",
        json_pack("[{s:s, s:s}]", "name", "cpu:0", "model", info->cpu), "cpu", "name", info->cpu, "online",
        (int)sysconf(_SC_NPROCESSORS_ONLN), "isa", info->isa, "isa_text", info->isa_text, "threads", "count",
        (int)info->threads, "text", info->thread_text, "modules", modules_json(context), "libraries",
        "jansson", jansson_version_str(), "libc", machine_libc(), "environment", variables_json());
    json_object_set_new(object, "facts", facts_json(context));
    json_object_set_new(object, "probes", probes_json(context));
    json_object_set_new(object, "profile", text_json(*info->profile ? info->profile : NULL));
    report_json_error(object, NULL);
    return report_json(object);
}

/* The first device of a platform that is not the CPU; the facts tell of it. */
static void print_device(const attn_context *context, const char *platform)
{
    json_t *facts = strcmp(platform, "cpu") ? facts_json(context) : NULL;
    json_t *capability = json_object_get(facts, "compute_capability");
    int cudnn = (int)json_integer_value(json_object_get(facts, "cudnn_version"));
    if (!facts) return;
    const char *name = json_string_value(json_object_get(facts, "device_name"));
    printf("device      %s:0  %s", platform, *name ? name : "(unnamed)");
    if (json_is_array(capability))
        printf(", capability %d.%d", (int)json_integer_value(json_array_get(capability, 0)),
               (int)json_integer_value(json_array_get(capability, 1)));
    if (cudnn) printf(", cuDNN %d.%d.%d", cudnn / 10000, cudnn / 100 % 100, cudnn % 100);
    printf("\n");
    json_decref(facts);
}

static void print_probes(const attn_context *context)
{
    attn_probe_info p = {.size = sizeof p};
    for (size_t i = 0; attn_probe_at(context, i, &p); i++)
        printf("%s%-5s %s: %s\n", i ? "            " : "probes      ", p.name, p.positive ? "found" : "no",
               p.text);
}

/* named: the path that the user gave; NULL: none, or "" for no modules at all. */
static void print_modules(const attn_context *context, const char *named)
{
    attn_module_info m = {.size = sizeof m};
    size_t count = 0;
    for (; attn_module_at(context, count, &m); count++) {
        int good = m.kind == ATTN_KIND_NONE;
        printf("%s%s%s%s  %s", count ? "            " : "modules     ",
               report_begin(stdout, good ? REPORT_GOOD : REPORT_BAD), good ? "accepted" : "refused ",
               report_end(stdout), m.path);
        if (*m.name) printf("  %s %s", m.name, m.version ? m.version : "");
        printf("\n");
        if (!good) printf("            %s: %s\n", attn_kind_name(m.kind), m.text);
    }
    if (count == 0) printf("modules     none found%s%s\n", named && *named ? " in " : "", named ? named : "");
}

static void print_variables(void)
{
    static const char *const headings[] = {"variable", "value", "meaning", NULL};
    struct report_table *table = report_table_new(headings);
    const struct docs_variable *row;
    for (size_t i = 0; table && (row = docs_variable_at(i)); i++) {
        const char *value = getenv(row->name);
        report_cell(table, "%s", row->name);
        if (value)
            report_cell(table, "'%s'", value);
        else
            report_cell(table, "(unset)");
        report_cell(table, "%s", row->meaning);
    }
    if (!table) return;
    printf("\nEnvironment\n\n");
    report_table_print(stdout, table, REPORT_TABLE);
    report_table_free(table);
}

static int info_text(const attn_context *context, const attn_context_info *info, const char *named)
{
    printf("attn        %s\n", attn_version());
    printf("platform    %s\n", info->platform);
    print_device(context, info->platform);
    printf("device      cpu:0  %s, %ld cores online\n", info->cpu, sysconf(_SC_NPROCESSORS_ONLN));
    printf("kernels     %s: %s\n", info->isa, info->isa_text);
    printf("threads     %s\n", info->thread_text);
    printf("profile     %s\n", *info->profile ? info->profile : "none");
    print_probes(context);
    print_modules(context, named);
    printf("libraries   jansson %s, %s\n", jansson_version_str(), machine_libc());
    print_variables();
    return CLI_OK;
}

static int info_run(int argc, char **argv)
{
    struct values values = {.context.modules_told = 1};
    attn_context *context;
    attn_context_info info = {.size = sizeof info};
    attn_error error = ATTN_ERROR_INIT;
    int code = options_parse(&command_info, argc, argv, &values, NULL);
    if (code != OPTIONS_GO_ON) return code;
    if (context_open(&values.context, NULL, &context, &error))
        return report_failure_json(&error, values.json);
    attn_context_get_info(context, &info);
    const char *path = values.context.module_path ? values.context.module_path : getenv("ATTN_MODULE_PATH");
    code = values.json ? info_json(context, &info) : info_text(context, &info, path);
    attn_close(context);
    return code;
}

static const struct option_row rows[] = {
    OPTION_ROW_FLAG(struct values, json, "json", NULL, "one JSON object"),
    OPTION_ROW_TEXT(struct values, context.isa, "isa", NULL, "NAME",
                    "caps the CPU kernel set; attn info names them"),
    OPTION_ROW_INT(struct values, context.threads, "threads", "t", "N", "threads at most", 1, 4096),
    OPTION_ROW_TEXT(struct values, context.module_path, "module-path", NULL, "PATHS",
                    "colon-separated module files and folders; \"\": none"),
    OPTION_ROW_TEXT(struct values, context.profile, "profile", NULL, "FILE",
                    "measured choices by attn tune, which plans follow; \"\": none"),
    OPTION_ROW_TEXT(struct values, context.platform, "platform", NULL, "NAME", "pins a platform"),
    OPTION_ROW_FLAG(struct values, context.verbose, "verbose", "v", "prints the library's log on stderr"),
    OPTION_ROW_END,
};

const struct cli_command command_info = {
    .usage = "[OPTION]...",
    .text =
        "Shows what the library found on this machine: the platform, the CPU and the kernel set that runs "
        "on\n"
        "it and why, the thread count and where it comes from, modules that were found and, when one was\n"
        "refused, the loader's own words, and the environment variables that are honoured.",
    .examples = "  attn info\n"
                "  attn info --json\n"
                "  ATTN_ISA=avx2 attn info\n",
    .options = rows,
    .run = info_run,
};
