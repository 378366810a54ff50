/* facts.c: facts as JSON text, and presets. */
#include "core/facts.h"

#include "core/json.h"
#include "core/text.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct package {
    const char *key, *name, *from;
} packages[] = {
#define X(key, name, from) {#key, name, from},
#include "core/packages.def"
#undef X
};

static const struct preset {
    const char *name, *platform;
    int major, minor;
    const char *device;
    int cudnn;
    int64_t xpu;
    const char *packages, *source;
} presets[] = {
#define X(name, platform, major, minor, device, cudnn, xpu, list, source)                                    \
    {name, platform, major, minor, device, cudnn, xpu, list, source},
#include "core/presets.def"
#undef X
};
enum { PRESETS = sizeof presets / sizeof *presets };

const char *attn_package_key(int package)
{
    return packages[package].key;
}

const char *attn_package_name(int package)
{
    return packages[package].name;
}

const char *attn_package_from(int package)
{
    return packages[package].from;
}

int attn_package_find(const char *key)
{
    for (int i = 0; i < ATTN_PACKAGES; i++)
        if (!strcmp(packages[i].key, key)) return i;
    return -1;
}

bool attn_facts_have(const attn_facts *facts, const char *key)
{
    int package = attn_package_find(key);
    return package >= 0 && facts->packages >> package & 1;
}

const char *attn_facts_arch(const attn_facts *facts, char *text, size_t bytes)
{
    bool cuda = !strcmp(facts->platform, "cuda");
    if (!facts->has_capability)
        snprintf(text, bytes, "%s of unknown capability", facts->platform);
    else if (cuda)
        snprintf(text, bytes, "sm_%d%d, capability %d.%d", facts->major, facts->minor, facts->major,
                 facts->minor);
    else
        snprintf(text, bytes, "%s, capability %d.%d", facts->platform, facts->major, facts->minor);
    return text;
}

/* ---- presets ------------------------------------------------------------------------------------ */

const char *attn_facts_preset_at(size_t index, const char **source)
{
    if (index >= PRESETS) return NULL;
    if (source) *source = presets[index].source;
    return presets[index].name;
}

static void fill_preset(attn_facts *f, const struct preset *p)
{
    char word[64];
    snprintf(f->platform, sizeof f->platform, "%s", p->platform);
    snprintf(f->device_name, sizeof f->device_name, "%s", p->device);
    f->has_capability = p->major >= 0;
    f->major = p->major;
    f->minor = p->minor;
    f->cudnn_version = p->cudnn;
    f->has_xpu_architecture = p->xpu != 0;
    f->xpu_architecture = p->xpu;
    for (const char *at = p->packages; *at; at += strcspn(at, " "), at += *at == ' ') {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(at, " "), at);
        int package = attn_package_find(word);
        if (package >= 0) f->packages |= (uint64_t)1 << package;
    }
}

static attn_status read_preset(const char *name, attn_facts *f, attn_error *error)
{
    const char *names[PRESETS];
    char list[256] = "";
    for (int i = 0; i < PRESETS; i++) {
        names[i] = presets[i].name;
        if (!strcmp(name, presets[i].name)) {
            fill_preset(f, &presets[i]);
            return ATTN_OK;
        }
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", presets[i].name);
    }
    const char *near = attn_nearest(name, names, PRESETS);
    return attn_fail(error, ATTN_KIND_UNKNOWN_NAME, "no preset has the name '%.60s';%s%s%s there are %s",
                     name, near ? " did you mean " : "", near ? near : "", near ? "?" : "", list);
}

/* ---- JSON --------------------------------------------------------------------------------------- */

static attn_status bad_type(const char *key, const char *expected, attn_error *error)
{
    return attn_fail(error, ATTN_KIND_INVALID_TYPE, "facts: %.60s has another type; it is %s", key, expected);
}

static attn_status read_text(const json_t *value, const char *key, char *to, size_t bytes, attn_error *error)
{
    if (!value || json_is_null(value)) return ATTN_OK;
    if (!json_is_string(value)) return bad_type(key, "a string", error);
    if (json_string_length(value) >= bytes)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "facts: %s is %zu bytes long; it has at most %zu",
                         key, json_string_length(value), bytes - 1);
    memcpy(to, json_string_value(value), json_string_length(value) + 1);
    return ATTN_OK;
}

static attn_status read_capability(const json_t *value, attn_facts *f, attn_error *error)
{
    json_int_t high = -1, low = -1;
    char after;
    if (!value || json_is_null(value)) return ATTN_OK;
    const json_t *major = json_array_get(value, 0), *minor = json_array_get(value, 1);
    if (json_array_size(value) == 2 && json_is_integer(major) && json_is_integer(minor))
        high = json_integer_value(major), low = json_integer_value(minor);
    else if (!json_is_string(value) ||
             sscanf(json_string_value(value), "%" JSON_INTEGER_FORMAT ".%" JSON_INTEGER_FORMAT "%c", &high,
                    &low, &after) != 2)
        return bad_type("compute_capability", "[major, minor], text such as \"9.0\", or null", error);
    if (high < 0 || high > 99 || low < 0 || low > 9)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "facts: compute_capability is [%" JSON_INTEGER_FORMAT ", %" JSON_INTEGER_FORMAT
                         "]; major is 0 to 99 and minor 0 to 9",
                         high, low);
    f->has_capability = true;
    f->major = (int32_t)high;
    f->minor = (int32_t)low;
    return ATTN_OK;
}

static void note_unknown(attn_facts *f, const char *key)
{
    const char *keys[ATTN_PACKAGES];
    for (int i = 0; i < ATTN_PACKAGES; i++) keys[i] = packages[i].key;
    const char *near = attn_nearest(key, keys, ATTN_PACKAGES);
    size_t used = strlen(f->unknown);
    snprintf(f->unknown + used, sizeof f->unknown - used, "%s%.40s%s%s%s", used ? ", " : "", key,
             near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}

static attn_status read_packages(json_t *value, attn_facts *f, attn_error *error)
{
    const char *key;
    json_t *there;
    if (!value || json_is_null(value)) return ATTN_OK;
    if (!json_is_object(value)) return bad_type("packages", "an object of booleans", error);
    json_object_foreach(value, key, there)
    {
        int package = attn_package_find(key);
        if (!json_is_boolean(there)) return bad_type(key, "a boolean", error);
        /* A package this version knows nothing of cannot change a choice, but it may be a slip. */
        if (package >= 0 && json_is_true(there)) f->packages |= (uint64_t)1 << package;
        if (package < 0) note_unknown(f, key);
    }
    return ATTN_OK;
}

/* ---- facts of domain llm: lists of words -------------------------------------------------------- */

static const char *const aiter_words[] = {
#define X(word, sentence) #word,
#include "core/aiter.def"
#undef X
};

static int find_aiter(const char *word)
{
    for (int i = 0; i < ATTN_AITER_WORDS; i++)
        if (!strcmp(aiter_words[i], word)) return i;
    return -1;
}

/* A list of words as a set of bits. */
static attn_status read_words(const json_t *list, const char *key, int (*find)(const char *), uint64_t *bits,
                              attn_error *error)
{
    size_t i;
    json_t *item;
    if (!list || json_is_null(list)) return ATTN_OK;
    if (!json_is_array(list)) return bad_type(key, "a list of words", error);
    json_array_foreach(list, i, item)
    {
        const char *word = json_string_value(item);
        int bit = word ? find(word) : -1;
        if (!word) return bad_type(key, "a list of words", error);
        if (bit < 0)
            return attn_fail(error, ATTN_KIND_UNKNOWN_NAME, "facts: %s has '%.60s'; its words are %s", key,
                             word,
                             find == find_aiter ? "found, mla, mha and vision"
                                                : "the names that `attn list --domain llm` prints");
        *bits |= (uint64_t)1 << bit;
    }
    return ATTN_OK;
}

static attn_status read_llm(const json_t *root, attn_facts *f, attn_error *error)
{
    uint64_t aiter = 0;
    ATTN_TRY(read_words(json_object_get(root, "aiter"), "aiter", find_aiter, &aiter, error));
    f->aiter = (uint32_t)aiter;
    return read_words(json_object_get(root, "missing"), "missing", attn_llm_find, &f->missing, error);
}

static json_t *words_of(uint64_t bits, const char *(*name)(int), int count)
{
    json_t *list = json_array();
    for (int i = 0; i < count; i++)
        if (bits >> i & 1) json_array_append_new(list, json_string(name(i)));
    return list;
}

static const char *aiter_name(int i)
{
    return aiter_words[i];
}

static const char *llm_name(int i)
{
    return attn_llm_names[i].name;
}

static attn_status check_keys(json_t *root, attn_error *error)
{
    static const char *const keys[] = {"platform", "compute_capability", "device_name",  "cudnn_version",
                                       "packages", "xpu_architecture",   "cuda_version", "aiter",
                                       "missing"};
    const char *key;
    json_t *value;
    json_object_foreach(root, key, value)
    {
        bool known = false;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) known = known || !strcmp(key, keys[i]);
        if (known) continue;
        const char *near = attn_nearest(key, keys, sizeof keys / sizeof *keys);
        return attn_fail(error, ATTN_KIND_UNKNOWN_OR_MISSING_KEY,
                         "facts have the unknown key '%.60s';%s%s%s the keys are platform, "
                         "compute_capability, device_name, "
                         "cudnn_version, packages, xpu_architecture, cuda_version, aiter, missing",
                         key, near ? " did you mean " : "", near ? near : "", near ? "?" : "");
    }
    return ATTN_OK;
}

static attn_status read_root(json_t *root, attn_facts *f, attn_error *error)
{
    /* What `attn info --json` prints has its facts under this key. */
    json_t *inner = json_object_get(root, "facts");
    if (inner) root = inner;
    if (!json_is_object(root)) return bad_type("the root", "an object", error);
    ATTN_TRY(check_keys(root, error));
    ATTN_TRY(
        read_text(json_object_get(root, "platform"), "platform", f->platform, sizeof f->platform, error));
    if (!strcmp(f->platform, "unspecified")) snprintf(f->platform, sizeof f->platform, "none");
    if (!*f->platform)
        return attn_fail(error, ATTN_KIND_UNKNOWN_OR_MISSING_KEY,
                         "facts have no platform; say cuda, rocm, npu, xpu, musa, "
                         "cpu or none");
    ATTN_TRY(read_text(json_object_get(root, "device_name"), "device_name", f->device_name,
                       sizeof f->device_name, error));
    ATTN_TRY(read_capability(json_object_get(root, "compute_capability"), f, error));
    ATTN_TRY(read_packages(json_object_get(root, "packages"), f, error));
    const json_t *cudnn = json_object_get(root, "cudnn_version"),
                 *xpu = json_object_get(root, "xpu_architecture");
    if (cudnn && !json_is_null(cudnn) && !json_is_integer(cudnn))
        return bad_type("cudnn_version", "a number", error);
    if (xpu && !json_is_null(xpu) && !json_is_integer(xpu))
        return bad_type("xpu_architecture", "a number", error);
    if (json_integer_value(cudnn) < 0 || json_integer_value(cudnn) > INT32_MAX)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "facts: cudnn_version is %" JSON_INTEGER_FORMAT
                         "; it is 0 or a number such as 90500",
                         json_integer_value(cudnn));
    const json_t *cuda = json_object_get(root, "cuda_version");
    if (cuda && !json_is_null(cuda) &&
        (!json_is_integer(cuda) || json_integer_value(cuda) < 0 || json_integer_value(cuda) > INT32_MAX))
        return bad_type("cuda_version", "a number such as 12080", error);
    f->cuda_version = (int32_t)json_integer_value(cuda);
    ATTN_TRY(read_llm(root, f, error));
    f->cudnn_version = (int32_t)json_integer_value(cudnn);
    f->has_xpu_architecture = json_is_integer(xpu);
    f->xpu_architecture = json_integer_value(xpu);
    return ATTN_OK;
}

static attn_status read_file(const char *path, attn_facts *f, attn_error *error)
{
    json_t *root;
    ATTN_TRY(attn_json_load_file("facts", path, &root, error));
    attn_status status = read_root(root, f, error);
    json_decref(root);
    return status;
}

static attn_status finish(attn_facts *f, attn_status status, attn_facts **facts)
{
    if (status)
        free(f);
    else
        *facts = f;
    return status;
}

static attn_status no_facts(attn_error *error)
{
    return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                     "the facts' text, or the place for them, is NULL; pass both");
}

attn_status attn_facts_parse(const char *json, attn_facts **facts, attn_error *error)
{
    json_error_t at;
    if (!json || !facts) return no_facts(error);
    attn_facts *f = calloc(1, sizeof *f);
    if (!f) return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for facts");
    json_t *root = json_loads(json, JSON_REJECT_DUPLICATES, &at);
    attn_status status =
        root ? read_root(root, f, error)
             : attn_fail(error, ATTN_KIND_SYNTAX, "the facts are not JSON at line %d, column %d: %.160s",
                         at.line, at.column, at.text);
    json_decref(root);
    return finish(f, status, facts);
}

attn_status attn_facts_load(const char *name, attn_facts **facts, attn_error *error)
{
    static const char prefix[] = "preset:";
    if (!name || !facts) return no_facts(error);
    attn_facts *f = calloc(1, sizeof *f);
    if (!f) return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for facts");
    bool preset = !strncmp(name, prefix, sizeof prefix - 1);
    return finish(f, preset ? read_preset(name + sizeof prefix - 1, f, error) : read_file(name, f, error),
                  facts);
}

void attn_facts_free(attn_facts *facts)
{
    free(facts);
}

attn_status attn_facts_text(const attn_facts *f, char *text, size_t bytes, size_t *needed, attn_error *error)
{
    json_t *list = json_object(), *root = json_object();
    for (int i = 0; i < ATTN_PACKAGES; i++)
        json_object_set_new(list, packages[i].key, json_boolean(f->packages >> i & 1));
    json_object_set_new(root, "platform", json_string(f->platform));
    json_object_set_new(root, "compute_capability",
                        f->has_capability ? json_pack("[ii]", f->major, f->minor) : json_null());
    json_object_set_new(root, "device_name", json_string(f->device_name));
    json_object_set_new(root, "cudnn_version", json_integer(f->cudnn_version));
    json_object_set_new(root, "packages", list);
    if (f->cuda_version) json_object_set_new(root, "cuda_version", json_integer(f->cuda_version));
    if (f->aiter) json_object_set_new(root, "aiter", words_of(f->aiter, aiter_name, ATTN_AITER_WORDS));
    if (f->missing) json_object_set_new(root, "missing", words_of(f->missing, llm_name, ATTN_LLM_NAMES));
    if (f->has_xpu_architecture)
        json_object_set_new(root, "xpu_architecture", json_integer(f->xpu_architecture));
    char *dump = json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    if (!dump) return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the text of facts");
    if (needed) *needed = strlen(dump) + 1;
    if (text && bytes) snprintf(text, bytes, "%s", dump);
    free(dump);
    return ATTN_OK;
}
