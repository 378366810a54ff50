/* cudnn_api.h: the part of cuDNN's backend interface that is used, with the numbers that its documentation
 * and headers give; so the module is built without the kit and finds the library when it runs. */
#ifndef ATTN_CUDNN_API_H
#define ATTN_CUDNN_API_H

#include <stddef.h>
#include <stdint.h>

/* Names end as cuDNN's do: cudnnBackendDescriptorType_t, cudnnBackendAttributeName_t, ... */
enum {
    CUDNN_DESC_POINTWISE = 0,
    CUDNN_DESC_ENGINECFG = 3,
    CUDNN_DESC_ENGINEHEUR = 4,
    CUDNN_DESC_PLAN = 5,
    CUDNN_DESC_OP_POINTWISE = 13,
    CUDNN_DESC_GRAPH = 15,
    CUDNN_DESC_VARIANT_PACK = 16,
    CUDNN_DESC_TENSOR = 17,
    CUDNN_DESC_MATMUL = 18,
    CUDNN_DESC_OP_MATMUL = 19,
    CUDNN_DESC_REDUCTION = 21,
    CUDNN_DESC_OP_REDUCTION = 22,
    CUDNN_DESC_DEVICEPROP = 38
};

enum {
    CUDNN_AT_POINTWISE_MODE = 0,
    CUDNN_AT_POINTWISE_PREC = 1,
    CUDNN_AT_POINTWISE_AXIS = 9,
    CUDNN_AT_HEUR_MODE = 200,
    CUDNN_AT_HEUR_GRAPH = 201,
    CUDNN_AT_HEUR_RESULTS = 202,
    CUDNN_AT_HEUR_DEVICEPROP = 204,
    CUDNN_AT_PLAN_HANDLE = 400,
    CUDNN_AT_PLAN_CONFIG = 401,
    CUDNN_AT_PLAN_WORKSPACE = 402,
    CUDNN_AT_PLAN_DEVICEPROP = 407,
    CUDNN_AT_OP_POINTWISE = 750,
    CUDNN_AT_OP_POINTWISE_X = 751,
    CUDNN_AT_OP_POINTWISE_B = 752,
    CUDNN_AT_OP_POINTWISE_Y = 753,
    CUDNN_AT_OP_POINTWISE_T = 758,
    CUDNN_AT_GRAPH_HANDLE = 800,
    CUDNN_AT_GRAPH_OPS = 801,
    CUDNN_AT_TENSOR_ALIGNMENT = 900,
    CUDNN_AT_TENSOR_TYPE = 901,
    CUDNN_AT_TENSOR_SHAPE = 902,
    CUDNN_AT_TENSOR_STRIDES = 903,
    CUDNN_AT_TENSOR_ID = 906,
    CUDNN_AT_TENSOR_VIRTUAL = 907,
    CUDNN_AT_TENSOR_BY_VALUE = 908,
    CUDNN_AT_PACK_IDS = 1000,
    CUDNN_AT_PACK_POINTERS = 1001,
    CUDNN_AT_PACK_WORKSPACE = 1003,
    CUDNN_AT_MATMUL_PREC = 1500,
    CUDNN_AT_MATMUL_PADDING = 1503,
    CUDNN_AT_OP_MATMUL_A = 1520,
    CUDNN_AT_OP_MATMUL_B = 1521,
    CUDNN_AT_OP_MATMUL_C = 1522,
    CUDNN_AT_OP_MATMUL = 1523,
    CUDNN_AT_OP_MATMUL_M = 1525,
    CUDNN_AT_OP_MATMUL_N = 1526,
    CUDNN_AT_OP_MATMUL_K = 1527,
    CUDNN_AT_REDUCTION_OPERATOR = 1600,
    CUDNN_AT_REDUCTION_PREC = 1601,
    CUDNN_AT_OP_REDUCTION_X = 1610,
    CUDNN_AT_OP_REDUCTION_Y = 1611,
    CUDNN_AT_OP_REDUCTION = 1612,
    CUDNN_AT_DEVICEPROP_JSON = 2702
};

enum {
    CUDNN_IS_HANDLE = 0,
    CUDNN_IS_TYPE = 1,
    CUDNN_IS_BOOLEAN = 2,
    CUDNN_IS_INT64 = 3,
    CUDNN_IS_DOUBLE = 5,
    CUDNN_IS_POINTER = 6,
    CUDNN_IS_HEUR_MODE = 8,
    CUDNN_IS_POINTWISE_MODE = 14,
    CUDNN_IS_DESCRIPTOR = 15,
    CUDNN_IS_REDUCTION = 18,
    CUDNN_IS_CHAR = 24
};

enum { CUDNN_F32 = 0, CUDNN_F16 = 2, CUDNN_I32 = 4, CUDNN_BF16 = 9, CUDNN_BOOL = 11 };

enum {
    CUDNN_ADD = 0,
    CUDNN_MUL = 1,
    CUDNN_DIV = 6,
    CUDNN_SUB = 9,
    CUDNN_EXP = 13,
    CUDNN_LOG = 15,
    CUDNN_GE = 303,
    CUDNN_LT = 304,
    CUDNN_AND = 400,
    CUDNN_INDEX = 501,
    CUDNN_SELECT = 601
};

enum { CUDNN_REDUCE_SUM = 0, CUDNN_REDUCE_MAX = 3 };
enum { CUDNN_HEURISTICS_A = 3, CUDNN_HEURISTICS_FALLBACK = 2 };

/* Statuses of 3000 and more say that something is not supported. */
enum { CUDNN_UNSUPPORTED = 3000, CUDNN_UNSUPPORTED_END = 4000 };

typedef struct attn_cudnn {
    void *library;
    size_t (*version)(void); /* 9.19.0 is 91900 */
    int (*create)(void **handle);
    int (*set_stream)(void *handle, void *stream);
    const char *(*error_string)(int status);
    void (*last_error)(char *text, size_t bytes);
    int (*new_descriptor)(int type, void **descriptor);
    int (*free_descriptor)(void *descriptor);
    int (*set)(void *descriptor, int name, int type, int64_t count, const void *elements);
    int (*get)(void *descriptor, int name, int type, int64_t wanted, int64_t *count, void *elements);
    int (*finalize)(void *descriptor);
    int (*execute)(void *handle, void *plan, void *pack);
} attn_cudnn;

/* The library, opened once a process: $ATTN_CUDNN_LIBRARY, else libcudnn.so.9 where the loader looks. NULL,
 * and one sentence why, when it is not there. Any thread. */
const attn_cudnn *attn_cudnn_library(char *why, size_t bytes);

#endif
