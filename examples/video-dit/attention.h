/* attention.h: the attention sites of the model, run by libattn. */
#ifndef VIDEO_DIT_ATTENTION_H
#define VIDEO_DIT_ATTENTION_H

#include "fail.h"
#include "shape.h"

/* R(NAME, role, prefix of its layers in the model, features its calls need) */
#define ROLE_LIST(R)                                                                                         \
    R(SELF, "self", "attn", 0)                                                                               \
    R(CROSS, "cross", "cross", ATTN_FEATURE(KEY_MASK))

enum {
#define R(NAME, role, prefix, needs) NAME,
    ROLE_LIST(R)
#undef R
        ROLES
};

typedef struct attention_options {
    const char *backend;     /* NULL: automatic */
    const char *config;      /* JSON, NULL: none */
    const char *self_params; /* JSON, NULL: none */
    attn_dtype dtype;        /* of q, k, v */
    int threads;             /* 0: as many as this process may use */
    int ignore_env;
    int on_gpu; /* layers on the first GPU; the rows stay in host memory and are copied */
    const int32_t *cancel;
} attention_options;

/* Where in the making of a clip a network call is. Sparse backends ask for it; dense ones never look. */
typedef struct moment {
    attn_forward_state state; /* points to the fields below */
    int64_t step, steps;
    int64_t latent[3], patch[3];
    double time; /* 1: noise, 0: picture */
} moment;

typedef struct attention {
    attn_context *context;
    attn_layer *layers[ROLES][DEPTH];
    attn_dtype dtype;
    const int32_t *cancel;
    struct device *device; /* NULL: the host */
} attention;

/* Rows of HEADS x HEAD_DIM channels; the stride is in elements. */
typedef struct row_view {
    const void *data;
    int64_t rows, stride;
} row_view;

const char *role_name(int role);

/* One layer for each site. On failure nothing is left to close. */
int attention_open(attention *a, const attention_options *options, failure *f);
void attention_close(attention *a);

/* Step `step` of `steps`, at a time, of a clip whose pixels the model sees in patches of one frame. */
void moment_set(moment *m, clip_shape shape, int step, int steps, double time);

/* Share of the pairs of blocks of q and k that the last call of a site computed; 1: all. */
double attention_kept(const attention *a, int role, int block);

/* out [q.rows, out_stride] f32 = softmax(q k^T / 8) v per head; valid hides keys, NULL: none; nor need a
 * moment be known. */
int attention_run(const attention *a, const moment *when, int role, int block, row_view q, row_view k,
                  row_view v, const unsigned char *valid, float *out, int64_t out_stride, failure *f);

#endif
