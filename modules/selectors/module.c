/* module.c: the selectors of this folder as one module. */
#include "selectors.h"

static const attn_sparse *const selectors[] = {&selector_sliding_tile, &selector_radial, &selector_mean_topk,
                                               &selector_mean_mass, NULL};

static const attn_module module = {
    .size = sizeof(attn_module),
    .abi_major = ATTN_MODULE_MAJOR,
    .abi_minor = ATTN_MODULE_MINOR,
    .name = "selectors",
    .version = "1.0",
    .license = "Apache-2.0",
    .sparse = selectors,
};

ATTN_MODULE_EXPORT const attn_module *attn_module_v1(void);

const attn_module *attn_module_v1(void)
{
    return &module;
}
