/* llm.c: the feature table of domain llm and the checks that read it. */
#include "registry/llm.h"

#include "registry/cc.h"
#include "registry/llm_table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the rows ----------------------------------------------------------------------------------- */

static bool active_ALWAYS(const attn_facts *f, const attn_llm_case *q)
{
    (void)f, (void)q;
    return true;
}

static bool active_TRTLLM_ON(const attn_facts *f, const attn_llm_case *q)
{
    return attn_llm_trtllm_there(f, q) && q->trtllm != 0;
}

static bool active_TRTLLM_OFF(const attn_facts *f, const attn_llm_case *q)
{
    return !active_TRTLLM_ON(f, q);
}

static bool active_FLASH_3(const attn_facts *f, const attn_llm_case *q)
{
    return attn_llm_flash_version(f, q, 0) == 3;
}

static bool active_FLASH_4(const attn_facts *f, const attn_llm_case *q)
{
    return attn_llm_flash_version(f, q, 0) == 4;
}

/* Also where no version runs: features that need one are off. */
static bool active_FLASH_2(const attn_facts *f, const attn_llm_case *q)
{
    return !active_FLASH_3(f, q) && !active_FLASH_4(f, q);
}

#define STANDARD   ATTN_LLM_STANDARD
#define MLA_DECODE ATTN_LLM_MLA_DECODE
static const attn_llm_row rows[] = {
#define X(table, name, variant, active, dtypes, kv, blocks, heads, sink, sparse, mm, dcp, types, cc, notes)  \
    {table,   ATTN_LLM_NAME_##name,                                                                          \
     variant, active_##active,                                                                               \
     dtypes,  kv,                                                                                            \
     blocks,  heads,                                                                                         \
     sink,    sparse,                                                                                        \
     mm,      dcp,                                                                                           \
     types,   cc,                                                                                            \
     notes},
#include "registry/llm_rows.def"
#undef X
};
enum { ROWS = sizeof rows / sizeof *rows };

const attn_llm_row *attn_llm_table_at(size_t index)
{
    return index < ROWS ? &rows[index] : NULL;
}

const attn_llm_row *attn_llm_first_row(int name)
{
    for (int i = 0; i < ROWS; i++)
        if (rows[i].name == name) return &rows[i];
    return NULL;
}

const attn_llm_row *attn_llm_active_row(const attn_facts *f, const attn_llm_case *q, int name)
{
    for (int i = 0; i < ROWS; i++)
        if (rows[i].name == name && rows[i].active(f, q)) return &rows[i];
    return NULL;
}

const char *attn_llm_variant(const attn_facts *f, const attn_llm_case *q, int name)
{
    const attn_llm_row *row = attn_llm_active_row(f, q, name);
    return row ? row->variant : "";
}

/* ---- columns ------------------------------------------------------------------------------------ */

static bool has_word(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *p = words; *p; p += strcspn(p, " "), p += *p == ' ')
        if (strcspn(p, " ") == length && !strncmp(p, word, length)) return true;
    return false;
}

static bool has_number(const char *words, int64_t number)
{
    char *end;
    for (const char *p = words; *p; p = end) {
        int64_t one = strtoll(p, &end, 10);
        if (end == p) return false;
        if (one == number) return true;
    }
    return false;
}

static bool is_any(const char *words)
{
    return !*words || !strcmp(words, "any");
}

static const char multiple_of[] = "multiple of ";

bool attn_llm_block_exact(const char *sizes, int64_t block)
{
    size_t skip = sizeof multiple_of - 1;
    if (is_any(sizes)) return true;
    if (!strncmp(sizes, multiple_of, skip)) return block % strtoll(sizes + skip, NULL, 10) == 0;
    return has_number(sizes, block);
}

bool attn_llm_block_accepted(const char *sizes, int64_t block)
{
    char *end;
    size_t skip = strncmp(sizes, multiple_of, sizeof multiple_of - 1) ? 0 : sizeof multiple_of - 1;
    if (is_any(sizes)) return true;
    for (const char *p = sizes + skip; *p; p = end) {
        int64_t one = strtoll(p, &end, 10);
        if (end == p || one < 1) return false;
        if (block % one == 0) return true;
    }
    return false;
}

/* ---- checks: 0 passes, 1 and 2 name the reason and the one the other way round ------------------- */

typedef struct witness {
    const attn_facts *facts;
    const attn_llm_case *q;
    const attn_llm_row *row;
    const attn_llm_name *name;
} witness;

static int check_head_size(const witness *w)
{
    return w->q->head_size > 0 && !is_any(w->row->head_sizes) &&
           !has_number(w->row->head_sizes, w->q->head_size);
}

static const struct dtype_word {
    attn_dtype dtype;
    const char *word;
} dtype_words[] = {{ATTN_F16, "fp16"}, {ATTN_BF16, "bf16"}, {ATTN_F32, "fp32"}};

static int check_dtype(const witness *w)
{
    if (!w->q->dtype) return 0;
    for (size_t i = 0; i < sizeof dtype_words / sizeof *dtype_words; i++)
        if (dtype_words[i].dtype == w->q->dtype) return !has_word(w->row->dtypes, dtype_words[i].word);
    return 1;
}

static int check_kv_cache_dtype(const witness *w)
{
    return w->q->kv != ATTN_KV_NONE && !has_word(w->row->kv_dtypes, attn_kv_name(w->q->kv));
}

static int check_block_size(const witness *w)
{
    return w->q->block_size > 0 && !attn_llm_block_accepted(w->row->block_sizes, w->q->block_size);
}

static int check_mm_prefix(const witness *w)
{
    return ATTN_LLM_HAS(w->q, MM_PREFIX) && !w->row->mm_prefix;
}

static int both_ways(bool asked, bool is)
{
    return asked == is ? 0 : asked ? 1 : 2;
}

static int check_mla(const witness *w)
{
    return both_ways(ATTN_LLM_HAS(w->q, MLA), w->name->mla);
}

static int check_sink(const witness *w)
{
    return ATTN_LLM_HAS(w->q, SINK) && !w->row->sink;
}

static int check_sparse(const witness *w)
{
    return both_ways(ATTN_LLM_HAS(w->q, SPARSE), w->row->sparse);
}

static int check_per_head_scales(const witness *w)
{
    if (!ATTN_LLM_HAS(w->q, PER_HEAD_SCALES)) return 0;
    return w->name->per_head != ATTN_LLM_FLASH_3_4 || attn_llm_flash_version(w->facts, w->q, 0) < 3;
}

/* The range of a name is that of all its rows. */
static int check_compute_capability(const witness *w)
{
    if (strcmp(w->facts->platform, "cuda")) return 0;
    for (int i = 0; i < ROWS; i++)
        if (rows[i].name == w->row->name && attn_cc_within(rows[i].compute_cap, w->facts)) return 0;
    return 1;
}

static const char *const type_words[] = {
#define X(name, value, text, words) [value] = text,
    ATTN_LLM_TYPE_LIST(X)
#undef X
};

static int check_attn_type(const witness *w)
{
    return strcmp(w->row->attn_types, "all") && !has_word(w->row->attn_types, type_words[w->q->attn_type]);
}

static int check_non_causal(const witness *w)
{
    return ATTN_LLM_HAS(w->q, NON_CAUSAL) && !w->name->non_causal;
}

static int check_dcp(const witness *w)
{
    return ATTN_LLM_HAS(w->q, DCP) && !w->row->dcp;
}

static const struct check {
    int (*holds)(const witness *w);
    attn_kind kind;
    const char *reason[2];
    bool of_encoders;
} checks[] = {
#define X(check, kind, reason, reverse, of_encoders)                                                         \
    {check_##check, ATTN_KIND_##kind, {reason, reverse}, of_encoders},
#include "registry/llm_checks.def"
#undef X
};

static const struct combination {
    int name;
    size_t offset;
    const char *values, *reason;
} combinations[] = {
#define X(name, field, values, reason) {ATTN_LLM_NAME_##name, offsetof(attn_llm_case, field), values, reason},
#include "registry/llm_combinations.def"
#undef X
};

/* ---- reasons ------------------------------------------------------------------------------------ */

void attn_llm_reason(attn_llm_reasons *reasons, attn_kind kind, const char *format, ...)
{
    va_list list;
    if (reasons->count == ATTN_LLM_REASONS) return;
    va_start(list, format);
    vsnprintf(reasons->list[reasons->count].text, sizeof reasons->list->text, format, list);
    va_end(list);
    reasons->list[reasons->count++].kind = kind;
}

const char *attn_llm_reasons_text(const attn_llm_reasons *reasons, const char *quote, char *text,
                                  size_t bytes)
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; i < reasons->count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%s%s%s", i ? ", " : "", quote,
                                 reasons->list[i].text, quote);
    return text;
}

static void check_combinations(const attn_llm_case *q, int name, attn_llm_reasons *reasons)
{
    for (size_t i = 0; i < sizeof combinations / sizeof *combinations; i++) {
        const struct combination *c = &combinations[i];
        int32_t value;
        char text[160], number[16];
        memcpy(&value, (const char *)q + c->offset, sizeof value);
        if (c->name != name || !value || has_number(c->values, value)) continue;
        const char *at = strstr(c->reason, "%d");
        snprintf(number, sizeof number, "%d", value);
        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - c->reason), c->reason, number, at + 2);
        attn_llm_reason(reasons, ATTN_KIND_HEAD_SIZE_UNSUPPORTED, "%s", text);
    }
}

void attn_llm_check(const attn_facts *facts, const attn_llm_case *q, int name, attn_llm_reasons *reasons)
{
    witness w = {facts, q, attn_llm_active_row(facts, q, name), &attn_llm_names[name]};
    if (!w.row) return;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (ATTN_LLM_HAS(q, VISION_ENCODER) && !checks[i].of_encoders) continue;
        int found = checks[i].holds(&w);
        if (!found) continue;
        const char *words = checks[i].reason[found - 1], *at = strstr(words, "%s");
        attn_llm_reason(reasons, checks[i].kind, "%.*s%s%s", at ? (int)(at - words) : (int)strlen(words),
                        words, at ? type_words[q->attn_type] : "", at ? at + 2 : "");
    }
    check_combinations(q, name, reasons);
}
