/* cc.c: ranges of compute capabilities as the tables write them. */
#include "registry/cc.h"

#include <stdlib.h>
#include <string.h>

/* "9.x" or "9.0" at p, as its lowest and its highest; minors have one digit. */
static const char *read_end(const char *p, int32_t *low, int32_t *high)
{
    char *after;
    int32_t major = (int32_t)strtol(p, &after, 10) * 10;
    after += *after == '.';
    bool every = *after == 'x';
    int32_t minor = *after >= '0' && *after <= '9' ? *after - '0' : 0;
    *low = major + minor;
    *high = every ? major + 9 : major + minor;
    return after + (*after != 0);
}

bool attn_cc_within(const char *range, const attn_facts *f)
{
    int32_t low, high, last, arch = f->major * 10 + f->minor;
    if (!strcmp(range, "any")) return true;
    if (!strcmp(range, "n/a") || !f->has_capability) return false;
    bool open = !strncmp(range, ">=", 2);
    const char *p = read_end(range + 2 * open, &low, &high);
    if (*p == '-') read_end(p + 1, &last, &high);
    return arch >= low && (open || arch <= high);
}
