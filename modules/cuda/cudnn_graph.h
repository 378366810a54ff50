/* cudnn_graph.h: attention as a graph of cuDNN's operations, and the plan that cuDNN makes of it. */
#ifndef ATTN_CUDNN_GRAPH_H
#define ATTN_CUDNN_GRAPH_H

#include "cudnn_api.h"

#include <attn/module.h>

/* Tensors of the graph that a call gives an address to. */
enum {
    CUDNN_Q = 1,
    CUDNN_K,
    CUDNN_V,
    CUDNN_OUT,
    CUDNN_STATS,
    CUDNN_BIAS,
    CUDNN_Q_LENGTHS,
    CUDNN_KV_LENGTHS,
    CUDNN_SCALE,
    CUDNN_MINUS_INFINITY,
    CUDNN_Q_COUNT,
    CUDNN_KV_COUNT,
    CUDNN_NAMED /* from here on: inner tensors */
};

/* A mask of any kind becomes a bias, which is added to the scores: 0 or the mask's value, -inf where a key is
 * hidden. Axes of size 1 are shared; rows are padded to 16 bytes. */
typedef struct attn_cudnn_bias {
    attn_dtype dtype; /* 0: there is none */
    int64_t shape[4], strides[4];
    size_t bytes;
} attn_cudnn_bias;

void attn_cudnn_bias_of(const attn_problem *problem, attn_cudnn_bias *bias);

/* Whom the plan is for: a handle of the device, or a device's description, which needs no device. */
typedef struct attn_cudnn_target {
    void *handle;
    const char *device_json;
} attn_cudnn_target;

enum { CUDNN_DESCRIPTORS = 160 };

typedef struct attn_cudnn_plan {
    const attn_cudnn *lib;
    void *plan;
    int64_t workspace_bytes; /* cuDNN's own */
    attn_cudnn_bias bias;
    int lengths, causal, corner; /* corner: the causal diagonal ends at the last key */
    int32_t q_count, kv_count;
    float scale, minus_infinity;
    void *descriptors[CUDNN_DESCRIPTORS]; /* of all of it, plan and all, in the order they were made */
    int count;
    int64_t next_id;
    void *ops[40];
    int op_count;
    int status;        /* cuDNN's; 0 so far */
    const char *doing; /* what failed */
    char said[200];    /* cuDNN's own words */
} attn_cudnn_plan;

/* Fills a zeroed plan. Fails with feature_unsupported when cuDNN has no engine for the problem, internal and
 * out_of_memory else, with its own words. attn_cudnn_plan_free releases what was made, also after a failure.
 */
attn_status attn_cudnn_plan_make(const attn_cudnn *lib, const attn_cudnn_target *target,
                                 const attn_problem *problem, attn_cudnn_plan *plan, attn_error *error);
void attn_cudnn_plan_free(attn_cudnn_plan *plan);

attn_status attn_cudnn_fail(const attn_cudnn_plan *plan, attn_error *error);

#endif
