/* explain_contract.h: where an implementation does more than the contract of the backend it serves. */
#ifndef ATTN_CLI_EXPLAIN_CONTRACT_H
#define ATTN_CLI_EXPLAIN_CONTRACT_H

#include <attn/attn.h>
#include <jansson.h>

/* Adds "beyond_contract" to every usable candidate of a role that explain_collect filled: one sentence for
 * each thing that the site asks and the backend's contract does not promise, though the code here does it. */
void explain_mark_contract(json_t *role, const attn_context *context, const attn_layer_options *site);

/* 1 when a contract's words for head sizes ("any", "64 96 128", "multiples of 8 up to 256") allow a size. */
int explain_contract_has_size(const char *words, int64_t size);

#endif
