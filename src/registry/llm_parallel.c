/* llm_parallel.c: whether a setting of decode context parallelism can run. */
#include "core/fail.h"

#include <inttypes.h>
#include <stdio.h>

enum {
#define QUANTITY(name, words, value) QUANTITY_##name,
#include "registry/llm_parallel.def"
#undef QUANTITY
    QUANTITIES
};

static const char *const quantity_words[] = {
#define QUANTITY(name, words, value) words,
#include "registry/llm_parallel.def"
#undef QUANTITY
};

static void measure(const attn_llm_parallel *p, int64_t *to)
{
#define QUANTITY(name, words, value) to[QUANTITY_##name] = value;
#include "registry/llm_parallel.def"
#undef QUANTITY
}

typedef enum scope { ALWAYS, DCP, HEADS } scope;
typedef enum relation_kind { DIVISIBLE_BY, ABOVE, AT_MOST, AT_LEAST } relation_kind;
static const char *const relation_words[] = {"divisible by", "above", "at most", "at least"};

static const struct limit {
    scope when;
    int left;
    relation_kind relation;
    int right;
} limits[] = {
#define LIMIT(when, left, relation, right) {when, QUANTITY_##left, relation, QUANTITY_##right},
#include "registry/llm_parallel.def"
#undef LIMIT
};

static bool holds(int64_t left, relation_kind relation, int64_t right)
{
    switch (relation) {
    case DIVISIBLE_BY:
        return left % right == 0;
    case ABOVE:
        return left > right;
    case AT_MOST:
        return left <= right;
    case AT_LEAST:
        return left >= right;
    }
    return false;
}

static bool applies(scope when, const attn_llm_parallel *p)
{
    if (when == ALWAYS) return true;
    return p->decode_context > 1 && (when == DCP || !(p->flags & ATTN_LLM_PARALLEL_MLA));
}

static attn_status check_numbers(const attn_llm_parallel *p, attn_error *error)
{
    const uint32_t known = ATTN_LLM_PARALLEL_MLA | ATTN_LLM_PARALLEL_ALL_TO_ALL;
    if (p->flags & ~known)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "attn_llm_parallel.flags is 0x%x; its bits are ATTN_LLM_PARALLEL_MLA and "
                         "ATTN_LLM_PARALLEL_ALL_TO_ALL",
                         p->flags);
    if (p->tensor_parallel < 1 || p->decode_context < 1)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "tensor_parallel is %" PRId64 " and decode_context is %" PRId64 "; both are 1 or "
                         "more ranks",
                         p->tensor_parallel, p->decode_context);
    if (p->heads < 0 || p->kv_heads < 0 || p->block_size < 0 || p->interleave < 0)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "heads is %" PRId64 ", kv_heads %" PRId64 ", block_size %" PRId64
                         " and interleave %" PRId64 "; each is 1 or more, or 0 while it is not known",
                         p->heads, p->kv_heads, p->block_size, p->interleave);
    bool split = !(p->flags & ATTN_LLM_PARALLEL_MLA) && p->heads && p->kv_heads;
    if (split && p->heads % p->kv_heads)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "heads is %" PRId64 ", which kv_heads, %" PRId64 ", does not divide; give the "
                         "model's numbers, before any split",
                         p->heads, p->kv_heads);
    return ATTN_OK;
}

attn_status attn_llm_check_parallel(const attn_llm_parallel *parallel, attn_error *error)
{
    attn_llm_parallel p;
    attn_clauses against = {.count = 0};
    int64_t value[QUANTITIES];
    char text[1024];
    size_t least = offsetof(attn_llm_parallel, heads);
    if (!parallel || !attn_copy_struct(&p, sizeof p, parallel, parallel->size, least))
        return attn_fail(error, ATTN_KIND_INVALID_STRUCT,
                         "attn_llm_parallel.size is %u; it is at least %zu, set it to "
                         "sizeof(attn_llm_parallel)",
                         parallel ? parallel->size : 0, least);
    ATTN_TRY(check_numbers(&p, error));
    measure(&p, value);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        const struct limit *l = &limits[i];
        int64_t left = value[l->left], right = value[l->right];
        if (!applies(l->when, &p) || !left || !right || holds(left, l->relation, right)) continue;
        snprintf(text, sizeof text, "%s is %" PRId64 ", not %s %s, which is %" PRId64,
                 quantity_words[l->left], left, relation_words[l->relation], quantity_words[l->right], right);
        attn_clauses_add(&against, text);
    }
    if (!against.count) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                     "this decode context parallelism cannot run: %s; a DCP size of 1 without all-to-all "
                     "merging always can",
                     attn_clauses_say(&against, text, sizeof text));
}
