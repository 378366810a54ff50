/* llm_query.c: what a caller asks of domain llm, checked and turned into plain numbers. */
#include "policy/policy.h"

#include <inttypes.h>
#include <string.h>

static const struct number {
    const char *name;
    size_t from, to;
} numbers[] = {
#define X(field)                                                                                             \
    {                                                                                                        \
#field, offsetof(attn_llm_query, field), offsetof(attn_llm_case, field)                              \
    }
    X(num_heads), X(kv_heads), X(qk_nope_head_dim), X(qk_rope_head_dim), X(v_head_dim),
#undef X
};

static attn_status read_numbers(const attn_llm_query *q, attn_llm_case *to, attn_error *error)
{
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int32_t value;
        memcpy(&value, (const char *)q + numbers[i].from, sizeof value);
        if (value < 0)
            return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                             "%s is %d; it is 1 or more, or 0 while it is not known", numbers[i].name, value);
        memcpy((char *)to + numbers[i].to, &value, sizeof value);
    }
    return ATTN_OK;
}

static attn_status read_kv(const attn_llm_query *q, attn_llm_case *to, attn_error *error)
{
    char names[160];
    if (!q->kv_cache_dtype) return ATTN_OK;
    to->kv = attn_kv_find(q->kv_cache_dtype);
    if (to->kv >= 0) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_INVALID_KV_CACHE_DTYPE,
                     "kv_cache_dtype is '%.60s', which is no storage type; there are %s", q->kv_cache_dtype,
                     attn_kv_list(names, sizeof names));
}

static const uint32_t known_flags = 0
#define X(name, bit, text, sentence) | (uint32_t)1 << bit
    ATTN_LLM_FLAG_LIST(X)
#undef X
    ;
enum {
    TYPES = 0
#define X(name, value, text, words) +1
    ATTN_LLM_TYPE_LIST(X)
#undef X
};

attn_status attn_llm_read_query(const attn_llm_query *query, attn_llm_case *to, attn_error *error)
{
    attn_llm_query q;
    size_t least = offsetof(attn_llm_query, kv_cache_dtype);
    memset(to, 0, sizeof *to);
    to->kv = ATTN_KV_NONE;
    if (!attn_copy_struct(&q, sizeof q, query, query ? query->size : 0, least))
        return attn_fail(error, ATTN_KIND_INVALID_STRUCT,
                         "attn_llm_query.size is %u; it is at least %zu, set it to sizeof(attn_llm_query)",
                         query->size, least);
    if (q.attn_type < 0 || q.attn_type >= TYPES)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "attn_type is %d; it is a value of ATTN_LLM_TYPE_LIST", q.attn_type);
    if (q.flags & ~known_flags)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "attn_llm_query.flags is 0x%x; its bits are those of "
                         "ATTN_LLM_FLAG_LIST, 0x%x",
                         q.flags, known_flags);
    if (q.block_size < 0)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "block_size is %" PRId64 "; it is 1 or more, or 0 for none", q.block_size);
    to->flags = q.flags;
    to->attn_type = q.attn_type;
    to->block_size = q.block_size;
    ATTN_TRY(read_numbers(&q, to, error));
    return read_kv(&q, to, error);
}
