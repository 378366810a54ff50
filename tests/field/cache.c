/* cache.c: cases that speak of 8-bit numbers, with a cache that stores them. */
#include "field.h"

#include <math.h>

enum { KEYS = 7, HEADS = 16, D = 64 };

/* Keys and values of a call go into one page of i8 numbers with a scale for each token and head. */
static void run_quantised(test_call *c, attn_context *context)
{
    int64_t keys = KEYS, page[] = {1, KEYS, HEADS, D}, one = 1;
    tensor k, v, k_scale, v_scale, table, lengths, slots, new_k, new_v;
    attn_error error = ATTN_ERROR_INIT;
    tensor_make(&k, ATTN_I8, 4, page);
    tensor_make(&v, ATTN_I8, 4, page);
    tensor_make(&k_scale, ATTN_F32, 3, page);
    tensor_make(&v_scale, ATTN_F32, 3, page);
    tensor_make(&table, ATTN_I32, 2, (int64_t[]){1, 1});
    tensor_make(&lengths, ATTN_I32, 1, &one);
    tensor_make(&slots, ATTN_I64, 1, &keys);
    tensor_fill(&table, 0);
    tensor_fill(&lengths, KEYS);
    for (int64_t j = 0; j < KEYS; j++) tensor_set(&slots.dl, &j, (double)j);
    tensor_view(&new_k, ATTN_F16, 3, page + 1, c->k.strides + 1, c->k.memory);
    tensor_view(&new_v, ATTN_F16, 3, page + 1, c->v.strides + 1, c->v.memory);
    attn_cache cache = {
        .size = sizeof cache, .k = &k.dl, .v = &v.dl, .k_scale = &k_scale.dl, .v_scale = &v_scale.dl};
    attn_cache_rows rows = {.size = sizeof rows, .k = &new_k.dl, .v = &new_v.dl, .slots = &slots.dl};
    if (attn_cache_write(context, &cache, &rows, &error)) fail_msg("attn_cache_write: %s", error.text);
    attn_args plain = c->args;
    c->args.k = c->args.v = NULL;
    c->args.cache = &cache, c->args.block_table = &table.dl, c->args.kv_lengths = &lengths.dl;
    if (call_try_in(c, context)) fail_msg("%s: %s", c->backend, c->error.text);
    c->args = plain;
    tensor *all[] = {&k, &v, &k_scale, &v_scale, &table, &lengths, &slots};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tensor_free(all[i]);
}

void shape_07(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        tensor out, lse;
        call_make(&c, *backend, ATTN_F16, (dims){1, 1, KEYS, HEADS, HEADS, D, D});
        call_mix32(&c, 60, 61, 62);
        attn_context *context = context_open(&c.options);
        run_quantised(&c, context);
        call_truth(&c, NULL, &out, &lse);
        tensor_near("8-bit keys and values", &c.out.dl, &out.dl, 2e-2);
        tensor_near("8-bit keys and values", &c.lse.dl, &lse.dl, 2e-2);
        tensor_free(&out);
        tensor_free(&lse);
        attn_close(context);
        call_free(&c);
    }
}
