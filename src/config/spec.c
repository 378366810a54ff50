/* spec.c: the sources of a configuration become one. */
#include "config/spec.h"

#include "core/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define BACKEND_FLAG "--diffusion-attention-backend"
#define CONFIG_FLAG  "--diffusion-attention-config"
#define TOPK_FLAG    "--fastvideo-vsa-topk"

bool attn_is_auto(const char *name)
{
    return !strcasecmp(name, "auto");
}

const char *attn_spec_backend(const json_t *spec)
{
    return json_string_value(json_object_get(spec, "backend"));
}

static attn_status no_memory(attn_error *error)
{
    return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY,
                     "no memory for the configuration; free some and try again");
}

/* ---- the builder -------------------------------------------------------------------------------- */

attn_status attn_config_new(attn_config **config, attn_error *error)
{
    if (!config)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "config is NULL; pass the address of a pointer");
    *config = calloc(1, sizeof **config);
    return *config ? ATTN_OK : no_memory(error);
}

void attn_config_free(attn_config *c)
{
    if (!c) return;
    free(c->flag_backend);
    free(c->environment);
    json_decref(c->json);
    json_decref(c->dotted);
    json_decref(c->default_spec);
    json_decref(c->roles);
    free(c->llm_flag);
    json_decref(c->llm_tree);
    free(c->vision_flag);
    free(c->kv_layout);
    json_decref(c->warnings);
    free(c);
}

static attn_status no_config(attn_error *error)
{
    return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                     "config, or a path or value that is required, is NULL; pass it");
}

attn_status attn_config_keep(attn_config *c, char **place, const char *text, attn_error *error)
{
    char *copy = text ? strdup(text) : NULL;
    c->normalised = false;
    if (text && !copy) return no_memory(error);
    free(*place);
    *place = copy;
    return ATTN_OK;
}

attn_status attn_config_set_backend(attn_config *c, const char *name, attn_error *error)
{
    if (!c) return no_config(error);
    return attn_config_keep(c, &c->flag_backend, name, error);
}

attn_status attn_config_set_environment(attn_config *c, const char *value, attn_error *error)
{
    if (!c) return no_config(error);
    return attn_config_keep(c, &c->environment, value, error);
}

attn_status attn_config_copy(const attn_config *c, attn_config **copy, attn_error *error)
{
    ATTN_TRY(attn_config_new(copy, error));
    attn_status status = attn_config_set_backend(*copy, c->flag_backend, error);
    if (!status) status = attn_config_set_environment(*copy, c->environment, error);
    if (!status) status = attn_config_keep(*copy, &(*copy)->llm_flag, c->llm_flag, error);
    if (!status) status = attn_config_keep(*copy, &(*copy)->vision_flag, c->vision_flag, error);
    (*copy)->json = c->json ? json_deep_copy(c->json) : NULL;
    (*copy)->dotted = c->dotted ? json_deep_copy(c->dotted) : NULL;
    (*copy)->llm_tree = c->llm_tree ? json_deep_copy(c->llm_tree) : NULL;
    (*copy)->warnings = c->warnings ? json_deep_copy(c->warnings) : NULL;
    (*copy)->json_from_file = c->json_from_file;
    (*copy)->has_topk = c->has_topk;
    (*copy)->topk = c->topk;
    if (!status && ((c->json && !(*copy)->json) || (c->dotted && !(*copy)->dotted) ||
                    (c->llm_tree && !(*copy)->llm_tree) || (c->warnings && !(*copy)->warnings)))
        status = no_memory(error);
    if (!status) return ATTN_OK;
    attn_config_free(*copy);
    *copy = NULL;
    return status;
}

/* What a file says and what a flag says are two ways to say the same thing. */
static attn_status twice(const char *flag, attn_error *error)
{
    return attn_fail(error, ATTN_KIND_MUTUALLY_EXCLUSIVE,
                     "the configuration file has diffusion_attention_config and %s was given too; say it all "
                     "in one of them",
                     flag);
}

static attn_status load_json(const char *what, const char *text, json_t **root, attn_error *error)
{
    json_error_t at;
    *root = json_loads(text, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &at);
    if (*root) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_SYNTAX, "%.120s is not JSON at line %d, column %d: %.160s", what,
                     at.line, at.column, at.text);
}

attn_status attn_config_set_json(attn_config *c, const char *text, attn_error *error)
{
    json_t *root = NULL;
    if (!c) return no_config(error);
    if (text && c->json_from_file) return twice(CONFIG_FLAG, error);
    if (text) ATTN_TRY(load_json(CONFIG_FLAG, text, &root, error));
    json_decref(c->json);
    c->json = root;
    c->normalised = false;
    return ATTN_OK;
}

attn_status attn_config_set_path(attn_config *c, const char *path, const char *value, attn_error *error)
{
    if (!c || !path || !value) return no_config(error);
    if (c->json_from_file) return twice(CONFIG_FLAG ".PATH", error);
    json_t *dotted = c->dotted ? c->dotted : json_object();
    if (!dotted) return no_memory(error);
    attn_status status = attn_config_add_path(dotted, path, value, error);
    if (!c->dotted && status) json_decref(dotted);
    if (!status) c->dotted = dotted;
    c->normalised = c->normalised && status;
    return status;
}

attn_status attn_config_set_vsa_topk(attn_config *c, int64_t topk, attn_error *error)
{
    if (!c) return no_config(error);
    if (topk < 1)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         TOPK_FLAG " (fastvideo_vsa_topk) is %" PRId64 "; it is at least 1", topk);
    c->has_topk = true;
    c->topk = topk;
    c->normalised = false;
    return ATTN_OK;
}

/* ---- files -------------------------------------------------------------------------------------- */

/* Values of a file, committed only when all of it has been read. */
typedef struct file_values {
    const char *backend, *llm_backend, *vision_backend;
    json_t *config, *llm_config;
    json_t *topk;
} file_values;

typedef enum file_type { FILE_TEXT, FILE_WHOLE, FILE_TREE } file_type;

static const struct file_key {
    const char *key;
    file_type type;
    size_t offset;
} file_keys[] = {
    {"diffusion_attention_backend", FILE_TEXT, offsetof(file_values, backend)},
    {"diffusion_attention_config", FILE_TREE, offsetof(file_values, config)},
    {"fastvideo_vsa_topk", FILE_WHOLE, offsetof(file_values, topk)},
    {"attention_backend", FILE_TEXT, offsetof(file_values, llm_backend)},
    {"attention_config", FILE_TREE, offsetof(file_values, llm_config)},
    {"mm_attention_backend", FILE_TEXT, offsetof(file_values, vision_backend)},
};
enum { FILE_KEYS = sizeof file_keys / sizeof *file_keys };

static attn_status unknown_file_key(const char *path, const char *key, attn_error *error)
{
    const char *words[FILE_KEYS];
    char list[256] = "";
    for (int i = 0; i < FILE_KEYS; i++) {
        size_t used = strlen(list);
        words[i] = file_keys[i].key;
        snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "", words[i]);
    }
    const char *near = attn_nearest(key, words, FILE_KEYS);
    return attn_fail(error, ATTN_KIND_UNKNOWN_OR_MISSING_KEY,
                     "%.120s: '%.60s' is no known key;%s%s%s the keys are %s", path, key,
                     near ? " did you mean " : "", near ? near : "", near ? "?" : "", list);
}

static attn_status read_file_key(file_values *v, const char *path, const char *key, json_t *value,
                                 attn_error *error)
{
    for (int i = 0; i < FILE_KEYS; i++) {
        if (strcmp(file_keys[i].key, key)) continue;
        void *place = (char *)v + file_keys[i].offset;
        bool text = file_keys[i].type == FILE_TEXT, whole = file_keys[i].type == FILE_WHOLE;
        if ((text && !json_is_string(value)) || (whole && !json_is_integer(value)))
            return attn_fail(error, ATTN_KIND_INVALID_TYPE, "%.120s: %s is %s; it is a %s", path, key,
                             attn_json_type(value), text ? "string" : "whole number");
        if (text)
            *(const char **)place = json_string_value(value);
        else
            *(json_t **)place = value;
        return ATTN_OK;
    }
    return unknown_file_key(path, key, error);
}

static attn_status commit_llm(attn_config *c, const file_values *v, attn_error *error)
{
    attn_status status = ATTN_OK;
    if (v->llm_backend) status = attn_config_set_option(c, "attention-backend", v->llm_backend, error);
    if (!status && v->vision_backend)
        status = attn_config_set_option(c, "mm-attention-backend", v->vision_backend, error);
    if (status || !v->llm_config) return status;
    char *text = json_dumps(v->llm_config, JSON_ENCODE_ANY);
    status = text ? attn_config_set_option(c, "attention-config", text, error) : no_memory(error);
    free(text);
    return status;
}

static attn_status commit_file(attn_config *c, const file_values *v, attn_error *error)
{
    if (v->config && (c->json || c->dotted)) return twice(CONFIG_FLAG, error);
    if (v->topk) ATTN_TRY(attn_config_set_vsa_topk(c, json_integer_value(v->topk), error));
    if (v->backend) ATTN_TRY(attn_config_set_backend(c, v->backend, error));
    ATTN_TRY(commit_llm(c, v, error));
    if (!v->config) return ATTN_OK;
    c->json = json_incref(v->config);
    c->json_from_file = true;
    c->normalised = false;
    return ATTN_OK;
}

static attn_status read_file_root(attn_config *c, const char *path, json_t *root, attn_error *error)
{
    file_values v = {0};
    const char *key;
    json_t *value;
    if (!json_is_object(root))
        return attn_fail(error, ATTN_KIND_INVALID_TYPE, "%.160s holds %s; it holds an object", path,
                         attn_json_type(root));
    json_object_foreach(root, key, value)
    {
        ATTN_TRY(read_file_key(&v, path, key, value, error));
    }
    return commit_file(c, &v, error);
}

attn_status attn_config_load_file(attn_config *c, const char *path, attn_error *error)
{
    json_t *root;
    if (!c || !path) return no_config(error);
    ATTN_TRY(attn_json_load_file("configuration", path, &root, error));
    attn_status status = read_file_root(c, path, root, error);
    json_decref(root);
    return status;
}

/* ---- normalising -------------------------------------------------------------------------------- */

static attn_status set_default(attn_config *c, const char *name, attn_error *error)
{
    c->default_spec = json_pack("{ss}", "backend", name);
    return c->default_spec ? ATTN_OK
                           : attn_fail(error, ATTN_KIND_INVALID_VALUE, "the backend name is not UTF-8 text");
}

static attn_status apply_flag(attn_config *c, attn_error *error)
{
    if (!c->flag_backend) return ATTN_OK;
    if (c->default_spec)
        return attn_fail(error, ATTN_KIND_MUTUALLY_EXCLUSIVE,
                         BACKEND_FLAG " (%.60s) and " CONFIG_FLAG
                                      ".default.backend (%.60s) say the same thing; give one of "
                                      "them",
                         c->flag_backend, attn_spec_backend(c->default_spec));
    if (!attn_is_auto(c->flag_backend)) return set_default(c, c->flag_backend, error);
    c->auto_by = BACKEND_FLAG;
    return ATTN_OK;
}

static attn_status apply_topk(attn_config *c, attn_error *error)
{
    const char *backend = c->default_spec ? attn_spec_backend(c->default_spec) : "auto";
    if (!c->has_topk) return ATTN_OK;
    if (!attn_block_owned("fastvideo_vsa_topk", backend))
        return attn_fail(error, ATTN_KIND_BLOCK_BACKEND_MISMATCH,
                         TOPK_FLAG " was given but the default backend is %.60s; it needs a default of %s",
                         backend, attn_block_owners("fastvideo_vsa_topk"));
    json_object_set_new(c->default_spec, "fastvideo_vsa_topk", json_integer(c->topk));
    return ATTN_OK;
}

static attn_status apply_environment(attn_config *c, attn_error *error)
{
    const char *value = c->environment;
    if (c->default_spec || c->auto_by || !value || !value[strspn(value, " \t\r\n")] || attn_is_auto(value))
        return ATTN_OK;
    c->from_environment = true;
    return set_default(c, value, error);
}

attn_status attn_config_normalise(attn_config *c, attn_error *error)
{
    if (c->normalised) return ATTN_OK;
    json_decref(c->default_spec);
    json_decref(c->roles);
    c->default_spec = NULL;
    c->auto_by = NULL;
    c->from_environment = false;
    c->roles = json_object();
    if (!c->roles) return no_memory(error);
    json_t *root = c->dotted ? c->dotted : c->json;
    if (root && !json_is_null(root)) ATTN_TRY(attn_config_read_root(c, root, error));
    ATTN_TRY(apply_flag(c, error));
    ATTN_TRY(apply_topk(c, error));
    ATTN_TRY(apply_environment(c, error));
    ATTN_TRY(attn_llm_settings_read(&c->llm, c->llm_tree, c->llm_flag, error));
    c->normalised = true;
    return ATTN_OK;
}

const char *attn_config_auto_by(attn_config *c)
{
    return c && !attn_config_normalise(c, NULL) && !c->default_spec ? c->auto_by : NULL;
}

/* root is taken; NULL: there was no memory for it. */
static attn_status give_text(json_t *root, char *text, size_t bytes, size_t *needed, attn_error *error)
{
    char *dump = root ? json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(15)) : NULL;
    json_decref(root);
    if (!dump) return no_memory(error);
    if (needed) *needed = strlen(dump) + 1;
    if (text && bytes) snprintf(text, bytes, "%s", dump);
    free(dump);
    return ATTN_OK;
}

attn_status attn_config_text(attn_config *c, char *text, size_t bytes, size_t *needed, attn_error *error)
{
    if (!c) return no_config(error);
    ATTN_TRY(attn_config_normalise(c, error));
    json_t *root = json_pack("{sO? sO}", "default", c->default_spec, "per_role", c->roles);
    if (root && c->auto_by && !c->default_spec)
        json_object_set_new(root, "default", json_pack("{ss}", "backend", "auto"));
    return give_text(root, text, bytes, needed, error);
}

/* ---- domain llm and vision ---------------------------------------------------------------------- */

attn_status attn_config_llm_hash(attn_config *c, uint64_t *hash, attn_error *error)
{
    if (!c || !hash) return no_config(error);
    ATTN_TRY(attn_config_normalise(c, error));
    *hash = attn_llm_settings_hash(&c->llm);
    return ATTN_OK;
}

static json_t *domain_root(const attn_config *c, attn_domain domain)
{
    if (domain == ATTN_DOMAIN_LLM) return attn_llm_settings_json(&c->llm);
    return json_pack("{ss?}", "mm_attention_backend", c->vision_flag);
}

attn_status attn_config_domain_text(attn_config *c, attn_domain domain, char *text, size_t bytes,
                                    size_t *needed, attn_error *error)
{
    if (domain == ATTN_DOMAIN_DIFFUSION) return attn_config_text(c, text, bytes, needed, error);
    if (!c) return no_config(error);
    ATTN_TRY(attn_config_normalise(c, error));
    return give_text(domain_root(c, domain), text, bytes, needed, error);
}
