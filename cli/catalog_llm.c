/* catalog_llm.c: the tables and lists of domains llm and vision, from the library's rows. */
#include "catalog_llm.h"

#include <string.h>

#include "catalog.h"
#include "cli.h"

/* "a b" as "a, b"; what is one phrase ("multiple of 16", "any") stays as it is. */
static void cell_list(struct report_table *table, const char *words)
{
    char text[256];
    size_t used = 0;
    int phrase = strncmp(words, "multiple", 8) == 0;
    for (const char *p = words; *p && used + 3 < sizeof text; p++) {
        if (*p == ' ' && !phrase) text[used++] = ',';
        text[used++] = *p;
    }
    text[used] = '\0';
    report_cell(table, "%s", catalog_or_dash(text));
}

static void cell_types(struct report_table *table, const char *types)
{
    static const struct {
        const char *word, *shown;
    } rows[] = {
#define X(name, value, text, words) {text, words},
        ATTN_LLM_TYPE_LIST(X)
#undef X
    };
    char text[96] = "";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t used = strlen(text), n = strlen(rows[i].word);
        for (const char *p = types; *p; p += strcspn(p, " "), p += *p == ' ')
            if (strcspn(p, " ") == n && !strncmp(p, rows[i].word, n))
                snprintf(text + used, sizeof text - used, "%s%s", used ? ", " : "", rows[i].shown);
    }
    report_cell(table, "%s", strcmp(types, "all") ? text : "All");
}

static struct report_table *feature_table(int32_t which, enum report_format format)
{
    static const char *const headings[] = {
        "Backend", "Version",   "Dtypes", "KV Dtypes",       "Block Sizes",  "Head Sizes", "Sink",
        "Sparse",  "MM Prefix", "DCP",    "Attention Types", "Compute Cap.", "Notes",      NULL};
    struct report_table *table = report_table_new(headings);
    attn_llm_row_info row = {.size = sizeof row};
    for (size_t i = 0; table && attn_llm_row_at(i, &row); i++) {
        if (row.table != which) continue;
        catalog_cell_name(table, format, row.name);
        report_cell(table, "%s", catalog_or_dash(row.variant));
        cell_list(table, row.dtypes);
        cell_list(table, row.kv_dtypes);
        cell_list(table, row.block_sizes);
        cell_list(table, row.head_sizes);
        report_cell(table, "%s", catalog_yes(row.sink));
        report_cell(table, "%s", catalog_yes(row.sparse));
        report_cell(table, "%s", catalog_yes(row.mm_prefix));
        report_cell(table, "%s", catalog_yes(row.dcp));
        cell_types(table, row.attn_types);
        report_cell(table, "%s", row.compute_cap);
        report_cell(table, "%s", catalog_or_dash(row.notes));
    }
    return table;
}

static struct report_table *prefill_table(enum report_format format)
{
    static const char *const headings[] = {"Backend", "Compute Cap.", "Kernel", "Enable",
                                           "Disable", "Constraint",   "Notes",  NULL};
    struct report_table *table = report_table_new(headings);
    attn_llm_row_info row = {.size = sizeof row};
    (void)format;
    for (size_t i = 0; table && attn_llm_row_at(i, &row); i++) {
        if (row.table != ATTN_LLM_MLA_PREFILL) continue;
        report_cell(table, "%s", row.name);
        report_cell(table, "%s", row.compute_cap);
        report_cell(table, "%s", row.kernel);
        report_cell(table, "%s", row.enable);
        report_cell(table, "%s", row.disable);
        report_cell(table, "%s", catalog_or_dash(row.constraint));
        report_cell(table, "%s", catalog_or_dash(row.notes));
    }
    return table;
}

/* One branch of an order that varies is listed; the note tells the rest. */
static int listed_before(attn_domain domain, size_t index, const attn_route_info *route)
{
    attn_route_info other = {.size = sizeof other};
    for (size_t i = 0; i < index && attn_route_at(domain, i, &other); i++)
        if (!strcmp(other.platform, route->platform) && !strcmp(other.scope, route->scope) &&
            !strcmp(other.backend, route->backend))
            return 1;
    return 0;
}

static struct report_table *route_table(attn_domain domain, enum report_format format)
{
    static const char *const llm[] = {"Platform", "Queries", ">Priority", "Backend", "When", NULL};
    static const char *const vision[] = {"Platform", "Compute Cap.", ">Row", "Default", "Devices", NULL};
    struct report_table *table = report_table_new(domain == ATTN_DOMAIN_LLM ? llm : vision);
    attn_route_info route = {.size = sizeof route};
    for (size_t i = 0; table && attn_route_at(domain, i, &route); i++) {
        if (domain == ATTN_DOMAIN_LLM && listed_before(domain, i, &route)) continue;
        report_cell(table, "%s", strcmp(route.platform, "*") ? route.platform : "any other");
        report_cell(table, "%s", route.scope);
        report_cell(table, "%d", (int)route.rank);
        catalog_cell_name(table, format, route.backend);
        report_cell(table, "%s", catalog_or_dash(route.condition));
    }
    return table;
}

/* The implementations that serve a name, which they write with its domain. */
static void serving(const attn_context *context, attn_domain domain, const char *name, char *text,
                    size_t bytes)
{
    char served[96];
    attn_impl_info impl = {.size = sizeof impl};
    text[0] = '\0';
    snprintf(served, sizeof served, "%s:%s", attn_domain_name(domain), name);
    for (size_t i = 0; attn_impl_at(context, i, &impl); i++) {
        size_t used = strlen(text);
        if (catalog_has_word(impl.backends, served))
            snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", impl.name);
    }
}

static struct report_table *name_table(const attn_context *context, enum report_format format)
{
    static const char *const headings[] = {
        "Name", "MLA", "KV layout", "KV cache shape", "Code of", "implementations", NULL};
    struct report_table *table = report_table_new(headings);
    attn_llm_name_info name = {.size = sizeof name};
    char impls[256];
    for (size_t i = 0; table && attn_llm_name_at(i, &name); i++) {
        serving(context, ATTN_DOMAIN_LLM, name.name, impls, sizeof impls);
        catalog_cell_name(table, format, name.name);
        report_cell(table, "%s", catalog_yes(name.mla));
        report_cell(table, "%s", *name.kv_layout ? name.kv_layout : "free");
        report_cell(table, "%s", catalog_or_dash(name.kv_cache_shape));
        report_cell(table, "%s", name.home);
        report_cell(table, "%s", catalog_or_dash(impls));
    }
    return table;
}

static struct report_table *vision_table(const attn_context *context, enum report_format format)
{
    static const char *const headings[] = {"Name", "Platforms", "What it is", "implementations", NULL};
    struct report_table *table = report_table_new(headings);
    attn_backend_info b = {.size = sizeof b};
    char impls[256];
    for (size_t i = 0; table && attn_domain_backend_at(context, ATTN_DOMAIN_VISION, i, &b); i++) {
        serving(context, ATTN_DOMAIN_VISION, b.name, impls, sizeof impls);
        catalog_cell_name(table, format, b.name);
        report_cell(table, "%s", b.platforms);
        report_cell(table, "%s", b.needs);
        report_cell(table, "%s", catalog_or_dash(impls));
    }
    return table;
}

static int print_one(FILE *out, const char *title, struct report_table *table, enum report_format format)
{
    if (!table) {
        report_error("no memory for a table");
        return CLI_RUNTIME;
    }
    fprintf(out, format == REPORT_MARKDOWN ? "## %s\n\n" : "%s\n\n", title);
    report_table_print(out, table, format);
    fprintf(out, "\n");
    report_table_free(table);
    return CLI_OK;
}

static void print_notes(FILE *out, enum report_format format)
{
    const char *key, *text;
    fprintf(out, format == REPORT_MARKDOWN ? "## Notes\n\n" : "Notes\n\n");
    for (size_t i = 0; (key = attn_llm_note_at(i, &text)); i++) fprintf(out, "- %s: %s\n", key, text);
}

static int print_llm(FILE *out, const attn_context *context, enum report_format format)
{
    int code = print_one(out, "Standard attention", feature_table(ATTN_LLM_STANDARD, format), format);
    if (code == CLI_OK)
        code = print_one(out, "MLA decode", feature_table(ATTN_LLM_MLA_DECODE, format), format);
    if (code == CLI_OK) code = print_one(out, "MLA prefill", prefill_table(format), format);
    if (code == CLI_OK) code = print_one(out, "Priorities", route_table(ATTN_DOMAIN_LLM, format), format);
    if (code == CLI_OK) code = print_one(out, "Names", name_table(context, format), format);
    if (code == CLI_OK) print_notes(out, format);
    return code;
}

int catalog_domain_print(FILE *out, const attn_context *context, attn_domain domain,
                         enum report_format format)
{
    if (domain == ATTN_DOMAIN_LLM) return print_llm(out, context, format);
    int code = print_one(out, "Names", vision_table(context, format), format);
    return code == CLI_OK ? print_one(out, "Defaults", route_table(ATTN_DOMAIN_VISION, format), format)
                          : code;
}

/* ---- JSON --------------------------------------------------------------------------------------- */

static json_t *words_json(const char *words)
{
    json_t *list = json_array();
    if (!strcmp(words, "any") || !strncmp(words, "multiple", 8)) {
        json_decref(list);
        return json_string(words);
    }
    for (const char *p = words; *p; p += strcspn(p, " "), p += *p == ' ')
        json_array_append_new(list, json_stringn(p, strcspn(p, " ")));
    return list;
}

static json_t *row_json(const attn_llm_row_info *r)
{
    if (r->table == ATTN_LLM_MLA_PREFILL)
        return json_pack("{ss ss ss ss ss ss so}", "name", r->name, "compute_cap", r->compute_cap, "kernel",
                         r->kernel, "enable", r->enable, "disable", r->disable, "constraint", r->constraint,
                         "notes", words_json(r->notes));
    return json_pack("{ss ss so so so so sb sb sb sb so ss so}", "name", r->name, "variant", r->variant,
                     "dtypes", words_json(r->dtypes), "kv_dtypes", words_json(r->kv_dtypes), "block_sizes",
                     words_json(r->block_sizes), "head_sizes", words_json(r->head_sizes), "sink", r->sink,
                     "sparse", r->sparse, "mm_prefix", r->mm_prefix, "dcp", r->dcp, "attn_types",
                     words_json(r->attn_types), "compute_cap", r->compute_cap, "notes", words_json(r->notes));
}

static json_t *rows_json(int32_t which)
{
    json_t *list = json_array();
    attn_llm_row_info row = {.size = sizeof row};
    for (size_t i = 0; attn_llm_row_at(i, &row); i++)
        if (row.table == which) json_array_append_new(list, row_json(&row));
    return list;
}

static json_t *routes_json(attn_domain domain)
{
    json_t *list = json_array();
    attn_route_info r = {.size = sizeof r};
    for (size_t i = 0; attn_route_at(domain, i, &r); i++)
        json_array_append_new(list,
                              json_pack("{ss ss si ss ss}", "platform", r.platform, "scope", r.scope, "rank",
                                        (int)r.rank, "backend", r.backend, "condition", r.condition));
    return list;
}

static json_t *names_json(const attn_context *context, attn_domain domain)
{
    json_t *list = json_array();
    attn_backend_info b = {.size = sizeof b};
    char impls[256];
    for (size_t i = 0; attn_domain_backend_at(context, domain, i, &b); i++) {
        serving(context, domain, b.name, impls, sizeof impls);
        json_array_append_new(list, json_pack("{ss ss ss ss}", "name", b.name, "platforms", b.platforms,
                                              "needs", b.needs, "implementations", impls));
    }
    return list;
}

json_t *catalog_domain_json(const attn_context *context, attn_domain domain)
{
    json_t *object =
        json_pack("{so so}", "backends", names_json(context, domain), "routes", routes_json(domain));
    if (domain != ATTN_DOMAIN_LLM) return object;
    json_object_set_new(object, "standard", rows_json(ATTN_LLM_STANDARD));
    json_object_set_new(object, "mla_decode", rows_json(ATTN_LLM_MLA_DECODE));
    json_object_set_new(object, "mla_prefill", rows_json(ATTN_LLM_MLA_PREFILL));
    return object;
}
