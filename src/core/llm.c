/* llm.c: look-ups in the names of domain llm. */
#include "core/llm.h"

#include "core/text.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define TABLE ATTN_LLM_TABLE
#define SLOT  ATTN_LLM_SLOT
#define NONE  ATTN_LLM_NONE
const attn_llm_name attn_llm_names[ATTN_LLM_NAMES] = {
#define X(name, kind, mla, layout, per_head, non_causal, shape, home)                                        \
    {#name, kind, mla, ATTN_LLM_##layout, ATTN_LLM_##per_head, non_causal, shape, home},
#include "core/llm_names.def"
#undef X
};

enum { ELEMENTS_MODEL = -1, ELEMENTS_OWN = 0 };
#define ELEMENTS_F16    ATTN_F16
#define ELEMENTS_BF16   ATTN_BF16
#define ELEMENTS_F8E4M3 ATTN_F8E4M3
#define ELEMENTS_F8E5M2 ATTN_F8E5M2
#define ELEMENTS_I8     ATTN_I8
static const struct kv_row {
    const char *name;
    bool quantised;
    attn_dtype elements;
    attn_llm_scales scales;
} kv_rows[] = {
#undef NONE
#define X(name, quantised, elements, scales)                                                                 \
    {#name, quantised, ELEMENTS_##elements, ATTN_LLM_SCALES_##scales},
#include "core/llm_kv_dtypes.def"
#undef X
};

int attn_llm_find(const char *name)
{
    for (int i = 0; i < ATTN_LLM_NAMES; i++)
        if (!strcasecmp(attn_llm_names[i].name, name)) return i;
    return -1;
}

static void append(char *text, size_t bytes, const char *word)
{
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", word);
}

const char *attn_llm_join(char *text, size_t bytes)
{
    text[0] = 0;
    for (int i = 0; i < ATTN_LLM_NAMES; i++) append(text, bytes, attn_llm_names[i].name);
    return text;
}

const char *attn_llm_nearest(const char *name)
{
    const char *names[ATTN_LLM_NAMES];
    for (int i = 0; i < ATTN_LLM_NAMES; i++) names[i] = attn_llm_names[i].name;
    return attn_nearest(name, names, ATTN_LLM_NAMES);
}

int attn_kv_find(const char *name)
{
    for (int i = 0; i < ATTN_KV_DTYPES; i++)
        if (!strcmp(kv_rows[i].name, name)) return i;
    return -1;
}

int attn_kv_find_any_case(const char *name)
{
    for (int i = 0; i < ATTN_KV_DTYPES; i++)
        if (!strcasecmp(kv_rows[i].name, name)) return i;
    return -1;
}

attn_dtype attn_kv_elements(int kv, attn_dtype model_dtype)
{
    return kv_rows[kv].elements == ELEMENTS_MODEL ? model_dtype : kv_rows[kv].elements;
}

attn_llm_scales attn_kv_scales(int kv)
{
    return kv_rows[kv].scales;
}

const char *attn_kv_name(int kv)
{
    return kv >= 0 && kv < ATTN_KV_DTYPES ? kv_rows[kv].name : NULL;
}

bool attn_kv_quantised(int kv)
{
    return kv >= 0 && kv < ATTN_KV_DTYPES && kv_rows[kv].quantised;
}

const char *attn_kv_list(char *text, size_t bytes)
{
    text[0] = 0;
    for (int i = 0; i < ATTN_KV_DTYPES; i++) append(text, bytes, kv_rows[i].name);
    return text;
}
