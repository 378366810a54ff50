/* npy.h: reads a .npy file into memory. */
#ifndef CONFORMANCE_NPY_H
#define CONFORMANCE_NPY_H

#include <attn/attn.h>
#include <stddef.h>

#define NPY_MAX_RANK 8

/* A C-order array. data is malloc'ed and never NULL after a successful read. */
typedef struct npy {
    attn_dtype dtype;
    int rank;
    int64_t shape[NPY_MAX_RANK];
    int64_t count;
    size_t bytes;
    void *data;
} npy;

/* 0, or -1 with one sentence in why. */
int npy_read(const char *path, npy *array, char *why, size_t room);
void npy_free(npy *array);
double npy_get(const npy *array, int64_t n);

#endif
