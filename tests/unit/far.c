/* far.c: rows that lie gigabytes apart, on memory that becomes real only where it is touched. */
#include "support.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { ROWS = 3, HEADS = 2, WIDTH = 8 };
static const int64_t step = (int64_t)1
                            << 31; /* elements between two rows: beyond 32 bits for all but the first */

/* One tensor of the mapping: rows of HEADS x WIDTH elements, `column` bytes into every step. */
static void place(tensor *t, char *base, attn_dtype dtype, size_t column)
{
    tensor_view(t, dtype, 4, (int64_t[]){1, ROWS, HEADS, WIDTH}, (int64_t[]){0, step, WIDTH, 1},
                base + column);
}

static char *reserve(size_t bytes)
{
    void *far = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return far == MAP_FAILED ? NULL : far;
}

/* q, k, v and out lie side by side in rows 4 GiB apart; rows of the mask and heads of lse are as far from
 * each other. */
static void rows_may_lie_gigabytes_apart(void **state)
{
    (void)state;
    size_t bytes = ((size_t)4 << 30) * (ROWS - 1) + 65536;
    char *far = reserve(bytes), *far_mask = reserve(bytes), *far_lse = reserve(bytes);
    if (!far || !far_mask || !far_lse) SKIP_BECAUSE("24 GiB of addresses cannot be mapped here");
    FOR_BACKENDS(backend)
    {
        test_call near, c;
        tensor q, k, v, out, lse, mask;
        call_make(&near, *backend, ATTN_BF16, (dims){1, ROWS, ROWS, HEADS, HEADS, WIDTH, WIDTH});
        call_make(&c, *backend, ATTN_BF16, (dims){1, ROWS, ROWS, HEADS, HEADS, WIDTH, WIDTH});
        call_mix32(&near, 1, 2, 3);
        place(&q, far, ATTN_BF16, 0);
        place(&k, far, ATTN_BF16, 4096);
        place(&v, far, ATTN_BF16, 8192);
        place(&out, far, ATTN_BF16, 12288);
        tensor_copy(&q.dl, &near.q.dl);
        tensor_copy(&k.dl, &near.k.dl);
        tensor_copy(&v.dl, &near.v.dl);
        tensor_view(&lse, ATTN_F32, 3, (int64_t[]){1, HEADS, ROWS}, (int64_t[]){0, step, 1}, far_lse);
        tensor_view(&mask, ATTN_BOOL, 4, (int64_t[]){1, 1, ROWS, ROWS}, (int64_t[]){0, 0, 2 * step, 1},
                    far_mask);
        call_mask(&near, ATTN_BOOL, 1, 1, ROWS, ROWS);
        for (int64_t n = 0; n < ROWS * ROWS; n++) {
            tensor_set_flat(&near.mask.dl, n, n != 1 && n != 5);
            tensor_set_flat(&mask.dl, n, n != 1 && n != 5);
        }
        c.args.q = &q.dl, c.args.k = &k.dl, c.args.v = &v.dl, c.args.out = &out.dl, c.args.lse = &lse.dl;
        c.args.mask = &mask.dl;
        call_run(&near);
        call_run(&c);
        tensor_same(*backend, &out.dl, &near.out.dl);
        tensor_same(*backend, &lse.dl, &near.lse.dl);
        call_free(&near);
        call_free(&c);
    }
    munmap(far, bytes);
    munmap(far_mask, bytes);
    munmap(far_lse, bytes);
}

/* q, k and v of one packed projection, with the output in its own column: neighbours, not overlaps. */
static void columns_of_one_buffer_are_apart(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call near, c;
        tensor t[4];
        float room[2 * ROWS * 4 * HEADS * WIDTH];
        call_make(&near, *backend, ATTN_F32, (dims){2, ROWS, ROWS, HEADS, HEADS, WIDTH, WIDTH});
        call_make(&c, *backend, ATTN_F32, (dims){2, ROWS, ROWS, HEADS, HEADS, WIDTH, WIDTH});
        call_mix32(&near, 1, 2, 3);
        const tensor *from[] = {&near.q, &near.k, &near.v};
        int64_t row = HEADS * WIDTH, strides[] = {ROWS * 4 * row, 4 * row, WIDTH, 1};
        for (int i = 0; i < 4; i++) tensor_view(&t[i], ATTN_F32, 4, near.q.shape, strides, room + i * row);
        for (int i = 0; i < 3; i++) tensor_copy(&t[i].dl, &from[i]->dl);
        c.args.q = &t[0].dl, c.args.k = &t[1].dl, c.args.v = &t[2].dl, c.args.out = &t[3].dl;
        call_run(&near);
        call_run(&c);
        tensor_same(*backend, &t[3].dl, &near.out.dl);
        t[3].dl.data = room + 2 * row + 1; /* one element into the column of v */
        assert_int_equal(call_try(&c), ATTN_INVALID_ARGUMENT);
        assert_int_equal(c.error.kind, ATTN_KIND_INVALID_LAYOUT);
        text_has(c.error.text, "overlap");
        call_free(&near);
        call_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_may_lie_gigabytes_apart),
        cmocka_unit_test(columns_of_one_buffer_are_apart),
    };
    return cmocka_run_group_tests_name("far", tests, NULL, NULL);
}
