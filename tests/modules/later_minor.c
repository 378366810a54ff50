/* later_minor.c: a module of a later minor version: larger structs and features that this header lacks. */
#include "fixture.h"

typedef struct later_impl {
    attn_impl known;
    const void *later[4];
} later_impl;
typedef struct later_module {
    attn_module known;
    const void *later[4];
} later_module;

#define LATER_FEATURES ((uint64_t)1 << 63 | (uint64_t)1 << 62)

static const later_impl impl = {.known = {.size = sizeof(later_impl),
                                          .rank = 500,
                                          .name = "later_plain",
                                          .summary = "a test's implementation",
                                          .platform = "cpu",
                                          .backends = fixture_backends,
                                          .features = LATER_FEATURES,
                                          .dtypes = 1u << ATTN_F32,
                                          .head_dim_max = 1024,
                                          .plan = fixture_plan,
                                          .run = fixture_run}};
static const attn_impl *const impls[] = {&impl.known, NULL};
static const later_module module = {.known = {.size = sizeof(later_module),
                                              .abi_major = ATTN_MODULE_MAJOR,
                                              .abi_minor = ATTN_MODULE_MINOR + 7,
                                              .name = "later_minor",
                                              .version = "1.0",
                                              .license = "Apache-2.0",
                                              .impls = impls}};

FIXTURE_ENTRY(&module.known)
