/* check.h: the parts of the program gpu-check. */
#ifndef ATTN_CUDA_CHECK_H
#define ATTN_CUDA_CHECK_H

#include <attn/attn.h>
#include <cuda_runtime_api.h>

/* ---- values.c ------------------------------------------------------------------------------------------ */

extern int failures; /* of checks, so far */

/* The program ends with status 4 where going on would say nothing. */
void need(int ok, const char *what);
void cuda(cudaError_t code, const char *what);

extern uint64_t random_state;
uint32_t random_word(void);
int64_t random_below(int64_t n);
double random_unit(void);
double random_normal(void);
int chance(int percent);

uint16_t to_bf16(float x);
uint16_t to_f16(float x);
double element(attn_dtype dtype, const void *data, int64_t at);
void set_element(attn_dtype dtype, void *data, int64_t at, double x);

/* ---- tensors.c ----------------------------------------------------------------------------------------- */

/* One on the host, one on the device, and for floats one in double. */
enum { HOST, DEVICE, WIDE, FORMS };

typedef struct tensor {
    attn_dtype dtype;
    int64_t shape[4], strides[4], wide_strides[4], elements, count;
    size_t bytes;
    DLTensor dl[FORMS];
} tensor;

/* inner: stride of the last axis. wide: the truth reads these values in double, else in the same type. */
void make(tensor *t, attn_dtype dtype, int ndim, const int64_t *shape, int64_t inner, int wide);
void drop(tensor *t);
int64_t offset_of(const tensor *t, int64_t flat);
void set(tensor *t, int64_t flat, double x);
void fill(tensor *t, double scale);
void upload(tensor *t);
void poison(tensor *t); /* on the device */
/* Worst element and relative L2 error of what the device holds; NaN must meet NaN. want: dense, in double if
 * wide, else f32. Returns elements that differ in kind. */
int64_t compare(tensor *t, const void *want, int wide, double *worst, double *l2);

/* ---- problems.c ---------------------------------------------------------------------------------------- */

typedef struct problem {
    char text[320];
    attn_layer_options layer;
    attn_args args[FORMS]; /* DEVICE, and WIDE for the truth */
    tensor q, k, v, out, lse, mask, key_mask, lengths, cu_q, cu_k, sinks, counts, blocks;
    attn_span spans[3];
    attn_query_range ranges[2];
    attn_block_map map[FORMS];
    int64_t broken[3]; /* sample, head, query block of the list that does not hold on the device; -1: none */
    attn_dtype dtype;
    double peak;
} problem;

/* flash: only what tensor-core kernels take. */
void make_problem(problem *p, int flash);
void drop_problem(problem *p);
void note(problem *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Hands a tensor to the calls of the device and of the truth, as the member at `field` of attn_args. */
void point(problem *p, size_t field, tensor *t);

/* ---- maps.c -------------------------------------------------------------------------------------------- */

/* Lists for some blocks, with some of them empty; about every fifth map has one list on the device that does
 * not hold. */
void add_map(problem *p, int64_t b, int64_t h, int64_t sq, int64_t sk);
/* What the truth is for rows whose list does not hold: NaN. */
void break_truth(problem *p);
/* A map on the device that keeps `keep` of the key blocks of each list, drawn at random. */
void make_random_map(tensor *counts, tensor *blocks, attn_block_map *map, int64_t heads, int64_t length,
                     int64_t block, int64_t keep);

/* ---- judge.c ------------------------------------------------------------------------------------------- */

extern attn_context *device_context, *host_context;
extern cudaStream_t stream;
extern double most_l2[16]; /* of the implementation's problems, by type of the output */
extern int refused;        /* problems of this implementation */

/* partial: the implementation may refuse problems, with a reason. */
void check_one(const char *impl, int flash, int partial, int number);
/* Large problems: the tensor-core kernel against the plain one, both on the device. */
void check_large(const char *impl);

/* ---- timing.c ------------------------------------------------------------------------------------------ */

void time_all(char **impls, int count);

/* ceiling.cu: enqueues products; returns how many operations they are. */
double ceiling_launch(const uint32_t *seed, float *out, int steps);

#endif
