/* docs_domains.c: the pages of domains llm and vision. */
#include "catalog_llm.h"
#include "docs.h"
#include "llm_query.h"

static void print_keys(FILE *out)
{
    static const char *const headings[] = {"key", "meaning", NULL};
    struct report_table *table = report_table_new(headings);
    const char *key, *meaning;
    for (size_t i = 0; table && (key = llm_query_key_at(i, &meaning)); i++) {
        report_cell(table, "`%s`", key);
        report_cell(table, "%s", meaning);
    }
    fprintf(out, "\n## Questions\n\nWhat `attn explain --query` and the lines of `attn resolve --domain llm` "
                 "may say.\n\n");
    if (table) report_table_print(out, table, REPORT_MARKDOWN);
    report_table_free(table);
}

void docs_llm(FILE *out, const attn_context *context)
{
    fprintf(out, "The tables that the judge of domain llm reads, as `attn list --domain llm --format "
                 "markdown` prints them.\n\n"
                 "- **Version**: rows of one name; which of them counts is decided by its note.\n"
                 "- **Dtypes**: of the model. **KV Dtypes**: of the cache; `auto` stores the model's.\n"
                 "- **Block Sizes**: of the kernels; a cache block is accepted when it is a multiple of any "
                 "listed size.\n"
                 "- **Sink**: learned logits in the softmax sum. **Sparse**: keys picked by an indexer, "
                 "instead of all.\n"
                 "- **MM Prefix**: image tokens of a causal prompt attend both ways. **DCP**: decode over "
                 "several ranks.\n"
                 "- **Compute Cap.**: of CUDA devices; `n/a`: never on CUDA. A name runs where its rows "
                 "reach together.\n\n");
    catalog_domain_print(out, context, ATTN_DOMAIN_LLM, REPORT_MARKDOWN);
    print_keys(out);
}

void docs_vision(FILE *out, const attn_context *context)
{
    fprintf(out, "Names of `--mm-attention-backend`, and the default of each platform: the first row of its "
                 "own that applies. "
                 "What the\nserver says goes before what a model wishes, and both before the default. `fa3` "
                 "is refused on "
                 "compute capabilities 10.x to\n12.x from CUDA 12.8 on, whoever named it.\n\n");
    catalog_domain_print(out, context, ATTN_DOMAIN_VISION, REPORT_MARKDOWN);
}
