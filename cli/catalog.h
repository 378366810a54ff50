/* catalog.h: what a context has to offer, as tables and JSON, for the commands that list it. */
#ifndef ATTN_CLI_CATALOG_H
#define ATTN_CLI_CATALOG_H

#include <attn/attn.h>
#include <jansson.h>

#include "report.h"

/* Each table is the caller's to free; NULL: out of memory. Markdown sets names in code style. */
struct report_table *catalog_backends(const attn_context *context, enum report_format format);
struct report_table *catalog_impls(const attn_context *context, enum report_format format);
/* One row a feature, one column an implementation. */
struct report_table *catalog_features(const attn_context *context, enum report_format format);

json_t *catalog_backends_json(const attn_context *context);
json_t *catalog_impls_json(const attn_context *context);

/* Cells: "yes" or "-"; the text or "-"; a name, in code style in Markdown, which keeps it from reading the
 * underscores as emphasis. */
const char *catalog_yes(int value);
const char *catalog_or_dash(const char *text);
void catalog_cell_name(struct report_table *table, enum report_format format, const char *name);

/* 1 when a comma-separated list holds the word. */
int catalog_has_word(const char *list, const char *word);
/* Names of the dtypes of a bit set, "f32, f16", into text, which is returned. */
char *catalog_dtypes(uint64_t dtypes, char *text, size_t bytes);

/* The bit of ATTN_FEATURE_LIST by name, or -1. */
int catalog_feature(const char *name);

#endif
