/* alloc_fail.c: memory that runs out at the n-th request, for every n: a clean error, nothing lost, and the
 * same objects work again when memory is back. */
#include "support.h"

#include <stdio.h>
#include <string.h>

/* A call with joint tensors and a key mask, which takes memory in all the places there are. */
typedef struct scene {
    test_call c;
    tensor joint_q, joint_k, joint_v, joint_mask;
    counting memory;
} scene;

static void make(scene *s, const char *backend)
{
    call_make(&s->c, backend, ATTN_F32, (dims){2, 40, 60, 4, 2, 16, 16});
    call_mix32(&s->c, 1, 2, 3);
    tensor_make(&s->joint_q, ATTN_F32, 4, (int64_t[]){2, 2, 4, 16});
    tensor_make(&s->joint_k, ATTN_F32, 4, (int64_t[]){2, 3, 2, 16});
    tensor_make(&s->joint_v, ATTN_F32, 4, (int64_t[]){2, 3, 2, 16});
    tensor_make(&s->joint_mask, ATTN_BOOL, 2, (int64_t[]){1, 3});
    tensor_mix32(&s->joint_q, 4, 1);
    tensor_mix32(&s->joint_k, 5, 1);
    tensor_mix32(&s->joint_v, 6, 1);
    tensor_fill(&s->joint_mask, 1);
    tensor_free(&s->c.out);
    tensor_free(&s->c.lse);
    tensor_make(&s->c.out, ATTN_F32, 4, (int64_t[]){2, 42, 4, 16});
    tensor_make(&s->c.lse, ATTN_F32, 3, (int64_t[]){2, 4, 42});
    s->c.args.joint_q = &s->joint_q.dl;
    s->c.args.joint_k = &s->joint_k.dl;
    s->c.args.joint_v = &s->joint_v.dl;
    s->c.args.joint_key_mask = &s->joint_mask.dl;
    counting_init(&s->memory);
    s->memory.poison = 1;
    s->c.options.allocator = &s->memory.allocator;
    s->c.options.threads = 2;
    s->c.options.module_path =
        TEST_MODULES "/twin_a.so:" TEST_MODULES "/twin_b.so:" TEST_MODULES "/text_file.so";
    s->c.options.overrides = "FLASH_ATTN=cpu_flash";
    s->c.options.config =
        "{\"default\": {\"backend\": \"FLASH_ATTN\"}, \"per_role\": {\"cross\": \"TORCH_SDPA\"}}";
    s->c.options.backend = NULL;
    s->c.layer.role = strcmp(backend, "TORCH_SDPA") ? "self" : "video.cross";
    s->c.layer.category = "cross";
}

static void unmake(scene *s)
{
    tensor *all[] = {&s->joint_q, &s->joint_k, &s->joint_v, &s->joint_mask};
    for (int i = 0; i < 4; i++) tensor_free(all[i]);
    call_free(&s->c);
}

static void expect_out_of_memory(const scene *s, attn_status status, int64_t n)
{
    if (status == ATTN_OK) return;
    if (status != ATTN_OUT_OF_MEMORY || s->c.error.kind != ATTN_KIND_OUT_OF_MEMORY || !s->c.error.text[0])
        fail_msg("request %lld failed: status %d, kind %s: \"%s\"", (long long)n, status,
                 attn_kind_name(s->c.error.kind), s->c.error.text);
}

/* Opens, forwards twice and closes with the n-th request failing; a step that failed is tried once more, now
 * with memory. Returns whether the n-th request was reached. */
static int once(scene *s, int64_t n)
{
    attn_context *context = NULL;
    attn_layer *layer = NULL;
    attn_layer_options site = s->c.layer;
    s->memory.calls = 0;
    s->memory.fail_at = n;
    s->c.error = (attn_error)ATTN_ERROR_INIT;
    attn_status status = attn_open(&s->c.options, &context, &s->c.error);
    expect_out_of_memory(s, status, n);
    if (status) {
        assert_null(context);
        assert_int_equal(s->memory.live_blocks, 0);
        context = context_open(&s->c.options);
    }
    status = attn_layer_open(context, &site, &layer, &s->c.error);
    expect_out_of_memory(s, status, n);
    if (status) {
        assert_null(layer);
        layer = layer_open(context, &site);
    }
    status = attn_forward(layer, &s->c.args, &s->c.error);
    expect_out_of_memory(s, status, n);
    memset(s->c.out.memory, 0xff, s->c.out.bytes);
    if (attn_forward(layer, &s->c.args, &s->c.error))
        fail_msg("after request %lld: %s", (long long)n, s->c.error.text);
    attn_layer_close(layer);
    attn_close(context);
    assert_int_equal(s->memory.live_blocks, 0);
    return s->memory.calls >= n;
}

static void every_request_may_fail(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        scene s;
        tensor want;
        int64_t n = 0;
        make(&s, *backend);
        once(&s, 0);
        tensor_make(&want, ATTN_F32, 4, s.c.out.shape);
        tensor_copy(&want.dl, &s.c.out.dl);
        do {
            n++;
            assert_true(n < 10000);
            int reached = once(&s, n);
            tensor_same(*backend, &s.c.out.dl, &want.dl);
            if (!reached) break;
        } while (1);
        print_message("%s: %lld requests\n", *backend, (long long)n - 1);
        assert_true(n > 10);
        tensor_free(&want);
        unmake(&s);
    }
}

static void nothing_at_all(void **state)
{
    (void)state;
    attn_allocator half = {.alloc = NULL};
    attn_options options = {.size = sizeof options, .module_path = "", .allocator = &half};
    attn_context *context = NULL;
    attn_error error = ATTN_ERROR_INIT;
    assert_int_equal(attn_open(&options, &context, &error), ATTN_INVALID_ARGUMENT);
    text_has(error.text, "allocator");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_request_may_fail),
        cmocka_unit_test(nothing_at_all),
    };
    return cmocka_run_group_tests_name("alloc_fail", tests, NULL, NULL);
}
