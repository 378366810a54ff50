/* llm.c: the rule of domain llm beyond the vectors: what follows from a choice, messages, warnings, live
 * layers. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- asking ------------------------------------------------------------------------------------- */

typedef struct heard {
    char warnings[1024], debugs[4096], infos[4096]; /* debugs: all below warnings */
    int selections;
} heard;

static void hear(void *user, int32_t level, const char *text)
{
    heard *h = user;
    char *place = level >= ATTN_LOG_WARNING ? h->warnings : h->debugs;
    size_t bytes = level >= ATTN_LOG_WARNING ? sizeof h->warnings : sizeof h->debugs, used = strlen(place);
    snprintf(place + used, bytes - used, "%s\n", text);
    used = strlen(h->infos);
    if (level == ATTN_LOG_INFO) snprintf(h->infos + used, sizeof h->infos - used, "%s\n", text);
    h->selections += strstr(text, "backend") && level == ATTN_LOG_INFO;
}

typedef struct asked {
    attn_kind kind;
    char backend[64], error[2048];
    attn_resolution r;
    heard log;
} asked;

/* facts as JSON; options "name", "value", ... */
static asked ask(const char *facts_json, const char *const *words, attn_llm_query llm, int64_t head_size,
                 attn_dtype dtype)
{
    asked a = {.r = {.size = sizeof a.r}};
    attn_config *config = NULL;
    attn_facts *facts = NULL;
    attn_context *context = NULL;
    attn_error error = ATTN_ERROR_INIT;
    attn_status status = attn_facts_parse(facts_json, &facts, &error);
    if (!status) status = attn_config_new(&config, &error);
    for (; !status && words && *words; words += 2)
        status = attn_config_set_option(config, words[0], words[1], &error);
    attn_options o = {.size = sizeof o,
                      .flags = ATTN_OPEN_IGNORE_ENV,
                      .module_path = "",
                      .settings = config,
                      .facts = facts,
                      .log = hear,
                      .log_user = &a.log};
    if (!status) status = attn_open(&o, &context, &error);
    llm.size = sizeof llm;
    attn_query q = {
        .size = sizeof q, .domain = ATTN_DOMAIN_LLM, .llm = &llm, .head_size = head_size, .dtype = dtype};
    if (!status) status = attn_resolve(context, &q, &a.r, NULL, NULL, &error);
    if (!status) snprintf(a.backend, sizeof a.backend, "%s", a.r.backend);
    a.kind = error.kind;
    snprintf(a.error, sizeof a.error, "%s", error.text);
    attn_close(context);
    attn_config_free(config);
    attn_facts_free(facts);
    return a;
}
#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define QUERY(...) ((attn_llm_query){__VA_ARGS__})
#define CUDA(cc)   "{\"platform\": \"cuda\", \"compute_capability\": \"" cc "\"}"
#define MLA        ATTN_LLM_FLAG(MLA)

static void holds(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("\"%s\" does not hold \"%s\"", text, part);
}

/* ---- FlashAttention's version ------------------------------------------------------------------- */

static void flash_versions(void **state)
{
    (void)state;
    static const struct {
        const char *cc;
        int32_t version[4]; /* nothing asked, 2, 3, 4; 0: none */
        int32_t wide;       /* nothing asked, head size 256 */
    } rows[] = {{"7.5", {0, 0, 0, 0}, 0},  {"8.0", {2, 2, 0, 0}, 2},  {"8.9", {2, 2, 0, 0}, 2},
                {"9.0", {3, 2, 3, 4}, 3},  {"10.0", {4, 2, 4, 4}, 2}, {"10.3", {4, 2, 4, 4}, 2},
                {"11.0", {4, 2, 4, 4}, 2}, {"12.0", {2, 2, 2, 0}, 2}};
    static const char *const asked_for[] = {"null", "2", "3", "4"};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char facts[96];
        snprintf(facts, sizeof facts, "{\"platform\": \"cuda\", \"compute_capability\": \"%s\"}", rows[i].cc);
        for (int v = 0; v < 4; v++) {
            /* FLASH_ATTN_DIFFKV runs on every capability, so its version can be seen on all. */
            const char *const *words =
                WORDS("attention-backend", "FLASH_ATTN_DIFFKV", "ac.flash_attn_version", asked_for[v]);
            assert_int_equal(ask(facts, words, QUERY(0), 128, ATTN_BF16).r.flash_attn_version,
                             rows[i].version[v]);
        }
        const char *const *plain = WORDS("attention-backend", "FLASH_ATTN_DIFFKV");
        assert_int_equal(ask(facts, plain, QUERY(0), 256, ATTN_BF16).r.flash_attn_version, rows[i].wide);
        attn_llm_query alibi = {.flags = ATTN_LLM_FLAG(ALIBI)};
        int32_t least = rows[i].version[0] > 2 ? 2 : rows[i].version[0];
        assert_int_equal(ask(facts, plain, alibi, 128, ATTN_BF16).r.flash_attn_version, least);
    }
    /* 192 is spared by the correction for wide heads, and batch invariance takes version 4 away. */
    const char *const *plain = WORDS("attention-backend", "FLASH_ATTN_DIFFKV");
    assert_int_equal(ask(CUDA("10.0"), plain, QUERY(0), 192, ATTN_BF16).r.flash_attn_version, 4);
    attn_llm_query steady = {.flags = ATTN_LLM_FLAG(BATCH_INVARIANT)};
    assert_int_equal(ask(CUDA("10.0"), plain, steady, 128, ATTN_BF16).r.flash_attn_version, 2);
    assert_int_equal(ask(CUDA("9.0"), plain, steady, 128, ATTN_BF16).r.flash_attn_version, 3);
    assert_int_equal(ask("{\"platform\": \"xpu\"}", NULL, QUERY(0), 128, ATTN_BF16).r.flash_attn_version, 2);
}

static void the_variant_follows_the_version(void **state)
{
    (void)state;
    assert_string_equal(ask(CUDA("9.0"), NULL, QUERY(0), 128, ATTN_BF16).r.variant, "FA3");
    assert_string_equal(
        ask(CUDA("9.0"), WORDS("ac.flash_attn_version", "2"), QUERY(0), 128, ATTN_BF16).r.variant, "FA2");
    assert_string_equal(ask(CUDA("10.0"), NULL, QUERY(0), 128, ATTN_BF16).r.variant, "TRTLLM");
    assert_string_equal(
        ask(CUDA("10.0"), WORDS("ac.use_trtllm_attention", "0"), QUERY(0), 128, ATTN_BF16).r.variant,
        "Native");
}

/* ---- block sizes and layouts -------------------------------------------------------------------- */

static void proposed_blocks(void **state)
{
    (void)state;
    static const struct {
        const char *facts, *backend;
        int64_t head, block;
        uint32_t flags;
    } rows[] = {
        {CUDA("9.0"), "FLASH_ATTN", 128, 16, 0},
        {CUDA("9.0"), "FLASHMLA", 576, 64, MLA},
        {CUDA("9.0"), "FLASHMLA_SPARSE", 576, 64, MLA | ATTN_LLM_FLAG(SPARSE)},
        {CUDA("10.0"), "FLASHINFER", 128, 16, 0},
        {CUDA("10.0"), "FLASHINFER_MLA", 576, 32, MLA},
        {CUDA("10.0"), "FLASHINFER_MLA_SPARSE", 576, 32, MLA | ATTN_LLM_FLAG(SPARSE)},
        {CUDA("10.0"), "CUTLASS_MLA", 576, 128, MLA},
        {"{\"platform\": \"rocm\", \"compute_capability\": \"9.4\"}", "ROCM_AITER_UNIFIED_ATTN", 128, 64, 0},
        {"{\"platform\": \"rocm\", \"compute_capability\": \"9.4\"}", "ROCM_AITER_MLA", 576, 16, MLA},
        {"{\"platform\": \"xpu\"}", "FLASH_ATTN", 128, 64, 0},
        {"{\"platform\": \"xpu\"}", "TRITON_ATTN", 128, 16, 0},
        {"{\"platform\": \"cpu\"}", "CPU_ATTN", 128, 128, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        asked a = ask(rows[i].facts, WORDS("attention-backend", rows[i].backend),
                      QUERY(.flags = rows[i].flags), rows[i].head, ATTN_BF16);
        assert_string_equal(a.backend, rows[i].backend);
        assert_int_equal(a.r.block_size, rows[i].block);
    }
    /* What the user gave stays. */
    assert_int_equal(ask(CUDA("9.0"), NULL, QUERY(.block_size = 256), 128, ATTN_BF16).r.block_size, 256);
}

static void layouts(void **state)
{
    (void)state;
    assert_string_equal(ask(CUDA("9.0"), NULL, QUERY(0), 128, ATTN_BF16).r.kv_layout, "NHD");
    assert_string_equal(ask(CUDA("10.0"), NULL, QUERY(0), 128, ATTN_BF16).r.kv_layout, "HND");
    assert_string_equal(
        ask(CUDA("9.0"), WORDS("attention-backend", "FLASHINFER"), QUERY(0), 128, ATTN_BF16).r.kv_layout,
        "NHD");
    assert_string_equal(ask(CUDA("10.0"), NULL, QUERY(.flags = MLA), 576, ATTN_BF16).r.kv_layout, "HND");
    assert_string_equal(ask("{\"platform\": \"xpu\"}", NULL, QUERY(0), 128, ATTN_BF16).r.kv_layout, "NHD");
}

static void blocks_of_several(void **state)
{
    (void)state;
    int64_t block = 0;
    attn_error error = ATTN_ERROR_INIT;
    const char *const pair[] = {"FLASHINFER_MLA", "FLASHMLA"};
    assert_int_equal(attn_llm_propose_block(pair, 2, 0, &block, &error), 0);
    assert_int_equal(block, 64);
    const char *const plain[] = {"FLASH_ATTN", "FLEX_ATTENTION"};
    assert_int_equal(attn_llm_propose_block(plain, 2, 0, &block, &error), 0);
    assert_int_equal(block, 16);
    /* A cache block that is a kernel size of all stays. */
    assert_int_equal(attn_llm_kernel_block(plain, 2, 0, 48, &block, &error), 0);
    assert_int_equal(block, 48);
    /* Else the largest listed one that divides it and that all take. */
    const char *const two[] = {"FLASHINFER", "TRITON_ATTN"};
    assert_int_equal(attn_llm_kernel_block(two, 2, 0, 128, &block, &error), 0);
    assert_int_equal(block, 64);
    assert_int_equal(attn_llm_kernel_block(two, 2, 0, 48, &block, &error), 0);
    assert_int_equal(block, 16);
    /* A float32 state turns FLASH_ATTN's multiples into a list. */
    assert_int_equal(attn_llm_kernel_block(plain, 1, ATTN_LLM_FLAG(FLOAT32_STATE), 192, &block, &error), 0);
    assert_int_equal(block, 64);
    assert_int_equal(attn_llm_kernel_block(plain, 1, 0, 192, &block, &error), 0);
    assert_int_equal(block, 192);
    const char *const odd[] = {"CUTLASS_MLA", "FLASHMLA"};
    assert_int_not_equal(attn_llm_kernel_block(odd, 2, 0, 128, &block, &error), 0);
    holds(error.text, "no common block size");
    const char *const wrong[] = {"FLASH"};
    assert_int_not_equal(attn_llm_propose_block(wrong, 1, 0, &block, &error), 0);
    assert_int_equal(error.kind, ATTN_KIND_UNKNOWN_BACKEND);
    assert_int_not_equal(attn_llm_propose_block(wrong, 0, 0, &block, &error), 0);
}

/* The block with which a page of attention holds a page of state, by the definition: the first multiple. */
static void blocks_of_hybrid_models(void **state)
{
    (void)state;
    static const struct {
        const char *backend;
        int64_t cache_block, token_bytes, state_bytes, block;
        uint32_t flags;
    } rows[] = {{"FLASH_ATTN", 0, 4096, 65536, 16, 0},
                {"FLASH_ATTN", 0, 4096, 65537, 32, 0},
                {"FLASH_ATTN", 16, 1024, 1638400, 1600, 0},
                {"FLASH_ATTN", 48, 4096, 4096 * 49, 96, 0},
                {"FLASH_ATTN", 256, 4096, 1, 256, 0},
                {"FLASHINFER_MLA", 16, 1000, 32001, 64, 0},
                {"CUTLASS_MLA", 0, 1152, 1152 * 129, 256, 0},
                {"FLEX_ATTENTION", 10, 7, 700, 100, 0},
                {"FLASH_ATTN", 32, 8, 264, 64, ATTN_LLM_FLAG(FLOAT32_STATE)}};
    attn_error error = ATTN_ERROR_INIT;
    int64_t block = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(attn_llm_hybrid_block(&rows[i].backend, 1, rows[i].flags, rows[i].cache_block,
                                               rows[i].token_bytes, rows[i].state_bytes, &block, &error),
                         0);
        assert_int_equal(block, rows[i].block);
        assert_true(block * rows[i].token_bytes >= rows[i].state_bytes);
    }
    const char *const pair[] = {"FLASHINFER_MLA", "FLASHMLA"};
    assert_int_equal(attn_llm_hybrid_block(pair, 2, 0, 0, 100, 6401, &block, &error), 0);
    assert_int_equal(block, 128);
    assert_int_not_equal(attn_llm_hybrid_block(pair, 2, 0, 96, 100, 6401, &block, &error), 0);
    holds(error.text, "cache_block is 96");
    assert_int_not_equal(attn_llm_hybrid_block(pair, 2, 0, 0, 0, 1, &block, &error), 0);
    holds(error.text, "token_bytes is 0");
    assert_int_not_equal(attn_llm_hybrid_block(pair, 2, 0, 0, 1, INT64_MAX, &block, &error), 0);
    holds(error.text, "make the state smaller");
}

static void prefill_workspace(void **state)
{
    (void)state;
    static const struct {
        int64_t wanted, sequences, block, tokens;
    } rows[] = {{0, 256, 64, 65536},
                {8192, 64, 64, 8192},
                {8192, 256, 64, 16384},
                {1048576, 256, 64, 65536},
                {1048576, 1024, 128, 131072},
                {65536, 1024, 64, 65536},
                {1, 1, 1, 1}};
    attn_error error = ATTN_ERROR_INIT;
    int64_t tokens = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(
            attn_llm_prefill_workspace(rows[i].wanted, rows[i].sequences, rows[i].block, &tokens, &error), 0);
        assert_int_equal(tokens, rows[i].tokens);
    }
    assert_int_not_equal(attn_llm_prefill_workspace(-1, 1, 1, &tokens, &error), 0);
    assert_int_not_equal(attn_llm_prefill_workspace(0, 0, 1, &tokens, &error), 0);
    holds(error.text, "max_sequences is 0");
}

/* ---- TRTLLM ------------------------------------------------------------------------------------- */

static void trtllm_by_batch(void **state)
{
    (void)state;
    const char *const *off = WORDS("ac.use_trtllm_attention", "0"), *const *on =
                                                                        WORDS("ac.use_trtllm_attention", "1");
    attn_llm_query plain = {.kv_cache_dtype = "auto", .num_heads = 32, .kv_heads = 8}, half = plain,
                   fp8 = plain, odd = plain, dcp = plain;
    half.kv_cache_dtype = "bfloat16";
    fp8.kv_cache_dtype = "fp8";
    odd.kv_heads = 5;
    dcp.flags = ATTN_LLM_FLAG(DCP);
    const struct {
        const char *facts;
        const char *const *words;
        attn_llm_query q;
        int prefill, decode;
    } rows[] = {{CUDA("10.0"), NULL, plain, 1, 1}, {CUDA("10.0"), NULL, half, 0, 1},
                {CUDA("10.0"), NULL, fp8, 1, 1},   {CUDA("10.0"), on, half, 1, 1},
                {CUDA("10.0"), off, plain, 0, 0},  {CUDA("10.0"), NULL, odd, 0, 0},
                {CUDA("10.0"), NULL, dcp, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        asked a = ask(rows[i].facts, rows[i].words, rows[i].q, 128, ATTN_BF16);
        assert_string_equal(a.backend, "FLASHINFER");
        assert_int_equal(a.r.trtllm_prefill, rows[i].prefill);
        assert_int_equal(a.r.trtllm_decode, rows[i].decode);
    }
    assert_int_equal(ask(CUDA("10.0"), NULL, fp8, 128, ATTN_BF16).r.query_fp8, 1);
    assert_int_equal(
        ask(CUDA("10.0"), WORDS("ac.disable_flashinfer_q_quantization", "1"), fp8, 128, ATTN_BF16)
            .r.query_fp8,
        0);
    holds(ask(CUDA("9.0"), WORDS("attention-backend", "FLASHINFER", "ac.use_trtllm_attention", "1"), plain,
              128, ATTN_BF16)
              .log.warnings,
          "TRTLLM");
}

/* ---- MLA prefill -------------------------------------------------------------------------------- */

static void mla_prefill(void **state)
{
    (void)state;
    attn_llm_query r1 = {.flags = MLA, .qk_nope_head_dim = 128, .qk_rope_head_dim = 64, .v_head_dim = 128},
                   other = r1;
    other.v_head_dim = 256;
    const struct {
        const char *facts;
        const char *const *words;
        attn_llm_query q;
        const char *prefill;
        int pads;
    } rows[] = {
        {CUDA("10.0"), NULL, r1, "TRT-LLM Ragged", 0},
        {CUDA("10.3"), NULL, r1, "TRT-LLM Ragged", 0},
        {CUDA("10.0"), NULL, other, "FlashAttention", 0},
        {CUDA("10.0"), WORDS("ac.use_trtllm_ragged_deepseek_prefill", "0"), r1, "FlashAttention", 0},
        {CUDA("10.0"), WORDS("ac.disable_flashinfer_prefill", "0"), r1, "FlashInfer", 0},
        {CUDA("10.0"),
         WORDS("ac.disable_flashinfer_prefill", "0", "ac.use_trtllm_ragged_deepseek_prefill", "1"), r1,
         "TRT-LLM Ragged", 0},
        {CUDA("10.0"), WORDS("ac.use_cudnn_prefill", "1"), r1, "cuDNN", 0},
        {CUDA("10.0"), WORDS("ac.use_cudnn_prefill", "1", "ac.disable_flashinfer_prefill", "0"), r1, "cuDNN",
         0},
        {CUDA("10.0"), WORDS("ac.use_cudnn_prefill", "1"), other, "cuDNN", 0},
        {CUDA("9.0"), NULL, r1, "FlashAttention", 0},
        {CUDA("9.0"), WORDS("ac.flash_attn_version", "2"), r1, "FlashAttention", 1},
        {CUDA("9.0"), WORDS("ac.use_cudnn_prefill", "1"), r1, "FlashAttention", 0},
        {CUDA("8.0"), NULL, r1, "FlashAttention", 1},
        {"{\"platform\": \"cuda\", \"compute_capability\": \"10.0\", \"missing\": [\"FLASHINFER\"]}", NULL,
         r1, "FlashAttention", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        asked a = ask(rows[i].facts, rows[i].words, rows[i].q, 576, ATTN_BF16);
        assert_int_equal(a.kind, 0);
        assert_string_equal(a.r.mla_prefill, rows[i].prefill);
        assert_int_equal(a.r.pads_value, rows[i].pads);
    }
    asked none =
        ask("{\"platform\": \"rocm\", \"compute_capability\": \"9.4\", \"missing\": [\"FLASH_ATTN\"]}", NULL,
            r1, 576, ATTN_BF16);
    assert_null(none.r.mla_prefill);
    holds(none.log.warnings, "ROCM_AITER_MLA");
}

static void fp8_prefill_queries(void **state)
{
    (void)state;
    attn_llm_query q = {.flags = MLA,
                        .kv_cache_dtype = "fp8",
                        .qk_nope_head_dim = 128,
                        .qk_rope_head_dim = 64,
                        .v_head_dim = 128};
    const char *const *words = WORDS("ac.use_prefill_query_quantization", "1");
    assert_int_equal(ask(CUDA("10.0"), words, q, 576, ATTN_BF16).r.query_fp8, 1);
    q.kv_cache_dtype = "auto";
    asked a = ask(CUDA("10.0"), words, q, 576, ATTN_BF16);
    assert_int_equal(a.r.query_fp8, 0);
    holds(a.log.warnings, "use_prefill_query_quantization is ignored");
}

/* ---- the sparse pair, messages, warnings --------------------------------------------------------- */

static void order_of_the_sparse_pair(void **state)
{
    (void)state;
    static const struct {
        const char *kv;
        int32_t heads;
        const char *first;
    } rows[] = {{"auto", 16, "FLASHINFER_MLA_SPARSE"},
                {"auto", 17, "FLASHMLA_SPARSE"},
                {"auto", 0, "FLASHMLA_SPARSE"},
                {NULL, 17, "FLASHMLA_SPARSE"},
                {"fp8", 128, "FLASHINFER_MLA_SPARSE"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        attn_llm_query q = {
            .flags = MLA | ATTN_LLM_FLAG(SPARSE), .kv_cache_dtype = rows[i].kv, .num_heads = rows[i].heads};
        assert_string_equal(ask(CUDA("10.0"), NULL, q, 576, ATTN_BF16).backend, rows[i].first);
    }
}

static void messages(void **state)
{
    (void)state;
    asked named =
        ask(CUDA("8.0"), WORDS("attention-backend", "FLASHMLA"), QUERY(.flags = MLA), 576, ATTN_BF16);
    assert_int_equal(named.kind, ATTN_KIND_SELECTED_BACKEND_INVALID);
    assert_memory_equal(named.error, "FLASHMLA", 8);
    holds(named.error, "is not valid for this configuration");
    holds(named.error, "Reason: ['compute capability not supported']");
    asked all = ask(CUDA("8.0"), NULL, QUERY(.flags = MLA | ATTN_LLM_FLAG(SPARSE), .kv_cache_dtype = "fp8"),
                    576, ATTN_BF16);
    assert_int_equal(all.kind, ATTN_KIND_NO_VALID_BACKEND);
    holds(all.error, "for cuda with (head_size=576, dtype=bf16, kv_cache_dtype=fp8, block_size=none");
    holds(all.error, "use_sparse=true");
    holds(all.error,
          "Reasons: {FLASH_ATTN_MLA: [kv_cache_dtype not supported, sparse not supported, compute capability "
          "not supported], FLASHMLA: [sparse not supported, compute capability not supported], ");
    assert_int_equal(all.error[strlen(all.error) - 1], '}');
    asked slot = ask(CUDA("9.0"), WORDS("attention-backend", "CUSTOM"), QUERY(0), 128, ATTN_BF16);
    assert_int_equal(slot.kind, ATTN_KIND_BACKEND_NOT_REGISTERED);
    holds(slot.error, "must be registered first");
    asked none = ask(CUDA("9.0"), WORDS("attention-backend", "NO_ATTENTION"), QUERY(0), 128, ATTN_BF16);
    assert_int_equal(none.kind, ATTN_KIND_SELECTED_BACKEND_INVALID);
    holds(none.error, "Reason: ['ImportError']");
}

/* An older struct of errors gets as much as fits. */
static void a_small_error_is_cut(void **state)
{
    (void)state;
    attn_facts *facts = NULL;
    attn_context *context = NULL;
    attn_error error = {.size = 16 + 512};
    memset(error.text, 'x', sizeof error.text);
    assert_int_equal(attn_facts_parse(CUDA("8.0"), &facts, NULL), 0);
    attn_options o = {.size = sizeof o, .flags = ATTN_OPEN_IGNORE_ENV, .module_path = "", .facts = facts};
    assert_int_equal(attn_open(&o, &context, NULL), 0);
    attn_llm_query llm = {.size = sizeof llm, .flags = MLA | ATTN_LLM_FLAG(SPARSE)};
    attn_query q = {.size = sizeof q, .domain = ATTN_DOMAIN_LLM, .llm = &llm, .head_size = 576};
    attn_resolution r = {.size = sizeof r};
    assert_int_not_equal(attn_resolve(context, &q, &r, NULL, NULL, &error), 0);
    assert_true(strlen(error.text) < 512);
    assert_int_equal(error.text[512], 'x');
    attn_close(context);
    attn_facts_free(facts);
}

static void a_block_size_that_costs_a_better_one(void **state)
{
    (void)state;
    asked a = ask(CUDA("9.0"), NULL, QUERY(.block_size = 8), 128, ATTN_BF16);
    assert_string_equal(a.backend, "FLEX_ATTENTION");
    holds(a.log.warnings, "block size 8");
    holds(a.log.warnings, "FLASH_ATTN, FLASHINFER, TRITON_ATTN");
    holds(a.log.warnings, "FLEX_ATTENTION");
    holds(a.log.debugs, "rejected: {FLASH_ATTN: [block_size not supported]");
    asked fine = ask(CUDA("9.0"), NULL, QUERY(.block_size = 32), 128, ATTN_BF16);
    assert_string_equal(fine.log.warnings, "");
}

/* ROCm tells what was passed over where CUDA leaves it to those who ask for details. */
static void rocm_tells_what_it_overrides(void **state)
{
    (void)state;
    const char *rocm = "{\"platform\": \"rocm\", \"compute_capability\": \"9.4\"}";
    asked a = ask(rocm, NULL, QUERY(.flags = ATTN_LLM_FLAG(SINK)), 128, ATTN_BF16);
    assert_string_equal(a.backend, "TRITON_ATTN");
    holds(a.log.infos, "rejected: {ROCM_ATTN: [attention sinks not supported]}; overridden by TRITON_ATTN\n");
    asked plain = ask(rocm, NULL, QUERY(0), 128, ATTN_BF16);
    assert_string_equal(plain.backend, "ROCM_ATTN");
    assert_null(strstr(plain.log.infos, "overridden"));
    asked cuda = ask(CUDA("8.0"), NULL, QUERY(.flags = ATTN_LLM_FLAG(SINK)), 128, ATTN_BF16);
    assert_string_equal(cuda.backend, "TRITON_ATTN");
    holds(cuda.log.debugs, "rejected: {FLASH_ATTN: [attention sinks not supported]");
    assert_null(strstr(cuda.log.infos, "rejected"));
}

static void cpu_as_described(void **state)
{
    (void)state;
    const char *cpu = "{\"platform\": \"cpu\"}";
    asked ignored = ask(cpu, WORDS("attention-backend", "FLASH_ATTN"), QUERY(0), 100, ATTN_BF16);
    assert_string_equal(ignored.backend, "CPU_ATTN");
    assert_int_equal(ignored.r.explicit_choice, 0);
    holds(ignored.log.warnings, "FLASH_ATTN");
    asked odd = ask(cpu, NULL, QUERY(.block_size = 48), 128, ATTN_BF16);
    assert_int_equal(odd.r.block_size, 48);
    holds(odd.log.warnings, "block size 48");
    asked quantised = ask(cpu, NULL, QUERY(.kv_cache_dtype = "fp8"), 128, ATTN_BF16);
    assert_string_equal(quantised.r.kv_cache_dtype, "auto");
    holds(quantised.log.warnings, "fp8");
    attn_llm_query chunked = {.kv_cache_dtype = "fp8", .flags = ATTN_LLM_FLAG(CHUNKED_PREFILL)};
    assert_int_not_equal(ask(cpu, NULL, chunked, 128, ATTN_BF16).kind, 0);
    attn_llm_query cached = {.kv_cache_dtype = "fp8", .flags = ATTN_LLM_FLAG(PREFIX_CACHING)};
    assert_int_not_equal(ask(cpu, NULL, cached, 128, ATTN_BF16).kind, 0);
}

static void xpu_as_described(void **state)
{
    (void)state;
    asked a = ask("{\"platform\": \"xpu\"}", WORDS("attention-backend", "FLEX_ATTENTION"), QUERY(0), 128,
                  ATTN_BF16);
    assert_int_equal(a.kind, ATTN_KIND_BACKEND_NOT_AVAILABLE_ON_PLATFORM);
    holds(a.error, "FLEX_ATTENTION");
}

static void questions_are_checked(void **state)
{
    (void)state;
    assert_int_equal(ask(CUDA("9.0"), NULL, QUERY(.attn_type = 4), 128, ATTN_BF16).kind,
                     ATTN_KIND_INVALID_VALUE);
    assert_int_equal(ask(CUDA("9.0"), NULL, QUERY(.flags = 1u << 30), 128, ATTN_BF16).kind,
                     ATTN_KIND_INVALID_VALUE);
    assert_int_equal(ask(CUDA("9.0"), NULL, QUERY(.block_size = -1), 128, ATTN_BF16).kind,
                     ATTN_KIND_INVALID_VALUE);
    assert_int_equal(ask(CUDA("9.0"), NULL, QUERY(.num_heads = -1), 128, ATTN_BF16).kind,
                     ATTN_KIND_INVALID_VALUE);
    asked kv = ask(CUDA("9.0"), NULL, QUERY(.kv_cache_dtype = "fp4"), 128, ATTN_BF16);
    assert_int_equal(kv.kind, ATTN_KIND_INVALID_KV_CACHE_DTYPE);
    holds(kv.error, "'fp4'");
    holds(kv.error, "int8_per_token_head");
}

/* A combination comes after everything else, and only when the field is known. */
static void combinations(void **state)
{
    (void)state;
    const char *const *words = WORDS("attention-backend", "FLASHINFER_MLA");
    assert_int_equal(ask(CUDA("10.0"), words, QUERY(.flags = MLA), 576, ATTN_BF16).kind, 0);
    assert_int_equal(
        ask(CUDA("10.0"), words, QUERY(.flags = MLA, .qk_nope_head_dim = 192), 576, ATTN_BF16).kind, 0);
    asked a = ask(CUDA("10.0"), words, QUERY(.flags = MLA, .qk_nope_head_dim = 96), 576, ATTN_F32);
    assert_int_equal(a.kind, ATTN_KIND_SELECTED_BACKEND_INVALID);
    holds(a.error, "['dtype not supported', 'qk_nope_head_dim 96 not supported");
}

/* Layers of one model that would get different backends: allowed, unless the context refuses a mix. */
static void a_mix_is_refused_on_request(void **state)
{
    (void)state;
    for (int strict = 0; strict < 2; strict++) {
        attn_facts *facts = NULL;
        attn_context *context = NULL;
        attn_error error = ATTN_ERROR_INIT;
        attn_resolution r = {.size = sizeof r};
        attn_llm_query llm = {.size = sizeof llm}, odd = {.size = sizeof odd, .block_size = 8};
        attn_query q = {.size = sizeof q, .domain = ATTN_DOMAIN_LLM, .llm = &llm, .head_size = 128},
                   other = q;
        other.llm = &odd;
        assert_int_equal(attn_facts_parse(CUDA("9.0"), &facts, NULL), 0);
        attn_options o = {.size = sizeof o,
                          .flags = ATTN_OPEN_IGNORE_ENV | (strict ? ATTN_OPEN_ONE_LLM : 0),
                          .module_path = "",
                          .facts = facts};
        assert_int_equal(attn_open(&o, &context, NULL), 0);
        assert_int_equal(attn_resolve(context, &q, &r, NULL, NULL, &error), 0);
        assert_int_equal(attn_resolve(context, &other, &r, NULL, NULL, &error) != 0, strict);
        if (strict) holds(error.text, "FLEX_ATTENTION while the first of this context got FLASH_ATTN");
        assert_int_equal(attn_resolve(context, &q, &r, NULL, NULL, &error), 0);
        attn_close(context);
        attn_facts_free(facts);
    }
}

static void vision_encoders_have_a_list(void **state)
{
    (void)state;
    attn_llm_query q = {.flags = ATTN_LLM_FLAG(VISION_ENCODER), .attn_type = ATTN_LLM_ENCODER_ONLY};
    assert_string_equal(ask(CUDA("8.0"), NULL, q, 72, ATTN_BF16).backend, "FLASH_ATTN");
    assert_string_equal(ask(CUDA("8.0"), NULL, q, 72, ATTN_F32).backend, "TRITON_ATTN");
    assert_string_equal(ask(CUDA("7.5"), NULL, q, 72, ATTN_F16).backend, "TORCH_SDPA");
    assert_string_equal(ask(CUDA("7.5"), WORDS("attention-backend", "FLASHINFER"), q, 72, ATTN_F16).backend,
                        "FLASHINFER");
    asked a = ask(CUDA("9.0"), WORDS("attention-backend", "FLEX_ATTENTION"), q, 72, ATTN_BF16);
    assert_int_equal(a.kind, ATTN_KIND_BACKEND_NOT_AVAILABLE_ON_PLATFORM);
    holds(a.error, "TORCH_SDPA");
    assert_int_equal(ask(CUDA("9.0"), WORDS("attention-backend", "CUSTOM"), q, 72, ATTN_BF16).kind,
                     ATTN_KIND_BACKEND_NOT_AVAILABLE_ON_PLATFORM);
}

/* ---- on this machine ---------------------------------------------------------------------------- */

static void live_cpu_obeys_or_refuses(void **state)
{
    (void)state;
    attn_context *context = NULL;
    attn_error error = ATTN_ERROR_INIT;
    attn_options o = {.size = sizeof o,
                      .flags = ATTN_OPEN_IGNORE_ENV,
                      .module_path = "",
                      .platform = "cpu",
                      .llm_backend = "ROCM_AITER_FA"};
    assert_int_equal(attn_open(&o, &context, &error), 0);
    attn_layer_options site = {.size = sizeof site,
                               .domain = ATTN_DOMAIN_LLM,
                               .heads = 4,
                               .head_dim = 64,
                               .causal = 1,
                               .dtype = ATTN_F32};
    attn_layer *layer = NULL;
    assert_int_not_equal(attn_layer_open(context, &site, &layer, &error), 0);
    assert_null(layer);
    assert_int_equal(error.kind, ATTN_KIND_SELECTED_BACKEND_INVALID);
    holds(error.text, "ROCM_AITER_FA, named by --attention-backend");
    holds(error.text, "['ImportError']");
    holds(error.text, "AITER, ROCm");
    attn_close(context);
}

/* What a layer of a domain computes on this machine, and who. */
static float run_layer(attn_context *context, const attn_layer_options *site, char *who, size_t bytes)
{
    static float q[6 * 2 * 8], k[6 * 2 * 8], v[6 * 2 * 8], out[6 * 2 * 8];
    static int64_t shape[] = {1, 6, 2, 8};
    DLTensor t[4];
    float *data[] = {q, k, v, out};
    for (int i = 0; i < 4; i++) t[i] = (DLTensor){data[i], {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, shape, NULL, 0};
    for (int i = 0; i < 6 * 2 * 8; i++)
        q[i] = (float)(i % 7) - 3, k[i] = (float)(i % 5) - 2, v[i] = (float)(i % 11);
    memset(out, 0xff, sizeof out);
    attn_error error = ATTN_ERROR_INIT;
    attn_layer *layer = NULL;
    attn_layer_info info = {.size = sizeof info};
    attn_args args = {.size = sizeof args, .q = &t[0], .k = &t[1], .v = &t[2], .out = &t[3]};
    if (attn_layer_open(context, site, &layer, &error) || attn_forward(layer, &args, &error))
        fail_msg("%s", error.text);
    attn_layer_get_info(layer, &info);
    snprintf(who, bytes, "%s/%s via %s", info.backend, info.implementation, info.source);
    attn_layer_close(layer);
    return out[6 * 2 * 8 - 1];
}

static void layers_of_every_domain_run(void **state)
{
    (void)state;
    char who[1400];
    attn_context *context = NULL;
    attn_error error = ATTN_ERROR_INIT;
    attn_options o = {.size = sizeof o, .flags = ATTN_OPEN_IGNORE_ENV, .module_path = "", .platform = "cpu"};
    assert_int_equal(attn_open(&o, &context, &error), 0);
    attn_layer_options site = {.size = sizeof site, .heads = 2, .head_dim = 8, .dtype = ATTN_F32};
    float exact = run_layer(context, &site, who, sizeof who);
    site.domain = ATTN_DOMAIN_LLM;
    assert_true(fabsf(run_layer(context, &site, who, sizeof who) - exact) < 1e-4f);
    assert_memory_equal(who, "CPU_ATTN/", 9);
    holds(who, "via platform default");
    /* A name can be pointed at another implementation and back; that of another domain is not touched. */
    assert_int_equal(attn_override_set(context, "llm:CPU_ATTN", "cpu_reference", &error), 0);
    assert_true(fabsf(run_layer(context, &site, who, sizeof who) - exact) < 1e-4f);
    holds(who, "CPU_ATTN/cpu_reference");
    assert_int_equal(attn_override_set(context, "llm:CPU_ATTN", NULL, &error), 0);
    run_layer(context, &site, who, sizeof who);
    holds(who, "CPU_ATTN/cpu_flash");
    site.domain = ATTN_DOMAIN_VISION;
    assert_true(fabsf(run_layer(context, &site, who, sizeof who) - exact) < 1e-4f);
    assert_memory_equal(who, "sdpa/", 5);
    attn_close(context);
    o.llm_backend = "flex_attention";
    assert_int_equal(attn_open(&o, &context, &error), 0);
    site.domain = ATTN_DOMAIN_LLM;
    assert_true(fabsf(run_layer(context, &site, who, sizeof who) - exact) < 1e-4f);
    holds(who, "FLEX_ATTENTION/cpu_reference via --attention-backend");
    attn_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(flash_versions),
                                       cmocka_unit_test(the_variant_follows_the_version),
                                       cmocka_unit_test(proposed_blocks),
                                       cmocka_unit_test(layouts),
                                       cmocka_unit_test(blocks_of_several),
                                       cmocka_unit_test(blocks_of_hybrid_models),
                                       cmocka_unit_test(prefill_workspace),
                                       cmocka_unit_test(trtllm_by_batch),
                                       cmocka_unit_test(mla_prefill),
                                       cmocka_unit_test(fp8_prefill_queries),
                                       cmocka_unit_test(order_of_the_sparse_pair),
                                       cmocka_unit_test(messages),
                                       cmocka_unit_test(a_small_error_is_cut),
                                       cmocka_unit_test(a_block_size_that_costs_a_better_one),
                                       cmocka_unit_test(rocm_tells_what_it_overrides),
                                       cmocka_unit_test(cpu_as_described),
                                       cmocka_unit_test(xpu_as_described),
                                       cmocka_unit_test(questions_are_checked),
                                       cmocka_unit_test(combinations),
                                       cmocka_unit_test(a_mix_is_refused_on_request),
                                       cmocka_unit_test(vision_encoders_have_a_list),
                                       cmocka_unit_test(live_cpu_obeys_or_refuses),
                                       cmocka_unit_test(layers_of_every_domain_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
