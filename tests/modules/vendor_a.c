/* vendor_a.c: a platform whose probe claims every machine. */
#include "fixture.h"

#include <stdio.h>

static int probe(char *why, size_t bytes)
{
    snprintf(why, bytes, "it is here");
    return 1;
}

static const attn_platform platform = {
    .size = sizeof(attn_platform), .device_type = kDLExtDev, .name = "vendor_a", .probe = probe};
static const attn_platform *const platforms[] = {&platform, NULL};
static const attn_module module = {FIXTURE_MODULE("vendor_a", NULL), .platforms = platforms};

FIXTURE_ENTRY(&module)
