/* short_header.c: a module header that ends before its version. What follows must not be read. */
#include <attn/module.h>

static const uint32_t header = 4;

ATTN_MODULE_EXPORT const attn_module *attn_module_v1(void);
const attn_module *attn_module_v1(void)
{
    return (const attn_module *)(const void *)&header;
}
