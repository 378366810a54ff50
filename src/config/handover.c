/* handover.c: a spec as the flat table that its backend is handed. */
#include "config/spec.h"
#include "core/names.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>

static void give(json_t *table, const char *key, json_t *value)
{
    if (value && !json_is_null(value)) json_object_set(table, key, value);
}

static void skip_softmax(json_t *table, json_t *block)
{
    json_t *off = json_object_get(block, "disabled_until_timestep");
    give(table, "skip_softmax_threshold", json_object_get(block, "threshold"));
    give(table, "target_sparsity", json_object_get(block, "target_sparsity"));
    if (json_number_value(off) != 0) give(table, "disabled_until_timestep", off);
}

static void quant(json_t *table, json_t *block)
{
    json_t *qk = json_object_get(block, "dtype_qk"), *vo = json_object_get(block, "dtype_vo"),
           *inner = json_object();
    if (!json_is_null(qk) || !json_is_null(vo)) {
        json_object_set(inner, "dtype_qk", qk); /* null when only dtype_vo is set */
        give(inner, "q_block_size", json_object_get(block, "q_block_size"));
        give(inner, "k_block_size", json_object_get(block, "k_block_size"));
        give(inner, "dtype_vo", vo);
    }
    give(inner, "flashinfer_backend", json_object_get(block, "flashinfer_backend"));
    if (json_object_size(inner)) json_object_set(table, "quant", inner);
    json_decref(inner);
}

static void block_sparse(json_t *table, json_t *block)
{
    static const char *const keys[] = {"sparsity", "start_step", "end_step", "precision"};
    json_t *layers = json_object_get(block, "skip_layers");
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        give(table, keys[i], json_object_get(block, keys[i]));
    if (json_array_size(layers)) give(table, "skip_layers", layers);
}

static void topk(json_t *table, json_t *block)
{
    give(table, "topk", block);
}

static const struct row {
    const char *block;
    void (*hand_over)(json_t *table, json_t *block);
} rows[] = {{"skip_softmax", skip_softmax},
            {"quant", quant},
            {"block_sparse", block_sparse},
            {"fastvideo_vsa_topk", topk}};

/* Selecting RAINFUSION_ATTN is the opt-in: without a block its defaults apply. */
static json_t *standard_block(const char *backend, const char *key)
{
    json_t *empty = json_object(), *block = NULL;
    if (!strcmp(key, "block_sparse") && attn_block_owned(key, backend))
        attn_block_read(key, key, empty, &block, NULL);
    json_decref(empty);
    return block;
}

/* A plugin is handed its static parameters. */
static json_t *plugin_table(const json_t *spec)
{
    json_t *whole = attn_spec_long((json_t *)(uintptr_t)spec), *table = attn_spec_static(whole);
    json_decref(whole);
    return table;
}

json_t *attn_spec_handover(const char *backend, const json_t *spec)
{
    json_t *table = spec && !strcmp(backend, ATTN_DISPATCHER) ? plugin_table(spec) : json_object();
    for (size_t i = 0; spec && i < sizeof rows / sizeof *rows; i++) {
        json_t *given = json_object_get(spec, rows[i].block);
        json_t *block = given ? json_incref(given) : standard_block(backend, rows[i].block);
        if (block) rows[i].hand_over(table, block);
        json_decref(block);
    }
    if (json_object_size(table)) return table;
    json_decref(table);
    return NULL;
}
