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

/* Where query row i of the sample stands on the axis of keys. */
int64_t attn_row_position(const attn_call *call, const attn_rows *sample, int64_t i);
/* A row at `position` inside a prefix range of request b sees all of the range: its keys, which hold the
 * position, grow by it. */
void attn_join_ranges(const attn_call *call, int64_t b, int64_t position, int64_t kv_len,
                      attn_interval *keys);

/* An interval that contains those of all rows of the sample. */
attn_interval attn_rows_interval(const attn_call *call, const attn_rows *sample);

#endif
