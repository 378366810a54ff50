/* sparsity.c: attn sparsity, what a block map keeps: numbers a head, text, a picture, and what it saves. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "call.h"
#include "cli.h"
#include "measure.h"
#include "options_context.h"
#include "picture.h"
#include "report.h"

struct values {
    struct context_values context;
    const char *convert, *png;
    int64_t sample, head, rounds;
    int text, time, json, markdown;
};

#define ROUNDS_MAX 101

/* What is shown. */
struct found {
    struct call call;
    attn_block_map given;        /* of the problem, with its lengths */
    attn_block_map *owned;       /* what --convert made; NULL: nothing */
    const attn_block_map *map;   /* one of the two */
    int exact;                   /* the conversion keeps the same pairs */
    double dense, sparse, check; /* seconds; 0: not measured */
    char plan[160];
};

/* ---- finding ------------------------------------------------------------------------------------ */

static attn_status read_problem(char **words, int count, struct problem_list *list, attn_error *error)
{
    if (count != 1)
        return cli_fail(error, ATTN_KIND_INVALID_VALUE,
                        "%d problems were given; give one, as b1h12s8192d128:f32:sparse=0.875/128", count);
    attn_status status = problem_parse(words[0], list, error);
    if (status) return status;
    if (list->count == 1 && list->items[0].sparse >= 0) return ATTN_OK;
    return cli_fail(error, ATTN_KIND_INVALID_VALUE,
                    "problem \"%.200s\" %s; write one with a key such as sparse=0.875/128", words[0],
                    list->count == 1 ? "has no block map" : "stands for several");
}

/* "64" or "64x128". */
static attn_status read_blocks(const char *text, int64_t *q, int64_t *k, attn_error *error)
{
    char first[32];
    size_t length = strcspn(text, "x");
    snprintf(first, sizeof first, "%.*s", (int)(length < 31 ? length : 31), text);
    const char *second = text[length] ? text + length + 1 : first;
    if (cli_read_int(first, 1, INT32_MAX, q) && cli_read_int(second, 1, INT32_MAX, k)) return ATTN_OK;
    return cli_fail(error, ATTN_KIND_SYNTAX,
                    "--convert is \"%.60s\"; expected the size of a block, 64 or 64x128", text);
}

static attn_status find(const struct values *v, const struct problem *problem, struct found *f,
                        attn_error *error)
{
    int64_t q, k;
    attn_status status = call_fits(problem, &(struct call_extra){0}, error);
    if (!status) status = call_from_problem(problem, &f->call, error);
    if (status) return status;
    f->given = *f->call.args.block_map;
    f->given.q_len = problem->q_len + problem->joint;
    f->given.kv_len = problem->kv_len + problem->joint;
    f->map = &f->given;
    f->exact = 1;
    if (!v->convert) return attn_block_map_check(f->map, error);
    status = read_blocks(v->convert, &q, &k, error);
    if (!status) status = attn_block_map_convert(&f->given, q, k, &f->owned, &f->exact, error);
    if (!status) f->map = f->owned;
    return status;
}

/* ---- time --------------------------------------------------------------------------------------- */

/* With and without the map by turns, in one process. */
static attn_status take_rounds(attn_layer *layer, struct found *f, size_t rounds, attn_error *error)
{
    double seconds[3][ROUNDS_MAX];
    attn_args args[2] = {f->call.args, f->call.args};
    args[0].block_map = NULL;
    args[1].block_map = f->map;
    for (size_t r = 0; r <= rounds; r++) {
        for (int i = 0; i < 2; i++) {
            double start = cli_seconds();
            attn_status status = attn_forward(layer, &args[i], error);
            if (status) return status;
            if (r) seconds[i][r - 1] = cli_seconds() - start;
        }
        double start = cli_seconds();
        attn_block_map_check(f->map, NULL);
        if (r) seconds[2][r - 1] = cli_seconds() - start;
    }
    f->dense = measure_median(seconds[0], rounds);
    f->sparse = measure_median(seconds[1], rounds);
    f->check = measure_median(seconds[2], rounds);
    return ATTN_OK;
}

static attn_status measure(const struct values *v, struct found *f, attn_error *error)
{
    attn_context *context = NULL;
    attn_layer *layer = NULL;
    struct report_pulse pulse;
    attn_layer_info info = {.size = sizeof info};
    attn_status status = context_open(&v->context, NULL, &context, error);
    if (!status) status = attn_layer_open(context, &f->call.layer, &layer, error);
    if (!status) {
        report_pulse_begin(&pulse, "sparsity: attention");
        status = take_rounds(layer, f, v->rounds ? (size_t)v->rounds : 5, error);
        report_pulse_end(&pulse);
    }
    if (layer) attn_layer_get_info(layer, &info);
    if (layer) snprintf(f->plan, sizeof f->plan, "%s, %s", info.implementation, info.plan);
    attn_layer_close(layer);
    attn_close(context);
    return status;
}

/* ---- output ------------------------------------------------------------------------------------- */

static void print_row(struct report_table *table, const attn_block_stats *s, const char *what)
{
    report_cell(table, "%s", what);
    report_cell(table, "%lld", (long long)s->kept);
    report_cell(table, "%lld", (long long)s->total);
    report_cell(table, "%.2f %%", 100 * s->share);
    report_cell(table, "%lld", (long long)s->shortest);
    report_cell(table, "%lld", (long long)s->longest);
    report_cell(table, "%lld", (long long)s->empty);
}

static void print_heads(const struct values *v, const struct found *f, const attn_block_stats *all)
{
    static const char *const headings[] = {"lists of",  ">kept",    ">of blocks", ">scores",
                                           ">shortest", ">longest", ">empty",     NULL};
    struct report_table *table = report_table_new(headings);
    if (!table) return;
    for (int64_t b = 0; b < all->batch; b++)
        for (int64_t h = 0; h < all->heads; h++) {
            attn_block_stats s = {.size = sizeof s};
            char what[64];
            if ((v->sample >= 0 && b != v->sample) || (v->head >= 0 && h != v->head)) continue;
            snprintf(what, sizeof what, "sample %lld, head %lld", (long long)b, (long long)h);
            if (!attn_block_map_stats(f->map, b, h, &s, NULL)) print_row(table, &s, what);
        }
    print_row(table, all, "all");
    report_table_print(stdout, table, v->markdown ? REPORT_MARKDOWN : REPORT_TABLE);
    report_table_free(table);
}

static void print_time(const struct found *f, const attn_block_stats *all)
{
    char dense[32], sparse[32], check[32];
    if (f->sparse <= 0) return;
    printf("\nwithout the map %s, with it %s: %.2fx of %.2fx; checking the map %s (%.2f %% of the sparse "
           "time)\n%s\n",
           report_time(f->dense, dense), report_time(f->sparse, sparse), f->dense / f->sparse,
           all->share > 0 ? 1 / all->share : 0, report_time(f->check, check), 100 * f->check / f->sparse,
           f->plan);
}

static attn_status print_text(const struct values *v, const struct found *f, attn_error *error)
{
    int64_t sample = v->sample < 0 ? 0 : v->sample, head = v->head < 0 ? 0 : v->head;
    size_t needed;
    attn_status status = attn_block_map_text(f->map, sample, head, NULL, 0, &needed, error);
    char *text = status ? NULL : malloc(needed);
    if (!status && !text)
        return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for %zu bytes of text", needed);
    if (!status) status = attn_block_map_text(f->map, sample, head, text, needed, NULL, error);
    if (!status)
        printf("sample %lld, head %lld: a line for each block of %lld queries, a sign for each block of %lld "
               "keys\n%s\n",
               (long long)sample, (long long)head, (long long)f->map->block_q, (long long)f->map->block_k,
               text);
    free(text);
    return status;
}

static json_t *stats_json(const attn_block_stats *s)
{
    return json_pack("{s:I, s:I, s:o, s:I, s:I, s:I, s:I}", "kept", (json_int_t)s->kept, "total",
                     (json_int_t)s->total, "share", report_real(s->share), "lists", (json_int_t)s->lists,
                     "shortest", (json_int_t)s->shortest, "longest", (json_int_t)s->longest, "empty",
                     (json_int_t)s->empty);
}

static int print_json(const struct found *f, const attn_block_stats *all)
{
    json_t *heads = json_array();
    for (int64_t b = 0; b < all->batch; b++)
        for (int64_t h = 0; h < all->heads; h++) {
            attn_block_stats s = {.size = sizeof s};
            if (attn_block_map_stats(f->map, b, h, &s, NULL)) continue;
            json_t *row = stats_json(&s);
            json_object_set_new(row, "sample", json_integer(b));
            json_object_set_new(row, "head", json_integer(h));
            json_array_append_new(heads, row);
        }
    json_t *object = json_pack("{s:s, s:I, s:I, s:b, s:o, s:o}", "problem", f->call.text, "block_q",
                               (json_int_t)f->map->block_q, "block_k", (json_int_t)f->map->block_k, "exact",
                               f->exact, "all", stats_json(all), "heads", heads);
    if (f->sparse > 0) {
        json_object_set_new(object, "dense_seconds", report_real(f->dense));
        json_object_set_new(object, "sparse_seconds", report_real(f->sparse));
        json_object_set_new(object, "check_seconds", report_real(f->check));
        json_object_set_new(object, "plan", json_string(f->plan));
    }
    report_json_error(object, NULL);
    return report_json(object);
}

static int show(const struct values *v, const struct found *f)
{
    attn_error error = ATTN_ERROR_INIT;
    attn_block_stats all = {.size = sizeof all}, one = {.size = sizeof one};
    attn_status status = attn_block_map_stats(f->map, -1, -1, &all, &error);
    if (!status) status = attn_block_map_stats(f->map, v->sample, v->head, &one, &error);
    if (!status && v->png) status = picture_save(v->png, f->map, v->sample, v->head, &error);
    if (status) return report_failure_json(&error, v->json);
    if (v->json) return print_json(f, &all);
    printf("%s: %lld x %lld blocks of %lld queries and %lld keys%s\n\n", f->call.text,
           (long long)all.q_blocks, (long long)all.kv_blocks, (long long)f->map->block_q,
           (long long)f->map->block_k,
           f->exact ? "" : ", which keep more pairs than the map they were made of");
    if (v->text && print_text(v, f, &error)) return report_failure(&error);
    print_heads(v, f, &all);
    print_time(f, &all);
    return CLI_OK;
}

/* ---- the command -------------------------------------------------------------------------------- */

static int sparsity_run(int argc, char **argv)
{
    struct values values = {.sample = -1, .head = -1};
    struct found found = {0};
    struct problem_list list = {0};
    attn_error error = ATTN_ERROR_INIT;
    int first = argc, code = options_parse(&command_sparsity, argc, argv, &values, &first);
    if (code != OPTIONS_GO_ON) return code;
    attn_status status = read_problem(argv + first, argc - first, &list, &error);
    if (!status && values.rounds && !values.time)
        status = cli_fail(&error, ATTN_KIND_INVALID_VALUE,
                          "--rounds says how often --time measures; give --time too");
    if (!status) status = find(&values, &list.items[0], &found, &error);
    if (!status && values.time) status = measure(&values, &found, &error);
    code = status ? report_failure_json(&error, values.json) : show(&values, &found);
    attn_block_map_free(found.owned);
    call_free(&found.call);
    problem_list_free(&list);
    return code;
}

static const struct option_row rows[] = {
    OPTION_ROW_INT(struct values, sample, "sample", NULL, "N", "only lists of this sample", 0, INT32_MAX),
    OPTION_ROW_INT(struct values, head, "head", NULL, "N", "only lists of this head", 0, INT32_MAX),
    OPTION_ROW_FLAG(struct values, text, "text", NULL,
                    "the lists of one sample and head as text, # kept and . left out"),
    OPTION_ROW_TEXT(struct values, png, "png", NULL, "FILE", "a picture of the lists, heads side by side"),
    OPTION_ROW_TEXT(struct values, convert, "convert", NULL, "BLOCK|BLOCKxBLOCK",
                    "the same map in blocks of another size, queries x keys"),
    OPTION_ROW_FLAG(struct values, time, "time", NULL, "runs the problem with and without the map by turns"),
    OPTION_ROW_INT(struct values, rounds, "rounds", NULL, "N", "turns of --time (default: 5)", 1, ROUNDS_MAX),
    OPTION_ROW_FLAG(struct values, json, "json", NULL, "one JSON object"),
    OPTION_ROW_FLAG(struct values, markdown, "markdown", NULL, "Markdown"),
#define X(...) CONTEXT_ROW(struct values, __VA_ARGS__)
#include "options_run.def"
#undef X
    OPTION_ROW_END,
};

const struct cli_command command_sparsity = {
    .usage = "[OPTION]... PROBLEM",
    .text = "Shows what the block map of a problem keeps: key blocks and scores a head, as numbers, text or "
            "a picture.\n"
            "Scores are counted with the last blocks at their real size. With --time the same call runs with "
            "and\n"
            "without the map by turns; medians are printed, and the speed-up beside what the scores alone "
            "would give.",
    .examples = "  attn sparsity b1h2s1024d64:f32:sparse=0.75/64 --text --head 1\n"
                "  attn sparsity b1h12s8192d128:bf16:sparse=0.875/128 --time\n"
                "  attn sparsity b1h12s8192d64:f32:sparse=0.9/64 --png map.png\n"
                "  attn sparsity b1h1s4096d64:f32:sparse=0.9/64x128 --convert 128 --json\n",
    .options = rows,
    .operands_max = 16,
    .run = sparsity_run,
};
