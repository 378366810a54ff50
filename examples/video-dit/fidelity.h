/* fidelity.h: how near a clip is to one that was drawn another way. */
#ifndef VIDEO_DIT_FIDELITY_H
#define VIDEO_DIT_FIDELITY_H

#include "fail.h"
#include "shape.h"

typedef struct fidelity {
    double psnr; /* dB; infinite when every byte is equal */
    double ssim; /* 1: equal; NaN when a side is shorter than the window */
} fidelity;

/* Compares with the bytes of a .npy file of the same size, as --video writes them. */
int fidelity_find(fidelity *to, const char *path, clip_shape shape, const unsigned char *bytes, failure *f);

/* Of equally many bytes. */
double fidelity_psnr(const unsigned char *a, const unsigned char *b, int64_t count);

#endif
