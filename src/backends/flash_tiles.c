/* flash_tiles.c: the blocks that a plan of cpu_flash uses. */
#include "backends/flash.h"

#include <unistd.h>

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

/* ---- what a profile says ------------------------------------------------------------------------ */

/* Rows and floats of a block that scratch has room for at most. */
enum { ROWS_MOST = 96, ROW_FLOATS_MOST = 49152, BLOCK_FLOATS_MOST = 262144 };

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

flash_caps flash_caps_legal(flash_caps caps, const attn_problem *p, int64_t panel)
{
    int64_t d = p->head_dim, dv = p->value_head_dim, wide = d > dv ? d : dv;
    if (wide > 0) caps.rows = least(caps.rows, ROW_FLOATS_MOST / wide);
    if (d + dv > 0) caps.keys = least(caps.keys, BLOCK_FLOATS_MOST / (d + dv));
    caps.rows = least(caps.rows, ROWS_MOST);
    caps.keys = whole_panels(least(caps.keys, ATTN_KEYS_MAX), panel);
    /* The rows of a unit with few of them make one block. */
    if (caps.rows < FLASH_ROWS_FEW) caps.rows = FLASH_ROWS_FEW;
    return caps;
}

/* Asked of the system once; 1 MiB where it does not say. */
static int64_t machine_cache_kib(void)
{
    static _Atomic int64_t known;
    int64_t kib = atomic_load_explicit(&known, memory_order_relaxed);
    if (kib > 0) return kib;
    long bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    kib = bytes >= 1024 ? bytes / 1024 : FLASH_CACHE_KIB;
    atomic_store_explicit(&known, kib, memory_order_relaxed);
    return kib;
}

const char *flash_isa(flash_plan *plan, const attn_host *host, const attn_problem *p)
{
    int64_t set;
    if (!attn_host_tuned(host, p, "isa", &set)) return host->isa;
    plan->tuned = 1;
    return attn_isa_at((size_t)set, NULL);
}

void flash_choose_caps(flash_plan *plan, const attn_host *host, const attn_problem *p)
{
    int64_t panel = plan->kernels.panel, by_cache = 0;
    attn_host_tuned(host, p, "cache", &by_cache);
    flash_caps caps = flash_caps_of(p->head_dim + p->value_head_dim,
                                    by_cache ? machine_cache_kib() : FLASH_CACHE_KIB, panel);
    int said = attn_host_tuned(host, p, "bq", &caps.rows);
    said |= attn_host_tuned(host, p, "bk", &caps.keys);
    if (said) caps = flash_caps_legal(caps, p, panel);
    plan->row_cap = caps.rows;
    plan->key_cap = caps.keys;
}
