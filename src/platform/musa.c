/* musa.c: Moore Threads GPUs, through their management library. */
#include "platform/library.h"
#include "platform/platform.h"

#include <stdio.h>

typedef struct mtml {
    void *library, *session;
    int (*init)(void **session);
    int (*shut_down)(void *session);
    int (*count)(const void *session, unsigned *count);
} mtml;

static bool mtml_open(mtml *m, char *why, size_t bytes)
{
    static const char *const files[] = {"libmtml.so", "libmtml.so.1", NULL};
    const attn_symbol symbols[] = {{"mtmlLibraryInit", &m->init},
                                   {"mtmlLibraryShutDown", &m->shut_down},
                                   {"mtmlLibraryCountDevice", &m->count},
                                   {NULL, NULL}};
    m->library = attn_library_open(files, symbols, why, bytes);
    if (!m->library) return false;
    int code = m->init(&m->session);
    if (!code) return true;
    snprintf(why, bytes, "MTML does not initialise: error %d", code);
    attn_library_close(m->library);
    return false;
}

static int32_t count_all(char *why, size_t bytes)
{
    mtml m;
    unsigned count = 0;
    if (!mtml_open(&m, why, bytes)) return -1;
    int code = m.count(m.session, &count);
    if (code)
        snprintf(why, bytes, "MTML does not count devices: error %d", code);
    else
        snprintf(why, bytes, "MTML reports %u device%s", count, count == 1 ? "" : "s");
    m.shut_down(m.session);
    attn_library_close(m.library);
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

static const char *collective(void)
{
    return "mccl";
}

extern const attn_platform attn_platform_musa;

const attn_platform attn_platform_musa = {
    .size = sizeof(attn_platform),
    .device_type = kDLExtDev,
    .name = "musa",
    .probe = probe,
    .device_count = device_count,
    .collective = collective,
    .visibility = "MUSA_VISIBLE_DEVICES",
    .ar_worker = "gpu_ar_worker",
    .generation_worker = "gpu_generation_worker",
    .diffusion_worker = "gpu_diffusion_worker",
    .stage_configs = "deploy",
    .abilities = ATTN_PLATFORM_GRAPH_CAPTURE | ATTN_PLATFORM_CPU_OFFLOAD | ATTN_PLATFORM_INDUCTOR,
};
