/* hopper_maps.c: tensor maps of a call. The driver makes them on the host; it is found at run time. */
#include "hopper.h"

#include <string.h>

typedef CUresult (*encode_fn)(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                              const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box,
                              const cuuint32_t *steps, CUtensorMapInterleave interleave,
                              CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                              CUtensorMapFloatOOBfill fill);

enum { RANK = 5, ROWS = 64 }; /* ROWS: of a warpgroup */

/* Sizes in elements, strides in elements (of axes 1 and up), box in elements. */
typedef struct view {
    const char *name;
    void *address;
    int64_t size[RANK], stride[RANK];
    uint32_t box[RANK];
} view;

static encode_fn find_encode(const char *who, attn_status *status, attn_error *error)
{
    void *function = NULL;
    enum cudaDriverEntryPointQueryResult found;
    cudaError_t code = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                                        cudaEnableDefault, &found);
    if (code)
        *status = attn_cuda_fail(code, who, "asking for cuTensorMapEncodeTiled", error);
    else if (!function)
        *status = attn_fail(
            error, ATTN_KIND_PACKAGE_MISSING,
            "%s: the driver has no cuTensorMapEncodeTiled; install one for CUDA 12.0 or later", who);
    encode_fn encode = NULL;
    memcpy(&encode, &function, sizeof encode);
    return encode;
}

/* An axis that is broadcast has one element for the copy engine; the kernel asks for its element 0. */
static attn_status encode(encode_fn function, CUtensorMap *map, attn_dtype dtype, int width, const view *v,
                          const char *who, attn_error *error)
{
    cuuint64_t size[RANK], stride[RANK - 1];
    cuuint32_t steps[RANK] = {1, 1, 1, 1, 1};
    for (int i = 0; i < RANK; i++) {
        int whole = i == 0 || v->stride[i] != 0;
        size[i] = (cuuint64_t)(whole && v->size[i] > 0 ? v->size[i] : 1);
        if (i) stride[i - 1] = v->stride[i] ? (cuuint64_t)v->stride[i] * 2 : 16;
    }
    CUtensorMapSwizzle swizzle = width == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                 : width == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                               : CU_TENSOR_MAP_SWIZZLE_32B;
    CUresult code =
        function(map, dtype == ATTN_F16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                 RANK, v->address, size, stride, v->box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (!code) return ATTN_OK;
    return attn_fail(
        error, ATTN_KIND_FEATURE_UNSUPPORTED,
        "%s: the driver makes no tensor map of %s (code %d), whose strides are %lld, %lld and %lld "
        "elements; make it contiguous or choose another implementation",
        who, v->name, (int)code, (long long)v->stride[2], (long long)v->stride[1], (long long)v->stride[4]);
}

/* Queries and outputs: channel, head of those that share keys, position, group of heads, sample. */
static view rows_view(const attn_cuda_hopper_call *a, const char *name, const void *address, int64_t size,
                      const int64_t *stride, int width)
{
    const attn_problem *p = &a->c.p;
    view v = {name,
              (void *)(uintptr_t)address,
              {size, a->pack, p->q_len, p->heads / a->pack, a->c.cu_q.data ? 1 : p->batch},
              {1, stride[2], stride[1], stride[2] * a->pack, stride[0]},
              {(uint32_t)width, (uint32_t)a->pack, (uint32_t)a->positions, 1, 1}};
    return v;
}

/* Keys and values: channel, position, head, sample. */
static view keys_view(const attn_cuda_hopper_call *a, const char *name, const void *address, int64_t size,
                      const int64_t *stride, int width, int keys)
{
    const attn_problem *p = &a->c.p;
    view v = {name,
              (void *)(uintptr_t)(p->kv_len ? address : a->c.q), /* no keys, no memory: the map is not used */
              {size, p->kv_len, p->kv_heads, a->c.cu_k.data ? 1 : p->batch, 1},
              {1, stride[1], stride[2], stride[0], 0},
              {(uint32_t)width, (uint32_t)keys, 1, 1, 1}};
    return v;
}

/* Heads that share keys are packed where that leaves few rows of a warpgroup without work, or where there are
 * too few positions to fill one anyway. */
static void pack_rows(attn_cuda_hopper_call *a)
{
    const attn_problem *p = &a->c.p;
    if (a->c.map.counts) { /* a head has lists of its own */
        a->pack = 1, a->positions = ROWS, a->order = 0;
        return;
    }
    const int64_t shared = p->heads / p->kv_heads;
    const int packable = shared <= ROWS && p->q_stride[2] && p->out_stride[2];
    a->pack = packable && (p->q_len < ROWS || shared * (ROWS / shared) >= ROWS - 4) ? (int32_t)shared : 1;
    a->positions = ROWS / a->pack;
    a->order = (p->causal || p->window || a->c.span_count) && !a->c.cu_q.data;
}

attn_status attn_cuda_hopper_map(attn_cuda_hopper_call *a, const attn_cuda_hopper_tile *tile, const char *who,
                                 attn_error *error)
{
    const attn_problem *p = &a->c.p;
    attn_status status = ATTN_OK;
    encode_fn function = find_encode(who, &status, error);
    if (!function) return status;
    pack_rows(a);
    /* Blocks of other sizes than a multiple of 128 are brought in halves; those without a size, too. */
    a->piece = !a->c.map.starts && a->c.map.block_k % tile->keys == 0 ? tile->keys : ROWS;
    const int keys = a->c.map.counts ? a->piece : tile->keys;
    const view q = rows_view(a, "q", a->c.q, p->head_dim, p->q_stride, tile->width),
               out = rows_view(a, "out", a->c.out, p->value_head_dim, p->out_stride, tile->width),
               k = keys_view(a, "k", a->c.k, p->head_dim, p->k_stride, tile->width, keys),
               v = keys_view(a, "v", a->c.v, p->value_head_dim, p->v_stride, tile->width, keys);
    status = encode(function, &a->q, p->dtype, tile->width, &q, who, error);
    if (!status) status = encode(function, &a->k, p->dtype, tile->width, &k, who, error);
    if (!status) status = encode(function, &a->v, p->dtype, tile->width, &v, who, error);
    /* Broadcast outputs do not exist; 32-bit ones go from registers. */
    a->store = p->out_dtype == p->dtype;
    if (!status && a->store) status = encode(function, &a->out, p->dtype, tile->width, &out, who, error);
    return status;
}
