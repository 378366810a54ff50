/* sparse_dispatch [--plugin FILE] FILE...: runs sparse-dispatch vectors, one JSON object a line, through the
 * code that they are about: layers with a plugin of this program, the loader with copies of FILE, and the
 * functions of the configuration. Prints a line per failure and closes with "N passed, M failed". */
#include "config/spec.h"
#include "context.h"
#include "core/params.h"
#include "sparse/geometry.h"
#include "vectors.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct run {
    const json_t *input;
    json_t *found; /* the answer, in the form of "expect" */
    attn_error error;
} run;

static const char *plugin_file;

static json_t *at(const json_t *object, const char *key)
{
    json_t *value = json_object_get(object, key);
    return value && json_is_null(value) ? NULL : value;
}

static attn_params *table_of(const json_t *value)
{
    attn_params *params = NULL;
    char *text = json_is_object(value) ? json_dumps(value, JSON_REAL_PRECISION(17)) : NULL;
    if (text) attn_params_parse(text, &params, NULL);
    free(text);
    return params;
}

static json_t *json_of(const attn_params *params)
{
    char text[4096];
    if (attn_params_format(params, text, sizeof text, NULL, NULL)) return NULL;
    return json_loads(text, 0, NULL);
}

/* ---- a plugin that keeps what it saw ---------------------------------------------------------------- */

static json_t *seen;               /* the parameters of the last call */
static const attn_params *returns; /* of its geometry */

static int forward(const attn_sparse_call *call)
{
    json_decref(seen);
    seen = json_of(call->params);
    return 0;
}

static int geometry(const attn_sparse_call *call, attn_sparse_set_fn set, void *to)
{
    (void)call;
    int failed = 0;
    for (uint32_t i = 0; returns && i < returns->count; i++) failed |= set(to, &returns->items[i]);
    return failed;
}

static attn_sparse about_of(const attn_params *capabilities, int with_geometry)
{
    return (attn_sparse){.size = sizeof(attn_sparse),
                         .abi_major = ATTN_MODULE_MAJOR,
                         .abi_minor = ATTN_MODULE_MINOR,
                         .capabilities = capabilities,
                         .forward = forward,
                         .geometry = with_geometry ? geometry : NULL};
}

/* A context in which self attention is a backend with parameters; the dispatcher means the plugin above. */
static attn_context *open_context(run *r, const attn_sparse *about, const char *backend, json_t *params)
{
    attn_context *context = NULL;
    bool shadowed;
    int dispatches = !strcasecmp(backend, "SPARSE_ATTN");
    json_t *spec = dispatches ? json_pack("{s:{s:s, s:{s:s, s:O}}}", "default", "backend", backend, "extra",
                                          "backend", "kept", "params", params)
                              : json_pack("{s:s}", "default", backend);
    char *text = json_dumps(spec, 0);
    attn_options o = {
        .size = sizeof o, .flags = ATTN_OPEN_IGNORE_ENV, .module_path = "", .config = text, .threads = 1};
    if (!attn_open(&o, &context, &r->error) && about)
        attn_registry_add_plugin(&context->registry, about, "kept", -1, &shadowed, &r->error);
    free(text);
    json_decref(spec);
    return context;
}

enum { ROWS = 16 };

/* One call of ROWS rows over `samples` samples. */
static void call_layer(run *r, attn_context *context, attn_layer_options site, attn_args args,
                       int64_t samples)
{
    static uint16_t q[2 * ROWS * 8], out[2 * ROWS * 8];
    int64_t shape[] = {samples, ROWS, 1, 8};
    DLTensor in = {q, {kDLCPU, 0}, 4, {kDLFloat, 16, 1}, shape, NULL, 0}, to = in;
    attn_layer *layer = NULL;
    to.data = out;
    site.size = sizeof site;
    site.heads = 1;
    site.head_dim = 8;
    args.size = sizeof args;
    args.q = args.k = args.v = &in;
    args.out = &to;
    if (r->error.kind || attn_layer_open(context, &site, &layer, &r->error)) return;
    attn_forward(layer, &args, &r->error);
    attn_layer_close(layer);
}

/* ---- the kinds -------------------------------------------------------------------------------------- */

static void say_ok(run *r, const char *ok)
{
    json_object_set_new(r->found, ok, json_boolean(!r->error.kind));
    if (r->error.kind)
        json_object_set_new(r->found, "error_kind", json_string(attn_kind_name(r->error.kind)));
}

static void run_merge(run *r)
{
    attn_params *tiers[] = {table_of(at(r->input, "static")), table_of(at(r->input, "per_forward")),
                            table_of(at(r->input, "extra"))};
    const attn_params *given[] = {tiers[0], tiers[1], tiers[2]};
    attn_param_table table;
    attn_param_table_init(&table, &attn_malloc_allocator);
    attn_param_table_merge(&table, given, 3, &r->error);
    attn_params merged = attn_param_table_view(&table);
    json_object_set_new(r->found, "params", json_of(&merged));
    attn_param_table_clear(&table);
    for (int i = 0; i < 3; i++) attn_params_free(tiers[i]);
}

static void run_static_config(run *r)
{
    json_t *spec =
        json_pack("{s:s, s:O}", "backend", "SPARSE_ATTN", "extra", json_object_get(r->input, "extra"));
    json_t *whole = attn_spec_long(spec);
    attn_spec_check_params(whole, &r->error);
    say_ok(r, "ok");
    if (!r->error.kind) json_object_set_new(r->found, "static_params", attn_spec_static(whole));
    json_decref(whole);
    json_decref(spec);
}

static void run_shorthand(run *r)
{
    json_t *spec = json_pack("{s:O}", "backend", json_object_get(r->input, "backend"));
    if (at(r->input, "extra")) json_object_set(spec, "extra", at(r->input, "extra"));
    json_t *whole = attn_spec_long(spec), *extra = json_object_get(whole, "extra");
    json_object_set(r->found, "backend", json_object_get(whole, "backend"));
    json_object_set_new(r->found, "extra", extra ? json_incref(extra) : json_null());
    json_decref(whole);
    json_decref(spec);
}

static void run_qkv_layout(run *r)
{
    attn_sparse about = about_of(NULL, 0);
    json_t *none = json_object();
    attn_context *context = open_context(r, &about, "SPARSE_ATTN", none);
    attn_layer_options site = {.dtype = ATTN_F16,
                               .qkv_layout = json_string_value(at(r->input, "qkv_layout"))};
    attn_args args = {0};
    call_layer(r, context, site, args, 1);
    attn_close(context);
    json_decref(none);
    say_ok(r, "ok");
}

static json_t *sorted_keys(const json_t *object)
{
    json_t *keys = json_array();
    char *text = json_dumps(object, JSON_SORT_KEYS);
    json_t *sorted = json_loads(text, 0, NULL), *value;
    const char *key;
    json_object_foreach(sorted, key, value)
    {
        size_t place = 0;
        while (place < json_array_size(keys) &&
               strcmp(json_string_value(json_array_get(keys, place)), key) < 0)
            place++;
        json_array_insert_new(keys, place, json_string(key));
    }
    json_decref(sorted);
    free(text);
    return keys;
}

static void run_capability(run *r)
{
    static uint8_t keep[ROWS * ROWS];
    int64_t shape[] = {1, 1, ROWS, ROWS};
    DLTensor mask = {keep, {kDLCPU, 0}, 4, {ATTN_DL_BOOL, 8, 1}, shape, NULL, 0};
    attn_span spans[] = {{2, 5}};
    attn_params *capabilities = table_of(at(r->input, "capabilities"));
    attn_sparse about = about_of(capabilities, 0);
    json_t *params = json_pack("{s:f}", "topk", 0.5);
    attn_context *context = open_context(r, &about, "SPARSE_ATTN", params);
    attn_layer_options site = {.dtype = ATTN_F16};
    attn_args args = {0};
    memset(keep, 1, sizeof keep);
    if (json_is_true(at(r->input, "attn_mask"))) args.mask = &mask;
    if (json_is_true(at(r->input, "full_attn_spans"))) {
        args.spans = spans;
        args.span_count = 1;
    }
    call_layer(r, context, site, args, 1);
    say_ok(r, "ok");
    if (!r->error.kind) json_object_set_new(r->found, "param_keys", sorted_keys(seen));
    attn_close(context);
    attn_params_free(capabilities);
    json_decref(params);
}

/* Parameters as the geometry sees them: those given, and the raw values. */
static attn_params *geometry_table(const json_t *input)
{
    json_t *all = json_deep_copy(at(input, "params"));
    static const char *const keys[] = {"latent_shape", "patch_size"};
    for (int i = 0; i < 2; i++)
        if (at(input, keys[i])) json_object_set(all, keys[i], at(input, keys[i]));
    attn_params *params = table_of(all);
    json_decref(all);
    return params;
}

static void run_geometry(run *r)
{
    static const char *const keys[] = {"total_latent_frames", "patches_per_frame"};
    json_t *length = at(r->input, "seq_len"), *given = at(r->input, "params");
    attn_params *params = geometry_table(r->input);
    attn_geometry g = {0, 0};
    bool found =
        attn_geometry_resolve(params, length ? json_integer_value(length) : -1, &g) == ATTN_GEOMETRY_FOUND;
    int64_t values[] = {g.frames, g.patches};
    for (int i = 0; i < 2; i++)
        json_object_set_new(r->found, keys[i],
                            found                ? json_integer(values[i])
                            : at(given, keys[i]) ? json_incref(at(given, keys[i]))
                                                 : json_null());
    attn_params_free(params);
}

static void run_geometry_fn(run *r)
{
    static const int64_t latent[] = {4, 4, 4, 4, 4, 4}, patch[] = {1, 2, 2, 1, 2, 2};
    attn_forward_state state = {
        .size = sizeof state, .samples = 2, .latent_shape = latent, .patch_size = patch};
    attn_params *made = table_of(at(r->input, "returns"));
    attn_sparse about = about_of(NULL, made != NULL);
    json_t *none = json_object();
    attn_context *context = open_context(r, &about, "SPARSE_ATTN", none);
    attn_layer_options site = {.dtype = ATTN_F16};
    attn_args args = {.forward = made ? &state : NULL};
    returns = made;
    call_layer(r, context, site, args, 2);
    returns = NULL;
    json_object_set(r->found, "params", seen);
    attn_close(context);
    attn_params_free(made);
    json_decref(none);
}

static void run_patch_size(run *r)
{
    int64_t patch[3];
    attn_params *config = table_of(at(r->input, "config")), *module = table_of(at(r->input, "module"));
    int found = attn_patch_size_of(config, module, patch);
    json_object_set_new(
        r->found, "patch_size",
        found ? json_pack("[I,I,I]", (json_int_t)patch[0], (json_int_t)patch[1], (json_int_t)patch[2])
              : json_null());
    attn_params_free(config);
    attn_params_free(module);
}

static void run_denoise_total(run *r)
{
    int64_t total;
    attn_params *pipeline = table_of(at(r->input, "pipeline"));
    int found = attn_denoise_total_of(pipeline, &total);
    json_object_set_new(r->found, "total_denoise_steps", found ? json_integer(total) : json_null());
    attn_params_free(pipeline);
}

static void run_ring_guard(run *r)
{
    attn_sparse about = about_of(NULL, 0);
    json_t *none = json_object();
    attn_context *context = open_context(r, &about, json_string_value(at(r->input, "backend")), none);
    attn_layer_options site = {.size = sizeof site, .dtype = ATTN_F16, .heads = 1, .head_dim = 8};
    attn_layer *layer = NULL;
    if (json_is_true(at(r->input, "ring_active"))) site.needs = ATTN_FEATURE(RING);
    if (!r->error.kind) attn_layer_open(context, &site, &layer, &r->error);
    attn_layer_close(layer);
    attn_close(context);
    json_decref(none);
    say_ok(r, "ok");
}

/* An automatic choice on a described GPU falls to the plain backend for fp32; a plugin refuses it. */
static void run_fp32_guard(run *r)
{
    static const char gpu[] = "{\"platform\": \"cuda\", \"compute_capability\": [9, 0], \"packages\": "
                              "{\"flash_attn\": true}}";
    const char *backend = json_string_value(at(r->input, "backend")), *route = "error";
    attn_dtype dtype = attn_dtype_from_name(json_string_value(at(r->input, "dtype")));
    if (!dtype) dtype = !strcmp(json_string_value(at(r->input, "dtype")), "float32") ? ATTN_F32 : ATTN_F16;
    attn_sparse about = about_of(NULL, 0);
    json_t *none = json_object();
    attn_facts *facts = NULL;
    attn_context *context = NULL;
    attn_resolution found = {.size = sizeof found};
    attn_query query = {.size = sizeof query, .head_size = 128, .dtype = dtype};
    if (!strcasecmp(backend, "SPARSE_ATTN")) {
        context = open_context(r, &about, backend, none);
    } else if (!attn_facts_parse(gpu, &facts, &r->error)) {
        attn_options o = {.size = sizeof o, .flags = ATTN_OPEN_IGNORE_ENV, .module_path = "", .facts = facts};
        attn_open(&o, &context, &r->error);
    }
    if (!r->error.kind && !attn_resolve(context, &query, &found, NULL, NULL, &r->error))
        route = !strcmp(found.backend, backend)        ? "backend"
                : !strcmp(found.backend, "TORCH_SDPA") ? "sdpa"
                                                       : "other";
    json_object_set_new(r->found, "route", json_string(route));
    json_object_set_new(r->found, "error_kind",
                        r->error.kind ? json_string(attn_kind_name(r->error.kind)) : json_null());
    attn_close(context);
    attn_facts_free(facts);
    json_decref(none);
}

/* ---- names: files on a module path ------------------------------------------------------------------ */

static void copy_file(const char *from, const char *to)
{
    char bytes[65536];
    FILE *in = from ? fopen(from, "rb") : NULL, *out = fopen(to, "wb");
    size_t n = 0;
    if (!in && out) fputs("no shared object\n", out);
    while (in && out && (n = fread(bytes, 1, sizeof bytes, in)) > 0) fwrite(bytes, 1, n, out);
    if (in) fclose(in);
    if (out) fclose(out);
}

/* Every name gets a folder of its own, so that names may be equal. path: those folders in order. */
static void install(const json_t *input, const char *root, char *path, size_t bytes)
{
    json_t *names = at(input, "installed");
    size_t used = 0;
    path[0] = 0;
    for (size_t i = 0; i < json_array_size(names); i++) {
        char folder[256], file[512];
        snprintf(folder, sizeof folder, "%s/%zu", root, i);
        mkdir(folder, 0700);
        snprintf(file, sizeof file, "%s/%s.so", folder, json_string_value(json_array_get(names, i)));
        copy_file(json_is_true(at(input, "load_fails")) ? NULL : plugin_file, file);
        used += (size_t)snprintf(path + used, bytes - used, "%s%s", used ? ":" : "", file);
    }
}

static void remove_all(const json_t *input, const char *root)
{
    json_t *names = at(input, "installed");
    for (size_t i = 0; i < json_array_size(names); i++) {
        char file[512];
        snprintf(file, sizeof file, "%s/%zu/%s.so", root, i, json_string_value(json_array_get(names, i)));
        unlink(file);
        *strrchr(file, '/') = 0;
        rmdir(file);
    }
    rmdir(root);
}

/* Which of the installed files a layer's implementation came from. */
static json_int_t index_of(const attn_context *context, const attn_layer *layer, const char *root)
{
    attn_layer_info info = {.size = sizeof info};
    attn_plugin_info plugin = {.size = sizeof plugin};
    attn_layer_get_info(layer, &info);
    for (size_t i = 0; attn_plugin_at(context, i, &plugin); i++)
        if (!strcmp(plugin.implementation, info.implementation)) return atoi(plugin.path + strlen(root) + 1);
    return -1;
}

static void run_resolve(run *r)
{
    char root[] = "/tmp/attn-plugins-XXXXXX", path[4096];
    attn_context *context = NULL;
    attn_layer *layer = NULL;
    attn_layer_options site = {.size = sizeof site, .dtype = ATTN_F16, .heads = 1, .head_dim = 8};
    json_t *name = at(r->input, "name"),
           *spec = json_pack("{s:{s:s, s:{}}}", "default", "backend", "SPARSE_ATTN", "extra");
    if (name) json_object_set(json_object_get(json_object_get(spec, "default"), "extra"), "backend", name);
    char *text = json_dumps(spec, 0);
    if (!mkdtemp(root)) perror(root);
    install(r->input, root, path, sizeof path);
    attn_options o = {
        .size = sizeof o, .flags = ATTN_OPEN_IGNORE_ENV, .module_path = path, .config = text, .threads = 1};
    if (!attn_open(&o, &context, &r->error)) attn_layer_open(context, &site, &layer, &r->error);
    say_ok(r, "ok");
    if (layer) json_object_set_new(r->found, "index", json_integer(index_of(context, layer, root)));
    attn_layer_close(layer);
    attn_close(context);
    remove_all(r->input, root);
    free(text);
    json_decref(spec);
}

/* ---- vectors ---------------------------------------------------------------------------------------- */

static const struct kind {
    const char *name;
    void (*run)(run *r);
} kinds[] = {
#define X(name) {#name, run_##name},
    X(merge) X(resolve) X(static_config) X(qkv_layout) X(shorthand) X(capability) X(geometry) X(geometry_fn)
        X(patch_size) X(denoise_total) X(ring_guard) X(fp32_guard)
#undef X
};

/* Numbers are equal when they are equal as numbers. */
static int same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b)) return json_number_value(a) == json_number_value(b);
    if (json_is_array(a) && json_is_array(b)) {
        int equal = json_array_size(a) == json_array_size(b);
        for (size_t i = 0; equal && i < json_array_size(a); i++)
            equal = same(json_array_get(a, i), json_array_get(b, i));
        return equal;
    }
    if (json_is_object(a) && json_is_object(b)) {
        int equal = json_object_size(a) == json_object_size(b);
        for (void *i = json_object_iter((json_t *)(uintptr_t)a); equal && i;
             i = json_object_iter_next((json_t *)(uintptr_t)a, i))
            equal = same(json_object_iter_value(i), json_object_get(b, json_object_iter_key(i)));
        return equal;
    }
    return json_equal(a, b);
}

static int holds(const run *r, const json_t *expect)
{
    for (void *i = json_object_iter((json_t *)(uintptr_t)expect); i;
         i = json_object_iter_next((json_t *)(uintptr_t)expect, i)) {
        const char *key = json_object_iter_key(i);
        json_t *value = json_object_iter_value(i), *found = json_object_get(r->found, key);
        if (!strcmp(key, "error_mentions")) {
            if (!vectors_mention(r->error.text, value)) return 0;
        } else if (!(found ? same(value, found) : json_is_null(value))) {
            return 0;
        }
    }
    return 1;
}

static int check(const json_t *vector)
{
    run r = {.input = json_object_get(vector, "input"), .found = json_object(), .error = ATTN_ERROR_INIT};
    const char *kind = json_string_value(json_object_get(vector, "kind"));
    int known = 0;
    for (size_t i = 0; kind && i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, kind)) continue;
        known = 1;
        kinds[i].run(&r);
    }
    int good = known && holds(&r, json_object_get(vector, "expect"));
    if (!good) {
        char *expected = json_dumps(json_object_get(vector, "expect"), 0), *found = json_dumps(r.found, 0);
        printf("FAIL %s: expected %s, found %s: %s\n", json_string_value(json_object_get(vector, "id")),
               expected, known ? found : "an unknown kind", r.error.text);
        free(expected);
        free(found);
    }
    json_decref(r.found);
    json_decref(seen);
    seen = NULL;
    return good;
}

int main(int argc, char **argv)
{
    int first = 1;
    if (argc > 2 && !strcmp(argv[1], "--plugin")) {
        plugin_file = argv[2];
        first = 3;
    }
    return vectors_run(argv + first, argc - first, check);
}
