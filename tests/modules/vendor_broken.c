/* vendor_broken.c: a platform whose probe fails to answer. */
#include "fixture.h"

#include <stdio.h>

static int probe(char *why, size_t bytes)
{
    snprintf(why, bytes, "its driver is too old");
    return 0;
}

static const attn_platform platform = {
    .size = sizeof(attn_platform), .device_type = kDLExtDev, .name = "vendor_broken", .probe = probe};
static const attn_platform *const platforms[] = {&platform, NULL};
static const attn_module module = {FIXTURE_MODULE("vendor_broken", NULL), .platforms = platforms};

FIXTURE_ENTRY(&module)
