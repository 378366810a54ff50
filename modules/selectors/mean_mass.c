/* mean_mass.c: every query block attends to the fewest key blocks that hold a share of its attention, as far
 * as means of blocks can tell; heads that would need nearly everything stay dense.
 *
 * A query block is taken in runs of `rows` queries. softmax(scale * mean(run) . mean(key block)) over all key
 * blocks, averaged over the runs, estimates the mass of every key block; the heaviest ones are kept until
 * together they hold `mass`. One number of blocks for all heads hurts much more: some heads are local, others
 * look everywhere.
 *
 * Parameters: mass (0 to 1, default 0.95), rows (default 16), wide (a head whose lists hold more than this
 * share of the blocks on average becomes dense; default 0.6, 1: never), budget (most blocks of a list, as a
 * share; one number, or one for each head; default 1). */
#include "means.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct mass {
    means means;
    double mass, wide;
    int64_t rows;
    const attn_param *budget; /* NULL: none */
} mass;

/* ---- the budget ---------------------------------------------------------------------------------- */

static double budget_of(const mass *w, int64_t head)
{
    const attn_param *b = w->budget;
    if (!b) return 1;
    switch (b->type) {
    case ATTN_PARAM_INT:
        return (double)b->value.integer;
    case ATTN_PARAM_NUMBER:
        return b->value.number;
    case ATTN_PARAM_INTS:
        return (double)b->value.integers[head];
    default:
        return b->value.numbers[head];
    }
}

static attn_status check_budget(const mass *w, int64_t heads, attn_error *error)
{
    const attn_param *b = w->budget;
    int list = b && (b->type == ATTN_PARAM_INTS || b->type == ATTN_PARAM_NUMBERS);
    if (b && !list && b->type != ATTN_PARAM_INT && b->type != ATTN_PARAM_NUMBER)
        return attn_fail(
            error, ATTN_KIND_INVALID_TYPE,
            "parameter budget of mean_mass is of type %s; it is a number or a list with one for each head",
            attn_param_type_name(b->type));
    if (list && (b->count != heads || b->columns))
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "parameter budget of mean_mass has %" PRId64 " numbers and the call has %" PRId64
                         " heads; give one number for all heads, or one for each",
                         b->count, heads);
    for (int64_t h = 0; h < heads; h++)
        if (!(budget_of(w, h) >= 0 && budget_of(w, h) <= 1))
            return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                             "parameter budget of mean_mass is %g for head %" PRId64 "; it is 0 to 1",
                             budget_of(w, h), h);
    return ATTN_OK;
}

/* ---- mass ---------------------------------------------------------------------------------------- */

/* mass[j] += weight * softmax(scores)[j] */
static void add_softmax(float *scores, int64_t blocks, float weight, float *to)
{
    float most = scores[0], sum = 0;
    for (int64_t j = 1; j < blocks; j++) most = scores[j] > most ? scores[j] : most;
    for (int64_t j = 0; j < blocks; j++) scores[j] = expf(scores[j] - most);
    for (int64_t j = 0; j < blocks; j++) sum += scores[j];
    for (int64_t j = 0; j < blocks; j++) to[j] += scores[j] * (weight / sum);
}

/* s->mass: the share of the query block's attention that each of its visible key blocks holds. */
static void estimate(const mass *w, block_place at, int64_t runs, int64_t blocks, means_scratch *s)
{
    const means *m = &w->means;
    int64_t all = smaller(m->map->block_q, m->map->q_len - at.block * m->map->block_q);
    memset(s->mass, 0, (size_t)blocks * sizeof *s->mass);
    for (int64_t run = 0; run < runs; run += MEANS_RUNS) {
        int64_t some = smaller(MEANS_RUNS, runs - run);
        means_score(m, at, run, some, s);
        for (int64_t r = 0; r < some; r++)
            add_softmax(s->scores + r * m->room, blocks, (float)means_rows(m, at.block, run + r) / (float)all,
                        s->mass);
    }
}

static void fill_list(const mass *w, block_place at, int64_t runs, means_scratch *s)
{
    const attn_block_map *m = w->means.map;
    int64_t blocks = visible_blocks(w->means.call, m, at);
    int64_t most = llround(budget_of(w, at.head) * (double)w->means.blocks);
    int32_t *count, *list = attn_sparse_list(m, at.sample, at.head, at.block, &count);
    estimate(w, at, runs, blocks, s);
    mark_largest(s->mass, blocks, w->mass, most, s->order, s->keep);
    list_marked(s->keep, blocks, list, count);
}

/* A query block of all heads. */
static void fill_lists(void *arg, int64_t index, int32_t worker)
{
    const mass *w = arg;
    int64_t blocks = blocks_of(w->means.map->q_len, w->means.map->block_q);
    block_place at = {index / blocks, 0, index % blocks};
    means_scratch s = means_scratch_of(&w->means, worker);
    int64_t runs = means_read(&w->means, at.sample, at.block, &s);
    for (; at.head < w->means.call->problem->heads; at.head++) fill_list(w, at, runs, &s);
}

/* ---- wide heads ---------------------------------------------------------------------------------- */

static void fill_all(const mass *w, block_place at)
{
    int32_t *count, *list = attn_sparse_list(w->means.map, at.sample, at.head, at.block, &count);
    *count = (int32_t)visible_blocks(w->means.call, w->means.map, at);
    for (int32_t j = 0; j < *count; j++) list[j] = j;
}

/* One sample and head. */
static void widen(void *arg, int64_t index, int32_t worker)
{
    const mass *w = arg;
    const attn_block_map *m = w->means.map;
    block_place at = {index / w->means.call->problem->heads, index % w->means.call->problem->heads, 0};
    int64_t kept = 0, seen = 0, blocks = blocks_of(m->q_len, m->block_q);
    (void)worker;
    for (; at.block < blocks; at.block++) {
        int32_t *count;
        (void)attn_sparse_list(m, at.sample, at.head, at.block, &count);
        kept += *count;
        seen += visible_blocks(w->means.call, m, at);
    }
    if ((double)kept > w->wide * (double)seen)
        for (at.block = 0; at.block < blocks; at.block++) fill_all(w, at);
}

static int select_blocks(const attn_sparse_call *call, attn_block_map *map)
{
    mass w = {.mass = 0.95, .wide = 0.6, .rows = 16, .budget = attn_params_find(call->params, "budget")};
    attn_status status;
    if ((status = attn_params_known(call->params, "mass rows wide budget block_q block_k", call->error)) ||
        (status = attn_params_number(call->params, "mass", 0, 1, &w.mass, call->error)) ||
        (status = attn_params_number(call->params, "wide", 0, 1, &w.wide, call->error)) ||
        (status = attn_params_int(call->params, "rows", 1, INT32_MAX, &w.rows, call->error)) ||
        (status = check_budget(&w, call->problem->heads, call->error)))
        return status;
    if (map->q_len < 1 || map->kv_len < 1) return 0;
    if ((status = means_open(&w.means, call, map, w.rows))) return status;
    call->host->parallel_for(call->host, call->problem->batch * blocks_of(map->q_len, map->block_q),
                             call->call->workers, fill_lists, &w);
    if (w.wide < 1)
        call->host->parallel_for(call->host, call->problem->batch * call->problem->heads, call->call->workers,
                                 widen, &w);
    means_close(&w.means);
    return 0;
}

static const attn_param declared[] = {ATTN_PARAM_FLAG("supports_grouped", 1)};
static const attn_params capabilities = {sizeof capabilities, 1, declared};

const attn_sparse selector_mean_mass = {
    .size = sizeof(attn_sparse),
    .abi_major = ATTN_MODULE_MAJOR,
    .abi_minor = ATTN_MODULE_MINOR,
    .name = "mean_mass",
    .summary = "the fewest key blocks that hold a share of the attention, head by head",
    .capabilities = &capabilities,
    .select = select_blocks,
};
