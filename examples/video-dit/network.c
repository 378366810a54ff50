/* network.c: the order of things in one network call, and the memory they use (sections 3 and 4 of MODEL.md).
 */
#include "network.h"
#include "device.h"
#include "linear.h"
#include "rowops.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- once per clip ------------------------------------------------------------------------------ */

/* The arrays of a clip. A(field, rows, columns) of f32; every size is a multiple of 64 bytes. */
#define ARRAY_LIST(A)                                                                                        \
    A(z, n->tokens, TOKEN)                                                                                   \
    A(velocity, n->tokens, TOKEN)                                                                            \
    A(h, n->tokens, DIM)                                                                                     \
    A(place, n->tokens, DIM)                                                                                 \
    A(cosine, n->tokens, PAIRS)                                                                              \
    A(sine, n->tokens, PAIRS)                                                                                \
    A(qkv, n->tokens, 3 * DIM)                                                                               \
    A(cross_q, n->tokens, DIM)                                                                               \
    A(mixed, n->tokens, DIM)                                                                                 \
    A(context, SLOTS, DIM)

static float *take(network *n, int64_t values)
{
    float *at = n->at;
    n->at += values;
    return at;
}

static void share_memory(network *n, int with_copies)
{
    n->at = n->memory;
#define A(field, rows, columns) n->field = take(n, (rows) * (columns));
    ARRAY_LIST(A)
#undef A
    for (int b = 0; b < DEPTH; b++) {
        n->cross_k[b] = take(n, SLOTS * DIM);
        n->cross_v[b] = take(n, SLOTS * DIM);
    }
    for (int w = 0; w < pool_threads(n->pool); w++) {
        n->workers[w].tile = take(n, TILE * DIM);
        n->workers[w].wide = take(n, TILE * MLP);
    }
    if (!with_copies) return;
    n->reduced.qkv = (uint16_t *)take(n, n->tokens * 3 * DIM / 2);
    n->reduced.cross_q = (uint16_t *)take(n, n->tokens * DIM / 2);
    for (int b = 0; b < DEPTH; b++) {
        n->reduced.cross_k[b] = (uint16_t *)take(n, SLOTS * DIM / 2);
        n->reduced.cross_v[b] = (uint16_t *)take(n, SLOTS * DIM / 2);
    }
}

static int64_t count_values(const network *n)
{
    int64_t values = 0;
#define A(field, rows, columns) values += (rows) * (columns);
    ARRAY_LIST(A)
#undef A
    values += pool_threads(n->pool) * (int64_t)TILE * (DIM + MLP) + DEPTH * 2 * SLOTS * DIM;
    return values + n->tokens * 4 * DIM / 2 + DEPTH * SLOTS * DIM;
}

static int allocate(network *n, failure *f)
{
    size_t bytes = (size_t)count_values(n) * sizeof(float);
    n->workers = calloc((size_t)pool_threads(n->pool), sizeof *n->workers);
    n->memory = aligned_alloc(64, bytes);
    if (n->workers && n->memory) return 0;
    return fail(f, ATTN_KIND_OUT_OF_MEMORY,
                "no memory for a clip of %lld tokens (%zu MiB); choose a smaller --size",
                (long long)n->tokens, bytes >> 20);
}

/* RoPE turns the first pairs with the frame, the next with the row, the last with the column of the token. */
static const struct axis {
    int pairs;
} axes[] = {{8}, {12}, {12}};

static void place_token(network *n, int64_t token, const int64_t *position)
{
    double y = PATCH * position[1] + PATCH / 2, x = PATCH * position[2] + PATCH / 2;
    double height = (double)n->shape.height, width = (double)n->shape.width;
    const double u[] = {(double)position[0] / 16, y / 64, x / 64, (height - y) / 64, (width - x) / 64};
    float features[5 * FEATURE], *to = n->place + token * DIM;
    int pair = 0;
    fourier(u, 5, features);
    linear(n->model->place_w, n->model->patch_b, features, to, DIM, 5 * FEATURE);
    for (int a = 0; a < 3; a++)
        for (int j = 0; j < axes[a].pairs; j++, pair++) {
            double angle = (double)position[a] * pow(100, -(double)j / axes[a].pairs);
            n->cosine[token * PAIRS + pair] = (float)cos(angle);
            n->sine[token * PAIRS + pair] = (float)sin(angle);
        }
}

static void place_tokens(network *n)
{
    int64_t token = 0, p[3];
    for (p[0] = 0; p[0] < n->shape.frames; p[0]++)
        for (p[1] = 0; p[1] < n->shape.height / PATCH; p[1]++)
            for (p[2] = 0; p[2] < n->shape.width / PATCH; p[2]++) place_token(n, token++, p);
}

/* Keys and values of cross-attention do not depend on the time. Padding slots stay zero. */
static void encode_cross(network *n, int b)
{
    const block_weights *w = &n->model->blocks[b];
    for (int j = 0; j < SLOTS; j++) {
        linear(w->cross_k, NULL, n->context + j * DIM, n->cross_k[b] + j * DIM, DIM, DIM);
        linear(w->cross_v, NULL, n->context + j * DIM, n->cross_v[b] + j * DIM, DIM, DIM);
    }
    rms_heads(n->cross_k[b], DIM, w->cross_k_norm, SLOTS);
    if (!n->reduced.cross_q) return;
    to_bf16(n->cross_k[b], DIM, n->reduced.cross_k[b], DIM, SLOTS, DIM);
    to_bf16(n->cross_v[b], DIM, n->reduced.cross_v[b], DIM, SLOTS, DIM);
}

int network_open(network *n, const model *m, const attention *a, pool *p, clip_shape shape, const scene *s,
                 failure *f)
{
    *n = (network){.model = m, .attention = a, .pool = p, .shape = shape, .tokens = shape_tokens(shape)};
    if (allocate(n, f)) {
        network_close(n);
        return -1;
    }
    share_memory(n, a->dtype != ATTN_F32);
    scene_encode(m, s, shape, n->context, n->valid);
    place_tokens(n);
    for (int b = 0; b < DEPTH; b++) encode_cross(n, b);
    return 0;
}

void network_close(network *n)
{
    free(n->memory);
    free(n->workers);
    *n = (network){0};
}

/* ---- once per step ------------------------------------------------------------------------------ */

/* Time gives e and the six modulations; each block adds its own table to them. */
static void encode_time(network *n, double t)
{
    const model *m = n->model;
    float features[DIM], hidden[DIM];
    for (int i = 0; i < DIM / 2; i++) {
        double angle = 1000 * t * pow(10000, -2.0 * i / DIM);
        features[i] = (float)cos(angle);
        features[DIM / 2 + i] = (float)sin(angle);
    }
    linear(m->time_fc1_w, m->time_fc1_b, features, hidden, DIM, DIM);
    silu(hidden, DIM);
    linear(m->time_fc2_w, m->time_fc2_b, hidden, n->e, DIM, DIM);
    memcpy(hidden, n->e, sizeof hidden);
    silu(hidden, DIM);
    linear(m->ada_w, m->ada_b, hidden, n->mod, MODULATIONS * DIM, DIM);
    for (int b = 0; b < DEPTH; b++)
        for (int i = 0; i < MODULATIONS * DIM; i++) n->shaped[b][i] = n->mod[i] + m->blocks[b].table[i];
    for (int i = 0; i < 2 * DIM; i++) n->last[i] = m->final_table[i] + n->e[i % DIM];
}

/* Workers' clocks add up over threads; their proportions divide the wall time of the tiles. */
static void divide_clock(network *n, double wall)
{
    double sum = 0, share[CLOCKS] = {0};
    for (int w = 0; w < pool_threads(n->pool); w++)
        for (int c = 0; c < CLOCKS; c++) {
            share[c] += n->workers[w].clocks[c];
            sum += n->workers[w].clocks[c];
            n->workers[w].clocks[c] = 0;
        }
    for (int c = 0; c < CLOCKS; c++) n->clocks[c] += sum > 0 ? wall * share[c] / sum : 0;
}

static void tiles(network *n, int block, tile_part part)
{
    double start = seconds_now();
    blocks_run(n, block, part);
    divide_clock(n, seconds_now() - start);
}

static int look(const network *n, int point, int block, failure *f)
{
    return n->tap ? n->tap(n->tap_user, point, block, n, f) : 0;
}

static int attend_self(network *n, int b, failure *f)
{
    const float *q = n->qkv;
    const uint16_t *r = n->reduced.qkv;
    double start = seconds_now();
    row_view view[3];
    for (int i = 0; i < 3; i++)
        view[i] =
            (row_view){r ? (const void *)(r + i * DIM) : (const void *)(q + i * DIM), n->tokens, 3 * DIM};
    int rc =
        attention_run(n->attention, &n->when, SELF, b, view[0], view[1], view[2], NULL, n->mixed, DIM, f);
    n->clocks[CLOCK_SELF_ATTENTION] += seconds_now() - start;
    if (!rc) n->kept[b] += attention_kept(n->attention, SELF, b);
    return rc;
}

static int attend_cross(network *n, int b, failure *f)
{
    const reduced_copies *r = &n->reduced;
    double start = seconds_now();
    row_view q = {r->cross_q ? (const void *)r->cross_q : n->cross_q, n->tokens, DIM};
    row_view k = {r->cross_q ? (const void *)r->cross_k[b] : n->cross_k[b], SLOTS, DIM};
    row_view v = {r->cross_q ? (const void *)r->cross_v[b] : n->cross_v[b], SLOTS, DIM};
    int rc = attention_run(n->attention, &n->when, CROSS, b, q, k, v, n->valid, n->mixed, DIM, f);
    n->clocks[CLOCK_CROSS_ATTENTION] += seconds_now() - start;
    return rc;
}

static int cancelled(const network *n, failure *f)
{
    const int32_t *flag = n->attention->cancel;
    if (!flag || !__atomic_load_n(flag, __ATOMIC_RELAXED)) return 0;
    return fail_cancelled(f);
}

/* Products on a GPU tell at the end of a block. */
static int stopped(const network *n, failure *f)
{
    if (n->attention->device && device_failed(n->attention->device, f)) return -1;
    return cancelled(n, f);
}

static int run_block(network *n, int b, failure *f)
{
    if (look(n, TAP_BLOCK_IN, b, f)) return -1;
    tiles(n, b, PART_BEFORE_SELF);
    if (look(n, TAP_SELF, b, f) || attend_self(n, b, f) || look(n, TAP_SELF_OUT, b, f)) return -1;
    tiles(n, b, PART_BEFORE_CROSS);
    if (look(n, TAP_CROSS, b, f) || attend_cross(n, b, f) || look(n, TAP_CROSS_OUT, b, f)) return -1;
    tiles(n, b, PART_AFTER_CROSS);
    if (n->progress) n->progress(n->progress_user, b);
    return stopped(n, f) ? -1 : look(n, TAP_BLOCK_OUT, b, f);
}

int network_run(network *n, double t, failure *f)
{
    double start = seconds_now();
    n->calls++;
    encode_time(n, t);
    n->clocks[CLOCK_OTHER] += seconds_now() - start;
    if (look(n, TAP_TIME, 0, f)) return -1;
    tiles(n, 0, PART_EMBED);
    for (int b = 0; b < DEPTH; b++)
        if (run_block(n, b, f)) return -1;
    tiles(n, 0, PART_LAST);
    return stopped(n, f) ? -1 : look(n, TAP_VELOCITY, 0, f);
}
