/* explain_report.h: the steps of attn_explain as one JSON object a role, and as text for people. */
#ifndef ATTN_CLI_EXPLAIN_REPORT_H
#define ATTN_CLI_EXPLAIN_REPORT_H

#include <attn/attn.h>
#include <jansson.h>

/* An empty object for a role: role, category, candidates [], notes []. */
json_t *explain_begin(const attn_layer_options *site);
/* An attn_trace_fn whose user is such an object. */
void explain_collect(void *role, const attn_trace *trace);
/* explain_llm.c: adds what follows from a choice of domain llm, as "llm": {...}. */
void explain_add_llm(json_t *role, attn_context *context, const attn_layer_options *site);
/* explain_llm.c: prints that. */
void explain_print_llm(const json_t *role);
/* Prints an array of such objects for people. */
void explain_print(const json_t *roles, const attn_layer_options *site);

#endif
