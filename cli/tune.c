/* tune.c: attn tune, measured choices for a user's own problems, kept in a profile. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "report.h"
#include "tune.h"

struct values {
    struct context_values context;
    const char *out;
    int64_t rounds;
    int json;
};

struct run {
    struct bench_setup setup;
    struct problem_list list;
    struct tune_result *results;
    size_t measured;
    json_t *profile;
};

/* ---- measuring ---------------------------------------------------------------------------------- */

static attn_status open_run(struct run *run, const struct values *values, char **words, int count,
                            attn_error *error)
{
    struct context_values one = values->context;
    attn_context_info info = {.size = sizeof info};
    attn_status status = ATTN_OK;
    if (count == 0)
        return cli_fail(error, ATTN_KIND_INVALID_VALUE,
                        "no problem given; write one as b1h24s4096d128:bf16, see attn docs problems");
    for (int i = 0; !status && i < count; i++) status = problem_append(&run->list, words[i], error);
    one.backend = "FLASH_ATTN";
    one.profile = ""; /* a profile in force must not hide what it is to be compared with */
    if (!status) status = contenders_add(&run->setup.set, &one, "default", error);
    if (!status) status = bench_begin(&run->setup, (int)values->rounds, error);
    if (status) return status;
    attn_context_get_info(run->setup.set.contexts[0], &info);
    run->profile = tune_profile(info.cpu);
    json_object_set_new(run->profile, "threads", json_integer(info.threads));
    run->results = calloc(run->list.count, sizeof *run->results);
    if (run->results) return ATTN_OK;
    return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the results");
}

static void close_run(struct run *run)
{
    bench_end(&run->setup);
    json_decref(run->profile);
    problem_list_free(&run->list);
    free(run->results);
}

static attn_status measure_all(struct run *run, const struct values *values, attn_error *error)
{
    enum { RACES = 3 };
    attn_status status = ATTN_OK;
    report_progress_begin(&run->setup.progress, "tune", (int64_t)run->list.count * RACES);
    for (size_t i = 0; !status && i < run->list.count; i++) {
        struct tune_result *result = &run->results[i];
        result->problem = &run->list.items[i];
        run->setup.done = (int64_t)i * RACES;
        status = tune_problem(&run->setup, &values->context, result, error);
        if (status) break;
        run->measured++;
        if (!result->error.kind && !tune_add(run->profile, result))
            report_note("an earlier problem has the same dtype, head sizes and classes of lengths as problem "
                        "%zu; its "
                        "row stays",
                        i + 1);
    }
    report_progress_clear(&run->setup.progress);
    return status;
}

/* ---- reporting ---------------------------------------------------------------------------------- */

static void choice_text(const struct tune_result *r, char *text, size_t bytes)
{
    const struct tune_choice *c = &r->kept;
    int own = !c->rows && !c->keys && !c->cache && r->kept_seconds >= r->default_seconds;
    if (own)
        snprintf(text, bytes, "the default, %s", c->isa);
    else if (c->rows)
        snprintf(text, bytes, "%s, tiles %lldx%lld", c->isa, (long long)c->rows, (long long)c->keys);
    else
        snprintf(text, bytes, "%s%s", c->isa, c->cache ? ", tiles by the cache" : "");
}

static void print_trials(const struct tune_result *results, size_t count)
{
    static const char *const headings[] = {"problem", "candidate", "plan", ">median ms", ">GFLOP/s", NULL};
    struct report_table *table = report_table_new(headings);
    char text[PROBLEM_TEXT_BYTES];
    for (size_t i = 0; table && i < count; i++)
        for (size_t j = 0; j < results[i].count; j++) {
            const struct tune_trial *t = &results[i].trials[j];
            report_cell(table, "%s", j ? "" : problem_format(results[i].problem, text, sizeof text));
            report_cell(table, "%s", t->name);
            report_cell(table, "%s", t->plan);
            report_cell(table, t->seconds > 0 ? "%.3f" : "-", 1e3 * t->seconds);
            report_cell(table, t->seconds > 0 ? "%.1f" : "-", 1e-9 * results[i].flop / t->seconds);
        }
    if (table) report_table_print(stdout, table, REPORT_TABLE);
    report_table_free(table);
}

static void print_choices(const struct tune_result *results, size_t count)
{
    char problem[PROBLEM_TEXT_BYTES], choice[96];
    for (size_t i = 0; i < count; i++) {
        const struct tune_result *r = &results[i];
        problem_format(r->problem, problem, sizeof problem);
        if (r->error.kind) {
            printf("refused: %s: %s\n", problem, r->error.text);
            continue;
        }
        choice_text(r, choice, sizeof choice);
        printf("%s: %s, %.1f GFLOP/s (default %.1f)\n", problem, choice, 1e-9 * r->flop / r->kept_seconds,
               1e-9 * r->flop / r->default_seconds);
    }
}

static json_t *trial_json(const struct tune_result *r, const struct tune_trial *t)
{
    return json_pack("{s:s, s:s, s:o, s:o}", "name", t->name, "plan", t->plan, "seconds",
                     t->seconds > 0 ? report_real(t->seconds) : json_null(), "gflops",
                     t->seconds > 0 ? report_real(1e-9 * r->flop / t->seconds) : json_null());
}

static int print_json(const struct run *run, const attn_error *error)
{
    json_t *list = json_array();
    char text[PROBLEM_TEXT_BYTES];
    for (size_t i = 0; i < run->measured; i++) {
        const struct tune_result *r = &run->results[i];
        json_t *trials = json_array();
        for (size_t j = 0; j < r->count; j++) json_array_append_new(trials, trial_json(r, &r->trials[j]));
        json_t *object = json_pack("{s:s, s:o}", "problem", problem_format(r->problem, text, sizeof text),
                                   "trials", trials);
        report_json_error(object, r->error.kind ? &r->error : NULL);
        json_array_append_new(list, object);
    }
    json_t *object = json_pack("{s:O, s:o}", "profile", run->profile, "results", list);
    report_json_error(object, error);
    return report_json(object);
}

/* ---- the file ----------------------------------------------------------------------------------- */

/* Whole or not at all: a program that opens the path meets no half of a profile. */
static attn_status save(const json_t *profile, const char *path, attn_error *error)
{
    char *part = NULL;
    if (asprintf(&part, "%s.part", path) < 0)
        return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the name of a file");
    int failed = json_dump_file(profile, part, JSON_INDENT(2) | JSON_REAL_PRECISION(6)) != 0;
    if (!failed) failed = rename(part, path) != 0;
    int why = errno;
    if (failed) unlink(part);
    free(part);
    return failed ? cli_fail(error, ATTN_KIND_IO, "%s: %s", path, strerror(why)) : ATTN_OK;
}

/* A file that cannot be written is told before minutes of measuring. */
static attn_status check_out(const char *path, attn_error *error)
{
    char *part = NULL;
    if (!path) return ATTN_OK;
    if (asprintf(&part, "%s.part", path) < 0)
        return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the name of a file");
    FILE *file = fopen(part, "w");
    int why = errno;
    if (file) {
        fclose(file);
        unlink(part);
    }
    free(part);
    return file ? ATTN_OK : cli_fail(error, ATTN_KIND_IO, "%s: %s", path, strerror(why));
}

/* ---- the command -------------------------------------------------------------------------------- */

static int refused(const struct run *run)
{
    for (size_t i = 0; i < run->measured; i++)
        if (run->results[i].error.kind) return attn_kind_exit(run->results[i].error.kind);
    return CLI_OK;
}

static int tune_all(struct run *run, const struct values *values)
{
    attn_error error = ATTN_ERROR_INIT;
    int code = CLI_OK, printed = CLI_OK;
    attn_status status = measure_all(run, values, &error);
    if (!status && values->out) status = save(run->profile, values->out, &error);
    if (status) code = report_failure(&error);
    if (values->json) {
        printed = print_json(run, status ? &error : NULL);
    } else if (run->measured) {
        print_trials(run->results, run->measured);
        printf("\n");
        print_choices(run->results, run->measured);
        if (!status)
            printf(values->out
                       ? "The profile is in %s; use it by --profile, $ATTN_PROFILE or attn_options.profile.\n"
                       : "Nothing was stored; --out FILE writes a profile.\n",
                   values->out);
    }
    if (code == CLI_OK) code = refused(run);
    return code == CLI_OK ? printed : code;
}

static int tune_run(int argc, char **argv)
{
    struct values values = {.rounds = 7};
    struct run run = {.measured = 0};
    attn_error error = ATTN_ERROR_INIT;
    int first = argc;
    int code = options_parse(&command_tune, argc, argv, &values, &first);
    if (code != OPTIONS_GO_ON) return code;
    if (check_out(values.out, &error) || open_run(&run, &values, argv + first, argc - first, &error))
        code = report_failure_json(&error, values.json);
    else
        code = tune_all(&run, &values);
    close_run(&run);
    return code;
}

static const struct option_row rows[] = {
    OPTION_ROW_TEXT(struct values, out, "out", "o", "FILE", "writes the profile"),
    OPTION_ROW_INT(struct values, rounds, "rounds", "r", "N", "rounds to take the median of (default: 7)", 1,
                   BENCH_ROUNDS_MAX),
    OPTION_ROW_FLAG(struct values, json, "json", NULL,
                    "one JSON object: the profile and all that was measured"),
    OPTION_ROW_INT(struct values, context.threads, "threads", "t", "N",
                   "threads (default: what affinity and the cgroup quota allow)", 1, 4096),
    OPTION_ROW_TEXT(struct values, context.isa, "isa", NULL, "NAME",
                    "caps the CPU kernel set; attn info names them"),
    OPTION_ROW_FLAG(struct values, context.verbose, "verbose", "v", "prints the library's log on stderr"),
    OPTION_ROW_END,
};

const struct cli_command command_tune = {
    .usage = "[OPTION]... PROBLEM...",
    .text =
        "Times what a plan can be made of, kernel sets and blocks, for your problems on this machine: in "
        "turns,\n"
        "round by round, by medians. The best must beat the default again, alone against it and by 2 %, or "
        "the\n"
        "default is kept. A profile holds one row for each dtype, pair of head sizes and class of lengths "
        "(above\n"
        "half a power of two, up to it). The library uses a profile only when --profile, $ATTN_PROFILE or\n"
        "attn_options.profile names it, and only on the CPU it was measured on. Blocks decide the order of\n"
        "summation: results under a profile may differ in their last bits from those without.",
    .examples = "  attn tune b1h24s4096d128:bf16 --out profile.json\n"
                "  attn tune b1h12s1024,4096d64:f32 --threads 1 --rounds 15\n"
                "  attn bench b1h24s4096d128:bf16 --profile profile.json\n"
                "  ATTN_PROFILE=profile.json attn explain --problem b1h24s4096d128:bf16\n",
    .options = rows,
    .operands_max = 1024,
    .run = tune_run,
};
