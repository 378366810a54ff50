/* cpu.c: the platform that is always there. */
#include <stdbool.h>

bool attn_probe_cpu(void);

bool attn_probe_cpu(void)
{
    return true;
}
