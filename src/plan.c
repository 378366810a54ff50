/* plan.c: the cache of plans, bounded, least recently used out first. */
#include "context.h"

#include <string.h>

void attn_plans_init(attn_plans *plans, uint32_t most)
{
    enum { DEFAULT = 256 };
    attn_lock_init(&plans->lock);
    plans->first = NULL;
    plans->count = 0;
    plans->most = most ? most : DEFAULT;
}

void attn_plan_release(attn_context *context, attn_plan *plan)
{
    if (!plan || atomic_fetch_sub(&plan->owners, 1) != 1) return;
    const attn_impl *impl = &plan->slot->impl;
    if (impl->drop) impl->drop(&context->host, plan->state);
    attn_drop(&context->allocator, plan);
}

void attn_plans_clear(attn_context *context)
{
    attn_plans *plans = &context->plans;
    while (plans->first) {
        attn_plan *next = plans->first->next;
        attn_plan_release(context, plans->first);
        plans->first = next;
    }
    attn_lock_destroy(&plans->lock);
}

attn_status attn_impl_failed(const attn_context *context, const attn_impl_slot *slot, attn_status status,
                             const attn_error *why, attn_error *error)
{
    attn_kind kind = why->kind ? why->kind : attn_kind_of(status);
    const char *text = why->text[0] ? why->text : "it gave no reason";
    if (slot->module < 0) return attn_fail(error, kind, "%s", text);
    return attn_fail(error, kind, "%.60s of module '%.60s' failed: %.380s", slot->impl.name,
                     context->registry.modules[slot->module].name, text);
}

static bool matches(const attn_plan *plan, const attn_impl_slot *slot, const attn_problem *problem)
{
    return plan->slot == slot && !memcmp(&plan->problem, problem, sizeof *problem);
}

/* Finds a plan and moves it to the front. */
static attn_plan *find(attn_plans *plans, const attn_impl_slot *slot, const attn_problem *problem)
{
    for (attn_plan **at = &plans->first; *at; at = &(*at)->next) {
        attn_plan *plan = *at;
        if (!matches(plan, slot, problem)) continue;
        *at = plan->next;
        plan->next = plans->first;
        plans->first = plan;
        atomic_fetch_add(&plan->owners, 1);
        return plan;
    }
    return NULL;
}

/* Puts a new plan in front; returns the plan that falls out at the end, if any. */
static attn_plan *keep(attn_plans *plans, attn_plan *plan)
{
    plan->next = plans->first;
    plans->first = plan;
    if (++plans->count <= plans->most) return NULL;
    attn_plan **last = &plans->first;
    while ((*last)->next) last = &(*last)->next;
    attn_plan *out = *last;
    *last = NULL;
    plans->count--;
    return out;
}

static attn_status make(attn_context *context, const attn_impl_slot *slot, const attn_problem *problem,
                        attn_plan **made, attn_error *error)
{
    attn_plan *plan = attn_take_zeroed(&context->allocator, sizeof *plan);
    if (!plan)
        return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a plan of %s", slot->impl.name);
    plan->slot = slot;
    plan->problem = *problem;
    atomic_init(&plan->owners, 2); /* the cache and the caller */
    attn_error why = ATTN_ERROR_INIT;
    attn_status status = slot->impl.plan(&context->host, problem, &plan->state, &plan->workspace, &why);
    if (!status) {
        *made = plan;
        return ATTN_OK;
    }
    attn_drop(&context->allocator, plan);
    return attn_impl_failed(context, slot, status, &why, error);
}

attn_status attn_plan_get(attn_context *context, const attn_impl_slot *slot, const attn_problem *problem,
                          attn_plan **plan, attn_error *error)
{
    attn_plans *plans = &context->plans;
    attn_lock_take(&plans->lock);
    *plan = find(plans, slot, problem);
    attn_lock_give(&plans->lock);
    if (*plan) return ATTN_OK;
    ATTN_TRY(make(context, slot, problem, plan, error));
    /* Two threads may plan the same problem at once; both plans are right, and the older leaves in time. */
    attn_lock_take(&plans->lock);
    attn_plan *out = keep(plans, *plan);
    attn_lock_give(&plans->lock);
    attn_plan_release(context, out);
    return ATTN_OK;
}

static bool round_up(size_t bytes, size_t *rounded)
{
    if (!attn_add(bytes, ATTN_ALIGN - 1, rounded)) return false;
    *rounded -= *rounded % ATTN_ALIGN;
    return true;
}

bool attn_plan_bytes(const attn_plan *plan, int32_t workers, size_t joint_bytes, size_t *stride,
                     size_t *total)
{
    size_t scratch, shared;
    return round_up(plan->workspace.thread_bytes, stride) && attn_mul(*stride, (size_t)workers, &scratch) &&
           round_up(plan->workspace.shared_bytes, &shared) && attn_add(shared, scratch, total) &&
           attn_add(*total, joint_bytes, total);
}
