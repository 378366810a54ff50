/* run.c: attn run, attention over tensors from files or generated ones. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "call.h"
#include "cli.h"
#include "measure.h"
#include "options_context.h"
#include "report.h"

struct values {
    struct context_values context;
    struct call_values call;
    const char *out, *lse, *scores, *scores_mode, *out_dtype;
    int64_t repeat;
    int json;
};

static const struct option_row rows[] = {
    OPTION_ROW_HEADING("Inputs"),
#define X(...) CALL_ROW(struct values, __VA_ARGS__)
#include "options_call.def"
#undef X
    OPTION_ROW_HEADING("Outputs"),
    OPTION_ROW_TEXT(struct values, out, "out", "o", "FILE[:TENSOR]", "the result, in q's layout"),
    OPTION_ROW_TEXT(struct values, out_dtype, "out-dtype", NULL, "NAME", "f32, or q's type (default)"),
    OPTION_ROW_TEXT(struct values, lse, "lse", NULL, "FILE[:TENSOR]",
                    "log-sum-exp of each row, f32 [B, H, Sq]"),
    OPTION_ROW_TEXT(struct values, scores, "scores", NULL, "FILE[:TENSOR]",
                    "score matrix, f32 [B, H, Sq, Sk]"),
    OPTION_ROW_TEXT(struct values, scores_mode, "scores-mode", NULL, "NAME",
                    "scaled, capped, masked or probs (default: probs)"),
    OPTION_ROW_HEADING("Backend"),
#define X(...) CONTEXT_ROW(struct values, __VA_ARGS__)
#include "options_context.def"
#undef X
    OPTION_ROW_HEADING("Report"),
    OPTION_ROW_INT(struct values, repeat, "repeat", "n", "N",
                   "timed runs after an untimed one (default: half a second's worth)", 1, 1000),
    OPTION_ROW_FLAG(struct values, json, "json", "j", "a JSON object on standard output"),
    OPTION_ROW_END,
};

/* ---- setting up -------------------------------------------------------------------------------- */

static attn_status one_problem(const char *text, struct problem *problem, attn_error *error)
{
    struct problem_list list;
    attn_status status = problem_parse(text, &list, error);
    if (status) return status;
    if (list.count == 1)
        *problem = list.items[0];
    else
        status = cli_fail(error, ATTN_KIND_INVALID_VALUE,
                          "problem \"%.200s\" stands for %zu problems; run takes one, "
                          "bench and compare take lists",
                          text, list.count);
    problem_list_free(&list);
    return status;
}

static attn_status read_out_dtype(const struct values *values, attn_dtype *dtype, attn_error *error)
{
    *dtype = values->out_dtype ? attn_dtype_from_name(values->out_dtype) : 0;
    if (!values->out_dtype || *dtype) return ATTN_OK;
    return cli_fail(error, ATTN_KIND_UNKNOWN_NAME, "--out-dtype is \"%s\"; expected f32, f16, bf16 or f64",
                    values->out_dtype);
}

static attn_status make_call(const struct values *values, struct call *call, attn_error *error)
{
    struct problem problem;
    attn_dtype out_dtype;
    attn_status status = read_out_dtype(values, &out_dtype, error);
    if (!status && values->scores_mode && !values->scores)
        status = cli_fail(error, ATTN_KIND_INVALID_VALUE,
                          "--scores-mode says what --scores writes; give --scores too, or leave it out");
    if (status) return status;
    if (!values->call.problem) return call_from_files(&values->call, out_dtype, call, error);
    status = call_check_problem(&values->call, error);
    if (!status) status = one_problem(values->call.problem, &problem, error);
    if (status) return status;
    if (out_dtype) problem.out_dtype = out_dtype;
    status = call_fits(&problem, &(struct call_extra){.scores = values->scores != NULL}, error);
    if (status) return status;
    return call_from_problem(&problem, call, error);
}

static attn_status add_outputs(const struct values *values, struct call *call, attn_error *error)
{
    const char *const specs[] = {values->out, values->lse, values->scores};
    attn_status status = ATTN_OK;
    for (int i = 0; i < 3 && !status; i++) {
        if (!specs[i]) continue;
        status = tensor_save_check(specs[i], error);
        if (!status) status = call_check_output(&values->call, specs[i], error);
    }
    if (!status && values->lse) status = call_add_lse(call, error);
    if (!status && values->scores)
        status = call_add_scores(call, values->scores_mode ? values->scores_mode : "probs", error);
    return status;
}

static attn_status save(const struct values *values, const struct call *call, attn_error *error)
{
    const struct tensor_output all[] = {
        {values->out, call_out(call)}, {values->lse, call->args.lse}, {values->scores, call->args.scores}};
    struct tensor_output outputs[3];
    size_t count = 0;
    for (int i = 0; i < 3; i++) {
        if (all[i].spec) outputs[count++] = all[i];
    }
    return tensor_save_all(outputs, count, error);
}

/* ---- report ------------------------------------------------------------------------------------ */

struct result {
    attn_layer_info layer;
    attn_context_info context;
    struct measure measure;
    double gflops;
};

static json_t *to_json(const struct values *values, const struct call *call, const struct result *r)
{
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:b, s:s, s:i}", "problem", call->text, "backend", r->layer.backend,
        "implementation", r->layer.implementation, "source", r->layer.source, "reason", r->layer.reason,
        "explicit", r->layer.explicit_choice, "plan", r->layer.plan, "threads", (int)r->context.threads);
    if (!object) return NULL;
    json_object_set_new(object, "device",
                        json_string(values->context.device ? values->context.device : "cpu"));
    json_object_set_new(object, "seconds", report_real(r->measure.median));
    json_object_set_new(object, "seconds_best", report_real(r->measure.best));
    json_object_set_new(object, "repeats", json_integer(r->measure.repeats));
    json_object_set_new(object, "gflops", report_real(r->gflops));
    json_object_set_new(object, "workspace_bytes", json_integer((json_int_t)r->measure.workspace));
    json_object_set_new(object, "peak_bytes",
                        r->measure.peak_bytes < 0 ? json_null() : json_integer(r->measure.peak_bytes));
    json_object_set_new(object, "kept_share", report_real(r->layer.kept_share));
    json_object_set_new(object, "map_seconds", report_real(r->measure.map_seconds));
    json_object_set_new(object, "note", json_string(r->layer.report ? r->layer.report : ""));
    if (values->out) json_object_set_new(object, "out", json_string(values->out));
    if (values->lse) json_object_set_new(object, "lse", json_string(values->lse));
    if (values->scores) json_object_set_new(object, "scores", json_string(values->scores));
    report_json_error(object, NULL);
    return object;
}

static void line(const char *name, const char *text)
{
    printf("%s%-15s%s %s\n", report_begin(stdout, REPORT_BOLD), name, report_end(stdout), text);
}

static void print_text(const struct values *values, const struct call *call, const struct result *r)
{
    char text[512], blocks[256], a[32], b[32];
    line("problem", call->text);
    line("backend", r->layer.backend);
    line("implementation", r->layer.implementation);
    line("source", r->layer.source);
    line("reason", r->layer.reason);
    line("plan", r->layer.plan);
    snprintf(text, sizeof text, "%s median, %s best of %" PRId64, report_time(r->measure.median, a),
             report_time(r->measure.best, b), r->measure.repeats);
    size_t used = strlen(text);
    if (mirror_is_host(call->layer.device))
        snprintf(text + used, sizeof text - used, " on %d threads", r->context.threads);
    else
        snprintf(text + used, sizeof text - used, " on %s, by its own clock", values->context.device);
    line("time", text);
    snprintf(text, sizeof text, "%.1f GFLOP/s, 2 (D + Dv) FLOP a pair", r->gflops);
    line("speed", text);
    snprintf(text, sizeof text, "%s peak beyond the tensors, %s workspace",
             r->measure.peak_bytes < 0 ? "unknown" : report_bytes((double)r->measure.peak_bytes, a),
             report_bytes((double)r->measure.workspace, b));
    line("memory", text);
    if (r->layer.report && r->layer.report[0])
        line("note", report_blocks(r->layer.report, r->measure.map_seconds, r->measure.median, blocks));
    if (values->out) line("out", values->out);
    if (values->lse) line("lse", values->lse);
    if (values->scores) line("scores", values->scores);
}

/* ---- the command ------------------------------------------------------------------------------- */

/* The sentence of a refusal names one reason. When the choice was the user's, the others against that choice
 * follow, else those against every candidate. */
static void print_reasons(const struct context_reasons *reasons, int is_explicit)
{
    size_t name = reasons->count ? strcspn(reasons->lines[0], ":/") : 0, shown = 0;
    for (size_t i = 0; i < reasons->count; i++)
        shown += !is_explicit || strncmp(reasons->lines[i], reasons->lines[0], name + 1) == 0;
    for (size_t i = 0; i < reasons->count && shown > 1; i++) {
        if (!is_explicit || strncmp(reasons->lines[i], reasons->lines[0], name + 1) == 0)
            report_note("  %s", reasons->lines[i]);
    }
}

static int refuse(const struct values *values, const struct call *call, const struct context_reasons *reasons,
                  const attn_error *error)
{
    int code = report_failure_json(error, values->json);
    int is_explicit = (values->context.backend || values->context.config) && !values->context.verbose;
    if (code == CLI_REFUSED) print_reasons(reasons, is_explicit);
    if (code == CLI_RUNTIME && call->generated.store) report_note("  in attn run --problem %s", call->text);
    return code;
}

/* On the host as it is; on another device over copies of the tensors. */
static attn_status run_there(const struct values *values, attn_context *context, struct call *call,
                             attn_layer *layer, struct result *result, attn_error *error)
{
    struct mirror mirror;
    if (mirror_is_host(call->layer.device))
        return measure_forward(layer, &call->args, values->repeat, 0.5, &result->measure, error);
    attn_status status = mirror_make(&mirror, context, call->layer.device, &call->args, error);
    if (!status) status = measure_mirror(layer, &mirror, values->repeat, 0.5, &result->measure, error);
    if (!status) status = mirror_fetch(&mirror, error);
    mirror_free(&mirror);
    return status;
}

static attn_status execute(const struct values *values, attn_context *context, struct call *call,
                           attn_layer **layer, struct result *result, attn_error *error)
{
    attn_status status = context_site(&values->context, &call->layer, error);
    if (!status) status = attn_layer_open(context, &call->layer, layer, error);
    if (!status) status = run_there(values, context, call, *layer, result, error);
    if (!status && call->generated.store) status = generate_verify(&call->generated, error);
    if (!status) status = save(values, call, error);
    if (status) return status;
    result->layer.size = sizeof result->layer;
    attn_layer_get_info(*layer, &result->layer);
    result->context.size = sizeof result->context;
    attn_context_get_info(context, &result->context);
    attn_args plain = generate_plain(&call->generated, &call->args);
    double flops = tensor_flops(&call->layer, &plain);
    result->gflops = result->measure.median > 0 ? flops / result->measure.median * 1e-9 : 0;
    return ATTN_OK;
}

static int run_call(const struct values *values, struct call *call)
{
    struct context_reasons reasons = {0};
    struct result result;
    attn_context *context = NULL;
    attn_layer *layer = NULL;
    attn_error error = ATTN_ERROR_INIT;
    int code = CLI_OK;
    memset(&result, 0, sizeof result);
    attn_status status = add_outputs(values, call, &error);
    if (!status) status = context_open(&values->context, &reasons, &context, &error);
    struct report_pulse pulse;
    report_pulse_begin(&pulse, "run: computing");
    if (!status) status = execute(values, context, call, &layer, &result, &error);
    report_pulse_end(&pulse);
    if (status)
        code = refuse(values, call, &reasons, &error);
    else if (values->json)
        code = report_json(to_json(values, call, &result));
    else
        print_text(values, call, &result);
    attn_layer_close(layer);
    attn_close(context);
    context_reasons_free(&reasons);
    return code;
}

static int run(int argc, char **argv)
{
    struct values values;
    struct call call;
    attn_error error = ATTN_ERROR_INIT;
    memset(&values, 0, sizeof values);
    call_defaults(&values.call);
    int code = options_parse(&command_run, argc, argv, &values, NULL);
    if (code != OPTIONS_GO_ON) return code;
    struct report_pulse pulse;
    report_pulse_begin(&pulse, "run: preparing the tensors");
    attn_status status = make_call(&values, &call, &error);
    report_pulse_end(&pulse);
    if (status) return report_failure_json(&error, values.json);
    code = run_call(&values, &call);
    call_free(&call);
    return code;
}

const struct cli_command command_run = {
    .usage = "--problem STRING | --q FILE --k FILE --v FILE [--out FILE] [OPTION]...",
    .text = "Computes out = softmax(scale q k^T + mask) v with the chosen backend and reports what ran and "
            "how fast.\n\n" TENSOR_FLOPS_TEXT,
    .examples =
        "  attn run --q q.npy --k k.npy --v v.npy --out out.npy --causal\n"
        "  attn run --q x.safetensors:q --k x.safetensors:k --v x.safetensors:v --out y.safetensors:out\n"
        "  attn run --q q.npy --k k.npy --v v.npy --dtype bf16 --key-mask keep.npy --lse lse.npy\n"
        "  attn run --problem b1h24s4096d128:bf16 --threads 2 --json\n"
        "  attn run --problem b1h12s1024d64:f32:causal -b TORCH_SDPA\n",
    .options = rows,
    .run = run,
};
