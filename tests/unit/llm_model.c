/* llm_model.c: what follows from a language model's own numbers and from its checkpoint. */
#include "support.h"

#include <stdio.h>
#include <string.h>

static void holds(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("\"%s\" does not hold \"%s\"", text, part);
}

/* ---- decode context parallelism ----------------------------------------------------------------- */

#define P(...)                                                                                               \
    {                                                                                                        \
        .size = sizeof(attn_llm_parallel), __VA_ARGS__                                                       \
    }

static void limits_of_context_parallelism(void **state)
{
    (void)state;
    enum { MLA = ATTN_LLM_PARALLEL_MLA, A2A = ATTN_LLM_PARALLEL_ALL_TO_ALL };
    static const struct {
        attn_llm_parallel p;
        int reasons;
        const char *says; /* "": it can run */
    } rows[] = {
        {P(0, 1, 1, 32, 32, 16, 1), 0, ""},
        /* Without DCP the limits of heads and blocks are not asked. */
        {P(0, 4, 1, 32, 8, 16, 64), 0, ""},
        {P(0, 8, 2, 32, 4, 16, 1), 0, ""},
        {P(0, 8, 2, 64, 4, 16, 16), 0, ""},
        {P(0, 8, 4, 64, 2, 16, 4), 0, ""},
        {P(0, 8, 3, 0, 0, 0, 0), 1,
         "the tensor-parallel size is 8, not divisible by the DCP size, which is 3"},
        {P(MLA, 8, 3, 0, 0, 0, 0), 1, "which is 3"},
        {P(0, 8, 2, 64, 8, 16, 1), 2,
         "the tensor-parallel size is 8, not above the number of KV heads, which is 8"},
        {P(0, 8, 2, 64, 8, 16, 1), 2,
         "the DCP size is 2, not at most the tensor-parallel size / KV heads, which is 1"},
        {P(0, 8, 4, 64, 4, 16, 1), 1, "the DCP size is 4, not at most"},
        {P(0, 16, 4, 24, 4, 16, 1), 1,
         "the number of query heads per KV head is 6, not divisible by the DCP size, which is 4"},
        /* MLA has no heads in its cache. */
        {P(MLA, 8, 8, 128, 3, 64, 64), 0, ""},
        {P(MLA, 8, 8, 128, 1, 16, 32), 2,
         "the block size is 16, not at least the KV interleave size, which is 32"},
        {P(MLA, 8, 8, 128, 1, 48, 32), 1, "the block size is 48, not divisible by the KV interleave size"},
        {P(A2A, 8, 1, 64, 8, 16, 1), 1,
         "the DCP size is 1, not above the bound of all-to-all merging, which is 1"},
        {P(A2A, 8, 2, 64, 4, 16, 1), 0, ""},
        {P(A2A | MLA, 6, 4, 0, 0, 0, 0), 1, "divisible by"},
        {P(0, 6, 4, 36, 4, 16, 32), 5, "; "}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        attn_error error = ATTN_ERROR_INIT;
        int reasons = 0;
        assert_int_equal(attn_llm_check_parallel(&rows[i].p, &error) != 0, rows[i].reasons > 0);
        if (!rows[i].reasons) continue;
        assert_int_equal(error.kind, ATTN_KIND_INVALID_VALUE);
        holds(error.text, rows[i].says);
        for (const char *at = error.text; (at = strstr(at, ", not ")); at += 6) reasons++;
        assert_int_equal(reasons, rows[i].reasons);
    }
}

static void parallel_settings_are_checked(void **state)
{
    (void)state;
    static const attn_llm_parallel wrong[] = {P(1u << 30, 8, 2, 0, 0, 0, 0), P(0, 0, 1, 0, 0, 0, 0),
                                              P(0, 8, 0, 0, 0, 0, 0),        P(0, 8, 2, -1, 0, 0, 0),
                                              P(0, 8, 2, 0, 0, -16, 0),      P(0, 8, 2, 30, 4, 0, 0)};
    attn_error error = ATTN_ERROR_INIT;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_not_equal(attn_llm_check_parallel(&wrong[i], &error), 0);
        assert_int_equal(error.kind, ATTN_KIND_INVALID_VALUE);
    }
    attn_llm_parallel small = {.size = 8, .tensor_parallel = 1, .decode_context = 1};
    assert_int_not_equal(attn_llm_check_parallel(&small, &error), 0);
    assert_int_equal(error.kind, ATTN_KIND_INVALID_STRUCT);
    assert_int_not_equal(attn_llm_check_parallel(NULL, &error), 0);
    /* An older, shorter struct: what it lacks is not known. */
    attn_llm_parallel old = {
        .size = offsetof(attn_llm_parallel, heads), .tensor_parallel = 8, .decode_context = 2, .heads = -1};
    assert_int_equal(attn_llm_check_parallel(&old, &error), 0);
}

/* ---- prefix language models --------------------------------------------------------------------- */

static void prefix_models(void **state)
{
    (void)state;
    static const char *const known[] = {"bagel", "gemma3", "molmo2", "paligemma", "umm"};
    static const char *const other[] = {"gemma2", "gemma3n", "Gemma3", "gemma", "llama", ""};
    size_t count = 0;
    for (; count < sizeof known / sizeof *known; count++) {
        assert_string_equal(attn_llm_prefix_family_at(count), known[count]);
        assert_int_equal(attn_llm_is_prefix_lm(known[count], -1), 1);
        /* What the model says itself counts. */
        assert_int_equal(attn_llm_is_prefix_lm(known[count], 0), 0);
    }
    assert_null(attn_llm_prefix_family_at(count));
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        assert_int_equal(attn_llm_is_prefix_lm(other[i], -1), 0);
        assert_int_equal(attn_llm_is_prefix_lm(other[i], 1), 1);
    }
    assert_int_equal(attn_llm_is_prefix_lm(NULL, -1), 0);
    assert_int_equal(attn_llm_is_prefix_lm(NULL, 1), 1);
}

/* ---- storage of the cache ----------------------------------------------------------------------- */

static const char *const skip_list[] = {"0", "17", "sliding_window"};

static void storage_of_the_cache(void **state)
{
    (void)state;
    enum { NONE = ATTN_LLM_SCALES_NONE, TENSOR = ATTN_LLM_SCALES_TENSOR, HEAD = ATTN_LLM_SCALES_TOKEN_HEAD };
    static const struct {
        const char *asked, *checkpoint;
        attn_dtype model;
        int32_t layer, window, skipped; /* layer -1: no skip list */
        const char *name;
        attn_dtype dtype;
        int32_t scales;
    } rows[] = {{NULL, NULL, ATTN_BF16, -1, 0, 0, "auto", ATTN_BF16, NONE},
                {"auto", NULL, ATTN_F16, -1, 0, 0, "auto", ATTN_F16, NONE},
                {"auto", NULL, 0, -1, 0, 0, "auto", 0, NONE},
                {"auto", "", ATTN_BF16, -1, 0, 0, "fp8", ATTN_F8E4M3, TENSOR},
                {NULL, "FP8", ATTN_BF16, -1, 0, 0, "fp8", ATTN_F8E4M3, TENSOR},
                {"auto", "fp8_e5m2", ATTN_BF16, -1, 0, 0, "fp8_e5m2", ATTN_F8E5M2, TENSOR},
                {"auto", "auto", ATTN_BF16, -1, 0, 0, "auto", ATTN_BF16, NONE},
                /* What was asked for by name goes before the checkpoint. */
                {"bfloat16", "fp8", ATTN_F16, -1, 0, 0, "bfloat16", ATTN_BF16, NONE},
                {"fp8", "NVFP4", ATTN_F16, -1, 0, 0, "fp8", ATTN_F8E4M3, TENSOR},
                {"int8_per_token_head", "fp8", ATTN_BF16, -1, 0, 0, "int8_per_token_head", ATTN_I8, HEAD},
                {"fp8_per_token_head", NULL, ATTN_BF16, -1, 0, 0, "fp8_per_token_head", ATTN_F8E4M3, HEAD},
                {"fp8_ds_mla", NULL, ATTN_BF16, -1, 0, 0, "fp8_ds_mla", 0, TENSOR},
                /* The skip list goes before everything. */
                {"fp8", NULL, ATTN_BF16, 0, 0, 1, "auto", ATTN_BF16, NONE},
                {"auto", "fp8", ATTN_BF16, 17, 0, 1, "auto", ATTN_BF16, NONE},
                {"fp8", NULL, ATTN_BF16, 3, 1, 1, "auto", ATTN_BF16, NONE},
                {"fp8", NULL, ATTN_BF16, 3, 0, 0, "fp8", ATTN_F8E4M3, TENSOR},
                {"fp8", NULL, ATTN_BF16, 1, 0, 0, "fp8", ATTN_F8E4M3, TENSOR},
                {"fp8", NULL, ATTN_BF16, 7, 0, 0, "fp8", ATTN_F8E4M3, TENSOR}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        attn_error error = ATTN_ERROR_INIT;
        attn_llm_cache_storage s = {.size = sizeof s, .scales = 77};
        attn_llm_cache_query q = {.size = sizeof q,
                                  .kv_cache_dtype = rows[i].asked,
                                  .checkpoint = rows[i].checkpoint,
                                  .model_dtype = rows[i].model,
                                  .sliding_window = rows[i].window};
        if (rows[i].layer >= 0) q.layer = rows[i].layer, q.skip = skip_list, q.skip_count = 3;
        assert_int_equal(attn_llm_cache_resolve(&q, &s, &error), 0);
        assert_string_equal(s.kv_cache_dtype, rows[i].name);
        assert_int_equal(s.dtype, rows[i].dtype);
        assert_int_equal(s.scales, rows[i].scales);
        assert_int_equal(s.skipped, rows[i].skipped);
    }
}

static void wrong_storage(void **state)
{
    (void)state;
    static const char *const entries[] = {"",        "x", "-1", "+1", "3x", " 3", "99999999999999999999",
                                          "sliding", NULL};
    attn_error error = ATTN_ERROR_INIT;
    attn_llm_cache_storage s = {.size = sizeof s};
    attn_llm_cache_query q = {.size = sizeof q, .kv_cache_dtype = "fp4"};
    assert_int_not_equal(attn_llm_cache_resolve(&q, &s, &error), 0);
    assert_int_equal(error.kind, ATTN_KIND_INVALID_KV_CACHE_DTYPE);
    holds(error.text, "kv_cache_dtype is 'fp4'");
    q.kv_cache_dtype = "auto", q.checkpoint = "NVFP4";
    assert_int_not_equal(attn_llm_cache_resolve(&q, &s, &error), 0);
    assert_int_equal(error.kind, ATTN_KIND_INVALID_KV_CACHE_DTYPE);
    holds(error.text, "checkpoint's KV scheme is 'NVFP4'");
    q.checkpoint = NULL;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        q.skip = &entries[i], q.skip_count = 1;
        assert_int_not_equal(attn_llm_cache_resolve(&q, &s, &error), 0);
        assert_int_equal(error.kind, ATTN_KIND_INVALID_VALUE);
    }
    q.skip = NULL;
    assert_int_not_equal(attn_llm_cache_resolve(&q, &s, &error), 0);
    q.skip_count = 0, q.layer = -1;
    assert_int_not_equal(attn_llm_cache_resolve(&q, &s, &error), 0);
    assert_int_equal(error.kind, ATTN_KIND_INVALID_VALUE);
    q.layer = 0;
    assert_int_equal(attn_llm_cache_resolve(&q, &s, &error), 0);
    assert_int_not_equal(attn_llm_cache_resolve(NULL, &s, &error), 0);
    assert_int_equal(error.kind, ATTN_KIND_INVALID_STRUCT);
    assert_int_not_equal(attn_llm_cache_resolve(&q, NULL, &error), 0);
    q.size = 4;
    assert_int_not_equal(attn_llm_cache_resolve(&q, &s, &error), 0);
    assert_int_equal(error.kind, ATTN_KIND_INVALID_STRUCT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits_of_context_parallelism), cmocka_unit_test(parallel_settings_are_checked),
        cmocka_unit_test(prefix_models), cmocka_unit_test(storage_of_the_cache),
        cmocka_unit_test(wrong_storage)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
