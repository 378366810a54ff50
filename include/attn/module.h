/* module.h: add an implementation to libattn.              SPDX-License-Identifier: Apache-2.0
 *
 * An implementation is one struct of facts and functions. Those inside the library and those in a module
 * (a shared object) are the same struct. A module exports one symbol:
 *
 *   ATTN_MODULE_EXPORT const attn_module *attn_module_v1(void);
 *
 * It returns static descriptors and does nothing else: no allocation, no threads, no device, no code beyond
 * the baseline instruction set. modules/template is a complete small module.
 *
 * Compatibility: structs start with their size and only grow at the end; a shorter struct reads as
 * zero-filled; unknown feature bits are ignored; another major version, a header too short to carry its
 * version and a missing symbol are refused with both sides named. Loading is all or nothing, accepted modules
 * stay loaded. */
#ifndef ATTN_MODULE_H
#define ATTN_MODULE_H

#include <attn/attn.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ATTN_MODULE_MAJOR  1
#define ATTN_MODULE_MINOR  0
#define ATTN_MODULE_EXPORT ATTN_API
#define ATTN_MODULE_SYMBOL "attn_module_v1"

/* ---- one call as plain numbers ------------------------------------------------------------------ */

typedef enum attn_mask_form { ATTN_FORM_NONE = 0, ATTN_FORM_KEEP = 1, ATTN_FORM_ADDITIVE = 2 } attn_mask_form;

/* What a plan may depend on. Zeroed before it is filled and free of padding: equal bytes mean an equal plan.
 * Strides are in elements and 0 along an axis that is broadcast or of size 1. */
typedef struct attn_problem {
    uint32_t size;
    attn_dtype dtype; /* q, k, v */
    attn_dtype out_dtype;
    attn_dtype mask_dtype;   /* 0: no mask */
    attn_dtype scores_dtype; /* 0: no scores */
    int32_t mask_form;       /* attn_mask_form */
    int32_t scores_mode;
    int32_t causal;
    int32_t alignment;
    uint32_t window;     /* ATTN_WINDOW_* */
    int32_t device_type; /* DLDeviceType */
    int32_t device_id;
    uint64_t features; /* ATTN_FEATURE bits this call needs */
    int64_t batch;     /* samples; packed: sequences */
    int64_t heads, kv_heads;
    int64_t q_len, kv_len; /* per sample; packed: totals over all sequences */
    int64_t head_dim, value_head_dim;
    int64_t window_left, window_right;
    int64_t align;  /* largest power of two, at most 64, that divides the addresses of q, k, v and out and
                       their byte strides; channels side by side do not count */
    double scale;   /* final: never 0 */
    double softcap; /* 0: off */
    int64_t q_stride[4]; /* batch, sequence, head, channel; packed: batch stride 0 */
    int64_t k_stride[4];
    int64_t v_stride[4];
    int64_t out_stride[4];
    int64_t mask_stride[4];     /* batch, head, query, key */
    int64_t scores_stride[4];   /* batch, head, query, key */
    int64_t lse_stride[3];      /* batch, head, query */
    int64_t key_mask_stride[2]; /* batch, key */
    int64_t block_q, block_k;   /* granularity of the block map; 0: none */
    attn_dtype kv_dtype;        /* of k and v in memory: dtype (or 0), unless a cache stores another */
    int32_t latent;             /* v is the first value_head_dim channels of k */
    int32_t k_scale_form;       /* attn_scale_form */
    int32_t v_scale_form;
    int64_t
        block_size;   /* tokens of a page; 0: no pages. With pages the first two strides of k and v are those
                         of pages and of tokens in a page, and kv_len is what a block table can hold */
    int64_t selected; /* entries of a row's list of keys; 0: no lists */
    int64_t tree;     /* rows of the tree mask; 0: none */
    int64_t k_scale_stride[3]; /* page, token, head */
    int64_t v_scale_stride[3];
} attn_problem;

/* What a scale of a cache holds for. */
typedef enum attn_scale_form {
    ATTN_SCALE_NONE = 0,
    ATTN_SCALE_ALL = 1,
    ATTN_SCALE_HEAD = 2,
    ATTN_SCALE_TOKEN = 3 /* each token and head */
} attn_scale_form;

/* An i32 or i64 vector. data NULL: absent. */
typedef struct attn_index {
    const void *data;
    int64_t stride; /* elements */
    int64_t count;
    int64_t bits; /* 32 or 64 */
} attn_index;

/* A checked block map. counts NULL: none. Lists in device memory have not been checked. */
typedef struct attn_block_lists {
    const int32_t *counts, *blocks;
    int64_t count_stride[3]; /* sample, head, query block; elements, 0 where shared */
    int64_t block_stride[3]; /* from list to list; the entries of a list are adjacent */
    int64_t batch, heads;    /* that have lists of their own; 1: shared */
    int64_t capacity;        /* entries of a list at most */
    int64_t q_len, kv_len, block_q, block_k;
    int64_t q_blocks, kv_blocks;
} attn_block_lists;

/* The list of a sample, query head and query block, in host memory. */
static inline const int32_t *attn_block_list(const attn_block_lists *lists, int64_t b, int64_t h, int64_t i,
                                             int64_t *count)
{
    const int64_t *c = lists->count_stride, *l = lists->block_stride;
    *count = lists->counts[b * c[0] + h * c[1] + i * c[2]];
    return lists->blocks + (b * l[0] + h * l[1] + i * l[2]);
}

/* The lists of a map on any device, without a look at what is in them. They borrow the map's memory. Fails:
 * invalid_struct, invalid_value, invalid_shape, invalid_dtype, invalid_layout. */
ATTN_API attn_status attn_block_map_read(const attn_block_map *map, attn_block_lists *lists,
                                         attn_error *error);
/* The lists of a host map, checked like attn_block_map_check. */
ATTN_API attn_status attn_block_map_lists(const attn_block_map *map, attn_block_lists *lists,
                                          attn_error *error);
/* What is in the lists: range, order, duplicates. Fails: invalid_value. */
ATTN_API attn_status attn_block_lists_check(const attn_block_lists *lists, attn_error *error);
/* i32 or i64 numbers by request, row and entry. data NULL: absent. */
typedef struct attn_table {
    const void *data;
    int64_t stride[3]; /* elements; 0 along an axis that there is not */
    int64_t bits;      /* 32 or 64 */
} attn_table;

/* What a run tells of itself; zeroed before it. */
typedef struct attn_report {
    uint32_t size;
    int32_t dense;       /* 1: a dense pass that is part of the backend's definition; text says why */
    int64_t kept, total; /* pairs of blocks that were computed, of how many; 0 of 0: no blocks */
    char text[160];      /* for people: "dense:step 1 of 20", "17 of 168 cubes"; "": nothing to say */
    double map_seconds;  /* of the run, choosing blocks: see attn_call_chose */
} attn_report;

/* One call, checked: shapes agree with the problem, pointers are final (byte offsets added). Lengths and
 * cu_seqlens in host memory have been checked as well: 0 <= length <= kv_len, cu ascending from 0 to the
 * total. */
typedef struct attn_call {
    uint32_t size;
    uint32_t span_count;
    uint32_t query_range_count;
    uint32_t reserved;
    const attn_problem *problem;
    const void *q, *k, *v;
    void *out;
    float *lse; /* NULL: not asked for */
    void *scores;
    const void *mask;
    const uint8_t *key_mask;
    const float *sinks; /* [heads], contiguous */
    attn_index kv_lengths;
    attn_index cu_q, cu_k;
    const attn_span *spans;
    const attn_query_range *query_ranges;
    int64_t query_start;
    const int32_t *cancel;
    void *stream;
    /* Workspace, as planned: shared_bytes at `shared`, and thread_bytes for worker w at
     * (char *)scratch + w * scratch_stride. All 64-byte aligned; contents undefined. On a device it is memory
     * of that device, there is one worker, and calls on one stream get the same memory one after the other.
     */
    void *shared;
    void *scratch;
    size_t scratch_stride;
    int32_t workers; /* give this to parallel_for */
    int32_t reserved2;
    attn_block_lists blocks;
    attn_table
        block_table;     /* request, none, page; on the host all pages that lengths need have been checked */
    attn_table selected; /* request, row, entry; packed: none, row of the q tensor, entry */
    const float *k_scale, *v_scale;
    const float *alibi;  /* [heads], contiguous */
    const uint8_t *tree; /* strides by request, query, key */
    int64_t tree_stride[3];
    const attn_prefix_range *prefix_ranges; /* ascending by request */
    uint32_t prefix_range_count;
    uint32_t reserved3;
    const struct attn_impl *impl; /* what runs, as it was registered */
    const char *role;             /* of the layer */
    int64_t layer_index;          /* the number in the layer's prefix; -1: none */
    /* For implementations with ATTN_IMPL_PER_FORWARD, else NULL. Copies that live until run returns. */
    const attn_params *params;         /* merged: static < per-forward < per-call, without nulls */
    const attn_forward_state *forward; /* samples = batch; NULL: nothing is published */
    attn_report *report;               /* of the host; see attn_call_report */
} attn_call;

/* Where a run tells of itself; NULL with a host that does not listen. */
static inline attn_report *attn_call_report(const attn_call *call)
{
    return call->size < offsetof(attn_call, report) + sizeof call->report ? NULL : call->report;
}

/* Adds `seconds` that went into choosing which blocks are computed, as a part of the run. A host of before
 * does not listen. */
static inline void attn_call_chose(const attn_call *call, double seconds)
{
    attn_report *report = attn_call_report(call);
    if (report && report->size >= offsetof(attn_report, map_seconds) + sizeof report->map_seconds)
        report->map_seconds += seconds;
}

static inline int64_t attn_index_at(const attn_index *index, int64_t i)
{
    return index->bits == 32 ? ((const int32_t *)index->data)[i * index->stride]
                             : ((const int64_t *)index->data)[i * index->stride];
}

static inline int64_t attn_table_at(const attn_table *table, int64_t request, int64_t row, int64_t entry)
{
    int64_t at = request * table->stride[0] + row * table->stride[1] + entry * table->stride[2];
    return table->bits == 32 ? ((const int32_t *)table->data)[at] : ((const int64_t *)table->data)[at];
}

/* Rows of sample (or packed sequence) b: queries [q0, q0 + q_len) of the q tensor, keys [k0, k0 + kv_len) of
 * k and v. kv_len already honours kv_lengths. Host memory only. */
typedef struct attn_rows {
    int64_t q0, q_len, k0, kv_len;
} attn_rows;

static inline attn_rows attn_call_rows(const attn_call *call, int64_t b)
{
    attn_rows r = {0, call->problem->q_len, 0, call->problem->kv_len};
    if (call->cu_q.data) {
        r.q0 = attn_index_at(&call->cu_q, b);
        r.q_len = attn_index_at(&call->cu_q, b + 1) - r.q0;
    }
    if (call->cu_k.data) {
        r.k0 = attn_index_at(&call->cu_k, b);
        r.kv_len = attn_index_at(&call->cu_k, b + 1) - r.k0;
    }
    if (call->kv_lengths.data) {
        int64_t n = attn_index_at(&call->kv_lengths, b);
        if (n < r.kv_len) r.kv_len = n;
    }
    return r;
}

/* Where key `key` of sample b lies in k (with k_stride), v or a scale (with its stride; head of kv): elements
 * from its start. Host memory only. */
static inline int64_t attn_call_key(const attn_call *call, const int64_t *stride, const attn_rows *rows,
                                    int64_t b, int64_t head, int64_t key)
{
    int64_t page = b, row = rows->k0 + key, size = call->problem->block_size;
    if (size > 0) {
        page = attn_table_at(&call->block_table, b, 0, key / size);
        row = key % size;
    }
    return page * stride[0] + row * stride[1] + head * stride[2];
}

static inline int attn_call_cancelled(const attn_call *call)
{
#if defined(__GNUC__)
    return call->cancel && __atomic_load_n(call->cancel, __ATOMIC_RELAXED);
#else
    return call->cancel && *(const volatile int32_t *)call->cancel;
#endif
}

/* The features of calls over a cache and of what servers ask for with it: an implementation of plain tensors
 * that states all of a list leaves these out. */
#define ATTN_FEATURES_SERVING                                                                                \
    (ATTN_FEATURE(PAGED) | ATTN_FEATURE(CACHE_DTYPE) | ATTN_FEATURE(ALIBI) | ATTN_FEATURE(PREFIX_RANGES) |   \
     ATTN_FEATURE(TREE) | ATTN_FEATURE(SELECTED))

/* ---- what the host offers --------------------------------------------------------------------- */

/* Passed to every function below; valid during that call. Thread-safe. */
typedef struct attn_host attn_host;
struct attn_host {
    uint32_t size;
    int32_t threads; /* most workers a call may use */
    const char *isa; /* the user's cap on CPU kernel sets; "" or NULL: none */
    void *context;   /* the host's own */
    void *(*alloc)(const attn_host *host, size_t bytes, size_t align); /* NULL: out of memory */
    void (*release)(const attn_host *host, void *memory);
    /* see attn_parallel_for_fn; workers = call->workers */
    void (*parallel_for)(const attn_host *host, int64_t count, int32_t workers, attn_task_fn task, void *arg);
    void (*log)(const attn_host *host, int32_t level, const char *text);
    /* What the user's profile says for a problem: "isa" (index of a kernel set, see attn_kernel_set_at),
     * "bq", "bk" (blocks of query rows and of keys), "cache" (1: blocks by this machine's cache). Returns 1
     * and sets *value, or 0: nothing is said, the implementation's own choice holds. An implementation brings
     * what it gets within its own limits. Hosts of before lack it: see attn_host_tuned. */
    int (*tuned)(const attn_host *host, const attn_problem *problem, const char *key, int64_t *value);
    /* Runs a call on the device of its tensors by what serves FLASH_ATTN there, with the lists of a host map;
     * NULL: dense. The lists are checked and copied to memory that the context keeps for the stream: such a
     * call cannot be captured. Fails as attn_block_map_check does, and with the reasons of that
     * implementation. */
    attn_status (*run_blocks)(const attn_host *host, const attn_call *call, const attn_block_map *map,
                              attn_error *error);
};

/* The same for every host, however old. */
static inline int attn_host_tuned(const attn_host *host, const attn_problem *problem, const char *key,
                                  int64_t *value)
{
    if (host->size < offsetof(attn_host, tuned) + sizeof host->tuned || !host->tuned) return 0;
    return host->tuned(host, problem, key, value);
}

/* Every failure passes here: fills error (NULL allowed) and returns the kind's status. printf format. */
#if defined(__GNUC__)
ATTN_API attn_status attn_fail(attn_error *error, attn_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#else
ATTN_API attn_status attn_fail(attn_error *error, attn_kind kind, const char *format, ...);
#endif

/* run_blocks for every host, however old. */
static inline attn_status attn_host_run_blocks(const attn_host *host, const attn_call *call,
                                               const attn_block_map *map, attn_error *error)
{
    if (host->size < offsetof(attn_host, run_blocks) + sizeof host->run_blocks || !host->run_blocks)
        return attn_fail(error, ATTN_KIND_FEATURE_UNSUPPORTED,
                         "this host runs no block maps for selectors; use a newer library");
    return host->run_blocks(host, call, map, error);
}

/* ---- implementation --------------------------------------------------------------------------- */

/* accept collects every reason it has against a problem by calling this; none means yes. */
typedef struct attn_reasons attn_reasons;
#if defined(__GNUC__)
ATTN_API void attn_reason(attn_reasons *reasons, attn_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#else
ATTN_API void attn_reason(attn_reasons *reasons, attn_kind kind, const char *format, ...);
#endif

typedef struct attn_workspace {
    size_t shared_bytes; /* once a call */
    size_t thread_bytes; /* once a worker */
} attn_workspace;

typedef struct attn_impl {
    uint32_t size;
    int32_t rank;         /* among implementations of one backend: lower is tried first; ties: built-in,
                             then load order */
    const char *name;     /* unique in a context */
    const char *summary;  /* one line */
    const char *platform; /* "cpu", "cuda", ... */
    const char *const *backends; /* names it serves, NULL-terminated; a name of another domain than diffusion
                                    is written with it: "llm:CPU_ATTN", "vision:sdpa" */
    uint64_t features;           /* ATTN_FEATURE bits */
    uint64_t dtypes;             /* of q, k, v: bits (1 << attn_dtype) */
    int32_t head_dim_max;        /* of both head sizes */
    int32_t head_dim_multiple;   /* 0 or 1: any */
    const int32_t *head_dims;   /* zero-terminated list of the sizes there are; NULL: any up to the maximum */
    int32_t arch_min, arch_max; /* device architecture, major * 10 + minor; 0: any */
    uint32_t flags;             /* ATTN_IMPL_*, also those of attn.h */
    uint32_t reserved;

    /* Further conditions, after features, dtypes and head sizes have been checked. NULL: none. Also asked
     * when a layer opens: what is not known then is 0 (lengths, strides). */
    void (*accept)(const attn_host *host, const attn_problem *problem, attn_reasons *reasons);
    /* Prepares for a problem. *state may be NULL. The workspace must be linear in the sequence lengths. */
    attn_status (*plan)(const attn_host *host, const attn_problem *problem, void **state,
                        attn_workspace *workspace, attn_error *error);
    /* May run in several threads at once with one state, each with a workspace of its own. */
    attn_status (*run)(const attn_host *host, const void *state, const attn_call *call, attn_error *error);
    void (*drop)(const attn_host *host, void *state); /* NULL: nothing to release */
    /* What a plan is, for people: kernel set, tiles. Terminated text of at most bytes. NULL: nothing to say.
     */
    void (*describe)(const attn_host *host, const void *state, char *text, size_t bytes);
    const void *data; /* its own, reached through attn_call.impl */
} attn_impl;

/* ---- platform --------------------------------------------------------------------------------- */

/* One device as its platform sees it. What is not known stays zero. */
typedef struct attn_device_info {
    uint32_t size;
    int32_t has_capability;
    int32_t major, minor;
    int64_t memory_free, memory_total; /* bytes */
    int64_t architecture;              /* a vendor's own number, where there is one */
    char name[128];
    int64_t dnn_version; /* of the vendor's library of neural network kernels: cuDNN 9.5.0 is 90500 */
} attn_device_info;

#define ATTN_PLATFORM_GRAPH_CAPTURE    1u /* calls can be captured into a device graph */
#define ATTN_PLATFORM_FLOAT64          2u
#define ATTN_PLATFORM_CPU_OFFLOAD      4u
#define ATTN_PLATFORM_INDUCTOR         8u  /* a graph compiler is supported */
#define ATTN_PLATFORM_TALKER_GRAPH     16u /* the talker's token predictor may be captured */
#define ATTN_PLATFORM_KV_WRITTEN_FIRST 32u /* needs the whole K/V written before segments */

/* What a platform offers. A NULL slot inherits the base; the base is said after each. Names of workers and
 * stage folders are text that the engine resolves when it needs them, so that platforms never load each
 * other. All functions may be called from any thread and load their vendor's library at first use. */
typedef struct attn_platform {
    uint32_t size;
    int32_t device_type; /* DLDeviceType of its tensors */
    const char *name;
    /* 1: this is such a machine; 0: it is not, with one sentence why. Repeatable, frees what it took, never
     * fails otherwise. Required. */
    int (*probe)(char *why, size_t bytes);
    int32_t (*device_count)(void);                                 /* 0 */
    int (*device)(int32_t index, attn_device_info *info);          /* 0: nothing is known */
    const char *(*runtime_version)(char *text, size_t bytes);      /* "" */
    attn_status (*synchronise)(int32_t device, attn_error *error); /* nothing to wait for */
    void *(*record_event)(int32_t device, void *stream);           /* NULL: no event */
    const char *(*collective)(void);                               /* "" */
    const char *visibility; /* environment variables that hide devices, blank-separated; "" */
    const char *ar_worker, *generation_worker, *diffusion_worker; /* "" */
    const char *stage_configs; /* folder of default stage configurations; "" */
    uint32_t abilities;        /* ATTN_PLATFORM_* */
    uint32_t reserved;
} attn_platform;

/* ---- device ----------------------------------------------------------------------------------- */

/* What runs on one kind of device beside the implementations: its memory, copies and time. A platform says
 * what a machine is like without touching a device; this touches it. Of several modules that offer the same
 * device type, the one loaded first serves. Streams are the device's own (cudaStream_t), NULL its default
 * one. What is enqueued on a stream is done in that order and may return before it is done. Every function
 * may be called from any thread and turns what the device says into a status at once. All but saturate are
 * required. */
typedef struct attn_device {
    uint32_t size;
    int32_t device_type;  /* DLDeviceType */
    const char *platform; /* "cuda" */
    /* At least 256-byte aligned, contents undefined. Works also while the calling thread captures a stream.
     */
    attn_status (*alloc)(int32_t device, size_t bytes, void **memory, attn_error *error);
    void (*release)(int32_t device, void *memory); /* waits for what uses it */
    /* Enqueues `rows` rows of `width` bytes; pitches are bytes from row to row and at least the width. Either
     * side is memory of the host or of this device; ordinary host memory may be reused on return. */
    attn_status (*copy)(int32_t device, void *to, int64_t to_pitch, const void *from, int64_t from_pitch,
                        size_t width, int64_t rows, void *stream, attn_error *error);
    attn_status (*fill)(int32_t device, void *to, int byte, size_t bytes, void *stream, attn_error *error);
    attn_status (*wait)(int32_t device, void *stream, attn_error *error); /* for all that was enqueued */
    /* A mark is a place in a stream; *mark NULL makes one, else it is set anew. seconds waits for both. */
    attn_status (*mark)(int32_t device, void *stream, void **mark, attn_error *error);
    attn_status (*seconds)(int32_t device, void *from, void *to, double *seconds, attn_error *error);
    void (*unmark)(int32_t device, void *mark);
    attn_status (*limits)(int32_t device, attn_device_limits *limits, attn_error *error);
    /* Enqueues matrix products that keep the device's units for a dtype as busy as they can be, for a few
     * milliseconds, and says how many operations they are: with marks around it, what the device can do at
     * most. Fails with dtype_unsupported where there are no such units. NULL: not offered. */
    attn_status (*saturate)(int32_t device, attn_dtype dtype, void *stream, double *flop, attn_error *error);
} attn_device;

/* ---- sparse plugin ---------------------------------------------------------------------------- */

/* The smallest thing that can be added: a shared object with one exported function, found like a module and
 * named by its file (libtopk.so, attn_topk.so and topk.so are "topk"). A configuration names it for
 * SPARSE_ATTN, or directly.
 *
 *   kernel form    int attn_sparse_forward(const attn_sparse_call *call)     computes the output
 *   selector form  int attn_sparse_select(const attn_sparse_call *call, attn_block_map *map)
 *                                                                            says what the library's kernels
 * compute Optional: attn_sparse_geometry, attn_sparse_about. A module can bring several in
 * attn_module.sparse.
 *
 * Both get fp16 or bf16 tensors in BSND, causal or not, with equal head counts and sizes for k and v, and
 * channels side by side; whatever else changes the answer (masks, spans, fewer kv heads, ...) they must
 * declare (attn_sparse). They return 0, or anything else: the call fails, nothing takes their place. They may
 * be called from several threads at once for different layers. An exception that leaves one ends the process:
 * see ATTN_GUARD_SPARSE. */
typedef struct attn_sparse_call {
    uint32_t size;
    uint16_t abi_major, abi_minor; /* of the host: ATTN_MODULE_MAJOR, ATTN_MODULE_MINOR */
    const attn_problem *problem;   /* shapes, types, strides in elements, causal, scale */
    const void *q, *k, *v;
    void *out;
    const attn_call *call; /* the same call with its other parts: mask, spans, lse, stream, cancel, workers */
    const attn_host *host; /* memory, parallel_for, log */
    const attn_params *params; /* merged; declared inputs are in it: "attn_mask" (tensor), "full_attn_spans"
                                  (ints, rows of start and end) */
    const attn_forward_state *forward; /* NULL: nothing is published */
    attn_error *error;                 /* attn_fail fills it; may stay untouched */
} attn_sparse_call;

typedef int (*attn_sparse_forward_fn)(const attn_sparse_call *call);
/* map: in host memory, empty lists, lists of its own for every sample and query head, room for all key
 * blocks; fill it through attn_sparse_list. It is checked before it is run. */
typedef int (*attn_sparse_select_fn)(const attn_sparse_call *call, attn_block_map *map);
/* Puts one parameter over the merged ones; copies it. Returns 0, or non-zero without memory. */
typedef int (*attn_sparse_set_fn)(void *to, const attn_param *param);
/* A plugin's own geometry, after the default resolver: reads call->problem and call->params, sets what
 * follows. Values that are null are passed over. q, k, v and out are not given. Same return rule. */
typedef int (*attn_sparse_geometry_fn)(const attn_sparse_call *call, attn_sparse_set_fn set, void *to);

/* What a plugin says of itself; all of it is optional. */
typedef struct attn_sparse {
    uint32_t size;
    uint16_t abi_major, abi_minor; /* ATTN_MODULE_MAJOR, ATTN_MODULE_MINOR */
    const char *name;              /* in attn_module.sparse; a file's own plugin is named by the file */
    const char *summary;           /* one line */
    const char *platform;          /* whose tensors it takes; NULL: "cpu". Selectors are for "cpu" */
    /* Names with a true value: supports_attention_mask (keep, additive and key masks),
     * supports_full_attn_spans, and supports_<feature> for every other word of ATTN_FEATURE_LIST:
     * supports_grouped, supports_lse, ... Others are ignored. Read once, when the file is loaded. NULL: none.
     */
    const attn_params *capabilities;
    /* Of a selector: rows and keys of a block of the map it fills; 0: 64. The parameters block_q and block_k
     * go before them. */
    int32_t block_q, block_k;
    /* Left NULL in attn_sparse_about: the exported functions hold. One of forward and select. */
    attn_sparse_forward_fn forward;
    attn_sparse_select_fn select;
    attn_sparse_geometry_fn geometry;
    /* Of a selector. 1: its map follows from shapes, parameters and the per-forward state, it reads nothing
     * of q, k and v. It then serves tensors of every device, and the kernels there walk its map. */
    int32_t any_device;
} attn_sparse;

/* Symbols of a file that is a plugin. ATTN_MODULE_EXPORT makes them visible. */
ATTN_MODULE_EXPORT int attn_sparse_forward(const attn_sparse_call *call);
ATTN_MODULE_EXPORT int attn_sparse_select(const attn_sparse_call *call, attn_block_map *map);
ATTN_MODULE_EXPORT int attn_sparse_geometry(const attn_sparse_call *call, attn_sparse_set_fn set, void *to);
ATTN_MODULE_EXPORT extern const attn_sparse attn_sparse_about;

/* The list of a sample, query head and query block in the map that a selector fills: *count is its length so
 * far. */
static inline int32_t *attn_sparse_list(const attn_block_map *map, int64_t b, int64_t h, int64_t i,
                                        int32_t **count)
{
    const int64_t *shape = map->blocks->shape;
    int64_t list = (b * shape[1] + h) * shape[2] + i;
    *count = (int32_t *)map->counts->data + list;
    return (int32_t *)map->blocks->data + list * shape[3];
}

/* One element of a tensor of a call as float, and back, rounded to nearest even; index in elements. f32, f16,
 * bf16. */
static inline float attn_load(attn_dtype dtype, const void *data, int64_t index)
{
    union {
        uint32_t bits;
        float number;
    } u;
    if (dtype == ATTN_F32) return ((const float *)data)[index];
    uint32_t h = ((const uint16_t *)data)[index];
    u.bits = h << 16;
    if (dtype == ATTN_BF16) return u.number;
    uint32_t magnitude = h & 0x7fffu;
    if (magnitude < 0x400u) { /* zero and subnormals: units of 2^-24 */
        u.number = (float)magnitude * 5.9604644775390625e-08f;
        u.bits |= (h & 0x8000u) << 16;
        return u.number;
    }
    u.bits = (h & 0x8000u) << 16 | ((magnitude << 13) + (magnitude < 0x7c00u ? 0x38000000u : 0x70000000u));
    return u.number;
}

static inline void attn_store(attn_dtype dtype, void *data, int64_t index, float value)
{
    union {
        uint32_t bits;
        float number;
    } u, least;
    u.number = value;
    uint32_t sign = u.bits >> 16 & 0x8000u, magnitude = u.bits & 0x7fffffffu, h;
    if (dtype == ATTN_F32) {
        ((float *)data)[index] = value;
        return;
    }
    if (dtype == ATTN_BF16) {
        h = magnitude > 0x7f800000u ? 0x7fc0u : (magnitude + 0x7fffu + (magnitude >> 16 & 1u)) >> 16;
    } else if (magnitude >= 0x47800000u) { /* 65536 and above, infinity, not a number */
        h = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
    } else if (magnitude < 0x38800000u) { /* below 2^-14: adding 0.5 rounds to units of 2^-24 */
        u.bits = magnitude;
        least.number = u.number + 0.5f;
        h = least.bits - 0x3f000000u;
    } else {
        h = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
    }
    ((uint16_t *)data)[index] = (uint16_t)(sign | h);
}

/* The module header. size, abi_major and abi_minor keep their places in every version. */
typedef struct attn_module {
    uint32_t size;
    uint16_t abi_major; /* ATTN_MODULE_MAJOR */
    uint16_t abi_minor; /* ATTN_MODULE_MINOR */
    const char *name;
    const char *version;
    const char *license;
    const attn_impl *const *impls;         /* NULL-terminated; NULL: none */
    const attn_platform *const *platforms; /* NULL-terminated; NULL: none */
    const attn_device *const *devices;     /* NULL-terminated; NULL: none */
    const attn_sparse *const *sparse;      /* NULL-terminated; NULL: none */
} attn_module;

typedef const attn_module *(*attn_module_fn)(void);

/* For C++ authors: a C host cannot catch exceptions, the process would end.
 *   static attn_status run(...) { ATTN_GUARD(error, return my_run(host, state, call, error);) } */
#ifdef __cplusplus
} /* extern "C" */
#include <exception>
#define ATTN_GUARD(error, ...)                                                                               \
    try {                                                                                                    \
        __VA_ARGS__                                                                                          \
    } catch (const std::exception &attn_e) {                                                                 \
        return attn_fail(error, ATTN_KIND_INTERNAL,                                                          \
                         "a C++ exception left the module: %s; report it "                                   \
                         "to the module's author",                                                           \
                         attn_e.what());                                                                     \
    } catch (...) {                                                                                          \
        return attn_fail(error, ATTN_KIND_INTERNAL,                                                          \
                         "a C++ exception of unknown type left the module; "                                 \
                         "report it to the module's author");                                                \
    }

/* The same for a sparse plugin: int attn_sparse_forward(const attn_sparse_call *call)
 * { ATTN_GUARD_SPARSE(call, return my_forward(call);) } */
#define ATTN_GUARD_SPARSE(sparse_call, ...) ATTN_GUARD((sparse_call)->error, __VA_ARGS__)
#endif

#endif
