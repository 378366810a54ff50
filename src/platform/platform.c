/* platform.c: probing in the order of the rows. */
#include "platform/platform.h"

#include <string.h>

#define X(name, device, probe) bool probe(void);
#include "platform/platforms.def"
#undef X

static const attn_platform rows[] = {
#define X(name, device, probe) {#name, device, probe},
#include "platform/platforms.def"
#undef X
};
enum { ROWS = sizeof rows / sizeof *rows };

const attn_platform *attn_platform_at(size_t index)
{
    return index < ROWS ? &rows[index] : NULL;
}

const attn_platform *attn_platform_named(const char *name)
{
    for (size_t i = 0; i < ROWS; i++)
        if (!strcmp(rows[i].name, name)) return &rows[i];
    return NULL;
}

const attn_platform *attn_platform_detect(void)
{
    for (size_t i = 0; i + 1 < ROWS; i++)
        if (rows[i].probe()) return &rows[i];
    return &rows[ROWS - 1];
}
