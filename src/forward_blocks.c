/* forward_blocks.c: a call with the block map of a selector, on a device: the lists go there, and what serves
 * FLASH_ATTN there walks them. */
#include "context.h"

#include <string.h>

enum { ALIGN = 256 };

/* Where things lie in the memory of one call, in bytes. */
typedef struct layout {
    size_t counts, lists, shared, scratch, total;
    int64_t longest; /* entries of a list on the device */
} layout;

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static int64_t lists_of(const attn_block_lists *l)
{
    return l->batch * l->heads * l->q_blocks;
}

static layout lay_out(const attn_block_lists *l, const attn_plan *plan)
{
    layout at = {.longest = 1};
    for (int64_t i = 0; l->counts && i < lists_of(l); i++)
        if (l->counts[i] > at.longest) at.longest = l->counts[i];
    size_t lists = l->counts ? (size_t)lists_of(l) : 0;
    at.lists = aligned(lists * sizeof(int32_t));
    at.shared = at.lists + aligned(lists * (size_t)at.longest * sizeof(int32_t));
    at.scratch = at.shared + aligned(plan->workspace.shared_bytes);
    at.total = at.scratch + plan->workspace.thread_bytes;
    return at;
}

static attn_status need_dense(const attn_block_lists *l, attn_error *error)
{
    const int64_t *step = l->block_stride, blocks = l->q_blocks, size = l->capacity;
    if (l->q_blocks < 2 || (step[2] == size && (l->heads < 2 || step[1] == size * blocks) &&
                            (l->batch < 2 || step[0] == size * blocks * l->heads)))
        return ATTN_OK;
    return attn_fail(
        error, ATTN_KIND_INVALID_LAYOUT,
        "the lists of a block map that goes to a device are %lld, %lld and %lld entries apart by sample, "
        "head and query block; they are dense, as attn_block_map_new makes them",
        (long long)step[0], (long long)step[1], (long long)step[2]);
}

/* Lists are cut to the longest of them: most of what a host map has room for is empty. */
static attn_status send(const attn_block_lists *l, const layout *at, attn_space *space, char *memory,
                        attn_block_lists *there, attn_error *error)
{
    int64_t lists = lists_of(l), blocks = l->q_blocks, word = sizeof(int32_t);
    *there = *l;
    if (!l->counts || !lists) return ATTN_OK;
    there->counts = (const int32_t *)(const void *)(memory + at->counts);
    there->blocks = (const int32_t *)(const void *)(memory + at->lists);
    there->capacity = at->longest;
    const int64_t steps[3] = {l->batch > 1 ? l->heads * blocks : 0, l->heads > 1 ? blocks : 0, 1};
    for (int i = 0; i < 3; i++)
        there->count_stride[i] = steps[i], there->block_stride[i] = steps[i] * at->longest;
    ATTN_TRY(space->ops->copy(space->device, memory + at->counts, lists * word, l->counts, lists * word,
                              (size_t)(lists * word), 1, space->stream, error));
    if (l->capacity < 1) return ATTN_OK;
    int64_t width = (at->longest < l->capacity ? at->longest : l->capacity) * word;
    return space->ops->copy(space->device, memory + at->lists, at->longest * word, l->blocks,
                            l->capacity * word, (size_t)width, lists, space->stream, error);
}

static attn_status run_in(attn_context *c, const attn_plan *plan, const attn_call *call,
                          const attn_block_lists *lists, const attn_problem *problem, attn_space *space,
                          const layout *at, attn_error *error)
{
    attn_error why = ATTN_ERROR_INIT;
    attn_call inner = *call;
    char *memory = space->memory[space->count - 1];
    ATTN_TRY(send(lists, at, space, memory, &inner.blocks, error));
    inner.problem = problem;
    inner.shared = memory + at->shared;
    inner.scratch = memory + at->scratch;
    inner.scratch_stride = plan->workspace.thread_bytes;
    inner.workers = 1;
    inner.impl = &plan->slot->impl;
    attn_status status = plan->slot->impl.run(&c->host, plan->state, &inner, &why);
    return status ? attn_impl_failed(c, plan->slot, status, &why, error) : ATTN_OK;
}

/* What serves FLASH_ATTN for the tensors of the problem. */
static attn_status choose(attn_context *c, const attn_problem *p, const attn_impl_slot **slot,
                          attn_error *error)
{
    char whole[1024];
    attn_verdict verdict;
    const attn_court court = {
        .registry = &c->registry, .host = &c->host, .facts = &c->facts, .head_size = p->head_dim};
    attn_judge_backend(&court, &attn_built_in_backends[ATTN_BACKEND_FLASH_ATTN], p, &verdict);
    *slot = verdict.slot;
    if (verdict.slot) return ATTN_OK;
    return attn_fail(error, verdict.kind ? verdict.kind : ATTN_KIND_PACKAGE_MISSING,
                     "nothing here serves FLASH_ATTN with the block map of a selector: %.700s",
                     attn_clauses_say(&verdict.clauses, whole, sizeof whole));
}

attn_status attn_forward_blocks(const attn_host *host, const attn_call *call, const attn_block_map *map,
                                attn_error *error)
{
    attn_context *c = host->context;
    attn_problem p = *call->problem;
    attn_block_lists lists = {.counts = NULL};
    const attn_impl_slot *slot;
    attn_plan *plan;
    attn_space *space;
    if (map) ATTN_TRY(attn_block_map_lists(map, &lists, error));
    if (map) ATTN_TRY(need_dense(&lists, error));
    if (map) p.features |= ATTN_FEATURE(BLOCK_MAP), p.block_q = map->block_q, p.block_k = map->block_k;
    ATTN_TRY(choose(c, &p, &slot, error));
    ATTN_TRY(attn_plan_get(c, slot, &p, &plan, error));
    const layout at = lay_out(&lists, plan);
    DLDevice device = {(DLDeviceType)p.device_type, p.device_id};
    attn_status status = attn_space_take(c, device, call->stream, ATTN_SPACE_BLOCKS, at.total, &space, error);
    if (!status) {
        status = run_in(c, plan, call, &lists, &p, space, &at, error);
        attn_space_give(space);
    }
    attn_plan_release(c, plan);
    return status;
}
