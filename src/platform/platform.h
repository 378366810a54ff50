/* platform.h: which platform a machine is, and what a platform offers. */
#ifndef ATTN_PLATFORM_PLATFORM_H
#define ATTN_PLATFORM_PLATFORM_H

#include "core/facts.h"

#include <attn/module.h>

extern const attn_platform attn_platform_cpu;
const attn_platform *attn_platform_at(size_t index); /* with a probe, in probing order; NULL past the end */
const attn_platform *attn_platform_named(const char *name); /* cpu as well; NULL: unknown */

/* What one probe said. */
typedef struct attn_probed {
    const attn_platform *platform; /* NULL: an external one that offers no probe */
    char name[64];
    bool external, positive;
    char why[256];
} attn_probed;

void attn_probe(const attn_platform *platform, bool external, attn_probed *probed);
/* The rules of arbitration: one external, else one built-in, else none (*chosen NULL). Fails:
 * ambiguous_platform. */
attn_status attn_arbitrate(const attn_probed *probed, size_t count, const attn_platform **chosen,
                           attn_error *error);

/* Facts of device 0 of the platform on this machine. */
void attn_platform_facts(const attn_platform *platform, attn_facts *facts);

/* The slots with the base behind them. */
int32_t attn_platform_device_count(const attn_platform *platform);
int attn_platform_device(const attn_platform *platform, int32_t index, attn_device_info *info);
const char *attn_platform_version(const attn_platform *platform, char *text, size_t bytes);
attn_status attn_platform_synchronise(const attn_platform *platform, int32_t device, attn_error *error);
void *attn_platform_record_event(const attn_platform *platform, int32_t device, void *stream);
const char *attn_platform_collective(const attn_platform *platform);

#endif
