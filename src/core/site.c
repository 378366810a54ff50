/* site.c: an attention site as plain numbers, checked once when its layer opens. */
#include "core/site.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static attn_status check_heads(const attn_layer_options *o, attn_site *s, attn_error *error)
{
    s->heads = o->heads;
    s->kv_heads = o->kv_heads ? o->kv_heads : o->heads;
    if (s->heads < 0 || s->kv_heads < 0)
        return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                         "the layer has %" PRId64 " query heads and %" PRId64 " kv heads; both are 0 or more",
                         s->heads, s->kv_heads);
    if (s->kv_heads && s->heads % s->kv_heads)
        return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                         "%" PRId64 " query heads do not divide over %" PRId64
                         " kv heads; query heads must be a multiple of kv heads",
                         s->heads, s->kv_heads);
    s->head_dim = o->head_dim;
    s->value_head_dim = o->value_head_dim ? o->value_head_dim : o->head_dim;
    if (s->head_dim < 1 || s->head_dim > ATTN_HEAD_DIM_MAX || s->value_head_dim < 1 ||
        s->value_head_dim > ATTN_HEAD_DIM_MAX)
        return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                         "the layer has head_dim %" PRId64 " and value_head_dim %" PRId64
                         "; both are 1 to %d",
                         s->head_dim, s->value_head_dim, ATTN_HEAD_DIM_MAX);
    return ATTN_OK;
}

static attn_status check_numbers(const attn_layer_options *o, attn_site *s, attn_error *error)
{
    if (!isfinite(o->scale))
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "scale is %g; it must be finite (0 means 1/sqrt(head_dim))", o->scale);
    if (!isfinite(o->softcap) || o->softcap < 0)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "softcap is %g; it must be finite and positive, or 0 for none", o->softcap);
    s->scale = o->scale != 0 ? o->scale : 1 / sqrt((double)o->head_dim);
    s->softcap = o->softcap;
    return ATTN_OK;
}

static attn_status check_structure(const attn_layer_options *o, attn_site *s, attn_error *error)
{
    if (o->alignment != ATTN_BOTTOM_RIGHT && o->alignment != ATTN_TOP_LEFT)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "alignment is %d; it is 0 (bottom-right) or 1 (top-left)", o->alignment);
    if (o->window & ~(ATTN_WINDOW_LEFT | ATTN_WINDOW_RIGHT))
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "window has the bits 0x%x; it is ATTN_WINDOW_LEFT, ATTN_WINDOW_RIGHT, both or 0",
                         o->window);
    if ((o->window & ATTN_WINDOW_LEFT && o->window_left < 0) ||
        (o->window & ATTN_WINDOW_RIGHT && o->window_right < 0))
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "the window is %" PRId64 " left and %" PRId64
                         " right; a bounded side is 0 or more keys away (leave the bit out for no bound)",
                         o->window_left, o->window_right);
    s->causal = o->causal != 0;
    s->alignment = o->alignment;
    s->window = o->window;
    if (s->window & ATTN_WINDOW_LEFT) s->window_left = o->window_left;
    if (s->window & ATTN_WINDOW_RIGHT) s->window_right = o->window_right;
    return ATTN_OK;
}

static uint64_t own_needs(const attn_site *s)
{
    bool placed = s->causal || s->window;
    uint64_t needs = 0;
    if (s->causal) needs |= ATTN_FEATURE(CAUSAL);
    if (placed && s->alignment == ATTN_TOP_LEFT) needs |= ATTN_FEATURE(TOP_LEFT);
    if (s->window) needs |= ATTN_FEATURE(WINDOW);
    if (s->softcap > 0) needs |= ATTN_FEATURE(SOFTCAP);
    if (s->heads != s->kv_heads) needs |= ATTN_FEATURE(GROUPED);
    if (s->head_dim != s->value_head_dim) needs |= ATTN_FEATURE(VALUE_DIM);
    return needs;
}

attn_status attn_site_read(const attn_layer_options *options, attn_site *site, attn_error *error)
{
    memset(site, 0, sizeof *site);
    ATTN_TRY(check_heads(options, site, error));
    ATTN_TRY(check_numbers(options, site, error));
    ATTN_TRY(check_structure(options, site, error));
    if (options->dtype && !attn_dtype_bytes(options->dtype))
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "dtype is %d; it is a value of ATTN_DTYPE_LIST, or 0 while it is not known",
                         options->dtype);
    if (options->flags & ~ATTN_LAYER_BATCH_INVARIANT)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "attn_layer_options.flags is 0x%x; the only flag is "
                         "ATTN_LAYER_BATCH_INVARIANT",
                         options->flags);
    site->dtype = options->dtype;
    site->device = options->device;
    site->needs = options->needs | own_needs(site);
    if (options->flags & ATTN_LAYER_BATCH_INVARIANT) site->needs |= ATTN_FEATURE(BATCH_INVARIANT);
    return ATTN_OK;
}

void attn_site_problem(const attn_site *site, attn_problem *p)
{
    memset(p, 0, sizeof *p);
    p->size = sizeof *p;
    p->dtype = p->kv_dtype = p->out_dtype = site->dtype;
    p->causal = site->causal;
    p->alignment = site->alignment;
    p->window = site->window;
    p->device_type = (int32_t)site->device.device_type;
    p->device_id = site->device.device_id;
    p->features = site->needs;
    p->heads = site->heads;
    p->kv_heads = site->kv_heads;
    p->head_dim = site->head_dim;
    p->value_head_dim = site->value_head_dim;
    p->window_left = site->window_left;
    p->window_right = site->window_right;
    p->scale = site->scale;
    p->softcap = site->softcap;
}
