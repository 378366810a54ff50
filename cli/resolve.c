/* resolve.c: attn resolve, selection in bulk: one question a line in, one answer a line out. */
#include <attn/attn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "options_context.h"
#include "report.h"
#include "resolve_llm.h"

struct values {
    struct context_values context; /* its domain only */
    attn_domain domain;
    const char *jsonl;
    int reasons;
};

/* One line: what it asks, and what is needed to answer it. */
struct question {
    json_t *root;
    attn_config *config;
    attn_facts *facts;
    attn_context *context;
    json_t *reasons; /* NULL: not asked for */
    attn_domain domain;
};

/* ---- what a line may hold ----------------------------------------------------------------------- */

#define TYPE(type) (1u << JSON_##type)
#define TYPE_BOOL  (TYPE(TRUE) | TYPE(FALSE))
#define TYPE_ANY   (~0u)

/* Every key and the JSON types that it takes. Tables of vectors carry what they expect beside the question;
 * those keys are known and not read. */
static const struct key_row {
    const char *object, *name;
    unsigned types;
    const char *words;
} key_rows[] = {
    {"", "id", TYPE_ANY, "anything"},
    {"", "facts", TYPE(OBJECT) | TYPE(STRING) | TYPE(NULL), "an object, a text or null"},
    {"", "config", TYPE(OBJECT) | TYPE(NULL), "an object or null"},
    {"", "query", TYPE(OBJECT), "an object"},
    {"", "group", TYPE_ANY, "anything"},
    {"", "expect", TYPE_ANY, "anything"},
    {"", "contested", TYPE_ANY, "anything"},
    {"", "upstream", TYPE_ANY, "anything"},
    {"", "derived", TYPE_ANY, "anything"},
    {"", "basis", TYPE_ANY, "anything"},
    {"config", "flag_backend", TYPE(STRING) | TYPE(NULL), "a text or null"},
    {"config", "flag_config", TYPE_ANY, "anything"},
    {"config", "dotted", TYPE(OBJECT) | TYPE(NULL), "an object of texts or null"},
    {"config", "env", TYPE(STRING) | TYPE(NULL), "a text or null"},
    {"config", "flag_vsa_topk", TYPE(INTEGER) | TYPE(NULL), "a whole number or null"},
    {"query", "role", TYPE(STRING), "a text"},
    {"query", "role_category", TYPE(STRING) | TYPE(NULL), "a text or null"},
    {"query", "head_size", TYPE(INTEGER) | TYPE(NULL), "a whole number or null"},
    {"query", "allow_trtllm_default", TYPE_BOOL, "true or false"},
    {"query", "mode", TYPE(STRING) | TYPE(NULL), "a text or null"},
};

#define KEY_ROWS (sizeof key_rows / sizeof *key_rows)

static const char *type_name(const json_t *value)
{
    static const char *const names[] = {"an object",     "an array", "a text", "a whole number",
                                        "a real number", "true",     "false",  "null"};
    return names[json_typeof(value)];
}

static attn_status unknown_key(const char *object, const char *key, attn_error *error)
{
    const char *names[KEY_ROWS + 1] = {NULL};
    char list[256] = "";
    size_t count = 0;
    for (size_t i = 0; i < KEY_ROWS; i++) {
        if (strcmp(key_rows[i].object, object) != 0) continue;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", count ? ", " : "", key_rows[i].name);
        names[count++] = key_rows[i].name;
    }
    const char *near = cli_nearest(key, names);
    return cli_fail(error, ATTN_KIND_UNKNOWN_OR_MISSING_KEY,
                    "%s has an unknown key '%.80s'%s%s%s; its keys are %s", *object ? object : "the line",
                    key, near ? ", did you mean '" : "", near ? near : "", near ? "'" : "", list);
}

/* The keys of one object; "" is the line itself. */
static attn_status check_keys(const char *object, json_t *value, attn_error *error)
{
    const char *key;
    json_t *item;
    json_object_foreach(value, key, item)
    {
        size_t i = 0;
        while (i < KEY_ROWS && (strcmp(key_rows[i].object, object) || strcmp(key_rows[i].name, key))) i++;
        if (i == KEY_ROWS) return unknown_key(object, key, error);
        if (!(key_rows[i].types & 1u << json_typeof(item)))
            return cli_fail(error, ATTN_KIND_INVALID_TYPE, "%s%s%s is %s; expected %s", object,
                            *object ? "." : "", key, type_name(item), key_rows[i].words);
    }
    return ATTN_OK;
}

static attn_status check_line(json_t *root, attn_domain domain, attn_error *error)
{
    if (!json_is_object(root))
        return cli_fail(error, ATTN_KIND_INVALID_TYPE,
                        "the line is %s; expected an object with id, facts, config and query",
                        type_name(root));
    attn_status status = check_keys("", root, error);
    if (domain != ATTN_DOMAIN_DIFFUSION) return status;
    if (!status) status = check_keys("config", json_object_get(root, "config"), error);
    return status ? status : check_keys("query", json_object_get(root, "query"), error);
}

/* ---- reading a question ------------------------------------------------------------------------- */

static const char *text_at(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static void collect(void *user, const attn_trace *trace)
{
    if (trace->event != ATTN_TRACE_REASON) return;
    json_array_append_new(user, json_pack("{s:s*, s:s*, s:s, s:s*}", "backend", trace->backend,
                                          "implementation", trace->implementation, "kind",
                                          attn_kind_name(trace->kind), "text", trace->text));
}

static attn_status set_json(attn_config *config, const json_t *flag, attn_error *error)
{
    if (!flag || json_is_null(flag)) return ATTN_OK;
    char *text = json_dumps(flag, JSON_ENCODE_ANY);
    attn_status status = text ? attn_config_set_json(config, text, error)
                              : cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for flag_config");
    free(text);
    return status;
}

static attn_status set_paths(attn_config *config, json_t *dotted, attn_error *error)
{
    const char *path;
    json_t *value;
    json_object_foreach(dotted, path, value)
    {
        if (!json_is_string(value))
            return cli_fail(error, ATTN_KIND_INVALID_TYPE,
                            "config.dotted.%.80s is %s; expected a text, the value as it is typed", path,
                            type_name(value));
        attn_status status = attn_config_set_path(config, path, json_string_value(value), error);
        if (status) return status;
    }
    return ATTN_OK;
}

static attn_status read_config(struct question *q, attn_error *error)
{
    json_t *config = json_object_get(q->root, "config"), *topk = json_object_get(config, "flag_vsa_topk");
    attn_status status = attn_config_new(&q->config, error);
    if (!status) status = attn_config_set_backend(q->config, text_at(config, "flag_backend"), error);
    /* The configuration is the line's whole: without "env" the variable counts as unset, whatever it holds.
     */
    const char *env = text_at(config, "env");
    if (!status) status = attn_config_set_environment(q->config, env ? env : "", error);
    if (!status) status = set_json(q->config, json_object_get(config, "flag_config"), error);
    if (!status) status = set_paths(q->config, json_object_get(config, "dotted"), error);
    if (!status && json_is_integer(topk))
        status = attn_config_set_vsa_topk(q->config, json_integer_value(topk), error);
    return status;
}

/* Facts are an object, or text that names a file or a preset; none means this machine. */
static attn_status read_facts(struct question *q, attn_error *error)
{
    json_t *facts = json_object_get(q->root, "facts");
    if (!facts || json_is_null(facts)) return ATTN_OK;
    if (json_is_string(facts)) return attn_facts_load(json_string_value(facts), &q->facts, error);
    char *text = json_dumps(facts, JSON_ENCODE_ANY);
    attn_status status = text ? attn_facts_parse(text, &q->facts, error)
                              : cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for facts");
    free(text);
    return status;
}

static attn_status read_mode(const json_t *query, int32_t *mode, attn_error *error)
{
    static const char *const modes[] = {"select", "capability", "construct", NULL};
    const char *word = text_at(query, "mode");
    *mode = ATTN_RESOLVE_SELECT;
    for (int32_t i = 0; word && modes[i]; i++) {
        if (strcmp(modes[i], word)) continue;
        *mode = i;
        return ATTN_OK;
    }
    return word ? cli_fail(error, ATTN_KIND_INVALID_VALUE,
                           "mode is '%s'; it is select, capability or construct", word)
                : ATTN_OK;
}

/* A line without facts is about this machine, with its modules and what the environment says of them. */
static attn_status open_question(struct question *q, attn_error *error)
{
    attn_options options = {.size = sizeof options,
                            .flags = q->facts ? ATTN_OPEN_IGNORE_ENV : 0,
                            .settings = q->config,
                            .facts = q->facts,
                            .module_path = q->facts ? "" : NULL};
    return attn_open(&options, &q->context, error);
}

/* A line of domain llm or vision. */
static attn_status answer_domain(struct question *q, json_t *out, attn_error *error)
{
    attn_status status = check_line(q->root, q->domain, error);
    if (!status) status = read_facts(q, error);
    if (!status) status = attn_config_new(&q->config, error);
    if (!status)
        status = resolve_domain_config(q->domain, json_object_get(q->root, "config"), q->config, error);
    if (!status) status = open_question(q, error);
    if (status) {
        resolve_domain_nothing(q->domain, out);
        return status;
    }
    return resolve_domain(q->context, q->domain, json_object_get(q->root, "query"), out, q->reasons, error);
}

static attn_status answer(struct question *q, attn_resolution *resolution, attn_error *error)
{
    json_t *query = json_object_get(q->root, "query"), *head = json_object_get(query, "head_size");
    attn_query ask = {.size = sizeof ask,
                      .role = text_at(query, "role"),
                      .category = text_at(query, "role_category"),
                      .head_size = json_is_integer(head) ? json_integer_value(head) : -1,
                      .permit_trtllm = json_is_true(json_object_get(query, "allow_trtllm_default"))};
    attn_status status = check_line(q->root, q->domain, error);
    if (!status) status = read_mode(query, &ask.mode, error);
    if (!status) status = read_facts(q, error);
    if (!status) status = read_config(q, error);
    if (!status) status = open_question(q, error);
    if (status) return status;
    return attn_resolve(q->context, &ask, resolution, q->reasons ? collect : NULL, q->reasons, error);
}

static void add_answer(json_t *out, const attn_resolution *r)
{
    json_t *table = *r->handover ? json_loads(r->handover, 0, NULL) : json_null();
    json_object_set_new(out, "backend", json_string(r->backend));
    json_object_set_new(out, "log_name", json_string(r->log_name));
    json_object_set_new(out, "source", json_string(r->source));
    json_object_set_new(out, "kwargs", table ? table : json_null());
    json_object_set_new(out, "supports_attention_mask", json_boolean(r->supports_mask));
    json_object_set_new(out, "reason", json_string(r->reason));
}

static void add_nothing(json_t *out)
{
    static const char *const keys[] = {"backend", "log_name", "source", "kwargs", "supports_attention_mask",
                                       "reason"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) json_object_set_new(out, keys[i], json_null());
}

/* ---- lines -------------------------------------------------------------------------------------- */

#define LINE_MAX_BYTES ((size_t)16 << 20)
#define LINE_FLAGS     (JSON_REJECT_DUPLICATES | JSON_DECODE_ANY)

struct line {
    char *text; /* not terminated: a line may hold a zero byte, which is an error of its syntax */
    size_t length, room;
};

enum line_end { LINE_READ, LINE_LAST, LINE_TOO_LONG, LINE_FAILED };

static int line_grow(struct line *line)
{
    size_t room = line->room ? 2 * line->room : 4096;
    char *text = realloc(line->text, room);
    if (!text) return 0;
    line->text = text;
    line->room = room;
    return 1;
}

/* Reads a line up to its end or the file's; errno tells of LINE_FAILED. */
static enum line_end line_read(FILE *file, struct line *line)
{
    int c = EOF;
    line->length = 0;
    while ((c = getc(file)) != EOF && c != '\n') {
        if (line->length == LINE_MAX_BYTES) return LINE_TOO_LONG;
        if (line->length == line->room && !line_grow(line)) return LINE_FAILED;
        line->text[line->length++] = (char)c;
    }
    if (c == EOF && ferror(file)) return LINE_FAILED;
    return c == EOF ? LINE_LAST : LINE_READ;
}

static int line_is_blank(const struct line *line)
{
    size_t i = 0;
    while (i < line->length && strchr(" \t\r", line->text[i]) && line->text[i]) i++;
    return i == line->length;
}

/* Answers one line and prints it; a bad line is an answer with an error. */
static int resolve_line(const struct line *line, int number, const struct values *values)
{
    json_error_t at;
    attn_error error = ATTN_ERROR_INIT;
    attn_resolution resolution = {.size = sizeof resolution};
    struct question q = {.root = json_loadb(line->text, line->length, LINE_FLAGS, &at),
                         .domain = values->domain};
    json_t *out = json_object();
    int diffusion = q.domain == ATTN_DOMAIN_DIFFUSION;
    json_object_set_new(out, "id", json_null()); /* these two stand first */
    json_object_set_new(out, "ok", json_false());
    q.reasons = values->reasons ? json_array() : NULL;
    if (q.root && diffusion)
        answer(&q, &resolution, &error);
    else if (q.root)
        answer_domain(&q, out, &error);
    else
        cli_fail(&error, ATTN_KIND_SYNTAX, "line %d is not JSON at column %d: %s", number, at.column,
                 at.text);
    json_t *id = json_object_get(q.root, "id");
    json_object_set(out, "id", id ? id : json_null());
    json_object_set_new(out, "ok", json_boolean(!error.kind));
    if (!q.root && !diffusion) resolve_domain_nothing(q.domain, out);
    if (error.kind && diffusion)
        add_nothing(out);
    else if (diffusion)
        add_answer(out, &resolution);
    report_json_error(out, error.kind ? &error : NULL);
    if (q.reasons) json_object_set_new(out, diffusion ? "reasons" : "all_reasons", q.reasons);
    attn_close(q.context);
    attn_config_free(q.config);
    attn_facts_free(q.facts);
    json_decref(q.root);
    return report_json_line(out);
}

static int reading_stopped(const char *path, int number, enum line_end end, int reason)
{
    const char *name = strcmp(path, "-") ? path : "standard input";
    if (cli_interrupted()) return CLI_INTERRUPTED;
    if (end == LINE_TOO_LONG)
        report_error("%s: line %d has more than %zu MiB; a question is an object on one line", name, number,
                     LINE_MAX_BYTES >> 20);
    else
        report_error("%s: reading stopped in line %d: %s", name, number, strerror(reason));
    return CLI_RUNTIME;
}

static int resolve_file(FILE *file, const struct values *values)
{
    struct line line = {0};
    enum line_end end = LINE_READ;
    int code = CLI_OK, number = 0;
    while (code == CLI_OK && end == LINE_READ) {
        number++;
        end = line_read(file, &line);
        if (cli_interrupted() || end == LINE_TOO_LONG || end == LINE_FAILED)
            code = reading_stopped(values->jsonl, number, end, errno);
        else if (!line_is_blank(&line))
            code = resolve_line(&line, number, values);
    }
    free(line.text);
    return code;
}

static int resolve_run(int argc, char **argv)
{
    struct values values = {.jsonl = "-"};
    attn_error error = ATTN_ERROR_INIT;
    int code = options_parse(&command_resolve, argc, argv, &values, NULL);
    if (code != OPTIONS_GO_ON) return code;
    if (context_domain(&values.context, &values.domain, &error)) return report_failure(&error);
    FILE *file = strcmp(values.jsonl, "-") ? fopen(values.jsonl, "r") : stdin;
    if (!file) {
        if (cli_interrupted()) return CLI_INTERRUPTED;
        report_error("%s cannot be read: %s", values.jsonl, strerror(errno));
        return CLI_RUNTIME;
    }
    code = resolve_file(file, &values);
    if (file != stdin) fclose(file);
    return code;
}

static const struct option_row rows[] = {
    OPTION_ROW_TEXT(struct values, jsonl, "jsonl", NULL, "FILE",
                    "questions, one JSON object a line (default: -, stdin)"),
    OPTION_ROW_TEXT(struct values, context.domain, "domain", NULL, "NAME",
                    "diffusion (default), llm or vision: what the lines are about"),
    OPTION_ROW_FLAG(struct values, reasons, "reasons", NULL, "adds every reason against every other backend"),
    OPTION_ROW_END,
};

const struct cli_command command_resolve = {
    .usage = "[--domain NAME] [--jsonl FILE] [--reasons]",
    .text =
        "Resolves roles in bulk. A line holds {\"id\", \"facts\", \"config\", \"query\"}: facts are an "
        "object, a file's\n"
        "path, \"preset:NAME\" or left out for this machine; config has flag_backend, flag_config, "
        "dotted, env and\n"
        "flag_vsa_topk; query has role, role_category, head_size, allow_trtllm_default and mode. Each "
        "answer is one\n"
        "object a line; a question that cannot be answered, or has a key or a type that is not known, has "
        "ok false\n"
        "and its error, and the exit status stays 0. A line has at most 16 MiB.\n"
        "Domain llm: config has backend and the fields of --attention-config, query the keys of "
        "`attn explain --query`;\n"
        "the answer has what follows from the choice, and reasons of the candidates that were refused. "
        "Domain "
        "vision: config\n"
        "has mm_attention_backend, query has model_backend.",
    .examples = "  attn resolve --jsonl questions.jsonl\n"
                "  echo '{\"id\": 1, \"facts\": \"preset:b200\", \"query\": {\"role\": \"self\", "
                "\"head_size\": 128}}' | "
                "attn resolve\n"
                "  echo '{\"facts\": \"preset:b200\", \"query\": {\"head_size\": 576, \"use_mla\": true}}' | "
                "attn resolve --domain llm\n",
    .options = rows,
    .run = resolve_run,
};
