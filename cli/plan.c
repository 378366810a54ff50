/* plan.c: attn plan, what a call will use before it runs: kernels, tiles, memory, arithmetic. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench_shapes.h"
#include "cli.h"
#include "contenders.h"
#include "generate.h"
#include "report.h"

struct values {
    struct context_values context;
    struct option_texts backends;
    int json, markdown;
};

/* One implementation on one problem. */
struct row {
    const char *backend;
    char implementation[64], plan[160];
    size_t workspace;
    attn_error error; /* kind none: it can run */
};

struct answer {
    const struct problem *problem;
    size_t count;
    struct row rows[CONTENDERS_MAX];
};

/* ---- asking ------------------------------------------------------------------------------------- */

static attn_status ask_layer(attn_layer *layer, const struct generated *generated, struct row *row)
{
    attn_layer_info info = {.size = sizeof info};
    attn_status status = attn_workspace_size(layer, &generated->args, &row->workspace, &row->error);
    attn_layer_get_info(layer, &info);
    snprintf(row->implementation, sizeof row->implementation, "%s", info.implementation);
    if (!status) snprintf(row->plan, sizeof row->plan, "%s", info.plan);
    return status;
}

/* A refusal is an answer; anything else is a mistake in the request or a failure of the machine. */
static attn_status ask(attn_context *context, const char *backend, const struct generated *generated,
                       struct row *row, attn_error *error)
{
    attn_layer *layer = NULL;
    row->backend = backend;
    row->error = (attn_error)ATTN_ERROR_INIT;
    attn_status status = attn_layer_open(context, &generated->layer, &layer, &row->error);
    if (!status) status = ask_layer(layer, generated, row);
    attn_layer_close(layer);
    if (!status || attn_kind_exit(row->error.kind) == CLI_REFUSED) return ATTN_OK;
    *error = row->error;
    return status;
}

static attn_status answer_problem(const struct contenders *set, const struct problem *problem,
                                  struct answer *answer, attn_error *error)
{
    struct generated generated;
    memset(answer, 0, sizeof *answer);
    attn_status status = generate_shapes(problem, &generated, error);
    if (status) return status;
    answer->problem = problem;
    for (size_t i = 0; !status && i < set->count; i++, answer->count++)
        status = ask(set->contexts[i], set->names[i], &generated, &answer->rows[i], error);
    generate_free(&generated);
    return status;
}

/* ---- text --------------------------------------------------------------------------------------- */

static double intensity(const struct problem *problem)
{
    double bytes = bench_bytes(problem);
    return bytes > 0 ? bench_flop(problem) / bytes : 0;
}

static void print_row(struct report_table *table, const struct answer *answer, const struct row *row,
                      int threads, int first)
{
    char text[PROBLEM_TEXT_BYTES], bytes[32];
    report_cell(table, "%s", first ? problem_format(answer->problem, text, sizeof text) : "");
    report_cell(table, "%s", row->backend);
    report_cell(table, "%s", *row->implementation ? row->implementation : "-");
    if (row->error.kind) {
        report_cell(table, "%s", attn_kind_name(row->error.kind));
        report_cell_style(table, REPORT_FAINT);
        for (int i = 0; i < 5; i++) report_cell(table, "%s", "");
        return;
    }
    report_cell(table, "%s", *row->plan ? row->plan : "-");
    report_cell(table, "%d", threads);
    report_cell(table, "%s", report_bytes((double)row->workspace, bytes));
    report_cell(table, "%.3f", 1e-9 * bench_flop(answer->problem));
    report_cell(table, "%s", report_bytes(bench_bytes(answer->problem), bytes));
    report_cell(table, "%.1f", intensity(answer->problem));
}

static void print_refusals(const struct answer *answers, size_t count)
{
    char text[PROBLEM_TEXT_BYTES];
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < answers[i].count; j++)
            if (answers[i].rows[j].error.kind)
                printf("refused: %s on %s: %s\n", answers[i].rows[j].backend,
                       problem_format(answers[i].problem, text, sizeof text), answers[i].rows[j].error.text);
}

static void print_answers(const attn_context_info *info, const struct answer *answers, size_t count,
                          enum report_format format)
{
    static const char *const headings[] = {"problem",      "backend",    "implementation", "plan",
                                           ">threads",     ">workspace", ">GFLOP",         ">moved",
                                           ">FLOP a byte", NULL};
    struct report_table *table = report_table_new(headings);
    for (size_t i = 0; table && i < count; i++)
        for (size_t j = 0; j < answers[i].count; j++)
            print_row(table, &answers[i], &answers[i].rows[j], info->threads,
                      j == 0 || format == REPORT_MARKDOWN);
    if (table) report_table_print(stdout, table, format);
    report_table_free(table);
    printf("\n");
    print_refusals(answers, count);
    printf("FLOP = %s. Moved: q, k, v and out once.\n", BENCH_FLOP_TEXT);
}

/* ---- JSON --------------------------------------------------------------------------------------- */

static json_t *row_json(const struct row *row)
{
    json_t *object =
        json_pack("{s:s, s:s?, s:s?}", "backend", row->backend, "implementation",
                  *row->implementation ? row->implementation : NULL, "plan", *row->plan ? row->plan : NULL);
    json_object_set_new(object, "workspace_bytes",
                        row->error.kind ? json_null() : json_integer((json_int_t)row->workspace));
    report_json_error(object, row->error.kind ? &row->error : NULL);
    return object;
}

static json_t *answer_json(const struct answer *answer)
{
    char text[PROBLEM_TEXT_BYTES];
    json_t *rows = json_array();
    for (size_t i = 0; i < answer->count; i++) json_array_append_new(rows, row_json(&answer->rows[i]));
    return json_pack(
        "{s:s, s:o, s:o, s:o, s:o}", "problem", problem_format(answer->problem, text, sizeof text), "flop",
        report_real(bench_flop(answer->problem)), "bytes", report_real(bench_bytes(answer->problem)),
        "flop_per_byte", report_real(intensity(answer->problem)), "candidates", rows);
}

static int print_json(const attn_context_info *info, const struct answer *answers, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(list, answer_json(&answers[i]));
    json_t *object = json_pack("{s:s, s:s, s:i, s:s, s:o}", "version", attn_version(), "isa", info->isa,
                               "threads", (int)info->threads, "flop_formula", BENCH_FLOP_TEXT, "plans", list);
    report_json_error(object, NULL);
    return report_json(object);
}

/* ---- the run ------------------------------------------------------------------------------------ */

/* 3 when some problem was refused by every backend. */
static int refused(const struct answer *answers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int usable = 0;
        for (size_t j = 0; j < answers[i].count; j++) usable += !answers[i].rows[j].error.kind;
        if (!usable) return CLI_REFUSED;
    }
    return CLI_OK;
}

static attn_status read_problems(char **words, int count, struct problem_list *list, attn_error *error)
{
    attn_status status = ATTN_OK;
    if (count == 0)
        return cli_fail(error, ATTN_KIND_INVALID_VALUE,
                        "no problem given; write one as b1h24s4096d128:bf16, see attn docs problems");
    for (int i = 0; !status && i < count; i++) status = problem_append(list, words[i], error);
    return status;
}

static int answer_all(const struct contenders *set, const struct problem_list *list, struct answer *answers,
                      const struct values *values)
{
    attn_error error = ATTN_ERROR_INIT;
    attn_context_info info = {.size = sizeof info};
    attn_context_get_info(set->contexts[0], &info);
    for (size_t i = 0; i < list->count; i++)
        if (answer_problem(set, &list->items[i], &answers[i], &error))
            return report_failure_json(&error, values->json);
    int printed = CLI_OK;
    if (values->json)
        printed = print_json(&info, answers, list->count);
    else
        print_answers(&info, answers, list->count, values->markdown ? REPORT_MARKDOWN : REPORT_TABLE);
    return printed == CLI_OK ? refused(answers, list->count) : printed;
}

static int plan_run(int argc, char **argv)
{
    struct values values = {0};
    struct contenders set = {0};
    struct problem_list list = {0};
    struct answer *answers = NULL;
    attn_error error = ATTN_ERROR_INIT;
    int first = argc;
    int code = options_parse(&command_plan, argc, argv, &values, &first);
    if (code != OPTIONS_GO_ON) return code;
    attn_status status = read_problems(argv + first, argc - first, &list, &error);
    if (!status) status = contenders_open(&set, &values.context, &values.backends, &error);
    if (!status && !(answers = calloc(list.count, sizeof *answers)))
        status = cli_fail(&error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the plans");
    code = status ? report_failure_json(&error, values.json) : answer_all(&set, &list, answers, &values);
    free(answers);
    contenders_close(&set);
    problem_list_free(&list);
    return code;
}

static const struct option_row rows[] = {
    OPTION_ROW_TEXTS(struct values, backends, "backends", NULL, "NAME,...",
                     "backends to plan for (default: all that have code here)"),
    OPTION_ROW_FLAG(struct values, json, "json", NULL, "one JSON object"),
    OPTION_ROW_FLAG(struct values, markdown, "markdown", NULL, "Markdown"),
#define X(...) CONTEXT_ROW(struct values, __VA_ARGS__)
#include "options_run.def"
#undef X
    OPTION_ROW_END,
};

const struct cli_command command_plan = {
    .usage = "[OPTION]... PROBLEM...",
    .text =
        "Prints what a call would use, without running it: for each problem and backend the implementation, "
        "its\n"
        "kernel set and tiles, threads, the bytes of its workspace, and the arithmetic and memory traffic of "
        "the\n"
        "problem. Nothing is filled or computed, so the tensors may be larger than this machine's memory.\n"
        "FLOP = " BENCH_FLOP_TEXT ".",
    .examples = "  attn plan b1h24s4096d128:bf16\n"
                "  attn plan b1h40s32760x512d128:bf16:mask=key --threads 8\n"
                "  attn plan b1h1s512-65536*2d64:f32 --backends FLASH_ATTN --isa avx2\n"
                "  attn plan b8h32kvh8s1x4096d128:bf16:causal --json\n",
    .options = rows,
    .operands_max = 1024,
    .run = plan_run,
};
