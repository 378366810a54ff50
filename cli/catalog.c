/* catalog.c: backends and implementations of a context as tables and JSON. */
#include "catalog.h"

#include <stdio.h>
#include <string.h>

const char *catalog_yes(int value)
{
    return value ? "yes" : "-";
}

const char *catalog_or_dash(const char *text)
{
    return text && *text ? text : "-";
}

void catalog_cell_name(struct report_table *table, enum report_format format, const char *name)
{
    report_cell(table, format == REPORT_MARKDOWN ? "`%s`" : "%s", name);
}

int catalog_has_word(const char *list, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = list; at && *at;) {
        at += strspn(at, ", ");
        size_t n = strcspn(at, ", ");
        if (n == length && memcmp(at, word, n) == 0) return 1;
        at += n;
    }
    return 0;
}

static const struct {
    attn_dtype dtype;
    const char *name;
} dtypes[] = {
#define X(name, value, text, code, bits) {value, text},
    ATTN_DTYPE_LIST(X)
#undef X
};

static const struct {
    int bit;
    const char *name;
} features[] = {
#define X(name, bit, text, sentence) {bit, text},
    ATTN_FEATURE_LIST(X)
#undef X
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

int catalog_feature(const char *name)
{
    for (size_t i = 0; i < COUNT(features); i++)
        if (strcmp(features[i].name, name) == 0) return features[i].bit;
    return -1;
}

char *catalog_dtypes(uint64_t set, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < COUNT(dtypes); i++) {
        if (!(set >> dtypes[i].dtype & 1)) continue;
        int n = snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", dtypes[i].name);
        if (n < 0 || (size_t)n >= bytes - used) break;
        used += (size_t)n;
    }
    return text;
}

/* Names of the implementations that serve a backend. */
static void serving(const attn_context *context, const char *backend, char *text, size_t bytes)
{
    attn_impl_info impl = {.size = sizeof impl};
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; attn_impl_at(context, i, &impl); i++) {
        if (!catalog_has_word(impl.backends, backend)) continue;
        int n = snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", impl.name);
        if (n < 0 || (size_t)n >= bytes - used) return;
        used += (size_t)n;
    }
}

struct report_table *catalog_backends(const attn_context *context, enum report_format format)
{
    static const char *const headings[] = {"backend", "family", "platforms",  "head sizes",      "mask",
                                           "spans",   "needs",  "reports as", "implementations", NULL};
    struct report_table *table = report_table_new(headings);
    attn_backend_info b = {.size = sizeof b};
    for (size_t i = 0; table && attn_backend_at(context, i, &b); i++) {
        char impls[512];
        serving(context, b.name, impls, sizeof impls);
        catalog_cell_name(table, format, b.name);
        report_cell(table, "%s", catalog_or_dash(b.family));
        report_cell(table, "%s", catalog_or_dash(b.platforms));
        report_cell(table, "%s", catalog_or_dash(b.head_sizes));
        report_cell(table, "%s", catalog_yes(b.mask));
        report_cell(table, "%s", catalog_yes(b.spans));
        report_cell(table, "%s", catalog_or_dash(b.needs));
        catalog_cell_name(table, format, catalog_or_dash(b.log_name));
        report_cell(table, "%s", catalog_or_dash(impls));
    }
    return table;
}

struct report_table *catalog_impls(const attn_context *context, enum report_format format)
{
    static const char *const headings[] = {"implementation",   "platform", "backends", "dtypes",
                                           ">head size up to", "module",   "summary",  NULL};
    struct report_table *table = report_table_new(headings);
    attn_impl_info impl = {.size = sizeof impl};
    for (size_t i = 0; table && attn_impl_at(context, i, &impl); i++) {
        char text[128];
        catalog_cell_name(table, format, impl.name);
        report_cell(table, "%s", catalog_or_dash(impl.platform));
        report_cell(table, "%s", catalog_or_dash(impl.backends));
        report_cell(table, "%s", catalog_dtypes(impl.dtypes, text, sizeof text));
        report_cell(table, "%d", (int)impl.head_dim_max);
        report_cell(table, "%s", catalog_or_dash(impl.module));
        report_cell(table, "%s", catalog_or_dash(impl.summary));
    }
    return table;
}

#define COLUMNS_MAX 32

struct report_table *catalog_features(const attn_context *context, enum report_format format)
{
    const char *headings[COLUMNS_MAX + 3] = {"feature"};
    attn_impl_info impls[COLUMNS_MAX];
    size_t count = 0;
    for (; count < COLUMNS_MAX; count++) {
        impls[count] = (attn_impl_info){.size = sizeof *impls};
        if (!attn_impl_at(context, count, &impls[count])) break;
        headings[1 + count] = impls[count].name;
    }
    headings[1 + count] = "meaning";
    struct report_table *table = report_table_new(headings);
    for (size_t i = 0; table && i < COUNT(features); i++) {
        catalog_cell_name(table, format, features[i].name);
        for (size_t j = 0; j < count; j++)
            report_cell(table, "%s", catalog_yes(impls[j].features >> features[i].bit & 1));
        report_cell(table, "%s", attn_feature_sentence(features[i].bit));
    }
    return table;
}

json_t *catalog_backends_json(const attn_context *context)
{
    json_t *list = json_array();
    attn_backend_info b = {.size = sizeof b};
    for (size_t i = 0; attn_backend_at(context, i, &b); i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:s*, s:s*, s:s*, s:s*, s:s*, s:b, s:b, s:b}", "name", b.name,
                                        "log_name", b.log_name, "family", b.family, "platforms", b.platforms,
                                        "head_sizes", b.head_sizes, "needs", b.needs, "mask", b.mask != 0,
                                        "spans", b.spans != 0, "from_module", b.from_module != 0));
    return list;
}

/* "a, b" as an array of texts. */
static json_t *words_json(const char *list)
{
    json_t *words = json_array();
    for (const char *at = list; at && *at;) {
        at += strspn(at, ", ");
        size_t n = strcspn(at, ", ");
        if (n) json_array_append_new(words, json_stringn(at, n));
        at += n;
    }
    return words;
}

json_t *catalog_impls_json(const attn_context *context)
{
    json_t *list = json_array();
    attn_impl_info impl = {.size = sizeof impl};
    for (size_t i = 0; attn_impl_at(context, i, &impl); i++) {
        json_t *has = json_array(), *types = json_array();
        for (size_t j = 0; j < COUNT(features); j++)
            if (impl.features >> features[j].bit & 1)
                json_array_append_new(has, json_string(features[j].name));
        for (size_t j = 0; j < COUNT(dtypes); j++)
            if (impl.dtypes >> dtypes[j].dtype & 1) json_array_append_new(types, json_string(dtypes[j].name));
        json_array_append_new(list,
                              json_pack("{s:s, s:s*, s:s*, s:s*, s:i, s:o, s:o, s:o}", "name", impl.name,
                                        "platform", impl.platform, "module", impl.module, "summary",
                                        impl.summary, "head_dim_max", (int)impl.head_dim_max, "backends",
                                        words_json(impl.backends), "dtypes", types, "features", has));
    }
    return list;
}
