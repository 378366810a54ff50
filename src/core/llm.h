/* llm.h: the names of domain llm, what they are beside their rows, and the storage types of its cache. */
#ifndef ATTN_CORE_LLM_H
#define ATTN_CORE_LLM_H

#include <attn/attn.h>
#include <stdbool.h>

enum {
#define X(name, kind, mla, layout, per_head, non_causal, shape, home) ATTN_LLM_NAME_##name,
#include "core/llm_names.def"
#undef X
    ATTN_LLM_NAMES
};

typedef enum attn_llm_name_kind { ATTN_LLM_TABLE, ATTN_LLM_SLOT, ATTN_LLM_NONE } attn_llm_name_kind;
typedef enum attn_llm_layout { ATTN_LLM_FREE, ATTN_LLM_HND, ATTN_LLM_HND_10 } attn_llm_layout;
typedef enum attn_llm_per_head { ATTN_LLM_NEVER, ATTN_LLM_FLASH_3_4 } attn_llm_per_head;

typedef struct attn_llm_name {
    const char *name;
    attn_llm_name_kind kind;
    bool mla;
    attn_llm_layout layout;
    attn_llm_per_head per_head;
    bool non_causal;
    const char *shape, *home;
} attn_llm_name;

extern const attn_llm_name attn_llm_names[ATTN_LLM_NAMES];
int attn_llm_find(const char *name); /* in any case; -1: unknown */
/* "A, B, C", all of them. Returns text. */
const char *attn_llm_join(char *text, size_t bytes);
const char *attn_llm_nearest(const char *name); /* NULL: none is near */

enum {
#define X(name, quantised, elements, scales) ATTN_KV_##name,
#include "core/llm_kv_dtypes.def"
#undef X
    ATTN_KV_DTYPES,
    ATTN_KV_NONE = -1 /* not asked about */
};

int attn_kv_find(const char *name); /* -1: unknown */
const char *attn_kv_name(int kv);   /* NULL for ATTN_KV_NONE */
int attn_kv_find_any_case(const char *name);
bool attn_kv_quantised(int kv);
/* Of the stored elements; 0: not known, as model_dtype is, or the backend's own format. */
attn_dtype attn_kv_elements(int kv, attn_dtype model_dtype);
attn_llm_scales attn_kv_scales(int kv);
const char *attn_kv_list(char *text, size_t bytes);

#endif
