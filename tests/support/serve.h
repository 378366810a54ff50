/* serve.h: calls over a paged cache as a server makes them, and the plain double evaluation they are held
 * against. */
#ifndef TESTS_SERVE_H
#define TESTS_SERVE_H

#include "support.h"

enum { SERVE_MOST = 6 };

/* What a call is made of. Zero means: off. */
typedef struct serve_shape {
    int64_t requests, q_len[SERVE_MOST], kv_len[SERVE_MOST];
    int64_t heads, kv_heads, d, dv, block;
    attn_dtype dtype, stored; /* stored 0: dtype */
    int32_t layout;           /* attn_cache_layout */
    int32_t scales;           /* axes of the scales: 0 none, 1 one for all, 2 a head, 3 each token and head */
    int batched;              /* q [B, Sq, H, D], all q_len alike; else packed */
    int latent;
    uint32_t seed;
} serve_shape;

/* Tensors of a call; make fills them, args and layer. Unused pages, rows behind a length and everything
 * between hold NaN. Must not be copied. */
typedef struct serve {
    serve_shape shape;
    attn_options options;
    attn_layer_options layer;
    attn_cache cache;
    attn_args args;
    attn_error error;
    tensor q, out, lse, k, v, k_scale, v_scale, table, lengths, cu_q, alibi, sinks, tree, selected;
    attn_prefix_range ranges[SERVE_MOST * 2];
    double *keys[SERVE_MOST], *values[SERVE_MOST]; /* [kv_len][kv_heads][d or dv], as they are stored */
    char plan[160];
} serve;

/* Numbers drawn from a seed, the same on every machine. */
uint32_t serve_draw(uint32_t *seed);
int64_t serve_below(uint32_t *seed, int64_t bound);
double serve_real(uint32_t *seed);                  /* in (-1, 1), a multiple of 1/128 */
double serve_eight(attn_dtype dtype, uint8_t bits); /* value of an f8e4m3, f8e5m2 or i8 */

void serve_make(serve *s, const char *backend, const serve_shape *shape);
void serve_free(serve *s);
/* Moves every page to another place; the pages left behind are poisoned. */
void serve_shuffle(serve *s, uint32_t seed);
attn_status serve_try(serve *s);
void serve_run(serve *s); /* anything but success fails the test */

/* Row of the q tensor (packed or batched) of row i of request b. */
double serve_out(const serve *s, int64_t b, int64_t i, int64_t h, int64_t c);
double serve_lse(const serve *s, int64_t b, int64_t i, int64_t h);
/* Compares out and lse with the definitions: causal, windows, softcap, sinks, slopes, ranges, trees, lists.
 */
void serve_check(const char *label, const serve *s, double atol);

/* Additions to args. */
void serve_add_alibi(serve *s);
void serve_add_sinks(serve *s);
void serve_add_tree(serve *s, int64_t most); /* most: q_len of no request is more */
void serve_add_selected(serve *s, int64_t entries);
void serve_add_ranges(serve *s);

#endif
