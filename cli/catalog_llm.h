/* catalog_llm.h: the tables and lists of domains llm and vision. */
#ifndef ATTN_CLI_CATALOG_LLM_H
#define ATTN_CLI_CATALOG_LLM_H

#include <attn/attn.h>
#include <jansson.h>
#include <stdio.h>

#include "report.h"

/* All tables of a domain but diffusion, with a heading each. Returns an exit code. */
int catalog_domain_print(FILE *out, const attn_context *context, attn_domain domain,
                         enum report_format format);
json_t *catalog_domain_json(const attn_context *context, attn_domain domain);

#endif
