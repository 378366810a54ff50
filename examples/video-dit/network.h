/* network.h: one clip on its way through the network. */
#ifndef VIDEO_DIT_NETWORK_H
#define VIDEO_DIT_NETWORK_H

#include "attention.h"
#include "model.h"
#include "pool.h"
#include "scene.h"

/* Where time goes. C(NAME, word of the JSON report, words of the printed report) */
#define CLOCK_LIST(C)                                                                                        \
    C(SELF_ATTENTION, "self_attention", "self-attention (libattn)")                                          \
    C(CROSS_ATTENTION, "cross_attention", "cross-attention (libattn)")                                       \
    C(MATMUL, "matmul", "matrix products")                                                                   \
    C(ROWOPS, "norms", "norms, RoPE, GELU")                                                                  \
    C(OTHER, "other", "the rest")

enum {
#define C(NAME, json, text) CLOCK_##NAME,
    CLOCK_LIST(C)
#undef C
        CLOCKS
};

typedef struct network network;

/* Points at which somebody may look inside; what is ready then stands in the fields of the network. */
enum tap_point {
    TAP_TIME,      /* e, mod */
    TAP_BLOCK_IN,  /* h */
    TAP_SELF,      /* q, k, v in qkv */
    TAP_SELF_OUT,  /* mixed */
    TAP_CROSS,     /* cross_q, cross_k, cross_v */
    TAP_CROSS_OUT, /* mixed */
    TAP_BLOCK_OUT, /* h */
    TAP_VELOCITY   /* velocity */
};
/* Returns 0, or -1 with the failure filled. */
typedef int (*tap_fn)(void *user, int point, int block, const network *n, failure *f);

/* Reduced copies of q, k and v, when attention does not take f32. */
typedef struct reduced_copies {
    uint16_t *qkv;     /* [S, 3 DIM] */
    uint16_t *cross_q; /* [S, DIM] */
    uint16_t *cross_k[DEPTH], *cross_v[DEPTH];
} reduced_copies;

typedef struct worker_state {
    float *tile; /* [TILE, DIM] */
    float *wide; /* [TILE, MLP] */
    double clocks[CLOCKS];
    char padding[64]; /* clocks of two workers do not share a cache line */
} worker_state;

struct network {
    const model *model;
    const attention *attention;
    pool *pool;
    clip_shape shape;
    int64_t tokens;
    float *memory, *at;                     /* one piece for all arrays below */
    float *z;                               /* [S, TOKEN], the clip as tokens: the input */
    float *velocity;                        /* [S, TOKEN], the output */
    float *h;                               /* [S, DIM] */
    float *place;                           /* [S, DIM], what the patch embedding adds: place and bias */
    float *cosine, *sine;                   /* [S, PAIRS] */
    float *qkv;                             /* [S, 3 DIM]: q, k, v side by side */
    float *cross_q;                         /* [S, DIM] */
    float *mixed;                           /* [S, DIM], out of attention */
    float *cross_k[DEPTH], *cross_v[DEPTH]; /* [SLOTS, DIM] */
    float *context;                         /* [SLOTS, DIM] */
    reduced_copies reduced;
    moment when;        /* set before each call */
    double kept[DEPTH]; /* of self-attention: the sum over calls of the share of block pairs computed */
    int calls;
    unsigned char valid[SLOTS];
    float e[DIM], mod[MODULATIONS * DIM], shaped[DEPTH][MODULATIONS * DIM], last[2 * DIM];
    worker_state *workers;
    double clocks[CLOCKS]; /* wall seconds */
    tap_fn tap;
    void *tap_user;
    void (*progress)(void *user, int block); /* after each block; NULL: nobody asks */
    void *progress_user;
};

/* Allocates everything for clips of this shape and encodes the scene. On failure nothing is left to close. */
int network_open(network *n, const model *m, const attention *a, pool *p, clip_shape shape, const scene *s,
                 failure *f);
void network_close(network *n);

/* velocity = network(z, t). Allocates nothing. */
int network_run(network *n, double t, failure *f);

/* blocks.c: the parts between two attentions, over tiles of rows. */
enum { TILE = 128 };
typedef enum tile_part {
    PART_EMBED,
    PART_BEFORE_SELF,
    PART_BEFORE_CROSS,
    PART_AFTER_CROSS,
    PART_LAST
} tile_part;
void blocks_run(network *n, int block, tile_part part);

double seconds_now(void);

#endif
