/* cache.c: keys and values in the pages of a cache, and the block table that finds them. */
#include "core/problem_parts.h"

#include "core/dtype.h"

#include <inttypes.h>
#include <string.h>

enum { B, S, H, D }; /* axes of k and v; of a cache, B counts pages and S the tokens of a page */

static bool storable(attn_dtype dtype)
{
    return dtype == ATTN_F32 || dtype == ATTN_F16 || dtype == ATTN_BF16 || dtype == ATTN_F8E4M3 ||
           dtype == ATTN_F8E5M2 || dtype == ATTN_I8;
}

static void swap_axes(attn_view *view, int a, int b)
{
    int64_t size = view->shape[a], stride = view->stride[a];
    view->shape[a] = view->shape[b], view->stride[a] = view->stride[b];
    view->shape[b] = size, view->stride[b] = stride;
}

/* Reads pages and puts their axes in the order of NHD. heads or width 0: any. */
static attn_status read_pages(const char *name, const DLTensor *tensor, int32_t layout, int64_t heads,
                              int64_t width, attn_view *view, attn_error *error)
{
    char shape[96];
    ATTN_TRY(attn_view_read(name, tensor, 4, 4, view, error));
    if (!storable(view->dtype))
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE,
                         "%s is %s; a cache stores fp32, fp16, bf16, f8e4m3, f8e5m2 or i8", name,
                         attn_dtype_word(view->dtype));
    attn_view_shape(view, shape, sizeof shape);
    if (layout == ATTN_CACHE_HND) swap_axes(view, S, H);
    if ((heads && view->shape[H] != heads) || (width && view->shape[D] != width) || view->shape[S] < 1)
        return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                         "%s has shape %s in layout %s; it is [blocks, %s] with %" PRId64
                         " kv heads of size %" PRId64 " and at least one token a block",
                         name, shape, layout == ATTN_CACHE_HND ? "HND" : "NHD",
                         layout == ATTN_CACHE_HND ? "heads, block_size, head size"
                                                  : "block_size, heads, head size",
                         heads ? heads : view->shape[H], width ? width : view->shape[D]);
    return ATTN_OK;
}

/* One for all, one a head, or one for each token and head. */
static attn_status read_scale(const char *name, const DLTensor *tensor, int32_t layout,
                              const attn_view *pages, attn_view *view, int32_t *form, int64_t *stride,
                              attn_error *error)
{
    char shape[96];
    *form = ATTN_SCALE_NONE;
    stride[0] = stride[1] = stride[2] = 0;
    if (!tensor) {
        if (pages->dtype != ATTN_I8) return ATTN_OK;
        return attn_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "%s is NULL and the cache stores i8, which means nothing without a scale; pass one for "
            "all, for each head, or for each token and head",
            name);
    }
    ATTN_TRY(attn_view_read(name, tensor, 1, 3, view, error));
    if (attn_dtype_bytes(pages->dtype) != 1)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "%s was given with a cache of %s; scales belong to 8-bit types, leave it NULL", name,
                         attn_dtype_word(pages->dtype));
    if (view->dtype != ATTN_F32)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE, "%s is %s; it is fp32", name,
                         attn_dtype_word(view->dtype));
    attn_view_shape(view, shape, sizeof shape);
    if (view->ndim == 3 && layout == ATTN_CACHE_HND) swap_axes(view, 1, 2);
    if (view->ndim == 1 && view->shape[0] == 1)
        *form = ATTN_SCALE_ALL;
    else if (view->ndim == 1 && view->shape[0] == pages->shape[H])
        *form = ATTN_SCALE_HEAD, stride[2] = view->stride[0];
    else if (view->ndim == 3 && !memcmp(view->shape, pages->shape, 3 * sizeof *view->shape))
        *form = ATTN_SCALE_TOKEN, memcpy(stride, view->stride, 3 * sizeof *stride);
    else
        return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                         "%s has shape %s; it is [1], [%" PRId64
                         "] (heads), or the shape of the pages without "
                         "channels",
                         name, shape, pages->shape[H]);
    return ATTN_OK;
}

attn_status attn_cache_read(const attn_cache *cache, int64_t heads, int64_t width, int64_t value_width,
                            attn_pages *pages, attn_error *error)
{
    attn_cache c;
    memset(pages, 0, sizeof *pages);
    if (!attn_copy_struct(&c, sizeof c, cache, cache->size, offsetof(attn_cache, k_scale)))
        return attn_fail(error, ATTN_KIND_INVALID_STRUCT,
                         "attn_cache.size is %u; it is at least %zu, set it to sizeof(attn_cache)",
                         cache->size, offsetof(attn_cache, k_scale));
    if (!c.k) return attn_fail(error, ATTN_KIND_INVALID_VALUE, "cache.k is NULL; a cache has pages of keys");
    if (c.layout != ATTN_CACHE_NHD && c.layout != ATTN_CACHE_HND)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "cache.layout is %d; it is 0 (NHD) or 1 (HND)",
                         c.layout);
    pages->latent = !c.v;
    if (pages->latent && c.v_scale)
        return attn_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "cache.v_scale was given without cache.v; the values of a latent cache have the scales of "
            "its keys, leave it NULL");
    ATTN_TRY(read_pages("cache.k", c.k, c.layout, heads, width, &pages->k, error));
    ATTN_TRY(read_scale("cache.k_scale", c.k_scale, c.layout, &pages->k, &pages->k_scale, &pages->k_form,
                        pages->k_scale_stride, error));
    if (pages->latent) {
        if (value_width > pages->k.shape[D])
            return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                             "the cache has no v and keys of %" PRId64
                             " channels, of which the first %" PRId64
                             " would be values; pass v or make value_head_dim smaller",
                             pages->k.shape[D], value_width);
        pages->v = pages->k, pages->v_scale = pages->k_scale;
        if (value_width) pages->v.shape[D] = value_width;
        pages->v_form = pages->k_form;
        memcpy(pages->v_scale_stride, pages->k_scale_stride, sizeof pages->v_scale_stride);
        return ATTN_OK;
    }
    ATTN_TRY(read_pages("cache.v", c.v, c.layout, pages->k.shape[H], value_width, &pages->v, error));
    if (pages->v.dtype != pages->k.dtype)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE, "cache.k is %s and cache.v %s; store both alike",
                         attn_dtype_word(pages->k.dtype), attn_dtype_word(pages->v.dtype));
    if (memcmp(pages->v.shape, pages->k.shape, 2 * sizeof *pages->v.shape))
        return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                         "cache.v has %" PRId64 " blocks of %" PRId64 " tokens and cache.k %" PRId64
                         " of %" PRId64 "; one block table finds both, make them equal",
                         pages->v.shape[B], pages->v.shape[S], pages->k.shape[B], pages->k.shape[S]);
    return read_scale("cache.v_scale", c.v_scale, c.layout, &pages->v, &pages->v_scale, &pages->v_form,
                      pages->v_scale_stride, error);
}

/* ---- in a call ---------------------------------------------------------------------------------- */

static attn_status check_alone(const attn_args *a, attn_error *error)
{
    const struct {
        int given;
        const char *name, *why;
    } rules[] = {
        {a->k || a->v, "k or v", "the cache holds the keys and values"},
        {a->cu_seqlens_k != NULL, "cu_seqlens_k", "the lengths of requests come in kv_lengths"},
        {a->block_map != NULL, "block_map", "a list of selected keys thins out a cache"},
        {a->joint_q || a->joint_k || a->joint_v, "joint tensors", "write joint keys into the cache"},
        {a->scores != NULL, "scores", "they are an output of calls over plain tensors"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].given)
            return attn_fail(error, ATTN_KIND_INVALID_VALUE, "%s was given with a cache; %s, leave it NULL",
                             rules[i].name, rules[i].why);
    if (a->block_table && a->kv_lengths) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                     "%s is NULL; a call over a cache needs block_table and kv_lengths",
                     a->block_table ? "kv_lengths" : "block_table");
}

/* The table's rows are checked once the number of requests is known. */
static attn_status read_table(attn_request *r, const attn_pages *pages, attn_error *error)
{
    attn_problem *p = &r->problem;
    attn_view *table = &r->table;
    ATTN_TRY(attn_read_tensor(r, "block_table", r->args.block_table, 2, 2, ATTN_INPUT, table, error));
    if (table->dtype != ATTN_I32 && table->dtype != ATTN_I64)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE, "block_table is %s; it is i32 or i64",
                         attn_dtype_word(table->dtype));
    static const int64_t none;
    r->call.block_table = (attn_table){.data = table->data ? (const void *)table->data : &none,
                                       .stride = {table->stride[0], 0, table->stride[1]},
                                       .bits = table->dtype == ATTN_I32 ? 32 : 64};
    p->block_size = pages->k.shape[S];
    r->blocks = pages->k.shape[B];
    if (!__builtin_mul_overflow(table->shape[1], p->block_size, &p->kv_len)) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                     "block_table has %" PRId64 " blocks of %" PRId64 " tokens, more than 64 bits count",
                     table->shape[1], p->block_size);
}

attn_status attn_read_cache(attn_request *r, attn_view *k, attn_view *v, attn_error *error)
{
    attn_pages pages;
    const attn_site *site = r->site;
    ATTN_TRY(check_alone(&r->args, error));
    ATTN_TRY(
        attn_cache_read(r->args.cache, site->kv_heads, site->head_dim, site->value_head_dim, &pages, error));
    const attn_view *all[] = {&pages.k, pages.latent ? NULL : &pages.v, pages.k_form ? &pages.k_scale : NULL,
                              pages.v_form && !pages.latent ? &pages.v_scale : NULL};
    for (int i = 0; i < 4; i++)
        if (all[i]) ATTN_TRY(attn_note_tensor(r, all[i], ATTN_INPUT, error));
    *k = pages.k, *v = pages.v;
    r->pages = pages;
    return ATTN_OK;
}

/* After the problem's other fields are known. */
attn_status attn_fill_cache(attn_request *r, attn_error *error)
{
    attn_problem *p = &r->problem;
    const attn_pages *pages = &r->pages;
    p->features |= ATTN_FEATURE(PAGED);
    if (pages->k.dtype != p->dtype) p->features |= ATTN_FEATURE(CACHE_DTYPE);
    p->kv_dtype = pages->k.dtype;
    p->latent = pages->latent;
    p->k_scale_form = pages->k_form, p->v_scale_form = pages->v_form;
    memcpy(p->k_scale_stride, pages->k_scale_stride, sizeof p->k_scale_stride);
    memcpy(p->v_scale_stride, pages->v_scale_stride, sizeof p->v_scale_stride);
    if (pages->k_form) r->call.k_scale = (const float *)(const void *)pages->k_scale.data;
    if (pages->v_form) r->call.v_scale = (const float *)(const void *)pages->v_scale.data;
    return read_table(r, pages, error);
}

attn_status attn_check_table(const attn_request *r, attn_error *error)
{
    const attn_problem *p = &r->problem;
    ATTN_TRY(attn_check_size(&r->table, 0, p->batch, "the number of requests", error));
    if (p->device_type != kDLCPU) return ATTN_OK;
    for (int64_t b = 0; b < p->batch; b++) {
        int64_t keys = attn_index_at(&r->call.kv_lengths, b);
        for (int64_t n = 0; n * p->block_size < keys; n++) {
            int64_t page = attn_table_at(&r->call.block_table, b, 0, n);
            if (page < 0 || page >= r->blocks)
                return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                                 "block_table[%" PRId64 "][%" PRId64 "] is %" PRId64
                                 " and the cache has %" PRId64 " blocks; the %" PRId64
                                 " keys of request %" PRId64 " need an entry from 0 on below "
                                 "that",
                                 b, n, page, r->blocks, keys, b);
        }
    }
    return ATTN_OK;
}
