/* rocm.c: AMD GPUs, counted by AMD SMI, described by the kernel driver's topology files. */
#include "platform/library.h"
#include "platform/platform.h"

#include <stdio.h>
#include <string.h>

typedef struct smi {
    void *library;
    int (*init)(uint64_t flags);
    int (*shut_down)(void);
    int (*sockets)(uint32_t *count, void **sockets);
    int (*processors)(void *socket, uint32_t *count, void **processors);
} smi;

static bool smi_open(smi *s, char *why, size_t bytes)
{
    enum { GPUS = 2 }; /* the flag that asks AMD SMI for GPUs */
    static const char *const files[] = {"libamd_smi.so", "libamd_smi.so.26", "libamd_smi.so.25", NULL};
    const attn_symbol symbols[] = {{"amdsmi_init", &s->init},
                                   {"amdsmi_shut_down", &s->shut_down},
                                   {"amdsmi_get_socket_handles", &s->sockets},
                                   {"amdsmi_get_processor_handles", &s->processors},
                                   {NULL, NULL}};
    s->library = attn_library_open(files, symbols, why, bytes);
    if (!s->library) return false;
    int code = s->init(GPUS);
    if (!code) return true;
    snprintf(why, bytes, "AMD SMI does not initialise: status %d", code);
    attn_library_close(s->library);
    return false;
}

/* All processors of all sockets; -1 when they cannot be counted. */
static int32_t count_processors(const smi *s, char *why, size_t bytes)
{
    enum { MOST = 64 };
    void *sockets[MOST];
    uint32_t count = MOST;
    int32_t total = 0;
    int code = s->sockets(&count, sockets);
    for (uint32_t i = 0; !code && i < count && i < MOST; i++) {
        uint32_t processors = 0;
        code = s->processors(sockets[i], &processors, NULL);
        total += (int32_t)processors;
    }
    if (code)
        snprintf(why, bytes, "AMD SMI does not count processors: status %d", code);
    else
        snprintf(why, bytes, "AMD SMI reports %d processor%s", total, total == 1 ? "" : "s");
    return code ? -1 : total;
}

static int32_t count_all(char *why, size_t bytes)
{
    smi s;
    if (!smi_open(&s, why, bytes)) return -1;
    int32_t count = count_processors(&s, why, bytes);
    s.shut_down();
    attn_library_close(s.library);
    return count;
}

static int probe(char *why, size_t bytes)
{
    return count_all(why, bytes) > 0;
}

static int32_t device_count(void)
{
    char why[128];
    int32_t count = count_all(why, sizeof why);
    return count > 0 ? count : 0;
}

/* gfx_target_version is major * 10000 + minor * 100 + stepping; nodes without one are processors of another
 * kind. */
static long node_version(int node)
{
    char path[96], key[64];
    long value, version = 0;
    snprintf(path, sizeof path, "/sys/class/kfd/kfd/topology/nodes/%d/properties", node);
    FILE *file = fopen(path, "r");
    if (!file) return -1;
    while (fscanf(file, "%63s %ld", key, &value) == 2)
        if (!strcmp(key, "gfx_target_version")) version = value;
    fclose(file);
    return version;
}

static int device(int32_t index, attn_device_info *info)
{
    for (int node = 0;; node++) {
        long version = node_version(node);
        if (version < 0) return 0;
        if (version == 0 || index-- > 0) continue;
        info->has_capability = 1;
        info->major = (int32_t)(version / 10000);
        info->minor = (int32_t)(version / 100 % 100);
        snprintf(info->name, sizeof info->name, "gfx%ld%ld%lx", version / 10000, version / 100 % 100,
                 version % 100);
        return 1;
    }
}

static const char *collective(void)
{
    return "rccl";
}

extern const attn_platform attn_platform_rocm;

const attn_platform attn_platform_rocm = {
    .size = sizeof(attn_platform),
    .device_type = kDLROCM,
    .name = "rocm",
    .probe = probe,
    .device_count = device_count,
    .device = device,
    .collective = collective,
    .visibility = "HIP_VISIBLE_DEVICES CUDA_VISIBLE_DEVICES",
    .ar_worker = "gpu_ar_worker",
    .generation_worker = "gpu_generation_worker",
    .diffusion_worker = "gpu_diffusion_worker",
    .stage_configs = "deploy",
    .abilities = ATTN_PLATFORM_GRAPH_CAPTURE | ATTN_PLATFORM_FLOAT64 | ATTN_PLATFORM_CPU_OFFLOAD |
                 ATTN_PLATFORM_INDUCTOR | ATTN_PLATFORM_TALKER_GRAPH,
};
