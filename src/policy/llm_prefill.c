/* llm_prefill.c: prefill of MLA runs on another backend than decode. */
#include "policy/llm.h"
#include "registry/cc.h"

#include <string.h>

typedef struct view {
    const attn_facts *f;
    const attn_llm_settings *s;
} view;
typedef bool asked_fn(const view *v);

static bool there(const view *v, int name)
{
    return !(v->f->missing >> name & 1);
}

static bool asked_CUDNN(const view *v)
{
    return ATTN_LLM_SETTING(v->s, use_cudnn_prefill) == 1;
}

static bool asked_CUTLASS(const view *v)
{
    return there(v, ATTN_LLM_NAME_FLASHINFER) && !ATTN_LLM_SETTING(v->s, disable_flashinfer_prefill) &&
           !asked_CUDNN(v);
}

/* Left open it is on, but it yields to an explicit request for another; an explicit 1 does not. */
static bool asked_RAGGED(const view *v)
{
    int64_t flag = ATTN_LLM_SETTING(v->s, use_trtllm_ragged_deepseek_prefill);
    bool other = asked_CUDNN(v) || !ATTN_LLM_SETTING(v->s, disable_flashinfer_prefill);
    return there(v, ATTN_LLM_NAME_FLASHINFER) && (flag == 1 || (flag == ATTN_LLM_NULL && !other));
}

static bool asked_ALWAYS(const view *v)
{
    return there(v, ATTN_LLM_NAME_FLASH_ATTN);
}

static const struct prefill {
    const char *name, *range;
    asked_fn *asked;
    bool r1_only, takes_fp8;
} prefills[] = {
#define X(id, name, cc, kernel, enable, disable, constraint, notes, condition, r1_only)                      \
    {name, cc, asked_##condition, r1_only, r1_only},
#include "registry/llm_prefill.def"
#undef X
};
enum { PREFILLS = sizeof prefills / sizeof *prefills };

static bool r1(const attn_llm_case *q)
{
    return q->qk_nope_head_dim == 128 && q->qk_rope_head_dim == 64 && q->v_head_dim == 128;
}

const char *attn_llm_prefill(const attn_facts *facts, const attn_llm_settings *settings,
                             const attn_llm_case *q, bool *takes_fp8, bool *is_flash)
{
    view v = {facts, settings};
    for (int i = 0; i < PREFILLS; i++) {
        const struct prefill *p = &prefills[i];
        bool device =
            !strcmp(p->range, "any") || (!strcmp(facts->platform, "cuda") && attn_cc_within(p->range, facts));
        if (!device || !p->asked(&v) || (p->r1_only && !r1(q))) continue;
        *takes_fp8 = p->takes_fp8;
        *is_flash = i == PREFILLS - 1;
        return p->name;
    }
    *takes_fp8 = *is_flash = false;
    return NULL;
}
