/* fake_gpu.c: a machine with a device whose memory the host cannot touch, without a device. Its addresses are
 * pages that nobody may read or write; the module keeps another view of the same pages. What a kernel would
 * compute is computed by the library's own reference on the host. $FAKE_GPU is the number of devices; the
 * platform is called fake_gpu and its tensors are kDLCUDA. */
#define _GNU_SOURCE
#include "fixture.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* ---- memory ------------------------------------------------------------------------------------- */

typedef struct region {
    char *device, *host;
    size_t bytes;
} region;

enum { REGIONS = 4096, PAGE = 4096 };
static region regions[REGIONS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Read by tests through dlsym: regions in use, bytes of them, copies, marks in use. */
ATTN_MODULE_EXPORT int fake_gpu_regions, fake_gpu_copies, fake_gpu_marks;
int fake_gpu_regions, fake_gpu_copies, fake_gpu_marks;

static attn_status check_device(int32_t device, attn_error *error)
{
    const char *count = getenv("FAKE_GPU");
    if (device >= 0 && device < (count ? atoi(count) : 0)) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_DEVICE_MISMATCH, "there is no fake device %d", device);
}

/* The host's view of an address of the device; any other address stays what it is. */
static char *host_view(const void *address)
{
    char *at = (char *)(uintptr_t)address;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < REGIONS; i++)
        if (regions[i].bytes && at >= regions[i].device && at < regions[i].device + regions[i].bytes) {
            at = regions[i].host + (at - regions[i].device);
            break;
        }
    pthread_mutex_unlock(&lock);
    return at;
}

/* For other stand-ins that reach this device's memory. */
ATTN_MODULE_EXPORT char *fake_gpu_host_view(const void *address);

char *fake_gpu_host_view(const void *address)
{
    return host_view(address);
}

static int map(region *r, size_t bytes)
{
    int file = memfd_create("fake_gpu", 0);
    if (file < 0 || ftruncate(file, (off_t)bytes)) return 0;
    r->host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    r->device = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, file, 0);
    r->bytes = bytes;
    close(file);
    return r->host != MAP_FAILED && r->device != MAP_FAILED;
}

static attn_status dev_alloc(int32_t device, size_t bytes, void **memory, attn_error *error)
{
    attn_status status = check_device(device, error);
    if (status) return status;
    if (bytes > (size_t)1 << 34)
        return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "the fake device has no %zu bytes", bytes);
    pthread_mutex_lock(&lock);
    int i = 0, ok;
    while (i < REGIONS && regions[i].bytes) i++;
    ok = i < REGIONS && map(&regions[i], (bytes + 2 * PAGE - 1) / PAGE * PAGE);
    if (ok) *memory = regions[i].device, fake_gpu_regions++;
    pthread_mutex_unlock(&lock);
    return ok ? ATTN_OK : attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "the fake device is full");
}

static void dev_release(int32_t device, void *memory)
{
    (void)device;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < REGIONS; i++)
        if (regions[i].bytes && regions[i].device == memory) {
            munmap(regions[i].device, regions[i].bytes);
            munmap(regions[i].host, regions[i].bytes);
            regions[i] = (region){NULL, NULL, 0};
            fake_gpu_regions--;
        }
    pthread_mutex_unlock(&lock);
}

static attn_status dev_copy(int32_t device, void *to, int64_t to_pitch, const void *from, int64_t from_pitch,
                            size_t width, int64_t rows, void *stream, attn_error *error)
{
    char *a = host_view(to), *b = host_view(from);
    attn_status status = check_device(device, error);
    (void)stream;
    if (status) return status;
    if (to_pitch < (int64_t)width || from_pitch < (int64_t)width)
        return attn_fail(error, ATTN_KIND_INTERNAL, "a pitch of %lld for %zu bytes", (long long)to_pitch,
                         width);
    for (int64_t i = 0; i < rows; i++) memcpy(a + i * to_pitch, b + i * from_pitch, width);
    __atomic_add_fetch(&fake_gpu_copies, 1, __ATOMIC_RELAXED);
    return ATTN_OK;
}

static attn_status dev_fill(int32_t device, void *to, int byte, size_t bytes, void *stream, attn_error *error)
{
    attn_status status = check_device(device, error);
    (void)stream;
    if (!status) memset(host_view(to), byte, bytes);
    return status;
}

static attn_status dev_wait(int32_t device, void *stream, attn_error *error)
{
    (void)stream;
    return check_device(device, error);
}

static attn_status dev_mark(int32_t device, void *stream, void **mark, attn_error *error)
{
    (void)device, (void)stream;
    if (!*mark) __atomic_add_fetch(&fake_gpu_marks, 1, __ATOMIC_RELAXED);
    if (!*mark) *mark = malloc(sizeof(struct timespec));
    if (!*mark) return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a mark");
    clock_gettime(CLOCK_MONOTONIC, *mark);
    return ATTN_OK;
}

static attn_status dev_seconds(int32_t device, void *from, void *to, double *seconds, attn_error *error)
{
    struct timespec *a = from, *b = to;
    (void)device, (void)error;
    *seconds = (double)(b->tv_sec - a->tv_sec) + 1e-9 * (double)(b->tv_nsec - a->tv_nsec);
    return ATTN_OK;
}

static void dev_unmark(int32_t device, void *mark)
{
    (void)device;
    __atomic_sub_fetch(&fake_gpu_marks, 1, __ATOMIC_RELAXED);
    free(mark);
}

static attn_status dev_limits(int32_t device, attn_device_limits *limits, attn_error *error)
{
    limits->count = 1;
    limits->memory_free = limits->memory_total = (int64_t)1 << 34;
    limits->cache_bytes = 1 << 20;
    snprintf(limits->name, sizeof limits->name, "Fake device %d", device);
    return check_device(device, error);
}

static attn_status dev_saturate(int32_t device, attn_dtype dtype, void *stream, double *flop,
                                attn_error *error)
{
    struct timespec nap = {0, 1000000};
    (void)stream;
    if (dtype != ATTN_BF16 && dtype != ATTN_F16)
        return attn_fail(error, ATTN_KIND_DTYPE_UNSUPPORTED, "the fake device multiplies 16-bit types only");
    nanosleep(&nap, NULL);
    *flop = 1e7;
    return check_device(device, error);
}

static const attn_device device = {.size = sizeof(attn_device),
                                   .device_type = kDLCUDA,
                                   .platform = "fake_gpu",
                                   .alloc = dev_alloc,
                                   .release = dev_release,
                                   .copy = dev_copy,
                                   .fill = dev_fill,
                                   .wait = dev_wait,
                                   .mark = dev_mark,
                                   .seconds = dev_seconds,
                                   .unmark = dev_unmark,
                                   .limits = dev_limits,
                                   .saturate = dev_saturate};

/* ---- platform ----------------------------------------------------------------------------------- */

static int32_t count(void)
{
    const char *text = getenv("FAKE_GPU");
    return text ? atoi(text) : 0;
}

static int probe(char *why, size_t bytes)
{
    snprintf(why, bytes, "FAKE_GPU says %d", (int)count());
    return count() > 0;
}

static int describe_device(int32_t index, attn_device_info *info)
{
    if (index >= count()) return 0;
    snprintf(info->name, sizeof info->name, "Fake device %d", index);
    info->has_capability = 1;
    info->major = 9;
    return 1;
}

static const attn_platform platform = {.size = sizeof(attn_platform),
                                       .device_type = kDLCUDA,
                                       .name = "fake_gpu",
                                       .probe = probe,
                                       .device_count = count,
                                       .device = describe_device};

/* ---- the kernel: the host's reference over the other view ---------------------------------------- */

typedef struct state {
    attn_context *context;
    attn_layer *layer;
} state;

static attn_status plan(const attn_host *host, const attn_problem *p, void **made, attn_workspace *workspace,
                        attn_error *error)
{
    attn_options o = {.size = sizeof o,
                      .threads = 1,
                      .platform = "cpu",
                      .backend = "TORCH_SDPA",
                      .module_path = "",
                      .flags = ATTN_OPEN_IGNORE_ENV};
    attn_layer_options l = {.size = sizeof l,
                            .device = {kDLCPU, 0},
                            .heads = p->heads,
                            .kv_heads = p->kv_heads,
                            .head_dim = p->head_dim,
                            .value_head_dim = p->value_head_dim,
                            .scale = p->scale,
                            .softcap = p->softcap,
                            .causal = p->causal,
                            .alignment = p->alignment,
                            .window = p->window,
                            .window_left = p->window_left,
                            .window_right = p->window_right};
    state *s = host->alloc(host, sizeof *s, 16);
    if (!s) return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a plan");
    *s = (state){NULL, NULL};
    *made = s;
    workspace->shared_bytes = 4096;
    workspace->thread_bytes = 64;
    attn_status status = attn_open(&o, &s->context, error);
    if (!status) status = attn_layer_open(s->context, &l, &s->layer, error);
    if (status) attn_close(s->context), host->release(host, s);
    return status;
}

static void drop(const attn_host *host, void *made)
{
    state *s = made;
    attn_layer_close(s->layer);
    attn_close(s->context);
    host->release(host, s);
}

typedef struct view {
    DLTensor dl;
    int64_t shape[4], strides[4];
} view;

static const DLTensor *see(view *v, const void *data, attn_dtype dtype, int ndim, const int64_t *shape,
                           const int64_t *strides)
{
    if (!data) return NULL;
    for (int i = 0; i < ndim; i++) v->shape[i] = shape[i], v->strides[i] = strides[i];
    v->dl = (DLTensor){.data = host_view(data),
                       .device = {kDLCPU, 0},
                       .ndim = ndim,
                       .dtype = attn_dtype_to_dl(dtype),
                       .shape = v->shape,
                       .strides = v->strides};
    return &v->dl;
}

static const DLTensor *see_index(view *v, const attn_index *index)
{
    return see(v, index->data, index->bits == 32 ? ATTN_I32 : ATTN_I64, 1, &index->count, &index->stride);
}

/* NULL: no map. */
static const attn_block_map *see_map(view *views, const attn_block_lists *l, attn_block_map *map)
{
    const int64_t counts[] = {l->batch, l->heads, l->q_blocks},
                  lists[] = {l->batch, l->heads, l->q_blocks, l->capacity};
    const int64_t steps[] = {l->block_stride[0], l->block_stride[1], l->block_stride[2], 1};
    if (!l->counts) return NULL;
    *map = (attn_block_map){.size = sizeof *map,
                            .block_q = l->block_q,
                            .block_k = l->block_k,
                            .counts = see(&views[0], l->counts, ATTN_I32, 3, counts, l->count_stride),
                            .blocks = see(&views[1], l->blocks, ATTN_I32, 4, lists, steps)};
    return map;
}

/* $FAKE_GPU_BREAK says what goes wrong: "unwritten", "value" or "guard". */
static attn_status forward(const state *s, const attn_args *args, attn_error *error)
{
    const char *how = getenv("FAKE_GPU_BREAK");
    char *out = args->out->data;
    attn_status status = how && !strcmp(how, "unwritten") ? ATTN_OK : attn_forward(s->layer, args, error);
    if (how && !strcmp(how, "value")) memset(out, 0x47, 4);
    if (how && !strcmp(how, "guard")) out[-1] = 1;
    return status;
}

/* Broadcast axes have stride 0 in a problem, and size 1 or the full one does not matter then. */
static attn_status run(const attn_host *host, const void *made, const attn_call *c, attn_error *error)
{
    const state *s = made;
    const attn_problem *p = c->problem;
    int packed = c->cu_q.data != NULL;
    int64_t b = packed ? 1 : p->batch;
    int64_t q[] = {b, p->q_len, p->heads, p->head_dim}, k[] = {b, p->kv_len, p->kv_heads, p->head_dim};
    int64_t v[] = {b, p->kv_len, p->kv_heads, p->value_head_dim},
            o[] = {b, p->q_len, p->heads, p->value_head_dim};
    int64_t lse[] = {b, p->heads, p->q_len}, grid[] = {b, p->heads, p->q_len, p->kv_len},
            keys[] = {b, p->kv_len};
    int64_t one[] = {p->heads, 1};
    view views[14];
    attn_block_map map;
    (void)host;
    uintptr_t bits = (uintptr_t)c->shared | (uintptr_t)c->scratch;
    if (!c->shared || bits % 64 || c->workers != 1)
        return attn_fail(error, ATTN_KIND_INTERNAL, "the workspace is not as planned");
    memset(host_view(c->shared), 0xff, 4096);
    memset(host_view(c->scratch), 0xff, 64);
    attn_args args = {.size = sizeof args,
                      .q = see(&views[0], c->q, p->dtype, 4, q, p->q_stride),
                      .k = see(&views[1], c->k ? c->k : c, p->dtype, 4, k, p->k_stride),
                      .v = see(&views[2], c->v ? c->v : c, p->dtype, 4, v, p->v_stride),
                      .out = see(&views[3], c->out, p->out_dtype, 4, o, p->out_stride),
                      .lse = see(&views[4], c->lse, ATTN_F32, 3, lse, p->lse_stride),
                      .mask = see(&views[5], c->mask, p->mask_dtype, 4, grid, p->mask_stride),
                      .key_mask = see(&views[6], c->key_mask, ATTN_BOOL, 2, keys, p->key_mask_stride),
                      .kv_lengths = see_index(&views[7], &c->kv_lengths),
                      .cu_seqlens_q = see_index(&views[8], &c->cu_q),
                      .cu_seqlens_k = see_index(&views[9], &c->cu_k),
                      .sinks = see(&views[10], c->sinks, ATTN_F32, 1, one, one + 1),
                      .scores = see(&views[11], c->scores, p->scores_dtype, 4, grid, p->scores_stride),
                      .spans = c->spans,
                      .span_count = c->span_count,
                      .query_ranges = c->query_ranges,
                      .query_range_count = c->query_range_count,
                      .query_start = c->query_start,
                      .block_map = see_map(&views[12], &c->blocks, &map),
                      .mask_kind = p->mask_form,
                      .scores_mode = p->scores_mode};
    return forward(s, &args, error);
}

static const char *const both[] = {"FLASH_ATTN", "TORCH_SDPA", NULL};
static const attn_impl impl = {.size = sizeof(attn_impl),
                               .name = "fake_gpu_all",
                               .summary = "a test's implementation for a device that is none",
                               .platform = "fake_gpu",
                               .backends = both,
                               .features = ~(uint64_t)0,
                               .dtypes = 1u << ATTN_F32 | 1u << ATTN_F16 | 1u << ATTN_BF16 | 1u << ATTN_F64,
                               .head_dim_max = 1024,
                               .plan = plan,
                               .run = run,
                               .drop = drop};
static const attn_impl *const impls[] = {&impl, NULL};
static const attn_platform *const platforms[] = {&platform, NULL};
static const attn_device *const devices[] = {&device, NULL};
static const attn_module module = {FIXTURE_MODULE("fake_gpu", impls), .platforms = platforms,
                                   .devices = devices};

FIXTURE_ENTRY(&module)
