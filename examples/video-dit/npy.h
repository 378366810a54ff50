/* npy.h: NumPy's .npy, version 1, C order: f32 and u8. */
#ifndef VIDEO_DIT_NPY_H
#define VIDEO_DIT_NPY_H

#include "fail.h"
#include "file.h"

typedef struct npy {
    unsigned char *file;
    const void *data;
    int rank;
    int64_t shape[8];
    int64_t count;
    char type[8]; /* "<f4" or "|u1" */
} npy;

/* Reads a file whose elements must be of this type. npy_drop releases it. */
int npy_read(npy *a, const char *path, const char *type, failure *f);
void npy_drop(npy *a);

/* Adds a u8 array to the buffer. */
void npy_encode_u8(buffer *b, const unsigned char *values, const int64_t *shape, int rank);

#endif
