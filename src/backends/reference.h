/* reference.h: inner parts of the reference implementation. */
#ifndef ATTN_BACKENDS_REFERENCE_H
#define ATTN_BACKENDS_REFERENCE_H

#include <attn/module.h>

/* Elements of f32, f16, bf16, f64 and the 8-bit types of caches as doubles; strides in elements, 0 repeats
 * one element. */
void reference_load(attn_dtype dtype, const void *from, int64_t from_stride, int64_t n, double *to,
                    int64_t to_stride);
/* Rounds once, to nearest even. */
void reference_store(attn_dtype dtype, void *to, int64_t to_stride, int64_t n, const double *from);

/* One query row: all that decides which keys it attends to. */
typedef struct reference_row {
    const attn_call *call;
    int64_t kv_len;          /* valid keys of the sample */
    int64_t position;        /* of the query, on the axis of keys */
    int64_t span_end;        /* of the span the position lies in; 0: none */
    int structured;          /* causal, by itself or through spans */
    const char *mask;        /* of this row, key 0; NULL: none */
    const uint8_t *key_mask; /* of this sample, key 0; NULL: none */
    const int32_t *blocks;   /* key blocks of the row's query block, ascending; NULL: all */
    int64_t block_count;
    const uint8_t *tree; /* of this row; NULL: none */
    int64_t tree_start;  /* key that stands in the tree's first column */
    double slope;        /* by distance; 0: none */
    int64_t b, list;     /* sample; row of the lists of selected keys */
} reference_row;

/* Row i of sample b, whose rows are `rows`, in head h. */
reference_row reference_row_at(const attn_call *call, const attn_rows *rows, int64_t b, int64_t h, int64_t i);

/* For keys [first, first + n), at most 64: -infinity where the row does not attend, else what its mask adds
 * to the score (0 without an additive mask). Returns how many keys are kept. */
int64_t reference_bias(const reference_row *row, int64_t first, int64_t n, double *bias);

extern const attn_impl attn_reference_impl;

#endif
