/* arguments.c: everything a caller can get wrong in a forward call: the kind, the names, the numbers. */
#include "support.h"

#include <stdlib.h>
#include <string.h>

/* A call with B 2, Sq 3, Sk 5, H 4, Hk 2, D 8, Dv 16 and one of each further tensor, ready to be spoilt. */
typedef struct bench {
    test_call c;
    tensor key_mask, lengths, cu_q, cu_k, sinks, scores, joint_q, joint_k, joint_v, joint_out, joint_mask;
    attn_span span[2];
    attn_query_range range[2];
    int32_t cancel;
    char workspace[256];
    attn_block_map map;
    tensor counts, blocks; /* query blocks of 2 rows, key blocks of 2 keys; the lists are 0 2 and 1 */
} bench;

static void make(bench *b)
{
    memset(b, 0, sizeof *b);
    call_make(&b->c, "TORCH_SDPA", ATTN_F32, (dims){2, 3, 5, 4, 2, 8, 16});
    call_mix32(&b->c, 1, 2, 3);
    tensor_make(&b->c.mask, ATTN_BOOL, 4, (int64_t[]){1, 1, 3, 5});
    tensor_make(&b->key_mask, ATTN_BOOL, 2, (int64_t[]){2, 5});
    tensor_make(&b->lengths, ATTN_I32, 1, (int64_t[]){2});
    tensor_make(&b->cu_q, ATTN_I32, 1, (int64_t[]){2});
    tensor_make(&b->cu_k, ATTN_I32, 1, (int64_t[]){2});
    tensor_make(&b->sinks, ATTN_F32, 1, (int64_t[]){4});
    tensor_make(&b->scores, ATTN_F32, 4, (int64_t[]){2, 4, 3, 5});
    tensor_make(&b->joint_q, ATTN_F32, 4, (int64_t[]){2, 2, 4, 8});
    tensor_make(&b->joint_k, ATTN_F32, 4, (int64_t[]){2, 2, 2, 8});
    tensor_make(&b->joint_v, ATTN_F32, 4, (int64_t[]){2, 2, 2, 16});
    tensor_make(&b->joint_out, ATTN_F32, 4, (int64_t[]){2, 2, 4, 16});
    tensor_make(&b->joint_mask, ATTN_BOOL, 2, (int64_t[]){2, 2});
    tensor_make(&b->counts, ATTN_I32, 3, (int64_t[]){1, 4, 2});
    tensor_make(&b->blocks, ATTN_I32, 4, (int64_t[]){1, 4, 2, 3});
    for (int64_t h = 0; h < 4; h++) {
        for (int64_t n = 0; n < 2; n++) tensor_set(&b->counts.dl, (int64_t[]){0, h, n}, n ? 1 : 2);
        for (int64_t n = 0; n < 6; n++)
            tensor_set(&b->blocks.dl, (int64_t[]){0, h, n / 3, n % 3}, n < 2 ? 2 * n : 1);
    }
    b->map = (attn_block_map){sizeof b->map, 0, 2, 2, 0, 0, &b->counts.dl, &b->blocks.dl};
    tensor_fill(&b->lengths, 5);
    tensor_fill(&b->sinks, 0);
}

static void unmake(bench *b)
{
    tensor *all[] = {&b->key_mask,   &b->lengths, &b->cu_q,    &b->cu_k,    &b->sinks,
                     &b->scores,     &b->joint_q, &b->joint_k, &b->joint_v, &b->joint_out,
                     &b->joint_mask, &b->counts,  &b->blocks};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tensor_free(all[i]);
    call_free(&b->c);
}

/* Turns the call into one packed sequence of its first sample. */
static void pack(bench *b)
{
    DLTensor *all[] = {&b->c.q.dl, &b->c.k.dl, &b->c.v.dl, &b->c.out.dl, &b->c.lse.dl};
    for (int i = 0; i < 5; i++) all[i]->shape[0] = 1;
    tensor_set_flat(&b->cu_q.dl, 0, 0);
    tensor_set_flat(&b->cu_q.dl, 1, 3);
    tensor_set_flat(&b->cu_k.dl, 0, 0);
    tensor_set_flat(&b->cu_k.dl, 1, 5);
    b->c.args.cu_seqlens_q = &b->cu_q.dl;
    b->c.args.cu_seqlens_k = &b->cu_k.dl;
}

static void join(bench *b)
{
    b->c.args.joint_q = &b->joint_q.dl;
    b->c.args.joint_k = &b->joint_k.dl;
    b->c.args.joint_v = &b->joint_v.dl;
}

#define WORDS(...) __VA_ARGS__
#define X(name, kind_name, words, ...)                                                                       \
    static void spoil_##name(bench *b)                                                                       \
    {                                                                                                        \
        __VA_ARGS__;                                                                                         \
    }
#include "arguments.def"
#undef X

typedef struct spoilt {
    const char *name;
    attn_kind kind;
    void (*spoil)(bench *b);
    const char *words[4];
} spoilt;

static const spoilt rows[] = {
#define X(name, kind_name, words, ...) {#name, ATTN_KIND_##kind_name, spoil_##name, {WORDS words}},
#include "arguments.def"
#undef X
};

/* A refusal leaves the outputs as they were. */
static void check_untouched(const test_call *c)
{
    const tensor *outputs[] = {&c->out, &c->lse};
    for (int i = 0; i < 2; i++)
        for (size_t n = 0; n < outputs[i]->bytes; n++)
            if (((unsigned char *)outputs[i]->memory)[n] != 0xff)
                fail_msg("byte %zu of an output was written", n);
}

static void each_mistake_has_its_sentence(void **state)
{
    const spoilt *row = *state;
    bench b;
    make(&b);
    row->spoil(&b);
    attn_status status = call_try(&b.c);
    if (b.c.error.kind != row->kind)
        fail_msg("kind %s, expected %s: \"%s\"", attn_kind_name(b.c.error.kind), attn_kind_name(row->kind),
                 b.c.error.text);
    assert_int_equal(status, attn_kind_status(row->kind));
    assert_int_equal(b.c.error.status, status);
    for (int i = 0; i < 4 && row->words[i]; i++) text_has(b.c.error.text, row->words[i]);
    if (row->spoil != spoil_out_is_q && row->spoil != spoil_lse_is_lengths) check_untouched(&b.c);
    unmake(&b);
}

/* The bench itself is right, so that every row fails for its own reason. */
static void the_bench_runs(void **state)
{
    (void)state;
    bench b;
    make(&b);
    call_run(&b.c);
    pack(&b);
    call_run(&b.c);
    unmake(&b);
    make(&b);
    b.c.args.kv_lengths = &b.lengths.dl;
    b.c.args.sinks = &b.sinks.dl;
    b.c.args.scores = &b.scores.dl;
    b.c.args.scores_mode = ATTN_SCORES_PROBS;
    call_run(&b.c);
    unmake(&b);
}

static void null_places_are_refused(void **state)
{
    (void)state;
    attn_error error = ATTN_ERROR_INIT;
    attn_options options = {.size = sizeof options, .module_path = ""};
    attn_layer_options site = {.size = sizeof site, .heads = 1, .head_dim = 8};
    attn_args args = {.size = sizeof args};
    attn_layer *layer = NULL;
    size_t bytes;
    assert_int_equal(attn_open(&options, NULL, &error), ATTN_INVALID_ARGUMENT);
    attn_context *context = context_open(&options);
    assert_int_equal(attn_layer_open(NULL, &site, &layer, &error), ATTN_INVALID_ARGUMENT);
    assert_int_equal(attn_layer_open(context, NULL, &layer, &error), ATTN_INVALID_ARGUMENT);
    assert_int_equal(attn_layer_open(context, &site, NULL, &error), ATTN_INVALID_ARGUMENT);
    assert_int_equal(attn_forward(NULL, &args, &error), ATTN_INVALID_ARGUMENT);
    layer = layer_open(context, &site);
    assert_int_equal(attn_forward(layer, NULL, &error), ATTN_INVALID_ARGUMENT);
    text_has(error.text, "args");
    assert_int_equal(attn_workspace_size(layer, NULL, &bytes, &error), ATTN_INVALID_ARGUMENT);
    assert_int_equal(attn_forward(layer, &args, &error), ATTN_INVALID_ARGUMENT);
    text_has(error.text, "q is NULL");
    attn_layer_close(layer);
    attn_layer_close(NULL);
    attn_close(context);
}

/* A place for the error is not needed, and one of another size is not written beyond its end. */
static void errors_are_optional(void **state)
{
    (void)state;
    bench b;
    make(&b);
    attn_context *context = context_open(&b.c.options);
    attn_layer *layer = layer_open(context, &b.c.layer);
    b.c.args.q = NULL;
    assert_int_equal(attn_forward(layer, &b.c.args, NULL), ATTN_INVALID_ARGUMENT);
    struct {
        attn_error error;
        char guard[8];
    } small = {.guard = "guard"};
    small.error.size = 8;
    assert_int_equal(attn_forward(layer, &b.c.args, &small.error), ATTN_INVALID_ARGUMENT);
    assert_string_equal(small.guard, "guard");
    assert_int_equal(small.error.size, 8);
    assert_int_equal(small.error.reserved, 0);
    attn_layer_close(layer);
    attn_close(context);
    unmake(&b);
}

/* A caller built against the first version of attn_args, which ended sooner. */
static void shorter_args_read_as_zero_filled(void **state)
{
    (void)state;
    bench b;
    make(&b);
    b.c.args.size = offsetof(attn_args, lse);
    memset((char *)&b.c.args + b.c.args.size, 0xee, sizeof b.c.args - b.c.args.size);
    attn_status status = call_try(&b.c);
    if (status) fail_msg("%s", b.c.error.text);
    assert_int_equal(((unsigned char *)b.c.lse.memory)[0], 0xff); /* nobody asked for it */
    unmake(&b);
}

/* Sizes of zero hide nothing: strides and data of an empty tensor are never used. */
static void empty_tensors_may_have_any_strides(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        bench b;
        make(&b);
        b.c.options.backend = *backend;
        b.c.q.shape[1] = b.c.out.shape[1] = b.c.lse.shape[2] = 0;
        for (int i = 0; i < 4; i++) b.c.q.strides[i] = INT64_MAX;
        b.c.q.dl.data = NULL;
        call_run(&b.c);
        unmake(&b);
    }
}

static void contexts_say_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        attn_options options;
        attn_kind kind;
        const char *word;
    } bad[] = {
        {{.size = 0}, ATTN_KIND_INVALID_STRUCT, "attn_options"},
        {{.size = sizeof(attn_options), .module_path = "", .platform = "abacus"},
         ATTN_KIND_UNKNOWN_NAME,
         "abacus"},
        {{.size = sizeof(attn_options), .module_path = "", .isa = "sse9"}, ATTN_KIND_UNKNOWN_NAME, "sse9"},
        {{.size = sizeof(attn_options), .module_path = "", .config = "{\"default\": "},
         ATTN_KIND_SYNTAX,
         "line 1"},
        {{.size = sizeof(attn_options), .module_path = "", .config = "{\"defalt\": \"FLASH_ATTN\"}"},
         ATTN_KIND_UNKNOWN_OR_MISSING_KEY,
         "defalt"},
        {{.size = sizeof(attn_options), .module_path = "", .threads = -2}, ATTN_KIND_INVALID_VALUE, "-2"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        attn_error error = ATTN_ERROR_INIT;
        attn_context *context = NULL;
        attn_status status = attn_open(&bad[i].options, &context, &error);
        if (error.kind != bad[i].kind)
            fail_msg("%s: kind %s, expected %s: \"%s\"", bad[i].word, attn_kind_name(error.kind),
                     attn_kind_name(bad[i].kind), error.text);
        assert_int_equal(status, attn_kind_status(bad[i].kind));
        assert_null(context);
        text_has(error.text, bad[i].word);
    }
}

static void unknown_backends_are_named_with_the_nearest(void **state)
{
    (void)state;
    bench b;
    make(&b);
    b.c.options.backend = "FLASH_ATN";
    assert_int_equal(call_try(&b.c), ATTN_INVALID_ARGUMENT);
    assert_int_equal(b.c.error.kind, ATTN_KIND_UNKNOWN_BACKEND);
    text_has(b.c.error.text, "FLASH_ATN");
    text_has(b.c.error.text, "FLASH_ATTN");
    text_has(b.c.error.text, "TORCH_SDPA");
    unmake(&b);
}

int main(void)
{
    struct CMUnitTest tests[sizeof rows / sizeof *rows + 16] = {{0}};
    const struct CMUnitTest others[] = {
        cmocka_unit_test(the_bench_runs),
        cmocka_unit_test(null_places_are_refused),
        cmocka_unit_test(errors_are_optional),
        cmocka_unit_test(shorter_args_read_as_zero_filled),
        cmocka_unit_test(empty_tensors_may_have_any_strides),
        cmocka_unit_test(contexts_say_what_is_wrong),
        cmocka_unit_test(unknown_backends_are_named_with_the_nearest),
    };
    size_t n = 0, more = sizeof others / sizeof *others;
    for (; n < sizeof rows / sizeof *rows; n++)
        tests[n] = (struct CMUnitTest){rows[n].name, each_mistake_has_its_sentence, NULL, NULL,
                                       (void *)(uintptr_t)&rows[n]};
    memcpy(tests + n, others, sizeof others);
    return _cmocka_run_group_tests("arguments", tests, n + more, NULL, NULL);
}
