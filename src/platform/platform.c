/* platform.c: probing, arbitration, and the base that platforms inherit. */
#include "platform/platform.h"

#include <stdio.h>
#include <string.h>

#define X(symbol) extern const attn_platform symbol;
#include "platform/platforms.def"
#undef X

static const attn_platform *const rows[] = {
#define X(symbol) &symbol,
#include "platform/platforms.def"
#undef X
};
enum { ROWS = sizeof rows / sizeof *rows };

/* The platform that is always there has nothing to override. */
const attn_platform attn_platform_cpu = {.size = sizeof(attn_platform),
                                         .device_type = kDLCPU,
                                         .name = "cpu",
                                         .abilities = ATTN_PLATFORM_FLOAT64 | ATTN_PLATFORM_INDUCTOR};

const attn_platform *attn_platform_at(size_t index)
{
    return index < ROWS ? rows[index] : NULL;
}

const attn_platform *attn_platform_named(const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (!strcmp(rows[i]->name, name)) return rows[i];
    return strcmp(name, attn_platform_cpu.name) ? NULL : &attn_platform_cpu;
}

void attn_probe(const attn_platform *platform, bool external, attn_probed *probed)
{
    memset(probed, 0, sizeof *probed);
    probed->external = external;
    snprintf(probed->name, sizeof probed->name, "%s", platform->name);
    if (!platform->probe) {
        snprintf(probed->why, sizeof probed->why, "it offers no probe and is skipped");
        return;
    }
    probed->platform = platform;
    probed->positive = platform->probe(probed->why, sizeof probed->why) != 0;
}

/* "cuda, rocm" of the positive ones of one kind. */
static size_t positives(const attn_probed *probed, size_t count, bool external, const attn_platform **first,
                        char *names, size_t bytes)
{
    size_t found = 0;
    names[0] = 0;
    for (size_t i = 0; i < count; i++) {
        if (!probed[i].positive || probed[i].external != external) continue;
        size_t used = strlen(names);
        snprintf(names + used, bytes - used, "%s%s", used ? ", " : "", probed[i].name);
        if (!found++) *first = probed[i].platform;
    }
    return found;
}

attn_status attn_arbitrate(const attn_probed *probed, size_t count, const attn_platform **chosen,
                           attn_error *error)
{
    char names[256];
    *chosen = NULL;
    for (int external = 1; external >= 0; external--) {
        size_t found = positives(probed, count, external, chosen, names, sizeof names);
        if (found > 1)
            return attn_fail(
                error, ATTN_KIND_AMBIGUOUS_PLATFORM,
                "more than one %splatform claims this machine: %s; pin one with --platform or leave the "
                "others out of ATTN_PLUGINS",
                external ? "external " : "", names);
        if (found) return ATTN_OK;
    }
    return ATTN_OK;
}

void attn_platform_facts(const attn_platform *platform, attn_facts *facts)
{
    attn_device_info device = {.size = sizeof device};
    memset(facts, 0, sizeof *facts);
    facts->live = true;
    snprintf(facts->platform, sizeof facts->platform, "%s", platform->name);
    if (!attn_platform_device(platform, 0, &device)) return;
    facts->has_capability = device.has_capability != 0;
    facts->major = device.major;
    facts->minor = device.minor;
    facts->cudnn_version = (int32_t)device.dnn_version;
    facts->has_xpu_architecture = device.architecture != 0;
    facts->xpu_architecture = device.architecture;
    snprintf(facts->device_name, sizeof facts->device_name, "%s", device.name);
}

/* ---- the base ----------------------------------------------------------------------------------- */

int32_t attn_platform_device_count(const attn_platform *platform)
{
    return platform->device_count ? platform->device_count() : 0;
}

int attn_platform_device(const attn_platform *platform, int32_t index, attn_device_info *info)
{
    return platform->device ? platform->device(index, info) : 0;
}

const char *attn_platform_version(const attn_platform *platform, char *text, size_t bytes)
{
    text[0] = 0;
    return platform->runtime_version ? platform->runtime_version(text, bytes) : text;
}

attn_status attn_platform_synchronise(const attn_platform *platform, int32_t device, attn_error *error)
{
    return platform->synchronise ? platform->synchronise(device, error) : ATTN_OK;
}

void *attn_platform_record_event(const attn_platform *platform, int32_t device, void *stream)
{
    return platform->record_event ? platform->record_event(device, stream) : NULL;
}

const char *attn_platform_collective(const attn_platform *platform)
{
    return platform->collective ? platform->collective() : "";
}
