/* blocks.c: everything between two attentions. A tile of rows goes through a chain of products and row
 * operations on one thread while it is in the cache. Tiles do not depend on the number of threads, so neither
 * does the clip. */
#include "device.h"
#include "linear.h"
#include "network.h"
#include "rowops.h"
#include <cblas.h>
#include <string.h>
#include <time.h>

double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct tile {
    network *n;
    const block_weights *b;
    const float *mod; /* of the block: shift1, scale1, gate1, shift2, scale2, gate2 */
    worker_state *w;
    int64_t first, rows;
    double since;
} tile;

enum { SHIFT1, SCALE1, GATE1, SHIFT2, SCALE2, GATE2 };

static const float *modulation(const tile *t, int row)
{
    return t->mod + row * DIM;
}

static void clock_add(tile *t, int clock)
{
    double now = seconds_now();
    t->w->clocks[clock] += now - t->since;
    t->since = now;
}

/* y[rows, out] = x w^T + beta y */
static void product(tile *t, const float *x, int in, const float *w, float *y, int out, float beta)
{
    struct device *gpu = t->n->attention->device;
    clock_add(t, CLOCK_ROWOPS);
    if (gpu)
        device_product(gpu, x, t->rows, in, w, y, out, beta);
    else
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)t->rows, out, in, 1, x, in, w, in, beta, y,
                    out);
    clock_add(t, CLOCK_MATMUL);
}

static void embed(tile *t)
{
    network *n = t->n;
    float *h = n->h + t->first * DIM;
    memcpy(h, n->place + t->first * DIM, (size_t)t->rows * DIM * sizeof *h);
    product(t, n->z + t->first * TOKEN, TOKEN, n->model->patch_w, h, DIM, 1);
}

static void before_self(tile *t)
{
    network *n = t->n;
    const float *cosine = n->cosine + t->first * PAIRS, *sine = n->sine + t->first * PAIRS;
    float *qkv = n->qkv + t->first * 3 * DIM, *q = qkv, *k = qkv + DIM;
    layer_norm(n->h + t->first * DIM, modulation(t, SCALE1), modulation(t, SHIFT1), t->w->tile, t->rows);
    product(t, t->w->tile, DIM, t->b->self_q, qkv, 3 * DIM,
            0); /* q, k and v weights lie one behind the other */
    rms_heads(q, 3 * DIM, t->b->self_q_norm, t->rows);
    rms_heads(k, 3 * DIM, t->b->self_k_norm, t->rows);
    rope_heads(q, 3 * DIM, cosine, sine, t->rows);
    rope_heads(k, 3 * DIM, cosine, sine, t->rows);
    if (n->reduced.qkv) to_bf16(qkv, 3 * DIM, n->reduced.qkv + t->first * 3 * DIM, 3 * DIM, t->rows, 3 * DIM);
}

static void before_cross(tile *t)
{
    network *n = t->n;
    float *h = n->h + t->first * DIM, *q = n->cross_q + t->first * DIM;
    product(t, n->mixed + t->first * DIM, DIM, t->b->self_o, t->w->tile, DIM, 0);
    add_gated(h, modulation(t, GATE1), t->w->tile, NULL, t->rows);
    layer_norm(h, NULL, NULL, t->w->tile, t->rows);
    product(t, t->w->tile, DIM, t->b->cross_q, q, DIM, 0);
    rms_heads(q, DIM, t->b->cross_q_norm, t->rows);
    if (n->reduced.cross_q) to_bf16(q, DIM, n->reduced.cross_q + t->first * DIM, DIM, t->rows, DIM);
}

static void after_cross(tile *t)
{
    network *n = t->n;
    float *h = n->h + t->first * DIM;
    product(t, n->mixed + t->first * DIM, DIM, t->b->cross_o, h, DIM, 1);
    layer_norm(h, modulation(t, SCALE2), modulation(t, SHIFT2), t->w->tile, t->rows);
    product(t, t->w->tile, DIM, t->b->fc1_w, t->w->wide, MLP, 0);
    gelu_bias(t->w->wide, t->b->fc1_b, t->rows, MLP);
    product(t, t->w->wide, MLP, t->b->fc2_w, t->w->tile, DIM, 0);
    add_gated(h, modulation(t, GATE2), t->w->tile, t->b->fc2_b, t->rows);
}

static void last(tile *t)
{
    network *n = t->n;
    float *v = n->velocity + t->first * TOKEN;
    layer_norm(n->h + t->first * DIM, n->last + DIM, n->last, t->w->tile, t->rows);
    for (int64_t r = 0; r < t->rows; r++) memcpy(v + r * TOKEN, n->model->final_b, TOKEN * sizeof *v);
    product(t, t->w->tile, DIM, n->model->final_w, v, TOKEN, 1);
}

static void (*const part_functions[])(tile *) = {
    [PART_EMBED] = embed,
    [PART_BEFORE_SELF] = before_self,
    [PART_BEFORE_CROSS] = before_cross,
    [PART_AFTER_CROSS] = after_cross,
    [PART_LAST] = last,
};

typedef struct job {
    network *n;
    int block;
    tile_part part;
} job;

static void run_tile(void *arg, int64_t index, int worker_index)
{
    const job *j = arg;
    int64_t first = index * TILE, left = j->n->tokens - first;
    tile t = {.n = j->n,
              .b = &j->n->model->blocks[j->block],
              .mod = j->n->shaped[j->block],
              .w = &j->n->workers[worker_index],
              .first = first,
              .rows = left < TILE ? left : TILE,
              .since = seconds_now()};
    part_functions[j->part](&t);
    clock_add(&t, CLOCK_ROWOPS);
}

void blocks_run(network *n, int block, tile_part part)
{
    job j = {n, block, part};
    pool_run(n->pool, (n->tokens + TILE - 1) / TILE, run_tile, &j);
}
