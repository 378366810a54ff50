/* xpu.c: Intel GPUs, through the Level Zero loader, and only together with a collective backend. */
#include "platform/library.h"
#include "platform/platform.h"

#include <stdio.h>

typedef struct zero {
    void *library;
    int (*init)(uint32_t flags);
    int (*drivers)(uint32_t *count, void **drivers);
    int (*devices)(void *driver, uint32_t *count, void **devices);
} zero;

static bool loads(const char *file)
{
    static const attn_symbol none[] = {{NULL, NULL}};
    const char *const files[] = {file, NULL};
    char why[128];
    void *library = attn_library_open(files, none, why, sizeof why);
    attn_library_close(library);
    return library != NULL;
}

/* xccl where there is one, else oneCCL's. */
static const char *collective(void)
{
    static const struct row {
        const char *name, *file;
    } rows[] = {{"xccl", "libxccl.so"}, {"ccl", "libccl.so.1"}, {"ccl", "libccl.so"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (loads(rows[i].file)) return rows[i].name;
    return "";
}

/* All devices of all drivers; -1 when they cannot be counted. */
static int32_t count_devices(const zero *z, char *why, size_t bytes)
{
    enum { MOST = 16 };
    void *drivers[MOST];
    uint32_t count = MOST;
    int32_t total = 0;
    int code = z->init(0);
    if (!code) code = z->drivers(&count, drivers);
    for (uint32_t i = 0; !code && i < count && i < MOST; i++) {
        uint32_t devices = 0;
        code = z->devices(drivers[i], &devices, NULL);
        total += (int32_t)devices;
    }
    if (code)
        snprintf(why, bytes, "Level Zero does not count devices: result 0x%x", (unsigned)code);
    else
        snprintf(why, bytes, "Level Zero reports %d device%s", total, total == 1 ? "" : "s");
    return code ? -1 : total;
}

static int32_t count_all(char *why, size_t bytes)
{
    static const char *const files[] = {"libze_loader.so.1", "libze_loader.so", NULL};
    zero z;
    const attn_symbol symbols[] = {
        {"zeInit", &z.init}, {"zeDriverGet", &z.drivers}, {"zeDeviceGet", &z.devices}, {NULL, NULL}};
    z.library = attn_library_open(files, symbols, why, bytes);
    if (!z.library) return -1;
    int32_t count = count_devices(&z, why, bytes);
    attn_library_close(z.library);
    return count;
}

static int probe(char *why, size_t bytes)
{
    if (count_all(why, bytes) <= 0) return 0;
    if (*collective()) return 1;
    snprintf(why, bytes, "Level Zero has devices, but neither collective backend (xccl, ccl) loads");
    return 0;
}

static int32_t device_count(void)
{
    char why[128];
    int32_t count = count_all(why, sizeof why);
    return count > 0 ? count : 0;
}

extern const attn_platform attn_platform_xpu;

const attn_platform attn_platform_xpu = {
    .size = sizeof(attn_platform),
    .device_type = kDLExtDev,
    .name = "xpu",
    .probe = probe,
    .device_count = device_count,
    .collective = collective,
    .visibility = "ZE_AFFINITY_MASK",
    .ar_worker = "xpu_ar_worker",
    .generation_worker = "xpu_generation_worker",
    .diffusion_worker = "gpu_diffusion_worker",
    .stage_configs = "platforms/xpu/stage_configs",
    .abilities = ATTN_PLATFORM_FLOAT64 | ATTN_PLATFORM_CPU_OFFLOAD | ATTN_PLATFORM_INDUCTOR |
                 ATTN_PLATFORM_TALKER_GRAPH,
};
