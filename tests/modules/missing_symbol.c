/* missing_symbol.c: a shared object without the entry point. */
#include <attn/module.h>

ATTN_MODULE_EXPORT int attn_module_unrelated(void);
int attn_module_unrelated(void)
{
    return 1;
}
