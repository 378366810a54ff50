/* cudnn.c: the implementation cuda_cudnn, NVIDIA's own attention through cuDNN's graphs, found when it runs.
 */
#include "cudnn_prepare.h"
#include "impls.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const char who[] = "cuda_cudnn";

enum { DEVICES = 64, ALIGN = 16, PART = 256 };

/* ---- the library and its handles ---------------------------------------------------------------- */

/* A handle belongs to a device, holds memory there and is used by one thread at a time; it lives as long as
 * the process. */
static struct handle {
    pthread_mutex_t lock;
    void *handle;
} handles[DEVICES];

static void make_locks(void)
{
    for (int i = 0; i < DEVICES; i++) pthread_mutex_init(&handles[i].lock, NULL);
}

static struct handle *handle_of(int32_t device)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_locks);
    return &handles[device];
}

/* With the device current and the lock held. */
static attn_status open_handle(const attn_cudnn *lib, struct handle *h, attn_error *error)
{
    int status = h->handle ? 0 : lib->create(&h->handle);
    if (!status) return ATTN_OK;
    h->handle = NULL;
    return attn_fail(error, ATTN_KIND_PACKAGE_INCOMPATIBLE,
                     "cuDNN %zu does not start on this device: %s; install a version that fits the driver",
                     lib->version(), lib->error_string(status));
}

static const char get_it[] = "install cuDNN 9 (pip install nvidia-cudnn-cu13, or NVIDIA's packages) where "
                             "the loader finds libcudnn.so.9, or "
                             "set ATTN_CUDNN_LIBRARY to its path";

/* ---- judging ------------------------------------------------------------------------------------ */

static void judge_version(const attn_cudnn *lib, int32_t device, attn_reasons *reasons)
{
    int major = 0;
    size_t version = lib->version();
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device)) cudaGetLastError();
    if (version < 90000)
        attn_reason(reasons, ATTN_KIND_PACKAGE_INCOMPATIBLE, "%s needs cuDNN 9, this is %zu; %s", who,
                    version, get_it);
    if (major >= 10 && version < 90500)
        attn_reason(reasons, ATTN_KIND_PACKAGE_INCOMPATIBLE,
                    "%s needs cuDNN 9.5 on Blackwell, this is %zu; %s", who, version, get_it);
    if (version == 91000 || version == 91001)
        attn_reason(reasons, ATTN_KIND_PACKAGE_INCOMPATIBLE,
                    "cuDNN %zu computes attention wrongly, as its maker says; install 9.10.2 or later",
                    version);
}

static void judge_layout(const attn_problem *p, attn_reasons *reasons)
{
    const struct {
        const char *name;
        const int64_t *stride;
        int64_t sizes[3];
    } tensors[] = {{"q", p->q_stride, {p->batch, p->q_len, p->heads}},
                   {"k", p->k_stride, {p->batch, p->kv_len, p->kv_heads}},
                   {"v", p->v_stride, {p->batch, p->kv_len, p->kv_heads}}};
    for (int t = 0; t < 3; t++)
        for (int axis = 0; axis < 3; axis++)
            if (tensors[t].sizes[axis] > 1 && tensors[t].stride[axis] <= 0 && p->align)
                attn_reason(reasons, ATTN_KIND_INVALID_LAYOUT,
                            "%s takes no shared or reversed axis, and axis %d of %s has "
                            "stride %lld; make it contiguous",
                            who, axis, tensors[t].name, (long long)tensors[t].stride[axis]);
    for (int t = 0; t < 3; t++) {
        double reach = 0;
        for (int axis = 0; axis < 3; axis++)
            reach += (double)(tensors[t].sizes[axis] - 1) * (double)tensors[t].stride[axis];
        if (reach > INT32_MAX)
            attn_reason(
                reasons, ATTN_KIND_FEATURE_UNSUPPORTED,
                "cuDNN counts elements in 32 bits, and %s reaches over %.0f; choose FLASH_ATTN or pass fewer "
                "samples",
                tensors[t].name, reach);
    }
    if (p->align && p->align < ALIGN)
        attn_reason(reasons, ATTN_KIND_INVALID_LAYOUT,
                    "%s needs addresses and strides that are multiples of %d bytes, not of %lld; align them",
                    who, ALIGN, (long long)p->align);
}

static void accept(const attn_host *host, const attn_problem *p, attn_reasons *reasons)
{
    char why[256] = "";
    (void)host;
    attn_cuda_judge_device(p->device_id, who, reasons);
    const attn_cudnn *lib = attn_cudnn_library(why, sizeof why);
    if (!lib)
        attn_reason(reasons, ATTN_KIND_PACKAGE_MISSING, "cuDNN was not found (%s); %s", why, get_it);
    else
        judge_version(lib, p->device_id, reasons);
    if (p->device_id >= DEVICES)
        attn_reason(reasons, ATTN_KIND_DEVICE_MISMATCH, "%s serves devices 0 to %d, not %d", who, DEVICES - 1,
                    p->device_id);
    judge_layout(p, reasons);
}

/* ---- planning ----------------------------------------------------------------------------------- */

/* Parts of the workspace: cuDNN's own first, then the bias and the lengths. */
typedef struct parts {
    size_t bias, first, q_lengths, kv_lengths, total;
} parts;

static size_t after(size_t at, size_t bytes)
{
    return at + (bytes + PART - 1) / PART * PART;
}

static int64_t bias_rows(const attn_cudnn_plan *g)
{
    return g->bias.shape[0] * g->bias.shape[1] * g->bias.shape[2];
}

static parts parts_of(const attn_cudnn_plan *g, int64_t batch)
{
    parts p;
    p.bias = after(0, (size_t)g->workspace_bytes);
    p.first = after(p.bias, g->bias.bytes);
    p.q_lengths = after(p.first, g->bias.dtype ? (size_t)bias_rows(g) * 4 : 0);
    p.kv_lengths = g->lengths ? after(p.q_lengths, (size_t)batch * 4) : p.q_lengths;
    p.total = g->lengths ? after(p.kv_lengths, (size_t)batch * 4) : p.q_lengths;
    return p;
}

static void drop(const attn_host *host, void *state)
{
    if (!state) return;
    attn_cudnn_plan_free(state);
    host->release(host, state);
}

static attn_status make_plan(const attn_problem *p, attn_cudnn_plan *g, attn_error *error)
{
    char why[256] = "";
    int before;
    struct handle *h = handle_of(p->device_id);
    const attn_cudnn *lib = attn_cudnn_library(why, sizeof why);
    if (!lib) return attn_fail(error, ATTN_KIND_PACKAGE_MISSING, "cuDNN was not found (%s); %s", why, get_it);
    attn_status status = attn_cuda_enter(p->device_id, who, &before, error);
    if (status) return status;
    pthread_mutex_lock(&h->lock);
    status = open_handle(lib, h, error);
    attn_cudnn_target target = {.handle = h->handle};
    if (!status) status = attn_cudnn_plan_make(lib, &target, p, g, error);
    pthread_mutex_unlock(&h->lock);
    attn_cuda_leave(before);
    return status;
}

/* Without keys there is nothing for cuDNN to do: no plan, and the plain kernel writes zeros. */
static attn_status plan(const attn_host *host, const attn_problem *p, void **state, attn_workspace *workspace,
                        attn_error *error)
{
    workspace->shared_bytes = workspace->thread_bytes = 0;
    *state = NULL;
    if (!p->kv_len) return ATTN_OK;
    attn_cudnn_plan *g = host->alloc(host, sizeof *g, 64);
    if (!g) return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a plan of %s", who);
    memset(g, 0, sizeof *g);
    attn_status status = make_plan(p, g, error);
    if (status) {
        drop(host, g);
        return status;
    }
    workspace->shared_bytes = parts_of(g, p->batch).total;
    *state = g;
    return ATTN_OK;
}

/* ---- running ------------------------------------------------------------------------------------ */

static attn_status prepare(const attn_cudnn_plan *g, const attn_call *call, const parts *at,
                           attn_error *error)
{
    const attn_problem *p = call->problem;
    char *base = call->shared;
    attn_cudnn_prepare w = {.mask = call->mask,
                            .key_mask = call->key_mask,
                            .kv_lengths = call->kv_lengths,
                            .bias = g->bias.dtype ? base + at->bias : NULL,
                            .first = g->bias.dtype ? (int32_t *)(void *)(base + at->first) : NULL,
                            .shape = g->bias,
                            .mask_form = p->mask_form,
                            .mask_dtype = p->mask_dtype,
                            .batch = p->batch,
                            .q_len = p->q_len,
                            .kv_len = p->kv_len};
    if (!g->bias.dtype && !g->lengths) return ATTN_OK;
    memcpy(w.mask_stride, p->mask_stride, sizeof w.mask_stride);
    memcpy(w.key_mask_stride, p->key_mask_stride, sizeof w.key_mask_stride);
    if (g->lengths) {
        w.q_lengths = (int32_t *)(void *)(base + at->q_lengths);
        w.kv_lengths_out = (int32_t *)(void *)(base + at->kv_lengths);
    }
    cudaError_t code = attn_cudnn_prepare_launch(&w, call->stream);
    return code ? attn_cuda_fail(code, who, "launching", error) : ATTN_OK;
}

/* Whether some row may have nothing to attend to. */
static int may_be_empty(const attn_cudnn_plan *g, const attn_problem *p)
{
    return g->bias.dtype || g->lengths || (g->causal && g->corner && p->q_len > p->kv_len);
}

static attn_status finish(const attn_cudnn_plan *g, const attn_call *call, const parts *at, attn_error *error)
{
    const attn_problem *p = call->problem;
    char *base = call->shared;
    attn_cudnn_finish w = {.out = call->out,
                           .lse = call->lse,
                           .first = g->bias.dtype ? (int32_t *)(void *)(base + at->first) : NULL,
                           .kv_lengths = g->lengths ? (int32_t *)(void *)(base + at->kv_lengths) : NULL,
                           .bias_shape = {g->bias.shape[0], g->bias.shape[1], g->bias.shape[2]},
                           .batch = p->batch,
                           .heads = p->heads,
                           .q_len = p->q_len,
                           .kv_len = p->kv_len,
                           .value_head_dim = p->value_head_dim,
                           .causal = g->causal,
                           .corner = g->corner};
    if (!may_be_empty(g, p)) return ATTN_OK;
    memcpy(w.out_stride, p->out_stride, sizeof w.out_stride);
    memcpy(w.lse_stride, p->lse_stride, sizeof w.lse_stride);
    cudaError_t code = attn_cudnn_finish_launch(&w, call->stream);
    return code ? attn_cuda_fail(code, who, "launching", error) : ATTN_OK;
}

enum { ADDRESSES = CUDNN_NAMED };

static int list_addresses(const attn_cudnn_plan *g, const attn_call *call, const parts *at, int64_t *ids,
                          void **places)
{
    char *base = call->shared;
    const struct {
        int64_t id;
        int wanted;
        const void *place;
    } rows[] = {{CUDNN_Q, 1, call->q},
                {CUDNN_K, 1, call->k},
                {CUDNN_V, 1, call->v},
                {CUDNN_OUT, 1, call->out},
                {CUDNN_STATS, call->lse != NULL, call->lse},
                {CUDNN_BIAS, g->bias.dtype != 0, base + at->bias},
                {CUDNN_Q_LENGTHS, g->lengths, base + at->q_lengths},
                {CUDNN_KV_LENGTHS, g->lengths, base + at->kv_lengths},
                {CUDNN_SCALE, 1, &g->scale},
                {CUDNN_MINUS_INFINITY, g->lengths || g->causal, &g->minus_infinity},
                {CUDNN_Q_COUNT, g->causal && g->corner && !g->lengths, &g->q_count},
                {CUDNN_KV_COUNT, g->causal && g->corner && !g->lengths, &g->kv_count}};
    int count = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].wanted) continue;
        ids[count] = rows[i].id;
        places[count++] = (void *)(uintptr_t)rows[i].place;
    }
    return count;
}

/* The pack of addresses is made for the call: threads run one plan at once, each with its own. */
static int execute(const attn_cudnn_plan *g, void *handle, const attn_call *call, const parts *at)
{
    const attn_cudnn *lib = g->lib;
    int64_t ids[ADDRESSES];
    void *places[ADDRESSES], *pack = NULL, *workspace = call->shared;
    int count = list_addresses(g, call, at, ids, places),
        status = lib->new_descriptor(CUDNN_DESC_VARIANT_PACK, &pack);
    if (!status) status = lib->set(pack, CUDNN_AT_PACK_IDS, CUDNN_IS_INT64, count, ids);
    if (!status) status = lib->set(pack, CUDNN_AT_PACK_POINTERS, CUDNN_IS_POINTER, count, places);
    if (!status) status = lib->set(pack, CUDNN_AT_PACK_WORKSPACE, CUDNN_IS_POINTER, 1, &workspace);
    if (!status) status = lib->finalize(pack);
    if (!status) status = lib->set_stream(handle, call->stream);
    if (!status) status = lib->execute(handle, g->plan, pack);
    if (pack) lib->free_descriptor(pack);
    return status;
}

static attn_status run_plan(const attn_cudnn_plan *g, const attn_call *call, attn_error *error)
{
    struct handle *h = handle_of(call->problem->device_id);
    parts at = parts_of(g, call->problem->batch);
    attn_status status = prepare(g, call, &at, error);
    if (status) return status;
    pthread_mutex_lock(&h->lock);
    int code = execute(g, h->handle, call, &at);
    attn_cudnn_plan failed = {.lib = g->lib, .status = code, .doing = "running"};
    if (code) g->lib->last_error(failed.said, sizeof failed.said);
    pthread_mutex_unlock(&h->lock);
    return code ? attn_cudnn_fail(&failed, error) : finish(g, call, &at, error);
}

static attn_status run_empty(const attn_call *call, attn_error *error)
{
    attn_cuda_call c;
    attn_status status = attn_cuda_call_fill(call, who, &c, error);
    cudaError_t code = status ? cudaSuccess : attn_cuda_reference_launch(&c, call->stream);
    return code ? attn_cuda_fail(code, who, "launching", error) : status;
}

static attn_status run(const attn_host *host, const void *state, const attn_call *call, attn_error *error)
{
    int before;
    (void)host;
    if (call->query_start)
        return attn_fail(error, ATTN_KIND_FEATURE_UNSUPPORTED,
                         "%s places query 0 at key 0, not at %lld; choose FLASH_ATTN for a query_start", who,
                         (long long)call->query_start);
    attn_status status = attn_cuda_enter(call->problem->device_id, who, &before, error);
    if (status) return status;
    status = state ? run_plan(state, call, error) : run_empty(call, error);
    attn_cuda_leave(before);
    return status;
}

static void describe(const attn_host *host, const void *state, char *text, size_t bytes)
{
    const attn_cudnn_plan *g = state;
    (void)host;
    if (!g) {
        snprintf(text, bytes, "no keys: zeros");
        return;
    }
    snprintf(text, bytes, "cuDNN %zu, %d operations fused, %lld bytes of its own%s", g->lib->version(),
             g->op_count, (long long)g->workspace_bytes, g->bias.dtype ? ", masks as a bias" : "");
}

static const char *const backends[] = {"CUDNN_ATTN", NULL};

const attn_impl attn_cuda_cudnn = {
    .size = sizeof(attn_impl),
    .name = "cuda_cudnn",
    .summary = "NVIDIA's cuDNN 9, opened when it runs; values behind a mask must be finite",
    .platform = "cuda",
    .backends = backends,
    .features = ATTN_FEATURE(MASK_KEEP) | ATTN_FEATURE(MASK_ADDITIVE) | ATTN_FEATURE(KEY_MASK) |
                ATTN_FEATURE(LENGTHS) | ATTN_FEATURE(CAUSAL) | ATTN_FEATURE(TOP_LEFT) | ATTN_FEATURE(LSE) |
                ATTN_FEATURE(GROUPED) | ATTN_FEATURE(VALUE_DIM),
    .dtypes = 1u << ATTN_F16 | 1u << ATTN_BF16,
    .head_dim_max = 256,
    .head_dim_multiple = 8,
    .flags = ATTN_IMPL_FINITE_VALUES,
    .accept = accept,
    .plan = plan,
    .run = run,
    .drop = drop,
    .describe = describe,
};
