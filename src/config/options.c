/* options.c: one option as it stands on a command line, read by the law of its row. */
#include "config/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* path NULL: the option itself; else what stands after its first dot. */
typedef attn_status take_fn(attn_config *c, const char *path, const char *value, attn_error *error);

static attn_status load(const char *option, const char *text, json_t **root, attn_error *error)
{
    json_error_t at;
    *root = json_loads(text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &at);
    if (*root) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_SYNTAX, "--%s is not JSON at line %d, column %d: %.160s", option,
                     at.line, at.column, at.text);
}

static attn_status take_diffusion_backend(attn_config *c, const char *path, const char *value,
                                          attn_error *error)
{
    (void)path;
    return attn_config_set_backend(c, value, error);
}

static attn_status take_diffusion_config(attn_config *c, const char *path, const char *value,
                                         attn_error *error)
{
    return path ? attn_config_set_path(c, path, value, error) : attn_config_set_json(c, value, error);
}

static attn_status take_vsa_topk(attn_config *c, const char *path, const char *value, attn_error *error)
{
    char *end;
    (void)path;
    long long topk = strtoll(value, &end, 10);
    if (end == value || *end)
        return attn_fail(error, ATTN_KIND_INVALID_TYPE,
                         "--fastvideo-vsa-topk is '%.60s'; it is a whole number", value);
    return attn_config_set_vsa_topk(c, topk, error);
}

static attn_status take_llm_backend(attn_config *c, const char *path, const char *value, attn_error *error)
{
    (void)path;
    return attn_config_keep(c, &c->llm_flag, value, error);
}

static attn_status take_vision_backend(attn_config *c, const char *path, const char *value, attn_error *error)
{
    (void)path;
    return attn_config_keep(c, &c->vision_flag, value, error);
}

static attn_status make_tree(attn_config *c, attn_error *error)
{
    if (!c->llm_tree) c->llm_tree = json_object();
    if (!c->warnings) c->warnings = json_array();
    c->normalised = false;
    if (c->llm_tree && c->warnings) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the configuration");
}

static attn_status take_llm_config(attn_config *c, const char *path, const char *value, attn_error *error)
{
    json_t *root;
    ATTN_TRY(make_tree(c, error));
    if (path)
        return attn_llm_merge_path(c->llm_tree, path, value, attn_option_laws("attention-config"),
                                   c->warnings, error);
    ATTN_TRY(load("attention-config", value, &root, error));
    attn_status status = attn_llm_merge_json(c->llm_tree, root, c->warnings, error);
    json_decref(root);
    return status;
}

static const struct option_row {
    const char *name, *letters, *key;
    take_fn *take;
    unsigned laws;
    bool tree;
} options[] = {
#define X(name, letters, key, take, laws) {name, letters, key, take_##take, laws, sizeof letters > 1},
#define REPLACES                          ATTN_LAW_REPLACES
#define SUFFIXES                          ATTN_LAW_SUFFIXES
#define SPLITS                            ATTN_LAW_SPLITS
#include "config/options.def"
#undef X
};
enum { OPTIONS = sizeof options / sizeof *options };

unsigned attn_option_laws(const char *name)
{
    for (int i = 0; i < OPTIONS; i++)
        if (!strcmp(options[i].name, name)) return options[i].laws;
    return 0;
}

static attn_status unknown_option(const char *option, attn_error *error)
{
    const char *names[OPTIONS];
    char list[256] = "";
    for (int i = 0; i < OPTIONS; i++) {
        size_t used = strlen(list);
        names[i] = options[i].name;
        snprintf(list + used, sizeof list - used, "%s--%s", used ? ", " : "", names[i]);
    }
    const char *near = attn_nearest(option, names, OPTIONS);
    return attn_fail(error, ATTN_KIND_UNKNOWN_NAME, "no option is called '%.80s';%s%s%s there are %s", option,
                     near ? " did you mean " : "", near ? near : "", near ? "?" : "", list);
}

attn_status attn_config_set_option(attn_config *c, const char *option, const char *value, attn_error *error)
{
    char name[64];
    if (!c || !option || !value)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "config, option or value is NULL; pass all three");
    size_t length = strcspn(option, ".");
    if (length >= sizeof name) return unknown_option(option, error);
    snprintf(name, sizeof name, "%.*s", (int)length, option);
    for (char *p = name; *p; p++)
        if (*p == '_') *p = '-';
    const char *path = option[length] ? option + length + 1 : NULL;
    for (int i = 0; i < OPTIONS; i++) {
        bool named =
            !strcmp(options[i].name, name) || (*options[i].letters && !strcmp(options[i].letters, name));
        if (!named) continue;
        if (path && !options[i].tree)
            return attn_fail(error, ATTN_KIND_SYNTAX, "--%s takes a value, not the path '%.80s'",
                             options[i].name, path);
        return options[i].take(c, path, value, error);
    }
    return unknown_option(option, error);
}

const char *attn_config_warning_at(const attn_config *c, size_t index)
{
    return c ? json_string_value(json_array_get(c->warnings, index)) : NULL;
}
