/* explain.c: attn explain, which backend a role gets and every reason against the others. */
#include <attn/attn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "catalog.h"
#include "cli.h"
#include "explain_contract.h"
#include "explain_report.h"
#include "llm_query.h"
#include "options_context.h"
#include "problem.h"
#include "report.h"

struct values {
    struct context_values context;
    struct option_texts roles, needs;
    int64_t heads, kv_heads, head_size, value_head_size;
    const char *dtype, *problem, *pipeline, *query, *model_backend;
    int causal, json, show_config;
};

/* ---- the site that the options describe --------------------------------------------------------- */

static attn_status site_from_problem(const char *text, attn_layer_options *site, attn_error *error)
{
    struct problem_list list;
    attn_status status = problem_parse(text, &list, error);
    if (status) return status;
    if (list.count == 1) {
        problem_layer(&list.items[0], site);
    } else {
        status = cli_fail(error, ATTN_KIND_INVALID_VALUE,
                          "--problem '%s' stands for %zu problems; explain takes one, so give single numbers",
                          text, list.count);
    }
    problem_list_free(&list);
    return status;
}

/* Adds the features of a comma-separated list. */
static attn_status add_needs(const char *list, uint64_t *needs, attn_error *error)
{
    char word[64];
    for (const char *at = list; *at;) {
        size_t n = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), at);
        int bit = catalog_feature(word);
        if (bit < 0)
            return cli_fail(error, ATTN_KIND_UNKNOWN_NAME,
                            "--needs names '%s', which is no feature; 'attn docs features' lists them", word);
        *needs |= (uint64_t)1 << bit;
        at += n + (at[n] == ',');
    }
    return ATTN_OK;
}

/* Options that would be passed over in silence beside another. */
static attn_status check_options(const struct values *values, attn_error *error)
{
    const struct context_values *context = &values->context;
    const char *said = values->heads             ? "heads"
                       : values->kv_heads        ? "kv-heads"
                       : values->head_size       ? "head-size"
                       : values->value_head_size ? "value-head-size"
                       : values->dtype           ? "dtype"
                                                 : NULL;
    if (values->query && (!context->domain || strcmp(context->domain, "llm") != 0))
        return cli_fail(error, ATTN_KIND_MUTUALLY_EXCLUSIVE, "--query is of domain llm; add --domain llm");
    const char *local = context->overrides.count ? "override" : context->platform ? "platform" : NULL;
    if (values->problem && said)
        return cli_fail(error, ATTN_KIND_MUTUALLY_EXCLUSIVE,
                        "--problem excludes --%s; say it in the problem string, as in b1h12s1024d64:f32",
                        said);
    if (context->facts && local)
        return cli_fail(error, ATTN_KIND_MUTUALLY_EXCLUSIVE,
                        "--facts excludes --%s, which is about this machine; leave one of them out", local);
    return ATTN_OK;
}

/* What the question says of the site itself; sizes that were given as options go first. */
static attn_status fill_query(const struct values *values, struct llm_query *query, attn_layer_options *site,
                              attn_error *error)
{
    attn_status status = llm_query_parse(values->query ? values->query : "", query, error);
    if (site->domain != ATTN_DOMAIN_LLM || status) return status;
    site->llm = &query->llm;
    if (query->head_size && !values->head_size) site->head_dim = query->head_size;
    if (query->dtype && !site->dtype) site->dtype = query->dtype;
    if (!values->heads && !values->problem) site->heads = site->kv_heads = query->llm.num_heads;
    if (query->llm.kv_heads && !values->kv_heads && site->heads) site->kv_heads = query->llm.kv_heads;
    return status;
}

static attn_status fill_site(const struct values *values, struct llm_query *query, attn_layer_options *site,
                             attn_error *error)
{
    attn_status status = check_options(values, error);
    if (status) return status;
    if (values->problem) {
        status = site_from_problem(values->problem, site, error);
        site->size = sizeof *site;
    }
    if (!status) status = context_site(&values->context, site, error);
    /* Orders of domain llm depend on the heads, so none are made up there. */
    int made_up = site->domain == ATTN_DOMAIN_DIFFUSION ? 1 : 0;
    if (values->heads || !site->heads) site->heads = values->heads ? values->heads : made_up;
    if (values->head_size || !site->head_dim) site->head_dim = values->head_size ? values->head_size : 128;
    if (values->kv_heads) site->kv_heads = values->kv_heads;
    if (values->value_head_size) site->value_head_dim = values->value_head_size;
    if (values->causal) site->causal = 1;
    site->pipeline = values->pipeline;
    site->model_backend = values->model_backend;
    if (values->dtype && !(site->dtype = attn_dtype_from_name(values->dtype)))
        status = cli_fail(error, ATTN_KIND_UNKNOWN_NAME,
                          "--dtype is '%s', which is no element type; 'attn docs dtypes' lists them",
                          values->dtype);
    for (size_t i = 0; !status && i < values->needs.count; i++)
        status = add_needs(values->needs.items[i], &site->needs, error);
    return status ? status : fill_query(values, query, site, error);
}

/* ---- walking ------------------------------------------------------------------------------------ */

/* Explains one role and returns its exit code. */
static int explain_role(attn_context *context, const attn_layer_options *site, json_t *roles)
{
    attn_error error = ATTN_ERROR_INIT;
    json_t *role = explain_begin(site);
    attn_status status = attn_explain(context, site, NULL, explain_collect, role, &error);
    if (site->domain == ATTN_DOMAIN_DIFFUSION) explain_mark_contract(role, context, site);
    if (!status && site->domain == ATTN_DOMAIN_LLM) explain_add_llm(role, context, site);
    report_json_error(role, error.kind ? &error : NULL);
    json_array_append_new(roles, role);
    return attn_kind_exit(error.kind);
}

static int explain_all(attn_context *context, const struct values *values, attn_layer_options *site)
{
    static const char *const usual[] = {"self", "cross"};
    const char *const *names = values->roles.count ? values->roles.items : usual;
    size_t count = values->roles.count ? values->roles.count : site->domain == ATTN_DOMAIN_DIFFUSION ? 2 : 1;
    json_t *roles = json_array();
    int code = CLI_OK;
    for (size_t i = 0; i < count; i++) {
        site->role = names[i];
        int one = explain_role(context, site, roles);
        if (code == CLI_OK) code = one;
    }
    if (values->json) {
        json_t *all = json_pack("{s:o}", "roles", roles);
        report_json_error(all, NULL);
        int printed = report_json(all);
        return printed != CLI_OK ? printed : code;
    }
    explain_print(roles, site);
    json_decref(roles);
    return code;
}

/* The canonical form of the configuration that is in force. */
static int show_config(const struct context_values *values, int json)
{
    attn_domain domain;
    attn_config *config;
    attn_error error = ATTN_ERROR_INIT;
    size_t bytes = 0;
    char *text = NULL;
    attn_status status = context_domain(values, &domain, &error);
    if (status) return report_failure_json(&error, json);
    status = context_config(values, &config, &error);
    if (!status) status = attn_config_domain_text(config, domain, NULL, 0, &bytes, &error);
    if (!status && !(text = malloc(bytes)))
        status = cli_fail(&error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the configuration's text");
    if (!status) status = attn_config_domain_text(config, domain, text, bytes, NULL, &error);
    if (!status) printf("%s\n", text);
    if (!status && !domain && attn_config_auto_by(config))
        report_note("auto was said by %s", attn_config_auto_by(config));
    free(text);
    attn_config_free(config);
    return status ? report_failure_json(&error, json) : CLI_OK;
}

static int explain_run(int argc, char **argv)
{
    struct values values = {0};
    struct llm_query query;
    attn_layer_options site = {.size = sizeof site};
    attn_context *context;
    attn_error error = ATTN_ERROR_INIT;
    int code = options_parse(&command_explain, argc, argv, &values, NULL);
    if (code != OPTIONS_GO_ON) return code;
    if (values.show_config) return show_config(&values.context, values.json);
    if (fill_site(&values, &query, &site, &error) || context_open(&values.context, NULL, &context, &error))
        return report_failure_json(&error, values.json);
    code = explain_all(context, &values, &site);
    attn_close(context);
    return code;
}

/* This command takes --role several times, so the shared row of that name stays out: a probe expands to 1 for
 * the field `role` and to 0 for every other. */
#define SECOND(a, b, ...) b
#define PROBED(...)       SECOND(__VA_ARGS__, 0, 0)
#define PROBE_role        0, 1
#define JOIN_(a, b)       a##b
#define JOIN(a, b)        JOIN_(a, b)
#define ROW_1(field, ...)
#define ROW_0(field, kind, ...) CONTEXT_ROW(struct values, kind, field, __VA_ARGS__)

static const struct option_row rows[] = {
    OPTION_ROW_TEXTS(struct values, roles, "role", NULL, "NAME",
                     "role of the attention site; may be repeated (default: self and cross)"),
    OPTION_ROW_INT(struct values, heads, "heads", NULL, "N", "query heads (default: 1)", 1, 1 << 20),
    OPTION_ROW_INT(struct values, kv_heads, "kv-heads", NULL, "N", "key and value heads (default: as heads)",
                   1, 1 << 20),
    OPTION_ROW_INT(struct values, head_size, "head-size", NULL, "N", "head size of q and k (default: 128)", 1,
                   1024),
    OPTION_ROW_INT(struct values, value_head_size, "value-head-size", NULL, "N",
                   "head size of v (default: as --head-size)", 1, 1024),
    OPTION_ROW_TEXT(struct values, dtype, "dtype", NULL, "NAME", "element type (default: not known yet)"),
    OPTION_ROW_FLAG(struct values, causal, "causal", NULL, "causal attention"),
    OPTION_ROW_TEXT(struct values, problem, "problem", "p", "STRING",
                    "heads, head sizes, dtype and features of a problem string"),
    OPTION_ROW_TEXTS(struct values, needs, "needs", NULL, "FEATURE,...", "features that calls will ask for"),
    OPTION_ROW_TEXT(struct values, pipeline, "pipeline", NULL, "CLASS",
                    "the model's pipeline class; some permit TRTLLM_ATTN as an automatic choice"),
    OPTION_ROW_TEXT(struct values, query, "query", NULL, "KEY[=VALUE],...|JSON",
                    "domain llm: what the layer and its cache are, as in use_mla,kv_cache_dtype=fp8;\n"
                    "'attn docs llm' lists the keys"),
    OPTION_ROW_TEXT(struct values, model_backend, "model-backend", NULL, "NAME",
                    "domain vision: the model's own wish for this layer"),
    OPTION_ROW_FLAG(struct values, show_config, "show-config", NULL,
                    "prints the configuration that is in force, in its canonical form, and stops"),
    OPTION_ROW_FLAG(struct values, json, "json", NULL, "one JSON object"),
    OPTION_ROW_HEADING("Choosing a backend"),
#define X(kind, field, ...) JOIN(ROW_, PROBED(PROBE_##field))(field, kind, __VA_ARGS__)
#include "options_context.def"
#undef X
    OPTION_ROW_END,
};

const struct cli_command command_explain = {
    .usage = "[OPTION]...",
    .text =
        "Resolves roles under a configuration and tells the whole walk: what was asked and by whom, which\n"
        "backend and implementation were chosen, and every reason against each other candidate. It runs\n"
        "the code that a program runs when it opens a layer. A refused role gives exit status 3.",
    .examples = "  attn explain\n"
                "  attn explain --role self --head-size 72 --dtype bf16\n"
                "  attn explain -b TORCH_SDPA --needs lse,mask_keep\n"
                "  attn explain -dac '{\"default\": \"FLASH_ATTN\", \"per_role\": {\"cross\": "
                "\"TORCH_SDPA\"}}' --json\n"
                "  attn explain --problem b8h32kvh8s1x4096d128:bf16:causal\n"
                "  attn explain --facts preset:b200 --pipeline WanPipeline\n"
                "  attn explain --diffusion-attention-config.per_role.cross SAGE_ATTN_3 --facts preset:b200\n"
                "  attn explain -b TRTLLM_ATTN --show-config\n"
                "  attn explain --domain llm --query head_size=576,use_mla --facts preset:b200\n"
                "  attn explain --domain llm --attention-backend FLASHINFER -ac.use_trtllm_attention 0 "
                "--facts preset:b200\n"
                "  attn explain --domain vision --mm-attention-backend fa3 --facts preset:b200\n",
    .options = rows,
    .run = explain_run,
};
