/* kernels.c: every slot of every kernel set that this CPU runs, against the scalar set. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/half.h"
#include "kernels/isa.h"

/* ---- helpers ------------------------------------------------------------------------------------- */

static uint64_t seed;

static uint32_t draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(seed >> 33);
}

/* In (-1, 1). */
static float draw_float(void)
{
    return (float)((double)draw() / 0x40000000 - 1);
}

static int64_t draw_below(int64_t n)
{
    return (int64_t)draw() % n;
}

static void *memory(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(p);
    memset(p, 0xff, (bytes + 127) / 64 * 64); /* NaN wherever nothing is written */
    return p;
}

static float *floats(int64_t n)
{
    return memory((size_t)n * sizeof(float));
}

static int same(float a, float b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void assert_close(float got, float want, float bound)
{
    if (same(got, want) || fabsf(got - want) <= bound) return;
    fail_msg("got %.9g, the scalar set gives %.9g, the bound is %g", (double)got, (double)want,
             (double)bound);
}

static const attn_kernels *scalar_set(void)
{
    static attn_kernels set;
    assert_true(attn_isa_kernels("scalar", ATTN_ELEMENT_F32, &set));
    return &set;
}

/* Runs a check for each set above scalar that this CPU has. */
static void for_each_set(void (*check)(const attn_kernels *set, const attn_kernels *scalar))
{
    for (size_t i = 0; i < attn_isa_count(); i++) {
        attn_kernels set;
        int usable;
        const char *name = attn_isa_at(i, &usable);
        if (!usable) continue;
        assert_true(attn_isa_kernels(name, ATTN_ELEMENT_BF16, &set));
        assert_string_equal(set.name, name);
        seed = 2025;
        check(&set, scalar_set());
    }
}

/* ---- choice --------------------------------------------------------------------------------------- */

static void test_sets_are_listed_and_capped(void **state)
{
    (void)state;
    const char *best = NULL;
    char text[256];
    for (size_t i = 0; i < attn_isa_count(); i++) {
        int usable;
        const char *name = attn_isa_at(i, &usable);
        if (usable) best = name;
        assert_string_equal(attn_isa_name(name), best);
        attn_isa_describe(name, text, sizeof text);
        assert_non_null(strstr(text, best));
    }
    assert_null(attn_isa_at(attn_isa_count(), NULL));
    assert_string_equal(attn_isa_at(0, NULL), "scalar");
    assert_string_equal(attn_isa_name(NULL), best);
    assert_string_equal(attn_isa_name(""), best);
}

static void test_unknown_cap_is_refused(void **state)
{
    (void)state;
    attn_kernels set;
    char text[256], little[8];
    assert_null(attn_isa_name("avx1024"));
    assert_false(attn_isa_kernels("avx1024", ATTN_ELEMENT_F32, &set));
    attn_isa_describe("avx1024", text, sizeof text);
    assert_non_null(strstr(text, "avx1024"));
    attn_isa_describe(NULL, little, sizeof little);
    assert_int_equal(strlen(little), sizeof little - 1);
}

/* A set that packs only some types is passed over for the others. */
static void test_the_type_decides(void **state)
{
    (void)state;
    for (size_t i = 0; i < attn_isa_count(); i++) {
        for (int32_t type = ATTN_ELEMENT_F32; type <= ATTN_ELEMENT_BF16; type++) {
            attn_kernels set;
            assert_true(attn_isa_kernels(attn_isa_at(i, NULL), type, &set));
            assert_true(set.types >> type & 1);
        }
    }
}

static void check_filled(const attn_kernels *set, const attn_kernels *scalar)
{
    (void)scalar;
    assert_true(set->widen && set->narrow && set->pack_queries && set->pack_keys && set->pack_values);
    assert_true(set->scores && set->edit && set->softmax && set->values);
    assert_true(set->direct_queries && set->direct_scores && set->direct_values && set->direct_finite);
    assert_in_range(set->chunk, 1, ATTN_CHUNK_MAX - 1);
    assert_in_range(set->panel, 1, ATTN_PANEL_MAX);
    assert_in_range(set->lanes, 1, ATTN_LANES_MAX);
    assert_int_equal(set->panel % set->lanes, 0);
    assert_int_equal(ATTN_KEYS_MAX % set->panel, 0);
}

static void test_every_slot_is_filled(void **state)
{
    (void)state;
    for_each_set(check_filled);
}

/* ---- conversion ----------------------------------------------------------------------------------- */

/* All 65536 halves, contiguous and strided. */
static void check_widen(const attn_kernels *set, const attn_kernels *scalar)
{
    enum { N = 65536 };
    uint16_t *halves = memory(3 * N * sizeof *halves);
    float *got = floats(N), *want = floats(N);
    for (int32_t type = ATTN_ELEMENT_F16; type <= ATTN_ELEMENT_BF16; type++) {
        for (int64_t stride = 1; stride <= 3; stride++) {
            for (int64_t i = 0; i < N; i++) halves[i * stride] = (uint16_t)i;
            set->widen(got, halves, type, stride, N - 3);
            scalar->widen(want, halves, type, stride, N - 3);
            for (int64_t i = 0; i < N - 3; i++) assert_true(same(got[i], want[i]));
        }
    }
    assert_true(want[0x3f80] == 1.0f && isinf(want[0x7f80]) && isnan(want[0x7fc0]));
    free(halves);
    free(got);
    free(want);
}

static void test_widen(void **state)
{
    (void)state;
    assert_true(f16_to_f32(0x3c00) == 1.0f && f16_to_f32(0x0001) == 0x1p-24f &&
                f16_to_f32(0x7bff) == 65504.0f);
    for_each_set(check_widen);
}

/* Halves, the points half way between them, and their neighbours, where rounding decides. */
static void check_narrow(const attn_kernels *set, const attn_kernels *scalar)
{
    enum { N = 3 * 65536 };
    float *src = floats(N), *got32 = floats(N), *want32 = floats(N);
    uint16_t *got = memory(2 * N * sizeof *got), *want = memory(2 * N * sizeof *want);
    for (int64_t i = 0; i < N; i++) {
        float x = f16_to_f32((uint16_t)(i / 3));
        uint32_t bits = f32_bits(x) + 0x1000u + (uint32_t)(i % 3) - 1u;
        src[i] = isfinite(x) ? bits_f32(bits) : x;
    }
    for (int32_t type = ATTN_ELEMENT_F16; type <= ATTN_ELEMENT_BF16; type++) {
        for (int64_t stride = 1; stride <= 2; stride++) {
            set->narrow(got, type, stride, src, 1, N - 1);
            scalar->narrow(want, type, stride, src, 1, N - 1);
            set->widen(got32, got, type, stride, N - 1);
            scalar->widen(want32, want, type, stride, N - 1);
            for (int64_t i = 0; i < N - 1; i++) assert_true(same(got32[i], want32[i]));
        }
    }
    set->narrow(got32, ATTN_ELEMENT_F32, 1, src, 0.5f, 1001);
    for (int64_t i = 0; i < 1001; i++) assert_true(same(got32[i], src[i] * 0.5f));
    free(src);
    free(got32);
    free(want32);
    free(got);
    free(want);
}

static void test_narrow(void **state)
{
    (void)state;
    assert_int_equal(f32_to_f16(65519.0f), 0x7bff);
    assert_int_equal(f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(f32_to_f16(0x1p-25f), 0);
    assert_int_equal(f32_to_f16(-0x1.8p-24f), 0x8002);
    assert_int_equal(f32_to_bf16(bits_f32(0x3f808000u)), 0x3f80);
    assert_int_equal(f32_to_bf16(bits_f32(0x3f818000u)), 0x3f82);
    assert_true(f32_to_bf16(bits_f32(0x7f800001u)) > 0x7f80);
    for_each_set(check_narrow);
}

/* ---- scores --------------------------------------------------------------------------------------- */

typedef struct operands {
    int32_t type, rows;
    int64_t stride, keys, d;
    void *q, *k;
    const void *q_rows[64];
} operands;

static int64_t element_bytes(int32_t type)
{
    return type == ATTN_ELEMENT_F32 ? 4 : 2;
}

static void *draw_tensor(int32_t type, int64_t n)
{
    void *p = memory((size_t)(n * element_bytes(type)));
    for (int64_t i = 0; i < n; i++) {
        float x = draw_float();
        if (type == ATTN_ELEMENT_F32)
            ((float *)p)[i] = x;
        else
            ((uint16_t *)p)[i] = type == ATTN_ELEMENT_F16 ? f32_to_f16(x) : f32_to_bf16(x);
    }
    return p;
}

/* One of the types that the set packs. */
static int32_t draw_type(const attn_kernels *set)
{
    for (;;) {
        int32_t type = (int32_t)(1 + draw_below(3));
        if (set->types >> type & 1) return type;
    }
}

static operands draw_operands(const attn_kernels *set)
{
    static const int64_t sizes[] = {1, 7, 8, 16, 17, 64, 72, 128, 200};
    operands o = {.type = draw_type(set), .rows = (int32_t)(1 + draw_below(64))};
    o.stride = 1 + draw_below(2);
    o.keys = 1 + draw_below(100);
    o.d = sizes[draw_below(9)];
    o.q = draw_tensor(o.type, o.rows * o.d * o.stride);
    o.k = draw_tensor(o.type, o.keys * o.d * o.stride);
    for (int32_t r = 0; r < o.rows; r++)
        o.q_rows[r] = (const char *)o.q + (o.rows - 1 - r) * o.d * o.stride * element_bytes(o.type);
    return o;
}

static void run_scores(const attn_kernels *set, const operands *o, float *s, float *best)
{
    float *tmp = floats(ATTN_CHUNK_MAX * (o->d + ATTN_LANES_MAX));
    void *q = memory(attn_packed_queries(set, o->rows, o->d));
    void *k = memory(
        (size_t)(attn_round_up(o->keys, set->panel) * attn_round_up(o->d, set->pair) * set->packed_bytes));
    set->pack_queries(q, o->q_rows, o->rows, o->type, o->stride, o->d, 0.5f, tmp);
    set->pack_keys(k, o->k, o->type, o->d * o->stride, o->stride, o->keys, o->d, tmp);
    set->scores(s, q, k, o->rows, o->keys, o->d, best);
    free(tmp);
    free(q);
    free(k);
}

/* The packed forms differ, what comes out of them must not; nor may padding show. */
static void check_scores(const attn_kernels *set, const attn_kernels *scalar)
{
    float *got = floats(64 * ATTN_SCORE_LD), *want = floats(64 * ATTN_SCORE_LD);
    float *best = floats(64 * ATTN_LANES_MAX), *scalar_best = floats(64 * ATTN_LANES_MAX);
    float top[64], sum[64], decay[64];
    for (int n = 0; n < 300; n++) {
        operands o = draw_operands(set);
        run_scores(set, &o, got, best);
        run_scores(scalar, &o, want, scalar_best);
        for (int32_t r = 0; r < o.rows; r++) {
            float most = -INFINITY;
            for (int64_t j = 0; j < o.keys; j++) {
                float x = got[r * ATTN_SCORE_LD + j];
                assert_close(x, want[r * ATTN_SCORE_LD + j], 1e-6f * (float)o.d);
                if (x > most) most = x;
            }
            for (int64_t j = o.keys; j < attn_round_up(o.keys, set->lanes); j++)
                assert_true(got[r * ATTN_SCORE_LD + j] == -INFINITY);
            top[r] = -INFINITY;
            sum[r] = 0;
            decay[r] = most;
        }
        float first = decay[0];
        set->softmax(got, 1, o.keys, 1, 1, best, top, sum, decay);
        assert_true(top[0] == first);
        free(o.q);
        free(o.k);
    }
    free(got);
    free(want);
    free(best);
    free(scalar_best);
}

static void test_scores(void **state)
{
    (void)state;
    for_each_set(check_scores);
}

/* ---- rows of scores ------------------------------------------------------------------------------- */

static void draw_row(float *s, int64_t keys, float size)
{
    for (int64_t j = 0; j < ATTN_SCORE_LD; j++) s[j] = j < keys ? draw_float() * size : -INFINITY;
}

static attn_edit draw_edit(float *bias, uint8_t *keep, int64_t keys)
{
    attn_edit e = {.scale = draw_below(2) ? 1 : 0.75f, .lo = 0, .hi = keys};
    for (int64_t j = 0; j < keys; j++) {
        bias[j] = draw_below(4) ? draw_float() * 3 : -INFINITY;
        keep[j] = draw_below(4) ? (uint8_t)(1 + draw_below(255)) : 0;
    }
    if (draw_below(2)) e.cap = draw_below(2) ? 50 : 0.5f;
    if (draw_below(2)) e.bias = bias;
    if (draw_below(2)) e.keep = keep;
    if (draw_below(2)) e.lo = draw_below(keys + 1);
    if (draw_below(2)) e.hi = draw_below(keys + 1);
    return e;
}

/* Hidden keys are -inf even where the score is NaN; the other scores and their maximum agree. The masks end
 * where the heap block ends, so that a sanitizer sees a read behind them. */
static void check_edit(const attn_kernels *set, const attn_kernels *scalar)
{
    float *got = floats(ATTN_SCORE_LD), *want = floats(ATTN_SCORE_LD);
    float *best = floats(ATTN_LANES_MAX), *scalar_best = floats(ATTN_LANES_MAX);
    for (int n = 0; n < 2000; n++) {
        int64_t keys = 1 + draw_below(ATTN_KEYS_MAX);
        float *bias = malloc((size_t)keys * sizeof *bias);
        uint8_t *keep = malloc((size_t)keys);
        attn_edit e = draw_edit(bias, keep, keys);
        draw_row(want, keys, n % 2 ? 1 : 100);
        for (int64_t j = 0; j < keys; j++) {
            if ((e.keep && !keep[j]) || j < e.lo || j >= e.hi) want[j] = NAN;
        }
        memcpy(got, want, ATTN_SCORE_LD * sizeof *got);
        set->edit(got, keys, &e, best);
        scalar->edit(want, keys, &e, scalar_best);
        for (int64_t j = 0; j < keys; j++)
            assert_close(got[j], want[j], isinf(want[j]) ? 0 : 4e-7f * (3 + fabsf(want[j])));
        float top = -INFINITY, sum = 0, decay;
        set->softmax(got, 1, keys, 1, 1, best, &top, &sum, &decay);
        assert_close(top, scalar_best[0], isinf(scalar_best[0]) ? 0 : 4e-7f * (3 + fabsf(top)));
        free(bias);
        free(keep);
    }
    free(got);
    free(want);
    free(best);
    free(scalar_best);
}

static void test_edit(void **state)
{
    (void)state;
    for_each_set(check_edit);
}

/* Weights take the place of the scores, in the packed type. */
static float weight(const attn_kernels *set, const float *row, int64_t j)
{
    if (set->packed_bytes == sizeof *row) return row[j];
    return bf16_to_f32(((const uint16_t *)(const void *)row)[j]);
}

/* Relative errors of sets whose weights become bf16: of the rounding, and of the function before it. */
static float weight_rounding(const attn_kernels *set)
{
    return set->packed_bytes == sizeof(float) ? 0 : 0x1p-8f;
}

static float weight_error(const attn_kernels *set)
{
    return set->packed_bytes == sizeof(float) ? 0 : 4e-6f;
}

static void check_softmax(const attn_kernels *set, const attn_kernels *scalar)
{
    enum { ROWS = 5 };
    float *got = floats(ROWS * ATTN_SCORE_LD), *want = floats(ROWS * ATTN_SCORE_LD);
    float *best = floats(ROWS * ATTN_LANES_MAX), *scalar_best = floats(ROWS * ATTN_LANES_MAX);
    for (int n = 0; n < 500; n++) {
        int64_t keys = 1 + draw_below(ATTN_KEYS_MAX);
        float unit = n % 2 ? 1 : 1.44269504f, m[2][ROWS], l[2][ROWS], alpha[2][ROWS];
        float factor = n % 5 ? 1 : 0.5f;
        attn_edit none = {.scale = 1, .hi = keys};
        for (int r = 0; r < ROWS; r++) {
            draw_row(want + r * ATTN_SCORE_LD, keys, n % 3 ? 8 : 300);
            memcpy(got + r * ATTN_SCORE_LD, want + r * ATTN_SCORE_LD, ATTN_SCORE_LD * sizeof *got);
            set->edit(got + r * ATTN_SCORE_LD, keys, &none, best + r * ATTN_LANES_MAX);
            scalar->edit(want + r * ATTN_SCORE_LD, keys, &none, scalar_best + r * ATTN_LANES_MAX);
            m[0][r] = m[1][r] = r == 0 ? -INFINITY : draw_float() * 9;
            l[0][r] = l[1][r] = r == 0 ? 0 : 2;
        }
        set->softmax(got, ROWS, keys, factor, unit, best, m[0], l[0], alpha[0]);
        scalar->softmax(want, ROWS, keys, factor, unit, scalar_best, m[1], l[1], alpha[1]);
        for (int r = 0; r < ROWS; r++) {
            assert_true(m[0][r] == m[1][r]);
            assert_close(alpha[0][r], alpha[1][r], 4e-7f);
            assert_close(l[0][r], l[1][r], (weight_error(set) + 2e-6f) * l[1][r]);
            for (int64_t j = 0; j < keys; j++) {
                float p = want[r * ATTN_SCORE_LD + j];
                float bound = weight_rounding(set) + weight_error(set) + 4e-7f;
                assert_close(weight(set, got + r * ATTN_SCORE_LD, j), p, bound * p + 0x1p-126f);
            }
        }
    }
    free(got);
    free(want);
    free(best);
    free(scalar_best);
}

static void test_softmax(void **state)
{
    (void)state;
    for_each_set(check_softmax);
}

/* One visible key has the weight 1 however low its score is; no visible key gives zeros; NaN is not lost. */
static void check_softmax_edges(const attn_kernels *set, const attn_kernels *scalar)
{
    float *s = floats(ATTN_SCORE_LD), *best = floats(ATTN_LANES_MAX), top, sum, decay;
    uint8_t keep[40] = {0};
    attn_edit e = {.scale = 1, .keep = keep, .hi = 40};
    (void)scalar;
    for (int round = 0; round < 3; round++) {
        keep[37] = round > 0;
        for (int j = 0; j < 40; j++) s[j] = j == 37 ? -66855.0f : 1e30f;
        if (round == 2) s[37] = NAN;
        top = -INFINITY;
        sum = 0;
        set->edit(s, 40, &e, best);
        set->softmax(s, 1, 40, 1, 1, best, &top, &sum, &decay);
        for (int j = 0; j < 40; j++) assert_true(j == 37 || weight(set, s, j) == 0);
        if (round == 2)
            assert_true(isnan(weight(set, s, 37)) && isnan(sum));
        else
            assert_true(weight(set, s, 37) == (float)round && sum == (float)round);
        assert_true(decay == 0 && (round == 2 || top == (round ? -66855.0f : -INFINITY)));
    }
    free(s);
    free(best);
}

static void test_softmax_edges(void **state)
{
    (void)state;
    for_each_set(check_softmax_edges);
}

/* ---- values ---------------------------------------------------------------------------------------- */

/* Weights in the form in which the set's softmax leaves them. */
static void put_weights(const attn_kernels *set, float *to, const float *p)
{
    for (int64_t r = 0; r < ATTN_CHUNK_MAX; r++, to += ATTN_SCORE_LD, p += ATTN_SCORE_LD) {
        if (set->packed_bytes == sizeof *p)
            memcpy(to, p, ATTN_SCORE_LD * sizeof *p);
        else
            for (int64_t j = 0; j < ATTN_SCORE_LD; j++) ((uint16_t *)(void *)to)[j] = f32_to_bf16(p[j]);
    }
}

static int run_values(const attn_kernels *set, const void *v, int32_t type, int64_t stride, int64_t block,
                      int64_t first, int64_t keys, int32_t rows, int64_t dv, const float *p, float *out)
{
    float *weights = floats(ATTN_CHUNK_MAX * ATTN_SCORE_LD);
    put_weights(set, weights, p);
    int64_t padded = attn_round_up(dv, set->lanes);
    float *tmp = floats(dv + ATTN_LANES_MAX), *o = floats(rows * padded);
    void *packed = memory((size_t)(attn_round_up(block, set->pair) * padded * set->packed_bytes));
    float alpha[ATTN_CHUNK_MAX];
    for (int32_t r = 0; r < rows; r++) {
        alpha[r] = 0.25f * (float)r;
        for (int64_t i = 0; i < padded; i++) o[r * padded + i] = (float)(r + i % 5);
    }
    int broken = set->pack_values(packed, v, type, dv * stride, stride, block, block, dv, tmp);
    set->values(o, weights, packed, block, 0, first, keys, rows, dv, alpha);
    free(weights);
    for (int32_t r = 0; r < rows; r++) memcpy(out + r * dv, o + r * padded, (size_t)dv * sizeof *out);
    free(tmp);
    free(o);
    free(packed);
    return broken;
}

static void check_values(const attn_kernels *set, const attn_kernels *scalar)
{
    static const int64_t sizes[] = {1, 7, 8, 16, 17, 40, 64, 80, 128};
    float *p = floats(ATTN_CHUNK_MAX * ATTN_SCORE_LD);
    for (int n = 0; n < 300; n++) {
        int32_t type = draw_type(set), rows = (int32_t)(1 + draw_below(scalar->chunk));
        int64_t stride = 1 + draw_below(2), block = 1 + draw_below(150), dv = sizes[draw_below(9)];
        if (n % 2) rows = (int32_t)(1 + draw_below(set->chunk));
        int64_t first = draw_below(block), keys = 1 + draw_below(block - first);
        void *v = draw_tensor(type, block * dv * stride);
        float *got = floats(rows * dv), *want = floats(rows * dv);
        for (int64_t i = 0; i < ATTN_CHUNK_MAX * ATTN_SCORE_LD; i++)
            p[i] = bf16_to_f32(f32_to_bf16(fabsf(draw_float())));
        assert_false(run_values(set, v, type, stride, block, first, keys, rows, dv, p, got));
        assert_false(run_values(scalar, v, type, stride, block, first, keys, rows, dv, p, want));
        for (int64_t i = 0; i < rows * dv; i++) assert_close(got[i], want[i], 2e-7f * (float)(keys + 50));
        free(got);
        free(want);
        free(v);
    }
    free(p);
}

static void test_values(void **state)
{
    (void)state;
    for_each_set(check_values);
}

/* Every position of an infinity or a NaN is found, and largest finite values are not taken for one. */
static void check_broken(const attn_kernels *set, const attn_kernels *scalar)
{
    enum { KEYS = 5, DV = 41 };
    float *tmp = floats(DV + ATTN_LANES_MAX);
    uint16_t v[KEYS * DV];
    void *packed = memory((size_t)(KEYS * 64 * 4));
    (void)scalar;
    for (int i = 0; i < KEYS * DV; i++) v[i] = i % 2 ? 0x7f7f : 0xff7f;
    assert_false(set->pack_values(packed, v, ATTN_ELEMENT_BF16, DV, 1, KEYS, KEYS, DV, tmp));
    for (int i = 0; i < KEYS * DV; i++) {
        uint16_t before = v[i];
        v[i] = i % 3 == 0 ? 0x7f81 : i % 3 == 1 ? 0x7f80 : 0xff80;
        assert_true(set->pack_values(packed, v, ATTN_ELEMENT_BF16, DV, 1, KEYS, KEYS, DV, tmp));
        v[i] = before;
    }
    free(tmp);
    free(packed);
}

/* Keys next to the range are no part of it, not even as 0 times infinity. */
static void check_neighbours(const attn_kernels *set, const attn_kernels *scalar)
{
    enum { KEYS = 9, DV = 24 };
    float *p = floats(ATTN_CHUNK_MAX * ATTN_SCORE_LD), got[2 * DV], want[2 * DV];
    uint16_t *v = draw_tensor(ATTN_ELEMENT_BF16, KEYS * DV);
    for (int64_t i = 0; i < ATTN_CHUNK_MAX * ATTN_SCORE_LD; i++) p[i] = 0.5f;
    for (int64_t first = 0; first < KEYS; first++) {
        for (int64_t end = first + 1; end <= KEYS; end++) {
            uint16_t *poisoned = memory(KEYS * DV * sizeof *v); /* NaN */
            memcpy(poisoned + first * DV, v + first * DV, (size_t)((end - first) * DV) * sizeof *v);
            run_values(set, poisoned, ATTN_ELEMENT_BF16, 1, KEYS, first, end - first, 2, DV, p, got);
            run_values(scalar, v, ATTN_ELEMENT_BF16, 1, KEYS, first, end - first, 2, DV, p, want);
            for (int i = 0; i < 2 * DV; i++) assert_close(got[i], want[i], 1e-5f);
            free(poisoned);
        }
    }
    free(p);
    free(v);
}

static void test_neighbours_do_not_enter(void **state)
{
    (void)state;
    for_each_set(check_neighbours);
}

static void test_broken_values_are_found(void **state)
{
    (void)state;
    for_each_set(check_broken);
}

/* ---- K and V where they are ------------------------------------------------------------------------ */

/* Where n rows start. */
static const void **rows_of(const void *base, int32_t type, int64_t row_stride, int64_t n)
{
    const void **rows = malloc((size_t)(n + 1) * sizeof *rows);
    assert_non_null(rows);
    for (int64_t j = 0; j < n; j++) rows[j] = (const char *)base + j * row_stride * element_bytes(type);
    return rows;
}

static void run_direct_scores(const attn_kernels *set, const operands *o, int64_t row_stride, float *s,
                              float *best)
{
    void *q = memory(attn_direct_queries(set, o->rows, o->d));
    set->direct_queries(q, o->q_rows, o->rows, o->type, o->stride, o->d, 0.5f);
    const void **rows = rows_of(o->k, o->type, row_stride, o->keys + 3);
    set->direct_scores(s, q, rows, o->type, o->rows, o->keys, o->keys + 3, o->d, best);
    free(rows);
    free(q);
}

/* K ends where the heap block ends, so that a sanitizer sees a read behind it. */
static void check_direct_scores(const attn_kernels *set, const attn_kernels *scalar)
{
    float *got = floats(16 * ATTN_SCORE_LD), *want = floats(16 * ATTN_SCORE_LD);
    float *best = floats(16 * ATTN_LANES_MAX), *scalar_best = floats(16 * ATTN_LANES_MAX);
    for (int n = 0; n < 300; n++) {
        operands o = draw_operands(set);
        int64_t row_stride = o.d + draw_below(3), elements = (o.keys - 1) * row_stride + o.d;
        if (o.rows > 16) o.rows = 1 + o.rows % 16;
        void *k = draw_tensor(o.type, elements), *all = o.k;
        o.k = malloc((size_t)(elements * element_bytes(o.type)));
        memcpy(o.k, k, (size_t)(elements * element_bytes(o.type)));
        run_direct_scores(set, &o, row_stride, got, best);
        run_direct_scores(scalar, &o, row_stride, want, scalar_best);
        for (int32_t r = 0; r < o.rows; r++) {
            float top = -INFINITY, sum = 0, decay, most = -INFINITY, *row = got + r * ATTN_SCORE_LD;
            for (int64_t j = 0; j < o.keys; j++) {
                assert_close(row[j], want[r * ATTN_SCORE_LD + j], 1e-6f * (float)o.d);
                if (row[j] > most) most = row[j];
            }
            for (int64_t j = o.keys; j < attn_round_up(o.keys, set->lanes); j++)
                assert_true(row[j] == -INFINITY);
            set->softmax(row, 1, o.keys, 1, 1, best + r * ATTN_LANES_MAX, &top, &sum, &decay);
            assert_true(top == most);
        }
        free(o.q);
        free(o.k);
        free(all);
        free(k);
    }
    free(got);
    free(want);
    free(best);
    free(scalar_best);
}

static void test_direct_scores(void **state)
{
    (void)state;
    for_each_set(check_direct_scores);
}

static void run_direct_values(const attn_kernels *set, const void *v, int32_t type, int64_t row_stride,
                              int64_t first, int64_t keys, int32_t rows, int64_t dv, const float *p,
                              float *out)
{
    int64_t padded = attn_round_up(dv, set->lanes);
    float *weights = floats(ATTN_CHUNK_MAX * ATTN_SCORE_LD), *o = floats(rows * padded),
          alpha[ATTN_CHUNK_MAX];
    for (int32_t r = 0; r < rows; r++) {
        alpha[r] = 0.25f * (float)r;
        for (int64_t i = 0; i < padded; i++) o[r * padded + i] = (float)(r + i % 5);
    }
    put_weights(set, weights, p);
    const void **from = rows_of(v, type, row_stride, first + keys);
    set->direct_values(o, weights, from, type, first, keys, first + keys, rows, dv, alpha);
    free(from);
    for (int32_t r = 0; r < rows; r++) memcpy(out + r * dv, o + r * padded, (size_t)dv * sizeof *out);
    free(weights);
    free(o);
}

/* Rows outside the range hold NaN, and the last one ends where the heap block ends. */
static void check_direct_values(const attn_kernels *set, const attn_kernels *scalar)
{
    static const int64_t sizes[] = {1, 7, 8, 16, 17, 40, 64, 80, 128, 200};
    float *p = floats(ATTN_CHUNK_MAX * ATTN_SCORE_LD);
    for (int64_t i = 0; i < ATTN_CHUNK_MAX * ATTN_SCORE_LD; i++)
        p[i] = bf16_to_f32(f32_to_bf16(fabsf(draw_float())));
    for (int n = 0; n < 300; n++) {
        int32_t type = draw_type(set), rows = (int32_t)(1 + draw_below(ATTN_CHUNK_MAX));
        int64_t dv = sizes[draw_below(10)], row_stride = dv + draw_below(3);
        int64_t first = draw_below(4), keys = 1 + draw_below(100);
        size_t row = (size_t)(row_stride * element_bytes(type)), used = (size_t)(dv * element_bytes(type));
        size_t bytes = row * (size_t)(first + keys - 1) + used;
        char *drawn = draw_tensor(type, (first + keys) * row_stride), *v = malloc(bytes);
        memset(v, 0xff, bytes);
        memcpy(v + row * (size_t)first, drawn, bytes - row * (size_t)first);
        float *got = floats(rows * dv), *want = floats(rows * dv);
        run_direct_values(set, v, type, row_stride, first, keys, rows, dv, p, got);
        run_direct_values(scalar, v, type, row_stride, first, keys, rows, dv, p, want);
        for (int64_t i = 0; i < rows * dv; i++) assert_close(got[i], want[i], 2e-7f * (float)(keys + 50));
        const void **from = rows_of(v + row * (size_t)first, type, row_stride, keys);
        assert_true(set->direct_finite(from, type, keys, dv));
        memset(v + row * (size_t)(first + draw_below(keys)) + used - (size_t)element_bytes(type), 0xff,
               (size_t)element_bytes(type));
        assert_false(set->direct_finite(from, type, keys, dv));
        free(from);
        free(drawn);
        free(v);
        free(got);
        free(want);
    }
    free(p);
}

static void test_direct_values(void **state)
{
    (void)state;
    for_each_set(check_direct_values);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets_are_listed_and_capped),
        cmocka_unit_test(test_unknown_cap_is_refused),
        cmocka_unit_test(test_the_type_decides),
        cmocka_unit_test(test_every_slot_is_filled),
        cmocka_unit_test(test_widen),
        cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_edit),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_softmax_edges),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_broken_values_are_found),
        cmocka_unit_test(test_neighbours_do_not_enter),
        cmocka_unit_test(test_direct_scores),
        cmocka_unit_test(test_direct_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
