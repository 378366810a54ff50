/* hopper.c: the implementation cuda_flash_sm90, warpgroup products and bulk tensor copies. */
#include "hopper.h"

#include "impls.h"
#include "listed.h"

#include <stdio.h>

static const char who[] = "cuda_flash_sm90";

/* Positions and keys are counted in 32 bits inside the kernel, with room for a tile; so are items. */
#define COUNT_MAX (INT32_MAX - 512)

enum { ALIGN = 16 }; /* bytes: of addresses and strides that the copy engine takes */

static void accept_counts(const attn_problem *p, attn_reasons *reasons)
{
    const struct {
        const char *name;
        int64_t count;
    } counts[] = {{"queries", p->q_len}, {"keys", p->kv_len}, {"heads", p->heads}, {"samples", p->batch}};
    for (int i = 0; i < 4; i++)
        if (counts[i].count > COUNT_MAX)
            attn_reason(reasons, ATTN_KIND_FEATURE_UNSUPPORTED, "%s takes at most %d %s, not %lld", who,
                        COUNT_MAX, counts[i].name, (long long)counts[i].count);
}

static void accept_strides(const attn_problem *p, attn_reasons *reasons)
{
    const struct {
        const char *name;
        const int64_t *stride;
        int64_t rows;
    } tensors[] = {{"q", p->q_stride, p->q_len},
                   {"k", p->k_stride, p->kv_len},
                   {"v", p->v_stride, p->kv_len},
                   {"out", p->out_stride, p->q_len}};
    for (int t = 0; t < 4; t++) {
        for (int axis = 0; axis < 3; axis++)
            if (tensors[t].stride[axis] % (ALIGN / 2) || tensors[t].stride[axis] < 0 ||
                tensors[t].stride[axis] >= (int64_t)1 << 38)
                attn_reason(
                    reasons, ATTN_KIND_INVALID_LAYOUT,
                    "%s needs strides that are positive multiples of %d elements below 2^38, %s has %lld on "
                    "axis %d",
                    who, ALIGN / 2, tensors[t].name, (long long)tensors[t].stride[axis], axis);
        if (tensors[t].rows > 1 && !tensors[t].stride[1])
            attn_reason(reasons, ATTN_KIND_INVALID_LAYOUT, "%s takes no broadcast sequence axis, as %s has",
                        who, tensors[t].name);
    }
}

enum { BLOCK = 64 }; /* rows and keys that blocks of a map are whole multiples of */

static void accept_blocks(const attn_problem *p, attn_reasons *reasons)
{
    if (p->block_q % BLOCK || p->block_k % BLOCK)
        attn_reason(reasons, ATTN_KIND_FEATURE_UNSUPPORTED,
                    "%s takes block maps whose blocks are multiples of %d rows by %d keys, not %lld by %lld",
                    who, BLOCK, BLOCK, (long long)p->block_q, (long long)p->block_k);
}

static void accept(const attn_host *host, const attn_problem *p, attn_reasons *reasons)
{
    (void)host;
    attn_cuda_judge_device(p->device_id, who, reasons);
    accept_counts(p, reasons);
    accept_strides(p, reasons);
    accept_blocks(p, reasons);
    if (p->mask_form == ATTN_FORM_KEEP && (p->mask_stride[1] || p->mask_stride[2]))
        attn_reason(reasons, ATTN_KIND_FEATURE_UNSUPPORTED,
                    "%s takes masks that are the same in all heads and query rows; this one has strides %lld "
                    "and %lld "
                    "there",
                    who, (long long)p->mask_stride[1], (long long)p->mask_stride[2]);
    if (p->scale < 0)
        attn_reason(reasons, ATTN_KIND_FEATURE_UNSUPPORTED, "%s needs a scale above zero, not %g", who,
                    p->scale);
}

const attn_cuda_hopper_tile *attn_cuda_hopper_choose(const attn_problem *p)
{
    const attn_cuda_hopper_tile *t;
    for (int32_t i = 0; (t = attn_cuda_hopper_tile_at(i)); i++) {
        const int whole = p->block_q % (t->groups * BLOCK) == 0;
        if (t->map == (p->block_q > 0) && whole && p->head_dim <= t->size &&
            p->value_head_dim <= t->value_size && p->kv_len >= (p->causal ? 2 : 1) * t->least)
            return t;
    }
    return NULL;
}

static const void *kernel_of(const attn_cuda_hopper_tile *tile, attn_dtype dtype)
{
    const int32_t index = (int32_t)(tile - attn_cuda_hopper_tile_at(0));
    return dtype == ATTN_F16 ? attn_cuda_hopper_f16(index) : attn_cuda_hopper_bf16(index);
}

cudaError_t attn_cuda_hopper_ready(const attn_cuda_hopper_tile *tile, attn_dtype dtype)
{
    return cudaFuncSetAttribute(kernel_of(tile, dtype), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                tile->bytes);
}

static attn_status plan(const attn_host *host, const attn_problem *p, void **state, attn_workspace *workspace,
                        attn_error *error)
{
    int before;
    (void)host;
    const attn_cuda_hopper_tile *tile = attn_cuda_hopper_choose(p);
    workspace->shared_bytes = attn_cuda_map_bytes(p);
    workspace->thread_bytes = 0;
    if (!tile)
        return attn_fail(error, ATTN_KIND_HEAD_SIZE_UNSUPPORTED,
                         "%s has no instance for head sizes %lld and %lld", who, (long long)p->head_dim,
                         (long long)p->value_head_dim);
    *state = (void *)(uintptr_t)tile;
    attn_status status = attn_cuda_enter(p->device_id, who, &before, error);
    if (status) return status;
    cudaError_t code = attn_cuda_hopper_ready(tile, p->dtype);
    if (code) status = attn_cuda_fail(code, who, "asking for shared memory", error);
    attn_cuda_leave(before);
    return status;
}

attn_status attn_cuda_hopper_run(const attn_cuda_hopper_tile *tile, attn_cuda_hopper_call *a, void *workspace,
                                 const char *name, cudaStream_t stream, attn_error *error)
{
    attn_status status = attn_cuda_map_prepare(&a->c, workspace, tile->groups * BLOCK, name, stream, error);
    if (!status) status = attn_cuda_hopper_map(a, tile, name, error);
    if (status) return status;
    cudaError_t code = attn_cuda_hopper_launch(a, tile, kernel_of(tile, a->c.p.dtype), stream);
    return code ? attn_cuda_fail(code, name, "launching", error) : ATTN_OK;
}

static attn_status run(const attn_host *host, const void *state, const attn_call *call, attn_error *error)
{
    attn_cuda_hopper_call a;
    int before;
    (void)host;
    attn_status status = attn_cuda_check_addresses(call, ALIGN, who, error);
    if (!status) status = attn_cuda_call_fill(call, who, &a.c, error);
    if (!status) status = attn_cuda_enter(call->problem->device_id, who, &before, error);
    if (status) return status;
    status = attn_cuda_hopper_run(state, &a, call->shared, who, call->stream, error);
    attn_cuda_leave(before);
    return status;
}

static void describe(const attn_host *host, const void *state, char *text, size_t bytes)
{
    const attn_cuda_hopper_tile *t = state;
    (void)host;
    snprintf(text, bytes,
             "wgmma and TMA, instance for head sizes up to %d and %d%s, %d rows by %d keys a tile", t->size,
             t->value_size, t->map ? " with a block map" : "", t->groups * 64, t->keys);
}

static const char *const backends[] = {"FLASH_ATTN", NULL};

const attn_impl attn_cuda_flash_sm90 = {
    .size = sizeof(attn_impl),
    .rank = -1, /* before the kernel for all */
    .name = "cuda_flash_sm90",
    .summary = "tensor cores through wgmma, tiles through TMA, on sm_90; fp16 and bf16, linear memory",
    .platform = "cuda",
    .backends = backends,
#define ATTN_X(name, bit, text, sentence) | ATTN_FEATURE(name)
    .features = (0 ATTN_FEATURE_LIST(ATTN_X)) &
                ~(ATTN_FEATURE(SCORES) | ATTN_FEATURE(STRIDED) | ATTN_FEATURE(MASK_ADDITIVE) |
                  ATTN_FEATURE(SOFTCAP) | ATTN_FEATURES_SERVING),
#undef ATTN_X
    .dtypes = 1u << ATTN_F16 | 1u << ATTN_BF16,
    .head_dim_max = 256,
    .head_dim_multiple = 8,
    .arch_min = 90,
    .arch_max = 90,
    .accept = accept,
    .plan = plan,
    .run = run,
    .describe = describe,
};
