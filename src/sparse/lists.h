/* lists.h: inner parts of block maps. */
#ifndef ATTN_SPARSE_LISTS_H
#define ATTN_SPARSE_LISTS_H

#include <attn/module.h>

/* Lengths stay far enough from the end of the number line for sums and products with sizes of blocks. */
#define SPARSE_LENGTH_MOST (INT64_MAX / 4)

/* Lengths and granularity into the number of blocks. */
attn_status sparse_grid(int64_t q_len, int64_t kv_len, int64_t block_q, int64_t block_k,
                        attn_block_lists *lists, attn_error *error);
/* The two tensors of a map, in host memory, whose grid is set. The content is not looked at. */
attn_status sparse_lists_read(const DLTensor *counts, const DLTensor *blocks, attn_block_lists *lists,
                              attn_error *error);

/* Rows (or keys) [first, end) of block i. */
static inline int64_t sparse_block_end(int64_t i, int64_t block, int64_t len)
{
    return len - i * block < block ? len : (i + 1) * block;
}

#endif
