/* plugin.c: attn plugin, sparse plugins: which there are, whether one holds, a new one to begin with. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "call.h"
#include "cli.h"
#include "crash.h"
#include "options_context.h"
#include "plugin_check.h"
#include "plugin_new.h"
#include "report.h"

struct values {
    struct context_values context;
    struct option_texts problems;
    const char *params_text, *form;
    attn_params *params; /* params_text, read */
    int json, markdown;
};

/* What `check` runs unless problems are given: both types, several samples and heads, lengths that blocks do
 * not divide, causal order, as many keys as queries and not. */
static const char *const problems_of_ours[] = {
    "b1h2s256d64:bf16",         "b2h3s320d32:f16",      "b1h2s300d64:f16:causal",
    "b2h2s520d128:bf16:causal", "b1h2s256x100d64:bf16", "b1h1s77x512d80:f16",
};

/* ---- list ---------------------------------------------------------------------------------------- */

/* "causal, lse" */
static char *feature_words(uint64_t features, char *text, size_t bytes)
{
    size_t used = 0;
    *text = 0;
    for (int bit = 0; attn_feature_name(bit) && used < bytes; bit++)
        if (features >> bit & 1)
            used +=
                (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", attn_feature_name(bit));
    return text;
}

static const char *form_of(const attn_plugin_info *info)
{
    return info->selects ? "selector" : "kernel";
}

static json_t *plugin_json(const attn_plugin_info *info)
{
    json_t *features = json_array();
    for (int bit = 0; attn_feature_name(bit); bit++)
        if (info->features >> bit & 1) json_array_append_new(features, json_string(attn_feature_name(bit)));
    return json_pack("{s:s, s:s, s:s, s:s?, s:s, s:s, s:o, s:b}", "name", info->name, "form", form_of(info),
                     "implementation", info->implementation, "summary", info->summary, "platform",
                     info->platform, "file", info->path, "features", features, "geometry", info->geometry);
}

static int list_json(const attn_context *context)
{
    json_t *plugins = json_array(), *files = json_array();
    attn_plugin_info info = {.size = sizeof info};
    attn_module_info module = {.size = sizeof module};
    for (size_t i = 0; attn_plugin_at(context, i, &info); i++)
        json_array_append_new(plugins, plugin_json(&info));
    for (size_t i = 0; attn_module_at(context, i, &module); i++)
        json_array_append_new(files, json_pack("{s:s, s:b, s:s?, s:s}", "file", module.path, "loaded",
                                               module.kind == ATTN_KIND_NONE, "kind",
                                               module.kind ? attn_kind_name(module.kind) : NULL, "text",
                                               module.text));
    json_t *object = json_pack("{s:o, s:o}", "plugins", plugins, "files", files);
    report_json_error(object, NULL);
    return report_json(object);
}

static size_t print_plugins(const attn_context *context, enum report_format format)
{
    static const char *const headings[] = {"plugin",   "form", "platform", "features",
                                           "geometry", "file", NULL};
    struct report_table *table = report_table_new(headings);
    attn_plugin_info info = {.size = sizeof info};
    size_t count = 0;
    char words[512];
    for (; table && attn_plugin_at(context, count, &info); count++) {
        report_cell(table, "%s", info.name);
        report_cell(table, "%s", form_of(&info));
        report_cell(table, "%s", info.platform);
        report_cell(table, "%s", feature_words(info.features, words, sizeof words));
        report_cell(table, "%s", info.geometry ? "its own" : "");
        report_cell(table, "%s", info.path);
    }
    if (count)
        report_table_print(stdout, table, format);
    else
        printf("no sparse plugin was found; --module-path and ATTN_MODULE_PATH name files and folders\n");
    report_table_free(table);
    return count;
}

/* Every file that was looked at: what became of it, or why it was refused. */
static void print_files(const attn_context *context, enum report_format format)
{
    static const char *const headings[] = {"file", "what became of it", NULL};
    struct report_table *table = report_table_new(headings);
    attn_module_info module = {.size = sizeof module};
    size_t count = 0;
    for (; table && attn_module_at(context, count, &module); count++) {
        report_cell(table, "%s", module.path);
        report_cell(table, "%s%s%s", module.kind ? attn_kind_name(module.kind) : "", module.kind ? ": " : "",
                    module.text);
        if (module.kind) report_cell_style(table, REPORT_BAD);
    }
    if (count) putchar('\n');
    if (count) report_table_print(stdout, table, format);
    report_table_free(table);
}

static int list(struct values *values, char **words, int count)
{
    attn_context *context = NULL;
    attn_error error = ATTN_ERROR_INIT;
    (void)words;
    if (count) {
        report_error("list takes no further words, and %d were given", count);
        return CLI_USAGE;
    }
    values->context.modules_told = 1;
    if (context_open(&values->context, NULL, &context, &error))
        return report_failure_json(&error, values->json);
    int code = CLI_OK;
    if (values->json) {
        code = list_json(context);
    } else {
        print_plugins(context, values->markdown ? REPORT_MARKDOWN : REPORT_TABLE);
        print_files(context, values->markdown ? REPORT_MARKDOWN : REPORT_TABLE);
    }
    attn_close(context);
    return code;
}

/* ---- check --------------------------------------------------------------------------------------- */

struct tally {
    const struct values *values;
    struct problem_list problems;
    json_t *plugins; /* NULL: text */
    int counts[PLUGIN_REFUSED + 1];
};

static attn_status read_problems(const struct values *values, struct problem_list *list, attn_error *error)
{
    const struct call_extra extra = {.exact = 1, .masks = 1, .outcomes = 4};
    size_t ours = values->problems.count ? 0 : sizeof problems_of_ours / sizeof *problems_of_ours;
    attn_status status = ATTN_OK;
    for (size_t i = 0; !status && i < ours; i++) status = problem_append(list, problems_of_ours[i], error);
    for (size_t i = 0; !status && i < values->problems.count; i++)
        status = problem_append(list, values->problems.items[i], error);
    for (size_t i = 0; !status && i < list->count; i++) status = call_fits(&list->items[i], &extra, error);
    return status;
}

/* A context in which every role takes that plugin, also when a backend has its name. */
static attn_status open_with(const struct values *values, const char *name, attn_context **context,
                             attn_error *error)
{
    json_t *config =
        json_pack("{s:{s:s, s:{s:s}}}", "default", "backend", "SPARSE_ATTN", "extra", "backend", name);
    char *text = config ? json_dumps(config, JSON_COMPACT) : NULL;
    struct context_values with = values->context;
    with.config = text;
    with.modules_told = 1;
    attn_status status =
        text ? context_open(&with, NULL, context, error)
             : cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a configuration with '%s'", name);
    json_decref(config);
    free(text);
    return status;
}

static attn_status open_reference(attn_context **context, attn_error *error)
{
    struct context_values plain = {.backend = "TORCH_SDPA", .module_path = ""};
    return context_open(&plain, NULL, context, error);
}

static const char *const verdicts[] = {"passed", "FAILED", "refused"};

static void add_row(struct report_table *table, const struct plugin_result *r)
{
    report_cell(table, "%s", r->text);
    report_cell(table, "%s", verdicts[r->verdict]);
    report_cell_style(table, r->verdict == PLUGIN_FAILED ? REPORT_BAD : REPORT_GOOD);
    report_cell(table, r->report[0] ? "%.1f %%" : "", 100 * r->kept);
    report_cell(table, isnan(r->cosine) ? "" : "%.6f", r->cosine);
    report_cell(table, isnan(r->cosine) ? "" : "%.3g", r->relative_l2);
    report_cell(table, "%s", r->verdict == PLUGIN_PASSED ? r->map : r->error.text);
}

/* null where the plugin was not run to the end */
static json_t *distance_json(double value)
{
    return isnan(value) ? json_null() : report_real(value);
}

static json_t *result_json(const struct plugin_result *r)
{
    json_t *row = json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o}", "problem", r->text, "verdict",
                            r->verdict == PLUGIN_FAILED ? "failed" : verdicts[r->verdict], "report",
                            r->report, "map", r->map, "kept", report_real(r->kept), "cosine",
                            distance_json(r->cosine), "relative_l2", distance_json(r->relative_l2));
    report_json_error(row, r->verdict == PLUGIN_PASSED ? NULL : &r->error);
    return row;
}

static void run_problems(struct tally *tally, const struct plugin_subject *subject,
                         struct report_table *table, json_t *rows)
{
    for (size_t i = 0; i < tally->problems.count && !cli_interrupted(); i++) {
        struct plugin_result result;
        char text[PROBLEM_TEXT_BYTES];
        problem_format(&tally->problems.items[i], text, sizeof text);
        crash_note("\nattn plugin: '%.60s' crashed in --problem %s\n", subject->info.name, text);
        plugin_check(subject, &tally->problems.items[i], &result);
        tally->counts[result.verdict]++;
        if (table) add_row(table, &result);
        if (rows) json_array_append_new(rows, result_json(&result));
    }
}

static void print_about(const attn_plugin_info *info)
{
    char words[512];
    printf("%s: %s form, for tensors of %s%s\n%s\nfeatures: %s\n\n", info->name, form_of(info),
           info->platform, info->geometry ? ", with a geometry of its own" : "", info->path,
           feature_words(info->features, words, sizeof words));
}

static attn_status check_one(struct tally *tally, const struct plugin_subject *subject, attn_error *error)
{
    static const char *const headings[] = {"problem", "", ">kept", ">cosine", ">rel L2", "", NULL};
    struct report_table *table = tally->plugins ? NULL : report_table_new(headings);
    json_t *rows = tally->plugins ? json_array() : NULL;
    if (!table && !rows) return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a table");
    if (table) print_about(&subject->info);
    run_problems(tally, subject, table, rows);
    if (table) report_table_print(stdout, table, REPORT_TABLE);
    report_table_free(table);
    if (!rows) return ATTN_OK;
    json_t *plugin = plugin_json(&subject->info);
    json_object_set_new(plugin, "problems", rows);
    json_array_append_new(tally->plugins, plugin);
    return ATTN_OK;
}

static attn_status check_plugin(struct tally *tally, const attn_plugin_info *info, attn_context *reference,
                                attn_error *error)
{
    struct plugin_subject subject = {.info = *info, .reference = reference, .params = tally->values->params};
    if (strcmp(info->platform, "cpu") != 0 && strcmp(info->platform, "*") != 0)
        return cli_fail(error, ATTN_KIND_DEVICE_MISMATCH,
                        "plugin '%.60s' takes tensors of %.40s, and the command makes them on the cpu alone; "
                        "test it from a program that holds such tensors",
                        info->name, info->platform);
    attn_status status = open_with(tally->values, info->name, &subject.context, error);
    if (!status) status = check_one(tally, &subject, error);
    attn_close(subject.context);
    return status;
}

/* The plugins of the file; what was refused or is no plugin cannot be checked. The file is looked at first,
 * and behind it those that are installed. */
static attn_status check_file(struct tally *tally, const attn_context *found, attn_context *reference,
                              attn_error *error)
{
    const char *path = tally->values->context.module_path;
    attn_module_info module = {.size = sizeof module};
    attn_plugin_info info = {.size = sizeof info};
    attn_status status = ATTN_OK;
    int count = 0;
    if (!attn_module_at(found, 0, &module))
        return cli_fail(error, ATTN_KIND_MODULE_UNLOADABLE, "%.200s holds no shared object", path);
    if (module.kind) return cli_fail(error, module.kind, "%s", module.text);
    for (size_t i = 0; !status && attn_plugin_at(found, i, &info); i++) {
        if (strcmp(info.path, module.path) != 0) continue;
        status = check_plugin(tally, &info, reference, error);
        count++;
    }
    if (status || count) return status;
    return cli_fail(error, ATTN_KIND_SPARSE_PLUGIN_MISSING, "%.200s is a module without sparse plugins",
                    path);
}

/* Nothing but refusals is no success: nothing was checked. */
static int code_of(const struct tally *tally)
{
    return cli_interrupted()               ? CLI_INTERRUPTED
           : tally->counts[PLUGIN_FAILED]  ? CLI_FAILED_CHECK
           : !tally->counts[PLUGIN_PASSED] ? CLI_REFUSED
                                           : CLI_OK;
}

static int conclude(struct tally *tally)
{
    const int *n = tally->counts;
    if (!tally->plugins) {
        printf("\n%d passed, %d failed, %d refused\n", n[PLUGIN_PASSED], n[PLUGIN_FAILED], n[PLUGIN_REFUSED]);
        return code_of(tally);
    }
    json_t *object = json_pack("{s:O, s:i, s:i, s:i}", "plugins", tally->plugins, "passed", n[PLUGIN_PASSED],
                               "failed", n[PLUGIN_FAILED], "refused", n[PLUGIN_REFUSED]);
    report_json_error(object, NULL);
    int written = report_json(object);
    return written ? written : code_of(tally);
}

/* What cannot be loaded is refused, whatever its kind says to others. */
static int refuse(const attn_error *error, int json)
{
    int code = report_failure_json(error, json);
    return error->kind == ATTN_KIND_OUT_OF_MEMORY ? code : CLI_REFUSED;
}

static int check(struct values *values, char **words, int count)
{
    struct tally tally = {.values = values, .plugins = values->json ? json_array() : NULL};
    attn_context *found = NULL, *reference = NULL;
    attn_error error = ATTN_ERROR_INIT;
    int code = CLI_OK;
    attn_status status = ATTN_OK;
    struct stat about;
    if (count != 1 || strchr(words[0], ':') || (!stat(words[0], &about) && S_ISDIR(about.st_mode)))
        status = cli_fail(&error, ATTN_KIND_INVALID_VALUE,
                          "check takes one file, no folder, without colons in its name; %d words were given",
                          count);
    if (!status && values->params_text)
        status = attn_params_parse(values->params_text, &values->params, &error);
    if (!status) status = read_problems(values, &tally.problems, &error);
    values->context.module_path = count ? words[0] : "";
    values->context.modules_told = 1;
    if (!status) status = context_open(&values->context, NULL, &found, &error);
    if (!status) status = open_reference(&reference, &error);
    if (status) {
        code = report_failure_json(&error, values->json);
    } else {
        crash_catch();
        code = check_file(&tally, found, reference, &error) ? refuse(&error, values->json) : conclude(&tally);
    }
    attn_close(reference);
    attn_close(found);
    problem_list_free(&tally.problems);
    attn_params_free(values->params);
    json_decref(tally.plugins);
    return code;
}

/* ---- new ----------------------------------------------------------------------------------------- */

static int make_new(struct values *values, char **words, int count)
{
    attn_error error = ATTN_ERROR_INIT;
    if (count != 1) {
        report_error("new takes the name of the plugin, and %d words were given", count);
        return CLI_USAGE;
    }
    if (plugin_new(words[0], values->form ? values->form : "selector", &error))
        return report_failure_json(&error, values->json);
    return CLI_OK;
}

/* ---- the command --------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    int (*run)(struct values *values, char **words, int count);
} verbs[] = {{"list", list}, {"check", check}, {"new", make_new}};

static int run(int argc, char **argv)
{
    struct values values = {.form = NULL};
    int first = argc, code = options_parse(&command_plugin, argc, argv, &values, &first);
    if (code != OPTIONS_GO_ON) return code;
    const char *word = first < argc ? argv[first] : "";
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(word, verbs[i].name) == 0)
            return verbs[i].run(&values, argv + first + 1, argc - first - 1);
    report_error("\"%s\" is nothing to do with plugins; expected list, check FILE or new NAME", word);
    return CLI_USAGE;
}

static const struct option_row rows[] = {
    OPTION_ROW_HEADING("list"),
    OPTION_ROW_TEXT(struct values, context.module_path, "module-path", NULL, "PATHS",
                    "colon-separated module files and folders; \"\": none"),
    OPTION_ROW_FLAG(struct values, markdown, "markdown", NULL, "Markdown"),
    OPTION_ROW_HEADING("check"),
    OPTION_ROW_TEXTS(struct values, problems, "problem", "p", "STRING",
                     "this problem instead; may be repeated"),
    OPTION_ROW_TEXT(struct values, params_text, "params", NULL, "JSON",
                    "parameters of every call: {\"near\": 2, \"block_k\": 128}"),
    OPTION_ROW_INT(struct values, context.threads, "threads", "t", "N", "threads at most", 1, 4096),
    OPTION_ROW_HEADING("new"),
    OPTION_ROW_TEXT(struct values, form, "form", NULL, "NAME", "selector (default), kernel or cpp"),
    OPTION_ROW_HEADING("Report"),
    OPTION_ROW_FLAG(struct values, json, "json", "j", "one JSON object (list and check)"),
    OPTION_ROW_END,
};

const struct cli_command command_plugin = {
    .usage = "list | check FILE | new NAME [OPTION]...",
    .text =
        "list   prints the sparse plugins that are found, and every file looked at with what became of it.\n"
        "check  loads FILE and runs its plugins on small random problems, with a per-forward state as a\n"
        "       pipeline publishes it. Every element must be written and finite, two runs must agree bit\n"
        "       by bit, memory around the outputs must stay as it was. A selector's output is held against\n"
        "       the reference under the map that it chose; to read that map, a second run gives each key a\n"
        "       value of its own, so a choice must not depend on v. How far the output is from dense\n"
        "       attention is printed and not judged. Exit code 1: something failed, 3: not loaded, or\n"
        "       nothing was run.\n"
        "new    writes the first file of a plugin, which builds and passes the check.",
    .examples = "  attn plugin new topk --form kernel\n"
                "  attn plugin check ./topk.so --params '{\"reach\": 64}'\n"
                "  attn plugin check ./topk.so --problem b1h8s1024d128:bf16:causal\n"
                "  attn plugin list --module-path ./plugins --json\n",
    .options = rows,
    .operands_max = 3,
    .run = run,
};
