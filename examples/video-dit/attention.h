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
    const char *backend; /* NULL: automatic */
    const char *config;  /* JSON, NULL: none */
    attn_dtype dtype;    /* of q, k, v */
    int threads;         /* 0: as many as this process may use */
    int ignore_env;
    const int32_t *cancel;
} attention_options;

typedef struct attention {
    attn_context *context;
    attn_layer *layers[ROLES][DEPTH];
    attn_dtype dtype;
    const int32_t *cancel;
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

/* out [q.rows, out_stride] f32 = softmax(q k^T / 8) v per head; valid hides keys, NULL: none. */
int attention_run(const attention *a, int role, int block, row_view q, row_view k, row_view v,
                  const unsigned char *valid, float *out, int64_t out_stride, failure *f);

#endif
