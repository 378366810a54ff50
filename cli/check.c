/* check.c: attn check, the self-test of an installation. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "call.h"
#include "check_bound.h"
#include "check_cases.h"
#include "check_lanes.h"
#include "cli.h"
#include "crash.h"
#include "generate.h"
#include "mirror.h"
#include "report.h"

#define RANDOM_PROBLEMS 300

struct values {
    const char *backend, *isa, *module_path, *device;
    struct option_texts problems;
    int64_t seed;
    int quick, json, verbose;
};

static const struct option_row rows[] = {
    OPTION_ROW_FLAG(struct values, quick, "quick", "q", "every third problem"),
    OPTION_ROW_TEXTS(struct values, problems, "problem", "p", "STRING",
                     "this problem instead; may be repeated"),
    OPTION_ROW_INT(struct values, seed, "seed", NULL, "N",
                   "seed of the problems drawn at random (default: 1)", 0, 1e15),
    OPTION_ROW_TEXT(struct values, backend, "backend", "b", "NAME", "only implementations of this backend"),
    OPTION_ROW_TEXT(struct values, isa, "isa", NULL, "NAME",
                    "only this kernel set (and scalar, to compare it with)"),
    OPTION_ROW_TEXT(struct values, device, "device", NULL, "NAME",
                    "implementations of this device instead: cuda, cuda:1, ..."),
    OPTION_ROW_TEXT(struct values, module_path, "module-path", NULL, "PATHS",
                    "colon-separated module files and folders; \"\": none"),
    OPTION_ROW_FLAG(struct values, verbose, "verbose", "v", "prints every refusal"),
    OPTION_ROW_FLAG(struct values, json, "json", "j", "a JSON object on standard output"),
    OPTION_ROW_END,
};

struct run {
    const struct values *values;
    struct check_lanes lanes;
    struct problem_list problems;
    struct report_progress progress;
    int64_t passed, failed, skipped;
    json_t *failures; /* NULL: text */
};

/* ---- one problem ------------------------------------------------------------------------------- */

/* The problem's numbers in double, laid out plainly and without NaN: what everything is held against. */
struct exact {
    struct generated call;
    struct outcome outcome;
    struct check_bound bound;
    attn_dtype dtype; /* of the problem itself */
};

static attn_status forward_there(attn_context *context, DLDevice device, attn_layer *layer,
                                 const attn_args *args, attn_error *error)
{
    struct mirror mirror;
    if (mirror_is_host(device)) return attn_forward(layer, args, error);
    attn_status status = mirror_make(&mirror, context, device, args, error);
    if (!status) status = attn_forward(layer, &mirror.args, error);
    if (!status) status = mirror_fetch(&mirror, error);
    mirror_free(&mirror);
    return status;
}

static attn_status forward(attn_context *context, DLDevice device, const struct generated *call,
                           attn_error *error)
{
    attn_layer *layer = NULL;
    attn_layer_options options = call->layer;
    options.device = device;
    attn_status status = attn_layer_open(context, &options, &layer, error);
    if (!status) status = forward_there(context, device, layer, &call->args, error);
    attn_layer_close(layer);
    return status;
}

static attn_status find_exact(struct run *run, const struct problem *problem, struct exact *exact,
                              attn_error *error)
{
    struct problem wide = problem_in_double(problem);
    memset(exact, 0, sizeof *exact);
    exact->dtype = problem->dtype;
    attn_status status = generate(&wide, &exact->call, error);
    if (!status) status = forward(run->lanes.reference, (DLDevice){kDLCPU, 0}, &exact->call, error);
    if (!status) status = outcome_read(&exact->call.args, &exact->outcome, error);
    if (!status)
        status = check_bound_of(&exact->call, &exact->outcome, problem->out_dtype, &exact->bound, error);
    return status;
}

static void free_exact(struct exact *exact)
{
    generate_free(&exact->call);
    outcome_free(&exact->outcome);
}

/* Sets whose names end in _bf16 multiply in bf16 when the inputs are. */
static int rounds_weights(const struct check_lane *lane, const struct exact *exact)
{
    size_t n = strlen(lane->isa);
    return exact->dtype == ATTN_BF16 && n > 5 && strcmp(lane->isa + n - 5, "_bf16") == 0 &&
           strcmp(lane->backend, CHECK_REFERENCE) != 0;
}

static attn_status judge(const struct run *run, struct check_lane *lane, const struct exact *exact,
                         attn_error *error)
{
    const struct check_lane *base = &run->lanes.items[lane->base];
    struct check_bound bound = exact->bound;
    if (!mirror_is_host(lane->device))
        bound = check_bound_device(&bound, exact->dtype, exact->outcome.out_count);
    else if (rounds_weights(lane, exact))
        bound = check_bound_bf16_weights(&bound, exact->outcome.out_count);
    attn_status status = check_against(&lane->outcome, &exact->outcome, &bound, &lane->share, error);
    if (status || lane->rule == CHECK_EXACT || !base->outcome.out) return status;
    if (lane->rule == CHECK_SCALAR)
        return check_between(&lane->outcome, &base->outcome, &bound, "the scalar kernel set", error);
    if (outcome_same(&lane->outcome, &base->outcome)) return ATTN_OK;
    return cli_fail(error, ATTN_KIND_INTERNAL, "the result differs from that of one thread in some bits");
}

static attn_status run_lane(struct run *run, struct check_lane *lane, struct generated *call,
                            const struct exact *exact, attn_error *error)
{
    generate_reset(call);
    attn_status status = forward(lane->context, lane->device, call, error);
    if (!status) status = generate_verify(call, error);
    if (!status) status = outcome_read(&call->args, &lane->outcome, error);
    return status ? status : judge(run, lane, exact, error);
}

/* ---- counting ---------------------------------------------------------------------------------- */

static void note_failure(struct run *run, struct check_lane *lane, const char *problem,
                         const attn_error *error)
{
    run->failed++;
    if (lane) lane->failed++;
    report_progress_clear(&run->progress);
    if (run->failures) {
        json_array_append_new(run->failures,
                              json_pack("{s:s, s:s?, s:s?, s:s?, s:i, s:s, s:s}", "problem", problem,
                                        "implementation", lane ? lane->implementation : NULL, "backend",
                                        lane ? lane->backend : NULL, "isa", lane ? lane->isa : NULL,
                                        "threads", lane ? (int)lane->threads : 0, "error_kind",
                                        attn_kind_name(error->kind), "error", error->text));
        return;
    }
    printf("%sFAIL%s %s\n", report_begin(stdout, REPORT_BAD), report_end(stdout), problem);
    if (lane)
        printf("     %s (%s), %s, threads %d: %s: %s\n     attn check --problem %s --backend %s --%s %s\n",
               lane->implementation, lane->backend, lane->isa, lane->threads, attn_kind_name(error->kind),
               error->text, problem, lane->backend, mirror_is_host(lane->device) ? "isa" : "device",
               lane->isa);
    else
        printf("     %s: %s\n", attn_kind_name(error->kind), error->text);
    fflush(stdout);
}

/* A refusal is the right of every implementation but the host's reference, whose promise is to serve
 * everything. */
static int is_skip(const struct check_lane *lane, const struct generated *call, const attn_error *error)
{
    /* Rows that lie far apart are memory in earnest on a device. */
    if (call->problem.layout == PROBLEM_HUGE && error->kind == ATTN_KIND_OUT_OF_MEMORY) return 1;
    /* Layouts here are all valid, so what speaks against one is what the implementation cannot do. */
    if (!mirror_is_host(lane->device) && error->kind == ATTN_KIND_INVALID_LAYOUT) return 1;
    return attn_kind_exit(error->kind) == CLI_REFUSED &&
           (!mirror_is_host(lane->device) || strcmp(lane->backend, CHECK_REFERENCE) != 0);
}

static void note_skip(struct run *run, struct check_lane *lane, const char *problem, const attn_error *error)
{
    run->skipped++;
    lane->skipped++;
    if (!run->values->verbose) return;
    report_progress_clear(&run->progress);
    report_note("skipped %s: %s, %s: %s: %s", problem, lane->implementation, lane->isa,
                attn_kind_name(error->kind), error->text);
}

static void check_lane(struct run *run, struct check_lane *lane, struct generated *call,
                       const struct exact *exact, const char *text)
{
    attn_error error = ATTN_ERROR_INIT;
    attn_status status = run_lane(run, lane, call, exact, &error);
    if (status == ATTN_OK) {
        run->passed++;
        lane->passed++;
    } else if (error.kind == ATTN_KIND_CANCELLED) {
        return;
    } else if (is_skip(lane, call, &error)) {
        note_skip(run, lane, text, &error);
    } else {
        note_failure(run, lane, text, &error);
    }
}

/* An implementation that needs finite values behind masks gets the problem without NaN there. */
static void check_form(struct run *run, struct check_lane *lane, struct generated *call,
                       const struct exact *exact, const char *text)
{
    struct generated finite;
    struct problem problem = call->problem;
    char other[PROBLEM_TEXT_BYTES];
    attn_error error = ATTN_ERROR_INIT;
    if (!(lane->flags & ATTN_IMPL_FINITE_VALUES) || !problem.hidden_nan) {
        check_lane(run, lane, call, exact, text);
        return;
    }
    problem.hidden_nan = 0;
    problem_format(&problem, other, sizeof other);
    if (generate(&problem, &finite, &error))
        note_failure(run, lane, other, &error);
    else
        check_lane(run, lane, &finite, exact, other);
    generate_free(&finite);
}

/* Huge strides need address space that a machine may not grant; that says nothing about the library. */
static void no_call(struct run *run, const struct problem *problem, const char *text, const attn_error *error)
{
    if (problem->layout != PROBLEM_HUGE || error->kind != ATTN_KIND_OUT_OF_MEMORY) {
        note_failure(run, NULL, text, error);
        return;
    }
    run->skipped++;
    if (run->values->verbose) report_note("skipped %s: %s", text, error->text);
}

static void check_problem(struct run *run, const struct problem *problem)
{
    char text[PROBLEM_TEXT_BYTES];
    struct exact exact;
    struct generated call;
    attn_error error = ATTN_ERROR_INIT;
    problem_format(problem, text, sizeof text);
    if (find_exact(run, problem, &exact, &error)) {
        if (error.kind != ATTN_KIND_CANCELLED) note_failure(run, NULL, text, &error);
    } else if (generate(problem, &call, &error)) {
        no_call(run, problem, text, &error);
    } else {
        for (size_t i = 0; i < run->lanes.count && !cli_interrupted(); i++)
            if (run->lanes.items[i].context) check_form(run, &run->lanes.items[i], &call, &exact, text);
        for (size_t i = 0; i < run->lanes.count; i++) outcome_free(&run->lanes.items[i].outcome);
        generate_free(&call);
    }
    free_exact(&exact);
}

/* ---- report ------------------------------------------------------------------------------------ */

static void print_lanes(const struct run *run)
{
    static const char *const headings[] = {"implementation", "backend",  "kernel set",  ">threads", ">passed",
                                           ">failed",        ">skipped", ">error used", "",         NULL};
    struct report_table *table = report_table_new(headings);
    for (size_t i = 0; table && i < run->lanes.count; i++) {
        const struct check_lane *lane = &run->lanes.items[i];
        report_cell(table, "%s", lane->implementation);
        report_cell(table, "%s", lane->backend);
        report_cell(table, "%s", lane->isa);
        report_cell(table, "%d", lane->threads);
        report_cell(table, "%" PRId64, lane->passed);
        report_cell(table, "%" PRId64, lane->failed);
        if (lane->failed) report_cell_style(table, REPORT_BAD);
        report_cell(table, "%" PRId64, lane->skipped);
        report_cell(table, "%.0f%%", 100 * lane->share);
        report_cell(table, "%.100s",
                    !lane->context  ? lane->error.text
                    : lane->skipped ? lane->reason->text
                                    : "");
    }
    if (table) report_table_print(stdout, table, REPORT_TABLE);
    report_table_free(table);
    printf("\n%" PRId64 " passed, %" PRId64 " failed, %" PRId64 " skipped\n", run->passed, run->failed,
           run->skipped);
}

static int print_json(struct run *run, int code)
{
    json_t *lanes = json_array();
    for (size_t i = 0; i < run->lanes.count; i++) {
        const struct check_lane *lane = &run->lanes.items[i];
        json_t *object = json_pack("{s:s, s:s, s:s, s:i, s:I, s:I, s:I}", "implementation",
                                   lane->implementation, "backend", lane->backend, "isa", lane->isa,
                                   "threads", (int)lane->threads, "passed", (json_int_t)lane->passed,
                                   "failed", (json_int_t)lane->failed, "skipped", (json_int_t)lane->skipped);
        if (!object) continue;
        json_object_set_new(object, "error_used", report_real(lane->share));
        report_json_error(object, lane->context ? NULL : &lane->error);
        json_array_append_new(lanes, object);
    }
    json_t *object =
        json_pack("{s:I, s:I, s:I, s:I, s:o, s:O}", "problems", (json_int_t)run->problems.count, "passed",
                  (json_int_t)run->passed, "failed", (json_int_t)run->failed, "skipped",
                  (json_int_t)run->skipped, "lanes", lanes, "failures", run->failures);
    if (object) report_json_error(object, NULL);
    int written = report_json(object);
    return written ? written : code;
}

/* ---- the command ------------------------------------------------------------------------------- */

static attn_status read_problems(const struct values *values, struct problem_list *list, attn_error *error)
{
    if (values->problems.count == 0)
        return check_cases((uint64_t)values->seed, RANDOM_PROBLEMS, values->quick, values->device != NULL,
                           list, error);
    memset(list, 0, sizeof *list);
    for (size_t i = 0; i < values->problems.count; i++) {
        attn_status status = problem_append(list, values->problems.items[i], error);
        if (status) return status;
    }
    return ATTN_OK;
}

/* Problems of the user's own must fit into memory; every lane's result is kept until the last one. */
static attn_status check_memory(const struct run *run, attn_error *error)
{
    const struct call_extra extra = {.exact = 1, .masks = 1, .outcomes = 1 + (int)run->lanes.count};
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < run->problems.count && run->values->problems.count && !status; i++)
        status = call_fits(&run->problems.items[i], &extra, error);
    return status;
}

/* A module that the user names and the library refuses is a failure of its own. Returns how many there are.
 */
static int64_t note_modules(struct run *run)
{
    const char *path = run->values->module_path;
    attn_module_info info = {.size = sizeof info};
    if (!path || !*path || !run->lanes.reference) return 0;
    for (size_t i = 0; attn_module_at(run->lanes.reference, i, &info); i++) {
        attn_error error = ATTN_ERROR_INIT;
        if (info.kind == ATTN_KIND_NONE) continue;
        cli_fail(&error, info.kind, "%s", info.text);
        note_failure(run, NULL, info.path, &error);
    }
    return run->failed;
}

static int report(struct run *run, int code)
{
    if (run->failures) return print_json(run, code);
    print_lanes(run);
    return code;
}

static int check_all(struct run *run)
{
    crash_catch();
    report_progress_begin(&run->progress, "check", (int64_t)run->problems.count);
    for (size_t i = 0; i < run->lanes.count; i++) run->skipped += !run->lanes.items[i].context;
    for (size_t i = 0; i < run->problems.count && !cli_interrupted(); i++) {
        char text[PROBLEM_TEXT_BYTES];
        report_progress_step(&run->progress, (int64_t)i,
                             problem_format(&run->problems.items[i], text, sizeof text));
        crash_note("\nattn check: crashed in attn check --problem %s\n", text);
        check_problem(run, &run->problems.items[i]);
    }
    report_progress_clear(&run->progress);
    if (cli_interrupted()) report_note("interrupted");
    return report(run, cli_interrupted() ? CLI_INTERRUPTED : run->failed ? CLI_FAILED_CHECK : CLI_OK);
}

static int run(int argc, char **argv)
{
    struct values values = {.seed = 1};
    struct run state;
    attn_error error = ATTN_ERROR_INIT;
    int code = options_parse(&command_check, argc, argv, &values, NULL);
    if (code != OPTIONS_GO_ON) return code;
    struct check_choice choice = {values.backend, values.isa, values.module_path, values.device};
    memset(&state, 0, sizeof state);
    state.values = &values;
    state.failures = values.json ? json_array() : NULL;
    attn_status status = read_problems(&values, &state.problems, &error);
    if (!status) status = check_lanes_open(&choice, &state.lanes, &error);
    if (note_modules(&state) > 0)
        code = report(&state, CLI_FAILED_CHECK);
    else if (status || check_memory(&state, &error))
        code = report_failure_json(&error, values.json);
    else
        code = check_all(&state);
    check_lanes_close(&state.lanes);
    problem_list_free(&state.problems);
    json_decref(state.failures);
    return code;
}

const struct cli_command command_check = {
    .usage = "[--quick] [--problem STRING]... [OPTION]...",
    .text =
        "Runs every implementation, with every kernel set this CPU has, over a few hundred problems and\n"
        "compares the results with the reference in double precision, kernel sets with the scalar one,\n"
        "and thread counts with one another bit by bit. A failure is printed with the problem string\n"
        "that repeats it. A module that --module-path names and the library refuses is a failure too.\n\n"
        "An element of the output may be off by 2 r + t, where r is the most that rounding the exact\n"
        "result to the output's type costs, and\n\n"
        "  t = 2^-24 V (16 + sqrt(S) / 2 + (M + A)(2 + sqrt(D) / 8))\n\n"
        "with V the largest value, M the largest possible score, A the largest additive mask, S the\n"
        "number of keys and D the head size; the output as a whole by the same in Euclidean norm. The\n"
        "column \"error used\" says how much of r + t the error beyond r came to at most.\n\n"
        "With --device the tensors are copied there and the outputs back, between guards, and every\n"
        "implementation of the device is compared. Its tensor cores round the weights to the inputs' type:\n"
        "2^-8 V more for bf16, 2^-11 V for f16, and t counts four times, for their faster exponentials.",
    .examples = "  attn check --quick\n"
                "  attn check --device cuda\n"
                "  attn check --backend FLASH_ATTN --isa avx2\n"
                "  attn check --problem b2h3s17x65d16:f32:mask=keep:lse --verbose\n"
                "  attn check --seed 7 --json\n",
    .options = rows,
    .run = run,
};
