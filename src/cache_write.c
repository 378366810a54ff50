/* cache_write.c: new keys and values go into the pages of a cache. */
#include "context.h"

#include "core/dtype.h"
#include "core/problem_parts.h"
#include "kernels/eight.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { T, HEAD, WIDTH };        /* axes of the rows */
enum { PAGE, TOKEN, PH, PC };   /* axes of pages */
enum { CHUNK = 256 };           /* channels converted at a time */
#define PARALLEL_ELEMENTS 65536 /* fewer are not worth a second thread */

/* What goes into one tensor of pages. */
typedef struct side {
    const attn_view *rows, *rest; /* rest: the last channels, NULL for none */
    const attn_view *pages;
    float *scale; /* NULL: none */
    int32_t form;
    const int64_t *scale_stride;
} side;

typedef struct writer {
    side sides[2];
    int count;
    attn_index slots;
    int64_t block_size;
} writer;

/* ---- reading ------------------------------------------------------------------------------------ */

static attn_status read_rows(const char *name, const DLTensor *tensor, int64_t tokens, const attn_view *pages,
                             attn_view *view, attn_error *error)
{
    if (!tensor)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "%s is NULL; the cache has pages for it", name);
    ATTN_TRY(attn_view_read(name, tensor, 3, 3, view, error));
    if (view->dtype != ATTN_F32 && view->dtype != ATTN_F16 && view->dtype != ATTN_BF16)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE, "%s is %s; new rows are fp32, fp16 or bf16", name,
                         attn_dtype_word(view->dtype));
    ATTN_TRY(attn_check_size(view, T, tokens, "the number of slots", error));
    return attn_check_size(view, HEAD, pages->shape[PH], "the number of heads of the cache", error);
}

static attn_status read_slots(const DLTensor *tensor, const attn_view *pages, attn_index *slots,
                              attn_error *error)
{
    attn_view view;
    static const int64_t none;
    if (!tensor)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "slots is NULL; each token needs its place in the cache");
    ATTN_TRY(attn_view_read("slots", tensor, 1, 1, &view, error));
    if (view.dtype != ATTN_I32 && view.dtype != ATTN_I64)
        return attn_fail(error, ATTN_KIND_INVALID_DTYPE, "slots is %s; it is i32 or i64",
                         attn_dtype_word(view.dtype));
    if (view.device.device_type != kDLCPU)
        return attn_fail(error, ATTN_KIND_DEVICE_MISMATCH,
                         "slots lives on DLPack device type %d; a cache is written in host memory",
                         (int)view.device.device_type);
    *slots = (attn_index){.data = view.data ? (const void *)view.data : &none,
                          .stride = view.stride[0],
                          .count = view.shape[0],
                          .bits = view.dtype == ATTN_I32 ? 32 : 64};
    for (int64_t t = 0; t < slots->count; t++) {
        int64_t slot = attn_index_at(slots, t);
        if (slot / pages->shape[TOKEN] >= pages->shape[PAGE])
            return attn_fail(
                error, ATTN_KIND_INVALID_VALUE,
                "slots[%" PRId64 "] is %" PRId64 "; the cache has %" PRId64 " blocks of %" PRId64
                " tokens, a slot is below their product (or negative, for a token that is not stored)",
                t, slot, pages->shape[PAGE], pages->shape[TOKEN]);
    }
    return ATTN_OK;
}

static attn_status check_widths(const side *s, attn_error *error)
{
    int64_t width = s->rows->shape[WIDTH] + (s->rest ? s->rest->shape[WIDTH] : 0);
    if (width == s->pages->shape[PC]) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                     "%s%s has %" PRId64 " channels and %s %" PRId64 "; make them equal", s->rows->name,
                     s->rest ? " with k_rest" : "", width, s->pages->name, s->pages->shape[PC]);
}

/* Outputs: pages, and scales that are computed here. */
static attn_status check_memory(const side *s, const attn_view *scale, attn_error *error)
{
    const attn_view *all[] = {s->rows, s->rest, s->pages, s->form ? scale : NULL};
    for (int i = 0; i < 4; i++)
        if (all[i] && all[i]->device.device_type != kDLCPU)
            return attn_fail(error, ATTN_KIND_DEVICE_MISMATCH,
                             "%s lives on DLPack device type %d; a cache is written in host memory",
                             all[i]->name, (int)all[i]->device.device_type);
    ATTN_TRY(attn_view_writable(s->pages, error));
    if (s->form == ATTN_SCALE_TOKEN) ATTN_TRY(attn_view_writable(scale, error));
    for (int i = 0; i < 2; i++)
        if (all[i] && attn_views_overlap(s->pages, all[i]))
            return attn_fail(error, ATTN_KIND_INVALID_LAYOUT,
                             "%s overlaps %s in memory; give the new rows memory of their own",
                             s->pages->name, all[i]->name);
    return ATTN_OK;
}

/* ---- writing ------------------------------------------------------------------------------------ */

static void load(const attn_view *rows, int64_t t, int64_t h, int64_t first, int64_t n, float *to)
{
    int64_t step = rows->stride[WIDTH];
    const char *from = rows->data + (t * rows->stride[T] + h * rows->stride[HEAD] + first * step) *
                                        (int64_t)attn_dtype_bytes(rows->dtype);
    for (int64_t i = 0; i < n; i++) {
        to[i] = rows->dtype == ATTN_F32   ? ((const float *)(const void *)from)[i * step]
                : rows->dtype == ATTN_F16 ? f16_to_f32(((const uint16_t *)(const void *)from)[i * step])
                                          : bf16_to_f32(((const uint16_t *)(const void *)from)[i * step]);
    }
}

static int8_t to_i8(float x)
{
    if (isnan(x)) return 0;
    return (int8_t)lrintf(x > 127 ? 127 : x < -127 ? -127 : x);
}

static void store(const attn_view *pages, char *to, const float *from, int64_t n, float scale)
{
    int64_t step = pages->stride[PC] * (int64_t)attn_dtype_bytes(pages->dtype);
    for (int64_t i = 0; i < n; i++, to += step) {
        switch (pages->dtype) {
        case ATTN_F32:
            *(float *)(void *)to = from[i];
            break;
        case ATTN_F16:
            *(uint16_t *)(void *)to = f32_to_f16(from[i]);
            break;
        case ATTN_BF16:
            *(uint16_t *)(void *)to = f32_to_bf16(from[i]);
            break;
        case ATTN_F8E4M3:
            *(uint8_t *)to = f32_to_eight(from[i] / scale, eight_e4m3);
            break;
        case ATTN_F8E5M2:
            *(uint8_t *)to = f32_to_eight(from[i] / scale, eight_e5m2);
            break;
        default:
            *(int8_t *)to = to_i8(from[i] / scale);
        }
    }
}

static float largest(const attn_view *rows, int64_t t, int64_t h)
{
    float x[CHUNK], most = 0;
    for (int64_t first = 0; rows && first < rows->shape[WIDTH]; first += CHUNK) {
        int64_t n = rows->shape[WIDTH] - first < CHUNK ? rows->shape[WIDTH] - first : CHUNK;
        load(rows, t, h, first, n, x);
        for (int64_t i = 0; i < n; i++)
            if (isfinite(x[i]) && fabsf(x[i]) > most) most = fabsf(x[i]);
    }
    return most;
}

static float scale_of(const side *s, int64_t t, int64_t h, int64_t page, int64_t token)
{
    if (s->form == ATTN_SCALE_NONE) return 1;
    float *at = s->scale + page * s->scale_stride[0] + token * s->scale_stride[1] + h * s->scale_stride[2];
    if (s->form != ATTN_SCALE_TOKEN) return *at;
    float most = fmaxf(largest(s->rows, t, h), largest(s->rest, t, h));
    float top = s->pages->dtype == ATTN_I8 ? 127 : s->pages->dtype == ATTN_F8E4M3 ? 448 : 57344;
    *at = most > 0 ? most / top : 1;
    if (*at == 0) *at = 0x1p-149f; /* a quotient below the smallest float */
    return *at;
}

static void write_part(const side *s, const attn_view *rows, int64_t t, int64_t h, char *to, float scale)
{
    int64_t width = rows->shape[WIDTH], bytes = (int64_t)attn_dtype_bytes(rows->dtype);
    if (rows->dtype == s->pages->dtype && rows->stride[WIDTH] == 1 && s->pages->stride[PC] == 1) {
        memcpy(to, rows->data + (t * rows->stride[T] + h * rows->stride[HEAD]) * bytes,
               (size_t)(width * bytes));
        return;
    }
    for (int64_t first = 0; first < width; first += CHUNK) {
        float x[CHUNK];
        int64_t n = width - first < CHUNK ? width - first : CHUNK;
        load(rows, t, h, first, n, x);
        store(s->pages, to + first * s->pages->stride[PC] * (int64_t)attn_dtype_bytes(s->pages->dtype), x, n,
              scale);
    }
}

static void write_token(const side *s, int64_t t, int64_t h, int64_t page, int64_t token)
{
    int64_t bytes = (int64_t)attn_dtype_bytes(s->pages->dtype), step = s->pages->stride[PC] * bytes;
    char *to =
        s->pages->data +
        (page * s->pages->stride[PAGE] + token * s->pages->stride[TOKEN] + h * s->pages->stride[PH]) * bytes;
    float scale = scale_of(s, t, h, page, token);
    write_part(s, s->rows, t, h, to, scale);
    if (s->rest) write_part(s, s->rest, t, h, to + s->rows->shape[WIDTH] * step, scale);
}

/* One head, token after token. */
static void task(void *arg, int64_t h, int32_t worker)
{
    const writer *w = arg;
    (void)worker;
    for (int64_t t = 0; t < w->slots.count; t++) {
        int64_t slot = attn_index_at(&w->slots, t);
        if (slot < 0) continue;
        for (int i = 0; i < w->count; i++)
            write_token(&w->sides[i], t, h, slot / w->block_size, slot % w->block_size);
    }
}

static attn_status read_sides(const attn_cache_rows *rows, const attn_pages *pages, attn_view *views,
                              writer *w, attn_error *error)
{
    ATTN_TRY(read_slots(rows->slots, &pages->k, &w->slots, error));
    ATTN_TRY(read_rows("k", rows->k, w->slots.count, &pages->k, &views[0], error));
    w->sides[0] = (side){.rows = &views[0],
                         .pages = &pages->k,
                         .scale = (float *)(void *)pages->k_scale.data,
                         .form = pages->k_form,
                         .scale_stride = pages->k_scale_stride};
    if (rows->k_rest) {
        ATTN_TRY(read_rows("k_rest", rows->k_rest, w->slots.count, &pages->k, &views[1], error));
        w->sides[0].rest = &views[1];
    }
    w->count = 1;
    ATTN_TRY(check_widths(&w->sides[0], error));
    ATTN_TRY(check_memory(&w->sides[0], &pages->k_scale, error));
    if (pages->latent) {
        if (!rows->v) return ATTN_OK;
        return attn_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "v was given for a latent cache, whose values are a part of its keys; leave it NULL");
    }
    ATTN_TRY(read_rows("v", rows->v, w->slots.count, &pages->v, &views[2], error));
    w->sides[1] = (side){.rows = &views[2],
                         .pages = &pages->v,
                         .scale = (float *)(void *)pages->v_scale.data,
                         .form = pages->v_form,
                         .scale_stride = pages->v_scale_stride};
    w->count = 2;
    ATTN_TRY(check_widths(&w->sides[1], error));
    ATTN_TRY(check_memory(&w->sides[1], &pages->v_scale, error));
    if (!attn_views_overlap(&pages->k, &pages->v)) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_INVALID_LAYOUT,
                     "cache.k overlaps cache.v in memory; give both pages of their own");
}

attn_status attn_cache_write(attn_context *c, const attn_cache *cache, const attn_cache_rows *given,
                             attn_error *error)
{
    attn_cache_rows rows;
    attn_pages pages;
    attn_view views[3];
    writer w = {.count = 0};
    if (!c || !cache || !given)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "%s is NULL; writing needs an open context, a cache and rows",
                         !c      ? "context"
                         : cache ? "rows"
                                 : "cache");
    if (!attn_copy_struct(&rows, sizeof rows, given, given->size, sizeof rows))
        return attn_fail(error, ATTN_KIND_INVALID_STRUCT,
                         "attn_cache_rows.size is %u; it is at least %zu, set it to sizeof(attn_cache_rows)",
                         given->size, sizeof rows);
    if (rows.flags)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "attn_cache_rows.flags is 0x%x; this version knows no flag, set it to 0",
                         rows.flags);
    ATTN_TRY(attn_cache_read(cache, 0, 0, 0, &pages, error));
    ATTN_TRY(read_sides(&rows, &pages, views, &w, error));
    w.block_size = pages.k.shape[TOKEN];
    int64_t heads = pages.k.shape[PH], work = w.slots.count * heads * pages.k.shape[PC];
    c->host.parallel_for(&c->host, heads, work > PARALLEL_ELEMENTS ? c->host.threads : 1, task, &w);
    return ATTN_OK;
}
