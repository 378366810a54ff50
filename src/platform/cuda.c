/* cuda.c: NVIDIA GPUs, seen through the management library, so that no context is created on a device. */
#include "platform/library.h"
#include "platform/platform.h"

#include <stdio.h>
#include <stdlib.h>

/* The part of NVML's interface that is used, as its documentation gives it. */
typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

typedef struct nvml {
    void *library;
    int (*init)(void);
    int (*shut_down)(void);
    int (*count)(unsigned *count);
    int (*handle)(unsigned index, void **device);
    int (*name)(void *device, char *name, unsigned bytes);
    int (*capability)(void *device, int *major, int *minor);
    int (*memory)(void *device, nvml_memory *memory);
    int (*driver)(char *version, unsigned bytes);
    const char *(*error)(int code);
} nvml;

/* Opens and initialises; every success is closed by nvml_close. */
static bool nvml_open(nvml *n, char *why, size_t bytes)
{
    static const char *const files[] = {"libnvidia-ml.so.1", "libnvidia-ml.so", NULL};
    const attn_symbol symbols[] = {{"nvmlInit_v2", &n->init},
                                   {"nvmlShutdown", &n->shut_down},
                                   {"nvmlDeviceGetCount_v2", &n->count},
                                   {"nvmlDeviceGetHandleByIndex_v2", &n->handle},
                                   {"nvmlDeviceGetName", &n->name},
                                   {"nvmlDeviceGetCudaComputeCapability", &n->capability},
                                   {"nvmlDeviceGetMemoryInfo", &n->memory},
                                   {"nvmlSystemGetDriverVersion", &n->driver},
                                   {"nvmlErrorString", &n->error},
                                   {NULL, NULL}};
    n->library = attn_library_open(files, symbols, why, bytes);
    if (!n->library) return false;
    int code = n->init();
    if (!code) return true;
    snprintf(why, bytes, "NVML does not initialise: %s", n->error(code));
    attn_library_close(n->library);
    return false;
}

static void nvml_close(nvml *n)
{
    n->shut_down();
    attn_library_close(n->library);
}

static int probe(char *why, size_t bytes)
{
    nvml n;
    unsigned count = 0;
    if (!nvml_open(&n, why, bytes)) return 0;
    int code = n.count(&count);
    if (code)
        snprintf(why, bytes, "NVML does not count devices: %s", n.error(code));
    else
        snprintf(why, bytes, "NVML reports %u device%s", count, count == 1 ? "" : "s");
    nvml_close(&n);
    return !code && count > 0;
}

static int32_t device_count(void)
{
    nvml n;
    char why[128];
    unsigned count = 0;
    if (!nvml_open(&n, why, sizeof why)) return 0;
    if (n.count(&count)) count = 0;
    nvml_close(&n);
    return (int32_t)count;
}

/* 0 when cuDNN is not installed. */
static int64_t cudnn_version(void)
{
    const char *named = getenv("ATTN_CUDNN_LIBRARY"), *files[] = {NULL, NULL, NULL};
    int count = 0;
    if (named && *named)
        files[count++] = named;
    else
        files[count++] = "libcudnn.so.9", files[count++] = "libcudnn.so";
    size_t (*version)(void);
    const attn_symbol symbols[] = {{"cudnnGetVersion", &version}, {NULL, NULL}};
    char why[128];
    void *library = attn_library_open(files, symbols, why, sizeof why);
    int64_t found = library ? (int64_t)version() : 0;
    attn_library_close(library);
    return found;
}

static int device(int32_t index, attn_device_info *info)
{
    nvml n;
    nvml_memory memory = {0, 0, 0};
    char why[128];
    void *handle;
    int major, minor;
    if (!nvml_open(&n, why, sizeof why)) return 0;
    bool there = !n.handle((unsigned)index, &handle);
    if (there && n.name(handle, info->name, sizeof info->name)) info->name[0] = 0;
    if (there && !n.capability(handle, &major, &minor)) {
        info->has_capability = 1;
        info->major = major;
        info->minor = minor;
    }
    if (there && !n.memory(handle, &memory)) {
        info->memory_free = (int64_t)memory.free;
        info->memory_total = (int64_t)memory.total;
    }
    nvml_close(&n);
    info->dnn_version = cudnn_version();
    return there;
}

static const char *runtime_version(char *text, size_t bytes)
{
    nvml n;
    char why[128], version[80] = "";
    text[0] = 0;
    if (!nvml_open(&n, why, sizeof why)) return text;
    if (!n.driver(version, sizeof version)) snprintf(text, bytes, "driver %s", version);
    nvml_close(&n);
    return text;
}

static const char *collective(void)
{
    return "nccl";
}

extern const attn_platform attn_platform_cuda;

const attn_platform attn_platform_cuda = {
    .size = sizeof(attn_platform),
    .device_type = kDLCUDA,
    .name = "cuda",
    .probe = probe,
    .device_count = device_count,
    .device = device,
    .runtime_version = runtime_version,
    .collective = collective,
    .visibility = "CUDA_VISIBLE_DEVICES",
    .ar_worker = "gpu_ar_worker",
    .generation_worker = "gpu_generation_worker",
    .diffusion_worker = "gpu_diffusion_worker",
    .stage_configs = "deploy",
    .abilities = ATTN_PLATFORM_GRAPH_CAPTURE | ATTN_PLATFORM_FLOAT64 | ATTN_PLATFORM_CPU_OFFLOAD |
                 ATTN_PLATFORM_INDUCTOR | ATTN_PLATFORM_TALKER_GRAPH,
};
