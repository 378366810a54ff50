/* verify.h: draws a reference case and compares with the reference arrays. */
#ifndef VIDEO_DIT_VERIFY_H
#define VIDEO_DIT_VERIFY_H

#include "network.h"

typedef struct comparison {
    char name[32];
    const char *measure;
    double value, limit;
} comparison;

enum { COMPARISONS = 48 };

typedef struct verdict {
    const char *name; /* of the case */
    clip_shape shape;
    int steps;
    int count;
    comparison rows[COMPARISONS];
    double psnr; /* dB to the reference video; infinite when every byte is equal */
    int64_t bytes, differing;
    double seconds;
    int values_good; /* every row is within its limit */
    int psnr_good;
} verdict;

/* The least PSNR of a clip that counts as the reference video. */
#define PSNR_LIMIT 40.0

/* folder: where reference.json and the arrays are. quiet: no progress bar. */
int verify(verdict *v, const char *folder, const char *name, const model *m, const attention *a, pool *p,
           int quiet, failure *f);

/* The reference case that draws just this clip, "small" or "large"; NULL: none does. */
const char *verify_same_case(const char *folder, clip_shape shape, const scene *s, uint64_t seed, int steps);

/* Compares a clip that was drawn anyhow with the video of that case. */
int verify_clip(verdict *v, const char *folder, const char *name, const network *n, int steps, failure *f);

#endif
