/* npu.c: Ascend NPUs, through the AscendCL runtime. */
#include "platform/library.h"
#include "platform/platform.h"

#include <stdio.h>

typedef struct acl {
    void *library;
    int (*init)(const char *config);
    int (*finalize)(void);
    int (*count)(uint32_t *count);
    const char *(*soc)(void);
} acl;

static bool acl_open(acl *a, char *why, size_t bytes)
{
    static const char *const files[] = {"libascendcl.so", NULL};
    const attn_symbol symbols[] = {{"aclInit", &a->init},
                                   {"aclFinalize", &a->finalize},
                                   {"aclrtGetDeviceCount", &a->count},
                                   {"aclrtGetSocName", &a->soc},
                                   {NULL, NULL}};
    a->library = attn_library_open(files, symbols, why, bytes);
    if (!a->library) return false;
    int code = a->init(NULL);
    if (!code) return true;
    snprintf(why, bytes, "AscendCL does not initialise: error %d", code);
    attn_library_close(a->library);
    return false;
}

static void acl_close(acl *a)
{
    a->finalize();
    attn_library_close(a->library);
}

static int32_t count_all(char *why, size_t bytes)
{
    acl a;
    uint32_t count = 0;
    if (!acl_open(&a, why, bytes)) return -1;
    int code = a.count(&count);
    if (code)
        snprintf(why, bytes, "AscendCL does not count devices: error %d", code);
    else
        snprintf(why, bytes, "AscendCL reports %u device%s", count, count == 1 ? "" : "s");
    acl_close(&a);
    return code ? -1 : (int32_t)count;
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

static int device(int32_t index, attn_device_info *info)
{
    acl a;
    char why[128];
    if (index < 0 || index >= device_count() || !acl_open(&a, why, sizeof why)) return 0;
    const char *soc = a.soc();
    snprintf(info->name, sizeof info->name, "%s", soc ? soc : "");
    acl_close(&a);
    return 1;
}

static const char *collective(void)
{
    return "hccl";
}

extern const attn_platform attn_platform_npu;

const attn_platform attn_platform_npu = {
    .size = sizeof(attn_platform),
    .device_type = kDLExtDev,
    .name = "npu",
    .probe = probe,
    .device_count = device_count,
    .device = device,
    .collective = collective,
    .visibility = "ASCEND_RT_VISIBLE_DEVICES",
    .ar_worker = "npu_ar_worker",
    .generation_worker = "npu_generation_worker",
    .diffusion_worker = "gpu_diffusion_worker",
    .stage_configs = "deploy",
    .abilities = ATTN_PLATFORM_GRAPH_CAPTURE | ATTN_PLATFORM_FLOAT64 | ATTN_PLATFORM_CPU_OFFLOAD |
                 ATTN_PLATFORM_TALKER_GRAPH | ATTN_PLATFORM_KV_WRITTEN_FIRST,
};
