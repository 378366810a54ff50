/* flash.c: the implementation cuda_flash, tensor cores through mma.sync. */
#include "flash.h"

#include "impls.h"
#include "listed.h"

#include <stdio.h>

static const char who[] = "cuda_flash";

/* Keys are counted in 32 bits inside the kernel, with room for a tile. */
#define KEYS_MAX (INT32_MAX - 256)

enum { ALIGN = 16 }; /* bytes that one copy to shared memory moves */

static void accept(const attn_host *host, const attn_problem *p, attn_reasons *reasons)
{
    (void)host;
    attn_cuda_judge_device(p->device_id, who, reasons);
    if (p->kv_len > KEYS_MAX)
        attn_reason(reasons, ATTN_KIND_FEATURE_UNSUPPORTED, "%s takes at most %d keys, not %lld", who,
                    KEYS_MAX, (long long)p->kv_len);
    const struct {
        const char *name;
        const int64_t *stride;
    } tensors[] = {{"q", p->q_stride}, {"k", p->k_stride}, {"v", p->v_stride}, {"out", p->out_stride}};
    for (int t = 0; t < 4; t++)
        for (int axis = 0; axis < 3; axis++)
            if (tensors[t].stride[axis] % (ALIGN / 2))
                attn_reason(reasons, ATTN_KIND_INVALID_LAYOUT,
                            "%s needs strides that are multiples of %d elements, %s has %lld on axis %d", who,
                            ALIGN / 2, tensors[t].name, (long long)tensors[t].stride[axis], axis);
}

static int general(const attn_problem *p)
{
    const uint64_t masks = ATTN_FEATURE(MASK_KEEP) | ATTN_FEATURE(MASK_ADDITIVE) | ATTN_FEATURE(KEY_MASK);
    return (p->features & masks) || p->softcap > 0 || p->scale <= 0;
}

/* The first that fits. */
const attn_cuda_tile *attn_cuda_flash_choose(const attn_problem *p, int32_t bytes)
{
    int64_t size = p->head_dim > p->value_head_dim ? p->head_dim : p->value_head_dim;
    const attn_cuda_tile *t;
    for (int32_t i = 0; (t = attn_cuda_flash_tile(i)); i++) {
        int whole = p->head_dim == t->size && p->value_head_dim == t->size;
        int fits = t->exact == 2 ? whole : size <= t->size && (!t->exact || size > t->size - 16);
        int map = p->block_q > 0, rows = !map || t->general || t->rows <= p->block_q;
        if (fits && rows && t->map == map && t->general >= general(p) && t->bytes <= bytes) return t;
    }
    return NULL;
}

static int32_t index_of(const attn_cuda_tile *tile)
{
    return (int32_t)(tile - attn_cuda_flash_tile(0));
}

static attn_status plan(const attn_host *host, const attn_problem *p, void **state, attn_workspace *workspace,
                        attn_error *error)
{
    int before, bytes = 0;
    (void)host;
    cudaError_t code = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, p->device_id);
    if (code) return attn_cuda_fail(code, who, "asking for the size of shared memory", error);
    const attn_cuda_tile *tile = attn_cuda_flash_choose(p, bytes);
    workspace->shared_bytes = attn_cuda_map_bytes(p);
    workspace->thread_bytes = 0;
    *state = (void *)(uintptr_t)tile;
    if (!tile)
        return attn_fail(error, ATTN_KIND_HEAD_SIZE_UNSUPPORTED,
                         "%s has no instance for head sizes %lld and %lld", who, (long long)p->head_dim,
                         (long long)p->value_head_dim);
    attn_status status = attn_cuda_enter(p->device_id, who, &before, error);
    if (status) return status;
    code = attn_cuda_flash_prepare(index_of(tile), p->dtype);
    if (code) status = attn_cuda_fail(code, who, "asking for shared memory", error);
    attn_cuda_leave(before);
    return status;
}

attn_status attn_cuda_flash_run(const attn_cuda_tile *tile, attn_cuda_call *c, void *workspace,
                                const char *name, cudaStream_t stream, attn_error *error)
{
    attn_status status = attn_cuda_map_prepare(c, workspace, tile->rows, name, stream, error);
    if (status) return status;
    cudaError_t code = attn_cuda_flash_launch(index_of(tile), c, stream);
    return code ? attn_cuda_fail(code, name, "launching", error) : ATTN_OK;
}

static attn_status run(const attn_host *host, const void *state, const attn_call *call, attn_error *error)
{
    attn_cuda_call c;
    int before;
    (void)host;
    attn_status status = attn_cuda_check_addresses(call, ALIGN, who, error);
    if (!status) status = attn_cuda_call_fill(call, who, &c, error);
    if (!status) status = attn_cuda_enter(call->problem->device_id, who, &before, error);
    if (status) return status;
    status = attn_cuda_flash_run(state, &c, call->shared, who, call->stream, error);
    attn_cuda_leave(before);
    return status;
}

static void describe(const attn_host *host, const void *state, char *text, size_t bytes)
{
    const attn_cuda_tile *t = state;
    (void)host;
    snprintf(text, bytes, "mma.sync, instance for head size %d%s%s%s, %d rows by %d keys a tile, %d threads",
             t->size, t->exact ? "" : " with a tail", t->general ? " with masks and caps" : "",
             t->map ? " with a block map" : "", t->rows, t->keys, t->threads);
}

static const char *const backends[] = {"FLASH_ATTN", NULL};

const attn_impl attn_cuda_flash = {
    .size = sizeof(attn_impl),
    .name = "cuda_flash",
    .summary = "tensor cores through mma.sync on sm_80 and later, fp16 and bf16, linear memory",
    .platform = "cuda",
    .backends = backends,
#define ATTN_X(name, bit, text, sentence) | ATTN_FEATURE(name)
    .features = (0 ATTN_FEATURE_LIST(ATTN_X)) &
                ~(ATTN_FEATURE(SCORES) | ATTN_FEATURE(STRIDED) | ATTN_FEATURES_SERVING),
#undef ATTN_X
    .dtypes = 1u << ATTN_F16 | 1u << ATTN_BF16,
    .head_dim_max = 256,
    .head_dim_multiple = 8,
    .accept = accept,
    .plan = plan,
    .run = run,
    .describe = describe,
};
