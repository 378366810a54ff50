/* files.h: the two file formats of tensors, on open streams. tensor_load and tensor_save_all stand above
 * them. */
#ifndef ATTN_CLI_FILES_H
#define ATTN_CLI_FILES_H

#include <jansson.h>
#include <stdio.h>

#include "tensor.h"

/* A stream to read from, with its name for messages and its size in bytes. */
struct file_in {
    FILE *stream;
    const char *path;
    uint64_t bytes;
};

/* Fails: io. The stream is closed by file_close. */
attn_status file_open(const char *path, struct file_in *file, attn_error *error);
void file_close(struct file_in *file);
/* Reads exactly `bytes` bytes. Fails: io, "truncated" when the file ends before. */
attn_status file_read(struct file_in *file, void *to, size_t bytes, const char *what, attn_error *error);

/* tensor_make for a tensor of a file of file_bytes: a shape that the file cannot hold is refused before
 * memory is asked for. Messages name the file. */
attn_status tensor_make_in(const struct file_in *file, attn_dtype dtype, int ndim, const int64_t *shape,
                           struct tensor *tensor, attn_error *error);

/* Elements in row-major order, whatever the strides. Returns 0, or -1 with errno set. */
int file_write_elements(FILE *stream, const DLTensor *tensor);

/* NumPy: versions 1.0, 2.0, 3.0; C and Fortran order (the strides say which); little endian. */
attn_status npy_read(struct file_in *file, attn_dtype as, struct tensor *tensor, attn_error *error);
int npy_write(FILE *stream, const DLTensor *tensor);

/* safetensors. name NULL: the only tensor of the file. */
attn_status safetensors_read(struct file_in *file, const char *name, attn_dtype as, struct tensor *tensor,
                             attn_error *error);
/* Checks the whole header: JSON, dtypes, shapes, offsets in bounds, neither overlaps nor holes. *header is
 * owned by the caller, *data_start is where offset 0 lies. */
attn_status safetensors_header(struct file_in *file, json_t **header, uint64_t *data_start,
                               attn_error *error);
/* Writes the tensors named, and behind them those of `old` (NULL: none) that have other names, with its
 * __metadata__. Fails: those of safetensors_header for old, io, out_of_memory. */
struct safetensors_out {
    const char *const *names;
    const DLTensor *const *tensors;
    size_t count;
};
attn_status safetensors_write(FILE *stream, const struct safetensors_out *out, struct file_in *old,
                              attn_error *error);

#endif
