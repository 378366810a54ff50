/* support.h: tensors, calls and counters that all tests share. */
#ifndef TESTS_SUPPORT_H
#define TESTS_SUPPORT_H

#include <attn/attn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four above first. */
#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__)
#define TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TEST_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_TSAN 1
#endif
#endif
#ifndef TEST_ASAN
#define TEST_ASAN 0
#endif
#ifndef TEST_TSAN
#define TEST_TSAN 0
#endif
/* Rounds that look for wrong numbers; a sanitized build, which looks for wrong memory and is slow, runs a
 * part of them: a fifth of what is drawn, and every seventh of what steps through combinations. */
#define TEST_STEP                                                                                            \
    (TEST_ASAN || TEST_TSAN ? 7 : 1) /* through combinations, with no factor that their axes have */
#define TEST_ROUNDS(n) (TEST_ASAN || TEST_TSAN ? ((n) + 4) / 5 : (n))

/* Ends a cmocka test as skipped, saying why on standard output. */
#define SKIP_BECAUSE(reason)                                                                                 \
    do {                                                                                                     \
        print_message("skipped: %s\n", reason);                                                              \
        skip();                                                                                              \
    } while (0)

/* ---- tensors ---- */

/* A DLTensor with the arrays it points to; must not be copied. Fresh memory holds NaN bytes, so that an
 * output element nobody wrote is found. */
typedef struct tensor {
    DLTensor dl;
    int64_t shape[4];
    int64_t strides[4];
    size_t bytes;
    void *memory; /* NULL: someone else's */
} tensor;

void tensor_make(tensor *t, attn_dtype dtype, int ndim, const int64_t *shape);
/* A view of foreign memory with given strides (elements). */
void tensor_view(tensor *t, attn_dtype dtype, int ndim, const int64_t *shape, const int64_t *strides,
                 void *data);
void tensor_free(tensor *t);

/* Element at a multi-index, through strides and byte offset. Integers and bool as numbers. */
double tensor_get(const DLTensor *t, const int64_t *index);
void tensor_set(const DLTensor *t, const int64_t *index, double value);
/* The same in flat row-major order of the logical tensor. */
double tensor_flat(const DLTensor *t, int64_t flat);
void tensor_set_flat(const DLTensor *t, int64_t flat, double value);
int64_t tensor_count(const DLTensor *t);

void tensor_fill(const tensor *t, double value);
/* Element n is value(n, arg). */
void tensor_generate(const tensor *t, double (*value)(int64_t n, const void *arg), const void *arg);
/* The field cases' generator: hashes of the flat index in [-1, 1), times scale. */
void tensor_mix32(const tensor *t, uint32_t seed, double scale);
/* Copies every element of from, by logical index. */
void tensor_copy(const DLTensor *to, const DLTensor *from);

/* Asserts. label names the call in messages. */
void tensor_all_near(const char *label, const tensor *t, double value, double atol);
void tensor_near(const char *label, const DLTensor *got, const DLTensor *want, double atol);
/* Equal element by element, NaN never. */
void tensor_same(const char *label, const DLTensor *got, const DLTensor *want);
void value_near(const char *label, double got, double want, double atol);
void text_has(const char *text, const char *word);

/* ---- calls ---- */

typedef struct dims {
    int64_t b, sq, sk, h, hk, d, dv;
} dims;

/* The two implementations of the library itself, for tests that hold for both. */
extern const char *const backends[2];
#define FOR_BACKENDS(name) for (const char *const *name = backends; name < backends + 2; name++)

/* One call with all that it needs. make fills tensors' shapes, options and args; a test may then change any
 * of these before run. */
typedef struct test_call {
    attn_options options;
    attn_layer_options layer;
    attn_args args;
    attn_error error;
    tensor q, k, v, out, lse;
    tensor mask; /* made by call_mask */
    char implementation[64];
    char backend[64];
} test_call;

void call_make(test_call *c, const char *backend, attn_dtype dtype, dims d);
void call_mix32(test_call *c, uint32_t seed_q, uint32_t seed_k, uint32_t seed_v);
/* Adds a mask of this shape; values come from the caller. */
void call_mask(test_call *c, attn_dtype dtype, int64_t b, int64_t h, int64_t q, int64_t k);
/* Opens context and layer, forwards, closes. */
attn_status call_try(test_call *c);
/* The same, with an open context. */
attn_status call_try_in(test_call *c, attn_context *context);
/* The same; anything but success fails the test. */
void call_run(test_call *c);
void call_free(test_call *c);

/* A context from options, asserted. */
attn_context *context_open(const attn_options *options);
attn_layer *layer_open(attn_context *context, const attn_layer_options *options);

/* Plain double attention of a call's q, k, v into f64 tensors of out's and lse's shapes; keep tells whether
 * query i may see key j (NULL: always). Honours scale and softcap of the layer; nothing else. */
typedef int (*keep_fn)(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j);
void call_truth(const test_call *c, keep_fn keep, tensor *out, tensor *lse);

/* ---- counters ---- */

/* Trace lines of a context, kept as one text. */
typedef struct trace_text {
    char text[16384];
    int reasons;
} trace_text;
void trace_collect(void *user, const attn_trace *trace);

/* An allocator that counts. poison fills memory with NaN bytes when it comes and when it goes. */
typedef struct counting {
    attn_allocator allocator;
    int poison;
    int64_t fail_at; /* the n-th call from 1 fails, once; 0: none */
    int64_t calls, live_blocks, live_bytes, peak_bytes;
} counting;
void counting_init(counting *c);

int task_count(void);                  /* threads of this process */
int64_t status_kib(const char *field); /* a line of /proc/self/status, -1: absent */
int reset_peak_memory(void);           /* 0: VmHWM starts again from now */

#endif
