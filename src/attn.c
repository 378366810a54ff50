/* attn.c: layers and the walk of a forward call. */
#include "context.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- resolving ---------------------------------------------------------------------------------- */

/* Layers on host memory are judged as cpu layers, also where the platform is another. */
static const attn_facts *facts_of(const attn_context *c, const attn_site *site)
{
    return c->facts.live && site->device.device_type == kDLCPU ? &c->cpu_facts : &c->facts;
}

static attn_court court_of(const attn_layer *l, attn_trace_fn sink, void *user)
{
    attn_context *c = l->context;
    attn_court court = {.registry = &c->registry,
                        .host = &c->host,
                        .facts = facts_of(c, &l->site),
                        .head_size = l->site.head_dim,
                        .permitted = l->permitted,
                        .role = l->role,
                        .qkv_layout = l->qkv_layout,
                        .impl_overrides = l->impl_overrides,
                        .sink = sink,
                        .user = user};
    return court;
}

/* What is odd about the machine is said once, with the first automatic choice. */
static void remark(attn_context *c)
{
    bool warning;
    const char *text = attn_contract_remark(&c->facts, &warning);
    attn_lock_take(&c->log_lock);
    bool said = c->remarked;
    c->remarked = true;
    attn_lock_give(&c->log_lock);
    if (text && !said) attn_context_log(c, warning ? ATTN_LOG_WARNING : ATTN_LOG_INFO, "%s", text);
}

/* A variable that older releases honoured is not, and whoever set it hears so once. */
static void tell_obsolete(attn_context *c)
{
    attn_lock_take(&c->log_lock);
    bool tell = c->obsolete;
    c->obsolete = false;
    attn_lock_give(&c->log_lock);
    if (tell)
        attn_context_log(
            c, ATTN_LOG_WARNING,
            "VLLM_ATTENTION_BACKEND is set and ignored; name the backend by --attention-backend");
}

/* What makes two selections the same line; NULL without memory. */
static attn_logged *selection_key(attn_context *c, const char *role, const char *category,
                                  const attn_choice *choice)
{
    static const char format[] = "%s\n%s\n%s\n%s";
    const char *fallback = category ? category : "", *name = choice->backend->served;
    int bytes = snprintf(NULL, 0, format, role, fallback, name, choice->source) + 1;
    attn_logged *note = attn_take(&c->allocator, sizeof *note + (size_t)bytes, 16);
    if (note) snprintf(note->key, (size_t)bytes, format, role, fallback, name, choice->source);
    return note;
}

/* Where a platform wants it heard, the line says as well what was chosen in their stead. */
static void log_rejected(attn_context *c, const attn_choice *choice)
{
    bool loud = choice->rejected_level >= ATTN_LOG_INFO;
    if (!*choice->rejected) return;
    attn_context_log(c, loud ? ATTN_LOG_INFO : ATTN_LOG_DEBUG, "rejected: %s%s%s", choice->rejected,
                     loud ? "; overridden by " : "", loud ? choice->backend->name : "");
}

/* One line a (role, category, backend, source), however many layers there are. */
void attn_log_selection(attn_context *c, const char *role, const char *category, const attn_choice *choice)
{
    if (!c->log) return;
    attn_logged *note = selection_key(c, role, category, choice);
    attn_lock_take(&c->log_lock);
    attn_logged *seen = note ? c->logged : NULL;
    while (seen && strcmp(seen->key, note->key)) seen = seen->next;
    if (note && !seen) {
        note->next = c->logged;
        c->logged = note;
    }
    attn_lock_give(&c->log_lock);
    if (seen) {
        attn_drop(&c->allocator, note);
        return;
    }
    if (choice->backend->domain == ATTN_DOMAIN_LLM) tell_obsolete(c);
    if (*choice->warning) attn_context_log(c, ATTN_LOG_WARNING, "%s", choice->warning);
    log_rejected(c, choice);
    attn_context_log(c, ATTN_LOG_INFO, "role '%.120s'%s%.120s%s: backend %s (%s) via %.300s: %s", role,
                     category ? " (category '" : "", category ? category : "", category ? "')" : "",
                     choice->backend->log_name, choice->slot ? choice->slot->impl.name : "by contract",
                     choice->source, choice->reason);
    if (!choice->explicit_choice && choice->backend->domain == ATTN_DOMAIN_DIFFUSION) remark(c);
}

/* Copies what the caller said and settles the device. */
static attn_status read_options(attn_context *c, const attn_layer_options *options, attn_layer_options *o,
                                attn_site *site, attn_error *error)
{
    size_t least = offsetof(attn_layer_options, value_head_dim);
    if (!options)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "layer options are NULL; heads and head_dim are required");
    if (!attn_copy_struct(o, sizeof *o, options, options->size, least))
        return attn_fail(
            error, ATTN_KIND_INVALID_STRUCT,
            "attn_layer_options.size is %u; it is at least %zu, set it to sizeof(attn_layer_options)",
            options->size, least);
    ATTN_TRY(attn_site_read(o, site, error));
    if (!c->facts.live) return ATTN_OK;
    DLDeviceType own = (DLDeviceType)c->platform->device_type;
    if (!site->device.device_type) site->device = (DLDevice){own, 0};
    if (site->device.device_type == own || site->device.device_type == kDLCPU) return ATTN_OK;
    return attn_fail(
        error, ATTN_KIND_PLATFORM_UNSUPPORTED,
        "the layer asks for DLPack device type %d; platform %s runs on type %d and on the host (%d), leave "
        "the device out or open a context for the other platform",
        (int)site->device.device_type, c->platform->name, (int)own, (int)kDLCPU);
}

static const char *role_of(const attn_layer_options *o)
{
    return o->role ? o->role : "self";
}

/* "BACKEND=implementation,...": only its form is checked here, since names that are not selected are ignored.
 */
static attn_status check_overrides(const char *text, attn_error *error)
{
    for (const char *p = text; p && *p; p += strcspn(p, ","), p += *p == ',')
        if (p[strcspn(p, "=,")] != '=')
            return attn_fail(error, ATTN_KIND_SYNTAX,
                             "impl_overrides '%.120s' is not BACKEND=implementation,...", text);
    return ATTN_OK;
}

static attn_status copy_optional(attn_context *c, const char *text, char **copy, attn_error *error)
{
    *copy = text ? attn_copy_text(&c->allocator, text) : NULL;
    return !text || *copy ? ATTN_OK : attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a layer");
}

/* The configuration's static parameters never change while the context is open, nor do the layer's own. */
static attn_status settle_params(attn_layer *l, const attn_layer_options *o, attn_error *error)
{
    bool diffusion = l->choice.backend->domain == ATTN_DOMAIN_DIFFUSION;
    json_t *handed = diffusion ? attn_spec_handover(l->choice.backend->name, l->choice.spec) : NULL;
    attn_status status = attn_consumer_settle(&l->consumer, o, handed, error);
    json_decref(handed);
    return status;
}

static attn_status read_question(const attn_site *site, const attn_layer_options *o, attn_question *question,
                                 attn_error *error)
{
    ATTN_TRY(attn_question_read(o->domain, o->llm, site->head_dim, site->dtype, site->heads, site->kv_heads,
                                question, error));
    question->category = o->category;
    question->model_backend = o->model_backend;
    return ATTN_OK;
}

/* The first site of domain llm settles the backend of all, where the context asks for that. */
attn_status attn_check_mix(attn_context *c, const char *role, int64_t head_size, const attn_backend *mine,
                           attn_error *error)
{
    if (!c->one_llm || mine->domain != ATTN_DOMAIN_LLM) return ATTN_OK;
    attn_lock_take(&c->log_lock);
    if (!c->first_llm) c->first_llm = mine;
    const attn_backend *first = c->first_llm;
    attn_lock_give(&c->log_lock);
    if (first == mine) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_NOT_IMPLEMENTED,
                     "role '%.60s' with head size %" PRId64
                     " would get %s while the first of this context got %s, "
                     "and ATTN_OPEN_ONE_LLM refuses a mix; name one backend that takes all",
                     role, head_size, mine->name, first->name);
}

static attn_status fill_layer(attn_layer *l, const attn_layer_options *o, attn_error *error)
{
    attn_context *c = l->context;
    attn_problem problem;
    l->permitted = attn_model_permits_trtllm(o->pipeline);
    l->generation = atomic_load(&c->registry.generation);
    ATTN_TRY(check_overrides(o->impl_overrides, error));
    ATTN_TRY(copy_optional(c, role_of(o), &l->role, error));
    ATTN_TRY(copy_optional(c, o->category, &l->category, error));
    ATTN_TRY(copy_optional(c, o->impl_overrides, &l->impl_overrides, error));
    ATTN_TRY(copy_optional(c, o->model_backend, &l->model_backend, error));
    ATTN_TRY(copy_optional(c, o->qkv_layout, &l->qkv_layout, error));
    ATTN_TRY(read_question(&l->site, o, &l->question, error));
    l->question.category = l->category;
    l->question.model_backend = l->model_backend;
    attn_site_problem(&l->site, &problem);
    attn_court court = court_of(l, c->trace, c->trace_user);
    ATTN_TRY(attn_policy_choose(&court, c->config, &l->question, &problem, &l->choice, error));
    ATTN_TRY(attn_check_mix(c, l->role, l->site.head_dim, l->choice.backend, error));
    l->current = l->choice;
    ATTN_TRY(settle_params(l, o, error));
    attn_log_selection(c, l->role, l->category, &l->choice);
    return ATTN_OK;
}

attn_status attn_layer_open(attn_context *c, const attn_layer_options *options, attn_layer **layer,
                            attn_error *error)
{
    attn_layer_options o;
    attn_site site;
    if (!c || !layer)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "%s is NULL; pass an open context and a place for the layer",
                         c ? "layer" : "context");
    *layer = NULL;
    if (!c->facts.live)
        return attn_fail(
            error, ATTN_KIND_PACKAGE_MISSING,
            "this context describes another machine (%s), where nothing can run; open one without facts, or "
            "ask attn_resolve",
            c->facts.platform);
    ATTN_TRY(read_options(c, options, &o, &site, error));
    attn_layer *l = attn_take_zeroed(&c->allocator, sizeof *l);
    if (!l) return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a layer");
    l->context = c;
    l->site = site;
    attn_consumer_init(&l->consumer, &c->allocator);
    attn_status status = fill_layer(l, &o, error);
    if (status)
        attn_layer_close(l);
    else
        *layer = l;
    return status;
}

void attn_layer_close(attn_layer *l)
{
    if (!l) return;
    attn_context *c = l->context;
    attn_plan_release(c, l->plan);
    attn_drop(&c->allocator, l->role);
    attn_drop(&c->allocator, l->category);
    attn_drop(&c->allocator, l->impl_overrides);
    attn_consumer_clear(&l->consumer);
    attn_drop(&c->allocator, l->model_backend);
    attn_drop(&c->allocator, l->qkv_layout);
    attn_drop(&c->allocator, l);
}

static double kept_share(const attn_report *report)
{
    return report->total > 0 ? (double)report->kept / (double)report->total : 1;
}

void attn_layer_get_info(const attn_layer *l, attn_layer_info *info)
{
    attn_layer_info ours = {.explicit_choice = l->current.explicit_choice,
                            .backend = l->current.backend->name,
                            .implementation = l->current.slot->impl.name,
                            .source = l->current.source,
                            .reason = l->current.reason,
                            .plan = l->plan_text,
                            .demotions = l->demotions,
                            .report = l->report.text,
                            .dense_calls = l->dense_calls,
                            .sparse_calls = l->sparse_calls,
                            .kept_share = kept_share(&l->report),
                            .map_seconds = l->report.map_seconds};
    attn_give_struct(info, &ours, sizeof ours);
}

/* ---- planning ----------------------------------------------------------------------------------- */

/* An explicit choice that cannot serve this call is refused; an automatic one is judged anew and the change
 * told. */
static attn_status judge_anew(attn_layer *l, const attn_problem *problem, const attn_reasons *against,
                              attn_error *error)
{
    attn_context *c = l->context;
    attn_court court = court_of(l, c->trace, c->trace_user);
    char why[300];
    attn_clauses_say(&against->clauses, why, sizeof why);
    if (l->choice.explicit_choice)
        return attn_fail(error, against->first,
                         "%s, chosen by %.60s for role '%.30s', cannot serve this call: %s; choose another "
                         "backend or 'auto'",
                         l->choice.backend->name, l->choice.source, l->role, why);
    court.demoted = l->demoted;
    attn_choice next; /* a failure leaves the layer as it was */
    ATTN_TRY(attn_policy_choose(&court, c->config, &l->question, problem, &next, error));
    l->current = next;
    if (l->rejudged || !against->count) return ATTN_OK;
    l->rejudged = true;
    attn_context_log(c, ATTN_LOG_WARNING, "role '%.60s': this call cannot run on %s (%s), so %s runs it: %s",
                     l->role, l->choice.backend->name, why, l->current.backend->name, l->current.reason);
    return ATTN_OK;
}

static attn_status choose_for_call(attn_layer *l, const attn_problem *problem, attn_error *error)
{
    attn_context *c = l->context;
    attn_reasons reasons;
    attn_court court = court_of(l, c->trace, c->trace_user);
    attn_trace who = {.role = l->role,
                      .source = l->choice.source,
                      .backend = l->choice.backend->name,
                      .implementation = l->choice.slot->impl.name};
    attn_reasons_start(&reasons, c->trace, c->trace_user, &who);
    attn_judge_impl(&court, l->choice.slot, problem, &reasons);
    if (reasons.count || (l->demoted && !l->choice.explicit_choice))
        return judge_anew(l, problem, &reasons, error);
    l->current = l->choice;
    return ATTN_OK;
}

/* An override that was set or cleared after the layer opened takes effect with its next call. */
static attn_status follow_overrides(attn_layer *l, attn_error *error)
{
    attn_context *c = l->context;
    attn_problem problem;
    attn_site_problem(&l->site, &problem);
    attn_court court = court_of(l, c->trace, c->trace_user);
    uint64_t generation = atomic_load(&c->registry.generation);
    attn_choice next; /* a failure leaves the layer stale, so that the next call fails alike */
    ATTN_TRY(attn_policy_choose(&court, c->config, &l->question, &problem, &next, error));
    l->choice = l->current = next;
    l->generation = generation;
    l->demoted = 0;
    l->rejudged = false;
    attn_plan_release(c, l->plan);
    l->plan = NULL;
    attn_log_selection(c, l->role, l->category, &l->choice);
    return ATTN_OK;
}

/* In steady state the layer's last plan is the answer and nothing is chosen, locked or allocated. */
static attn_status plan_call(attn_layer *l, const attn_problem *problem, bool *at_fault, attn_error *error)
{
    bool stale =
        l->generation != atomic_load_explicit(&l->context->registry.generation, memory_order_relaxed);
    if (stale) ATTN_TRY(follow_overrides(l, error));
    if (l->plan && !memcmp(&l->plan->problem, problem, sizeof *problem)) return ATTN_OK;
    attn_plan *plan;
    ATTN_TRY(choose_for_call(l, problem, error));
    *at_fault = true;
    ATTN_TRY(attn_plan_get(l->context, l->current.slot, problem, &plan, error));
    *at_fault = false;
    attn_plan_release(l->context, l->plan);
    l->plan = plan;
    const attn_impl *impl = &plan->slot->impl;
    l->plan_text[0] = 0;
    if (impl->describe) impl->describe(&l->context->host, plan->state, l->plan_text, sizeof l->plan_text);
    return ATTN_OK;
}

/* ---- running ------------------------------------------------------------------------------------ */

static attn_status too_large(const attn_layer *l, attn_error *error)
{
    return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY,
                     "the workspace of %s would exceed the address space; check the shapes of q, k and v",
                     l->current.slot->impl.name);
}

static bool empty(const attn_problem *p)
{
    return !p->batch || !p->heads || !p->q_len;
}

static bool on_host(const attn_layer *l)
{
    return l->site.device.device_type == kDLCPU;
}

/* Workers are threads of the host; a device is one. */
static int32_t workers_of(const attn_layer *l)
{
    return on_host(l) ? l->context->host.threads : 1;
}

static attn_status run_in(attn_layer *l, attn_request *r, char *memory, size_t stride, attn_error *error)
{
    attn_context *c = l->context;
    const attn_device *mover = NULL;
    const attn_plan *plan = l->plan;
    size_t shared = (plan->workspace.shared_bytes + ATTN_ALIGN - 1) / ATTN_ALIGN * ATTN_ALIGN;
    r->call.problem = &r->problem;
    r->call.workers = workers_of(l);
    r->call.shared = memory ? memory + r->joint_bytes : NULL; /* a device's call may need none */
    r->call.scratch = memory ? memory + r->joint_bytes + shared : NULL;
    r->call.scratch_stride = stride;
    r->call.impl = &plan->slot->impl;
    r->call.role = l->role;
    r->call.layer_index = l->consumer.layer_index;
    if (plan->slot->impl.flags & ATTN_IMPL_PER_FORWARD) ATTN_TRY(attn_layer_consume(l, r, error));
    if (r->joint) {
        mover = attn_device_find(c, l->site.device.device_type, error);
        if (!mover) return ATTN_NOT_AVAILABLE;
        ATTN_TRY(attn_joint_gather(r, mover, memory, error));
    }
    l->report = (attn_report){.size = sizeof l->report};
    r->call.report = &l->report;
    attn_error why = ATTN_ERROR_INIT;
    attn_status status = plan->slot->impl.run(&c->host, plan->state, &r->call, &why);
    r->at_fault = status != ATTN_OK;
    if (status) return attn_impl_failed(c, plan->slot, status, &why, error);
    if (attn_call_cancelled(&r->call))
        return attn_fail(error, ATTN_KIND_CANCELLED,
                         "the call was cancelled by the caller's flag; outputs are undefined");
    attn_layer_count_blocks(l, &r->call);
    return r->joint ? attn_joint_scatter(r, mover, memory, error) : ATTN_OK;
}

static attn_status run_in_callers(attn_layer *l, attn_request *r, size_t stride, size_t total,
                                  attn_error *error)
{
    uintptr_t address = (uintptr_t)r->args.workspace;
    if (r->args.workspace_bytes < total || address % ATTN_ALIGN)
        return attn_fail(
            error, ATTN_KIND_WORKSPACE_TOO_SMALL,
            "the workspace has %zu bytes at an address that is %smultiple of %d; this call needs %zu, ask "
            "attn_workspace_size",
            r->args.workspace_bytes, address % ATTN_ALIGN ? "no " : "a ", ATTN_ALIGN, total);
    return run_in(l, r, r->args.workspace, stride, error);
}

static attn_status run_on_device(attn_layer *l, attn_request *r, size_t stride, size_t total,
                                 attn_error *error)
{
    attn_space *space;
    if (!total) return run_in(l, r, NULL, 0, error);
    ATTN_TRY(
        attn_space_take(l->context, l->site.device, r->args.stream, ATTN_SPACE_CALL, total, &space, error));
    attn_status status = run_in(l, r, space->memory[space->count - 1], stride, error);
    attn_space_give(space);
    return status;
}

static attn_status run(attn_layer *l, attn_request *r, attn_error *error)
{
    size_t stride, total;
    attn_context *c = l->context;
    if (!attn_plan_bytes(l->plan, workers_of(l), r->joint_bytes, &stride, &total)) return too_large(l, error);
    if (r->args.workspace) return run_in_callers(l, r, stride, total, error);
    if (!on_host(l)) return run_on_device(l, r, stride, total, error);
    attn_lease *lease = attn_workspace_borrow(&c->workspaces, total);
    if (!lease)
        return attn_fail(
            error, ATTN_KIND_OUT_OF_MEMORY,
            "no memory for a workspace of %zu bytes (%s, %d threads); use fewer threads or shorter sequences",
            total, l->current.slot->impl.name, c->host.threads);
    attn_status status = run_in(l, r, lease->memory, stride, error);
    attn_workspace_return(&c->workspaces, lease);
    return status;
}

static attn_status prepare(attn_layer *l, const attn_args *args, attn_request *r, attn_error *error)
{
    r->at_fault = false;
    if (!l) return attn_fail(error, ATTN_KIND_INVALID_VALUE, "layer is NULL; open one with attn_layer_open");
    ATTN_TRY(attn_request_read(&l->site, args, r, error));
    return plan_call(l, &r->problem, &r->at_fault, error);
}

/* An automatic choice whose implementation itself refuses, when it plans or runs, falls to the next
 * candidate, once and for all of this layer's calls; an explicit one reports. */
static bool may_demote(const attn_layer *l, attn_status status, bool at_fault)
{
    return at_fault && (status == ATTN_UNSUPPORTED || status == ATTN_NOT_AVAILABLE) &&
           !l->current.explicit_choice;
}

static void demote(attn_layer *l, const attn_error *why)
{
    attn_context *c = l->context;
    for (size_t i = 0; i < c->registry.impl_count && i < 64; i++)
        if (c->registry.impls[i] == l->current.slot) l->demoted |= (uint64_t)1 << i;
    l->demotions++;
    attn_context_log(c, ATTN_LOG_WARNING, "role '%.60s': %s failed and is not tried again by this layer: %s",
                     l->role, l->current.slot->impl.name, why->text);
    attn_plan_release(c, l->plan);
    l->plan = NULL;
}

static attn_status forward_once(attn_layer *l, const attn_args *args, bool *at_fault, attn_error *error)
{
    attn_request r;
    attn_status status = prepare(l, args, &r, error);
    if (!status && !empty(&r.problem)) {
        if (attn_call_cancelled(&r.call))
            status = attn_fail(error, ATTN_KIND_CANCELLED,
                               "the caller's cancel flag was raised before the call; nothing ran");
        else
            status = run(l, &r, error);
    }
    *at_fault = l && r.at_fault;
    return status;
}

attn_status attn_forward(attn_layer *l, const attn_args *args, attn_error *error)
{
    attn_error first = ATTN_ERROR_INIT;
    bool at_fault;
    attn_status status = forward_once(l, args, &at_fault, &first);
    for (int tries = 0; status && tries < 64 && may_demote(l, status, at_fault); tries++) {
        demote(l, &first);
        status = forward_once(l, args, &at_fault, &first);
    }
    return status ? attn_fail(error, first.kind, "%s", first.text) : ATTN_OK;
}

attn_status attn_workspace_size(attn_layer *l, const attn_args *args, size_t *bytes, attn_error *error)
{
    attn_request r;
    size_t stride;
    if (!bytes) return attn_fail(error, ATTN_KIND_INVALID_VALUE, "bytes is NULL; pass a place for the size");
    ATTN_TRY(prepare(l, args, &r, error));
    return attn_plan_bytes(l->plan, workers_of(l), r.joint_bytes, &stride, bytes) ? ATTN_OK
                                                                                  : too_large(l, error);
}

/* Results may differ in their last bits where a profile holds, so it is said whenever a choice is explained.
 */
static void tell_profile(const attn_context *c, const attn_layer *l, const attn_problem *problem, bool whole,
                         attn_trace_fn sink, void *user)
{
    char text[512];
    int64_t isa = 0;
    if (!sink || !c->profile) return;
    bool holds = whole && attn_profile_value(c->profile, c->isa_cap, problem, "isa", &isa);
    const char *set = holds ? attn_kernel_set_at((size_t)isa, NULL) : "";
    snprintf(text, sizeof text, "the profile %.300s with %d rows is in force; %s%s", c->profile_path,
             attn_profile_count(c->profile),
             !whole  ? "plans of calls that match a row follow it"
             : holds ? "a row holds for this call and names the kernel set "
                     : "no row holds for this call",
             set);
    attn_trace note = {.size = sizeof note,
                       .event = ATTN_TRACE_NOTE,
                       .usable = 1,
                       .role = l->role,
                       .source = "profile",
                       .text = text};
    sink(user, &note);
}

attn_status attn_explain(attn_context *c, const attn_layer_options *options, const attn_args *args,
                         attn_trace_fn sink, void *user, attn_error *error)
{
    attn_layer_options o;
    attn_layer l = {.context = c};
    attn_problem problem;
    attn_request r;
    if (!c) return attn_fail(error, ATTN_KIND_INVALID_VALUE, "context is NULL; open one with attn_open");
    ATTN_TRY(read_options(c, options, &o, &l.site, error));
    ATTN_TRY(check_overrides(o.impl_overrides, error));
    attn_site_problem(&l.site, &problem);
    if (args) {
        ATTN_TRY(attn_request_read(&l.site, args, &r, error));
        problem = r.problem;
    }
    /* The layer lives for this call only, so the caller's strings serve as they are. */
    l.role = (char *)(uintptr_t)role_of(&o);
    l.impl_overrides = (char *)(uintptr_t)o.impl_overrides;
    l.qkv_layout = (char *)(uintptr_t)o.qkv_layout;
    l.permitted = attn_model_permits_trtllm(o.pipeline);
    attn_court court = court_of(&l, sink, user);
    tell_profile(c, &l, &problem, args != NULL, sink, user);
    if (o.domain == ATTN_DOMAIN_LLM) tell_obsolete(c);
    ATTN_TRY(read_question(&l.site, &o, &l.question, error));
    return attn_policy_choose(&court, c->config, &l.question, &problem, &l.choice, error);
}
