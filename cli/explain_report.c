/* explain_report.c: collects the steps of attn_explain and prints them. */
#include "explain_report.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "report.h"

static json_t *text_or_null(const char *text)
{
    return text && *text ? json_string(text) : json_null();
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

json_t *explain_begin(const attn_layer_options *site)
{
    json_t *role = json_object();
    json_object_set_new(role, "role", text_or_null(site->role));
    json_object_set_new(role, "category", text_or_null(site->category));
    static const char *const later[] = {"asked", "source", "backend", "implementation", "reason"};
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        json_object_set_new(role, later[i], json_null());
    json_object_set_new(role, "candidates", json_array());
    json_object_set_new(role, "notes", json_array());
    return role;
}

/* The candidate of a trace; made when it is new. Reasons may come before the verdict they belong to. */
static json_t *candidate_of(json_t *role, const attn_trace *trace)
{
    json_t *list = json_object_get(role, "candidates"), *candidate;
    const char *backend = trace->backend ? trace->backend : "";
    const char *implementation = trace->implementation ? trace->implementation : "";
    size_t i;
    json_array_foreach(list, i, candidate)
    {
        if (strcmp(text_of(candidate, "backend"), backend) == 0 &&
            strcmp(text_of(candidate, "implementation"), implementation) == 0)
            return candidate;
    }
    candidate = json_pack("{s:o, s:o, s:b, s:n, s:[]}", "backend", text_or_null(backend), "implementation",
                          text_or_null(implementation), "usable", 0, "kind", "reasons");
    json_array_append_new(list, candidate);
    return candidate;
}

static void add_reason(json_t *role, const attn_trace *trace)
{
    json_t *reasons = json_object_get(candidate_of(role, trace), "reasons");
    json_array_append_new(reasons, json_pack("{s:s, s:o}", "kind", attn_kind_name(trace->kind), "text",
                                             text_or_null(trace->text)));
}

static void add_verdict(json_t *role, const attn_trace *trace)
{
    json_t *candidate = candidate_of(role, trace);
    json_object_set_new(candidate, "usable", json_boolean(trace->usable));
    if (!trace->usable) json_object_set_new(candidate, "kind", json_string(attn_kind_name(trace->kind)));
}

/* A note about a candidate is what its code does beyond the contract of its name. */
static void add_beyond(json_t *role, const attn_trace *trace)
{
    json_t *candidate = candidate_of(role, trace), *list = json_object_get(candidate, "beyond_contract");
    if (!list && !json_object_set_new(candidate, "beyond_contract", json_array()))
        list = json_object_get(candidate, "beyond_contract");
    json_array_append_new(list, text_or_null(trace->text));
}

static void add_choice(json_t *role, const attn_trace *trace)
{
    json_object_set_new(role, "backend", text_or_null(trace->backend));
    json_object_set_new(role, "implementation", text_or_null(trace->implementation));
    json_object_set_new(role, "reason", text_or_null(trace->text));
    if (trace->source) json_object_set_new(role, "source", text_or_null(trace->source));
}

void explain_collect(void *user, const attn_trace *trace)
{
    json_t *role = user;
    switch (trace->event) {
    case ATTN_TRACE_SOURCE:
        json_object_set_new(role, "asked", text_or_null(trace->backend));
        json_object_set_new(role, "source", text_or_null(trace->source));
        break;
    case ATTN_TRACE_REASON:
        add_reason(role, trace);
        break;
    case ATTN_TRACE_CANDIDATE:
        add_verdict(role, trace);
        break;
    case ATTN_TRACE_CHOICE:
        add_choice(role, trace);
        break;
    default:
        if (trace->backend) {
            add_beyond(role, trace);
            break;
        }
        json_array_append_new(json_object_get(role, "notes"), text_or_null(trace->text));
        break;
    }
}

/* ---- text --------------------------------------------------------------------------------------- */

static void print_site(const attn_layer_options *site)
{
    if (site->heads || site->domain == ATTN_DOMAIN_DIFFUSION)
        printf("site        %" PRId64 " head%s", site->heads, site->heads == 1 ? "" : "s");
    else
        printf("site        heads not known yet");
    if (site->kv_heads && site->kv_heads != site->heads) printf(" over %" PRId64, site->kv_heads);
    printf(", head size %" PRId64, site->head_dim);
    if (site->value_head_dim && site->value_head_dim != site->head_dim)
        printf(" (values %" PRId64 ")", site->value_head_dim);
    printf(", %s%s", site->dtype ? attn_dtype_name(site->dtype) : "dtype not known yet",
           site->causal ? ", causal" : "");
    if (site->needs) printf(", needs");
    for (int bit = 0; attn_feature_name(bit); bit++)
        if (site->needs >> bit & 1) printf(" %s", attn_feature_name(bit));
    printf("\n");
}

static void print_name(const json_t *object)
{
    const char *implementation = text_of(object, "implementation");
    printf("%s%s%s", text_of(object, "backend"), *implementation ? "/" : "", implementation);
}

static int same_name(const json_t *a, const json_t *b)
{
    return strcmp(text_of(a, "backend"), text_of(b, "backend")) == 0 &&
           strcmp(text_of(a, "implementation"), text_of(b, "implementation")) == 0;
}

/* The verdict on a backend itself says nothing new when one of its implementations has a line. */
static int is_covered(const json_t *candidates, const json_t *candidate)
{
    const json_t *other;
    size_t i;
    if (*text_of(candidate, "implementation") || json_array_size(json_object_get(candidate, "reasons")))
        return 0;
    json_array_foreach(candidates, i, other)
    {
        if (other != candidate && strcmp(text_of(other, "backend"), text_of(candidate, "backend")) == 0)
            return 1;
    }
    return 0;
}

static void print_candidate(const json_t *role, const json_t *candidate)
{
    const json_t *reasons = json_object_get(candidate, "reasons"), *reason;
    const json_t *beyond = json_object_get(candidate, "beyond_contract");
    int usable = json_is_true(json_object_get(candidate, "usable"));
    int chosen = usable && same_name(role, candidate);
    size_t i;
    printf("  %s%-8s%s  ", report_begin(stdout, usable ? REPORT_GOOD : REPORT_BAD),
           chosen   ? "chosen"
           : usable ? "usable"
                    : "refused",
           report_end(stdout));
    print_name(candidate);
    printf("\n");
    json_array_foreach(reasons, i, reason)
    {
        printf("            %s: %s\n", text_of(reason, "kind"), text_of(reason, "text"));
    }
    json_array_foreach(beyond, i, reason)
    {
        printf("            beyond contract: %s\n", json_string_value(reason));
    }
}

static void print_candidates(const json_t *role)
{
    const json_t *candidates = json_object_get(role, "candidates"), *item;
    size_t i;
    printf("candidates\n");
    json_array_foreach(candidates, i, item)
    {
        if (!is_covered(candidates, item)) print_candidate(role, item);
    }
}

static void print_role(const json_t *role, const json_t *before)
{
    const json_t *candidates = json_object_get(role, "candidates"), *notes = json_object_get(role, "notes"),
                 *item;
    size_t i;
    printf("\nrole        %s%s%s", report_begin(stdout, REPORT_BOLD), text_of(role, "role"),
           report_end(stdout));
    if (*text_of(role, "category")) printf(", category %s", text_of(role, "category"));
    printf("\n");
    if (*text_of(role, "source"))
        printf("asked       %s, by %s\n", text_of(role, "asked"), text_of(role, "source"));
    if (*text_of(role, "backend")) {
        printf("choice      ");
        print_name(role);
        printf("\nreason      %s\n", text_of(role, "reason"));
        explain_print_llm(role);
    }
    if (*text_of(role, "error_kind"))
        printf("refused     %s: %s\n", text_of(role, "error_kind"), text_of(role, "error"));
    /* What fails before a source is known has weighed no candidate. */
    if (!*text_of(role, "source") && json_array_size(candidates) == 0) return;
    if (before && same_name(role, before) && json_equal(candidates, json_object_get(before, "candidates")))
        printf("candidates  as for %s\n", text_of(before, "role"));
    else
        print_candidates(role);
    json_array_foreach(notes, i, item)
    {
        printf("note        %s\n", json_string_value(item));
    }
}

void explain_print(const json_t *roles, const attn_layer_options *site)
{
    const json_t *role, *before = NULL;
    size_t i;
    print_site(site);
    json_array_foreach(roles, i, role)
    {
        print_role(role, before);
        before = role;
    }
}
