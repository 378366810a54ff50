/* wrong_major.c: a module of the next major version. Only size and version may be read. */
#include "fixture.h"

static const struct {
    uint32_t size;
    uint16_t abi_major, abi_minor;
    uint64_t unreadable[4];
} header = {sizeof header, ATTN_MODULE_MAJOR + 1, 0, {1, 1, 1, 1}};

FIXTURE_ENTRY((const attn_module *)(const void *)&header)
