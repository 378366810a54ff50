/* cache_write.c: new tokens go into a cache; what is stored, what it costs in error, what is refused. */
#include "serve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 5, BLOCK = 4, HEADS = 3, D = 24, DV = 10, TOKENS = 7 };

typedef struct writing {
    tensor k, v, slots, pages_k, pages_v, k_scale, v_scale;
    attn_cache cache;
    attn_cache_rows rows;
    attn_error error;
} writing;

static const int64_t places[TOKENS] = {19, 0, -1, 7, 8, 13, 2};

/* scales: axes as in serve.h. Rows are views of a wider buffer, as projections are. */
static void make(writing *w, attn_dtype rows, attn_dtype stored, int32_t layout, int scales)
{
    int64_t tokens = TOKENS;
    int64_t nhd[] = {BLOCKS, BLOCK, HEADS, D}, hnd[] = {BLOCKS, HEADS, BLOCK, D};
    memset(w, 0, sizeof *w);
    tensor_make(&w->k, rows, 3, (int64_t[]){TOKENS, HEADS, D});
    tensor_make(&w->v, rows, 3, (int64_t[]){TOKENS, HEADS, DV});
    tensor_mix32(&w->k, 5, 3);
    tensor_mix32(&w->v, 6, 40);
    tensor_make(&w->slots, ATTN_I32, 1, &tokens);
    for (int64_t t = 0; t < TOKENS; t++) tensor_set(&w->slots.dl, &t, (double)places[t]);
    int64_t *shape = layout == ATTN_CACHE_HND ? hnd : nhd;
    tensor_make(&w->pages_k, stored, 4, shape);
    if (scales == 3)
        tensor_make(&w->k_scale, ATTN_F32, 3, shape), tensor_make(&w->v_scale, ATTN_F32, 3, shape);
    shape[3] = DV;
    tensor_make(&w->pages_v, stored, 4, shape);
    int64_t one = scales == 1 ? 1 : HEADS;
    if (scales == 1 || scales == 2) {
        tensor_make(&w->k_scale, ATTN_F32, 1, &one), tensor_make(&w->v_scale, ATTN_F32, 1, &one);
        for (int64_t h = 0; h < one; h++)
            tensor_set(&w->k_scale.dl, &h, 0.5 + (double)h), tensor_set(&w->v_scale.dl, &h, 2);
    }
    w->cache = (attn_cache){.size = sizeof w->cache,
                            .layout = layout,
                            .k = &w->pages_k.dl,
                            .v = &w->pages_v.dl,
                            .k_scale = scales ? &w->k_scale.dl : NULL,
                            .v_scale = scales ? &w->v_scale.dl : NULL};
    w->rows = (attn_cache_rows){.size = sizeof w->rows, .k = &w->k.dl, .v = &w->v.dl, .slots = &w->slots.dl};
}

static void release(writing *w)
{
    tensor *all[] = {&w->k, &w->v, &w->slots, &w->pages_k, &w->pages_v, &w->k_scale, &w->v_scale};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tensor_free(all[i]);
}

static attn_status try_write(writing *w)
{
    attn_context *context = context_open(&(attn_options){.size = sizeof(attn_options), .module_path = ""});
    w->error = (attn_error)ATTN_ERROR_INIT;
    attn_status status = attn_cache_write(context, &w->cache, &w->rows, &w->error);
    attn_close(context);
    return status;
}

static void write(writing *w)
{
    if (try_write(w)) fail_msg("attn_cache_write: %s", w->error.text);
}

static double stored_at(const writing *w, const tensor *pages, const tensor *scale, int64_t slot, int64_t h,
                        int64_t c, double *by)
{
    attn_dtype type = attn_dtype_from_dl(pages->dl.dtype);
    int64_t page = slot / BLOCK, token = slot % BLOCK;
    int64_t at[] = {page, w->cache.layout == ATTN_CACHE_HND ? h : token,
                    w->cache.layout == ATTN_CACHE_HND ? token : h, c};
    *by = 1;
    if (scale->memory) {
        int64_t one = scale->shape[0] == 1 ? 0 : h;
        *by = scale->dl.ndim == 3 ? tensor_get(&scale->dl, at) : tensor_get(&scale->dl, &one);
    }
    double value = tensor_get(&pages->dl, at);
    if (type == ATTN_F8E4M3 || type == ATTN_F8E5M2) value = serve_eight(type, (uint8_t)value);
    return value * *by;
}

/* What a type may be off, of a value and of the largest number that the scale reaches. */
static double error_of(attn_dtype type, double value, double scale)
{
    if (type == ATTN_I8) return scale / 2;
    if (type == ATTN_F8E4M3) return fmax(fabs(value) / 16, scale / 1024);
    if (type == ATTN_F8E5M2) return fmax(fabs(value) / 8, scale / 131072);
    return fabs(value) * (type == ATTN_BF16 ? 1.0 / 256 : type == ATTN_F16 ? 1.0 / 2048 : 0);
}

static void every_type_layout_and_scale(void **state)
{
    static const attn_dtype stored[] = {ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_F8E4M3, ATTN_F8E5M2, ATTN_I8};
    static const attn_dtype rows[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
    (void)state;
    for (int n = 0; n < 6 * 3 * 2 * 4; n++) {
        writing w;
        attn_dtype type = stored[n % 6];
        int scales = n / 36;
        if ((n % 6 < 3 && scales) || (type == ATTN_I8 && !scales)) continue;
        make(&w, rows[n / 6 % 3], type, n / 18 % 2, scales);
        write(&w);
        for (int64_t t = 0; t < TOKENS; t++)
            for (int64_t x = 0; places[t] >= 0 && x < HEADS * (D + DV); x++) {
                int of_v = x >= HEADS * D;
                int64_t width = of_v ? DV : D, i = of_v ? x - HEADS * D : x, at[] = {t, i / width, i % width};
                double by, value = tensor_get(of_v ? &w.v.dl : &w.k.dl, at);
                double found = of_v ? stored_at(&w, &w.pages_v, &w.v_scale, places[t], at[1], at[2], &by)
                                    : stored_at(&w, &w.pages_k, &w.k_scale, places[t], at[1], at[2], &by);
                value_near(attn_dtype_name(type), found, value, error_of(type, value, by) * 1.0001);
            }
        /* Slots that no token has keep what was there. */
        for (int64_t x = 0; x < HEADS * D; x++) {
            int64_t at[] = {3, 3, x / D, x % D};
            if (w.cache.layout == ATTN_CACHE_HND) at[1] = x / D, at[2] = 3;
            double kept = tensor_get(&w.pages_k.dl, at);
            assert_true(isnan(kept) || kept == 255 || kept == -1);
        }
        release(&w);
    }
}

static void numbers_beyond_the_type(void **state)
{
    writing w;
    (void)state;
    for (int n = 0; n < 3; n++) {
        static const attn_dtype stored[] = {ATTN_F8E4M3, ATTN_F8E5M2, ATTN_I8};
        static const double most[] = {448, 57344, 127};
        double by;
        make(&w, ATTN_F32, stored[n], ATTN_CACHE_NHD, 1);
        int64_t zero = 0;
        tensor_set(&w.k_scale.dl, &zero, 1);
        tensor_set(&w.k.dl, (int64_t[]){0, 0, 0}, 1e9);
        tensor_set(&w.k.dl, (int64_t[]){0, 0, 1}, -INFINITY);
        tensor_set(&w.k.dl, (int64_t[]){0, 0, 2}, NAN);
        tensor_set(&w.k.dl, (int64_t[]){0, 0, 3}, 0);
        write(&w);
        assert_true(stored_at(&w, &w.pages_k, &w.k_scale, 19, 0, 0, &by) == most[n]);
        assert_true(stored_at(&w, &w.pages_k, &w.k_scale, 19, 0, 1, &by) == -most[n]);
        double nan = stored_at(&w, &w.pages_k, &w.k_scale, 19, 0, 2, &by);
        assert_true(n == 2 ? nan == 0 : isnan(nan));
        assert_true(stored_at(&w, &w.pages_k, &w.k_scale, 19, 0, 3, &by) == 0);
        release(&w);
    }
    /* A vector of zeros has the scale 1. */
    double by;
    make(&w, ATTN_F32, ATTN_I8, ATTN_CACHE_NHD, 3);
    tensor_fill(&w.k, 0);
    write(&w);
    assert_true(stored_at(&w, &w.pages_k, &w.k_scale, 0, 1, 2, &by) == 0 && by == 1);
    release(&w);
}

/* The rounding of every 8-bit number, half way between two and next to half way. */
static void rounding_is_to_nearest_even(void **state)
{
    static const attn_dtype types[] = {ATTN_F8E4M3, ATTN_F8E5M2};
    (void)state;
    for (int n = 0; n < 2; n++) {
        int last = n ? 0x7b : 0x7e;
        for (int bits = 0; bits < last; bits++) {
            double a = serve_eight(types[n], (uint8_t)bits), b = serve_eight(types[n], (uint8_t)(bits + 1)),
                   by;
            double half = (a + b) / 2,
                   values[] = {a, half, nextafterf((float)half, 0), nextafterf((float)half, 1e9f)};
            double want[] = {a, bits % 2 ? b : a, a, b};
            writing w;
            make(&w, ATTN_F32, types[n], ATTN_CACHE_NHD, 0);
            for (int64_t i = 0; i < 4; i++) {
                tensor_set(&w.k.dl, (int64_t[]){1, 0, i}, values[i]);
                tensor_set(&w.k.dl, (int64_t[]){1, 0, i + 4}, -values[i]);
            }
            write(&w);
            for (int64_t i = 0; i < 8; i++)
                assert_true(stored_at(&w, &w.pages_k, &w.k_scale, 0, 0, i, &by) ==
                            (i < 4 ? want[i] : -want[i - 4]));
            release(&w);
        }
    }
}

static void of_equal_slots_the_last_wins(void **state)
{
    writing w;
    double by;
    (void)state;
    make(&w, ATTN_F32, ATTN_F32, ATTN_CACHE_NHD, 0);
    tensor_fill(&w.slots, 6);
    write(&w);
    for (int64_t h = 0; h < HEADS; h++)
        assert_true(stored_at(&w, &w.pages_k, &w.k_scale, 6, h, 1, &by) ==
                    tensor_get(&w.k.dl, (int64_t[]){TOKENS - 1, h, 1}));
    release(&w);
}

/* ---- the error of an 8-bit cache in a call ---- */

/* out differs by at most what scores and values differ by: a score by scale |q| |dk|, a weight by the factor
 * exp(2 ds), a value by |dv|. */
static void quantised_calls_stay_within_the_bound(void **state)
{
    static const attn_dtype stored[] = {ATTN_F8E4M3, ATTN_F8E5M2, ATTN_I8};
    enum { KEYS = 90, QD = 32 };
    (void)state;
    FOR_BACKENDS(backend)
    for (int n = 0; n < 3; n++) {
        int64_t keys = KEYS, block = 16, pages = (KEYS + 15) / 16;
        test_call c;
        tensor pages_k, pages_v, scale_k, scale_v, table, lengths, slots, out, lse, rows_k, rows_v;
        call_make(&c, *backend, ATTN_F32, (dims){1, 4, KEYS, 2, 2, QD, QD});
        call_mix32(&c, 21, 22, 23);
        call_truth(&c, NULL, &out, &lse);
        tensor_make(&pages_k, stored[n], 4, (int64_t[]){pages, block, 2, QD});
        tensor_make(&pages_v, stored[n], 4, pages_k.shape);
        tensor_make(&scale_k, ATTN_F32, 3, pages_k.shape);
        tensor_make(&scale_v, ATTN_F32, 3, pages_k.shape);
        tensor_make(&table, ATTN_I32, 2, (int64_t[]){1, pages});
        tensor_make(&lengths, ATTN_I32, 1, (int64_t[]){1});
        tensor_make(&slots, ATTN_I64, 1, &keys);
        tensor_fill(&lengths, KEYS);
        for (int64_t p = 0; p < pages; p++) tensor_set(&table.dl, (int64_t[]){0, p}, (double)(pages - 1 - p));
        for (int64_t j = 0; j < KEYS; j++)
            tensor_set(&slots.dl, &j, (double)((pages - 1 - j / block) * block + j % block));
        tensor_view(&rows_k, ATTN_F32, 3, (int64_t[]){KEYS, 2, QD}, (int64_t[]){2 * QD, QD, 1}, c.k.memory);
        tensor_view(&rows_v, ATTN_F32, 3, (int64_t[]){KEYS, 2, QD}, (int64_t[]){2 * QD, QD, 1}, c.v.memory);
        writing w = {.cache = {.size = sizeof w.cache,
                               .k = &pages_k.dl,
                               .v = &pages_v.dl,
                               .k_scale = &scale_k.dl,
                               .v_scale = &scale_v.dl},
                     .rows = {.size = sizeof w.rows, .k = &rows_k.dl, .v = &rows_v.dl, .slots = &slots.dl}};
        write(&w);
        c.args.k = c.args.v = NULL;
        c.args.cache = &w.cache, c.args.block_table = &table.dl, c.args.kv_lengths = &lengths.dl;
        call_run(&c);
        /* |q|, |k|, |v| < 1; a vector's scale reaches its largest number. */
        double each = stored[n] == ATTN_I8 ? 1.0 / 254 : stored[n] == ATTN_F8E4M3 ? 1.0 / 16 : 1.0 / 8;
        double score = sqrt((double)QD) * each / 3 * 2, most = exp(2 * score) - 1 + each, largest = 0;
        for (int64_t i = 0; i < tensor_count(&out.dl); i++) {
            double off = fabs(tensor_flat(&c.out.dl, i) - tensor_flat(&out.dl, i));
            largest = fmax(largest, off);
            value_near("an 8-bit cache", tensor_flat(&c.out.dl, i), tensor_flat(&out.dl, i), most);
        }
        assert_true(largest > 1e-5); /* it was quantised */
        tensor *all[] = {&pages_k, &pages_v, &scale_k, &scale_v, &table, &lengths, &slots, &out, &lse};
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) tensor_free(all[i]);
        call_free(&c);
    }
}

/* ---- refusals ---- */

static void expect(writing *w, attn_kind kind, const char *word, const char *other)
{
    assert_int_not_equal(try_write(w), ATTN_OK);
    if (w->error.kind != kind) fail_msg("kind %s: %s", attn_kind_name(w->error.kind), w->error.text);
    text_has(w->error.text, word);
    text_has(w->error.text, other);
}

static void wrong_writes_are_refused(void **state)
{
    writing w;
    tensor other;
    int64_t last = TOKENS - 1;
    (void)state;
    make(&w, ATTN_F32, ATTN_F8E4M3, ATTN_CACHE_NHD, 0);
    tensor_set(&w.slots.dl, &last, BLOCKS * BLOCK);
    expect(&w, ATTN_KIND_INVALID_VALUE, "slots[6] is 20", "5 blocks of 4 tokens");
    for (int64_t i = 0; i < BLOCKS * BLOCK * HEADS * D; i++)
        assert_int_equal(((uint8_t *)w.pages_k.memory)[i], 0xff); /* nothing was written */
    tensor_set(&w.slots.dl, &last, 3);
    w.rows.v = NULL;
    expect(&w, ATTN_KIND_INVALID_VALUE, "v is NULL", "pages");
    w.rows.v = &w.k.dl;
    expect(&w, ATTN_KIND_INVALID_SHAPE, "v has 24 channels", "cache.v 10");
    w.rows.v = &w.v.dl;
    w.rows.k_rest = &w.v.dl;
    expect(&w, ATTN_KIND_INVALID_SHAPE, "k with k_rest has 34", "cache.k 24");
    w.rows.k_rest = NULL;
    w.cache.v = NULL;
    expect(&w, ATTN_KIND_INVALID_VALUE, "latent", "leave it NULL");
    w.cache.v = &w.pages_v.dl;
    w.cache.v = w.cache.k;
    w.rows.v = &w.k.dl;
    expect(&w, ATTN_KIND_INVALID_LAYOUT, "cache.k overlaps cache.v", "own");
    w.cache.v = &w.pages_v.dl;
    w.rows.v = &w.v.dl;
    tensor_make(&other, ATTN_I8, 4, w.pages_k.shape);
    w.cache.k = &other.dl;
    expect(&w, ATTN_KIND_INVALID_VALUE, "cache.k_scale is NULL", "i8");
    w.cache.k = &w.pages_k.dl;
    w.rows.flags = 1;
    expect(&w, ATTN_KIND_INVALID_VALUE, "flags is 0x1", "0");
    w.rows.flags = 0;
    w.rows.k = &other.dl;
    expect(&w, ATTN_KIND_INVALID_SHAPE, "k has 4 axes", "3");
    w.rows.k = &w.k.dl;
    write(&w);
    tensor_free(&other);
    release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_layout_and_scale),
        cmocka_unit_test(numbers_beyond_the_type),
        cmocka_unit_test(rounding_is_to_nearest_even),
        cmocka_unit_test(of_equal_slots_the_last_wins),
        cmocka_unit_test(quantised_calls_stay_within_the_bound),
        cmocka_unit_test(wrong_writes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
