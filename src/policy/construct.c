/* construct.c: values that are checked when a layer is built, not when they are parsed. */
#include "policy/policy.h"

#include <string.h>

static const struct row {
    const char *backend, *field, *choices, *package, *needs;
} rows[] = {
#define X(backend, field, choices, package, needs) {#backend, #field, choices, package, needs},
#include "policy/construct.def"
#undef X
};

static bool listed(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *p = words; *p; p += strcspn(p, " "), p += *p == ' ')
        if (strcspn(p, " ") == length && !strncmp(p, word, length)) return true;
    return false;
}

static attn_status check(const attn_court *court, const struct row *row, const char *value, attn_error *error)
{
    if (!listed(row->choices, value))
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "%s: quant.%s is %s; this backend takes %s",
                         row->backend, row->field, value, row->choices);
    if (*row->package && !attn_facts_have(court->facts, row->package))
        return attn_fail(error, ATTN_KIND_PACKAGE_INCOMPATIBLE,
                         "%s: quant.%s = %s needs %s, which the installed FlashInfer lacks; upgrade it or "
                         "remove the block",
                         row->backend, row->field, value, row->needs);
    return ATTN_OK;
}

attn_status attn_policy_construct(const attn_court *court, const attn_choice *choice, attn_error *error)
{
    const json_t *quant = choice->spec ? json_object_get(choice->spec, "quant") : NULL;
    for (size_t i = 0; quant && i < sizeof rows / sizeof *rows; i++) {
        const char *value = json_string_value(json_object_get(quant, rows[i].field));
        if (value && !strcmp(rows[i].backend, choice->backend->name))
            ATTN_TRY(check(court, &rows[i], value, error));
    }
    return ATTN_OK;
}
