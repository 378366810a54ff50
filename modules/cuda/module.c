/* module.c: what the module offers. It loads without a driver; devices are asked when a layer opens. */
#include "impls.h"

static const attn_impl *const impls[] = {&attn_cuda_flash_sm90, &attn_cuda_flash, &attn_cuda_reference,
                                         &attn_cuda_cudnn, NULL};

static const attn_device *const devices[] = {&attn_cuda_device, NULL};

static const attn_module module = {
    .size = sizeof(attn_module),
    .abi_major = ATTN_MODULE_MAJOR,
    .abi_minor = ATTN_MODULE_MINOR,
    .name = "cuda",
    .version = ATTN_CUDA_VERSION,
    .license = "Apache-2.0",
    .impls = impls,
    .devices = devices,
};

ATTN_MODULE_EXPORT const attn_module *attn_module_v1(void);

const attn_module *attn_module_v1(void)
{
    return &module;
}
