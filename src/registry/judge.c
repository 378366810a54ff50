/* judge.c: the only place that says yes or no, and it collects every reason. */
#include "registry/judge.h"

#include "core/dtype.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { WHOLE = 2 * sizeof(((attn_clauses *)0)->text) }; /* room for all clauses that are kept */

/* What is missing of a plugin it did not declare; inputs that change the answer need that. */
static void lacks_capability(const attn_impl *impl, int bit, attn_reasons *reasons)
{
    char text[64];
    const char *name = attn_feature_name(bit);
    attn_reason(reasons, ATTN_KIND_SPARSE_CAPABILITY,
                "%s does not declare %s, which this call's %s needs; leave that out or use another backend",
                impl->name, attn_plugin_capability(bit, text, sizeof text), name ? name : "feature");
}

static void check_features(const attn_impl_slot *slot, const attn_problem *p, attn_reasons *reasons)
{
    const attn_impl *impl = &slot->impl;
    uint64_t missing = p->features & ~impl->features;
    for (int bit = 0; bit < 64; bit++) {
        if (!(missing >> bit & 1)) continue;
        const char *name = attn_feature_name(bit), *sentence = attn_feature_sentence(bit);
        if (bit == ATTN_FEATURE_BIT_RING) {
            attn_reason(reasons, ATTN_KIND_RING_UNSUPPORTED,
                        "a ring runs kernels of its own and would pass %s by; turn ring parallelism off for "
                        "this role",
                        impl->name);
            continue;
        }
        if (slot->plugin) {
            lacks_capability(impl, bit, reasons);
            continue;
        }
        attn_reason(reasons, ATTN_KIND_FEATURE_UNSUPPORTED, "%s lacks %s (%s)", impl->name,
                    name ? name : "a feature", sentence ? sentence : "unknown to this version");
    }
}

static void check_dtype(const attn_impl *impl, const attn_problem *p, attn_reasons *reasons)
{
    char words[128];
    if (!p->dtype || impl->dtypes >> p->dtype & 1) return;
    attn_reason(reasons, ATTN_KIND_DTYPE_UNSUPPORTED, "%s takes %s, not %s", impl->name,
                attn_dtype_words(impl->dtypes, words, sizeof words), attn_dtype_word(p->dtype));
}

static bool size_listed(const attn_impl *impl, int64_t size)
{
    if (size > impl->head_dim_max || (impl->head_dim_multiple > 1 && size % impl->head_dim_multiple))
        return false;
    if (!impl->head_dims) return true;
    for (const int32_t *d = impl->head_dims; *d; d++)
        if (*d == size) return true;
    return false;
}

static const char *list_sizes(const attn_impl *impl, char *text, size_t bytes)
{
    size_t used = 0;
    if (!impl->head_dims && impl->head_dim_multiple > 1)
        snprintf(text, bytes, "multiples of %d up to %d", impl->head_dim_multiple, impl->head_dim_max);
    else if (!impl->head_dims)
        snprintf(text, bytes, "1 to %d", impl->head_dim_max);
    for (const int32_t *d = impl->head_dims; d && *d && used < bytes; d++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%d", used ? ", " : "", *d);
    return text;
}

static void check_head_sizes(const attn_impl *impl, const attn_problem *p, attn_reasons *reasons)
{
    char sizes[128];
    int64_t asked[] = {p->head_dim, p->value_head_dim};
    for (int i = 0; i < 2; i++) {
        if (asked[i] <= 0 || size_listed(impl, asked[i]) || (i && asked[1] == asked[0])) continue;
        attn_reason(reasons, ATTN_KIND_HEAD_SIZE_UNSUPPORTED, "%s supports %s %s, not %" PRId64, impl->name,
                    i ? "value_head_dim" : "head_dim", list_sizes(impl, sizes, sizeof sizes), asked[i]);
    }
}

static void check_arch(const attn_court *court, const attn_impl *impl, attn_reasons *reasons)
{
    int32_t arch = court->facts->has_capability ? court->facts->major * 10 + court->facts->minor : 0;
    bool low = impl->arch_min && arch < impl->arch_min, high = impl->arch_max && arch > impl->arch_max;
    char range[64], found[48] = "that of this device is not known";
    if (!low && !high) return;
    if (impl->arch_min == impl->arch_max)
        snprintf(range, sizeof range, "architecture sm_%d", impl->arch_min);
    else if (impl->arch_min && impl->arch_max)
        snprintf(range, sizeof range, "architectures sm_%d to sm_%d", impl->arch_min, impl->arch_max);
    else
        snprintf(range, sizeof range, "architectures %s sm_%d", low ? "from" : "up to",
                 low ? impl->arch_min : impl->arch_max);
    if (arch) snprintf(found, sizeof found, "this is sm_%d", arch);
    attn_reason(reasons, ATTN_KIND_CAPABILITY_UNSUPPORTED, "%s is for %s, %s", impl->name, range, found);
}

static void check_layout(const attn_court *court, const attn_impl_slot *slot, attn_reasons *reasons)
{
    if (!slot->plugin || !court->qkv_layout || !strcmp(court->qkv_layout, "BSND")) return;
    attn_reason(reasons, ATTN_KIND_SPARSE_LAYOUT,
                "%s takes models whose layout is BSND or not declared, and this one declares '%.40s'; leave "
                "qkv_layout out or use another backend",
                slot->impl.name, court->qkv_layout);
}

void attn_judge_impl(const attn_court *court, const attn_impl_slot *slot, const attn_problem *problem,
                     attn_reasons *reasons)
{
    const attn_impl *impl = &slot->impl;
    if (!attn_impl_on(impl, court->facts))
        attn_reason(reasons, ATTN_KIND_PLATFORM_UNSUPPORTED, "%s runs on %s, this is %s", impl->name,
                    impl->platform, court->facts->platform);
    check_features(slot, problem, reasons);
    check_dtype(impl, problem, reasons);
    check_head_sizes(impl, problem, reasons);
    check_arch(court, impl, reasons);
    check_layout(court, slot, reasons);
    /* accept may rely on what was checked before it. */
    if (!reasons->count && impl->accept) impl->accept(court->host, problem, reasons);
}

static void tell(const attn_court *court, const attn_trace *who, bool usable, attn_kind kind,
                 const char *text)
{
    if (!court->sink) return;
    attn_trace trace = *who;
    trace.size = sizeof trace;
    trace.event = ATTN_TRACE_CANDIDATE;
    trace.usable = usable;
    trace.kind = kind;
    trace.text = text;
    court->sink(court->user, &trace);
}

static void try_impl(const attn_court *court, const attn_impl_slot *slot, const attn_problem *problem,
                     const attn_trace *backend, attn_verdict *verdict)
{
    attn_reasons reasons;
    attn_trace who = *backend;
    char whole[WHOLE];
    who.implementation = slot->impl.name;
    attn_reasons_start(&reasons, court->sink, court->user, &who);
    attn_judge_impl(court, slot, problem, &reasons);
    tell(court, &who, reasons.count == 0, reasons.first,
         reasons.count ? attn_clauses_say(&reasons.clauses, whole, sizeof whole) : slot->impl.summary);
    if (!reasons.count && !verdict->slot) {
        verdict->slot = slot;
    } else if (reasons.count && !verdict->kind) {
        verdict->kind = reasons.first;
        verdict->clauses = reasons.clauses;
    }
}

static bool is_demoted(const attn_court *court, const attn_impl_slot *slot)
{
    for (size_t i = 0; i < court->registry->impl_count && i < 64; i++)
        if (court->registry->impls[i] == slot) return court->demoted >> i & 1;
    return false;
}

/* An implementation that failed in an earlier call of this layer is not tried again. */
static void refuse_demoted(const attn_court *court, const attn_impl_slot *slot, const attn_trace *backend,
                           attn_verdict *verdict)
{
    attn_reasons reasons;
    attn_trace who = *backend;
    who.implementation = slot->impl.name;
    attn_reasons_start(&reasons, court->sink, court->user, &who);
    attn_reason(&reasons, ATTN_KIND_NOT_IMPLEMENTED, "%s failed in an earlier call of this layer",
                slot->impl.name);
    if (verdict->kind) return;
    verdict->kind = reasons.first;
    verdict->clauses = reasons.clauses;
}

/* The implementation that the layer's table names for a backend; false when the table says nothing of it. */
static bool named_for(const attn_court *court, const attn_backend *b, char *impl, size_t bytes)
{
    for (const char *p = court->impl_overrides; p && *p;) {
        size_t length = strcspn(p, ","), name = strcspn(p, "=,");
        bool names = (name == strlen(b->name) && !strncasecmp(p, b->name, name)) ||
                     (name == strlen(b->log_name) && !strncasecmp(p, b->log_name, name));
        if (names && p[name] == '=') {
            snprintf(impl, bytes, "%.*s", (int)(length - name - 1), p + name + 1);
            return true;
        }
        p += length + (p[length] == ',');
    }
    return false;
}

/* A replacement must do what it stands in for: an implementation that does not serve the backend is refused.
 */
static void try_named(const attn_court *court, const attn_backend *b, const char *impl,
                      const attn_problem *problem, const attn_trace *who, attn_verdict *verdict)
{
    attn_reasons reasons;
    const attn_impl_slot *slot = attn_registry_impl(court->registry, impl);
    if (slot && attn_impl_serves(&slot->impl, b->served)) {
        if (is_demoted(court, slot))
            refuse_demoted(court, slot, who, verdict);
        else
            try_impl(court, slot, problem, who, verdict);
        return;
    }
    attn_reasons_start(&reasons, court->sink, court->user, who);
    attn_reason(&reasons, ATTN_KIND_UNKNOWN_NAME,
                "impl_overrides puts '%s' behind %s, but %s%s; name one that serves it", impl, b->name,
                slot ? "it serves " : "there is no such implementation", slot ? slot->served : "");
    verdict->kind = reasons.first;
    verdict->clauses = reasons.clauses;
}

/* The dispatcher's name was taken without a plugin's. */
static void want_plugin(const attn_court *court, const attn_trace *who, attn_verdict *verdict)
{
    attn_reasons reasons;
    attn_error why = ATTN_ERROR_INIT;
    const attn_impl_slot *slot;
    attn_registry_plugin(court->registry, "", &slot, &why);
    attn_reasons_start(&reasons, court->sink, court->user, who);
    attn_reason(&reasons, why.kind, "%s", why.text);
    verdict->kind = reasons.first;
    verdict->clauses = reasons.clauses;
}

static void try_plugin(const attn_court *court, const attn_backend *b, const attn_problem *problem,
                       const attn_trace *who, attn_verdict *verdict)
{
    const attn_impl_slot *override = attn_registry_override(court->registry, b);
    const attn_impl_slot *slot = override ? override : court->plugin;
    if (!slot)
        want_plugin(court, who, verdict);
    else if (is_demoted(court, slot))
        refuse_demoted(court, slot, who, verdict);
    else
        try_impl(court, slot, problem, who, verdict);
}

static void try_all(const attn_court *court, const attn_backend *b, const attn_problem *problem,
                    const attn_trace *who, attn_verdict *verdict)
{
    const attn_impl_slot *override = attn_registry_override(court->registry, b);
    char named[80];
    if (named_for(court, b, named, sizeof named)) {
        try_named(court, b, named, problem, who, verdict);
        return;
    }
    if (b == attn_registry_dispatcher()) {
        try_plugin(court, b, problem, who, verdict);
        return;
    }
    for (size_t i = 0; i < court->registry->impl_count; i++) {
        const attn_impl_slot *slot = court->registry->impls[i];
        if (!attn_impl_serves(&slot->impl, b->served) || (override && slot != override)) continue;
        if (is_demoted(court, slot)) {
            refuse_demoted(court, slot, who, verdict);
            continue;
        }
        /* Of implementations for other platforms nothing is said when none is for this one: the sentence
         * about the missing package says more. */
        if (attn_impl_on(&slot->impl, court->facts) || override) try_impl(court, slot, problem, who, verdict);
    }
}

/* A call's own needs against the contract's two facts about masks. */
static void check_contract_needs(const attn_backend *b, const attn_problem *problem, attn_reasons *reasons)
{
    uint64_t masks = ATTN_FEATURE(MASK_KEEP) | ATTN_FEATURE(MASK_ADDITIVE) | ATTN_FEATURE(KEY_MASK);
    if (problem->features & masks && !b->mask)
        attn_reason(reasons, ATTN_KIND_FEATURE_UNSUPPORTED,
                    "%s accepts no attention mask; use TORCH_SDPA or FLASH_ATTN", b->name);
    if (problem->features & ATTN_FEATURE(SPANS) && !b->spans)
        attn_reason(reasons, ATTN_KIND_FEATURE_UNSUPPORTED,
                    "%s accepts no piecewise spans; use the flash family or a 4-D mask", b->name);
}

/* What is only described is judged by what its kernels take anywhere. */
static void check_contract_f32(const attn_court *court, const attn_backend *b, const attn_problem *problem,
                               attn_reasons *reasons)
{
    if (problem->dtype == ATTN_F32 && !attn_contract_f32(b, court->facts))
        attn_reason(reasons, ATTN_KIND_DTYPE_UNSUPPORTED, "%s takes fp16 and bf16, not fp32; use TORCH_SDPA",
                    b->name);
}

static void refuse_platform(const attn_court *court, const attn_backend *b, attn_reasons *reasons)
{
    if (!strcmp(court->facts->platform, "none"))
        attn_reason(
            reasons, ATTN_KIND_NOT_IMPLEMENTED,
            "%s cannot be chosen on a machine whose platform is not identified; name TORCH_SDPA or install a "
            "platform's runtime",
            b->name);
    else
        attn_reason(reasons, ATTN_KIND_PLATFORM_UNSUPPORTED, "%s is declared for %s, this is %s", b->name,
                    b->platforms, court->facts->platform);
}

static void try_live(const attn_court *court, const attn_backend *b, const attn_problem *problem,
                     const attn_trace *who, attn_verdict *verdict, attn_reasons *reasons)
{
    try_all(court, b, problem, who, verdict);
    if (!verdict->slot && !verdict->kind)
        attn_reason(reasons, ATTN_KIND_PACKAGE_MISSING,
                    "no implementation of %s for %s is installed; modules were searched in '%s'", b->name,
                    court->facts->platform, court->registry->searched ? court->registry->searched : "");
}

/* Code on the machine itself is an answer, also for a name that others declare for elsewhere. */
static bool served_here(const attn_court *court, const attn_backend *b)
{
    for (size_t i = 0;
         b->domain != ATTN_DOMAIN_DIFFUSION && court->facts->live && i < court->registry->impl_count; i++) {
        const attn_impl *impl = &court->registry->impls[i]->impl;
        if (attn_impl_on(impl, court->facts) && attn_impl_serves(impl, b->served)) return true;
    }
    return false;
}

void attn_judge_backend(const attn_court *court, const attn_backend *b, const attn_problem *problem,
                        attn_verdict *verdict)
{
    attn_reasons reasons;
    char whole[WHOLE];
    attn_trace who = {.role = court->role, .source = court->source, .backend = b->name};
    memset(verdict, 0, sizeof *verdict);
    verdict->backend = b;
    attn_reasons_start(&reasons, court->sink, court->user, &who);
    if (!attn_contract_platform(b, court->facts->platform) && !served_here(court, b)) {
        refuse_platform(court, b, &reasons);
    } else if (court->facts->live) {
        try_live(court, b, problem, &who, verdict, &reasons);
    } else {
        /* A plugin says itself what it needs, and it is asked on the machine where it runs. */
        if (b != attn_registry_dispatcher() || !court->plugin)
            attn_contract_check(b, court->facts, court->head_size, &reasons);
        check_contract_needs(b, problem, &reasons);
        check_contract_f32(court, b, problem, &reasons);
    }
    verdict->usable = court->facts->live ? verdict->slot != NULL : !reasons.count;
    if (reasons.count) {
        verdict->kind = reasons.first;
        verdict->clauses = reasons.clauses;
    }
    if (verdict->usable) verdict->kind = ATTN_KIND_NONE;
    tell(court, &who, verdict->usable, verdict->kind,
         verdict->slot     ? verdict->slot->impl.name
         : verdict->usable ? "meets the contract"
                           : attn_clauses_say(&verdict->clauses, whole, sizeof whole));
}
