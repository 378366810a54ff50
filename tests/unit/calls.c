/* calls.c: workspaces, threads, cancelling: what surrounds the arithmetic of a call. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

static void a_caller_s_workspace_is_enough_and_all(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        tensor first;
        size_t bytes = 0;
        call_make(&c, *backend, ATTN_F32, (dims){2, 40, 70, 4, 2, 16, 24});
        call_mix32(&c, 1, 2, 3);
        c.options.threads = 3;
        attn_context *context = context_open(&c.options);
        attn_layer *layer = layer_open(context, &c.layer);
        assert_int_equal(attn_forward(layer, &c.args, &c.error), ATTN_OK);
        tensor_make(&first, ATTN_F32, 4, c.out.shape);
        tensor_copy(&first.dl, &c.out.dl);
        if (attn_workspace_size(layer, &c.args, &bytes, &c.error)) fail_msg("%s", c.error.text);
        unsigned char *room = aligned_alloc(64, (bytes + 63) / 64 * 64 + 128);
        assert_non_null(room);
        memset(room, 0xa5, bytes + 128);
        c.args.workspace = room + 64;
        c.args.workspace_bytes = bytes;
        memset(c.out.memory, 0xff, c.out.bytes);
        if (attn_forward(layer, &c.args, &c.error)) fail_msg("%s", c.error.text);
        tensor_same(*backend, &c.out.dl, &first.dl);
        for (int i = 0; i < 64; i++) {
            assert_int_equal(room[i], 0xa5);
            assert_int_equal(room[64 + bytes + (size_t)i], 0xa5);
        }
        c.args.workspace_bytes = bytes - 1;
        if (bytes) assert_int_equal(attn_forward(layer, &c.args, &c.error), ATTN_INVALID_ARGUMENT);
        if (bytes) assert_int_equal(c.error.kind, ATTN_KIND_WORKSPACE_TOO_SMALL);
        attn_layer_close(layer);
        attn_close(context);
        free(room);
        tensor_free(&first);
        call_free(&c);
    }
}

static size_t workspace_at(const char *backend, int64_t length, int threads)
{
    test_call c;
    size_t bytes = 0;
    int64_t strides[4] = {0, 0, 0, 0};
    float one;
    tensor out;
    call_make(&c, backend, ATTN_F32, (dims){1, 1, 1, 2, 2, 64, 64});
    /* Nothing runs, so that long tensors may lie on one element. */
    for (tensor **t = (tensor *[]){&c.q, &c.k, &c.v, NULL}; *t; t++) {
        (*t)->shape[1] = length;
        memcpy((*t)->strides, strides, sizeof strides);
    }
    tensor_view(&out, ATTN_F32, 4, (int64_t[]){1, length, 2, 64}, (int64_t[]){0, 128, 64, 1}, &one);
    out.dl.data = (void *)(((uintptr_t)1 << 40)); /* an address of its own, never used */
    c.args.out = &out.dl;
    c.args.lse = NULL;
    c.options.threads = threads;
    attn_context *context = context_open(&c.options);
    attn_layer *layer = layer_open(context, &c.layer);
    if (attn_workspace_size(layer, &c.args, &bytes, &c.error)) fail_msg("%s", c.error.text);
    attn_layer_close(layer);
    attn_close(context);
    call_free(&c);
    return bytes;
}

static void workspaces_grow_linearly(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        size_t small = workspace_at(*backend, 4096, 2), large = workspace_at(*backend, 65536, 2);
        print_message("%s: %zu bytes at 4096 keys, %zu at 65536\n", *backend, small, large);
        assert_true(large <= 16 * small + 65536);
        assert_true(large < (size_t)65536 * 65536 / 8); /* far from one byte a score */
    }
}

/* ---- a caller's own parallel_for ---- */

typedef struct serial {
    int64_t tasks, loops;
    int32_t most_workers;
    int32_t *cancel; /* raised after the first task */
} serial;

static void backwards(void *user, int64_t count, int32_t workers, attn_task_fn task, void *arg)
{
    serial *s = user;
    s->loops++;
    if (workers > s->most_workers) s->most_workers = workers;
    for (int64_t i = count - 1; i >= 0; i--) {
        task(arg, i, (int32_t)(i % workers));
        s->tasks++;
        if (s->cancel) *s->cancel = 1;
    }
}

static void a_caller_s_loop_is_used(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call own, c;
        serial s = {0};
        call_make(&own, *backend, ATTN_F32, (dims){2, 64, 300, 4, 2, 16, 16});
        call_make(&c, *backend, ATTN_F32, (dims){2, 64, 300, 4, 2, 16, 16});
        call_mix32(&own, 1, 2, 3);
        call_mix32(&c, 1, 2, 3);
        own.options.threads = 1;
        c.options.threads = 5;
        c.options.parallel_for = backwards;
        c.options.parallel_user = &s;
        int before = task_count();
        call_run(&c);
        assert_int_equal(task_count(), before); /* the library starts no thread of its own */
        call_run(&own);
        tensor_same(*backend, &c.out.dl, &own.out.dl);
        tensor_same(*backend, &c.lse.dl, &own.lse.dl);
        assert_true(s.tasks > 0 && s.most_workers <= 5);
        call_free(&own);
        call_free(&c);
    }
}

static void a_raised_flag_ends_a_call(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        int32_t cancel = 0;
        serial s = {.cancel = &cancel};
        call_make(&c, *backend, ATTN_F32, (dims){4, 128, 128, 8, 8, 16, 16});
        call_mix32(&c, 1, 2, 3);
        c.options.threads = 2;
        c.options.parallel_for = backwards;
        c.options.parallel_user = &s;
        c.args.cancel = &cancel;
        assert_int_equal(call_try(&c), ATTN_CANCELLED);
        assert_int_equal(c.error.kind, ATTN_KIND_CANCELLED);
        cancel = 0;
        s.cancel = NULL;
        call_run(&c); /* nothing of it lingers */
        call_free(&c);
    }
}

/* ---- what results must not depend on ---- */

static const dims independent[] = {
    {1, 1, 9000, 1, 1, 64, 64}, {1, 300, 300, 1, 1, 64, 64}, {2, 33, 1025, 4, 2, 24, 40}};

static void bits_do_not_depend_on_threads(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 3, 8};
    FOR_BACKENDS(backend)
    for (int n = 0; n < 3; n++) {
        test_call c[4];
        for (int i = 0; i < 4; i++) {
            call_make(&c[i], *backend, ATTN_F32, independent[n]);
            call_mix32(&c[i], 1, 2, 3);
            c[i].layer.causal = n == 1;
            c[i].options.threads = threads[i];
            call_run(&c[i]);
            tensor_same(*backend, &c[i].out.dl, &c[0].out.dl);
            tensor_same(*backend, &c[i].lse.dl, &c[0].lse.dl);
        }
        for (int i = 0; i < 4; i++) call_free(&c[i]);
    }
}

static void bits_do_not_depend_on_batch_mates(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    for (int n = 0; n < 3; n++) {
        test_call whole, one;
        dims d = independent[n];
        d.b = 3;
        call_make(&whole, *backend, ATTN_F32, d);
        call_mix32(&whole, 1, 2, 3);
        call_run(&whole);
        d.b = 1;
        call_make(&one, *backend, ATTN_F32, d);
        const tensor *from[] = {&whole.q, &whole.k, &whole.v}, *to[] = {&one.q, &one.k, &one.v};
        for (int i = 0; i < 3; i++)
            memcpy(to[i]->memory, (char *)from[i]->memory + 2 * to[i]->bytes, to[i]->bytes);
        call_run(&one);
        assert_memory_equal(one.out.memory, (char *)whole.out.memory + 2 * one.out.bytes, one.out.bytes);
        assert_memory_equal(one.lse.memory, (char *)whole.lse.memory + 2 * one.lse.bytes, one.lse.bytes);
        call_free(&whole);
        call_free(&one);
    }
}

/* An all-true mask is no mask, and asking for more outputs changes none. */
static void bits_do_not_depend_on_lse(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call with, without;
        call_make(&with, *backend, ATTN_F32, independent[2]);
        call_make(&without, *backend, ATTN_F32, independent[2]);
        call_mix32(&with, 1, 2, 3);
        call_mix32(&without, 1, 2, 3);
        without.args.lse = NULL;
        call_run(&with);
        call_run(&without);
        tensor_same(*backend, &with.out.dl, &without.out.dl);
        call_free(&with);
        call_free(&without);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_caller_s_workspace_is_enough_and_all),
        cmocka_unit_test(workspaces_grow_linearly),
        cmocka_unit_test(a_caller_s_loop_is_used),
        cmocka_unit_test(a_raised_flag_ends_a_call),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(bits_do_not_depend_on_batch_mates),
        cmocka_unit_test(bits_do_not_depend_on_lse),
    };
    return cmocka_run_group_tests_name("calls", tests, NULL, NULL);
}
