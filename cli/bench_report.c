/* bench_report.c: the results of attn bench as a table, Markdown or JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench.h"
#include "cli.h"

static const char *clock_text(const struct bench_setup *setup)
{
    if (!setup->ceiling) return "the device's clock";
    return setup->threads == 1 ? "thread CPU time" : "wall time";
}

/* ---- ceilings ----------------------------------------------------------------------------------- */

/* Rate of a loop in the clock that counts for the candidates. */
static double loop_rate(const struct bench_setup *setup, int row)
{
    const ceiling *c = setup->ceiling;
    return ceiling_median(setup->threads == 1 ? &c->cpu[row] : &c->wall[row], 0);
}

static double read_rate(const struct bench_setup *setup)
{
    return ceiling_median(setup->threads == 1 ? &setup->ceiling->read_cpu : &setup->ceiling->read, 0);
}

static int is_ceiling(const ceiling *c, int row)
{
    return row == ceiling_widest(c, c->loop[row]->dtype);
}

void bench_print_void(const ceiling *c)
{
    for (int row = 0; row < c->rows; row++) {
        double a_cycle = ceiling_median(&c->a_cycle[row], 0);
        if (!is_ceiling(c, row) || ceiling_row_valid(c, row)) continue;
        if (c->a_cycle[row].count == 0)
            report_error(
                "this run is void: other processes took the cores in every sample of the %s loop; run on an "
                "idle machine",
                c->loop[row]->set);
        else
            report_error(
                "this run is void: the %s loop (%s) does %.1f FLOP a cycle and core, expected %.0f to %.0f; "
                "run on an idle machine, with a build that is optimised and not emulated",
                c->loop[row]->set, c->loop[row]->instruction, a_cycle, c->loop[row]->minimum,
                CEILING_PLAUSIBLE * c->loop[row]->minimum);
    }
}

static void print_ceilings(const struct bench_setup *setup, enum report_format format)
{
    static const char *const headings[] = {
        "ceiling", "dtype", "instruction", ">GFLOP/s", ">FLOP a cycle and core", ">needs", "counts", NULL};
    const ceiling *c = setup->ceiling;
    struct report_table *table = report_table_new(headings);
    for (int row = 0; table && row < c->rows; row++) {
        report_cell(table, "%s", c->loop[row]->set);
        report_cell(table, "%s", attn_dtype_name(c->loop[row]->dtype));
        report_cell(table, "%s", c->loop[row]->instruction);
        report_cell(table, "%.1f", 1e-9 * loop_rate(setup, row));
        report_cell(table, "%.1f", ceiling_median(&c->a_cycle[row], 0));
        report_cell(table, "%.0f", c->loop[row]->minimum);
        report_cell(table, "%s", !is_ceiling(c, row) ? "-" : ceiling_row_valid(c, row) ? "yes" : "void");
    }
    if (table) report_table_print(stdout, table, format);
    report_table_free(table);
    printf("\nclock %.2f GHz by dependent additions, memory read %.1f GB/s\n",
           1e-9 * ceiling_median(&c->clock, 0), 1e-9 * read_rate(setup));
}

/* ---- results ------------------------------------------------------------------------------------ */

static void title_cell(struct report_table *table, const struct bench_result *r, enum report_format format)
{
    char text[PROBLEM_TEXT_BYTES];
    const char *quote = format == REPORT_MARKDOWN ? "`" : "";
    if (r->shape && r->scale > 1)
        report_cell(table, "%s %s, 1/%g", r->shape->model, r->shape->site, r->scale);
    else if (r->shape)
        report_cell(table, "%s %s", r->shape->model, r->shape->site);
    else if (r->scale > 1)
        report_cell(table, "1/%g", r->scale);
    else
        report_cell(table, "-");
    report_cell(table, "%s%s%s", quote, problem_format(&r->problem, text, sizeof text), quote);
}

static void blank_cells(struct report_table *table, int count)
{
    for (int i = 0; i < count; i++) report_cell(table, "%s", "");
}

static void number_cells(struct report_table *table, const struct bench_result *r,
                         const struct bench_candidate *c)
{
    double best = bench_best(r);
    if (c->rounds == 0) {
        report_cell(table, "%s", c->error.kind ? attn_kind_name(c->error.kind) : "not measured");
        report_cell_style(table, REPORT_FAINT);
        blank_cells(table, 5);
        return;
    }
    report_cell(table, "%.3f", 1e3 * c->seconds);
    report_cell(table, "%.1f", 1e-9 * r->flop / c->seconds);
    if (r->bound > 0)
        report_cell(table, "%.1f", 100 * r->bound / c->seconds);
    else
        report_cell(table, "-");
    report_cell(table, "%s", r->bound <= 0 ? "-" : r->bound_by_memory ? "memory" : "compute");
    if (c->burst > 0)
        report_cell(table, "%.3f", 1e3 * c->burst);
    else
        report_cell(table, "-");
    report_cell(table, "%.2f", c->seconds / best);
    if (c->seconds <= best) report_cell_style(table, REPORT_GOOD);
}

static void print_results(const struct bench_result *results, size_t count, enum report_format format)
{
    static const char *const headings[] = {
        "model",         "problem", "backend",   "implementation",  ">median ms", ">GFLOP/s",
        ">% of ceiling", "ceiling", ">burst ms", ">times the best", NULL};
    struct report_table *table = report_table_new(headings);
    for (size_t i = 0; table && i < count; i++)
        for (size_t j = 0; j < results[i].count; j++) {
            const struct bench_candidate *c = &results[i].candidates[j];
            if (j == 0 || format == REPORT_MARKDOWN)
                title_cell(table, &results[i], format);
            else
                blank_cells(table, 2);
            report_cell(table, format == REPORT_MARKDOWN ? "`%s`" : "%s", c->backend);
            report_cell(table, "%s", *c->implementation ? c->implementation : "-");
            number_cells(table, &results[i], c);
        }
    if (table) report_table_print(stdout, table, format);
    report_table_free(table);
}

/* Who did not run and why, and what those that choose blocks did: a dense pass of theirs is no sparse time.
 */
static void print_refusals(const struct bench_result *results, size_t count)
{
    char text[PROBLEM_TEXT_BYTES], blocks[256];
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < results[i].count; j++) {
            const struct bench_candidate *c = &results[i].candidates[j];
            problem_format(&results[i].problem, text, sizeof text);
            if (c->error.kind)
                printf("refused: %s on %s: %s\n", c->backend, text, c->error.text);
            else if (*c->note)
                printf("%s on %s: %s\n", c->backend, text,
                       report_blocks(c->note, c->map_median, c->wall_median, blocks));
        }
}

static void print_device_notes(const struct bench_setup *setup, enum report_format format)
{
    const char *item = format == REPORT_MARKDOWN ? "- " : "", *more = format == REPORT_MARKDOWN ? "  " : "";
    printf("%sFLOP = %s.\n", item, BENCH_FLOP_TEXT);
    printf("%sTimes are medians of %d rounds under load, by %s; backends and the ceiling take turns in each "
           "round.\n"
           "%sburst: the first calls after a rest of 0.4 s.\n",
           item, setup->rounds, clock_text(setup), more);
    printf(
        "%sThe ceiling is what the matrix units do in the same rounds when nothing else is asked of them.\n"
        "%sInputs change between calls so that the cache (%zu MiB) holds none of them.\n",
        item, more, setup->cache_bytes >> 20);
}

static void rate_cell(struct report_table *table, double rate)
{
    if (rate > 0)
        report_cell(table, "%.0f", 1e-12 * rate);
    else
        report_cell(table, "-");
}

/* What the matrix units reached with each problem. */
static void print_device_ceilings(const struct bench_result *results, size_t count, enum report_format format)
{
    static const char *const headings[] = {"problem", "dtype", ">sustained TFLOP/s", ">burst TFLOP/s", NULL};
    const char *quote = format == REPORT_MARKDOWN ? "`" : "";
    char text[PROBLEM_TEXT_BYTES];
    struct report_table *table = report_table_new(headings);
    for (size_t i = 0; table && i < count; i++) {
        report_cell(table, "%s%s%s", quote, problem_format(&results[i].problem, text, sizeof text), quote);
        report_cell(table, "%s", attn_dtype_name(results[i].problem.dtype));
        rate_cell(table, results[i].flop_rate);
        rate_cell(table, results[i].burst_rate);
    }
    if (table) report_table_print(stdout, table, format);
    report_table_free(table);
}

static void print_notes(const struct bench_setup *setup, const struct bench_result *results, size_t count,
                        enum report_format format)
{
    const char *item = format == REPORT_MARKDOWN ? "- " : "", *more = format == REPORT_MARKDOWN ? "  " : "";
    int disturbed = 0, kept = 0;
    for (size_t i = 0; i < count; i++) {
        disturbed += results[i].disturbed;
        kept += results[i].disturbed_kept;
    }
    printf("%sFLOP = %s.\n", item, BENCH_FLOP_TEXT);
    printf("%sTimes are medians of %d rounds of %s; backends and ceilings take turns in each round.\n"
           "%sA backend 8 times slower than the best is measured in 3 rounds.\n",
           item, setup->rounds, clock_text(setup), more);
    printf("%sThe ceiling of a problem is the longer of its FLOP at the loop's rate for its dtype (f16 "
           "counts as\n"
           "%sf32), and q, k, v and out once at memory's rate if they exceed the largest cache (%zu MiB).\n",
           item, more, setup->cache_bytes >> 20);
    if (disturbed)
        printf("%sOther processes used the cores in %d rounds: %d measured again, %d kept.\n", item,
               disturbed, disturbed - kept, kept);
}

void bench_print(const struct bench_setup *setup, const struct bench_result *results, size_t count,
                 enum report_format format, const char *command_line)
{
    attn_context_info info = {.size = sizeof info};
    attn_context_get_info(setup->set.contexts[0], &info);
    if (format == REPORT_MARKDOWN) printf("# attn bench\n\n    %s\n\n", command_line);
    if (setup->ceiling) {
        printf("libattn %s on %s, kernels: %s, %d thread%s\n\n", attn_version(), info.cpu, info.isa,
               setup->threads, setup->threads == 1 ? "" : "s");
        print_ceilings(setup, format);
    } else {
        printf("libattn %s on %s\n\n", attn_version(), setup->device_name);
        print_device_ceilings(results, count, format);
    }
    printf("\n");
    if (count) {
        print_results(results, count, format);
        printf("\n");
        print_refusals(results, count);
    }
    if (setup->ceiling)
        print_notes(setup, results, count, format);
    else
        print_device_notes(setup, format);
}

/* ---- JSON --------------------------------------------------------------------------------------- */

static json_t *ceilings_json(const struct bench_setup *setup)
{
    const ceiling *c = setup->ceiling;
    json_t *list = json_array();
    for (int row = 0; row < c->rows; row++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:b, s:b}", "set",
                                        c->loop[row]->set, "dtype", attn_dtype_name(c->loop[row]->dtype),
                                        "instruction", c->loop[row]->instruction, "wall_gflops",
                                        report_real(1e-9 * ceiling_median(&c->wall[row], 0)), "cpu_gflops",
                                        report_real(1e-9 * ceiling_median(&c->cpu[row], 0)), "flop_per_cycle",
                                        report_real(ceiling_median(&c->a_cycle[row], 0)),
                                        "minimum_flop_per_cycle", report_real(c->loop[row]->minimum),
                                        "counts", is_ceiling(c, row), "valid", ceiling_row_valid(c, row)));
    return list;
}

static json_t *candidate_json(const struct bench_result *r, const struct bench_candidate *c)
{
    json_t *object = json_pack("{s:s, s:s, s:s, s:s, s:i}", "backend", c->backend, "implementation",
                               c->implementation, "plan", c->plan, "note", c->note, "rounds", c->rounds);
    if (c->rounds) {
        double best = bench_best(r);
        json_object_set_new(object, "seconds", report_real(c->seconds));
        json_object_set_new(object, "wall_seconds", report_real(c->wall_median));
        json_object_set_new(object, "cpu_seconds", c->burst > 0 ? json_null() : report_real(c->cpu_median));
        json_object_set_new(object, "burst_seconds", c->burst > 0 ? report_real(c->burst) : json_null());
        json_object_set_new(object, "map_seconds", report_real(c->map_median));
        json_object_set_new(object, "gflops", report_real(1e-9 * r->flop / c->seconds));
        json_object_set_new(object, "gbytes_per_second", report_real(1e-9 * r->bytes / c->seconds));
        json_object_set_new(object, "share_of_ceiling",
                            r->bound > 0 ? report_real(r->bound / c->seconds) : json_null());
        json_object_set_new(object, "times_best", report_real(c->seconds / best));
        if (r->own_read_rate > 0)
            json_object_set_new(object, "share_of_own_read",
                                report_real(r->bytes / c->seconds / r->own_read_rate));
    }
    report_json_error(object, c->error.kind ? &c->error : NULL);
    return object;
}

static json_t *result_json(const struct bench_result *r)
{
    char text[PROBLEM_TEXT_BYTES];
    json_t *candidates = json_array();
    for (size_t i = 0; i < r->count; i++)
        json_array_append_new(candidates, candidate_json(r, &r->candidates[i]));
    return json_pack("{s:s, s:s?, s:s?, s:s?, s:o, s:o, s:o, s:s, s:o, s:i, s:i, s:o, s:o, s:o}", "problem",
                     problem_format(&r->problem, text, sizeof text), "model",
                     r->shape ? r->shape->model : NULL, "site", r->shape ? r->shape->site : NULL, "source",
                     r->shape ? r->shape->source : NULL, "scale", report_real(r->scale), "flop",
                     report_real(r->flop), "bytes", report_real(r->bytes), "ceiling",
                     r->bound <= 0        ? "unknown"
                     : r->bound_by_memory ? "memory"
                                          : "compute",
                     "own_read_gbytes_per_second",
                     r->own_read_rate > 0 ? report_real(1e-9 * r->own_read_rate) : json_null(),
                     "disturbed_rounds", r->disturbed, "disturbed_rounds_kept", r->disturbed_kept,
                     "ceiling_flop_per_second", report_real(r->flop_rate), "burst_ceiling_flop_per_second",
                     report_real(r->burst_rate), "candidates", candidates);
}

int bench_print_json(const struct bench_setup *setup, const struct bench_result *results, size_t count,
                     const attn_error *error)
{
    const ceiling *c = setup->ceiling;
    attn_context_info info = {.size = sizeof info};
    json_t *list = json_array();
    attn_context_get_info(setup->set.contexts[0], &info);
    for (size_t i = 0; i < count; i++) json_array_append_new(list, result_json(&results[i]));
    json_t *object = json_pack("{s:s, s:s, s:s, s:i, s:i, s:s, s:s, s:o}", "version", attn_version(), "cpu",
                               info.cpu, "isa", info.isa, "threads", setup->threads, "rounds", setup->rounds,
                               "clock", clock_text(setup), "flop_formula", BENCH_FLOP_TEXT, "results", list);
    if (object && !c)
        json_object_set_new(object, "device", json_string(setup->device_name));
    else if (object)
        json_object_update_new(object,
                               json_pack("{s:b, s:o, s:o, s:o}", "valid", ceiling_valid(c), "ceilings",
                                         ceilings_json(setup), "core_ghz",
                                         report_real(1e-9 * ceiling_median(&c->clock, 0)),
                                         "read_gbytes_per_second", report_real(1e-9 * read_rate(setup))));
    report_json_error(object, error);
    return report_json(object);
}
