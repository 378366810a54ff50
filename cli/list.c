/* list.c: attn list, the backends and implementations that there are. */
#include <attn/attn.h>
#include <stdio.h>
#include <string.h>

#include "catalog.h"
#include "catalog_llm.h"
#include "cli.h"
#include "options_context.h"
#include "report.h"

struct values {
    struct context_values context;
    const char *format;
    int json, markdown;
};

static int list_json(const attn_context *context)
{
    json_t *object = json_pack("{s:o, s:o}", "backends", catalog_backends_json(context), "implementations",
                               catalog_impls_json(context));
    report_json_error(object, NULL);
    return report_json(object);
}

static const struct {
    const char *title;
    struct report_table *(*make)(const attn_context *context, enum report_format format);
} tables[] = {
    {"Backends: names that a configuration may use, with their contracts", catalog_backends},
    {"Implementations: the code behind them in this context", catalog_impls},
    {"Features of the implementations", catalog_features},
};

static int list_tables(const attn_context *context, enum report_format format)
{
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        struct report_table *table = tables[i].make(context, format);
        if (!table) {
            report_error("no memory for a table");
            return CLI_RUNTIME;
        }
        printf(format == REPORT_MARKDOWN ? "%s## %s\n\n" : "%s%s\n\n", i ? "\n" : "", tables[i].title);
        report_table_print(stdout, table, format);
        report_table_free(table);
    }
    return CLI_OK;
}

static int list_domain(const attn_context *context, attn_domain domain, const char *name)
{
    if (strcmp(name, "json") != 0)
        return catalog_domain_print(stdout, context, domain,
                                    strcmp(name, "markdown") ? REPORT_TABLE : REPORT_MARKDOWN);
    json_t *object = catalog_domain_json(context, domain);
    report_json_error(object, NULL);
    return report_json(object);
}

static int list_run(int argc, char **argv)
{
    struct values values = {.format = "table"};
    attn_context *context;
    attn_error error = ATTN_ERROR_INIT;
    int code = options_parse(&command_list, argc, argv, &values, NULL);
    if (code != OPTIONS_GO_ON) return code;
    if (values.json) values.format = "json";
    if (values.markdown) values.format = "markdown";
    if (strcmp(values.format, "table") && strcmp(values.format, "json") &&
        strcmp(values.format, "markdown")) {
        report_error("--format is '%s', expected table, json or markdown", values.format);
        return CLI_USAGE;
    }
    int json = strcmp(values.format, "json") == 0;
    attn_domain domain;
    if (context_domain(&values.context, &domain, &error)) return report_failure_json(&error, json);
    if (context_open(&values.context, NULL, &context, &error)) return report_failure_json(&error, json);
    code = domain ? list_domain(context, domain, values.format)
           : json ? list_json(context)
                  : list_tables(context, strcmp(values.format, "markdown") ? REPORT_TABLE : REPORT_MARKDOWN);
    attn_close(context);
    return code;
}

static const struct option_row rows[] = {
    OPTION_ROW_TEXT(struct values, format, "format", NULL, "NAME", "table (default), json or markdown"),
    OPTION_ROW_FLAG(struct values, json, "json", NULL, "the same as --format json"),
    OPTION_ROW_FLAG(struct values, markdown, "markdown", NULL, "the same as --format markdown"),
    OPTION_ROW_TEXT(struct values, context.domain, "domain", NULL, "NAME",
                    "diffusion (default), llm or vision: whose tables"),
    OPTION_ROW_TEXT(struct values, context.module_path, "module-path", NULL, "PATHS",
                    "colon-separated module files and folders; \"\": none"),
    OPTION_ROW_TEXT(struct values, context.platform, "platform", NULL, "NAME", "pins a platform"),
    OPTION_ROW_END,
};

const struct cli_command command_list = {
    .usage = "[OPTION]...",
    .text = "Lists the backends (public names, each with the contract that holds for it anywhere) and the\n"
            "implementations (code that is in this library or came from a module), with their features.",
    .examples = "  attn list\n"
                "  attn list --domain llm --format markdown\n"
                "  attn list --format markdown --module-path ./libmine.so\n"
                "  attn list --json | jq '.implementations[].name'\n",
    .options = rows,
    .run = list_run,
};
