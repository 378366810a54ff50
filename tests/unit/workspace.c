/* workspace.c: what a call may take: linear in the keys, bounded by the threads. */
#include "support.h"

#include "backends/flash.h"

/* The bound that flash.h states, for value head sizes that fill whole vectors. */
static int64_t bound(int64_t threads, int64_t keys, int64_t d, int64_t dv)
{
    return threads * FLASH_SCRATCH_MOST + (threads + 1) * keys * (d + dv) * 4;
}

/* Bytes by attn_workspace_size. Planning touches no memory of tensors, so theirs are addresses that nothing
 * is behind, 16 TiB apart. */
static int64_t ask(attn_context *context, attn_dtype dtype, dims d)
{
    tensor q, k, v, out;
    size_t bytes = 0;
    attn_error error = ATTN_ERROR_INIT;
    attn_layer_options options = {.size = sizeof options,
                                  .heads = d.h,
                                  .kv_heads = d.hk,
                                  .head_dim = d.d,
                                  .value_head_dim = d.dv,
                                  .dtype = dtype};
    const int64_t shapes[4][4] = {
        {d.b, d.sq, d.h, d.d}, {d.b, d.sk, d.hk, d.d}, {d.b, d.sk, d.hk, d.dv}, {d.b, d.sq, d.h, d.dv}};
    tensor *const all[4] = {&q, &k, &v, &out};
    for (int i = 0; i < 4; i++) {
        const int64_t *s = shapes[i];
        const int64_t strides[4] = {s[1] * s[2] * s[3], s[2] * s[3], s[3], 1};
        tensor_view(all[i], dtype, 4, s, strides, (void *)((uintptr_t)(i + 1) << 44));
    }
    attn_args args = {.size = sizeof args, .q = &q.dl, .k = &k.dl, .v = &v.dl, .out = &out.dl};
    attn_layer *layer = layer_open(context, &options);
    if (attn_workspace_size(layer, &args, &bytes, &error)) fail_msg("%s", error.text);
    attn_layer_close(layer);
    return (int64_t)bytes;
}

static attn_context *open_with(int32_t threads, const char *isa)
{
    const attn_options options = {.size = sizeof options,
                                  .backend = "FLASH_ATTN",
                                  .threads = threads,
                                  .isa = isa,
                                  .module_path = "",
                                  .flags = ATTN_OPEN_IGNORE_ENV};
    return context_open(&options);
}

static void hold(attn_context *context, int32_t threads, attn_dtype dtype, dims d)
{
    int64_t bytes = ask(context, dtype, d), most = bound(threads, d.sk, d.d, d.dv);
    if (bytes > most)
        fail_msg("%d threads, b%d h%d sq%d sk%d d%d dv%d: %lld bytes, at most %lld", (int)threads, (int)d.b,
                 (int)d.h, (int)d.sq, (int)d.sk, (int)d.d, (int)d.dv, (long long)bytes, (long long)most);
}

static void bound_holds(void **state)
{
    (void)state;
    static const int64_t sizes[] = {16, 64, 80, 128, 160, 256, 512, 576, 1024};
    static const int64_t queries[] = {1, 5, 16, 17, 300, 100000}, keys[] = {1, 400, 5000, 1000000};
    const char *isa;
    int usable;
    for (size_t set = 0; (isa = attn_kernel_set_at(set, &usable)); set++) {
        if (!usable) continue;
        for (int32_t threads = 1; threads <= 64; threads *= 4) {
            attn_context *context = open_with(threads, isa);
            for (int i = 0; i < 9; i++)
                for (int j = 0; j < 6; j++)
                    for (int n = 0; n < 4; n++) {
                        dims d = {3, queries[j], keys[n], 8, i % 2 ? 8 : 2, sizes[i], sizes[i]};
                        hold(context, threads, i % 3 ? ATTN_F32 : ATTN_BF16, d);
                    }
            hold(context, threads, ATTN_BF16, (dims){2, 1, 4096, 128, 1, 576, 512});
            hold(context, threads, ATTN_F32, (dims){2, 300, 4096, 4, 4, 16, 1024});
            attn_close(context);
        }
    }
}

/* Each doubling of the keys adds what the one before added, twice; batch and queries add nothing beyond the
 * units in flight. */
static void linear_in_the_keys(void **state)
{
    (void)state;
    attn_context *context = open_with(2, NULL);
    dims d = {1, 4096, 12288, 8, 8, 128, 128};
    int64_t one = ask(context, ATTN_F32, d), two, four;
    d.sk *= 2;
    two = ask(context, ATTN_F32, d);
    d.sk *= 2;
    four = ask(context, ATTN_F32, d);
    assert_true(two > one);
    assert_in_range(four - two, 2 * (two - one) - 4096, 2 * (two - one) + 4096);
    d.b = 100;
    assert_int_equal(ask(context, ATTN_F32, d), four);
    d.sq *= 100;
    assert_int_equal(ask(context, ATTN_F32, d), four);
    attn_close(context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bound_holds),
        cmocka_unit_test(linear_in_the_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
