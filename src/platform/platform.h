/* platform.h: which platform a machine is. */
#ifndef ATTN_PLATFORM_PLATFORM_H
#define ATTN_PLATFORM_PLATFORM_H

#include "core/fail.h"

typedef struct attn_platform {
    const char *name;
    DLDeviceType device_type;
    bool (*probe)(void); /* never fails: what goes wrong means no */
} attn_platform;

const attn_platform *attn_platform_at(size_t index);        /* NULL: past the end */
const attn_platform *attn_platform_named(const char *name); /* NULL: unknown */
/* The first row whose probe says yes; the last row, cpu, always does. */
const attn_platform *attn_platform_detect(void);

#endif
