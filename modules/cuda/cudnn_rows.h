/* cudnn_rows.h: which rows have nothing to attend to. cuDNN gives NaN for them where a bias hides all keys;
 * the law says 0 and an lse of -inf. Plain arithmetic, the same on the host, where it is tested. */
#ifndef ATTN_CUDNN_ROWS_H
#define ATTN_CUDNN_ROWS_H

#include <stdint.h>

#ifdef __CUDACC__
#define ATTN_BOTH __host__ __device__
#else
#define ATTN_BOTH
#endif

/* first: the first key that the bias lets the row see, kv_len when there is none; 0 without a bias. length:
 * valid keys of the sample. corner: the causal diagonal ends at the last valid key. Keys that the bias lets
 * through come no earlier than the first, so a row is empty when even that one is beyond what lengths and
 * order allow. */
static inline ATTN_BOTH int attn_cudnn_row_empty(int64_t row, int64_t q_len, int64_t first, int64_t length,
                                                 int causal, int corner)
{
    int64_t end = length;
    if (causal) {
        int64_t position = row + (corner ? length - q_len : 0) + 1;
        if (position < end) end = position;
    }
    return first >= end;
}

#endif
