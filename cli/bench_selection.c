/* bench_selection.c: what choosing costs: opening a context, resolving a role anew and from the cache. */
#include <stdio.h>
#include <stdlib.h>

#include "bench.h"
#include "cli.h"

enum { ROUNDS = 25, ROLES = 400, REPEATS = 20000 };

/* One measured thing: seconds an operation, the median of the rounds, and the bound it is held to. */
struct cost {
    const char *what, *bound_text;
    double bound, seconds[ROUNDS];
};

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(struct cost *cost)
{
    qsort(cost->seconds, ROUNDS, sizeof *cost->seconds, by_size);
    return cost->seconds[ROUNDS / 2];
}

/* Each round asks for roles that no round before has asked for, then for the same role over and over. */
static attn_status measure_round(int round, struct cost *costs, attn_error *error)
{
    static const char config[] = "{\"default\": \"CUDNN_ATTN\", \"per_role\": {\"cross\": \"SAGE_ATTN_3\"}}";
    attn_facts *facts = NULL;
    attn_context *context = NULL, *here = NULL;
    attn_resolution answer = {.size = sizeof answer};
    attn_query query = {.size = sizeof query, .head_size = 128};
    attn_status status = attn_facts_load("preset:b200", &facts, error);
    attn_options told = {.size = sizeof told, .config = config, .facts = facts, .module_path = ""};
    attn_options live = {.size = sizeof live, .module_path = ""};
    double start = cli_seconds();
    if (!status) status = attn_open(&live, &here, error);
    costs[0].seconds[round] = cli_seconds() - start;
    if (!status) status = attn_open(&told, &context, error);
    start = cli_seconds();
    for (int i = 0; i < ROLES && !status; i++) {
        char role[32];
        snprintf(role, sizeof role, "role %d", i);
        query.role = role;
        status = attn_resolve(context, &query, &answer, NULL, NULL, error);
    }
    costs[1].seconds[round] = (cli_seconds() - start) / ROLES;
    query.role = "cross";
    start = cli_seconds();
    for (int i = 0; i < REPEATS && !status; i++)
        status = attn_resolve(context, &query, &answer, NULL, NULL, error);
    costs[2].seconds[round] = (cli_seconds() - start) / REPEATS;
    attn_close(context);
    attn_close(here);
    attn_facts_free(facts);
    return status;
}

static int print_json(struct cost *costs, size_t count)
{
    json_t *list = json_array(), *root;
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_pack("{s:s, s:f, s:f}", "what", costs[i].what, "seconds",
                                              median(&costs[i]), "bound", costs[i].bound));
    root = json_pack("{s:o}", "selection", list);
    report_json_error(root, NULL);
    return report_json(root);
}

static void print_table(struct cost *costs, size_t count, enum report_format format)
{
    static const char *const headings[] = {"what", ">median", ">bound", "verdict", NULL};
    struct report_table *table = report_table_new(headings);
    char text[32];
    for (size_t i = 0; table && i < count; i++) {
        double seconds = median(&costs[i]);
        report_cell(table, "%s", costs[i].what);
        report_cell(table, "%s", report_time(seconds, text));
        report_cell(table, "%s", costs[i].bound_text);
        report_cell(table, "%s", seconds <= costs[i].bound ? "within" : "above");
    }
    if (!table) return;
    report_table_print(stdout, table, format);
    report_table_free(table);
    printf("\nMedians of %d rounds of wall time on one thread; %d roles and %d repeats a round.\n", ROUNDS,
           ROLES, REPEATS);
}

int bench_selection(int json, enum report_format format)
{
    struct cost costs[] = {{"open a context on this machine, all probes", "5 ms", 5e-3, {0}},
                           {"resolve a role for the first time", "50 us", 50e-6, {0}},
                           {"resolve it again", "1 us", 1e-6, {0}}};
    size_t count = sizeof costs / sizeof *costs;
    attn_error error = ATTN_ERROR_INIT;
    for (int round = 0; round < ROUNDS; round++) {
        if (cli_interrupted()) return CLI_INTERRUPTED;
        if (measure_round(round, costs, &error)) return report_failure_json(&error, json);
    }
    if (json) return print_json(costs, count);
    print_table(costs, count, format);
    return CLI_OK;
}
