/* plugin.c: runs sparse plugins. A kernel computes the output; a selector says which blocks of keys each
 * block of queries sees, and flash computes them. Nothing takes the place of a plugin that fails. */
#include <inttypes.h>
#include <stdio.h>

#include "backends/flash.h"
#include "sparse/clock.h"
#include "sparse/schedule.h"

enum { BLOCK = 64, BLOCK_LEAST = 16, BLOCK_MOST = 4096 };

static attn_sparse_call call_of(const attn_host *host, const attn_call *call, attn_error *why)
{
    attn_sparse_call c = {.size = sizeof c,
                          .abi_major = ATTN_MODULE_MAJOR,
                          .abi_minor = ATTN_MODULE_MINOR,
                          .problem = call->problem,
                          .q = call->q,
                          .k = call->k,
                          .v = call->v,
                          .out = call->out,
                          .call = call,
                          .host = host,
                          .params = call->params,
                          .forward = call->forward,
                          .error = why};
    return c;
}

/* A plugin returns what it likes; its own sentence goes on when it wrote one. */
static attn_status failed(const attn_call *call, int code, const attn_error *why, attn_error *error)
{
    return attn_fail(error, why->kind ? why->kind : ATTN_KIND_INTERNAL,
                     "%s failed with %d: %.400s; outputs are undefined", call->impl->name, code,
                     why->text[0] ? why->text : "it gave no reason");
}

/* ---- kernels --------------------------------------------------------------------------------------- */

static attn_status plan_kernel(const attn_host *host, const attn_problem *p, void **state,
                               attn_workspace *workspace, attn_error *error)
{
    (void)host, (void)p, (void)error;
    *state = NULL;
    *workspace = (attn_workspace){0, 0};
    return ATTN_OK;
}

static attn_status run_kernel(const attn_host *host, const void *state, const attn_call *call,
                              attn_error *error)
{
    const attn_sparse *about = call->impl->data;
    attn_error why = ATTN_ERROR_INIT;
    attn_sparse_call c = call_of(host, call, &why);
    (void)state;
    int code = about->forward(&c);
    return code ? failed(call, code, &why, error) : ATTN_OK;
}

/* ---- selectors ------------------------------------------------------------------------------------- */

static attn_status read_blocks(const attn_call *call, int64_t *block_q, int64_t *block_k, attn_error *error)
{
    const attn_sparse *about = call->impl->data;
    *block_q = about->block_q > 0 ? about->block_q : BLOCK;
    *block_k = about->block_k > 0 ? about->block_k : BLOCK;
    attn_status status = attn_params_int(call->params, "block_q", BLOCK_LEAST, BLOCK_MOST, block_q, error);
    return status ? status
                  : attn_params_int(call->params, "block_k", BLOCK_LEAST, BLOCK_MOST, block_k, error);
}

static attn_status new_map(const attn_call *call, attn_block_map **map, attn_error *error)
{
    const attn_problem *p = call->problem;
    attn_block_shape shape = {
        .size = sizeof shape, .batch = p->batch, .heads = p->heads, .q_len = p->q_len, .kv_len = p->kv_len};
    attn_status status = read_blocks(call, &shape.block_q, &shape.block_k, error);
    return status ? status : attn_block_map_new(&shape, map, error);
}

/* Blocks are chosen by the host's threads, also for a device, whose calls have one worker. */
static attn_status select_blocks(const attn_host *host, const attn_call *call, attn_block_map *map,
                                 attn_error *error)
{
    const attn_sparse *about = call->impl->data;
    attn_error why = ATTN_ERROR_INIT;
    attn_call own = *call;
    attn_sparse_call c = call_of(host, &own, &why);
    own.workers = host->threads;
    int code = about->select(&c, map);
    return code ? failed(call, code, &why, error) : ATTN_OK;
}

/* What a map keeps of each head, for people and for the counters. */
static void tell(const attn_call *call, const attn_block_lists *l)
{
    attn_report *report = attn_call_report(call);
    double least = 1, most = 0;
    if (!report || l->q_blocks < 1 || l->kv_blocks < 1) return;
    report->kept = report->total = 0;
    for (int64_t h = 0; h < l->heads; h++) {
        int64_t kept = 0, total = l->batch * l->q_blocks * l->kv_blocks, count;
        for (int64_t i = 0; i < l->batch * l->q_blocks; i++) {
            (void)attn_block_list(l, i / l->q_blocks, h, i % l->q_blocks, &count);
            kept += count;
        }
        double share = total ? (double)kept / (double)total : 1;
        least = share < least ? share : least;
        most = share > most ? share : most;
        report->kept += kept;
        report->total += total;
    }
    snprintf(report->text, sizeof report->text, "%.1f %% of blocks (heads: %.1f to %.1f %%)",
             100.0 * (double)report->kept / (double)(report->total ? report->total : 1), 100 * least,
             100 * most);
}

/* A call of flash with memory of its own: how blocks are cut is known only now. */
static attn_status run_flash(const attn_host *host, const attn_call *inner, attn_error *error)
{
    attn_call own = *inner;
    flash_plan *plan;
    attn_workspace need;
    attn_status status = flash_plan_make(host, inner->problem, NULL, &plan, &need, error);
    if (status) return status;
    size_t shared = (need.shared_bytes + 63) / 64 * 64, stride = (need.thread_bytes + 63) / 64 * 64;
    char *memory = host->alloc(host, shared + stride * (size_t)own.workers, 64);
    own.shared = memory;
    own.scratch = memory + shared;
    own.scratch_stride = stride;
    status = memory ? flash_execute(host, plan, &own, NULL, error)
                    : attn_fail(error, ATTN_KIND_OUT_OF_MEMORY,
                                "no memory for %zu bytes of workspace behind %s; use fewer threads",
                                shared + stride * (size_t)own.workers, own.impl->name);
    if (memory) host->release(host, memory);
    flash_plan_drop(host, plan);
    return status;
}

static attn_status run_map(const attn_host *host, const attn_call *call, const attn_block_map *map,
                           attn_error *error)
{
    attn_problem p = *call->problem;
    attn_call inner = *call;
    attn_error why = ATTN_ERROR_INIT;
    if (attn_block_map_lists(map, &inner.blocks, &why))
        return attn_fail(error, why.kind, "%s filled a block map that does not hold: %.400s",
                         call->impl->name, why.text);
    p.features |= ATTN_FEATURE(BLOCK_MAP);
    p.block_q = map->block_q;
    p.block_k = map->block_k;
    inner.problem = &p;
    attn_status status = p.device_type == kDLCPU ? run_flash(host, &inner, error)
                                                 : attn_host_run_blocks(host, call, map, error);
    if (!status) tell(call, &inner.blocks);
    return status;
}

static attn_status run_selected(const attn_host *host, const attn_call *call, attn_error *error)
{
    attn_block_map *map = NULL;
    double start = sparse_clock();
    attn_status status = new_map(call, &map, error);
    if (!status) status = select_blocks(host, call, map, error);
    attn_call_chose(call, sparse_clock() - start);
    if (!status) status = run_map(host, call, map, error);
    attn_block_map_free(map);
    return status;
}

/* Steps and layers that the user's schedule makes dense are no fallback: they are told as such. */
static attn_status run_selector(const attn_host *host, const void *state, const attn_call *call,
                                attn_error *error)
{
    attn_report *report = attn_call_report(call), none = {.size = 0};
    sparse_schedule schedule;
    (void)state;
    if (!report) report = &none;
    attn_status status = sparse_schedule_read(call->params, &schedule, error);
    if (!status)
        status =
            sparse_schedule_ask(&schedule, call->impl->name, call, report->text, sizeof report->text, error);
    if (status) return status;
    report->dense = report->text[0] != 0;
    if (!report->dense) return run_selected(host, call, error);
    return call->problem->device_type == kDLCPU ? run_flash(host, call, error)
                                                : attn_host_run_blocks(host, call, NULL, error);
}

static void describe_selector(const attn_host *host, const void *state, char *text, size_t bytes)
{
    (void)host, (void)state;
    snprintf(text, bytes, "blocks chosen by a selector, computed by FLASH_ATTN's implementation");
}

/* ---- what plugins become --------------------------------------------------------------------------- */

static const char *const backends[] = {"SPARSE_ATTN", NULL};

const attn_impl attn_plugin_kernel_impl = {
    .size = sizeof(attn_impl),
    .summary = "a sparse plugin that computes",
    .platform = "cpu",
    .backends = backends,
    .features = ATTN_FEATURE(CAUSAL),
    .dtypes = 1u << ATTN_F16 | 1u << ATTN_BF16,
    .head_dim_max = 1024,
    .flags = ATTN_IMPL_PER_FORWARD,
    .plan = plan_kernel,
    .run = run_kernel,
};

/* What flash does with a block map needs no word of the selector; what changes the answer does. */
const attn_impl attn_plugin_selector_impl = {
    .size = sizeof(attn_impl),
    .summary = "a sparse plugin that chooses blocks",
    .platform = "cpu",
    .backends = backends,
    .features = ATTN_FEATURE(CAUSAL) | ATTN_FEATURE(TOP_LEFT) | ATTN_FEATURE(WINDOW) | ATTN_FEATURE(LSE) |
                ATTN_FEATURE(GROUPED) | ATTN_FEATURE(VALUE_DIM) | ATTN_FEATURE(STRIDED) |
                ATTN_FEATURE(F32_OUT) | ATTN_FEATURE(SOFTCAP) | ATTN_FEATURE(SINKS) | ATTN_FEATURE(LENGTHS),
    .dtypes = 1u << ATTN_F16 | 1u << ATTN_BF16,
    .head_dim_max = 1024,
    .flags = ATTN_IMPL_PER_FORWARD,
    .plan = plan_kernel,
    .run = run_selector,
    .describe = describe_selector,
};
