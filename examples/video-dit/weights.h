/* weights.h: a safetensors file whose tensors are widened to f32 on reading. */
#ifndef VIDEO_DIT_WEIGHTS_H
#define VIDEO_DIT_WEIGHTS_H

#include "fail.h"
#include <jansson.h>

typedef struct weights {
    const char *path;          /* of the caller */
    unsigned char *bytes;      /* the whole file */
    const unsigned char *data; /* behind the header */
    size_t data_bytes;
    json_t *header;
} weights;

/* Reads and checks the file. On failure nothing is left to close. */
int weights_open(weights *w, const char *path, failure *f);
void weights_close(weights *w);

/* Widens the tensor `name` to `to`. Its shape must be [rows, columns], or [rows] where columns is 0. */
int weights_read(const weights *w, const char *name, int64_t rows, int64_t columns, float *to, failure *f);

/* A JSON text kept in the metadata, parsed; the caller releases it. NULL when there is none. */
json_t *weights_metadata(const weights *w, const char *key);

#endif
