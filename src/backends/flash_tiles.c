/* flash_tiles.c: the blocks that a plan of cpu_flash uses. */
#include "backends/flash.h"

static const struct tile_row {
    int64_t width, cache;
    flash_caps caps;
} rows[] = {
#define X(width, cache, rows, keys) {width, cache, {rows, keys}},
#include "backends/flash_tiles.def"
#undef X
};
enum { ROWS = sizeof rows / sizeof *rows };

/* The packed form has whole panels, and with fewer than two of them the merging of blocks would dominate. */
static int64_t whole_panels(int64_t keys, int64_t panel)
{
    keys = keys / panel * panel;
    return keys < 2 * panel ? 2 * panel : keys;
}

flash_caps flash_caps_of(int64_t width, int64_t cache_kib, int64_t panel)
{
    int i = 0;
    while (i + 1 < ROWS && (width > rows[i].width || cache_kib > rows[i].cache)) i++;
    return (flash_caps){rows[i].caps.rows, whole_panels(rows[i].caps.keys, panel)};
}
