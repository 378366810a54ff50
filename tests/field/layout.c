/* layout.c: strides, far offsets, and plans that must not outlive them. */
#include "field.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* The same values as t, stored in another order: strides are of a dense array whose axes run in `order`. */
static void restore(tensor *to, const tensor *t, const int *order)
{
    int64_t strides[4], dense = 1;
    for (int i = 3; i >= 0; i--) {
        strides[order[i]] = dense;
        dense *= t->shape[order[i]];
    }
    tensor_make(to, attn_dtype_from_dl(t->dl.dtype), 4, t->shape);
    memcpy(to->strides, strides, sizeof strides);
    tensor_copy(&to->dl, &t->dl);
}

void layout_01(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call dense, split;
        tensor k, v;
        call_make(&dense, *backend, ATTN_F32, (dims){1, 16, 16, 2, 2, 8, 8});
        call_make(&split, *backend, ATTN_F32, (dims){1, 16, 16, 2, 2, 8, 8});
        call_mix32(&dense, 110, 111, 112);
        call_mix32(&split, 110, 111, 112);
        restore(&k, &split.k, (const int[]){0, 2, 1, 3}); /* [B, N, S, D] */
        restore(&v, &split.v, (const int[]){0, 2, 1, 3});
        assert_int_equal(k.strides[2], 16 * 8);
        split.args.k = &k.dl;
        split.args.v = &v.dl;
        call_mask(&dense, ATTN_BOOL, 1, 1, 1, 16);
        call_mask(&split, ATTN_BOOL, 1, 1, 1, 16);
        tensor_fill(&dense.mask, 1);
        tensor_fill(&split.mask, 1);
        call_run(&dense);
        call_run(&split);
        tensor_same(*backend, &split.out.dl, &dense.out.dl);
        tensor_same(*backend, &split.lse.dl, &dense.lse.dl);
        tensor_free(&k);
        tensor_free(&v);
        call_free(&dense);
        call_free(&split);
    }
}

/* Every second element; the others hold 1e30. */
static void spread(tensor *to, float *room, const tensor *t)
{
    int64_t strides[4];
    for (int i = 0; i < 4; i++) strides[i] = t->strides[i] * 2;
    for (int i = 0; i < 2 * 48; i++) room[i] = 1e30f;
    tensor_view(to, ATTN_F32, 4, t->shape, strides, room);
    tensor_copy(&to->dl, &t->dl);
}

void layout_02(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call dense, sparse;
        tensor q, k, v;
        float room[3][2 * 48];
        call_make(&dense, *backend, ATTN_F32, (dims){1, 6, 6, 1, 1, 8, 8});
        call_make(&sparse, *backend, ATTN_F32, (dims){1, 6, 6, 1, 1, 8, 8});
        call_mix32(&dense, 113, 114, 115);
        spread(&q, room[0], &dense.q);
        spread(&k, room[1], &dense.k);
        spread(&v, room[2], &dense.v);
        sparse.args.q = &q.dl;
        sparse.args.k = &k.dl;
        sparse.args.v = &v.dl;
        call_run(&dense);
        if (call_try(&sparse) == ATTN_OK)
            tensor_same(*backend, &sparse.out.dl, &dense.out.dl);
        else
            text_has(sparse.error.text, "stride");
        call_free(&dense);
        call_free(&sparse);
    }
}

void offset64_01(void **state)
{
    (void)state;
    const int64_t row = (int64_t)1 << 31;
    const size_t bytes = 2 * (size_t)row + 4096;
    uint8_t *far =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(far != MAP_FAILED);
    for (int64_t i = 0; i < 3; i++) far[i * row + i] = 1;
    FOR_BACKENDS(backend)
    {
        test_call c;
        tensor mask;
        call_make(&c, *backend, ATTN_F32, (dims){1, 3, 4, 1, 1, 4, 4});
        tensor_fill(&c.q, 0);
        tensor_fill(&c.k, 0);
        fill_key_index(&c.v, 1);
        tensor_view(&mask, ATTN_BOOL, 4, (int64_t[]){1, 1, 3, 4}, (int64_t[]){0, 0, row, 1}, far);
        c.args.mask = &mask.dl;
        call_run(&c);
        for (int64_t n = 0; n < 12; n++)
            value_near(*backend, tensor_flat(&c.out.dl, n), (double)(n / 4 + 1), 0);
        call_free(&c);
    }
    /* Only the touched pages have become real. */
    size_t pages = bytes / 4096;
    unsigned char *present = malloc(pages);
    int64_t resident = 0;
    assert_non_null(present);
    assert_int_equal(mincore(far, bytes, present), 0);
    for (size_t i = 0; i < pages; i++) resident += present[i] & 1;
    free(present);
    munmap(far, bytes);
    assert_true(resident <= 3 * 512); /* three huge pages at most */
}

/* ---- cache-01: strides and dtype are part of a plan ---- */

static void check_truth(const test_call *c, const char *label, double atol)
{
    tensor out, lse;
    call_truth(c, NULL, &out, &lse);
    tensor_near(label, &c->out.dl, &out.dl, atol);
    tensor_near(label, &c->lse.dl, &lse.dl, atol);
    tensor_free(&out);
    tensor_free(&lse);
}

/* K and V become views of one buffer, key by key. Values differ from before, so that a stale plan shows. */
static void interleave(test_call *c, tensor *k, tensor *v, void *room, attn_dtype dtype)
{
    const int64_t *s = c->k.shape;
    int64_t step = s[2] * s[3], strides[4] = {2 * s[1] * step, 2 * step, s[3], 1};
    tensor_view(k, dtype, 4, s, strides, room);
    tensor_view(v, dtype, 4, s, strides, (char *)room + (size_t)step * attn_dtype_bytes(dtype));
    tensor_mix32(k, 7, 1);
    tensor_mix32(v, 8, 1);
    c->args.k = &k->dl;
    c->args.v = &v->dl;
}

static void two_layouts(const char *backend, attn_context *context, attn_dtype dtype, double atol)
{
    test_call c;
    tensor k, v;
    double room[2 * 2 * 9 * 2 * 16];
    call_make(&c, backend, dtype, (dims){2, 5, 9, 2, 2, 16, 16});
    call_mix32(&c, 1, 2, 3);
    for (int turn = 0; turn < 2; turn++) {
        c.args.k = &c.k.dl;
        c.args.v = &c.v.dl;
        if (call_try_in(&c, context)) fail_msg("%s: %s", backend, c.error.text);
        check_truth(&c, "contiguous", atol);
        interleave(&c, &k, &v, room, dtype);
        if (call_try_in(&c, context)) fail_msg("%s: %s", backend, c.error.text);
        check_truth(&c, "interleaved", atol);
    }
    call_free(&c);
}

void cache_01(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        attn_options options = {.size = sizeof options, .backend = *backend, .module_path = ""};
        attn_context *context = context_open(&options);
        two_layouts(*backend, context, ATTN_F32, 1e-5);
        two_layouts(*backend, context, ATTN_BF16, 1e-2);
        two_layouts(*backend, context, ATTN_F16, 2e-3);
        attn_close(context);
    }
}
