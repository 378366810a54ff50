/* mean_topk.c: every query block attends to the key blocks whose mean is most like its own: the top k of
 * scale * mean(queries) . mean(keys).
 *
 * Parameters: topk (blocks), or share of the key blocks (default 0.125; at least one block). */
#include "means.h"

#include <math.h>

typedef struct topk {
    means means;
    int64_t topk;
} topk;

static void fill_list(const topk *t, block_place at, means_scratch *s)
{
    const attn_block_map *m = t->means.map;
    int64_t blocks = visible_blocks(t->means.call, m, at);
    int32_t *count, *list = attn_sparse_list(m, at.sample, at.head, at.block, &count);
    means_score(&t->means, at, 0, 1, s);
    mark_largest(s->scores, blocks, (double)INFINITY, t->topk, s->order, s->keep);
    list_marked(s->keep, blocks, list, count);
}

/* A query block of all heads. */
static void fill_lists(void *arg, int64_t index, int32_t worker)
{
    const topk *t = arg;
    int64_t blocks = blocks_of(t->means.map->q_len, t->means.map->block_q);
    block_place at = {index / blocks, 0, index % blocks};
    means_scratch s = means_scratch_of(&t->means, worker);
    means_read(&t->means, at.sample, at.block, &s);
    for (; at.head < t->means.call->problem->heads; at.head++) fill_list(t, at, &s);
}

static int select_blocks(const attn_sparse_call *call, attn_block_map *map)
{
    topk t = {.topk = 0};
    double share = 0.125;
    attn_status status;
    if ((status = attn_params_known(call->params, "topk share block_q block_k", call->error)) ||
        (status = attn_params_int(call->params, "topk", 1, INT32_MAX, &t.topk, call->error)) ||
        (status = attn_params_number(call->params, "share", 0, 1, &share, call->error)))
        return status;
    if (t.topk && attn_params_find(call->params, "share"))
        return attn_fail(call->error, ATTN_KIND_MUTUALLY_EXCLUSIVE,
                         "mean_topk is given topk and share, which say the same; leave one out");
    if (map->q_len < 1 || map->kv_len < 1) return 0;
    if ((status = means_open(&t.means, call, map, map->block_q))) return status;
    if (!t.topk) t.topk = larger(1, llround(share * (double)t.means.blocks));
    call->host->parallel_for(call->host, call->problem->batch * blocks_of(map->q_len, map->block_q),
                             call->call->workers, fill_lists, &t);
    means_close(&t.means);
    return 0;
}

static const attn_param declared[] = {ATTN_PARAM_FLAG("supports_grouped", 1)};
static const attn_params capabilities = {sizeof capabilities, 1, declared};

const attn_sparse selector_mean_topk = {
    .size = sizeof(attn_sparse),
    .abi_major = ATTN_MODULE_MAJOR,
    .abi_minor = ATTN_MODULE_MINOR,
    .name = "mean_topk",
    .summary = "the key blocks whose mean is most like that of the query block",
    .capabilities = &capabilities,
    .select = select_blocks,
};
