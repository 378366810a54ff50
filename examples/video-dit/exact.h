/* exact.h: how far the chosen attention is from the reference implementation, on the model's own q, k and v.
 */
#ifndef VIDEO_DIT_EXACT_H
#define VIDEO_DIT_EXACT_H

#include "network.h"

#define EXACT_BACKEND "TORCH_SDPA"

typedef struct deviation {
    double relative; /* |out - reference| / |reference|, both over all rows compared */
    double largest;  /* of one value */
    int64_t rows;    /* queries compared, with all their heads; 0: not measured */
} deviation;

typedef struct exact {
    attention reference;
    int block;  /* the block that is looked at */
    int armed;  /* the next network call is the one to look at */
    float *out; /* [EXACT_ROWS, DIM] */
    deviation deviations[ROLES];
    double seconds; /* what the look took */
} exact;

enum { EXACT_ROWS = 512 };

int exact_open(exact *e, const int32_t *cancel, int threads, failure *f);
void exact_close(exact *e);

/* A tap_fn; user is the exact. */
int exact_tap(void *user, int point, int block, const network *n, failure *f);

#endif
