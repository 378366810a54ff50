/* flash_pack.c: copies one block of K and V into the packed form and looks at what hides its keys for all
 * rows. */
#include "backends/flash.h"

/* Up to two masks that hold for every row and head of a sample: key_mask, and a keep mask that is broadcast
 * over heads and queries. */
typedef struct key_masks {
    int count;
    const uint8_t *keep[2];
    int64_t stride[2];
} key_masks;

static key_masks masks_of(const attn_call *call, const flash_unit *unit)
{
    const attn_problem *p = call->problem;
    key_masks m = {0};
    if (call->key_mask) {
        m.stride[0] = p->key_mask_stride[1];
        m.keep[m.count++] =
            call->key_mask + unit->batch * p->key_mask_stride[0] + unit->rows.k0 * m.stride[0];
    }
    if (flash_mask_of_keys(p)) {
        int64_t stride = m.stride[m.count] = p->mask_stride[3];
        m.keep[m.count++] =
            (const uint8_t *)call->mask + unit->batch * p->mask_stride[0] + unit->rows.k0 * stride;
    }
    return m;
}

static int kept(const key_masks *m, int64_t key)
{
    for (int i = 0; i < m->count; i++) {
        if (!m->keep[i][key * m->stride[i]]) return 0;
    }
    return 1;
}

/* Keys after the last visible one are cut off, so that a mask that is really a length costs nothing. What is
 * hidden before it remains a mask. */
static void look(const key_masks *m, int64_t first, flash_block *block)
{
    int64_t visible = 0, last = 0;
    if (m->count == 0) return;
    for (int64_t j = 0; j < block->keys; j++) {
        if (!kept(m, first + j)) continue;
        visible++;
        last = j + 1;
    }
    block->keys = (int32_t)last;
    block->masked = visible < last;
}

void flash_key_keep(const flash_run *run, const flash_unit *unit, int64_t first, int64_t n, uint8_t *keep)
{
    key_masks m = masks_of(run->call, unit);
    for (int64_t j = 0; j < n; j++) keep[j] = (uint8_t)kept(&m, first + j);
}

flash_block flash_see_block(const flash_run *run, const flash_unit *unit, int64_t index)
{
    flash_block block = {0};
    attn_interval keys = flash_block_keys(run, unit, index);
    int64_t first = keys.lo, end = keys.hi < unit->seen.hi ? keys.hi : unit->seen.hi;
    if (end <= first || end <= unit->seen.lo) return block;
    block.keys = (int32_t)(end - first);
    key_masks masks = masks_of(run->call, unit);
    look(&masks, first, &block);
    return block;
}

attn_interval flash_block_keys(const flash_run *run, const flash_unit *unit, int64_t index)
{
    const flash_tiles *t = &unit->tiles;
    if (!t->key_parts) return (attn_interval){index * t->keys, (index + 1) * t->keys};
    int64_t size = run->call->problem->block_k, block = index / t->key_parts;
    const int64_t *starts = run->extra.key_starts;
    attn_interval keys = {starts ? starts[block] : block * size,
                          starts ? starts[block + 1] : (block + 1) * size};
    keys.lo += index % t->key_parts * t->keys;
    if (keys.lo + t->keys < keys.hi) keys.hi = keys.lo + t->keys;
    return keys;
}

static flash_block pack_block(const flash_run *run, const flash_unit *unit, int64_t index, void *keys,
                              void *values, char *scratch)
{
    const attn_kernels *kernels = &run->plan->kernels;
    const attn_problem *p = run->call->problem;
    flash_block block = flash_see_block(run, unit, index);
    if (block.keys == 0) return block;
    float *turn = (float *)(void *)(scratch + run->plan->layout.turn);
    int64_t first = flash_block_keys(run, unit, index).lo;
    if (run->plan->gathers) {
        block.broken = (uint8_t)flash_pack_gathered(run, unit, first, block.keys, keys, values, scratch);
        return block;
    }
    kernels->pack_keys(keys, flash_kv_row(unit, run->call->k, p->k_stride, first, p->dtype),
                       (int32_t)p->dtype, p->k_stride[1], p->k_stride[3], block.keys, p->head_dim, turn);
    block.broken = (uint8_t)kernels->pack_values(
        values, flash_kv_row(unit, run->call->v, p->v_stride, first, p->dtype), (int32_t)p->dtype,
        p->v_stride[1], p->v_stride[3], block.keys, block.keys, p->value_head_dim, turn);
    return block;
}

void flash_pack(flash_run *run, const flash_item *item, char *slot, char *scratch)
{
    const flash_layout *l = &run->plan->layout;
    const flash_unit *unit = &item->unit;
    int64_t step = flash_pack_step(run, unit), n = item->index * step, end = n + step;
    if (end > unit->tiles.key_blocks) end = unit->tiles.key_blocks;
    for (; n < end; n++) {
        flash_block *block = (flash_block *)(void *)(slot + l->blocks) + n;
        *block = (flash_block){0};
        if (!flash_block_used(run, unit, n)) continue;
        *block = pack_block(run, unit, n, slot + l->keys + flash_key_bytes(run, n * unit->tiles.keys),
                            slot + l->values + flash_value_bytes(run, n * unit->tiles.keys), scratch);
    }
}
