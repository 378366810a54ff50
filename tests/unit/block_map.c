/* block_map.c: block maps as values, and calls that carry one, against the masked double evaluation. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t seed = 1;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

static attn_block_shape shape_of(int64_t batch, int64_t heads, int64_t q, int64_t k, int64_t bq, int64_t bk)
{
    return (attn_block_shape){.size = sizeof(attn_block_shape),
                              .batch = batch,
                              .heads = heads,
                              .q_len = q,
                              .kv_len = k,
                              .block_q = bq,
                              .block_k = bk};
}

static int64_t blocks_of(int64_t n, int64_t block)
{
    return (n + block - 1) / block;
}

/* A map that keeps each pair of blocks with `share` in 16; every 5th list is empty. */
static attn_block_map *random_map(const attn_block_shape *s, uint32_t share)
{
    int64_t row = blocks_of(s->kv_len, s->block_k),
            rows = s->batch * s->heads * blocks_of(s->q_len, s->block_q);
    uint8_t *keep = calloc((size_t)(rows * row + 1), 1);
    attn_block_map *map = NULL;
    attn_error error = ATTN_ERROR_INIT;
    assert_non_null(keep);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < row && r % 5 != 3; j++) keep[r * row + j] = draw(16) < share;
    if (attn_block_map_from_mask(s, keep, &map, &error)) fail_msg("%s", error.text);
    free(keep);
    return map;
}

/* Straight from the words of the header. */
static int map_keeps(const attn_block_map *map, int64_t b, int64_t h, int64_t i, int64_t j)
{
    int64_t at[4] = {map->counts->shape[0] == 1 ? 0 : b, map->counts->shape[1] == 1 ? 0 : h, i / map->block_q,
                     0};
    int64_t count = (int64_t)tensor_get(map->counts, at);
    for (at[3] = 0; at[3] < count; at[3]++)
        if ((int64_t)tensor_get(map->blocks, at) == j / map->block_k) return 1;
    return 0;
}

/* ---- values ---------------------------------------------------------------------------------------- */

static void a_mask_becomes_lists(void **state)
{
    (void)state;
    const uint8_t keep[] = {1, 0, 1, 0, 0, 0, 0, 1, 0};
    attn_block_shape s = shape_of(1, 1, 130, 150, 64, 64);
    attn_block_map *map = NULL;
    attn_error error = ATTN_ERROR_INIT;
    char text[64];
    size_t needed;
    attn_block_stats stats = {.size = sizeof stats};
    assert_int_equal(attn_block_map_from_mask(&s, keep, &map, &error), ATTN_OK);
    assert_int_equal(attn_block_map_check(map, &error), ATTN_OK);
    assert_int_equal(attn_block_map_text(map, 0, 0, text, sizeof text, &needed, &error), ATTN_OK);
    assert_string_equal(text, "#.#\n...\n.#.\n");
    assert_int_equal(needed, 13);
    assert_int_equal(attn_block_map_text(map, 0, 0, text, 6, &needed, &error), ATTN_OK);
    assert_string_equal(text, "#.#\n.");
    assert_int_equal(attn_block_map_stats(map, -1, -1, &stats, &error), ATTN_OK);
    assert_int_equal(stats.kept, 3);
    assert_int_equal(stats.total, 9);
    assert_int_equal(stats.lists, 3);
    assert_int_equal(stats.empty, 1);
    assert_int_equal(stats.shortest, 0);
    assert_int_equal(stats.longest, 2);
    /* The last blocks have 22 keys and 2 rows. */
    value_near("share", stats.share, (64.0 * (64 + 22) + 2.0 * 64) / (130.0 * 150), 1e-12);
    assert_int_equal(map->blocks->shape[3], 2);
    attn_block_map_free(map);
    attn_block_map_free(NULL);
}

static void heads_are_counted_apart(void **state)
{
    (void)state;
    attn_block_shape s = shape_of(2, 3, 200, 300, 64, 32);
    attn_block_map *map = random_map(&s, 5);
    attn_error error = ATTN_ERROR_INIT;
    attn_block_stats all = {.size = sizeof all}, one = {.size = sizeof one};
    int64_t kept = 0;
    assert_int_equal(attn_block_map_stats(map, -1, -1, &all, &error), ATTN_OK);
    for (int64_t b = 0; b < 2; b++)
        for (int64_t h = 0; h < 3; h++) {
            assert_int_equal(attn_block_map_stats(map, b, h, &one, &error), ATTN_OK);
            assert_int_equal(one.lists, 4);
            kept += one.kept;
        }
    assert_int_equal(kept, all.kept);
    assert_int_equal(attn_block_map_stats(map, 2, 0, &one, &error), ATTN_INVALID_ARGUMENT);
    text_has(error.text, "sample 2");
    assert_int_equal(attn_block_map_text(map, 0, 3, NULL, 0, NULL, &error), ATTN_INVALID_ARGUMENT);
    text_has(error.text, "head 3");
    attn_block_map_free(map);
}

/* Exact where old blocks are made of new ones, else a superset that touches nothing that no old block
 * touches. */
static void conversion_keeps_every_pair(void **state)
{
    (void)state;
    static const int64_t sizes[] = {16, 32, 48, 64, 128, 1000};
    for (int n = 0; n < TEST_ROUNDS(200); n++) {
        attn_error error = ATTN_ERROR_INIT;
        attn_block_shape s =
            shape_of(1, 1 + draw(2), 1 + draw(300), 1 + draw(300), sizes[draw(6)], sizes[draw(6)]);
        int64_t bq = sizes[draw(6)], bk = sizes[draw(6)];
        attn_block_map *map = random_map(&s, 6), *other = NULL;
        int exact = -1, same = 1;
        assert_int_equal(attn_block_map_convert(map, bq, bk, &other, &exact, &error), ATTN_OK);
        assert_int_equal(attn_block_map_check(other, &error), ATTN_OK);
        for (int64_t h = 0; h < s.heads; h++)
            for (int64_t i = 0; i < s.q_len; i++)
                for (int64_t j = 0; j < s.kv_len; j++) {
                    int old = map_keeps(map, 0, h, i, j), fresh = map_keeps(other, 0, h, i, j);
                    assert_true(fresh || !old);
                    same &= fresh == old;
                }
        if (exact) assert_true(same);
        if (s.block_q % bq == 0 && s.block_k % bk == 0) assert_int_equal(exact, 1);
        attn_block_map_free(map);
        attn_block_map_free(other);
    }
}

static void shapes_that_cannot_be(void **state)
{
    (void)state;
    static const struct {
        attn_block_shape shape;
        attn_kind kind;
        const char *word;
    } rows[] = {
        {{sizeof(attn_block_shape), 0, 1, 1, 64, 64, 0, 64, 0}, ATTN_KIND_INVALID_VALUE, "0 queries"},
        {{sizeof(attn_block_shape), 0, 1, 1, 64, 64, 64, -5, 0}, ATTN_KIND_INVALID_VALUE, "-5"},
        {{sizeof(attn_block_shape), 0, -1, 1, 64, 64, 64, 64, 0}, ATTN_KIND_INVALID_VALUE, "-1"},
        {{sizeof(attn_block_shape), 0, 1, 1, -64, 64, 64, 64, 0}, ATTN_KIND_INVALID_SHAPE, "-64"},
        {{sizeof(attn_block_shape), 0, 1, 1, 1, (int64_t)1 << 40, 1, 1, 0},
         ATTN_KIND_INVALID_SHAPE,
         "32 bits"},
        {{sizeof(attn_block_shape), 9, 1, 1, 64, 64, 64, 64, 0}, ATTN_KIND_INVALID_VALUE, "0x9"},
        {{8, 0, 1, 1, 64, 64, 64, 64, 0}, ATTN_KIND_INVALID_STRUCT, "attn_block_shape"},
        {{sizeof(attn_block_shape), 0, (int64_t)1 << 40, (int64_t)1 << 20, 64, 64, 1, 1, 0},
         ATTN_KIND_OUT_OF_MEMORY,
         "memory"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        attn_error error = ATTN_ERROR_INIT;
        attn_block_map *map = NULL;
        assert_int_not_equal(attn_block_map_new(&rows[i].shape, &map, &error), ATTN_OK);
        assert_int_equal(error.kind, rows[i].kind);
        text_has(error.text, rows[i].word);
        assert_null(map);
    }
}

/* ---- calls ----------------------------------------------------------------------------------------- */

static const attn_block_map *current_map;

static int keep_by_map(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    int64_t p = i + c->k.shape[1] - c->q.shape[1];
    if (c->layer.causal && j > p) return 0;
    if (c->args.key_mask && !tensor_get(c->args.key_mask, (int64_t[]){b, j})) return 0;
    if (c->args.mask && !tensor_get(&c->mask.dl, (int64_t[]){0, 0, i, j})) return 0;
    return map_keeps(current_map, b, h, i, j);
}

static void compare(test_call *c, const attn_block_map *map, const char *label, double atol)
{
    tensor out, lse;
    current_map = c->args.block_map = map;
    call_run(c);
    call_truth(c, keep_by_map, &out, &lse);
    tensor_near(label, &c->out.dl, &out.dl, atol);
    tensor_near(label, &c->lse.dl, &lse.dl, atol);
    tensor_free(&out);
    tensor_free(&lse);
}

static void random_maps(void **state)
{
    (void)state;
    static const int64_t sizes[] = {16, 20, 40, 64, 100, 128, 256, 500};
    FOR_BACKENDS(backend)
    for (int round = 0; round < TEST_ROUNDS(60); round++) {
        dims d = {1 + draw(2), 1 + draw(300), 1 + draw(400), 4, draw(2) ? 4 : 2, 16, draw(2) ? 16 : 24};
        attn_block_shape s =
            shape_of(draw(2) ? d.b : 1, draw(2) ? d.h : 1, d.sq, d.sk, sizes[draw(8)], sizes[draw(8)]);
        test_call c;
        tensor keys = {0};
        call_make(&c, *backend, ATTN_F32, d);
        call_mix32(&c, draw(1000), draw(1000), draw(1000));
        c.layer.causal = draw(3) == 0;
        if (draw(3) == 0) {
            call_mask(&c, ATTN_BOOL, 1, 1, d.sq, d.sk);
            for (int64_t i = 0; i < d.sq * d.sk; i++) tensor_set_flat(&c.mask.dl, i, draw(3) != 0);
        }
        if (draw(3) == 0) {
            tensor_make(&keys, ATTN_BOOL, 2, (int64_t[]){d.b, d.sk});
            for (int64_t i = 0; i < d.b * d.sk; i++) tensor_set_flat(&keys.dl, i, draw(4) != 0);
            c.args.key_mask = &keys.dl;
        }
        attn_block_map *map = random_map(&s, 1 + draw(15));
        compare(&c, map, *backend, 2e-5);
        attn_block_map_free(map);
        tensor_free(&keys);
        call_free(&c);
    }
}

/* What no list names is not read into a result, whatever lies there. */
static void unlisted_keys_may_hold_anything(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        const uint8_t keep[] = {1, 0, 1, 0, 0, 0, 0, 0, 1};
        attn_block_shape s = shape_of(1, 1, 130, 170, 64, 64);
        attn_block_map *map = NULL;
        call_make(&c, *backend, ATTN_F32, (dims){1, 130, 170, 2, 1, 32, 32});
        call_mix32(&c, 1, 2, 3);
        for (int64_t j = 64; j < 128; j++)
            for (int64_t x = 0; x < 32; x++) {
                tensor_set(&c.k.dl, (int64_t[]){0, j, 0, x}, strtod("nan", NULL));
                tensor_set(&c.v.dl, (int64_t[]){0, j, 0, x},
                           x % 2 ? strtod("inf", NULL) : strtod("nan", NULL));
            }
        assert_int_equal(attn_block_map_from_mask(&s, keep, &map, &c.error), ATTN_OK);
        compare(&c, map, *backend, 2e-5);
        attn_block_map_free(map);
        call_free(&c);
    }
}

/* A sequence without keys has lists without entries. */
static void no_keys_and_no_rows(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    for (int rows = 0; rows < 2; rows++) {
        test_call c;
        attn_block_map *map = NULL;
        attn_block_shape s = shape_of(1, 2, rows ? 70 : 0, 0, 64, 64);
        call_make(&c, *backend, ATTN_F32, (dims){1, rows ? 70 : 0, 0, 2, 2, 16, 16});
        assert_int_equal(attn_block_map_new(&s, &map, &c.error), ATTN_OK);
        c.args.block_map = map;
        call_run(&c);
        tensor_all_near(*backend, &c.out, 0, 0);
        tensor_all_near(*backend, &c.lse, -INFINITY, 0);
        attn_block_map_free(map);
        call_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mask_becomes_lists),
        cmocka_unit_test(heads_are_counted_apart),
        cmocka_unit_test(conversion_keeps_every_pair),
        cmocka_unit_test(shapes_that_cannot_be),
        cmocka_unit_test(random_maps),
        cmocka_unit_test(unlisted_keys_may_hold_anything),
        cmocka_unit_test(no_keys_and_no_rows),
    };
    return cmocka_run_group_tests_name("block_map", tests, NULL, NULL);
}
