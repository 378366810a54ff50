/* plugin_new.c: writes the first file of a sparse plugin. Each form is a whole program: it builds, passes
 * `attn plugin check`, and what is to be replaced stands in one function. In a text, @ is the name. */
#include "plugin_new.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "cli.h"

static const char selector[] =
    "/* @.c: a sparse plugin that says which blocks of keys each block of queries sees; the library computes "
    "them.\n"
    " * This one keeps the first block and those near the diagonal. Parameters: near (blocks on each side, "
    "1),\n"
    " * block_q and block_k (rows and keys of a block, 64), which the library reads. */\n"
    "#include <attn/module.h>\n"
    "\n"
    "int attn_sparse_select(const attn_sparse_call *call, attn_block_map *map)\n"
    "{\n"
    "    const int64_t *shape = map->blocks->shape; /* samples, heads, query blocks, key blocks */\n"
    "    int64_t near = 1;\n"
    "    if (attn_params_known(call->params, \"near block_q block_k\", call->error)) return 1;\n"
    "    if (attn_params_int(call->params, \"near\", 0, shape[3], &near, call->error)) return 1;\n"
    "    for (int64_t b = 0; b < shape[0]; b++)\n"
    "        for (int64_t h = 0; h < shape[1]; h++)\n"
    "            for (int64_t i = 0; i < shape[2]; i++) {\n"
    "                int32_t *count, *list = attn_sparse_list(map, b, h, i, &count);\n"
    "                int64_t middle = i * shape[3] / shape[2]; /* ascending, without repetition */\n"
    "                list[(*count)++] = 0;\n"
    "                for (int64_t j = middle > near ? middle - near : 1; j <= middle + near && j < shape[3]; "
    "j++)\n"
    "                    list[(*count)++] = (int32_t)j;\n"
    "            }\n"
    "    return 0;\n"
    "}\n";

#define ROW                                                                                                  \
    "/* Keys [*first, *end) of row i: those at most `reach` away from its position, bottom-right when "      \
    "causal. */\n"                                                                                           \
    "static void keys_of(const attn_problem *p, int64_t i, int64_t reach, int64_t *first, int64_t *end)\n"   \
    "{\n"                                                                                                    \
    "    int64_t position = i + p->kv_len - p->q_len;\n"                                                     \
    "    if (!p->causal && p->q_len != p->kv_len) position = i * p->kv_len / p->q_len;\n"                    \
    "    *first = position > reach ? position - reach : 0;\n"                                                \
    "    *end = p->causal ? position + 1 : position + reach + 1;\n"                                          \
    "    if (*end > p->kv_len) *end = p->kv_len;\n"                                                          \
    "}\n"                                                                                                    \
    "\n"                                                                                                     \
    "/* One row, with the softmax as it goes. sum: head_dim floats. A row without keys gives 0. */\n"        \
    "static void row(const attn_sparse_call *call, int64_t b, int64_t h, int64_t i, int64_t reach, float "   \
    "*sum)\n"                                                                                                \
    "{\n"                                                                                                    \
    "    const attn_problem *p = call->problem;\n"                                                           \
    "    int64_t first, end, at_q = b * p->q_stride[0] + i * p->q_stride[1] + h * p->q_stride[2];\n"         \
    "    int64_t at_out = b * p->out_stride[0] + i * p->out_stride[1] + h * p->out_stride[2];\n"             \
    "    float most = -INFINITY, total = 0;\n"                                                               \
    "    keys_of(p, i, reach, &first, &end);\n"                                                              \
    "    for (int64_t d = 0; d < p->head_dim; d++) sum[d] = 0;\n"                                            \
    "    for (int64_t j = first; j < end; j++) {\n"                                                          \
    "        int64_t at_k = b * p->k_stride[0] + j * p->k_stride[1] + h * p->k_stride[2];\n"                 \
    "        int64_t at_v = b * p->v_stride[0] + j * p->v_stride[1] + h * p->v_stride[2];\n"                 \
    "        float score = 0;\n"                                                                             \
    "        for (int64_t d = 0; d < p->head_dim; d++)\n"                                                    \
    "            score += attn_load(p->dtype, call->q, at_q + d) * attn_load(p->dtype, call->k, at_k + "     \
    "d);\n"                                                                                                  \
    "        score *= (float)p->scale;\n"                                                                    \
    "        float higher = score > most ? score : most, shrink = expf(most - higher);\n"                    \
    "        float weight = expf(score - higher);\n"                                                         \
    "        most = higher;\n"                                                                               \
    "        total = total * shrink + weight;\n"                                                             \
    "        for (int64_t d = 0; d < p->head_dim; d++)\n"                                                    \
    "            sum[d] = sum[d] * shrink + weight * attn_load(p->dtype, call->v, at_v + d);\n"              \
    "    }\n"                                                                                                \
    "    for (int64_t d = 0; d < p->head_dim; d++)\n"                                                        \
    "        attn_store(p->dtype, call->out, at_out + d, total > 0 ? sum[d] / total : 0);\n"                 \
    "}\n"                                                                                                    \
    "\n"

static const char kernel[] =
    "/* @.c: a sparse plugin that computes its output: a row sees the keys at most `reach` away (parameter, "
    "128).\n"
    " * Right, short, slow. */\n"
    "#include <attn/module.h>\n"
    "#include <math.h>\n"
    "\n" ROW "struct job {\n"
    "    const attn_sparse_call *call;\n"
    "    int64_t reach;\n"
    "};\n"
    "\n"
    "static void task(void *arg, int64_t index, int32_t worker)\n"
    "{\n"
    "    const struct job *job = arg;\n"
    "    int64_t heads = job->call->problem->heads;\n"
    "    float sum[1024]; /* the largest head size that a plugin gets */\n"
    "    (void)worker;\n"
    "    for (int64_t i = 0; i < job->call->problem->q_len && !attn_call_cancelled(job->call->call); i++)\n"
    "        row(job->call, index / heads, index % heads, i, job->reach, sum);\n"
    "}\n"
    "\n"
    "int attn_sparse_forward(const attn_sparse_call *call)\n"
    "{\n"
    "    struct job job = {call, 128};\n"
    "    const attn_problem *p = call->problem;\n"
    "    if (attn_params_known(call->params, \"reach\", call->error)) return 1;\n"
    "    if (attn_params_int(call->params, \"reach\", 0, INT32_MAX, &job.reach, call->error)) return 1;\n"
    "    call->host->parallel_for(call->host, p->batch * p->heads, call->call->workers, task, &job);\n"
    "    return 0;\n"
    "}\n";

static const char cpp[] =
    "/* @.cpp: a sparse plugin in C++ that computes its output: a row sees the keys at most `reach` away "
    "(parameter,\n"
    " * 128). An exception must not leave a plugin: ATTN_GUARD_SPARSE turns one into a failure of the call. "
    "What\n"
    " * runs on other threads, through parallel_for, needs a guard of its own. */\n"
    "#include <attn/module.h>\n"
    "#include <math.h>\n"
    "#include <stdexcept>\n"
    "#include <vector>\n"
    "\n"
    "namespace\n"
    "{\n"
    "\n" ROW "int forward(const attn_sparse_call *call)\n"
    "{\n"
    "    const attn_problem *p = call->problem;\n"
    "    int64_t reach = 128;\n"
    "    if (attn_params_int(call->params, \"reach\", INT32_MIN, INT32_MAX, &reach, call->error)) return 1;\n"
    "    if (reach < 0) throw std::invalid_argument(\"reach is below 0\");\n"
    "    std::vector<float> sum(static_cast<size_t>(p->head_dim));\n"
    "    for (int64_t i = 0; i < p->batch * p->heads * p->q_len; i++)\n"
    "        row(call, i / p->q_len / p->heads, i / p->q_len % p->heads, i % p->q_len, reach, sum.data());\n"
    "    return 0;\n"
    "}\n"
    "\n"
    "} // namespace\n"
    "\n"
    "int attn_sparse_forward(const attn_sparse_call *call)\n"
    "{\n"
    "    ATTN_GUARD_SPARSE(call, return forward(call);)\n"
    "}\n";

static const struct form {
    const char *word, *ending, *compiler, *text;
} forms[] = {
    {"selector", "c", "cc", selector},
    {"kernel", "c", "cc", kernel},
    {"cpp", "cpp", "c++ -std=c++17", cpp},
};

static attn_status find_form(const char *word, const struct form **form, attn_error *error)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        *form = &forms[i];
        if (strcmp(word, forms[i].word) == 0) return ATTN_OK;
    }
    return cli_fail(error, ATTN_KIND_UNKNOWN_NAME, "--form is \"%.60s\"; expected " PLUGIN_NEW_FORMS, word);
}

/* The plugin is named by its file, and the library takes lib and attn_ off the front of that. */
static attn_status check_name(const char *name, attn_error *error)
{
    size_t n = strlen(name);
    int good = n > 0 && n <= 60 && isalpha((unsigned char)name[0]);
    for (size_t i = 0; i < n; i++) good = good && (isalnum((unsigned char)name[i]) || strchr("_-", name[i]));
    if (!good)
        return cli_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "a plugin cannot be called \"%.80s\"; expected a letter, then letters, digits, _ or -, "
            "at most 60 in all",
            name);
    if (strncmp(name, "lib", 3) && strncmp(name, "attn_", 5)) return ATTN_OK;
    return cli_fail(
        error, ATTN_KIND_INVALID_VALUE,
        "a plugin cannot be called \"%.80s\", as lib and attn_ at the front of a file's name are no "
        "part of a plugin's; leave them out",
        name);
}

/* A built-in backend wins over a plugin of its name, which could then never be chosen. */
static attn_status check_free(const char *name, attn_error *error)
{
    attn_context *context = NULL;
    attn_options options = {.size = sizeof options, .module_path = ""};
    attn_backend_info info = {.size = sizeof info};
    attn_status status = attn_open(&options, &context, error);
    for (size_t i = 0; !status && attn_backend_at(context, i, &info); i++)
        if (strcasecmp(info.name, name) == 0)
            status =
                cli_fail(error, ATTN_KIND_INVALID_VALUE,
                         "\"%s\" is a backend of the library, which wins over a plugin of that name; choose "
                         "another",
                         name);
    attn_close(context);
    return status;
}

static void write_text(FILE *file, const char *text, const char *name)
{
    for (const char *c = text; *c; c++) {
        if (*c == '@')
            fputs(name, file);
        else
            fputc(*c, file);
    }
}

static attn_status write_file(const char *path, const char *text, const char *name, attn_error *error)
{
    FILE *file = fopen(path, "wxe");
    if (!file && errno == EEXIST)
        return cli_fail(error, ATTN_KIND_IO, "%s is there already and stays as it is; choose another name",
                        path);
    if (!file) return cli_fail(error, ATTN_KIND_IO, "%s cannot be written: %s", path, strerror(errno));
    write_text(file, text, name);
    int failed = ferror(file), reason = errno;
    if (fclose(file)) failed = 1, reason = errno;
    if (!failed) return ATTN_OK;
    remove(path);
    return cli_fail(error, ATTN_KIND_IO, "%s cannot be written: %s", path, strerror(reason));
}

attn_status plugin_new(const char *name, const char *word, attn_error *error)
{
    const struct form *form = NULL;
    char path[80];
    attn_status status = find_form(word, &form, error);
    if (!status) status = check_name(name, error);
    if (!status) status = check_free(name, error);
    if (status) return status;
    snprintf(path, sizeof path, "%s.%s", name, form->ending);
    status = write_file(path, form->text, name, error);
    if (status) return status;
    printf("%s was written.\n\n"
           "  build  %s -O2 -fPIC -shared $(pkg-config --cflags attn) %s -o %s.so -lm\n"
           "  check  attn plugin check ./%s.so\n"
           "  use    attn run --module-path ./%s.so -b %s --problem b1h8s1024d64:bf16\n",
           path, form->compiler, path, name, name, name, name);
    return ATTN_OK;
}
