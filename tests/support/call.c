/* call.c: one attention call as tests make it, and the plain double evaluation they compare with. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const backends[2] = {"TORCH_SDPA", "FLASH_ATTN"};

void call_make(test_call *c, const char *backend, attn_dtype dtype, dims d)
{
    memset(c, 0, sizeof *c);
    tensor_make(&c->q, dtype, 4, (int64_t[]){d.b, d.sq, d.h, d.d});
    tensor_make(&c->k, dtype, 4, (int64_t[]){d.b, d.sk, d.hk, d.d});
    tensor_make(&c->v, dtype, 4, (int64_t[]){d.b, d.sk, d.hk, d.dv});
    tensor_make(&c->out, dtype, 4, (int64_t[]){d.b, d.sq, d.h, d.dv});
    tensor_make(&c->lse, ATTN_F32, 3, (int64_t[]){d.b, d.h, d.sq});
    c->options = (attn_options){.size = sizeof c->options, .backend = backend, .module_path = ""};
    c->layer = (attn_layer_options){
        .size = sizeof c->layer, .heads = d.h, .kv_heads = d.hk, .head_dim = d.d, .value_head_dim = d.dv};
    c->args = (attn_args){.size = sizeof c->args,
                          .q = &c->q.dl,
                          .k = &c->k.dl,
                          .v = &c->v.dl,
                          .out = &c->out.dl,
                          .lse = &c->lse.dl};
    c->error = (attn_error)ATTN_ERROR_INIT;
}

void call_mix32(test_call *c, uint32_t seed_q, uint32_t seed_k, uint32_t seed_v)
{
    tensor_mix32(&c->q, seed_q, 1);
    tensor_mix32(&c->k, seed_k, 1);
    tensor_mix32(&c->v, seed_v, 1);
}

void call_mask(test_call *c, attn_dtype dtype, int64_t b, int64_t h, int64_t q, int64_t k)
{
    tensor_make(&c->mask, dtype, 4, (int64_t[]){b, h, q, k});
    c->args.mask = &c->mask.dl;
}

void call_free(test_call *c)
{
    tensor_free(&c->q);
    tensor_free(&c->k);
    tensor_free(&c->v);
    tensor_free(&c->out);
    tensor_free(&c->lse);
    tensor_free(&c->mask);
}

attn_status call_try_in(test_call *c, attn_context *context)
{
    attn_layer *layer = NULL;
    c->error = (attn_error)ATTN_ERROR_INIT;
    attn_status status = attn_layer_open(context, &c->layer, &layer, &c->error);
    if (status != ATTN_OK) return status;
    status = attn_forward(layer, &c->args, &c->error);
    attn_layer_info info = {.size = sizeof info};
    attn_layer_get_info(layer, &info);
    snprintf(c->implementation, sizeof c->implementation, "%s", info.implementation);
    snprintf(c->backend, sizeof c->backend, "%s", info.backend);
    attn_layer_close(layer);
    return status;
}

attn_status call_try(test_call *c)
{
    attn_context *context = NULL;
    c->error = (attn_error)ATTN_ERROR_INIT;
    attn_status status = attn_open(&c->options, &context, &c->error);
    if (status != ATTN_OK) return status;
    status = call_try_in(c, context);
    attn_close(context);
    return status;
}

void call_run(test_call *c)
{
    if (call_try(c) != ATTN_OK)
        fail_msg("%s refused the call: %s", c->options.backend ? c->options.backend : "auto", c->error.text);
}

attn_context *context_open(const attn_options *options)
{
    attn_context *context = NULL;
    attn_error error = ATTN_ERROR_INIT;
    if (attn_open(options, &context, &error) != ATTN_OK) fail_msg("attn_open: %s", error.text);
    assert_non_null(context);
    return context;
}

attn_layer *layer_open(attn_context *context, const attn_layer_options *options)
{
    attn_layer *layer = NULL;
    attn_error error = ATTN_ERROR_INIT;
    if (attn_layer_open(context, options, &layer, &error) != ATTN_OK)
        fail_msg("attn_layer_open: %s", error.text);
    assert_non_null(layer);
    return layer;
}

/* ---- truth ---- */

static double score(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    int64_t group = c->q.shape[2] / c->k.shape[2], d = c->q.shape[3];
    double sum = 0, scale = c->layer.scale != 0 ? c->layer.scale : 1 / sqrt((double)d);
    for (int64_t x = 0; x < d; x++)
        sum += tensor_get(c->args.q, (int64_t[]){b, i, h, x}) *
               tensor_get(c->args.k, (int64_t[]){b, j, h / group, x});
    sum *= scale;
    return c->layer.softcap > 0 ? c->layer.softcap * tanh(sum / c->layer.softcap) : sum;
}

static void truth_row(const test_call *c, keep_fn keep, int64_t b, int64_t h, int64_t i, double *p,
                      const tensor *out, const tensor *lse)
{
    int64_t keys = c->k.shape[1], group = c->q.shape[2] / c->k.shape[2], dv = c->v.shape[3];
    double top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < keys; j++) {
        p[j] = !keep || keep(c, b, h, i, j) ? score(c, b, h, i, j) : -INFINITY;
        top = fmax(top, p[j]);
    }
    for (int64_t j = 0; j < keys; j++) sum += p[j] = p[j] == -INFINITY ? 0 : exp(p[j] - top);
    tensor_set(&lse->dl, (int64_t[]){b, h, i}, sum > 0 ? top + log(sum) : -INFINITY);
    for (int64_t x = 0; x < dv; x++) {
        double value = 0;
        for (int64_t j = 0; j < keys; j++)
            if (p[j] > 0) value += p[j] / sum * tensor_get(c->args.v, (int64_t[]){b, j, h / group, x});
        tensor_set(&out->dl, (int64_t[]){b, i, h, x}, value);
    }
}

void call_truth(const test_call *c, keep_fn keep, tensor *out, tensor *lse)
{
    const int64_t *q = c->q.shape;
    tensor_make(out, ATTN_F64, 4, (int64_t[]){q[0], q[1], q[2], c->v.shape[3]});
    tensor_make(lse, ATTN_F64, 3, (int64_t[]){q[0], q[2], q[1]});
    double *p = malloc(sizeof *p * (size_t)(c->k.shape[1] + 1));
    assert_non_null(p);
    for (int64_t b = 0; b < q[0]; b++)
        for (int64_t h = 0; h < q[2]; h++)
            for (int64_t i = 0; i < q[1]; i++) truth_row(c, keep, b, h, i, p, out, lse);
    free(p);
}
