/* bench.c: attn bench, speed on real models' shapes beside this machine's measured ceiling. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

struct values {
    struct context_values context;
    struct option_texts models, backends;
    const char *dtype;
    double scale;
    int64_t rounds;
    int all, json, markdown, selection, huge_pages;
};

/* Problems of one run, in order. */
struct plan {
    struct bench_result *items;
    size_t count;
};

/* ---- what to measure ---------------------------------------------------------------------------- */

static attn_status add_problem(struct plan *plan, const struct bench_shape *shape, struct problem problem,
                               const struct values *values, attn_error *error)
{
    struct bench_result *items = realloc(plan->items, (plan->count + 1) * sizeof *items);
    double scale = values->scale;
    if (!items) return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the list of problems");
    plan->items = items;
    if (values->dtype) {
        if (problem.out_dtype == problem.dtype) problem.out_dtype = attn_dtype_from_name(values->dtype);
        problem.dtype = attn_dtype_from_name(values->dtype);
    }
    /* A device has no need of shorter sequences. */
    if (scale == 0) scale = shape && !values->context.device ? bench_scale_for(&problem) : 1;
    bench_scale(&problem, scale);
    if (problem_validate(&problem, error)) return error->status;
    items[plan->count++] = (struct bench_result){.shape = shape, .scale = scale, .problem = problem};
    return ATTN_OK;
}

static attn_status add_text(struct plan *plan, const struct bench_shape *shape, const char *text,
                            const struct values *values, attn_error *error)
{
    struct problem_list list;
    attn_status status = problem_parse(text, &list, error);
    if (status) return status;
    for (size_t i = 0; !status && i < list.count; i++)
        status = add_problem(plan, shape, list.items[i], values, error);
    problem_list_free(&list);
    return status;
}

static int wanted(const struct bench_shape *shape, const struct values *values)
{
    for (size_t i = 0; i < values->models.count; i++)
        if (bench_shape_matches(shape, values->models.items[i])) return 1;
    return values->models.count == 0 && (values->all || shape->usual);
}

static attn_status add_shapes(struct plan *plan, const struct values *values, attn_error *error)
{
    const struct bench_shape *shape;
    attn_status status = ATTN_OK;
    for (size_t i = 0; !status && (shape = bench_shape_at(i)); i++)
        if (wanted(shape, values)) status = add_text(plan, shape, shape->problem, values, error);
    if (!status && plan->count == 0 && values->models.count)
        return cli_fail(error, ATTN_KIND_UNKNOWN_NAME,
                        "--model is '%s', which no row of the shapes has; 'attn docs shapes' lists them",
                        values->models.items[0]);
    return status;
}

static attn_status make_plan(struct plan *plan, const struct values *values, char **words, int count,
                             attn_error *error)
{
    attn_status status = ATTN_OK;
    if (values->dtype && !attn_dtype_from_name(values->dtype))
        return cli_fail(error, ATTN_KIND_UNKNOWN_NAME, "--dtype is '%s'; expected f32, f16, bf16 or f64",
                        values->dtype);
    for (int i = 0; !status && i < count; i++) status = add_text(plan, NULL, words[i], values, error);
    if (!status && (count == 0 || values->models.count || values->all))
        status = add_shapes(plan, values, error);
    return status;
}

/* ---- who takes part ----------------------------------------------------------------------------- */

static attn_status open_setup(struct bench_setup *setup, const struct values *values, attn_error *error)
{
    DLDevice device;
    setup->huge_pages = values->huge_pages;
    attn_status status = context_device(values->context.device, &device, error);
    if (!status) status = contenders_open(&setup->set, &values->context, &values->backends, error);
    if (status) return status;
    return device.device_type == kDLCPU ? bench_begin(setup, (int)values->rounds, error)
                                        : bench_begin_device(setup, device, (int)values->rounds, error);
}

/* ---- the run ------------------------------------------------------------------------------------ */

static attn_status measure_all(struct bench_setup *setup, struct plan *plan, size_t *measured,
                               attn_error *error)
{
    attn_status status = ATTN_OK;
    report_progress_begin(&setup->progress, "bench", (int64_t)plan->count);
    for (*measured = 0; !status && *measured < plan->count; (*measured)++) {
        if (cli_interrupted()) status = cli_fail(error, ATTN_KIND_CANCELLED, "interrupted");
        if (!status) status = bench_measure(setup, &plan->items[*measured], error);
        if (status) break;
        setup->done++;
    }
    report_progress_clear(&setup->progress);
    return status;
}

/* 3 when some problem was refused by every backend. */
static int refused(const struct plan *plan, size_t measured)
{
    for (size_t i = 0; i < measured; i++)
        if (bench_best(&plan->items[i]) == 0) return CLI_REFUSED;
    return CLI_OK;
}

static int run_plan(struct bench_setup *setup, struct plan *plan, const struct values *values,
                    const char *line)
{
    attn_error error = ATTN_ERROR_INIT;
    size_t measured = 0;
    int code = CLI_OK, printed = CLI_OK;
    int valid = !setup->ceiling || ceiling_valid(setup->ceiling);
    if (valid && measure_all(setup, plan, &measured, &error)) code = report_failure(&error);
    /* What was measured before a failure or an interrupt is still worth having. */
    if (values->json)
        printed = bench_print_json(setup, plan->items, measured, code == CLI_OK ? NULL : &error);
    else if (measured || code == CLI_OK)
        bench_print(setup, plan->items, measured, values->markdown ? REPORT_MARKDOWN : REPORT_TABLE, line);
    if (!valid) {
        bench_print_void(setup->ceiling);
        return CLI_FAILED_CHECK;
    }
    if (code == CLI_OK) code = refused(plan, measured);
    return code == CLI_OK ? printed : code;
}

/* "attn bench ARG..." for the head of a recorded result. getopt moves words about, so this comes first. */
static char *join_words(int argc, char **argv)
{
    size_t bytes = sizeof "attn";
    for (int i = 0; i < argc; i++) bytes += strlen(argv[i]) + 1;
    char *line = malloc(bytes);
    if (!line) return NULL;
    strcpy(line, "attn");
    for (int i = 0; i < argc; i++) strcat(strcat(line, " "), argv[i]);
    return line;
}

static int bench_run(int argc, char **argv)
{
    struct values values = {.rounds = 7};
    struct bench_setup setup = {0};
    struct plan plan = {0};
    attn_error error = ATTN_ERROR_INIT;
    char *line = join_words(argc, argv);
    int first = argc;
    int code = options_parse(&command_bench, argc, argv, &values, &first);
    if (code == OPTIONS_GO_ON && values.selection) {
        code = bench_selection(values.json, values.markdown ? REPORT_MARKDOWN : REPORT_TABLE);
    } else if (code == OPTIONS_GO_ON) {
        if (make_plan(&plan, &values, argv + first, argc - first, &error) ||
            open_setup(&setup, &values, &error))
            code = report_failure_json(&error, values.json);
        else
            code = run_plan(&setup, &plan, &values, line ? line : "attn bench");
    }
    bench_end(&setup);
    for (size_t i = 0; i < plan.count; i++) bench_result_free(&plan.items[i]);
    free(plan.items);
    free(line);
    return code;
}

static const struct option_row rows[] = {
    OPTION_ROW_TEXTS(struct values, models, "model", "m", "NAME",
                     "rows of models whose name holds NAME; may be repeated"),
    OPTION_ROW_FLAG(struct values, all, "all", "a", "every row of the shapes, not only the usual ones"),
    OPTION_ROW_TEXTS(struct values, backends, "backends", NULL, "NAME,...",
                     "backends to compare (default: all that have code here)"),
    OPTION_ROW_TEXT(struct values, context.device, "device", NULL, "NAME",
                    "device to measure: cpu (default), cuda, cuda:1, ..."),
    OPTION_ROW_REAL(struct values, scale, "scale", "s", "X",
                    "divides sequence lengths above 512 by X (default: models by what leaves about\n"
                    "8 GFLOP, problems of the command line and those on a device by 1)",
                    1, 1e6),
    OPTION_ROW_TEXT(struct values, dtype, "dtype", NULL, "NAME", "element type instead of the problems' own"),
    OPTION_ROW_INT(struct values, rounds, "rounds", "r", "N", "rounds to take the median of (default: 7)", 1,
                   BENCH_ROUNDS_MAX),
    OPTION_ROW_FLAG(struct values, huge_pages, "huge-pages", NULL,
                    "tensors on large pages, instead of what the system gives by itself"),
    OPTION_ROW_FLAG(struct values, selection, "selection", NULL,
                    "measures what choosing costs instead: opening, resolving, resolving again"),
    OPTION_ROW_FLAG(struct values, json, "json", NULL, "one JSON object"),
    OPTION_ROW_FLAG(struct values, markdown, "markdown", NULL, "Markdown, with the command line at its head"),
#define X(...) CONTEXT_ROW(struct values, __VA_ARGS__)
#include "options_run.def"
#undef X
    OPTION_ROW_END,
};

const struct cli_command command_bench = {
    .usage = "[OPTION]... [PROBLEM]...",
    .text =
        "Measures backends on problem strings or on the attention shapes of real models, and beside them, in "
        "the\n"
        "same rounds, what this machine can do at most: multiply-add rate, clock and memory bandwidth. One\n"
        "thread is timed by its CPU clock, more by wall time. FLOP = " BENCH_FLOP_TEXT ".\n"
        "With --device the device's own clock counts, inputs change so that its cache holds none, and beside "
        "the\n"
        "sustained time stands that of the first calls after a rest; the ceiling is its matrix units' "
        "alone.\n"
        "When the loop that measures the ceiling is itself too slow for a core, the run is void: exit status "
        "1.",
    .examples = "  attn bench\n"
                "  attn bench --threads 1 b1h12s1024d128:f32\n"
                "  attn bench --model wan --scale 8\n"
                "  attn bench --all --markdown > result.md\n"
                "  attn bench --device cuda --model wan --markdown > result.md\n"
                "  attn bench --backends FLASH_ATTN b1h24s512-4096*2d64,128:bf16 --json\n",
    .options = rows,
    .operands_max = 1024,
    .run = bench_run,
};
