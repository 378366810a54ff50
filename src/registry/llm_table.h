/* llm_table.h: the rows of domain llm, for the files that read their columns. */
#ifndef ATTN_REGISTRY_LLM_TABLE_H
#define ATTN_REGISTRY_LLM_TABLE_H

#include "registry/llm.h"

typedef struct attn_llm_row attn_llm_row;
/* A row of a name supplies its features when this holds. */
typedef bool attn_llm_active_fn(const attn_facts *facts, const attn_llm_case *question);

struct attn_llm_row {
    int32_t table; /* attn_llm_table */
    int name;
    const char *variant;
    attn_llm_active_fn *active;
    const char *dtypes, *kv_dtypes, *block_sizes, *head_sizes;
    int32_t sink, sparse, mm_prefix, dcp;
    const char *attn_types, *compute_cap, *notes;
};

const attn_llm_row *attn_llm_table_at(size_t index); /* NULL past the end */
/* The row whose features count for a question; NULL: the name has none. */
const attn_llm_row *attn_llm_active_row(const attn_facts *facts, const attn_llm_case *question, int name);
const attn_llm_row *attn_llm_first_row(int name);

/* A size of blocks that kernels see: a listed number as it is, "multiple of N", or "any". */
bool attn_llm_block_exact(const char *sizes, int64_t block);
/* A size of blocks that the cache may have: any multiple of a listed number. */
bool attn_llm_block_accepted(const char *sizes, int64_t block);

#endif
