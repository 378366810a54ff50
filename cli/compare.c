/* compare.c: attn compare, error and speed of backends against the exact one. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "cli.h"
#include "measure.h"
#include "options_context.h"
#include "outcome.h"
#include "report.h"

#define REFERENCE "TORCH_SDPA"

struct values {
    struct context_values context;
    struct call_values call;
    const char *backends, *params_text;
    attn_params *params; /* params_text, read */
    double max_relative_l2, min_cosine, max_abs;
    int64_t repeat;
    int json;
};

static const struct option_row rows[] = {
    OPTION_ROW_HEADING("Inputs"),
#define X(...) CALL_ROW(struct values, __VA_ARGS__)
#include "options_call.def"
#undef X
    OPTION_ROW_HEADING("Comparison"),
    OPTION_ROW_TEXT(struct values, backends, "backends", NULL, "A,B",
                    "backends to compare (default: all usable ones)"),
    OPTION_ROW_TEXT(
        struct values, params_text, "params", NULL, "JSON",
        "parameters of the calls for backends that take some: {\"topk\": 4, \"grid\": [16, 16, 16]}"),
    OPTION_ROW_REAL(struct values, max_relative_l2, "max-rel-l2", NULL, "X",
                    "limit of |out - exact| / |exact|", 0, 1e30),
    OPTION_ROW_REAL(struct values, min_cosine, "min-cosine", NULL, "X",
                    "limit of the cosine of out and exact", -1, 1),
    OPTION_ROW_REAL(struct values, max_abs, "max-abs", NULL, "X", "limit of the largest error of an element",
                    0, 1e30),
    OPTION_ROW_INT(struct values, repeat, "repeat", "n", "N",
                   "timed runs after an untimed one (default: a third of a second's worth)", 1, 1000),
    OPTION_ROW_HEADING("Backend"),
#define X(...) CONTEXT_ROW(struct values, __VA_ARGS__)
#include "options_context.def"
#undef X
    OPTION_ROW_HEADING("Report"),
    OPTION_ROW_FLAG(struct values, json, "json", "j", "a JSON object on standard output"),
    OPTION_ROW_END,
};

/* ---- one backend ------------------------------------------------------------------------------- */

struct entry {
    char backend[64], implementation[64], plan[256];
    char reason[512]; /* of a refusal: the first one against the backend itself */
    attn_error error; /* kind none: it ran */
    struct tensor_error out, lse;
    int has_lse, within;
    double seconds;
    char note[160];     /* what the last run did with blocks; "": nothing to say */
    double kept;        /* share of the pairs of blocks that it computed */
    double map_seconds; /* of `seconds`, choosing them */
};

struct comparison {
    const struct values *values;
    struct call call;
    struct outcome exact;
    double base_seconds; /* of the reference on the call's own types, or in f64 when it is not compared */
    struct entry *entries;
    size_t count;
    int hide_refusals; /* printed before, for another problem */
};

/* device: as --device says it. */
static attn_status open_layer(const struct comparison *c, const char *backend, const char *device,
                              attn_layer_options *site, struct context_reasons *reasons,
                              attn_context **context, attn_layer **layer, attn_error *error)
{
    struct context_values values = c->values->context;
    values.backend = backend;
    values.device = device;
    attn_status status = context_open(&values, reasons, context, error);
    if (!status) status = context_site(&values, site, error);
    return status ? status : attn_layer_open(*context, site, layer, error);
}

/* The error of a refusal tells what else there is; the reason alone is enough in a list of all backends. */
static void note_reason(const struct context_reasons *reasons, struct entry *entry)
{
    if (reasons->count && attn_kind_exit(entry->error.kind) == CLI_REFUSED)
        snprintf(entry->reason, sizeof entry->reason, "%s", reasons->lines[0]);
    else
        snprintf(entry->reason, sizeof entry->reason, "%s: %s: %.400s", entry->backend,
                 attn_kind_name(entry->error.kind), entry->error.text);
}

static void note_layer(const attn_layer *layer, struct entry *entry)
{
    attn_layer_info info = {.size = sizeof info};
    attn_layer_get_info(layer, &info);
    snprintf(entry->implementation, sizeof entry->implementation, "%s", info.implementation);
    snprintf(entry->plan, sizeof entry->plan, "%s", info.plan);
    snprintf(entry->note, sizeof entry->note, "%s", info.report ? info.report : "");
    entry->kept = info.kept_share;
}

/* Runs over the tensors as they are, or over copies on another device. */
static attn_status run_there(const struct comparison *c, attn_context *context, attn_layer *layer,
                             DLDevice device, const attn_args *args, struct measure *measure,
                             attn_error *error)
{
    struct mirror mirror;
    if (mirror_is_host(device)) return measure_forward(layer, args, c->values->repeat, 0.33, measure, error);
    attn_status status = mirror_make(&mirror, context, device, args, error);
    if (!status) status = measure_mirror(layer, &mirror, c->values->repeat, 0.33, measure, error);
    if (!status) status = mirror_fetch(&mirror, error);
    mirror_free(&mirror);
    return status;
}

/* Runs a backend over args and reads what came out. */
static attn_status run_backend(const struct comparison *c, const char *backend, const char *device,
                               const attn_layer_options *options, const attn_args *args, struct entry *entry,
                               struct outcome *outcome, attn_error *error)
{
    attn_context *context = NULL;
    attn_layer *layer = NULL;
    struct measure measure;
    struct context_reasons reasons = {0};
    attn_layer_options site = *options;
    attn_status status = open_layer(c, backend, device, &site, &reasons, &context, &layer, error);
    if (!status) status = run_there(c, context, layer, site.device, args, &measure, error);
    if (!status) {
        note_layer(layer, entry);
        entry->seconds = measure.median;
        entry->map_seconds = measure.map_seconds;
        status = outcome_read(args, outcome, error);
    }
    if (status) note_reason(&reasons, entry);
    attn_layer_close(layer);
    attn_close(context);
    context_reasons_free(&reasons);
    return status;
}

static int has_limit(const struct values *values)
{
    return values->max_relative_l2 >= 0 || values->min_cosine >= -1 || values->max_abs >= 0;
}

/* Nothing is left to measure when every element is the same NaN or infinity in both. */
static int is_measured(const struct tensor_error *error)
{
    return error->count == 0 || error->not_finite_both < error->count;
}

/* An element that is finite on one side only fails any limit, and so does an output without finite ones. */
static int is_comparable(const struct tensor_error *error)
{
    return (error->count == 0 || error->not_finite < error->count) &&
           error->not_finite == error->not_finite_both && error->not_finite_exact == error->not_finite_both;
}

static int is_within(const struct values *values, const struct tensor_error *error)
{
    if (has_limit(values) && !is_comparable(error)) return 0;
    return (values->max_relative_l2 < 0 || error->relative_l2 <= values->max_relative_l2) &&
           (values->min_cosine < -1 || error->cosine >= values->min_cosine) &&
           (values->max_abs < 0 || error->max_abs <= values->max_abs);
}

static void compare_one(struct comparison *c, struct entry *entry)
{
    struct outcome outcome = {0};
    call_reset(&c->call);
    c->call.args.params = c->values->params;
    attn_status status = run_backend(c, entry->backend, c->values->context.device, &c->call.layer,
                                     &c->call.args, entry, &outcome, &entry->error);
    if (!status && c->call.generated.store) status = generate_verify(&c->call.generated, &entry->error);
    if (!status) {
        entry->error.kind = ATTN_KIND_NONE;
        tensor_compare(outcome.out, c->exact.out, c->exact.out_count, &entry->out);
        entry->has_lse = outcome.lse != NULL;
        if (outcome.lse) tensor_compare(outcome.lse, c->exact.lse, c->exact.lse_count, &entry->lse);
        entry->within = is_within(c->values, &entry->out);
        if (strcmp(entry->backend, REFERENCE) == 0) c->base_seconds = entry->seconds;
    }
    outcome_free(&outcome);
}

/* ---- the exact result -------------------------------------------------------------------------- */

/* Tensors of a call in f64: copies of inputs, room for outputs. */
static const struct {
    size_t arg; /* in attn_args */
    int is_input;
} wide_rows[] = {
    {offsetof(attn_args, q), 1},       {offsetof(attn_args, k), 1},         {offsetof(attn_args, v), 1},
    {offsetof(attn_args, joint_q), 1}, {offsetof(attn_args, joint_k), 1},   {offsetof(attn_args, joint_v), 1},
    {offsetof(attn_args, out), 0},     {offsetof(attn_args, joint_out), 0},
};
#define WIDE (sizeof wide_rows / sizeof *wide_rows)

static attn_status widen(const DLTensor *tensor, int is_input, struct tensor *wide, attn_error *error)
{
    attn_status status = tensor_make(wide, ATTN_F64, tensor->ndim, tensor->shape, error);
    if (status || !is_input) return status;
    double *values = tensor_values(tensor);
    if (!values) return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a copy of the inputs in f64");
    memcpy(wide->memory, values, wide->bytes);
    free(values);
    return ATTN_OK;
}

/* The reference in double from end to end: what every backend, the reference included, is held against. */
static attn_status find_exact(struct comparison *c, attn_error *error)
{
    struct entry entry;
    struct tensor wide[WIDE];
    attn_args args = generate_plain(&c->call.generated, &c->call.args);
    attn_layer_options options = c->call.layer;
    attn_status status = ATTN_OK;
    memset(&entry, 0, sizeof entry);
    memset(wide, 0, sizeof wide);
    options.dtype = ATTN_F64;
    options.needs &= ~ATTN_FEATURE(F32_OUT);
    for (size_t i = 0; i < WIDE && !status; i++) {
        const DLTensor **arg = (const DLTensor **)(void *)((char *)&args + wide_rows[i].arg);
        if (!*arg) continue;
        status = widen(*arg, wide_rows[i].is_input, &wide[i], error);
        *arg = &wide[i].dl;
    }
    if (!status) status = run_backend(c, REFERENCE, "cpu", &options, &args, &entry, &c->exact, error);
    c->base_seconds = entry.seconds;
    for (size_t i = 0; i < WIDE; i++) tensor_free(&wide[i]);
    return status;
}

/* ---- which backends ---------------------------------------------------------------------------- */

static attn_status add_entry(struct comparison *c, const char *name, size_t length, attn_error *error)
{
    struct entry *entries = realloc(c->entries, (c->count + 1) * sizeof *entries);
    if (!entries) return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a list of backends");
    c->entries = entries;
    memset(&entries[c->count], 0, sizeof *entries);
    entries[c->count].error.size = sizeof(attn_error);
    snprintf(entries[c->count].backend, sizeof entries[c->count].backend, "%.*s", (int)length, name);
    c->count++;
    return ATTN_OK;
}

/* -b names one. */
static const char *wanted_backends(const struct values *values)
{
    return values->backends ? values->backends : values->context.backend;
}

static attn_status named_backends(struct comparison *c, attn_error *error)
{
    attn_status status = ATTN_OK;
    for (const char *at = wanted_backends(c->values); !status;) {
        size_t length = strcspn(at, ",");
        if (length == 0)
            return cli_fail(error, ATTN_KIND_INVALID_VALUE,
                            "--backends is \"%s\"; expected names between commas",
                            wanted_backends(c->values));
        status = add_entry(c, at, length, error);
        if (!at[length]) break;
        at += length + 1;
    }
    return status;
}

static attn_status all_backends(struct comparison *c, attn_error *error)
{
    attn_context *context = NULL;
    attn_backend_info info = {.size = sizeof info};
    attn_plugin_info plugin = {.size = sizeof plugin};
    struct context_values values = c->values->context;
    values.backend = NULL;
    attn_status status = context_open(&values, NULL, &context, error);
    for (size_t i = 0; !status && attn_backend_at(context, i, &info); i++)
        if (!info.dispatches) status = add_entry(c, info.name, strlen(info.name), error);
    for (size_t i = 0; !status && attn_plugin_at(context, i, &plugin); i++)
        status = add_entry(c, plugin.name, strlen(plugin.name), error);
    attn_close(context);
    return status;
}

/* ---- report ------------------------------------------------------------------------------------ */

/* error NULL: there is no such output. */
static void error_cell(struct report_table *table, const char *format, const struct tensor_error *error,
                       double value)
{
    char text[32] = "-";
    if (error && is_measured(error)) snprintf(text, sizeof text, format, value);
    report_cell(table, "%s", text);
}

/* What was left out of the measures, and what is not finite on one side only. */
static const char *not_finite_text(const struct entry *e, char *text, size_t bytes)
{
    const struct tensor_error *out = &e->out;
    const char *comma = e->within ? "" : ", ";
    int64_t here = out->not_finite - out->not_finite_both,
            exact = out->not_finite_exact - out->not_finite_both;
    int used = 0;
    *text = 0;
    if (out->not_finite_both)
        used = snprintf(text, bytes, "%s%" PRId64 " not finite in both", comma, out->not_finite_both);
    if (here || exact)
        snprintf(text + used, bytes - (size_t)used,
                 "%s%" PRId64 " not finite here, %" PRId64 " in the exact result", used ? ", " : comma, here,
                 exact);
    return text;
}

static json_t *error_json(const struct tensor_error *error, double value)
{
    return is_measured(error) ? report_real(value) : json_null();
}

/* The share of scores that a block map keeps; -1 without one. */
static double kept_share(const struct comparison *c)
{
    attn_block_stats stats = {.size = sizeof stats};
    attn_block_map map;
    if (!c->call.args.block_map) return -1;
    map = *c->call.args.block_map;
    map.q_len = c->call.args.q->shape[1] + (c->call.args.joint_q ? c->call.args.joint_q->shape[1] : 0);
    map.kv_len = c->call.args.k->shape[1] + (c->call.args.joint_k ? c->call.args.joint_k->shape[1] : 0);
    return attn_block_map_stats(&map, -1, -1, &stats, NULL) ? -1 : stats.share;
}

static void print_table(const struct comparison *c)
{
    static const char *const headings[] = {
        "backend",        "implementation", ">cosine",   ">rel L2", ">max error",
        ">max lse error", ">time",          ">speed-up", "",        NULL};
    char text[128], blocks[256];
    struct report_table *table = report_table_new(headings);
    for (size_t i = 0; table && i < c->count; i++) {
        const struct entry *e = &c->entries[i];
        if (e->error.kind) continue;
        report_cell(table, "%s", e->backend);
        report_cell(table, "%s", e->implementation);
        error_cell(table, "%.9f", &e->out, e->out.cosine);
        error_cell(table, "%.2e", &e->out, e->out.relative_l2);
        error_cell(table, "%.2e", &e->out, e->out.max_abs);
        error_cell(table, "%.2e", e->has_lse ? &e->lse : NULL, e->lse.max_abs);
        report_cell(table, "%s", report_time(e->seconds, text));
        report_cell(table, "%.2fx", c->base_seconds / e->seconds);
        report_cell(table, "%s%s", e->within ? "" : "beyond the limits",
                    not_finite_text(e, text, sizeof text));
        if (!e->within) report_cell_style(table, REPORT_BAD);
    }
    printf("%s, against %s in f64\n", c->call.text, REFERENCE);
    double kept = kept_share(c);
    if (kept >= 0) printf("the block map keeps %.1f %% of the scores\n", 100 * kept);
    if (table) report_table_print(stdout, table, REPORT_TABLE);
    report_table_free(table);
    for (size_t i = 0; i < c->count; i++) {
        const struct entry *e = &c->entries[i];
        if (!e->error.kind && *e->note)
            printf("%s: %s\n", e->backend, report_blocks(e->note, e->map_seconds, e->seconds, blocks));
        if (e->error.kind && !c->hide_refusals)
            printf("%s: %s\n", attn_kind_exit(e->error.kind) == CLI_REFUSED ? "refused" : "failed",
                   e->reason);
    }
}

static json_t *entry_json(const struct comparison *c, const struct entry *e)
{
    json_t *object = json_pack("{s:s}", "backend", e->backend);
    if (object && !e->error.kind) {
        json_object_set_new(object, "implementation", json_string(e->implementation));
        json_object_set_new(object, "plan", json_string(e->plan));
        json_object_set_new(object, "cosine", error_json(&e->out, e->out.cosine));
        json_object_set_new(object, "relative_l2", error_json(&e->out, e->out.relative_l2));
        json_object_set_new(object, "max_abs", error_json(&e->out, e->out.max_abs));
        json_object_set_new(object, "not_finite", json_integer(e->out.not_finite));
        json_object_set_new(object, "not_finite_exact", json_integer(e->out.not_finite_exact));
        json_object_set_new(object, "not_finite_both", json_integer(e->out.not_finite_both));
        json_object_set_new(object, "lse_max_abs",
                            e->has_lse ? error_json(&e->lse, e->lse.max_abs) : json_null());
        json_object_set_new(object, "seconds", report_real(e->seconds));
        json_object_set_new(object, "speed_up", report_real(c->base_seconds / e->seconds));
        json_object_set_new(object, "kept_share", report_real(e->kept));
        json_object_set_new(object, "map_seconds", report_real(e->map_seconds));
        json_object_set_new(object, "note", json_string(e->note));
        json_object_set_new(object, "within_limits", json_boolean(e->within));
    }
    report_json_error(object, &e->error);
    return object;
}

static json_t *comparison_json(const struct comparison *c)
{
    json_t *results = json_array();
    double kept = kept_share(c);
    for (size_t i = 0; i < c->count; i++) json_array_append_new(results, entry_json(c, &c->entries[i]));
    return json_pack("{s:s, s:s, s:o, s:o, s:o}", "problem", c->call.text, "reference", REFERENCE,
                     "base_seconds", report_real(c->base_seconds), "kept",
                     kept >= 0 ? report_real(kept) : json_null(), "results", results);
}

/* ---- the command ------------------------------------------------------------------------------- */

/* A named backend that is refused fails the command; in a list of all, refusals are news. */
static int exit_code(const struct comparison *c)
{
    int code = CLI_OK;
    for (size_t i = 0; i < c->count; i++) {
        const struct entry *e = &c->entries[i];
        int failed = e->error.kind ? attn_kind_exit(e->error.kind) : e->within ? CLI_OK : CLI_FAILED_CHECK;
        if (e->error.kind && failed == CLI_REFUSED && !wanted_backends(c->values)) continue;
        if (failed > code) code = failed;
    }
    return code;
}

/* A failure of the whole comparison; in JSON it takes the place of a comparison. */
static int fail(const char *problem, json_t *list, const attn_error *error)
{
    json_t *object = list ? json_pack("{s:s?}", "problem", problem) : NULL;
    if (object) {
        report_json_error(object, error);
        json_array_append_new(list, object);
    }
    return report_failure(error);
}

static int compare_call(struct comparison *c, json_t *list)
{
    attn_error error = ATTN_ERROR_INIT;
    struct report_progress progress;
    attn_status status = call_add_lse(&c->call, &error);
    if (!status) status = wanted_backends(c->values) ? named_backends(c, &error) : all_backends(c, &error);
    report_progress_begin(&progress, "compare", (int64_t)c->count + 1);
    if (!status) status = find_exact(c, &error);
    for (size_t i = 0; !status && i < c->count && !cli_interrupted(); i++) {
        report_progress_step(&progress, (int64_t)i + 1, c->entries[i].backend);
        compare_one(c, &c->entries[i]);
    }
    report_progress_clear(&progress);
    if (cli_interrupted()) {
        report_note("interrupted");
        return CLI_INTERRUPTED;
    }
    if (status) return report_failure(&error);
    if (list)
        json_array_append_new(list, comparison_json(c));
    else
        print_table(c);
    return exit_code(c);
}

static int compare_close(struct comparison *c, int code)
{
    call_free(&c->call);
    outcome_free(&c->exact);
    free(c->entries);
    return code;
}

/* The exact call stands beside the problem's own, and two results in f64. */
static attn_status make_call(const struct problem *problem, struct call *call, attn_error *error)
{
    attn_status status = call_fits(problem, &(struct call_extra){.exact = 1, .outcomes = 1}, error);
    return status ? status : call_from_problem(problem, call, error);
}

static int compare_problems(const struct values *values, json_t *list)
{
    struct problem_list problems;
    char text[PROBLEM_TEXT_BYTES];
    attn_error error = ATTN_ERROR_INIT;
    int worst = CLI_OK;
    if (call_check_problem(&values->call, &error) || problem_parse(values->call.problem, &problems, &error))
        return fail(values->call.problem, list, &error);
    for (size_t i = 0; i < problems.count && worst != CLI_INTERRUPTED; i++) {
        struct comparison c;
        memset(&c, 0, sizeof c);
        c.values = values;
        c.hide_refusals = i > 0 && !wanted_backends(values);
        int code = make_call(&problems.items[i], &c.call, &error)
                       ? fail(problem_format(&problems.items[i], text, sizeof text), list, &error)
                       : compare_close(&c, compare_call(&c, list));
        if (!list && i + 1 < problems.count) putchar('\n');
        if (code > worst) worst = code;
    }
    problem_list_free(&problems);
    return worst;
}

static int compare_files(const struct values *values, json_t *list)
{
    struct comparison c;
    attn_error error = ATTN_ERROR_INIT;
    memset(&c, 0, sizeof c);
    c.values = values;
    if (call_from_files(&values->call, 0, &c.call, &error)) return fail(NULL, list, &error);
    return compare_close(&c, compare_call(&c, list));
}

static int print_json(json_t *list, int code)
{
    json_t *object = json_pack("{s:o, s:b}", "comparisons", list, "passed", code == CLI_OK);
    int written = report_json(object);
    return written ? written : code;
}

static attn_status read_params(struct values *values, attn_error *error)
{
    attn_error found = ATTN_ERROR_INIT;
    if (!values->params_text || !attn_params_parse(values->params_text, &values->params, &found))
        return ATTN_OK;
    return cli_fail(error, found.kind, "--params: %.400s", found.text);
}

static int run(int argc, char **argv)
{
    struct values values;
    attn_error error = ATTN_ERROR_INIT;
    memset(&values, 0, sizeof values);
    call_defaults(&values.call);
    values.max_relative_l2 = values.max_abs = -1;
    values.min_cosine = -2;
    int code = options_parse(&command_compare, argc, argv, &values, NULL);
    if (code != OPTIONS_GO_ON) return code;
    if (values.context.config) {
        report_error(
            "compare runs one backend after the other; name them with --backends, not with a configuration");
        return CLI_USAGE;
    }
    json_t *list = values.json ? json_array() : NULL;
    if (read_params(&values, &error))
        code = fail(NULL, list, &error);
    else
        code = values.call.problem ? compare_problems(&values, list) : compare_files(&values, list);
    attn_params_free(values.params);
    return list ? print_json(list, code) : code;
}

const struct cli_command command_compare = {
    .usage = "--problem STRING | --q FILE --k FILE --v FILE [OPTION]...",
    .text =
        "Runs backends over the same tensors and compares each with TORCH_SDPA on the same numbers in f64.\n"
        "The speed-up is over TORCH_SDPA on the tensors' own types, or over the f64 run when it is not "
        "compared.\n"
        "With a limit, exit status 1 says that a backend was beyond it, or that an element is finite on one\n"
        "side only, or none at all. What is the same NaN or infinity in both is left out and counted.",
    .examples = "  attn compare --problem b1h12s1024d64:bf16:mask=key\n"
                "  attn compare --q q.npy --k k.npy --v v.npy --backends FLASH_ATTN --max-rel-l2 1e-3\n"
                "  attn compare --problem b1h8s512-4096*2d128:f32 --json\n",
    .options = rows,
    .run = run,
};
