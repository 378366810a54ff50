/* merge.c: two partial results over disjoint keys become the whole. */
#include "support.h"

#include <math.h>
#include <string.h>

/* Attention over keys [from, from + keys) of c into out and lse. */
static void over_keys(const test_call *c, int64_t from, int64_t keys, tensor *out, tensor *lse)
{
    test_call p = *c;
    DLTensor k = c->k.dl, v = c->v.dl;
    int64_t k_shape[4], v_shape[4];
    memcpy(k_shape, c->k.shape, sizeof k_shape);
    memcpy(v_shape, c->v.shape, sizeof v_shape);
    k_shape[1] = v_shape[1] = keys;
    k.shape = k_shape, v.shape = v_shape;
    k.byte_offset = (uint64_t)(from * c->k.strides[1]) * 4;
    v.byte_offset = (uint64_t)(from * c->v.strides[1]) * 4;
    tensor_make(out, ATTN_F32, 4, c->out.shape);
    tensor_make(lse, ATTN_F32, 3, c->lse.shape);
    p.args.k = &k, p.args.v = &v, p.args.out = &out->dl, p.args.lse = &lse->dl;
    call_run(&p);
}

static void merged_parts_are_the_whole(void **state)
{
    (void)state;
    static const int64_t cuts[] = {0, 1, 20, 37};
    FOR_BACKENDS(backend)
    for (int n = 0; n < 4; n++)
        for (int in_place = 0; in_place < 3; in_place++) {
            test_call c;
            tensor out[2], lse[2], whole_out, whole_lse, to_out, to_lse;
            attn_error error = ATTN_ERROR_INIT;
            call_make(&c, *backend, ATTN_F32, (dims){2, 3, 37, 2, 1, 8, 16});
            call_mix32(&c, 1, 2, 3);
            over_keys(&c, 0, cuts[n], &out[0], &lse[0]);
            over_keys(&c, cuts[n], 37 - cuts[n], &out[1], &lse[1]);
            call_truth(&c, NULL, &whole_out, &whole_lse);
            tensor_make(&to_out, ATTN_F32, 4, c.out.shape);
            tensor_make(&to_lse, ATTN_F32, 3, c.lse.shape);
            const tensor *o = in_place ? &out[in_place - 1] : &to_out,
                         *l = in_place ? &lse[in_place - 1] : &to_lse;
            if (attn_merge(&out[0].dl, &lse[0].dl, &out[1].dl, &lse[1].dl, &o->dl, &l->dl, &error))
                fail_msg("%s", error.text);
            tensor_near(*backend, &o->dl, &whole_out.dl, 1e-5);
            tensor_near(*backend, &l->dl, &whole_lse.dl, 1e-5);
            tensor *all[] = {&out[0], &out[1], &lse[0], &lse[1], &whole_out, &whole_lse, &to_out, &to_lse};
            for (int i = 0; i < 8; i++) tensor_free(all[i]);
            call_free(&c);
        }
}

/* An empty part weighs nothing, whatever its rows hold, and great scores do not overflow. */
static void weights_are_safe(void **state)
{
    (void)state;
    static const struct {
        double a, la, b, lb, out, lse;
    } rows[] = {
        {NAN, -INFINITY, 3, 2, 3, 2},
        {4, -1, NAN, -INFINITY, 4, -1},
        {1, 1000, 3, 1000, 2, 1000.6931472},
        {1, -90000, 3, -90000, 2, -89999.3069},
        {1, 0, 3, 200, 3, 200},
        {NAN, -INFINITY, NAN, -INFINITY, 0, -INFINITY},
    };
    for (size_t n = 0; n < sizeof rows / sizeof *rows; n++) {
        tensor out[3], lse[3];
        attn_error error = ATTN_ERROR_INIT;
        const double values[] = {rows[n].a, rows[n].b, 9}, sums[] = {rows[n].la, rows[n].lb, 9};
        for (int i = 0; i < 3; i++) {
            tensor_make(&out[i], ATTN_F32, 4, (int64_t[]){1, 1, 1, 5});
            tensor_make(&lse[i], ATTN_F32, 3, (int64_t[]){1, 1, 1});
            tensor_fill(&out[i], values[i]);
            tensor_fill(&lse[i], sums[i]);
        }
        if (attn_merge(&out[0].dl, &lse[0].dl, &out[1].dl, &lse[1].dl, &out[2].dl, &lse[2].dl, &error))
            fail_msg("%s", error.text);
        tensor_all_near("out", &out[2], rows[n].out, 1e-6);
        tensor_all_near("lse", &lse[2], rows[n].lse, 1e-2);
        for (int i = 0; i < 3; i++) tensor_free(&out[i]), tensor_free(&lse[i]);
    }
}

static void mistakes_are_named(void **state)
{
    (void)state;
    tensor out[3], lse[3];
    attn_error error = ATTN_ERROR_INIT;
    for (int i = 0; i < 3; i++) {
        tensor_make(&out[i], ATTN_F32, 4, (int64_t[]){2, 3, 2, 4});
        tensor_make(&lse[i], ATTN_F32, 3, (int64_t[]){2, 2, 3});
        tensor_fill(&out[i], 0);
        tensor_fill(&lse[i], 0);
    }
#define MERGE() attn_merge(&out[0].dl, &lse[0].dl, &out[1].dl, &lse[1].dl, &out[2].dl, &lse[2].dl, &error)
    assert_int_equal(MERGE(), ATTN_OK);
    assert_int_equal(attn_merge(NULL, &lse[0].dl, &out[1].dl, &lse[1].dl, &out[2].dl, &lse[2].dl, &error),
                     ATTN_INVALID_ARGUMENT);
    text_has(error.text, "out_a");
    out[1].shape[1] = 2;
    assert_int_equal(MERGE(), ATTN_INVALID_ARGUMENT);
    assert_int_equal(error.kind, ATTN_KIND_INVALID_SHAPE);
    lse[1].shape[2] = 2; /* fits its own output, not the other part */
    assert_int_equal(MERGE(), ATTN_INVALID_ARGUMENT);
    assert_int_equal(error.kind, ATTN_KIND_INVALID_SHAPE);
    text_has(error.text, "out_b");
    out[1].shape[1] = lse[1].shape[2] = 3;
    out[1].dl.dtype = attn_dtype_to_dl(ATTN_F16);
    assert_int_equal(MERGE(), ATTN_INVALID_ARGUMENT);
    assert_int_equal(error.kind, ATTN_KIND_INVALID_DTYPE);
    text_has(error.text, "fp16");
    out[1].dl.dtype = attn_dtype_to_dl(ATTN_F32);
    lse[2].dl.dtype = attn_dtype_to_dl(ATTN_F64);
    assert_int_equal(MERGE(), ATTN_INVALID_ARGUMENT);
    assert_int_equal(error.kind, ATTN_KIND_INVALID_DTYPE);
    lse[2].dl.dtype = attn_dtype_to_dl(ATTN_F32);
    out[2].strides[1] = 0; /* an output whose rows lie on one another */
    assert_int_equal(MERGE(), ATTN_INVALID_ARGUMENT);
    assert_int_equal(error.kind, ATTN_KIND_INVALID_LAYOUT);
    out[2].strides[1] = 8;
    assert_int_equal(MERGE(), ATTN_OK);
    assert_int_equal(attn_merge(&out[0].dl, &lse[0].dl, &out[1].dl, NULL, &out[2].dl, &lse[2].dl, NULL),
                     ATTN_INVALID_ARGUMENT);
#undef MERGE
    for (int i = 0; i < 3; i++) tensor_free(&out[i]), tensor_free(&lse[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged_parts_are_the_whole),
        cmocka_unit_test(weights_are_safe),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests_name("merge", tests, NULL, NULL);
}
