/* edges.c: sizes of zero in every place, numbers at their ends, and names of any length. */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Every size of a call may be zero, together with any other. */
static void sizes_of_zero(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    for (int zeros = 0; zeros < 16; zeros++)
        for (int causal = 0; causal < 2; causal++) {
            test_call c;
            int64_t heads = zeros & 8 ? 0 : 2;
            call_make(&c, *backend, ATTN_F32,
                      (dims){zeros & 1 ? 0 : 2, zeros & 2 ? 0 : 3, zeros & 4 ? 0 : 5, heads, heads, 8, 4});
            call_mix32(&c, 1, 2, 3);
            c.layer.causal = causal;
            call_run(&c);
            int64_t count = tensor_count(&c.out.dl);
            for (int64_t n = 0; n < count; n++)
                assert_int_equal(tensor_flat(&c.out.dl, n) == 0, (zeros & 4) != 0);
            for (int64_t n = 0; n < tensor_count(&c.lse.dl); n++)
                assert_int_equal(tensor_flat(&c.lse.dl, n) == -INFINITY, (zeros & 4) != 0);
            call_free(&c);
        }
}

static void masks_of_size_zero(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        tensor key_mask, lengths;
        call_make(&c, *backend, ATTN_F32, (dims){2, 3, 0, 2, 2, 8, 8});
        call_mask(&c, ATTN_F32, 1, 1, 3, 0);
        tensor_make(&key_mask, ATTN_BOOL, 2, (int64_t[]){2, 0});
        tensor_make(&lengths, ATTN_I64, 1, (int64_t[]){2});
        tensor_fill(&lengths, 0);
        call_mix32(&c, 1, 2, 3);
        c.args.key_mask = &key_mask.dl;
        c.args.kv_lengths = &lengths.dl;
        call_run(&c);
        tensor_all_near(*backend, &c.out, 0, 0);
        tensor_free(&key_mask);
        tensor_free(&lengths);
        call_free(&c);
    }
}

/* No sequences, and sequences that are all empty. */
static void packed_calls_of_nothing(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    for (int64_t entries = 1; entries < 4; entries++)
        for (int keys = 0; keys < 2; keys++) {
            test_call c;
            tensor cu, cu_k;
            if (keys && entries == 1) continue; /* no sequence can hold them */
            call_make(&c, *backend, ATTN_F32, (dims){1, 0, keys ? 7 : 0, 2, 2, 8, 8});
            call_mix32(&c, 1, 2, 3);
            tensor_make(&cu, ATTN_I32, 1, &entries);
            tensor_make(&cu_k, ATTN_I32, 1, &entries);
            tensor_fill(&cu, 0);
            tensor_fill(&cu_k, 0);
            if (keys) tensor_set_flat(&cu_k.dl, entries - 1, 7);
            c.args.cu_seqlens_q = &cu.dl;
            c.args.cu_seqlens_k = &cu_k.dl;
            c.layer.causal = 1;
            call_run(&c);
            tensor_free(&cu);
            tensor_free(&cu_k);
            call_free(&c);
        }
}

/* In double precision the reference is exact far beyond f32. */
static void the_reference_computes_in_double(void **state)
{
    (void)state;
    test_call c;
    tensor out, lse;
    call_make(&c, "TORCH_SDPA", ATTN_F64, (dims){2, 9, 70, 4, 2, 40, 24});
    call_mix32(&c, 1, 2, 3);
    c.layer.softcap = 2;
    call_run(&c);
    call_truth(&c, NULL, &out, &lse);
    tensor_near("f64", &c.out.dl, &out.dl, 1e-13);
    tensor_free(&out);
    tensor_free(&lse);
    call_free(&c);
}

/* A sink's share belongs to the sum that LSE is the logarithm of; sinks at the ends of the numbers do no
 * harm. */
static void sinks_are_in_lse(void **state)
{
    (void)state;
    static const double values[] = {0, 3, -INFINITY, -1e30, 80, 1000};
    for (int n = 0; n < 6; n++) {
        test_call c[2];
        tensor sinks, out, lse;
        tensor_make(&sinks, ATTN_F32, 1, (int64_t[]){2});
        tensor_fill(&sinks, values[n]);
        for (int i = 0; i < 2; i++) {
            call_make(&c[i], backends[i], ATTN_F32, (dims){1, 5, 70, 2, 2, 16, 16});
            call_mix32(&c[i], 1, 2, 3);
            c[i].args.sinks = &sinks.dl;
            call_run(&c[i]);
            call_truth(&c[i], NULL, &out, &lse);
            for (int64_t r = 0; r < 10; r++) {
                double a = tensor_flat(&lse.dl, r), top = fmax(a, values[n]);
                value_near(backends[i], tensor_flat(&c[i].lse.dl, r),
                           top + log(exp(a - top) + exp(values[n] - top)), 1e-4);
            }
            tensor_free(&out);
            tensor_free(&lse);
        }
        tensor_near("flash beside reference", &c[1].out.dl, &c[0].out.dl, 2e-5);
        tensor_free(&sinks);
        for (int i = 0; i < 2; i++) call_free(&c[i]);
    }
}

/* Scores of great size, together and apart: the largest decides, nothing overflows. */
static void great_scores(void **state)
{
    (void)state;
    static const double sizes[] = {10, 1e3, 1e4, 1e8};
    FOR_BACKENDS(backend)
    for (int n = 0; n < 4; n++)
        for (int sign = -1; sign < 2; sign += 2) {
            test_call c;
            call_make(&c, *backend, ATTN_F32, (dims){1, 2, 130, 1, 1, 4, 4});
            tensor_fill(&c.q, sizes[n]);
            tensor_fill(&c.k, sign * sizes[n]);
            for (int64_t x = 0; x < 4; x++)
                tensor_set(&c.k.dl, (int64_t[]){0, 77, 0, x}, sign * sizes[n] * (1 + sign * 0.5));
            tensor_fill(&c.v, 1);
            for (int64_t x = 0; x < 4; x++) tensor_set(&c.v.dl, (int64_t[]){0, 77, 0, x}, 5);
            call_run(&c);
            tensor_all_near(*backend, &c.out, 5, 1e-5);
            call_free(&c);
        }
}

/* Scores so small that weights vanish in one half of the keys and not in the other. */
static void a_late_maximum(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        tensor out, lse;
        call_make(&c, *backend, ATTN_F32, (dims){1, 3, 700, 1, 1, 1, 1});
        for (int64_t i = 0; i < 3; i++) tensor_set_flat(&c.q.dl, i, (double)i - 1);
        for (int64_t j = 0; j < 700; j++) {
            tensor_set_flat(&c.k.dl, j, (double)j);
            tensor_set_flat(&c.v.dl, j, (double)(j % 7));
        }
        c.layer.scale = 1;
        call_run(&c);
        call_truth(&c, NULL, &out, &lse);
        /* A score near 700 is known to 700 x 2^-24 in f32, and values reach 6. */
        tensor_near(*backend, &c.out.dl, &out.dl, 6 * 700 * ldexp(1, -24));
        tensor_near(*backend, &c.lse.dl, &lse.dl, 2 * 700 * ldexp(1, -24));
        tensor_free(&out);
        tensor_free(&lse);
        call_free(&c);
    }
}

/* ---- names ---- */

static char *long_name(void)
{
    char *name = malloc(20001);
    assert_non_null(name);
    memset(name, 'x', 20000);
    name[20000] = 0;
    return name;
}

static void names_of_any_length(void **state)
{
    (void)state;
    char *name = long_name();
    attn_options options = {.size = sizeof options, .module_path = "", .backend = name};
    attn_layer_options site = {
        .size = sizeof site, .role = name, .category = name, .prefix = name, .heads = 1, .head_dim = 8};
    attn_layer *layer = NULL;
    attn_error error = ATTN_ERROR_INIT;
    attn_context *context = context_open(&options);
    assert_int_equal(attn_layer_open(context, &site, &layer, &error), ATTN_INVALID_ARGUMENT);
    assert_int_equal(error.kind, ATTN_KIND_UNKNOWN_BACKEND);
    assert_true(strlen(error.text) < sizeof error.text);
    attn_close(context);
    options.backend = NULL;
    context = context_open(&options);
    layer = layer_open(context, &site);
    attn_layer_info info = {.size = sizeof info};
    attn_layer_get_info(layer, &info);
    assert_true(strlen(info.source) < 20000);
    attn_layer_close(layer);
    attn_close(context);
    const char **places[] = {&options.config, &options.platform, &options.isa, &options.overrides};
    for (int i = 0; i < 4; i++) {
        *places[i] = name;
        assert_int_equal(attn_open(&options, &context, &error), ATTN_INVALID_ARGUMENT);
        assert_true(error.text[0] && strlen(error.text) < sizeof error.text);
        *places[i] = NULL;
    }
    free(name);
}

/* Paths that lead nowhere are no error of a context, and named files are a refused row each. */
static void module_paths_of_every_kind(void **state)
{
    (void)state;
    char *name = long_name();
    const char *paths[] = {":", ":::", "/nowhere/at/all", "relative/folder:/dev/null", name};
    attn_module_info info = {.size = sizeof info};
    for (int i = 0; i < 5; i++) {
        attn_options options = {.size = sizeof options, .module_path = paths[i]};
        attn_context *context = context_open(&options);
        for (size_t n = 0; attn_module_at(context, n, &info); n++)
            assert_int_not_equal(info.kind, ATTN_KIND_NONE);
        attn_close(context);
    }
    free(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_of_zero),
        cmocka_unit_test(masks_of_size_zero),
        cmocka_unit_test(packed_calls_of_nothing),
        cmocka_unit_test(the_reference_computes_in_double),
        cmocka_unit_test(sinks_are_in_lse),
        cmocka_unit_test(great_scores),
        cmocka_unit_test(a_late_maximum),
        cmocka_unit_test(names_of_any_length),
        cmocka_unit_test(module_paths_of_every_kind),
    };
    return cmocka_run_group_tests_name("edges", tests, NULL, NULL);
}
