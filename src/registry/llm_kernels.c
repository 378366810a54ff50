/* llm_kernels.c: which kernels stand behind a name of domain llm: FlashAttention's version, TRTLLM, block
 * sizes. */
#include "registry/llm_table.h"

#include <stdio.h>
#include <string.h>

/* ---- FlashAttention ----------------------------------------------------------------------------- */

static const struct flash {
    int32_t version, built_from, built_to, default_from, default_to;
} flashes[] = {
#define X(version, built_from, built_to, default_from, default_to)                                           \
    {version, built_from, built_to, default_from, default_to},
#include "registry/llm_flash.def"
#undef X
};
enum { FLASHES = sizeof flashes / sizeof *flashes };

static bool built(int32_t version, int32_t major)
{
    for (int i = 0; i < FLASHES; i++)
        if (flashes[i].version == version)
            return major >= flashes[i].built_from && major <= flashes[i].built_to;
    return false;
}

/* The default of the device, and 2 where that one is not built. */
static int32_t usual(int32_t major)
{
    for (int i = 0; i < FLASHES; i++)
        if (major >= flashes[i].default_from && major <= flashes[i].default_to)
            return built(flashes[i].version, major) ? flashes[i].version : 2;
    return 2;
}

int32_t attn_llm_flash_version(const attn_facts *f, const attn_llm_case *q, int64_t head_size)
{
    if (!strcmp(f->platform, "xpu")) return 2;
    if (strcmp(f->platform, "cuda") || !f->has_capability) return 0;
    int32_t major = f->major, version = q->flash_version ? q->flash_version : usual(major);
    /* These corrections apply in this order. */
    if (version == 3 && major >= 10) version = built(4, major) ? 4 : 2;
    if (ATTN_LLM_HAS(q, ALIBI) && version > 2) version = 2;
    if (ATTN_LLM_HAS(q, BATCH_INVARIANT) && version == 4) version = 2;
    if (version == 4 && major >= 10 && head_size > 128 && head_size != 192) version = 2;
    return built(version, major) ? version : 0;
}

/* ---- TRTLLM ------------------------------------------------------------------------------------- */

/* 10.3 is left out on purpose: the kernels hung there. */
bool attn_llm_trtllm_there(const attn_facts *f, const attn_llm_case *q)
{
    return !strcmp(f->platform, "cuda") && f->has_capability && f->major == 10 && f->minor == 0 &&
           !ATTN_LLM_HAS(q, BATCH_INVARIANT);
}

/* Heads that are not known are taken to divide. */
static bool heads_divide(const attn_llm_case *q)
{
    return !q->num_heads || !q->kv_heads || q->num_heads % q->kv_heads == 0;
}

bool attn_llm_trtllm_usable(const attn_facts *f, const attn_llm_case *q)
{
    return attn_llm_trtllm_there(f, q) && q->trtllm != 0 && heads_divide(q);
}

bool attn_llm_trtllm_prefill(const attn_facts *f, const attn_llm_case *q, bool query_fp8, char *warning,
                             size_t bytes)
{
    const char *forced = q->trtllm == 1 ? "use_trtllm_attention is on, but " : NULL;
    *warning = 0;
    if (q->trtllm == 0) return false;
    if (ATTN_LLM_HAS(q, DCP)) {
        snprintf(warning, bytes,
                 "TRTLLM kernels return no log-sum-exp, so prefill under DCP runs native ones");
        return false;
    }
    if (!attn_llm_trtllm_there(f, q)) {
        if (forced)
            snprintf(warning, bytes, "%sTRTLLM kernels are not available here; native ones run", forced);
        return false;
    }
    if (!heads_divide(q)) {
        if (forced)
            snprintf(warning, bytes, "%s%d query heads do not divide over %d; native kernels run", forced,
                     q->num_heads, q->kv_heads);
        return false;
    }
    if (query_fp8 || ATTN_LLM_HAS(q, SINK) || q->trtllm == 1) return true;
    return q->kv == ATTN_KV_auto;
}

bool attn_llm_trtllm_decode(const attn_facts *f, const attn_llm_case *q)
{
    return attn_llm_trtllm_usable(f, q) && !ATTN_LLM_HAS(q, DCP);
}

/* ---- block sizes -------------------------------------------------------------------------------- */

enum { USUAL_BLOCK = 16, BLOCK_MAX = 4096 };

static const struct proposal {
    const char *platform;
    int name;
    int64_t least;
} proposals[] = {
#define PROPOSES(platform, name, least) {platform, ATTN_LLM_NAME_##name, least},
#define HYBRID(name, sizes)
#include "registry/llm_blocks.def"
#undef PROPOSES
#undef HYBRID
};

static const struct hybrid {
    int name;
    const char *sizes;
} hybrids[] = {
#define PROPOSES(platform, name, least)
#define HYBRID(name, sizes) {ATTN_LLM_NAME_##name, sizes},
#include "registry/llm_blocks.def"
#undef PROPOSES
#undef HYBRID
};

/* Blocks that a name's kernels take; "any" for a name without rows. */
static const char *sizes_of(int name, bool float32_state)
{
    const attn_llm_row *row = attn_llm_first_row(name);
    for (size_t i = 0; float32_state && i < sizeof hybrids / sizeof *hybrids; i++)
        if (hybrids[i].name == name) return hybrids[i].sizes;
    return row ? row->block_sizes : "any";
}

static bool all_accept(const char *const *sizes, size_t count, int64_t block)
{
    for (size_t i = 0; i < count; i++)
        if (!attn_llm_block_accepted(sizes[i], block)) return false;
    return true;
}

/* The smallest size that all take; 0: none. */
static int64_t smallest(const char *const *sizes, size_t count)
{
    for (int64_t block = 1; block <= BLOCK_MAX; block++)
        if (all_accept(sizes, count, block)) return block;
    return 0;
}

/* The usual size when all take it, else the smallest. */
static int64_t common(const char *const *sizes, size_t count)
{
    return all_accept(sizes, count, USUAL_BLOCK) ? USUAL_BLOCK : smallest(sizes, count);
}

int64_t attn_llm_block(const attn_facts *f, const attn_llm_case *q, int name)
{
    const char *sizes = sizes_of(name, ATTN_LLM_HAS(q, FLOAT32_STATE));
    int64_t block = common(&sizes, 1);
    for (size_t i = 0; i < sizeof proposals / sizeof *proposals; i++) {
        const struct proposal *p = &proposals[i];
        bool here = !strcmp(p->platform, "*") || !strcmp(p->platform, f->platform);
        if (here && p->name == name && block < p->least) block = p->least;
    }
    return block;
}

/* ---- several backends of one model -------------------------------------------------------------- */

enum { GROUP_MAX = 64 };

static attn_status read_group(const char *const *backends, size_t count, uint32_t flags, const char **sizes,
                              attn_error *error)
{
    if (!backends || !count || count > GROUP_MAX)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "%zu backends were given; a model has 1 to %d",
                         count, GROUP_MAX);
    for (size_t i = 0; i < count; i++) {
        int name = backends[i] ? attn_llm_find(backends[i]) : -1;
        if (name < 0)
            return attn_fail(error, ATTN_KIND_UNKNOWN_BACKEND,
                             "'%.60s' is no backend of domain llm; see `attn list --domain llm`",
                             backends[i] ? backends[i] : "(null)");
        sizes[i] = sizes_of(name, flags & ATTN_LLM_FLAG(FLOAT32_STATE));
    }
    return ATTN_OK;
}

static attn_status fail_common(size_t count, attn_error *error)
{
    return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                     "no common block size up to %d for the %zu backends; name others", BLOCK_MAX, count);
}

attn_status attn_llm_propose_block(const char *const *backends, size_t count, uint32_t flags, int64_t *block,
                                   attn_error *error)
{
    const char *sizes[GROUP_MAX];
    ATTN_TRY(read_group(backends, count, flags, sizes, error));
    *block = common(sizes, count);
    return *block ? ATTN_OK : fail_common(count, error);
}

static bool all_exact(const char *const *sizes, size_t count, int64_t block)
{
    for (size_t i = 0; i < count; i++)
        if (!attn_llm_block_exact(sizes[i], block)) return false;
    return true;
}

/* The largest number of a list that divides the cache's blocks, is larger than `best`, and that all take. */
static int64_t larger(const char *list, int64_t cache_block, const char *const *sizes, size_t count,
                      int64_t best)
{
    for (int64_t size = best + 1; size < cache_block && size <= BLOCK_MAX; size++)
        if (cache_block % size == 0 && strcmp(list, "any") && strncmp(list, "multiple", 8) &&
            attn_llm_block_exact(list, size) && all_exact(sizes, count, size))
            best = size;
    return best;
}

attn_status attn_llm_kernel_block(const char *const *backends, size_t count, uint32_t flags,
                                  int64_t cache_block, int64_t *block, attn_error *error)
{
    const char *sizes[GROUP_MAX];
    ATTN_TRY(read_group(backends, count, flags, sizes, error));
    if (cache_block < 1 || cache_block > INT32_MAX)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "cache_block is %lld; it is 1 or more tokens",
                         (long long)cache_block);
    *block = all_exact(sizes, count, cache_block) ? cache_block : 0;
    if (!*block) {
        int64_t best = 0;
        for (size_t j = 0; j < count; j++) best = larger(sizes[j], cache_block, sizes, count, best);
        *block = best;
    }
    return *block ? ATTN_OK
                  : attn_fail(
                        error, ATTN_KIND_INVALID_VALUE,
                        "no common block size: none that the %zu backends list divides cache blocks of %lld "
                        "tokens",
                        count, (long long)cache_block);
}

/* ---- hybrid models ------------------------------------------------------------------------------ */

static attn_status check_pages(int64_t cache_block, int64_t token_bytes, int64_t state_bytes,
                               attn_error *error)
{
    if (cache_block < 0 || cache_block > INT32_MAX)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "cache_block is %lld; it is 1 or more tokens, or 0 for the proposed size",
                         (long long)cache_block);
    if (token_bytes < 1 || state_bytes < 1)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "token_bytes is %lld and state_bytes is %lld; both are 1 or more",
                         (long long)token_bytes, (long long)state_bytes);
    return ATTN_OK;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

attn_status attn_llm_hybrid_block(const char *const *backends, size_t count, uint32_t flags,
                                  int64_t cache_block, int64_t token_bytes, int64_t state_bytes,
                                  int64_t *block, attn_error *error)
{
    const char *sizes[GROUP_MAX];
    ATTN_TRY(read_group(backends, count, flags, sizes, error));
    ATTN_TRY(check_pages(cache_block, token_bytes, state_bytes, error));
    int64_t least = smallest(sizes, count);
    if (!least) return fail_common(count, error);
    if (!cache_block) cache_block = common(sizes, count);
    int64_t step = cache_block > least ? cache_block : least;
    if (!all_accept(sizes, count, step))
        return attn_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "cache_block is %lld, which not all of the %zu backends take; the smallest that they "
            "take is %lld",
            (long long)cache_block, count, (long long)least);
    int64_t steps = divide_up(divide_up(state_bytes, token_bytes), step);
    if (steps > INT32_MAX / step)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "a page of state of %lld bytes needs more than %d tokens of %lld bytes in a block; "
                         "make the state smaller",
                         (long long)state_bytes, INT32_MAX, (long long)token_bytes);
    *block = steps * step;
    return ATTN_OK;
}

/* ---- chunked prefill ---------------------------------------------------------------------------- */

attn_status attn_llm_prefill_workspace(int64_t wanted, int64_t max_sequences, int64_t block_size,
                                       int64_t *tokens, attn_error *error)
{
    if (wanted < 0)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "wanted is %lld; it is 1 or more tokens, or 0 for as much as the bound allows",
                         (long long)wanted);
    if (max_sequences < 1 || block_size < 1 || max_sequences > INT32_MAX || block_size > INT32_MAX)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "max_sequences is %lld and block_size is %lld; both are 1 to %d",
                         (long long)max_sequences, (long long)block_size, INT32_MAX);
    int64_t least = max_sequences * block_size;
    int64_t most = wanted && wanted < ATTN_LLM_PREFILL_TOKENS ? wanted : ATTN_LLM_PREFILL_TOKENS;
    *tokens = most > least ? most : least;
    return ATTN_OK;
}
