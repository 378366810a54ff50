/* listed.c: calls with a block map, as the host sees them. */
#include "listed.h"

#include "flash.h"
#include "hopper.h"

enum { FIRST = 64 }; /* bytes: the counter of items */

static int64_t ceil_div(int64_t n, int64_t by)
{
    return n / by + (n % by != 0);
}

/* Products saturate: what is too large is refused by whoever allocates it. */
static size_t words(int64_t a, int64_t b)
{
    size_t n;
    if (__builtin_mul_overflow((size_t)a, (size_t)b, &n) || __builtin_mul_overflow(n, sizeof(int32_t), &n))
        return SIZE_MAX / 4;
    return (n + FIRST - 1) / FIRST * FIRST;
}

static int64_t heads_of(const attn_problem *p)
{
    int64_t n;
    return __builtin_mul_overflow(p->batch, p->heads, &n) ? INT64_MAX : n;
}

size_t attn_cuda_listed_bytes(const attn_problem *p, int64_t q_blocks, int64_t block_q)
{
    int64_t items, parts = ceil_div(block_q, ATTN_CUDA_ROWS_LEAST);
    if (__builtin_mul_overflow(q_blocks, parts, &items)) items = INT64_MAX;
    size_t bytes = words(heads_of(p), items), lengths = words(heads_of(p), q_blocks);
    return FIRST + bytes + lengths;
}

size_t attn_cuda_map_bytes(const attn_problem *p)
{
    if (p->block_q < 1) return 0;
    return attn_cuda_listed_bytes(p, ceil_div(p->q_len, p->block_q),
                                  p->block_q < p->q_len ? p->block_q : p->q_len);
}

attn_status attn_cuda_map_prepare(attn_cuda_call *c, void *workspace, int64_t rows, const char *who,
                                  cudaStream_t stream, attn_error *error)
{
    attn_cuda_map *m = &c->map;
    if (!m->counts) return ATTN_OK;
    int64_t parts = attn_cuda_map_parts(m, c->p.q_len, rows), items = attn_cuda_map_items(m, &c->p, rows);
    if (items < 1) return ATTN_OK;
    if (items > INT32_MAX || c->p.kv_len > INT32_MAX - 512)
        return attn_fail(
            error, ATTN_KIND_FEATURE_UNSUPPORTED,
            "%s takes at most %d parts of query blocks and %d keys in a block map, not %lld and %lld; "
            "pass fewer samples or heads at once",
            who, INT32_MAX, INT32_MAX - 512, (long long)items, (long long)c->p.kv_len);
    m->next = workspace;
    m->order = (int32_t *)(void *)((char *)workspace + FIRST);
    int32_t *lengths = m->order + words(items, 1) / sizeof(int32_t);
    cudaError_t code = attn_cuda_map_launch(c, parts, lengths, stream);
    return code ? attn_cuda_fail(code, who, "launching the check of a block map", error) : ATTN_OK;
}

/* ---- the kernel for a device
 * ------------------------------------------------------------------------------- */

enum { TILE = 128 }; /* rows of the kernels' largest tiles */

typedef struct kernels {
    const attn_cuda_hopper_tile *hopper; /* NULL: not on this device */
    const attn_cuda_tile *flash;
} kernels;

/* Blocks with starts may have any size: the tiles are cut from them one by one. */
static attn_problem rounded(const attn_problem *p)
{
    attn_problem r = *p;
    r.block_q = ceil_div(p->block_q, TILE) * TILE;
    r.block_k = ceil_div(p->block_k, TILE) * TILE;
    return r;
}

static cudaError_t choose(const attn_problem *p, kernels *k)
{
    int major = 0, minor = 0, bytes = 0;
    cudaError_t code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, p->device_id);
    if (!code) code = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, p->device_id);
    if (!code) code = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, p->device_id);
    k->hopper = !code && major == 9 && minor == 0 ? attn_cuda_hopper_choose(p) : NULL;
    k->flash = code ? NULL : attn_cuda_flash_choose(p, bytes);
    return code;
}

attn_status attn_cuda_listed_ready(const attn_problem *p, const char *who, attn_error *error)
{
    const attn_problem r = rounded(p);
    kernels k;
    int before;
    attn_status status = attn_cuda_enter(p->device_id, who, &before, error);
    if (status) return status;
    cudaError_t code = choose(&r, &k);
    if (!code && !k.flash)
        status = attn_fail(error, ATTN_KIND_HEAD_SIZE_UNSUPPORTED,
                           "%s has no instance with block maps for head sizes %lld and %lld", who,
                           (long long)p->head_dim, (long long)p->value_head_dim);
    if (!code && !status && k.hopper) code = attn_cuda_hopper_ready(k.hopper, p->dtype);
    if (!code && !status)
        code = attn_cuda_flash_prepare((int32_t)(k.flash - attn_cuda_flash_tile(0)), p->dtype);
    if (code) status = attn_cuda_fail(code, who, "asking for shared memory", error);
    attn_cuda_leave(before);
    return status;
}

attn_status attn_cuda_listed_run(attn_cuda_call *c, void *workspace, const char *who, cudaStream_t stream,
                                 attn_error *error)
{
    attn_cuda_hopper_call a;
    kernels k;
    c->p = rounded(&c->p);
    cudaError_t code = choose(&c->p, &k);
    if (code) return attn_cuda_fail(code, who, "asking for the device", error);
    if (!k.hopper) return attn_cuda_flash_run(k.flash, c, workspace, who, stream, error);
    a.c = *c;
    return attn_cuda_hopper_run(k.hopper, &a, workspace, who, stream, error);
}
