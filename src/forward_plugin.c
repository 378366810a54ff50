/* forward_plugin.c: the last parameters of a sparse plugin, put over the merged ones. */
#include "context.h"

#include <string.h>

/* ---- its own geometry ------------------------------------------------------------------------------ */

static int set_one(void *to, const attn_param *param)
{
    attn_param_table *table = to;
    attn_param copy;
    if (!param || !param->name || param->type == ATTN_PARAM_NONE) return 0;
    return !attn_param_copy(&table->arena, param, &copy) || attn_param_table_set(table, &copy, NULL);
}

static attn_status own_geometry(attn_layer *l, attn_request *r, const attn_plugin *plugin, attn_error *error)
{
    attn_error why = ATTN_ERROR_INIT;
    attn_param_table *table = &l->consumer.table;
    attn_params merged = attn_param_table_view(table);
    attn_sparse_call call = {.size = sizeof call,
                             .abi_major = ATTN_MODULE_MAJOR,
                             .abi_minor = ATTN_MODULE_MINOR,
                             .problem = &r->problem,
                             .host = &l->context->host,
                             .params = &merged,
                             .forward = r->call.forward,
                             .error = &why};
    int code = plugin->about.geometry ? plugin->about.geometry(&call, set_one, table) : 0;
    if (!code) return ATTN_OK;
    return attn_fail(error, why.kind ? why.kind : ATTN_KIND_INTERNAL,
                     "the geometry of sparse plugin '%.60s' failed with %d: %.300s", plugin->name, code,
                     why.text[0] ? why.text : "it gave no reason");
}

/* ---- inputs that it declared ----------------------------------------------------------------------- */

/* A span is a row of two numbers. */
static attn_status set_spans(attn_param_table *table, const attn_args *args, attn_error *error)
{
    size_t count = args->span_count;
    int64_t *rows = attn_arena_take(&table->arena, 2 * count * sizeof *rows, _Alignof(int64_t));
    if (!rows) return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for %zu spans", count);
    for (size_t i = 0; i < count; i++) {
        rows[2 * i] = args->spans[i].start;
        rows[2 * i + 1] = args->spans[i].end;
    }
    attn_param spans = attn_param_ints("full_attn_spans", rows, 2 * (int64_t)count, 2);
    return attn_param_table_set(table, &spans, error);
}

/* The judge let the call through, so what is given was declared. These go over all tiers, so that a parameter
 * of the same name cannot stand in for them. */
static attn_status set_inputs(attn_param_table *table, const attn_args *args, attn_error *error)
{
    attn_param mask = attn_param_make("attn_mask", ATTN_PARAM_TENSOR);
    mask.value.tensor = args->mask ? args->mask : args->key_mask;
    if (mask.value.tensor) ATTN_TRY(attn_param_table_set(table, &mask, error));
    return args->span_count ? set_spans(table, args, error) : ATTN_OK;
}

attn_status attn_plugin_extend(attn_layer *l, attn_request *r, attn_error *error)
{
    ATTN_TRY(own_geometry(l, r, l->plan->slot->plugin, error));
    return set_inputs(&l->consumer.table, &r->args, error);
}
