/* lists.c: block maps made plain and checked. */
#include "sparse/lists.h"

#include <inttypes.h>
#include <string.h>

/* ---- from tensors to lists ------------------------------------------------------------------------ */

static attn_status check_tensor(const char *name, const DLTensor *t, int ndim, attn_error *error)
{
    if (!t || !t->shape || t->ndim != ndim)
        return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                         "%s has %d axes; a block map needs %d: [batch or 1, heads or 1, query blocks%s]",
                         name, t && t->shape ? (int)t->ndim : 0, ndim, ndim == 4 ? ", entries" : "");
    if (t->dtype.code != kDLInt || t->dtype.bits != 32 || t->dtype.lanes != 1)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE, "%s is not i32; lists of blocks are", name);
    return ATTN_OK;
}

/* Strides of the first axes, 0 along those of size 1. Sizes and reach are checked. */
static attn_status read_strides(const char *name, const DLTensor *t, int64_t *stride, attn_error *error)
{
    int64_t dense = 1, reach = 0, far;
    for (int i = t->ndim - 1; i >= 0; i--) {
        int64_t size = t->shape[i], step = t->strides ? t->strides[i] : dense;
        if (size < 0 || __builtin_mul_overflow(dense, size ? size : 1, &dense))
            return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                             "%s has size %" PRId64 " on axis %d; sizes are 0 or more and fit 64 bits", name,
                             size, i);
        if (size <= 1) step = 0;
        if (step < 0 || __builtin_mul_overflow(step, size, &far) ||
            __builtin_add_overflow(reach, far, &reach) || reach > INT64_MAX / 4)
            return attn_fail(error, ATTN_KIND_INVALID_LAYOUT,
                             "%s has stride %" PRId64
                             " on axis %d; it is 0 or more and reaches no further than "
                             "memory",
                             name, step, i);
        if (i < 3)
            stride[i] = step;
        else if (size > 1 && step != 1)
            return attn_fail(error, ATTN_KIND_INVALID_LAYOUT,
                             "%s has stride %" PRId64
                             " from entry to entry; the entries of a list are adjacent",
                             name, step);
    }
    if (!t->data && dense > 0 && t->shape[0] && t->shape[1] && t->shape[2] && (t->ndim < 4 || t->shape[3]))
        return attn_fail(error, ATTN_KIND_INVALID_LAYOUT,
                         "%s has elements but its data pointer is NULL; pass its memory", name);
    if (((uintptr_t)t->data + t->byte_offset) % sizeof(int32_t))
        return attn_fail(error, ATTN_KIND_INVALID_LAYOUT, "%s starts at an address that is no multiple of 4",
                         name);
    return ATTN_OK;
}

static const int32_t *data_of(const DLTensor *t)
{
    return (const int32_t *)(const void *)((const char *)t->data + (t->data ? t->byte_offset : 0));
}

attn_status sparse_grid(int64_t q_len, int64_t kv_len, int64_t block_q, int64_t block_k,
                        attn_block_lists *lists, attn_error *error)
{
    if (block_q < 1 || block_k < 1 || block_q > SPARSE_LENGTH_MOST || block_k > SPARSE_LENGTH_MOST)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "the block map has blocks of %" PRId64 " queries and %" PRId64
                         " keys; both are 1 or more, such as 64 or 128",
                         block_q, block_k);
    if (q_len < 0 || kv_len < 0 || q_len > SPARSE_LENGTH_MOST || kv_len > SPARSE_LENGTH_MOST)
        return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                         "the block map is for %" PRId64 " queries and %" PRId64
                         " keys; both are 0 to %" PRId64,
                         q_len, kv_len, SPARSE_LENGTH_MOST);
    lists->q_len = q_len, lists->kv_len = kv_len;
    lists->block_q = block_q, lists->block_k = block_k;
    lists->q_blocks = (q_len + block_q - 1) / block_q;
    lists->kv_blocks = (kv_len + block_k - 1) / block_k;
    if (lists->kv_blocks <= INT32_MAX) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                     "%" PRId64 " keys in blocks of %" PRId64
                     " are more blocks than 32 bits number; take larger "
                     "blocks",
                     kv_len, block_k);
}

/* Both tensors have one list for each sample, head and query block. */
static attn_status check_axes(const attn_block_lists *l, const char *name, const DLTensor *t,
                              attn_error *error)
{
    if (t->shape[0] != l->batch || t->shape[1] != l->heads)
        return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                         "%s is for %" PRId64 " samples and %" PRId64
                         " heads, the other tensor of the block map for "
                         "%" PRId64 " and %" PRId64 "; make them equal",
                         name, t->shape[0], t->shape[1], l->batch, l->heads);
    if (t->shape[2] == l->q_blocks) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                     "%s has %" PRId64 " query blocks but %" PRId64 " queries in blocks of %" PRId64
                     " make %" PRId64 " (the map says blocks of %" PRId64 " queries x %" PRId64
                     " keys); build or convert the map for the granularity that it says",
                     name, t->shape[2], l->q_len, l->block_q, l->q_blocks, l->block_q, l->block_k);
}

attn_status sparse_lists_read(const DLTensor *counts, const DLTensor *blocks, attn_block_lists *lists,
                              attn_error *error)
{
    attn_status status;
    if ((status = check_tensor("block_map.counts", counts, 3, error)) ||
        (status = check_tensor("block_map.blocks", blocks, 4, error)) ||
        (status = read_strides("block_map.counts", counts, lists->count_stride, error)) ||
        (status = read_strides("block_map.blocks", blocks, lists->block_stride, error)))
        return status;
    lists->batch = counts->shape[0];
    lists->heads = counts->shape[1];
    lists->capacity = blocks->shape[3];
    lists->counts = data_of(counts);
    lists->blocks = data_of(blocks);
    if ((status = check_axes(lists, "block_map.counts", counts, error))) return status;
    return check_axes(lists, "block_map.blocks", blocks, error);
}

attn_status attn_block_map_read(const attn_block_map *map, attn_block_lists *lists, attn_error *error)
{
    memset(lists, 0, sizeof *lists);
    if (!map || map->size < sizeof *map)
        return attn_fail(error, ATTN_KIND_INVALID_STRUCT,
                         "%s; set attn_block_map.size to sizeof(attn_block_map)",
                         map ? "the block map is too short" : "the block map is NULL");
    if (map->flags)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "attn_block_map.flags is 0x%x; this version knows no flag, set it to 0", map->flags);
    attn_status status = sparse_grid(map->q_len, map->kv_len, map->block_q, map->block_k, lists, error);
    return status ? status : sparse_lists_read(map->counts, map->blocks, lists, error);
}

static attn_status check_host(const char *name, const DLTensor *t, attn_error *error)
{
    if (t->device.device_type == kDLCPU || t->device.device_type == kDLCUDAHost) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_DEVICE_MISMATCH,
                     "%s lives on DLPack device type %d; only lists in host memory can be read here", name,
                     (int)t->device.device_type);
}

attn_status attn_block_map_lists(const attn_block_map *map, attn_block_lists *lists, attn_error *error)
{
    attn_status status;
    if ((status = attn_block_map_read(map, lists, error)) ||
        (status = check_host("block_map.counts", map->counts, error)) ||
        (status = check_host("block_map.blocks", map->blocks, error)))
        return status;
    return attn_block_lists_check(lists, error);
}

/* ---- what is in them ------------------------------------------------------------------------------ */

static attn_status check_list(const attn_block_lists *l, int64_t b, int64_t h, int64_t i, attn_error *error)
{
    int64_t count;
    const int32_t *list = attn_block_list(l, b, h, i, &count);
    if (count < 0 || count > l->capacity || count > l->kv_blocks)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "block map, sample %" PRId64 ", head %" PRId64 ", query block %" PRId64
                         ": the list has %" PRId64 " key blocks; there are %" PRId64 " (of %" PRId64
                         " keys) and room for %" PRId64,
                         b, h, i, count, l->kv_blocks, l->block_k, l->capacity);
    for (int64_t n = 0, last = -1; n < count; last = list[n++]) {
        if (list[n] > last && list[n] < l->kv_blocks) continue;
        const char *what = list[n] < 0 || list[n] >= l->kv_blocks ? "is out of range"
                           : list[n] == last                      ? "stands there twice"
                                                                  : "is out of order";
        return attn_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "block map, sample %" PRId64 ", head %" PRId64 ", query block %" PRId64 ": entry %" PRId64
            " is key block %d, which %s; lists ascend, hold each block once, and the blocks are 0 to "
            "%" PRId64 " (%" PRId64 " keys in blocks of %" PRId64 ")",
            b, h, i, n, (int)list[n], what, l->kv_blocks - 1, l->kv_len, l->block_k);
    }
    return ATTN_OK;
}

attn_status attn_block_lists_check(const attn_block_lists *lists, attn_error *error)
{
    for (int64_t b = 0; b < lists->batch; b++)
        for (int64_t h = 0; h < lists->heads; h++)
            for (int64_t i = 0; i < lists->q_blocks; i++) {
                attn_status status = check_list(lists, b, h, i, error);
                if (status) return status;
            }
    return ATTN_OK;
}
