/* flash_walk.c: hands out packing and attention items to the workers of one call.
 *
 * Items are numbered: pack unit 0, pack unit 1, attend unit 0, pack unit 2, attend unit 1, ... Every worker
 * takes the next one. An item waits for two things only: packing waits until its slot is free, attending
 * until its unit is packed. Both are done by items with smaller numbers, which other workers are already busy
 * with, so the smallest unfinished item never waits and a single worker never waits at all. */
#include "backends/flash.h"

#include <sched.h>

/* ---- the order ---------------------------------------------------------------------------------- */

/* The unit of unit->index. Returns 0 behind the last. */
static int locate(const flash_run *run, flash_unit *unit)
{
    const attn_problem *p = run->call->problem;
    if (p->selected > 0) return flash_locate_listed(run, unit);
    if (unit->index >= p->batch * p->kv_heads) return 0;
    unit->batch = unit->index / p->kv_heads;
    unit->kv_head = unit->index % p->kv_heads;
    unit->rows = unit->sample = attn_call_rows(run->call, unit->batch);
    unit->seen = attn_rows_interval(run->call, &unit->rows);
    return 1;
}

/* Moves to the next unit that has query rows. Returns 0 at the end. */
static int next_unit(const flash_run *run, flash_unit *unit)
{
    const attn_problem *p = run->call->problem;
    for (;;) {
        unit->index += unit->kv_count;
        unit->kv_count = 1;
        if (!locate(run, unit)) return 0;
        if (unit->rows.q_len <= 0) continue;
        unit->number++;
        /* Cut by the length of the tensor, not of the sample: a key mask and a length then give the same
         * bits. The width of a block table says nothing of a request. */
        int own = run->call->cu_k.data || p->block_size > 0 || p->selected > 0;
        int64_t keys = own ? unit->rows.kv_len : p->kv_len;
        int map = run->call->blocks.counts != NULL;
        unit->tiles = map ? flash_cut_map(run->plan, p, run->group)
                          : flash_cut(run->plan, unit->rows.q_len, keys, run->group);
        unit->few = !map && !run->plan->tile && run->group * unit->rows.q_len <= FLASH_ROWS_FEW;
        if (unit->few) unit->kv_count = run->plan->kv_step;
        if (unit->kv_count > p->kv_heads - unit->kv_head) unit->kv_count = p->kv_heads - unit->kv_head;
        int64_t step = flash_pack_step(run, unit), packs = (unit->tiles.key_blocks + step - 1) / step;
        unit->packs = packs > 0 ? packs : 1;
        unit->attends = unit->tiles.row_blocks * unit->tiles.head_blocks;
        unit->next = 0;
        return 1;
    }
}

/* Takes the next item. Returns 0 when there is none. */
static int take(flash_run *run, flash_item *item)
{
    int more = 1;
    pthread_mutex_lock(&run->lock);
    if (run->attend.number < 0 || run->attend.next == run->attend.attends)
        more = next_unit(run, &run->attend);
    if (more && !run->packed_all && (run->pack.number < 0 || run->pack.next == run->pack.packs) &&
        run->pack.number < run->attend.number + run->ahead)
        run->packed_all = !next_unit(run, &run->pack);
    if (more) {
        item->pack = !run->packed_all && run->pack.next < run->pack.packs;
        flash_unit *from = item->pack ? &run->pack : &run->attend;
        item->unit = *from;
        item->index = from->next++;
    }
    pthread_mutex_unlock(&run->lock);
    return more;
}

/* ---- the workers ---------------------------------------------------------------------------------- */

/* Waits are as long as one item at most; the core is given up when the other worker has none. */
static void wait_for(const flash_run *run, const _Atomic int64_t *count, int64_t least)
{
    for (int64_t spins = 0; atomic_load_explicit(count, memory_order_acquire) < least; spins++) {
        if (atomic_load_explicit(&run->cancelled, memory_order_relaxed)) return;
        if (spins > 1000) sched_yield();
    }
}

/* The last of `items` starts the counter afresh and opens the gate. */
static void finish(_Atomic int64_t *done, int64_t items, _Atomic int64_t *gate)
{
    if (atomic_fetch_add_explicit(done, 1, memory_order_acq_rel) + 1 < items) return;
    atomic_store_explicit(done, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(gate, 1, memory_order_release);
}

static void do_item(flash_run *run, const flash_item *item, char *scratch)
{
    const flash_unit *unit = &item->unit;
    int64_t round = unit->number / run->plan->slots, at = unit->number % run->plan->slots;
    char *memory = (char *)run->call->shared + (size_t)at * run->plan->layout.slot_bytes;
    flash_slot *slot = (flash_slot *)(void *)memory;
    wait_for(run, item->pack ? &slot->freed : &slot->ready, item->pack ? round : round + 1);
    if (atomic_load_explicit(&run->cancelled, memory_order_relaxed)) return;
    if (item->pack) {
        (unit->few ? flash_part : flash_pack)(run, item, memory, scratch);
        finish(&slot->packed, unit->packs, &slot->ready);
    } else {
        (unit->few ? flash_merge : flash_attend)(run, item, memory, scratch);
        finish(&slot->attended, unit->attends, &slot->freed);
    }
}

static void task(void *arg, int64_t index, int32_t worker)
{
    flash_run *run = arg;
    flash_item item;
    char *scratch = (char *)run->call->scratch + (size_t)worker * run->call->scratch_stride;
    (void)index;
    while (!atomic_load_explicit(&run->cancelled, memory_order_relaxed) && take(run, &item)) {
        if (attn_call_cancelled(run->call))
            atomic_store(&run->cancelled, 1);
        else
            do_item(run, &item, scratch);
    }
}

attn_status flash_execute(const attn_host *host, const flash_plan *plan, const attn_call *call,
                          const flash_extra *extra, attn_error *error)
{
    const attn_problem *p = call->problem;
    if (p->batch <= 0 || p->heads <= 0 || p->kv_heads <= 0 || p->q_len <= 0) return ATTN_OK;
    flash_run run = {.plan = plan, .call = call, .group = p->heads / p->kv_heads};
    if (extra) run.extra = *extra;
    run.pack.number = run.pack.index = run.attend.number = run.attend.index = -1;
    run.pack.kv_count = run.attend.kv_count = 1;
    run.ahead = plan->slots > 1 && call->workers > 1;
    for (int64_t i = 0; i < plan->slots; i++) {
        flash_slot *slot = (flash_slot *)(void *)((char *)call->shared + (size_t)i * plan->layout.slot_bytes);
        atomic_init(&slot->ready, 0);
        atomic_init(&slot->freed, 0);
        atomic_init(&slot->packed, 0);
        atomic_init(&slot->attended, 0);
    }
    int failed = pthread_mutex_init(&run.lock, NULL);
    if (failed)
        return attn_fail(error, ATTN_KIND_INTERNAL, "a mutex could not be made (error %d); try again",
                         failed);
    if (call->blocks.counts) flash_read_map(host, &run);
    if (p->selected > 0) flash_read_lists(host, &run);
    host->parallel_for(host, call->workers, call->workers, task, &run);
    pthread_mutex_destroy(&run.lock);
    if (!run.cancelled) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_CANCELLED,
                     "the call was cancelled by its cancel flag; its outputs are undefined");
}
