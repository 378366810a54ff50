/* llm_print.c: the tables of domain llm as rows to print. */
#include "registry/llm_table.h"

static const struct prefill {
    const char *name, *range, *kernel, *enable, *disable, *constraint, *notes;
} prefills[] = {
#define X(id, name, cc, kernel, enable, disable, constraint, notes, condition, r1_only)                      \
    {name, cc, kernel, enable, disable, constraint, notes},
#include "registry/llm_prefill.def"
#undef X
};

static const struct note {
    const char *key, *text;
} notes[] = {
#define X(key, text) {key, text},
#include "registry/llm_notes.def"
#undef X
};

#define COUNT(rows) (sizeof rows / sizeof *rows)

static attn_llm_row_info of_prefill(const struct prefill *p)
{
    return (attn_llm_row_info){.table = ATTN_LLM_MLA_PREFILL,
                               .name = p->name,
                               .variant = "",
                               .compute_cap = p->range,
                               .notes = p->notes,
                               .kernel = p->kernel,
                               .enable = p->enable,
                               .disable = p->disable,
                               .constraint = p->constraint};
}

static attn_llm_row_info of_row(const attn_llm_row *r)
{
    return (attn_llm_row_info){.table = r->table,
                               .name = attn_llm_names[r->name].name,
                               .variant = r->variant,
                               .dtypes = r->dtypes,
                               .kv_dtypes = r->kv_dtypes,
                               .block_sizes = r->block_sizes,
                               .head_sizes = r->head_sizes,
                               .sink = r->sink,
                               .sparse = r->sparse,
                               .mm_prefix = r->mm_prefix,
                               .dcp = r->dcp,
                               .attn_types = r->attn_types,
                               .compute_cap = r->compute_cap,
                               .notes = r->notes};
}

int attn_llm_row_at(size_t index, attn_llm_row_info *info)
{
    attn_llm_row_info ours;
    size_t rows = 0;
    while (attn_llm_table_at(rows)) rows++;
    if (index >= rows + COUNT(prefills)) return 0;
    ours = index < rows ? of_row(attn_llm_table_at(index)) : of_prefill(&prefills[index - rows]);
    attn_give_struct(info, &ours, sizeof ours);
    return 1;
}

int attn_llm_name_at(size_t index, attn_llm_name_info *info)
{
    static const char *const layouts[] = {
        [ATTN_LLM_FREE] = "", [ATTN_LLM_HND] = "HND", [ATTN_LLM_HND_10] = "HND on SM 10.x"};
    if (index >= ATTN_LLM_NAMES) return 0;
    const attn_llm_name *n = &attn_llm_names[index];
    attn_llm_name_info ours = {.mla = n->mla,
                               .name = n->name,
                               .kv_layout = layouts[n->layout],
                               .kv_cache_shape = n->shape,
                               .home = n->home};
    attn_give_struct(info, &ours, sizeof ours);
    return 1;
}

const char *attn_llm_note_at(size_t index, const char **text)
{
    if (index >= COUNT(notes)) return NULL;
    if (text) *text = notes[index].text;
    return notes[index].key;
}
