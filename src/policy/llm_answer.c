/* llm_answer.c: what follows from a choice of domain llm: layout, block size, kernels, prefill. */
#include "policy/llm.h"
#include "registry/llm_table.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void attn_llm_warn(attn_choice *choice, const char *format, ...)
{
    size_t used = strlen(choice->warning);
    va_list list;
    if (used && used + 3 < sizeof choice->warning) {
        memcpy(choice->warning + used, "; ", 3);
        used += 2;
    }
    va_start(list, format);
    vsnprintf(choice->warning + used, sizeof choice->warning - used, format, list);
    va_end(list);
}

static const char *layout_of(const attn_facts *f, const attn_config *config, int name)
{
    const attn_llm_platform *platform = attn_llm_platform_of(f);
    attn_llm_layout need = attn_llm_names[name].layout;
    bool ten = f->has_capability && f->major == 10;
    if (*platform->layout) return platform->layout;
    if (need == ATTN_LLM_HND || (need == ATTN_LLM_HND_10 && ten)) return "HND";
    return config->kv_layout && !strcmp(config->kv_layout, "HND") ? "HND" : "NHD";
}

static int64_t block_of(const attn_facts *f, const attn_llm_case *q, int name, attn_choice *choice)
{
    const attn_llm_platform *platform = attn_llm_platform_of(f);
    if (!q->block_size) return platform->block ? platform->block : attn_llm_block(f, q, name);
    if (platform->multiple && q->block_size % platform->multiple)
        attn_llm_warn(choice,
                      "block size %" PRId64 " is no multiple of %" PRId64
                      ", which platform %s runs slowly; use %" PRId64,
                      q->block_size, platform->multiple, f->platform, platform->block);
    return q->block_size;
}

/* A name has the TRTLLM switch when one of its rows carries it. */
static bool has_switch(int name)
{
    const attn_llm_row *row;
    for (size_t i = 0; (row = attn_llm_table_at(i)); i++)
        if (row->name == name && !strcmp(row->variant, "TRTLLM")) return true;
    return false;
}

static void fill_trtllm(const attn_facts *f, const attn_llm_settings *s, const attn_llm_case *q,
                        attn_choice *choice)
{
    attn_llm_answer *a = &choice->llm;
    char warning[200];
    a->query_fp8 = attn_llm_trtllm_usable(f, q) && attn_kv_quantised(q->kv) &&
                   !ATTN_LLM_SETTING(s, disable_flashinfer_q_quantization);
    a->trtllm_prefill = attn_llm_trtllm_prefill(f, q, a->query_fp8, warning, sizeof warning);
    a->trtllm_decode = attn_llm_trtllm_decode(f, q);
    if (*warning) attn_llm_warn(choice, "%s", warning);
    if (ATTN_LLM_HAS(q, SINK) && !(a->trtllm_prefill && a->trtllm_decode))
        attn_llm_warn(choice, "batches with sinks that run native kernels will fail");
}

static void fill_prefill(const attn_facts *f, const attn_llm_settings *s, const attn_llm_case *q,
                         attn_choice *choice)
{
    attn_llm_answer *a = &choice->llm;
    bool takes_fp8, is_flash;
    a->prefill = attn_llm_prefill(f, s, q, &takes_fp8, &is_flash);
    if (!a->prefill)
        attn_llm_warn(choice, "MLA prefill needs FlashAttention, which is missing%s",
                      strcmp(f->platform, "rocm") ? "; install it" : "; use ROCM_AITER_MLA");
    if (is_flash) a->flash_version = attn_llm_flash_version(f, q, 0);
    a->pads_value = is_flash && !(a->flash_version == 4 || (a->flash_version == 3 && f->major == 9));
    if (!ATTN_LLM_SETTING(s, use_prefill_query_quantization)) return;
    a->query_fp8 = takes_fp8 && attn_kv_quantised(q->kv) && f->major == 10;
    if (!a->query_fp8)
        attn_llm_warn(choice,
                      "use_prefill_query_quantization is ignored: it needs a quantised KV cache, SM 10.x and "
                      "FlashInfer or TRT-LLM ragged prefill");
}

void attn_llm_fill_answer(const attn_facts *f, const attn_config *config, const attn_llm_case *q, int name,
                          attn_choice *choice)
{
    attn_llm_answer *a = &choice->llm;
    a->variant = attn_llm_variant(f, q, name);
    a->layout = layout_of(f, config, name);
    a->block = block_of(f, q, name, choice);
    if (!a->kv_cache_dtype) a->kv_cache_dtype = attn_kv_name(q->kv);
    if (attn_llm_names[name].per_head == ATTN_LLM_FLASH_3_4)
        a->flash_version = attn_llm_flash_version(f, q, q->head_size);
    if (has_switch(name)) fill_trtllm(f, &config->llm, q, choice);
    /* On cpu one implementation does both. */
    if (attn_llm_names[name].mla && strcmp(f->platform, "cpu")) fill_prefill(f, &config->llm, q, choice);
}
