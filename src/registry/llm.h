/* llm.h: the feature table of domain llm and what it says of one question. */
#ifndef ATTN_REGISTRY_LLM_H
#define ATTN_REGISTRY_LLM_H

#include "core/facts.h"

/* One question as plain numbers, and the settings that features depend on. Zeroed before it is filled and
 * compared byte by byte. */
typedef struct attn_llm_case {
    int64_t head_size;  /* 0: not known */
    int64_t block_size; /* 0: none asked for */
    uint32_t flags;     /* ATTN_LLM_FLAG bits */
    attn_dtype dtype;   /* 0: not known */
    int32_t kv;         /* ATTN_KV_* or ATTN_KV_NONE */
    int32_t attn_type;  /* attn_llm_type */
    int32_t num_heads, kv_heads;
    int32_t qk_nope_head_dim, qk_rope_head_dim, v_head_dim;
    int32_t flash_version; /* asked for: 0, 2, 3, 4 */
    int32_t trtllm;        /* 1 forced on, 0 forced off, -1 left open */
    int32_t reserved;
} attn_llm_case;

static inline bool attn_llm_has(const attn_llm_case *c, uint32_t flag)
{
    return (c->flags & flag) != 0;
}
#define ATTN_LLM_HAS(c, flag) attn_llm_has(c, ATTN_LLM_FLAG(flag))

/* What speaks against a name, in the words of llm_checks.def and in their order. */
enum { ATTN_LLM_REASONS = 16 };
typedef struct attn_llm_reasons {
    int count;
    struct {
        attn_kind kind;
        char text[160];
    } list[ATTN_LLM_REASONS];
} attn_llm_reasons;

void attn_llm_reason(attn_llm_reasons *reasons, attn_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "'a', 'b'" with quote "'", or "a, b" with "". Returns text. */
const char *attn_llm_reasons_text(const attn_llm_reasons *reasons, const char *quote, char *text,
                                  size_t bytes);

/* Runs every check of a name's rows; a name without rows passes. */
void attn_llm_check(const attn_facts *facts, const attn_llm_case *question, int name,
                    attn_llm_reasons *reasons);

/* The variant of the row that supplies a name's features: "FA3", "TRTLLM"; "" where there is one row or none.
 */
const char *attn_llm_variant(const attn_facts *facts, const attn_llm_case *question, int name);

/* The version of FlashAttention, 0: none. head_size 0 leaves out the correction that layers make. */
int32_t attn_llm_flash_version(const attn_facts *facts, const attn_llm_case *question, int64_t head_size);

/* FLASHINFER's TRTLLM kernels: on this device; and for a batch of prompts or of decoded tokens. */
bool attn_llm_trtllm_there(const attn_facts *facts, const attn_llm_case *question);
bool attn_llm_trtllm_usable(const attn_facts *facts, const attn_llm_case *question);
/* warning receives a sentence or "". */
bool attn_llm_trtllm_prefill(const attn_facts *facts, const attn_llm_case *question, bool query_fp8,
                             char *warning, size_t bytes);
bool attn_llm_trtllm_decode(const attn_facts *facts, const attn_llm_case *question);

/* The size of cache blocks that a name proposes when the user gave none. */
int64_t attn_llm_block(const attn_facts *facts, const attn_llm_case *question, int name);

#endif
