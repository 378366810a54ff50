/* site.h: an attention site as plain numbers, checked once when its layer opens. */
#ifndef ATTN_CORE_SITE_H
#define ATTN_CORE_SITE_H

#include "core/fail.h"

typedef struct attn_site {
    int64_t heads, kv_heads, head_dim, value_head_dim;
    int64_t window_left, window_right;
    double scale, softcap;
    uint64_t needs; /* feature bits: declared, and those that the site itself asks for */
    int32_t causal, alignment;
    uint32_t window;
    attn_dtype dtype; /* 0: not known yet */
    DLDevice device;
} attn_site;

enum { ATTN_HEAD_DIM_MAX = 1024 };

/* Fails with invalid_value or invalid_shape. device_type stays 0 when the caller gave none. */
attn_status attn_site_read(const attn_layer_options *options, attn_site *site, attn_error *error);
/* What is known of every call of this site; sizes that are not known are 0. */
void attn_site_problem(const attn_site *site, attn_problem *problem);

#endif
