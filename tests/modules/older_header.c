/* older_header.c: a module whose header ends where it did in the first version. What lies behind is not its
 * own. */
#include "fixture.h"

#include <stddef.h>

static const attn_impl impl = {FIXTURE_IMPL("older_plain")};
static const attn_impl *const impls[] = {&impl, NULL};
static const attn_module module = {.size = offsetof(attn_module, impls) + sizeof(module.impls),
                                   .abi_major = ATTN_MODULE_MAJOR,
                                   .abi_minor = 0,
                                   .name = "older_header",
                                   .version = "1.0",
                                   .license = "Apache-2.0",
                                   .impls = impls,
                                   .platforms = (const attn_platform *const *)(uintptr_t)8};

FIXTURE_ENTRY(&module)
