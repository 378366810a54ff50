/* tensor.h: tensors of the tools: owned memory, files, element access, work and error measures. */
#ifndef ATTN_CLI_TENSOR_H
#define ATTN_CLI_TENSOR_H

#include <attn/attn.h>

#define TENSOR_DIMS 8

/* Owns its memory (64-byte aligned); dl describes it and is what the library gets. Zeroed: absent. */
struct tensor {
    DLTensor dl;
    int64_t shape[TENSOR_DIMS];
    int64_t strides[TENSOR_DIMS]; /* elements */
    void *memory;
    size_t bytes;
    attn_dtype dtype;
};

/* A row-major tensor with undefined contents. Fails: invalid_shape (overflow, too many axes), out_of_memory.
 */
attn_status tensor_make(struct tensor *tensor, attn_dtype dtype, int ndim, const int64_t *shape,
                        attn_error *error);
void tensor_free(struct tensor *tensor);

/* Reads FILE or FILE:TENSOR; the ending .npy or .safetensors tells the format. A safetensors file with one
 * tensor needs no name. as: 0, or the dtype the elements are to be read as (bf16 for a u16 .npy). Fails: io,
 * syntax, invalid_shape, invalid_dtype, unknown_name, out_of_memory; the sentence names the file. */
attn_status tensor_load(const char *spec, attn_dtype as, struct tensor *tensor, attn_error *error);
/* One output: FILE or FILE:TENSOR (safetensors; the name is "out" when left out). Any strides. */
struct tensor_output {
    const char *spec;
    const DLTensor *tensor;
};
/* Writes every output, those of one safetensors file together and with the other tensors that it holds, each
 * file through a temporary file and a rename: after a failure the file at fault is as it was before. bf16
 * goes into .npy as uint16. Fails: io, invalid_value. */
attn_status tensor_save_all(const struct tensor_output *outputs, size_t count, attn_error *error);
/* Whether a spec can be written at all: a known ending, a folder that can be written. Asked before long work.
 */
attn_status tensor_save_check(const char *spec, attn_error *error);
/* Fails with mutually_exclusive when a .npy output is the file of an input, which it would replace. */
attn_status tensor_save_apart(const char *spec, const char *input, attn_error *error);

int64_t tensor_count(const DLTensor *tensor); /* elements */
/* Element by row-major index, whatever the strides and the dtype. */
const char *tensor_address(const DLTensor *tensor, int64_t index);
double tensor_at(const DLTensor *tensor, int64_t index);
/* All elements in row-major order as a malloc'd array; NULL: out of memory. */
double *tensor_values(const DLTensor *tensor);
/* The value rounded to dtype and back (f32, f16, bf16, f64; nearest even). */
double tensor_round(attn_dtype dtype, double value);
/* Stores values (rounded to dtype, nearest even) at an address. */
void tensor_store(void *address, attn_dtype dtype, double value);
double tensor_fetch(const void *address, attn_dtype dtype);

/* How far `values` is from `exact`, both of `count` elements. Equal infinities and two NaNs are left out and
 * counted; any other non-finite difference makes max_abs and relative_l2 infinite and cosine 0. */
struct tensor_error {
    double cosine;      /* 1 for two zero vectors */
    double relative_l2; /* |values - exact| / |exact|; 0 for 0/0 */
    double max_abs;
    int64_t worst; /* index of max_abs, -1 when count is 0 */
    int64_t count;
    int64_t not_finite, not_finite_exact; /* in values, in exact */
    int64_t not_finite_both;              /* the same infinity or NaN in both; left out of every measure */
};
void tensor_compare(const double *values, const double *exact, int64_t count, struct tensor_error *error);

/* Work of a call in FLOP: 2 (D + Dv) for each query head and each query-key pair that lengths, packing,
 * causal order, windows, key masks and block maps keep. 4-D masks and spans are not subtracted. Dense and
 * square: 4 B H S S D. */
double tensor_flops(const attn_layer_options *layer, const attn_args *args);
#define TENSOR_FLOPS_TEXT                                                                                    \
    "FLOP are counted as 2 (D + Dv) for each head and query-key pair; pairs behind causal order, windows,\n" \
    "lengths, packing, key masks and block maps are left out, pairs behind 4-D masks are not."

#endif
