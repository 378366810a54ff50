/* rows.h: causal, windows, lengths, spans and query ranges, reduced to one interval of keys for each query
 * row. */
#ifndef ATTN_BACKENDS_ROWS_H
#define ATTN_BACKENDS_ROWS_H

#include <attn/module.h>

/* Keys [lo, hi) of the sample; empty when lo >= hi. */
typedef struct attn_interval {
    int64_t lo, hi;
} attn_interval;

/* Keys that the structure of the call lets query row i of the sample see, 0 <= lo, hi <= sample->kv_len.
 * Masks hide keys on top of that. */
attn_interval attn_row_interval(const attn_call *call, const attn_rows *sample, int64_t i);

/* An interval that contains those of all rows of the sample. */
attn_interval attn_rows_interval(const attn_call *call, const attn_rows *sample);

#endif
