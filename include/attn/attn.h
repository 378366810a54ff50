/* attn.h: choose and run attention.                        SPDX-License-Identifier: Apache-2.0
 *
 * libattn computes  out = softmax(scale * q k^T + mask) v  for diffusion, video and multimodal
 * transformers. It chooses a backend for each attention site from one configuration, runs it, and
 * tells why it was chosen.
 *
 *   attn_context *context;
 *   attn_layer *layer;
 *   attn_error error = ATTN_ERROR_INIT;
 *   attn_layer_options site = {.size = sizeof site, .role = "self", .heads = 12, .head_dim = 64};
 *   attn_open(NULL, &context, &error);
 *   attn_layer_open(context, &site, &layer, &error);
 *   attn_args args = {.size = sizeof args, .q = &q, .k = &k, .v = &v, .out = &out};
 *   if (attn_forward(layer, &args, &error)) fprintf(stderr, "%s\n", error.text);
 *   attn_layer_close(layer);
 *   attn_close(context);
 *
 * Rules that hold for every function here:
 *  - Tensors are DLPack DLTensor in layout BSND, [batch, sequence, heads, head_dim]. Any strides are
 *    allowed, strides and byte offsets are honoured, NULL strides mean row-major. The caller owns all
 *    memory it passes; the library keeps none of it after a call returns.
 *  - A struct that crosses the border starts with its size in bytes, set by whoever fills it. Fields are
 *    only ever appended; what a shorter struct lacks reads as zero, and zero means "default" or "absent".
 *  - A function that can fail returns an attn_status and, when the caller passes an attn_error, fills it
 *    with a kind and one sentence. On failure nothing is written to outputs that the text does not name.
 *  - The library never prints, exits or aborts. Text goes to the log callback.
 *  - Any thread may call any function on its own objects. A context may be shared by threads; one layer
 *    is run by one thread at a time.
 *
 * The header is C99, C11 and C++17. */
#ifndef ATTN_ATTN_H
#define ATTN_ATTN_H

#include <dlpack/dlpack.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ATTN_API __attribute__((visibility("default")))
#else
#define ATTN_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ATTN_VERSION_MAJOR 0
#define ATTN_VERSION_MINOR 1
#define ATTN_VERSION_PATCH 0

/* ---- lists ------------------------------------------------------------------------------------ */

/* What a call came to. X(NAME, value, text, sentence). Values are fixed for ever. */
#define ATTN_STATUS_LIST(X)                                                                                  \
    X(OK, 0, "ok", "the call succeeded")                                                                     \
    X(INVALID_ARGUMENT, 1, "invalid_argument", "something the caller passed is wrong")                       \
    X(UNSUPPORTED, 2, "unsupported", "the chosen backend, device or build cannot do this")                   \
    X(NOT_AVAILABLE, 3, "not_available", "something that would be needed is not on this machine")            \
    X(CONFIG_CONFLICT, 4, "config_conflict", "two settings exclude each other")                              \
    X(OUT_OF_MEMORY, 5, "out_of_memory", "memory could not be had")                                          \
    X(CANCELLED, 6, "cancelled", "the caller's cancel flag was raised; outputs are undefined")               \
    X(IO, 7, "io", "a file could not be read or written")                                                    \
    X(INTERNAL, 8, "internal", "the library or a module broke its own promise")

/* Why, in a word that programs can test. X(NAME, value, text, status, exit code, sentence). */
#define ATTN_KIND_LIST(X)                                                                                    \
    X(NONE, 0, "none", OK, 0, "no error")                                                                    \
    X(INVALID_SHAPE, 1, "invalid_shape", INVALID_ARGUMENT, 2, "shapes do not fit together")                  \
    X(INVALID_LAYOUT, 2, "invalid_layout", INVALID_ARGUMENT, 2, "strides or memory cannot be used")          \
    X(INVALID_DTYPE, 3, "invalid_dtype", INVALID_ARGUMENT, 2, "element types do not fit together")           \
    X(INVALID_VALUE, 4, "invalid_value", INVALID_ARGUMENT, 2, "a number or word is out of range")            \
    X(INVALID_TYPE, 5, "invalid_type", INVALID_ARGUMENT, 2, "a configuration value has another type")        \
    X(INVALID_STRUCT, 6, "invalid_struct", INVALID_ARGUMENT, 2, "a struct has an impossible size")           \
    X(SYNTAX, 7, "syntax", INVALID_ARGUMENT, 2, "text could not be parsed")                                  \
    X(UNKNOWN_OR_MISSING_KEY, 8, "unknown_or_missing_key", INVALID_ARGUMENT, 2,                              \
      "a configuration key is unknown or missing")                                                           \
    X(MIXED_ROLE_ENTRY, 9, "mixed_role_entry", INVALID_ARGUMENT, 2,                                          \
      "a role entry mixes spec keys with nested roles")                                                      \
    X(EMPTY_ROLE_ENTRY, 10, "empty_role_entry", INVALID_ARGUMENT, 2, "a role entry is empty")                \
    X(MUTUALLY_EXCLUSIVE, 11, "mutually_exclusive", CONFIG_CONFLICT, 2,                                      \
      "two ways to say the same thing were both used")                                                       \
    X(BLOCK_BACKEND_MISMATCH, 12, "block_backend_mismatch", CONFIG_CONFLICT, 2,                              \
      "a typed block stands on a backend that does not own it")                                              \
    X(UNKNOWN_BACKEND, 13, "unknown_backend", INVALID_ARGUMENT, 2, "no backend has this name")               \
    X(UNKNOWN_NAME, 14, "unknown_name", INVALID_ARGUMENT, 2, "a name is not in its list")                    \
    X(PLATFORM_UNSUPPORTED, 15, "platform_unsupported", UNSUPPORTED, 3,                                      \
      "the backend is declared for other platforms")                                                         \
    X(CAPABILITY_UNSUPPORTED, 16, "capability_unsupported", UNSUPPORTED, 3,                                  \
      "the device architecture or instruction set has no kernel")                                            \
    X(HEAD_SIZE_UNSUPPORTED, 17, "head_size_unsupported", UNSUPPORTED, 3,                                    \
      "the head size is outside the backend's set")                                                          \
    X(DTYPE_UNSUPPORTED, 18, "dtype_unsupported", UNSUPPORTED, 3, "the element type has no kernel")          \
    X(FEATURE_UNSUPPORTED, 19, "feature_unsupported", UNSUPPORTED, 3,                                        \
      "the call needs a feature that the implementation lacks")                                              \
    X(PACKAGE_MISSING, 20, "package_missing", NOT_AVAILABLE, 3, "no implementation is installed")            \
    X(PACKAGE_INCOMPATIBLE, 21, "package_incompatible", NOT_AVAILABLE, 3,                                    \
      "a package is present without what is needed from it")                                                 \
    X(NOT_IMPLEMENTED, 22, "not_implemented", UNSUPPORTED, 3, "nothing may be chosen here")                  \
    X(AMBIGUOUS_PLATFORM, 23, "ambiguous_platform", CONFIG_CONFLICT, 3,                                      \
      "more than one platform claims the machine")                                                           \
    X(DEVICE_MISMATCH, 24, "device_mismatch", INVALID_ARGUMENT, 2,                                           \
      "a tensor lives on another device than the layer")                                                     \
    X(SPARSE_NAME_REQUIRED, 25, "sparse_name_required", INVALID_ARGUMENT, 2,                                 \
      "the sparse dispatcher was given no plugin")                                                           \
    X(SPARSE_PLUGIN_MISSING, 26, "sparse_plugin_missing", NOT_AVAILABLE, 3, "no such sparse plugin")         \
    X(SPARSE_PLUGIN_BROKEN, 27, "sparse_plugin_broken", NOT_AVAILABLE, 3,                                    \
      "the sparse plugin could not be loaded")                                                               \
    X(SPARSE_CAPABILITY, 28, "sparse_capability", UNSUPPORTED, 3, "the sparse plugin lacks a capability")    \
    X(SPARSE_LAYOUT, 29, "sparse_layout", UNSUPPORTED, 3, "the sparse plugin needs layout BSND")             \
    X(RING_UNSUPPORTED, 30, "ring_unsupported", UNSUPPORTED, 3, "ring parallelism would bypass the backend") \
    X(ALLGATHER_CAUSAL, 31, "allgather_causal", UNSUPPORTED, 3, "gathered keys and values cannot be causal") \
    X(PARALLEL_EXCLUSIVE, 32, "parallel_exclusive", CONFIG_CONFLICT, 2,                                      \
      "two ways of sequence parallelism were both asked for")                                                \
    X(MODULE_UNLOADABLE, 33, "module_unloadable", NOT_AVAILABLE, 3, "a module file could not be loaded")     \
    X(MODULE_NO_ENTRY, 34, "module_no_entry", NOT_AVAILABLE, 3,                                              \
      "a module lacks its entry point or it returned nothing")                                               \
    X(MODULE_ABI, 35, "module_abi", NOT_AVAILABLE, 3, "a module was built for another interface")            \
    X(MODULE_CLASH, 36, "module_clash", CONFIG_CONFLICT, 3,                                                  \
      "two modules offer an implementation of the same name")                                                \
    X(WORKSPACE_TOO_SMALL, 37, "workspace_too_small", INVALID_ARGUMENT, 2,                                   \
      "the caller's workspace is smaller than attn_workspace_size says")                                     \
    X(OUT_OF_MEMORY, 38, "out_of_memory", OUT_OF_MEMORY, 4, "memory could not be had")                       \
    X(CANCELLED, 39, "cancelled", CANCELLED, 130, "the caller raised the cancel flag")                       \
    X(IO, 40, "io", IO, 4, "a file could not be read or written")                                            \
    X(INTERNAL, 41, "internal", INTERNAL, 4, "the library or a module broke its own promise")                \
    X(MUTUALLY_EXCLUSIVE_BACKEND_OPTIONS, 42, "mutually_exclusive_backend_options", CONFIG_CONFLICT, 2,      \
      "a backend was named by two options of domain llm")                                                    \
    X(BACKEND_NOT_REGISTERED, 43, "backend_not_registered", NOT_AVAILABLE, 3,                                \
      "the name is a slot that nothing has registered for")                                                  \
    X(INVALID_KV_CACHE_DTYPE, 44, "invalid_kv_cache_dtype", INVALID_ARGUMENT, 2,                             \
      "no storage type of the key/value cache has this name")                                                \
    X(SELECTED_BACKEND_INVALID, 45, "selected_backend_invalid", UNSUPPORTED, 3,                              \
      "the named backend is not valid for this query; the list holds every reason")                          \
    X(NO_VALID_BACKEND, 46, "no_valid_backend", UNSUPPORTED, 3,                                              \
      "no candidate is valid for this query; the list holds every reason of each")                           \
    X(MLA_NOT_SUPPORTED_ON_PLATFORM, 47, "mla_not_supported_on_platform", UNSUPPORTED, 3,                    \
      "the platform has no multi-head latent attention")                                                     \
    X(SPARSE_NOT_SUPPORTED_ON_PLATFORM, 48, "sparse_not_supported_on_platform", UNSUPPORTED, 3,              \
      "the platform has no sparse attention")                                                                \
    X(BACKEND_NOT_AVAILABLE_ON_PLATFORM, 49, "backend_not_available_on_platform", UNSUPPORTED, 3,            \
      "the named backend is none of the platform's")

/* Which names a question is about, and which rule answers it. X(NAME, value, text, sentence). */
#define ATTN_DOMAIN_LIST(X)                                                                                  \
    X(DIFFUSION, 0, "diffusion", "attention of diffusion and video transformers, by role")                   \
    X(LLM, 1, "llm", "attention of autoregressive models over a key/value cache")                            \
    X(VISION, 2, "vision", "attention of the vision encoders of multimodal models")

/* What a layer of domain llm does. X(NAME, value, text, words of tables and messages). */
#define ATTN_LLM_TYPE_LIST(X)                                                                                \
    X(DECODER, 0, "decoder", "Decoder")                                                                      \
    X(ENCODER, 1, "encoder", "Encoder")                                                                      \
    X(ENCODER_ONLY, 2, "encoder_only", "Encoder Only")                                                       \
    X(ENCODER_DECODER, 3, "encoder_decoder", "Enc-Dec")

/* What else a query of domain llm says, one bit each. X(NAME, bit, text, sentence). */
#define ATTN_LLM_FLAG_LIST(X)                                                                                \
    X(MLA, 0, "use_mla", "multi-head latent attention")                                                      \
    X(SINK, 1, "has_sink", "the layer has learned sink logits")                                              \
    X(SPARSE, 2, "use_sparse", "latent attention over the keys that an indexer picks")                       \
    X(MM_PREFIX, 3, "use_mm_prefix", "image tokens of a causal prompt attend both ways")                     \
    X(PER_HEAD_SCALES, 4, "use_per_head_quant_scales", "scales of the cache per attention head")             \
    X(NON_CAUSAL, 5, "use_non_causal", "non-causal attention on the paged decoder path")                     \
    X(DCP, 6, "dcp", "decode context parallelism over more than one rank")                                   \
    X(ALIBI, 7, "use_alibi", "linear biases by distance")                                                    \
    X(BATCH_INVARIANT, 8, "batch_invariant", "results must not depend on batch mates")                       \
    X(CHUNKED_PREFILL, 9, "chunked_prefill", "prompts are prefilled in chunks")                              \
    X(PREFIX_CACHING, 10, "prefix_caching", "prompts share cached prefixes")                                 \
    X(FLOAT32_STATE, 11, "float32_state", "a hybrid model whose state cache is float32")                     \
    X(VISION_ENCODER, 12, "vision_encoder", "the encoder of pictures, which has a list of its own on CUDA")

/* Element types. X(NAME, value, text, DLPack code, bits). Values are fixed for ever. */
#define ATTN_DTYPE_LIST(X)                                                                                   \
    X(F32, 1, "f32", 2, 32)                                                                                  \
    X(F16, 2, "f16", 2, 16)                                                                                  \
    X(BF16, 3, "bf16", 4, 16)                                                                                \
    X(F64, 4, "f64", 2, 64)                                                                                  \
    X(BOOL, 5, "bool", 6, 8)                                                                                 \
    X(U8, 6, "u8", 1, 8)                                                                                     \
    X(I8, 7, "i8", 0, 8)                                                                                     \
    X(I32, 8, "i32", 0, 32)                                                                                  \
    X(I64, 9, "i64", 0, 64)                                                                                  \
    X(F8E4M3, 10, "f8e4m3", 10, 8)                                                                           \
    X(F8E5M2, 11, "f8e5m2", 12, 8)

/* DLPack codes that older dlpack.h lack, with their public values. */
#define ATTN_DL_BOOL          6
#define ATTN_DL_FLOAT8_E4M3FN 10
#define ATTN_DL_FLOAT8_E5M2   12

/* What a call may ask of an implementation, one bit each. X(NAME, bit, text, sentence). */
#define ATTN_FEATURE_LIST(X)                                                                                 \
    X(MASK_KEEP, 0, "mask_keep", "boolean keep-masks, non-zero means attend")                                \
    X(MASK_ADDITIVE, 1, "mask_additive", "masks added to the scores")                                        \
    X(KEY_MASK, 2, "key_mask", "boolean key-padding masks [batch, keys]")                                    \
    X(LENGTHS, 3, "lengths", "valid key lengths per sample")                                                 \
    X(PACKED, 4, "packed", "packed sequences given by cu_seqlens")                                           \
    X(CAUSAL, 5, "causal", "causal attention aligned bottom-right")                                          \
    X(TOP_LEFT, 6, "top_left", "positions aligned top-left, with a first query position")                    \
    X(WINDOW, 7, "window", "left and right windows")                                                         \
    X(SPANS, 8, "spans", "piecewise full-attention spans")                                                   \
    X(QUERY_RANGES, 9, "query_ranges", "local query rows at given global positions")                         \
    X(SOFTCAP, 10, "softcap", "scores capped by tanh before the mask")                                       \
    X(SINKS, 11, "sinks", "a learned logit per head in the softmax sum")                                     \
    X(LSE, 12, "lse", "the natural log-sum-exp of each row as an output")                                    \
    X(SCORES, 13, "scores", "the score matrix as a debug output")                                            \
    X(GROUPED, 14, "grouped", "fewer key/value heads than query heads")                                      \
    X(VALUE_DIM, 15, "value_dim", "a value head size that differs from the key head size")                   \
    X(STRIDED, 16, "strided", "an innermost stride other than one")                                          \
    X(F32_OUT, 17, "f32_out", "f32 output from 16-bit inputs")                                               \
    X(BATCH_INVARIANT, 18, "batch_invariant", "results do not depend on batch mates")                        \
    X(BLOCK_MAP, 19, "block_map", "lists of the key blocks that each block of query rows attends to")        \
    X(PAGED, 20, "paged", "keys and values in the pages of a cache, found by a block table")                 \
    X(CACHE_DTYPE, 21, "cache_dtype", "a cache that stores another element type than that of q")             \
    X(ALIBI, 22, "alibi", "a bias by distance, with a slope for each head")                                  \
    X(PREFIX_RANGES, 23, "prefix_ranges",                                                                    \
      "ranges of positions that attend both ways inside a causal prompt")                                    \
    X(TREE, 24, "tree", "a tree mask over the last keys of each request")                                    \
    X(SELECTED, 25, "selected", "a list of keys for each query row")                                         \
    X(RING, 26, "ring", "partial results over a ring of ranks, merged by their log-sum-exp")

/* Types of parameter values. X(NAME, value, text, sentence). Values are fixed for ever. */
#define ATTN_PARAM_TYPE_LIST(X)                                                                              \
    X(NONE, 0, "null", "no value: hides a value of the same name from an earlier tier")                      \
    X(BOOL, 1, "bool", "value.integer is 0 or 1")                                                            \
    X(INT, 2, "int", "value.integer")                                                                        \
    X(NUMBER, 3, "number", "value.number")                                                                   \
    X(TEXT, 4, "text", "value.text, terminated")                                                             \
    X(INTS, 5, "ints", "count elements at value.integers")                                                   \
    X(NUMBERS, 6, "numbers", "count elements at value.numbers")                                              \
    X(LIST, 7, "list", "other lists: value.table, whose names are NULL")                                     \
    X(TABLE, 8, "table", "value.table")                                                                      \
    X(TENSOR, 9, "tensor", "value.tensor, on any device")                                                    \
    X(POINTER, 10, "pointer", "value.pointer, known to caller and implementation alone")

typedef int32_t attn_status;
enum {
#define ATTN_X(name, value, text, sentence) ATTN_##name = value,
    ATTN_STATUS_LIST(ATTN_X)
#undef ATTN_X
};

typedef int32_t attn_kind;
enum {
#define ATTN_X(name, value, text, status, exit, sentence) ATTN_KIND_##name = value,
    ATTN_KIND_LIST(ATTN_X)
#undef ATTN_X
};

typedef int32_t attn_domain;
enum {
#define ATTN_X(name, value, text, sentence) ATTN_DOMAIN_##name = value,
    ATTN_DOMAIN_LIST(ATTN_X)
#undef ATTN_X
};

typedef enum attn_llm_type {
#define ATTN_X(name, value, text, words) ATTN_LLM_##name = value,
    ATTN_LLM_TYPE_LIST(ATTN_X)
#undef ATTN_X
} attn_llm_type;

#define ATTN_LLM_FLAG(name) ((uint32_t)1 << ATTN_LLM_FLAG_BIT_##name)
enum {
#define ATTN_X(name, bit, text, sentence) ATTN_LLM_FLAG_BIT_##name = bit,
    ATTN_LLM_FLAG_LIST(ATTN_X)
#undef ATTN_X
};

typedef int32_t attn_dtype; /* 0: unknown */
enum {
#define ATTN_X(name, value, text, code, bits) ATTN_##name = value,
    ATTN_DTYPE_LIST(ATTN_X)
#undef ATTN_X
};

typedef int32_t attn_param_type;
enum {
#define ATTN_X(name, value, text, sentence) ATTN_PARAM_##name = value,
    ATTN_PARAM_TYPE_LIST(ATTN_X)
#undef ATTN_X
};

#define ATTN_FEATURE(name) ((uint64_t)1 << ATTN_FEATURE_BIT_##name)
enum {
#define ATTN_X(name, bit, text, sentence) ATTN_FEATURE_BIT_##name = bit,
    ATTN_FEATURE_LIST(ATTN_X)
#undef ATTN_X
};

/* The text columns of the lists; an unknown value gives "unknown". attn_kind_exit: a program's exit code. */
ATTN_API const char *attn_status_name(attn_status status);
ATTN_API const char *attn_kind_name(attn_kind kind);
ATTN_API const char *attn_kind_sentence(attn_kind kind);
ATTN_API attn_status attn_kind_status(attn_kind kind);
ATTN_API int attn_kind_exit(attn_kind kind);
ATTN_API const char *attn_dtype_name(attn_dtype dtype);
ATTN_API attn_dtype attn_dtype_from_name(const char *name); /* 0: no such name */
ATTN_API attn_dtype attn_dtype_from_dl(DLDataType type);    /* 0: none of ours; lanes must be 1 */
ATTN_API DLDataType attn_dtype_to_dl(attn_dtype dtype);
ATTN_API size_t attn_dtype_bytes(attn_dtype dtype);
ATTN_API const char *attn_domain_name(attn_domain domain);
ATTN_API int attn_domain_from_name(const char *name, attn_domain *domain); /* 0: no such name */
ATTN_API const char *attn_feature_name(int bit);                           /* NULL: no such bit */
ATTN_API const char *attn_feature_sentence(int bit);

/* "MAJOR.MINOR.PATCH" of the library that runs, which may differ from the header's. */
ATTN_API const char *attn_version(void);

/* ---- errors ----------------------------------------------------------------------------------- */

/* Owned by the caller, on the stack as a rule. text is one sentence that names the thing, the value
 * found, the value expected and a way out; it is always terminated. A NULL attn_error is allowed. The kinds
 * of domain llm list every reason of every candidate, which is what the room is for; a struct of an older,
 * smaller size gets as much as fits. */
typedef struct attn_error {
    uint32_t size;
    attn_status status;
    attn_kind kind;
    int32_t reserved;
    char text[2048];
} attn_error;
#define ATTN_ERROR_INIT                                                                                      \
    {                                                                                                        \
        sizeof(attn_error), 0, 0, 0, ""                                                                      \
    }

/* ---- callbacks -------------------------------------------------------------------------------- */

typedef enum attn_log_level { ATTN_LOG_DEBUG = 1, ATTN_LOG_INFO, ATTN_LOG_WARNING } attn_log_level;
/* One line of text without a newline. May be called from any thread that calls the library. */
typedef void (*attn_log_fn)(void *user, int32_t level, const char *text);

/* bytes > 0, align a power of two. NULL means out of memory. Called from any thread. */
typedef struct attn_allocator {
    void *(*alloc)(void *user, size_t bytes, size_t align);
    void (*release)(void *user, void *memory);
    void *user;
} attn_allocator;

/* task(arg, index, worker): worker tells the scratch to use, 0 <= worker < workers. */
typedef void (*attn_task_fn)(void *arg, int64_t index, int32_t worker);
/* Calls task once for each index in [0, count), in any order and on any threads, at most `workers` at
 * once, each running call with a worker number of its own; returns when all are done. */
typedef void (*attn_parallel_for_fn)(void *user, int64_t count, int32_t workers, attn_task_fn task,
                                     void *arg);

/* One step of the walk from a request to a choice. Strings live until the callback returns. */
typedef enum attn_trace_event {
    ATTN_TRACE_SOURCE = 1, /* backend: what was asked (or "auto"); source: by whom */
    ATTN_TRACE_REASON,     /* one reason against backend/implementation: kind and text */
    ATTN_TRACE_CANDIDATE,  /* backend/implementation was judged: usable, else kind of the first reason */
    ATTN_TRACE_CHOICE,     /* backend/implementation was taken: text says why */
    ATTN_TRACE_NOTE        /* anything else worth knowing */
} attn_trace_event;

typedef struct attn_trace {
    uint32_t size;
    int32_t event;
    int32_t usable;
    attn_kind kind;
    const char *role;
    const char *source;
    const char *backend;
    const char *implementation; /* NULL when the backend itself is meant */
    const char *text;
    int32_t rank; /* domains llm and vision: place among the candidates, from 1; 0: no candidate of this
                     question, judged for the whole picture only */
    int32_t reserved;
} attn_trace;
typedef void (*attn_trace_fn)(void *user, const attn_trace *trace);

/* ---- parameters ------------------------------------------------------------------------------- */

typedef union attn_param_value {
    int64_t integer;
    double number;
    const char *text;
    const int64_t *integers;
    const double *numbers;
    const struct attn_params *table;
    const DLTensor *tensor;
    const void *pointer;
} attn_param_value;

/* One named value of an implementation or a plugin. It stands in arrays by value and never grows. */
typedef struct attn_param {
    const char *name;
    attn_param_type type;
    int32_t columns; /* ints and numbers: 0 for a flat list, else count is rows times columns */
    int64_t count;   /* ints and numbers: elements; others: 0 */
    attn_param_value value;
} attn_param;

/* A flat table. Whoever fills it owns it and all it points to. Of equal names the last holds. */
typedef struct attn_params {
    uint32_t size;
    uint32_t count;
    const attn_param *items;
} attn_params;

/* A flag, or a whole number, for a static table: static const attn_param a[] = {ATTN_PARAM_FLAG("x", 1),
 * ...}; */
#define ATTN_PARAM_FLAG(name, value)                                                                         \
    {                                                                                                        \
        name, ATTN_PARAM_BOOL, 0, 0,                                                                         \
        {                                                                                                    \
            value                                                                                            \
        }                                                                                                    \
    }
#define ATTN_PARAM_WHOLE(name, value)                                                                        \
    {                                                                                                        \
        name, ATTN_PARAM_INT, 0, 0,                                                                          \
        {                                                                                                    \
            value                                                                                            \
        }                                                                                                    \
    }

/* The same and the other types while the program runs. What is pointed to is not copied. */
static inline attn_param attn_param_make(const char *name, attn_param_type type)
{
    attn_param p = {name, type, 0, 0, {0}};
    return p;
}

static inline attn_param attn_param_int(const char *name, int64_t value)
{
    attn_param p = attn_param_make(name, ATTN_PARAM_INT);
    p.value.integer = value;
    return p;
}

static inline attn_param attn_param_bool(const char *name, int value)
{
    attn_param p = attn_param_make(name, ATTN_PARAM_BOOL);
    p.value.integer = value != 0;
    return p;
}

static inline attn_param attn_param_number(const char *name, double value)
{
    attn_param p = attn_param_make(name, ATTN_PARAM_NUMBER);
    p.value.number = value;
    return p;
}

static inline attn_param attn_param_text(const char *name, const char *value)
{
    attn_param p = attn_param_make(name, ATTN_PARAM_TEXT);
    p.value.text = value;
    return p;
}

static inline attn_param attn_param_ints(const char *name, const int64_t *values, int64_t count,
                                         int32_t columns)
{
    attn_param p = attn_param_make(name, ATTN_PARAM_INTS);
    p.columns = columns;
    p.count = count;
    p.value.integers = values;
    return p;
}

/* A JSON object as a table: whole numbers are ints, other numbers numbers, lists of one kind of number (or
 * rows of equal length of them) ints or numbers. *params belongs to the caller. Fails: syntax with line and
 * column, invalid_type when the text is no object, invalid_value when it is nested more than 16 deep,
 * out_of_memory. */
ATTN_API attn_status attn_params_parse(const char *json, attn_params **params, attn_error *error);
ATTN_API void attn_params_free(attn_params *params); /* of attn_params_parse; NULL is allowed */
/* The table as compact JSON; tensors and pointers as their type in angle brackets. *needed (may be NULL)
 * receives the bytes with the final 0. NULL params: "{}". */
ATTN_API attn_status attn_params_format(const attn_params *params, char *text, size_t bytes, size_t *needed,
                                        attn_error *error);
ATTN_API const char *attn_param_type_name(attn_param_type type); /* "unknown" when it is none */

/* The entry of that exact name, or NULL. NULL params and tables of an impossible size count as empty. */
ATTN_API const attn_param *attn_params_find(const attn_params *params, const char *name);
/* Strict look-ups: absent (or null) leaves *value as it was and is no failure; another type is invalid_type,
 * a value out of [low, high] or a word that is not among the blank-separated words is invalid_value. A whole
 * number serves as number; a flag never serves as a number. */
ATTN_API attn_status attn_params_bool(const attn_params *params, const char *name, int32_t *value,
                                      attn_error *error);
ATTN_API attn_status attn_params_int(const attn_params *params, const char *name, int64_t low, int64_t high,
                                     int64_t *value, attn_error *error);
ATTN_API attn_status attn_params_number(const attn_params *params, const char *name, double low, double high,
                                        double *value, attn_error *error);
ATTN_API attn_status attn_params_text(const attn_params *params, const char *name, const char **value,
                                      attn_error *error);
ATTN_API attn_status attn_params_word(const attn_params *params, const char *name, const char *words,
                                      const char **value, attn_error *error);
/* *columns may be NULL when a flat list is expected. */
ATTN_API attn_status attn_params_ints(const attn_params *params, const char *name, const int64_t **values,
                                      int64_t *count, int32_t *columns, attn_error *error);
/* Every name must be among the blank-separated names or those that the library itself fills (the per-forward
 * state and what follows from it), so that a misspelt parameter is not passed over. Fails:
 * unknown_or_missing_key. */
ATTN_API attn_status attn_params_known(const attn_params *params, const char *names, attn_error *error);

/* ---- per-forward state ------------------------------------------------------------------------ */

/* What a pipeline knows of the forward pass of its model that a call belongs to, per sample. An array that is
 * NULL is not published. The caller owns it; it must not change while a call runs. Implementations that
 * consume it get a copy that is made at the beginning of the call; for all others nothing is built. */
typedef struct attn_forward_state {
    uint32_t size;
    uint32_t reserved;
    int64_t samples;              /* rows of every array: the batch of q, or 1 for all samples alike */
    const int64_t *denoise_step;  /* [samples], from 0; parameter denoise_step_idx */
    const int64_t *denoise_total; /* [samples]; parameter total_denoise_steps */
    const int64_t
        *latent_shape;         /* [samples, 3] frames, height, width of the latent; parameter latent_shape */
    const int64_t *patch_size; /* [samples, 3] p_t, p_h, p_w; parameter patch_size */
    const double *timestep;    /* [samples] normalised, 1 is noise and 0 the picture; parameter timestep */
} attn_forward_state;

/* Installs a state for those calls of this thread that pass none (attn_args.forward NULL), and returns the
 * one that was installed before, to be put back at the end: scopes nest. The library keeps the pointer, so
 * the state lives until another one (or NULL) is installed. */
ATTN_API const attn_forward_state *attn_forward_state_install(const attn_forward_state *state);

/* What a pipeline publishes, read from a model as engines have it. Each returns 1 and fills its result, or 0:
 * nothing is to be published. They never fail a forward. latent: a tensor of five axes or more, whose last
 * three are frames, height, width. patch: "patch_size" and "patch_size_t" of the model's configuration, then
 * of its attributes; three numbers as they are, one number p as (patch_size_t or 1, p, p). total:
 * "num_timesteps", then "_num_timesteps" of a pipeline; whole and positive. */
ATTN_API int attn_latent_shape_of(const DLTensor *hidden_states, int64_t shape[3]);
ATTN_API int attn_patch_size_of(const attn_params *config, const attn_params *attributes, int64_t patch[3]);
ATTN_API int attn_denoise_total_of(const attn_params *pipeline, int64_t *total);

/* ---- configuration ---------------------------------------------------------------------------- */

/* What users say about attention, from flags, a file and the environment. One thread at a time uses a config.
 * The setters keep; normalising (by attn_open, attn_config_text) checks all of it together. */
typedef struct attn_config attn_config;

ATTN_API attn_status attn_config_new(attn_config **config, attn_error *error);
ATTN_API void attn_config_free(attn_config *config); /* NULL is allowed */
/* --diffusion-attention-backend NAME; NULL takes it back. */
ATTN_API attn_status attn_config_set_backend(attn_config *config, const char *name, attn_error *error);
/* --diffusion-attention-config JSON. Fails: syntax, with line and column. */
ATTN_API attn_status attn_config_set_json(attn_config *config, const char *text, attn_error *error);
/* --diffusion-attention-config.PATH VALUE: VALUE is JSON, else a number with a size suffix (1k = 1000, 1K =
 * 1024), else text; a path that ends in '+' splits VALUE at commas. Dotted paths replace the JSON of the same
 * command line, they are not merged with it. Fails: syntax. */
ATTN_API attn_status attn_config_set_path(attn_config *config, const char *path, const char *value,
                                          attn_error *error);
/* --fastvideo-vsa-topk N. Fails: invalid_value. */
ATTN_API attn_status attn_config_set_vsa_topk(attn_config *config, int64_t topk, attn_error *error);
/* The value of DIFFUSION_ATTENTION_BACKEND; blank counts as unset, NULL takes it back. */
ATTN_API attn_status attn_config_set_environment(attn_config *config, const char *value, attn_error *error);
/* One option as it stands on a command line, without its dashes: "attention-backend",
 * "attention-config", "attention-config.flash_attn_version", "ac.backend", "mm-attention-backend", or one of
 * the diffusion options above. Underscores before the first dot equal dashes.
 * The values of attention-config merge in the order of the calls, JSON objects and dotted keys alike; a
 * dotted value is JSON when it parses, else text; a key that ends in '+' appends to a list; a key that was
 * said before is replaced and a warning names it. Fails: unknown_name (the option), syntax. What the values
 * mean is checked when the configuration is normalised. */
ATTN_API attn_status attn_config_set_option(attn_config *config, const char *option, const char *value,
                                            attn_error *error);
/* What a user should know although nothing failed, one sentence each; NULL past the end. Lives until the next
 * call with this config. */
ATTN_API const char *attn_config_warning_at(const attn_config *config, size_t index);
/* A number that changes when any field of the llm configuration in force does; keys caches of compiled
 * graphs. Fails: every configuration kind. */
ATTN_API attn_status attn_config_llm_hash(attn_config *config, uint64_t *hash, attn_error *error);
/* A JSON file with any of the keys diffusion_attention_backend, diffusion_attention_config,
 * fastvideo_vsa_topk, attention_backend, attention_config, mm_attention_backend. Fails: io, syntax,
 * invalid_type, unknown_or_missing_key, invalid_value. */
ATTN_API attn_status attn_config_load_file(attn_config *config, const char *path, attn_error *error);
/* Who said "auto" as the default ("--diffusion-attention-backend", "attention_config.default"), or NULL when
 * the default is a backend or nobody said anything. */
ATTN_API const char *attn_config_auto_by(attn_config *config);
/* The canonical form, as indented JSON that parses back: what is in force after all sources, with every
 * default of the typed blocks. *needed (may be NULL) receives the bytes with the final 0. Fails: every
 * configuration kind. */
ATTN_API attn_status attn_config_text(attn_config *config, char *text, size_t bytes, size_t *needed,
                                      attn_error *error);

/* The same for one domain: for llm the fields of --attention-config, for vision {"mm_attention_backend"}. */
ATTN_API attn_status attn_config_domain_text(attn_config *config, attn_domain domain, char *text,
                                             size_t bytes, size_t *needed, attn_error *error);

/* ---- facts ------------------------------------------------------------------------------------ */

/* What a platform is like on a machine. A context without facts probes its own machine. */
typedef struct attn_facts attn_facts;

/* JSON {"platform", "compute_capability": [major, minor], "9.0" or null, "device_name", "cudnn_version":
 * 90500 for 9.5.0, "cuda_version": 12080 for 12.8, "packages": {name: bool}, "xpu_architecture", and for
 * domain llm "aiter": what is switched on of ["found", "mla", "mha", "vision"], "missing": [names of backends
 * that are not built in]}; what is left out is absent. Fails: syntax,
 * invalid_type, invalid_value, unknown_or_missing_key. */
ATTN_API attn_status attn_facts_parse(const char *json, attn_facts **facts, attn_error *error);
/* A file of such JSON, or "preset:NAME" for a known machine. Fails: io, unknown_name, and as above. */
ATTN_API attn_status attn_facts_load(const char *name, attn_facts **facts, attn_error *error);
ATTN_API void attn_facts_free(attn_facts *facts); /* NULL is allowed */
ATTN_API attn_status attn_facts_text(const attn_facts *facts, char *text, size_t bytes, size_t *needed,
                                     attn_error *error);
/* The names of presets and where their facts come from; NULL past the end. source may be NULL. */
ATTN_API const char *attn_facts_preset_at(size_t index, const char **source);

/* ---- context ---------------------------------------------------------------------------------- */

typedef struct attn_context attn_context;

/* All fields may be zero. Strings are copied. */
typedef struct attn_options {
    uint32_t size;
    int32_t threads;         /* cap; 0: $ATTN_NUM_THREADS, else what affinity and cgroup quota allow */
    const char *backend;     /* default backend for all roles ("auto" allowed), as the flag
                                --diffusion-attention-backend; NULL: none */
    const char *config;      /* JSON {"default": ..., "per_role": {...}}, as the flag
                                --diffusion-attention-config; NULL: none */
    const char *platform;    /* pins a platform, "cpu"; NULL: found by probing */
    const char *isa;         /* caps the CPU kernel set: "scalar", "avx2", ...; NULL: $ATTN_ISA */
    const char *module_path; /* colon-separated files and folders; NULL: $ATTN_MODULE_PATH and then
                                <libdir>/attn/modules; "": none */
    const char *plugins;     /* comma-separated names of the modules that may load; NULL: $ATTN_PLUGINS,
                                unset: all; "": none */
    const char *overrides;   /* "BACKEND=implementation,...": the implementation behind a backend */
    attn_log_fn log;
    void *log_user;
    attn_trace_fn trace; /* receives every reason against candidates of layers */
    void *trace_user;
    attn_parallel_for_fn parallel_for; /* NULL: the library's own pool, shared by the process */
    void *parallel_user;
    const attn_allocator *allocator; /* copied; NULL: malloc */
    uint32_t flags;                  /* ATTN_OPEN_* */
    uint32_t plan_cache;             /* plans kept, least recently used out first; 0: 256 */
    const attn_config *settings;     /* copied; instead of backend and config above */
    const attn_facts *facts; /* copied; another machine's: layers cannot open, attn_resolve and attn_explain
                                answer from the contract */
    const char *profile;     /* file of measured choices by attn tune, which plans then follow; results may
                                differ in their last bits from those without. NULL: $ATTN_PROFILE; "": none */
    const char *llm_backend; /* domain llm, as the flag --attention-backend; NULL: none */
    const char *llm_config;  /* JSON, as the flag --attention-config; its backend excludes llm_backend */
    const char *vision_backend; /* domain vision, as the flag --mm-attention-backend; NULL: none */
    int32_t spin_us;  /* microseconds that threads of the library's own pool stay awake after a call, so that
                         one  which follows closely finds them; at most 1000000; 0: $ATTN_SPIN_US, else 50;
                         negative: none */
    int32_t reserved; /* 0 */
} attn_options;
#define ATTN_OPEN_IGNORE_ENV 1u /* read no environment variable */
#define ATTN_OPEN_ONE_LLM                                                                                    \
    2u /* layers (and questions to attn_resolve) of domain llm that would get another                        \
          backend than the first are refused: a mix in one model can diverge numerically */

/* Opens a context: finds the platform, loads modules (a module that fails is kept as a refused row and
 * never an error here), parses the configuration. Fails: syntax, unknown_or_missing_key, invalid_type,
 * mutually_exclusive, unknown_name (platform, isa, override), out_of_memory; and for a profile: io, syntax
 * with line and column, invalid_value when it was measured on another CPU, and the kinds of a configuration.
 * Contexts share nothing but the thread pool; one never affects another. */
ATTN_API attn_status attn_open(const attn_options *options, attn_context **context, attn_error *error);
/* All layers of the context must be closed before. NULL is allowed. Modules stay loaded. */
ATTN_API void attn_close(attn_context *context);

typedef struct attn_context_info {
    uint32_t size;
    int32_t threads;
    const char *platform;
    const char *isa;         /* kernel set that runs on this CPU, after the cap */
    const char *isa_text;    /* what the CPU has and why this set: one sentence */
    const char *thread_text; /* where the thread count comes from: one sentence */
    const char *cpu;         /* name of the processor */
    const char *profile;     /* path of the profile in force; "": none */
    int64_t forward_states;  /* per-forward states that calls of this context built so far */
} attn_context_info;
/* Strings live as long as the context. */
ATTN_API void attn_context_get_info(const attn_context *context, attn_context_info *info);

/* ---- layers ----------------------------------------------------------------------------------- */

typedef struct attn_layer attn_layer;

/* How query i and key j are placed on one axis when there are more keys than queries or fewer. */
typedef enum attn_alignment {
    ATTN_BOTTOM_RIGHT = 0, /* query i stands at i + valid_keys - queries: the last query meets the last key */
    ATTN_TOP_LEFT = 1      /* query i stands at i + query_start */
} attn_alignment;

#define ATTN_WINDOW_LEFT  1u
#define ATTN_WINDOW_RIGHT 2u

/* What a question of domain llm says beside head size and dtype. One selection is made per distinct query. */
typedef struct attn_llm_query {
    uint32_t size;
    uint32_t flags;             /* ATTN_LLM_FLAG bits */
    const char *kv_cache_dtype; /* "auto", "fp8_e4m3", ...; NULL: not checked */
    int64_t block_size;         /* that the user asked for; 0: none, and one is proposed */
    int32_t attn_type;          /* attn_llm_type */
    int32_t num_heads;          /* query heads on this rank; 0: not known (a layer: its heads) */
    int32_t kv_heads;           /* 0: not known (a layer: its kv_heads) */
    int32_t qk_nope_head_dim;   /* of an MLA model, as are the next two; 0: not known */
    int32_t qk_rope_head_dim;
    int32_t v_head_dim;
} attn_llm_query;

typedef struct attn_layer_options {
    uint32_t size;
    uint32_t flags;
    const char *role;       /* NULL: "self"; free text, case-sensitive */
    const char *category;   /* fallback of the role; NULL: none */
    const char *prefix;     /* name of the layer in its model; NULL: none */
    DLDevice device;        /* device_type 0: the platform's own */
    int64_t heads;          /* query heads; 0 makes every call a no-op */
    int64_t kv_heads;       /* 0: heads; divides heads; query head h reads head h / (heads / kv_heads) */
    int64_t head_dim;       /* of q and k, 1 ... 1024 */
    int64_t value_head_dim; /* of v and out; 0: head_dim */
    double scale;           /* 0: 1 / sqrt(head_dim) */
    double softcap;         /* c > 0: scores become c tanh(score / c), before any mask; 0: off */
    int32_t causal;         /* non-zero: key j is kept when j <= position of the query */
    int32_t alignment;      /* attn_alignment, for causal and windows */
    uint32_t window;        /* sides that are bounded: ATTN_WINDOW_LEFT | ATTN_WINDOW_RIGHT */
    attn_dtype dtype;       /* of q, k, v; 0: not known yet */
    int64_t window_left;  /* keeps position - left <= j: left = 2 keeps the query's own key and two before */
    int64_t window_right; /* keeps j <= position + right */
    uint64_t needs;       /* ATTN_FEATURE bits that calls will ask for; filters automatic candidates */
    const char *pipeline; /* class name of the model's pipeline, see attn_model_permits_trtllm; NULL: none */
    const char *impl_overrides; /* "BACKEND=implementation,...": replaces the implementation if that backend
                                   is selected; names (registry or log names) that are not selected are
                                   ignored; NULL: none */
    attn_domain domain;         /* whose names and whose rule */
    int32_t reserved;
    const attn_llm_query *llm; /* domain llm; read while the layer opens; NULL: all defaults */
    const char *model_backend; /* domain vision: the model's own wish for this layer; NULL: none */
    const char *qkv_layout; /* how the model itself lays out q, k, v; NULL: not declared. Whatever the layout,
                               calls pass views of [batch, sequence, heads, head_dim]; a sparse plugin is
                               refused for a declaration other than "BSND" */
    const attn_params *params; /* static parameters for implementations that consume them; copied. The
                                  configuration's own go before these. NULL: none */
} attn_layer_options;
#define ATTN_LAYER_BATCH_INVARIANT 1u

/* Resolves the role to a backend and an implementation. Fails: invalid_value, invalid_shape, unknown_backend,
 * and every kind of refusal of ATTN_KIND_LIST for an explicit choice. The selection is logged once per
 * (role, category, backend, source). */
ATTN_API attn_status attn_layer_open(attn_context *context, const attn_layer_options *options,
                                     attn_layer **layer, attn_error *error);
ATTN_API void attn_layer_close(attn_layer *layer); /* NULL is allowed */

typedef struct attn_layer_info {
    uint32_t size;
    int32_t explicit_choice; /* 1: a user named the backend; 0: automatic */
    const char *backend;     /* registry name */
    const char *implementation;
    const char *source; /* "attention_config.per_role['self']", "platform default", ... */
    const char *reason; /* one sentence */
    const char *plan;   /* what the last forward ran: kernel set, tiles; "" before the first */
    int32_t demotions;  /* implementations that failed at run time and were passed over since (automatic
                           choices only) */
    int32_t reserved;
    const char *report;   /* what the last forward did with blocks: "17 of 168 cubes", or
                             "dense:<reason>" for a dense pass that is part of the backend's own
                             definition; "": nothing to say */
    int64_t dense_calls;  /* forwards that were such dense passes */
    int64_t sparse_calls; /* forwards that left blocks out */
    double kept_share;    /* pairs of blocks that the last forward computed, of all; 1 without blocks */
    double map_seconds;   /* choosing these blocks took so long, as a part of the last forward; 0: nothing was
                             chosen in it */
} attn_layer_info;
/* Strings live until the layer's next forward or close. */
ATTN_API void attn_layer_get_info(const attn_layer *layer, attn_layer_info *info);

/* ---- forward ---------------------------------------------------------------------------------- */

typedef enum attn_mask_kind {
    ATTN_MASK_BY_DTYPE = 0, /* bool: keep; floating: additive; anything else is refused */
    ATTN_MASK_KEEP = 1,     /* bool, u8 or i8: any non-zero byte means attend */
    ATTN_MASK_ADDITIVE =
        2 /* f32, f16, bf16 (f64 with f64 inputs): added to the scores; -inf excludes the key */
} attn_mask_kind;

typedef enum attn_scores_mode {
    ATTN_SCORES_SCALED = 1, /* scale * q k^T */
    ATTN_SCORES_CAPPED,     /* after softcap */
    ATTN_SCORES_MASKED,     /* after mask, bias and structure; excluded keys are -inf */
    ATTN_SCORES_PROBS       /* after softmax; a row with nothing to attend to is 0 */
} attn_scores_mode;

typedef enum attn_joint_order { ATTN_JOINT_FRONT = 0, ATTN_JOINT_REAR = 1 } attn_joint_order;

/* Half-open [start, end) in global positions (the positions of keys). */
typedef struct attn_span {
    int64_t start, end;
} attn_span;

/* Query rows [local_start, local_end) stand at global positions from global_start on. */
typedef struct attn_query_range {
    int64_t local_start, local_end, global_start;
} attn_query_range;

/* Which keys each query attends to, block by block. Query block i holds the rows [i * block_q, (i + 1) *
 * block_q) of every sample and key block j the keys [j * block_k, (j + 1) * block_k); the last block of
 * either ends where the sequence ends. Each (sample, head, query block) has one list of key blocks, ascending
 * and without duplicates; an empty list gives output 0 and lse -inf. Masks, lengths and causal order hide
 * keys of listed blocks on top of that. A call checks lists in host memory and fails; those in memory of a
 * device the kernels check, and rows whose list does not hold become NaN, with their lse. The caller owns a
 * map that it fills itself; those of attn_block_map_new and _convert are released whole by
 * attn_block_map_free. Any thread may read a map. */
typedef struct attn_block_map {
    uint32_t size;
    uint32_t flags;           /* 0 */
    int64_t block_q, block_k; /* rows and keys of a block, 1 or more; mostly 64, 128 or 256 */
    int64_t q_len, kv_len;    /* of the sequence that the map was built for; 0: in a call, that of the call */
    const DLTensor *counts; /* i32 [B|1, H|1, query blocks]: key blocks in each list; H counts query heads */
    const DLTensor *blocks; /* i32 [B|1, H|1, query blocks, P], the lists, each of adjacent entries; P is the
                               most that a list can hold, entries behind its count are not read */
} attn_block_map;
/* How the pages of a cache lie. Strides are the caller's in both. */
typedef enum attn_cache_layout {
    ATTN_CACHE_NHD = 0, /* [blocks, block_size, Hk, D], scales [blocks, block_size, Hk] */
    ATTN_CACHE_HND = 1  /* [blocks, Hk, block_size, D], scales [blocks, Hk, block_size] */
} attn_cache_layout;

/* Keys and values of many requests in pages of block_size tokens, as a server keeps them. k and v hold f32,
 * f16, bf16, f8e4m3, f8e5m2 or i8; a key is what is stored times its scale. Scales are f32 and belong to the
 * 8-bit types: one for all [1], one a head [Hk], or one for each token and head, in the layout of the pages;
 * NULL: 1 (i8 needs one). */
typedef struct attn_cache {
    uint32_t size;
    int32_t layout;    /* attn_cache_layout */
    const DLTensor *k; /* last axis D */
    const DLTensor *v; /* last axis Dv, type of k; NULL: a latent cache (MLA), whose values are the first Dv
                          channels of its keys, with their scales */
    const DLTensor *k_scale;
    const DLTensor *v_scale;
} attn_cache;

/* Positions [start, end) of one request whose queries and keys see each other in both directions, whatever
 * causal order and windows say (the tokens of an image in a causal prompt). */
typedef struct attn_prefix_range {
    int64_t request, start, end;
} attn_prefix_range;

/* One call. B batch, Sq queries, Sk keys, H heads, Hk key/value heads, D and Dv head sizes.
 * q, k, v share one dtype: f32, f16, bf16 (f64: reference only).
 * Packed sequences: q [T, H, D] or [1, T, H, D] with cu_seqlens; Sq and Sk are the totals.
 * Outputs must not overlap inputs or each other. Values behind a mask are never read into a result. */
typedef struct attn_args {
    uint32_t size;
    uint32_t flags;
    const DLTensor *q;    /* [B, Sq, H, D] */
    const DLTensor *k;    /* [B, Sk, Hk, D] */
    const DLTensor *v;    /* [B, Sk, Hk, Dv] */
    const DLTensor *out;  /* [B, Sq, H, Dv]; dtype of q, or f32 */
    const DLTensor *lse;  /* f32 [B, H, Sq], packed [H, T] or [1, H, T]; natural log; -inf for empty rows */
    const DLTensor *mask; /* [B|1, H|1, Sq|1, Sk|1] */
    const DLTensor *key_mask; /* bool [B|1, Sk]: true = attend; hides keys only */
    const DLTensor
        *kv_lengths; /* i32 or i64 [B]: key j is kept when j < length; moves the bottom-right corner */
    const DLTensor *cu_seqlens_q; /* i32 or i64 [N + 1], from 0, ascending, the last is T */
    const DLTensor *cu_seqlens_k;
    const DLTensor *sinks;          /* f32 [H], stride 1: exp(sink) joins the sum alone; empty rows stay 0 */
    const DLTensor *scores;         /* f32 or dtype of q, [B, H, Sq, Sk]; debug output, see scores_mode */
    const DLTensor *joint_q;        /* [B, J, H, D]; joint tensors come together or not at all */
    const DLTensor *joint_k;        /* [B, Jk, Hk, D] */
    const DLTensor *joint_v;        /* [B, Jk, Hk, Dv] */
    const DLTensor *joint_out;      /* [B, J, H, Dv]; NULL: out has Sq + J rows in joint order */
    const DLTensor *joint_key_mask; /* bool [B|1, Jk]; needs joint_k; a missing half is all true */
    const attn_span *spans; /* host; rows inside a span see all keys up to its end, the rest is causal */
    const attn_query_range *query_ranges; /* host; must tile [0, Sq) in order */
    const int32_t *cancel;                /* polled now and then; non-zero ends the call with `cancelled` */
    void *stream;                         /* of the device; NULL: its default */
    void *workspace; /* of the layer's device, 64-byte aligned; NULL: the context's own, on a device one for
                        each stream, made or enlarged by the first call that needs it and kept until the
                        context closes */
    size_t workspace_bytes;
    int64_t query_start; /* top-left alignment only: position of query 0 */
    int32_t mask_kind;   /* attn_mask_kind */
    int32_t scores_mode; /* attn_scores_mode; required with scores */
    int32_t joint_order; /* attn_joint_order */
    uint32_t span_count;
    uint32_t query_range_count;
    uint32_t reserved;
    const attn_block_map *block_map; /* of the layer's device; with joint tensors, of the joined sequence */
    const attn_cache *cache;         /* instead of k and v; needs block_table and kv_lengths */
    /* i32 or i64 [B, M]: key j of request b is row j % block_size of page block_table[b][j / block_size].
     * Entries behind the length of a request are not looked at. Packed queries give cu_seqlens_q alone. */
    const DLTensor *block_table;
    const DLTensor *alibi_slopes; /* f32 [H], stride 1: adds -slope * |position - key| to the scores, after
                                     softcap */
    const DLTensor *tree_mask;    /* bool, u8 or i8 [B|1, N, N], N rows at most of any request: query i of a
                                     request of n rows sees all keys before the last n, and of those the ones
                                     whose byte [i][j] is not 0; replaces causal order; excludes windows */
    const DLTensor *selected;     /* i32 or i64 [B, Sq, K], packed [T, K]: the positions of the keys that a
                                     row sees, in any order; negative entries are none, repeated ones count
                                     once, those behind a causal row's position or its length are hidden */
    const attn_prefix_range *prefix_ranges; /* host; ascending by request; the layer is causal */
    uint32_t prefix_range_count;
    uint32_t reserved2;
    const attn_params *params; /* of this call, before all others; names unknown to the implementation are
                                  ignored, as are all by one that consumes none */
    const attn_forward_state *forward; /* NULL: what attn_forward_state_install installed for this thread */
} attn_args;

/* Runs the layer. Shapes of zero are successful no-ops (no keys: out 0, lse -inf).
 * Fails: invalid_shape, invalid_layout, invalid_dtype, invalid_value, device_mismatch, workspace_too_small,
 * out_of_memory, cancelled; and, for an explicit choice, the refusal kinds when a call asks for a feature
 * that the implementation lacks (an automatic choice is judged anew once and the change is logged). */
ATTN_API attn_status attn_forward(attn_layer *layer, const attn_args *args, attn_error *error);

/* The workspace that attn_forward would use for these args, in bytes; linear in the sequence length. */
ATTN_API attn_status attn_workspace_size(attn_layer *layer, const attn_args *args, size_t *bytes,
                                         attn_error *error);

/* One trace event as a line of text ("role 'cross' via platform default: SAGE_ATTN: refused
 * (package_missing): ..."), or with json as one JSON object, for sinks that write logs. Returns the bytes
 * needed with the final 0. Strings of the event may be NULL. */
ATTN_API size_t attn_trace_format(const attn_trace *trace, int json, char *text, size_t bytes);

/* Walks the same code as attn_layer_open (and, with args, as attn_forward up to the kernel) and tells
 * every step to the sink: the source, each candidate, each reason, the choice. Returns what they return. */
ATTN_API attn_status attn_explain(attn_context *context, const attn_layer_options *options,
                                  const attn_args *args, attn_trace_fn sink, void *user, attn_error *error);

/* Merges two partial results over disjoint keys: out = (e^la oa + e^lb ob) / (e^la + e^lb), lse likewise.
 * out_*: [B, S, H, Dv] of one dtype, lse_*: f32 [B, H, S]. out and lse may be those of a or b.
 * Two empty parts stay empty (0, -inf). Fails: invalid_shape, invalid_dtype, invalid_layout. */
ATTN_API attn_status attn_merge(const DLTensor *out_a, const DLTensor *lse_a, const DLTensor *out_b,
                                const DLTensor *lse_b, const DLTensor *out, const DLTensor *lse,
                                attn_error *error);

/* ---- block maps -------------------------------------------------------------------------------- */

/* The size of a map: samples and heads that have lists of their own (1: shared by all), the lengths and the
 * granularity. */
typedef struct attn_block_shape {
    uint32_t size;
    uint32_t flags; /* 0 */
    int64_t batch, heads;
    int64_t q_len, kv_len;
    int64_t block_q, block_k;
    int64_t capacity; /* key blocks that a list can hold; 0: all of them */
} attn_block_shape;

/* A map in host memory with empty lists. Its tensors may be written through their data pointers; they are
 * dense. Fails: invalid_value, invalid_shape, out_of_memory. */
ATTN_API attn_status attn_block_map_new(const attn_block_shape *shape, attn_block_map **map,
                                        attn_error *error);
/* The map of a dense keep-mask over blocks [batch, heads, query blocks, key blocks], non-zero means attend.
 * Fails like attn_block_map_new. */
ATTN_API attn_status attn_block_map_from_mask(const attn_block_shape *shape, const uint8_t *keep,
                                              attn_block_map **map, attn_error *error);
ATTN_API void attn_block_map_free(attn_block_map *map); /* of the functions here; NULL is allowed */

/* Whether the shapes of a host map fit its granularity and lengths and every list is in range, ascending and
 * without duplicates; a forward call checks its map alike. Fails: invalid_value, invalid_shape,
 * invalid_dtype, invalid_layout, device_mismatch, each naming the list. */
ATTN_API attn_status attn_block_map_check(const attn_block_map *map, attn_error *error);
/* The same keys in blocks of another size: exact when every old block is made of whole new ones, else the
 * smallest map that keeps every pair that was kept (*exact, may be NULL, says which). Fails as above, and
 * out_of_memory. */
ATTN_API attn_status attn_block_map_convert(const attn_block_map *map, int64_t block_q, int64_t block_k,
                                            attn_block_map **converted, int *exact, attn_error *error);

/* What a map keeps, of one list's worth of samples and heads or of all. */
typedef struct attn_block_stats {
    uint32_t size;
    uint32_t reserved;
    int64_t batch, heads, q_blocks, kv_blocks; /* of the map; 1: shared */
    int64_t kept, total;                       /* pairs of blocks */
    int64_t lists, empty;                      /* lists, and those without any key block */
    int64_t shortest, longest;                 /* key blocks of a list */
    double share; /* of scores that are computed, with tail blocks at their real size */
} attn_block_stats;
/* sample, head: -1 for all. Fails like attn_block_map_check. */
ATTN_API attn_status attn_block_map_stats(const attn_block_map *map, int64_t sample, int64_t head,
                                          attn_block_stats *stats, attn_error *error);
/* The lists of one sample and head as text, one line a query block, '#' kept and '.' dropped. *needed (may be
 * NULL) receives the bytes with the final 0; what does not fit is cut. Fails like attn_block_map_check. */
ATTN_API attn_status attn_block_map_text(const attn_block_map *map, int64_t sample, int64_t head, char *text,
                                         size_t bytes, size_t *needed, attn_error *error);

/* ---- writing a cache -------------------------------------------------------------------------- */

/* New keys and values and where they go. T tokens, f32, f16 or bf16, any strides. */
typedef struct attn_cache_rows {
    uint32_t size;
    uint32_t flags;
    const DLTensor *k;      /* [T, Hk, D] */
    const DLTensor *v;      /* [T, Hk, Dv]; NULL for a latent cache */
    const DLTensor *k_rest; /* latent caches may get the last channels apart (the rotary part): [T, Hk, R],
                               and then k is [T, Hk, D - R]; NULL: none */
    const DLTensor *slots;  /* i32 or i64 [T]: page * block_size + row of the page; negative: not stored */
} attn_cache_rows;

/* Stores tokens in the order of the rows, so that of equal slots the last wins. Floating types are rounded to
 * nearest even; 8-bit types take value / scale, rounded, at most the largest finite number (i8: 127). Scales
 * for each token and head are outputs here: the largest size of the vector over that number, 1 for a vector
 * of zeros; other scales are read. NaN stays NaN, and becomes 0 in i8. Host memory only; one thread at a time
 * writes a cache. Fails: invalid_struct, invalid_shape, invalid_dtype, invalid_layout, invalid_value (a slot
 * beyond the cache; nothing is written then), device_mismatch. */
ATTN_API attn_status attn_cache_write(attn_context *context, const attn_cache *cache,
                                      const attn_cache_rows *rows, attn_error *error);

/* ---- memory of devices ------------------------------------------------------------------------ */

/* For programs that hold their tensors in host memory and have no other way to a device. The module of the
 * device's platform does the work; the host ({kDLCPU, 0}) is a device like the others, so that one program
 * serves both. Streams are the device's own, NULL its default one; what is enqueued on a stream is done in
 * that order. Any thread may call. All fail with package_missing when no module offers the device,
 * device_mismatch when it is not there, out_of_memory, and internal with the device's own words. */

/* *memory: `bytes` of the device, at least 64-byte aligned, contents undefined; released by attn_device_free
 * before the context closes. */
ATTN_API attn_status attn_device_alloc(attn_context *context, DLDevice device, size_t bytes, void **memory,
                                       attn_error *error);
ATTN_API void attn_device_free(attn_context *context, DLDevice device, void *memory); /* NULL is allowed */
/* Enqueues a copy; either side may be memory of the host or of the device. From ordinary host memory it may
 * be reused on return; host memory that is written to is ready after attn_device_wait. */
ATTN_API attn_status attn_device_copy(attn_context *context, DLDevice device, void *to, const void *from,
                                      size_t bytes, void *stream, attn_error *error);
ATTN_API attn_status attn_device_fill(attn_context *context, DLDevice device, void *to, int byte,
                                      size_t bytes, void *stream, attn_error *error);
/* Returns when all that was enqueued on the stream is done; tells of what failed meanwhile. */
ATTN_API attn_status attn_device_wait(attn_context *context, DLDevice device, void *stream,
                                      attn_error *error);
/* Marks a place in a stream, for attn_device_seconds: *mark NULL makes a mark (released by
 * attn_device_unmark), else that mark is moved here. Seconds between two marks, as the device counts them;
 * waits for both. */
ATTN_API attn_status attn_device_mark(attn_context *context, DLDevice device, void *stream, void **mark,
                                      attn_error *error);
ATTN_API attn_status attn_device_seconds(attn_context *context, DLDevice device, void *from, void *to,
                                         double *seconds, attn_error *error);
ATTN_API void attn_device_unmark(attn_context *context, DLDevice device, void *mark); /* NULL is allowed */
/* Enqueues matrix products that keep the device busy for some milliseconds with all that its units for a
 * dtype can do; *flop is their number. Fails with feature_unsupported where the device offers none (the
 * host), and dtype_unsupported. */
ATTN_API attn_status attn_device_saturate(attn_context *context, DLDevice device, attn_dtype dtype,
                                          void *stream, double *flop, attn_error *error);

/* What is not known stays zero. */
typedef struct attn_device_limits {
    uint32_t size;
    int32_t count; /* devices of this type */
    int64_t memory_free, memory_total;
    int64_t cache_bytes; /* of the largest cache */
    char name[128];
} attn_device_limits;
ATTN_API attn_status attn_device_get_limits(attn_context *context, DLDevice device,
                                            attn_device_limits *limits, attn_error *error);

/* ---- resolving without a layer ---------------------------------------------------------------- */

typedef enum attn_resolve_mode {
    ATTN_RESOLVE_SELECT = 0, /* as a layer would resolve */
    ATTN_RESOLVE_CAPABILITY, /* asks what a role supports before layers exist: no availability check on a
                                named backend */
    ATTN_RESOLVE_CONSTRUCT   /* select, then the checks of a layer's construction */
} attn_resolve_mode;

typedef struct attn_query {
    uint32_t size;
    int32_t mode;          /* attn_resolve_mode */
    const char *role;      /* NULL: "self" */
    const char *category;  /* NULL: none */
    int64_t head_size;     /* 0 or less: not known, nothing is checked against it */
    uint64_t needs;        /* ATTN_FEATURE bits */
    int32_t permit_trtllm; /* the model permits TRTLLM_ATTN as an automatic choice */
    attn_dtype dtype;      /* 0: not known */
    attn_domain domain;
    int32_t reserved;
    const attn_llm_query *llm; /* domain llm; NULL: all defaults */
    const char *model_backend; /* domain vision: the model's own wish; NULL: none */
} attn_query;

typedef struct attn_resolution {
    uint32_t size;
    int32_t explicit_choice;
    int32_t supports_mask, supports_spans; /* by contract */
    const char *backend;                   /* lives as long as the context */
    const char *log_name;
    const char *implementation; /* NULL when only the contract was asked */
    char source[1152];
    char reason[512];
    char handover[1024]; /* JSON, the flat table that the backend is handed; "" for none */
    /* Domain llm; strings are constants. */
    attn_domain domain;
    int32_t flash_attn_version; /* of the layer that would be built; 0: none */
    const char *variant;        /* row of the table whose features were judged: "FA3", "TRTLLM"; "" */
    const char *kv_layout;      /* "NHD" or "HND" */
    const char *kv_cache_dtype; /* in force; NULL: none was asked */
    const char *mla_prefill;    /* backend of prefill, NULL: no MLA or none of the machine's */
    int64_t block_size;         /* of the cache: asked for, or proposed; 0: the backend leaves it open */
    int32_t trtllm_prefill;     /* FLASHINFER: prefill batches run the TRTLLM kernels */
    int32_t trtllm_decode;      /* likewise decode batches */
    int32_t query_fp8;          /* queries are quantised to FP8 */
    int32_t pads_value;         /* MLA prefill pads v to the head size of q and k */
} attn_resolution;

/* Resolves one role; sink may be NULL. Fails like attn_layer_open. */
ATTN_API attn_status attn_resolve(attn_context *context, const attn_query *query, attn_resolution *resolution,
                                  attn_trace_fn sink, void *user, attn_error *error);
/* 1: the pipeline class permits TRTLLM_ATTN as an automatic choice. NULL and unknown names: 0. */
ATTN_API int attn_model_permits_trtllm(const char *pipeline_class);

/* ---- what there is ---------------------------------------------------------------------------- */

typedef struct attn_backend_info {
    uint32_t size;
    int32_t mask, spans; /* contract: accepts an attention mask, piecewise spans */
    int32_t from_module;
    const char *name;     /* registry name */
    const char *log_name; /* what its class reports about itself */
    const char *family;
    const char *platforms;  /* "all", or names */
    const char *head_sizes; /* "any", or the contract's list */
    const char *needs;      /* what must be installed, by contract */
    int32_t dispatches; /* 1: a name for what plugins bring; choose one of attn_plugin_at by its own name */
    int32_t reserved;
} attn_backend_info;

/* A sparse plugin that a configuration can name. */
typedef struct attn_plugin_info {
    uint32_t size;
    int32_t selects; /* 1: fills a block map that the library's kernels run; 0: computes by itself */
    const char *name;
    const char *implementation; /* what attn_layer_info calls it */
    const char *summary;
    const char *platform; /* "*": any, the kernels are those of the tensors' device */
    const char *path;     /* of its file */
    uint64_t features;    /* ATTN_FEATURE bits that calls may use, declared ones among them */
    int32_t geometry;     /* 1: it has a geometry of its own */
    int32_t reserved;
} attn_plugin_info;

/* The published tables of domain llm, as the judge reads them. Lists are separated by spaces; "any": no
 * restriction. */
typedef enum attn_llm_table {
    ATTN_LLM_STANDARD = 0,
    ATTN_LLM_MLA_DECODE,
    ATTN_LLM_MLA_PREFILL /* only name, compute_cap, notes and the four fields at the end */
} attn_llm_table;
typedef struct attn_llm_row_info {
    uint32_t size;
    int32_t table; /* attn_llm_table */
    const char *name;
    const char *variant; /* "" where the name has one row */
    const char *dtypes, *kv_dtypes;
    const char *block_sizes; /* "16 32 64", "multiple of 16" or "any" */
    const char *head_sizes;
    int32_t sink, sparse, mm_prefix, dcp;
    const char *attn_types;
    const char *compute_cap; /* ">=8.0", "9.x-10.x", "10.0", "any", "n/a": runs elsewhere than on CUDA */
    const char *notes;       /* keys of attn_llm_note_at */
    const char *kernel, *enable, *disable, *constraint;
} attn_llm_row_info;

/* One row of the automatic order of a domain on a platform: rows of one scope in the order of rank. */
typedef struct attn_route_info {
    uint32_t size;
    int32_t rank;         /* from 1 within its scope */
    const char *platform; /* "*": platforms without rows of their own */
    const char *scope;    /* whom the list is for: "MLA, SM 10.x" */
    const char *backend;
    const char *condition; /* "" or when the row counts; domain vision: examples of devices */
} attn_route_info;

/* What a name of domain llm is beside its rows. */
typedef struct attn_llm_name_info {
    uint32_t size;
    int32_t mla;
    const char *name;
    const char *kv_layout;      /* required: "HND", "HND on SM 10.x"; "" for free */
    const char *kv_cache_shape; /* "" for none */
    const char *home;           /* where its code lives */
} attn_llm_name_info;

/* Constants; index from 0, 0 or NULL past the end. */
ATTN_API int attn_llm_row_at(size_t index, attn_llm_row_info *info);
ATTN_API int attn_llm_name_at(size_t index, attn_llm_name_info *info);
ATTN_API const char *attn_llm_note_at(size_t index, const char **text);
ATTN_API int attn_route_at(attn_domain domain, size_t index, attn_route_info *info);

/* Block sizes over several backends of one model (names of domain llm). propose: the size of cache blocks
 * when the user gave none, the smallest that every backend takes, and 16 if they take it. kernel: the size
 * that the kernels of one cache group see for cache blocks of `cache_block` tokens: that size if all take it
 * as it is, else the largest listed one that divides it and that all take. flags: ATTN_LLM_FLAG bits, of
 * which FLOAT32_STATE matters. Fails: unknown_backend, invalid_value (no common block size). */
ATTN_API attn_status attn_llm_propose_block(const char *const *backends, size_t count, uint32_t flags,
                                            int64_t *block, attn_error *error);
ATTN_API attn_status attn_llm_kernel_block(const char *const *backends, size_t count, uint32_t flags,
                                           int64_t cache_block, int64_t *block, attn_error *error);
/* Hybrid models keep attention and a state space in pages of one size: the size of cache blocks, at least
 * `cache_block` (0: the proposed one), with which a page of attention holds one page of state. Blocks grow by
 * max(smallest size that every backend takes, cache_block), also where the user gave cache_block.
 * token_bytes: of keys and values of one token in one layer; state_bytes: of one page of state; both 1 or
 * more. Fails: unknown_backend, invalid_value (a cache_block that a backend does not take, a result beyond
 * INT32_MAX tokens). */
ATTN_API attn_status attn_llm_hybrid_block(const char *const *backends, size_t count, uint32_t flags,
                                           int64_t cache_block, int64_t token_bytes, int64_t state_bytes,
                                           int64_t *block, attn_error *error);
/* Tokens that the workspace of chunked MLA prefill is sized for: what is wanted (0: as much as the bound
 * allows), at most ATTN_LLM_PREFILL_TOKENS, but never less than one block for each of the max_sequences
 * sequences. Fails: invalid_value. */
#define ATTN_LLM_PREFILL_TOKENS ((int64_t)64 * 1024)
ATTN_API attn_status attn_llm_prefill_workspace(int64_t wanted, int64_t max_sequences, int64_t block_size,
                                                int64_t *tokens, attn_error *error);

/* A setting of decode context parallelism (DCP): groups of decode_context ranks, out of the tensor_parallel
 * ones, share the tokens of one cache. 0 means not known where no other meaning is told; a limit on a number
 * that is not known is not asked. */
#define ATTN_LLM_PARALLEL_MLA        1u /* the model's cache has no heads of its own */
#define ATTN_LLM_PARALLEL_ALL_TO_ALL 2u /* partial results are merged by an all-to-all exchange */
typedef struct attn_llm_parallel {
    uint32_t size;
    uint32_t flags;          /* ATTN_LLM_PARALLEL bits */
    int64_t tensor_parallel; /* ranks, 1 or more */
    int64_t decode_context;  /* ranks, 1 or more; 1: no DCP */
    int64_t heads;           /* query heads of the model, before any split; kv_heads divides it */
    int64_t kv_heads;        /* likewise; no matter for MLA */
    int64_t block_size;      /* tokens of a cache block */
    int64_t interleave;      /* tokens that lie on one rank before the next one's follow */
} attn_llm_parallel;
/* Whether it can run: tensor_parallel is divisible by decode_context, and an all-to-all merge has more than
 * one rank. With more than one: for other models than MLA tensor_parallel is above kv_heads, decode_context
 * at most tensor_parallel / kv_heads, and heads / kv_heads divisible by decode_context; block_size is at
 * least interleave and divisible by it. Fails: invalid_struct; invalid_value with every limit that does not
 * hold. */
ATTN_API attn_status attn_llm_check_parallel(const attn_llm_parallel *parallel, attn_error *error);

/* 1: a prefix language model, whose layers ask with ATTN_LLM_FLAG(MM_PREFIX) and whose pictures may not be
 * prefilled in chunks. said: what the model's configuration says itself, 0 or 1, which counts; negative:
 * nothing, and its family decides. model_type: the family as the configuration calls it, matched exactly;
 * NULL: none. */
ATTN_API int attn_llm_is_prefix_lm(const char *model_type, int32_t said);
/* The families that are known; index from 0, NULL past the end. Constants. */
ATTN_API const char *attn_llm_prefix_family_at(size_t index);

/* Scales beside a quantised cache. */
typedef enum attn_llm_scales {
    ATTN_LLM_SCALES_NONE = 0,
    ATTN_LLM_SCALES_TENSOR,    /* one for keys and one for values of a layer */
    ATTN_LLM_SCALES_TOKEN_HEAD /* one float32 beside each head's vector */
} attn_llm_scales;
/* How the cache of one layer is asked to be stored. Strings are read during the call. */
typedef struct attn_llm_cache_query {
    uint32_t size;
    int32_t layer;              /* index in its model, from 0 */
    const char *kv_cache_dtype; /* asked for, as in attn_llm_query; NULL: "auto" */
    const char *checkpoint; /* what the checkpoint's quantisation calls its KV scheme, in any case; "": it has
                               one without a name, which is "fp8"; NULL: it has none */
    const char *const
        *skip; /* layers that keep "auto": indices in decimal, or "sliding_window"; NULL: none */
    size_t skip_count;
    int32_t sliding_window; /* non-zero: the layer has one */
    attn_dtype model_dtype; /* 0: not known */
} attn_llm_cache_query;
typedef struct attn_llm_cache_storage {
    uint32_t size;
    int32_t skipped;            /* the skip list names the layer */
    const char *kv_cache_dtype; /* in force; a constant */
    attn_dtype dtype;           /* of the stored elements; 0: not known, or a format of the backend's own */
    int32_t scales;             /* attn_llm_scales */
} attn_llm_cache_storage;
/* "auto" yields to the checkpoint's scheme and stores the model's dtype where there is none; any other name
 * is taken, and the checkpoint's is not read. A layer on the skip list has "auto" and the model's dtype,
 * whatever else is said. Fails: invalid_struct, invalid_value (an entry of the skip list, a negative layer),
 * invalid_kv_cache_dtype (of the question or of the checkpoint).
 */
ATTN_API attn_status attn_llm_cache_resolve(const attn_llm_cache_query *query,
                                            attn_llm_cache_storage *storage, attn_error *error);

/* What is particular of an implementation, one bit each. X(NAME, bit, sentence). */
#define ATTN_IMPL_FLAG_LIST(X)                                                                               \
    X(NOT_CAPTURABLE, 0, "cannot run inside a device graph")                                                 \
    X(PER_FORWARD, 1, "consumes parameters and the per-forward state: attn_call.params, .forward")           \
    X(FINITE_VALUES, 2, "values behind a mask must be finite: it multiplies them by zero")
enum {
#define ATTN_X(name, bit, sentence) ATTN_IMPL_##name = 1 << bit,
    ATTN_IMPL_FLAG_LIST(ATTN_X)
#undef ATTN_X
};

typedef struct attn_impl_info {
    uint32_t size;
    int32_t head_dim_max;
    uint64_t features;
    uint64_t dtypes; /* bit (1 << attn_dtype) */
    const char *name;
    const char *summary;
    const char *platform; /* "*": any */
    const char *backends; /* comma-separated */
    const char *module;   /* "built-in", or the module's name */
    uint32_t flags;       /* ATTN_IMPL_* */
    uint32_t reserved;
} attn_impl_info;

typedef struct attn_module_info {
    uint32_t size;
    attn_kind kind; /* none: accepted; else why it was refused */
    const char *path;
    const char *name; /* "" when it could not be read */
    const char *version;
    const char *text; /* the whole sentence, with the loader's own words */
} attn_module_info;

/* The implementation behind a backend name on this context; NULL gives the name back its own order. A name of
 * another domain than diffusion is written "llm:CPU_ATTN" or "vision:sdpa". Takes
 * effect with the next call of every layer. The public name, its contract and the routing stay as they are.
 * Fails: unknown_backend, unknown_name. */
ATTN_API attn_status attn_override_set(attn_context *context, const char *backend, const char *implementation,
                                       attn_error *error);
typedef struct attn_override_info {
    uint32_t size;
    int32_t reserved;
    const char *backend;
    const char *implementation;
} attn_override_info;

/* What the probe of a platform said when the context opened. */
typedef struct attn_probe_info {
    uint32_t size;
    int32_t positive, external;
    const char *name;
    const char *text; /* why, one sentence */
} attn_probe_info;

/* The platform of this machine, as a context without options would find it: probed at the first call and kept
 * for the process; "cpu" when no probe says yes. set_current replaces it (NULL: probe anew at the next call)
 * for this function alone; contexts are never affected. Fails: ambiguous_platform (current then gives NULL).
 */
ATTN_API const char *attn_platform_current(attn_error *error);
ATTN_API attn_status attn_platform_set_current(const char *name, attn_error *error);

/* Facts of this machine, or those the context was given; live as long as the context. */
ATTN_API const attn_facts *attn_context_facts(const attn_context *context);

/* Names of the CPU kernel sets of this build, weakest first; *usable (may be NULL): this CPU runs it. NULL
 * past the end. */
ATTN_API const char *attn_kernel_set_at(size_t index, int *usable);

/* index from 0; returns 0 past the end. Strings live as long as the context. */
ATTN_API int attn_override_at(const attn_context *context, size_t index, attn_override_info *info);
ATTN_API int attn_probe_at(const attn_context *context, size_t index, attn_probe_info *info);
ATTN_API int attn_backend_at(const attn_context *context, size_t index, attn_backend_info *info);
/* The backends of one domain; attn_backend_at lists those of domain diffusion. */
ATTN_API int attn_domain_backend_at(const attn_context *context, attn_domain domain, size_t index,
                                    attn_backend_info *info);
ATTN_API int attn_impl_at(const attn_context *context, size_t index, attn_impl_info *info);
ATTN_API int attn_plugin_at(const attn_context *context, size_t index, attn_plugin_info *info);
ATTN_API int attn_module_at(const attn_context *context, size_t index, attn_module_info *info);

#ifdef __cplusplus
}
#endif
#endif
