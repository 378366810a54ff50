/* docs_pages.c: the reference pages. */
#include <inttypes.h>
#include <string.h>

#include "bench_shapes.h"
#include "catalog.h"
#include "docs.h"
#include "problem.h"
#include "report.h"

static void print_table(FILE *out, struct report_table *table)
{
    if (table) report_table_print(out, table, REPORT_MARKDOWN);
    report_table_free(table);
}

/* ---- lists of attn.h ---------------------------------------------------------------------------- */

static void print_exits(FILE *out)
{
    static const char *const headings[] = {">exit code", "meaning", NULL};
    struct report_table *table = report_table_new(headings);
    const struct docs_exit *row;
    for (size_t i = 0; table && (row = docs_exit_at(i)); i++) {
        report_cell(table, "%d", row->code);
        report_cell(table, "%s", row->meaning);
    }
    print_table(out, table);
}

void docs_statuses(FILE *out, const attn_context *context)
{
    static const char *const headings[] = {">value", "status", "constant", "meaning", NULL};
    struct report_table *table = report_table_new(headings);
    (void)context;
    if (table) {
#define X(name, value, text, sentence)                                                                       \
    report_cell(table, "%d", value);                                                                         \
    report_cell(table, "`%s`", text);                                                                        \
    report_cell(table, "`ATTN_%s`", #name);                                                                  \
    report_cell(table, "%s", sentence);
        ATTN_STATUS_LIST(X)
#undef X
    }
    fprintf(
        out,
        "What every function that can fail returns. Values never change; new ones are added at the end. An "
        "`attn_error` also holds\na [kind](kinds.md), which says why, and one sentence.\n\n");
    print_table(out, table);
}

void docs_kinds(FILE *out, const attn_context *context)
{
    static const char *const headings[] = {">value",     "kind",    "constant", "status",
                                           ">exit code", "meaning", NULL};
    struct report_table *table = report_table_new(headings);
    (void)context;
    if (table) {
#define X(name, value, text, status, code, sentence)                                                         \
    report_cell(table, "%d", value);                                                                         \
    report_cell(table, "`%s`", text);                                                                        \
    report_cell(table, "`ATTN_KIND_%s`", #name);                                                             \
    report_cell(table, "`%s`", attn_status_name(ATTN_##status));                                             \
    report_cell(table, "%d", code);                                                                          \
    report_cell(table, "%s", sentence);
        ATTN_KIND_LIST(X)
#undef X
    }
    fprintf(out, "Why a call failed, in a word that programs can test. Each kind has one "
                 "[status](statuses.md). The exit "
                 "code is that of a\nprogram which ends for this reason, as `attn` does.\n\n");
    print_table(out, table);
    fprintf(out, "\n## Exit codes of the command\n\n");
    print_exits(out);
}

void docs_dtypes(FILE *out, const attn_context *context)
{
    static const char *const headings[] = {">value", "dtype", "constant", ">bits", ">DLPack code", NULL};
    struct report_table *table = report_table_new(headings);
    (void)context;
    if (table) {
#define X(name, value, text, dl_code, bits)                                                                  \
    report_cell(table, "%d", value);                                                                         \
    report_cell(table, "`%s`", text);                                                                        \
    report_cell(table, "`ATTN_%s`", #name);                                                                  \
    report_cell(table, "%d", bits);                                                                          \
    report_cell(table, "%d", dl_code);
        ATTN_DTYPE_LIST(X)
#undef X
    }
    fprintf(out, "Names of element types in options, problem strings and reports. Which of them an "
                 "implementation takes "
                 "for q, k and v\nstands on the page [implementations](implementations.md).\n\n");
    print_table(out, table);
}

void docs_features(FILE *out, const attn_context *context)
{
    static const char *const headings[] = {">bit", "feature", "constant", "meaning", NULL};
    struct report_table *table = report_table_new(headings);
    (void)context;
    if (table) {
#define X(name, bit, text, sentence)                                                                         \
    report_cell(table, "%d", bit);                                                                           \
    report_cell(table, "`%s`", text);                                                                        \
    report_cell(table, "`ATTN_FEATURE(%s)`", #name);                                                         \
    report_cell(table, "%s", sentence);
        ATTN_FEATURE_LIST(X)
#undef X
    }
    fprintf(out,
            "What a call may ask of an implementation. A layer that names its needs when it opens gets an "
            "implementation that has\nthem; an explicit choice that lacks one is refused. Which "
            "implementation has "
            "which stands on the page\n[implementations](implementations.md).\n\n");
    print_table(out, table);
}

/* ---- what the library offers -------------------------------------------------------------------- */

void docs_backends(FILE *out, const attn_context *context)
{
    fprintf(
        out,
        "Public names that a configuration may use. The columns are the contract of a name, which holds "
        "anywhere; `mask` and\n`spans` say whether it accepts an attention mask and piecewise "
        "full-attention spans. The last column names the\nimplementations that this build has for platform "
        "cpu, which may do more than the contract. A name without one is\nrefused as `package_missing` until "
        "a "
        "module brings it.\n\n");
    print_table(out, catalog_backends(context, REPORT_MARKDOWN));
}

void docs_implementations(FILE *out, const attn_context *context)
{
    fprintf(
        out,
        "The code that this build has for platform cpu. A module adds rows; `attn list` prints those of a "
        "machine.\n\n");
    print_table(out, catalog_impls(context, REPORT_MARKDOWN));
    fprintf(out, "\n## Features\n\n");
    print_table(out, catalog_features(context, REPORT_MARKDOWN));
}

/* ---- the command -------------------------------------------------------------------------------- */

/* "-b, --backend NAME" */
static void print_option_name(FILE *out, const struct option_row *row)
{
    const char *argument = row->argument ? row->argument : "";
    if (row->short_name) fprintf(out, "-%s, ", row->short_name);
    int apart =
        *argument && *argument != '[' && row->name[strlen(row->name) - 1] != '.'; /* "--config.PATH VALUE" */
    fprintf(out, "--%s%s%s", row->name, apart ? " " : "", argument);
}

/* The lines of a text behind one another. */
static void print_joined(FILE *out, const char *text)
{
    for (; *text; text++) fputc(*text == '\n' ? ' ' : *text, out);
}

static void print_options(FILE *out, const struct option_row *row)
{
    for (int first = 1; row->kind != OPTION_END; row++) {
        if (row->kind == OPTION_HEADING) {
            fprintf(out, "\n%s:\n", row->help);
            first = 1;
            continue;
        }
        if (first) fprintf(out, "\n");
        first = 0;
        fprintf(out, "- `");
        print_option_name(out, row);
        fprintf(out, "`: ");
        print_joined(out, row->help);
        fprintf(out, "\n");
    }
}

/* Each line of a block, indented as Markdown code. */
static void print_code(FILE *out, const char *text)
{
    while (*text) {
        text += strspn(text, " ");
        size_t n = strcspn(text, "\n");
        if (n) fprintf(out, "    %.*s\n", (int)n, text);
        text += n + (text[n] == '\n');
    }
}

static void print_command(FILE *out, const struct docs_command *row)
{
    const struct cli_command *command = row->command;
    fprintf(out, "\n## attn %s\n\n", row->name);
    fprintf(out, "    attn %s%s%s\n\n", row->name, command->usage[0] ? " " : "", command->usage);
    fprintf(out, "%s\n", command->text && command->text[0] ? command->text : row->summary);
    print_options(out, command->options);
    if (command->examples && command->examples[0]) {
        fprintf(out, "\n");
        print_code(out, command->examples);
    }
}

void docs_commands(FILE *out, const attn_context *context)
{
    static const char *const headings[] = {"command", "does", NULL};
    struct report_table *table = report_table_new(headings);
    const struct docs_command *row;
    (void)context;
    for (size_t i = 0; table && (row = docs_command_at(i)); i++) {
        report_cell(table, "`attn %s`", row->name);
        report_cell(table, "%s", row->summary);
    }
    fprintf(out, "Options are GNU long options and may stand anywhere. Every command has `--help`. Results "
                 "go to standard "
                 "output, progress\nand errors to standard error, and colour to a terminal only.\n\n");
    print_table(out, table);
    fprintf(out, "\n");
    print_exits(out);
    for (size_t i = 0; (row = docs_command_at(i)); i++) print_command(out, row);
}

void docs_problems(FILE *out, const attn_context *context)
{
    static const char *const headings[] = {"key", "meaning", "feature", NULL};
    struct report_table *table = report_table_new(headings);
    struct problem_key_info key;
    (void)context;
    for (size_t i = 0; table && problem_key_at(i, &key); i++) {
        report_cell(table, "`%s%s`", key.name, key.argument);
        report_cell(table, "%s", key.help);
        if (key.feature >= 0)
            report_cell(table, "`%s`", attn_feature_name(key.feature));
        else
            report_cell(table, "-");
    }
    fprintf(
        out,
        "One attention problem as one word, the same for every command and printed back in every report of a "
        "failure:\n\n"
        "    b N h N [kvh N] s N [x N] d N [v N] : dtype { : key[=value] }      without blanks\n\n"
        "`b` samples, `h` query heads, `kvh` key and value heads (as `h`), `s` queries, `x` keys (as `s`), "
        "`d` "
        "head size, `v` head\nsize of the values (as `d`). A number may be a list `64,72,80` or a range "
        "`512-4096*2` that multiplies by its last\nnumber; the word then stands for every combination.\n\n"
        "    b1h24s4096d128:bf16\n"
        "    b1h40s14040x512d128:bf16:mask=key\n"
        "    b8h32kvh8s1x4096d128:bf16:causal\n"
        "    b1h128kvh1s1x4096d576v512:bf16\n\n");
    print_table(out, table);
}

void docs_environment(FILE *out, const attn_context *context)
{
    static const char *const headings[] = {"variable", "meaning", "when it is not set", NULL};
    struct report_table *table = report_table_new(headings);
    const struct docs_variable *row;
    (void)context;
    for (size_t i = 0; table && (row = docs_variable_at(i)); i++) {
        report_cell(table, "`%s`", row->name);
        report_cell(table, "%s", row->meaning);
        report_cell(table, "%s", row->unset);
    }
    fprintf(out, "Every variable that the library or the command reads. `attn info` prints their values. A "
                 "context that "
                 "is opened with\n`ATTN_OPEN_IGNORE_ENV` reads none.\n\n");
    print_table(out, table);
}

void docs_shapes(FILE *out, const attn_context *context)
{
    static const char *const headings[] = {"model", "site", "problem", ">scale", "usual", "source", NULL};
    struct report_table *table = report_table_new(headings);
    const struct bench_shape *row;
    (void)context;
    for (size_t i = 0; table && (row = bench_shape_at(i)); i++) {
        struct problem_list list;
        attn_error error = ATTN_ERROR_INIT;
        double scale = problem_parse(row->problem, &list, &error) ? 0 : bench_scale_for(&list.items[0]);
        report_cell(table, "%s", row->model);
        report_cell(table, "%s", row->site);
        report_cell(table, "`%s`", row->problem);
        report_cell(table, "%g", scale);
        report_cell(table, "%s", row->usual ? "yes" : "-");
        report_cell(table, "%s", row->source);
        problem_list_free(&list);
    }
    fprintf(
        out,
        "Attention of real models, from their public configurations. `attn bench` measures the usual rows, "
        "`--all` every row,\n`--model` those of a model. Sequence lengths above 512 are divided by the "
        "scale, "
        "though not below 512, unless `--scale`\nsays otherwise: what leaves about %g "
        "GFLOP.\n\n",
        1e-9 * BENCH_FLOP);
    print_table(out, table);
}
