/* device.c: memory of devices, and calls on a device whose memory the host cannot touch (modules/fake_gpu.c).
 */
#include "support.h"

#include "core/tensor.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAKE TEST_MODULES "/fake_gpu.so"

static const DLDevice gpu = {kDLCUDA, 0}, host = {kDLCPU, 0};
static int *regions, *copies, *marks;

static int find_counters(void **state)
{
    (void)state;
    setenv("FAKE_GPU", "2", 1);
    void *module = dlopen(FAKE, RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        print_error("%s\n", dlerror());
        return -1;
    }
    regions = dlsym(module, "fake_gpu_regions");
    copies = dlsym(module, "fake_gpu_copies");
    marks = dlsym(module, "fake_gpu_marks");
    return regions && copies && marks ? 0 : -1;
}

static attn_context *open_fake(void)
{
    const attn_options options = {.size = sizeof options,
                                  .module_path = FAKE,
                                  .platform = "fake_gpu",
                                  .threads = 3,
                                  .flags = ATTN_OPEN_IGNORE_ENV};
    return context_open(&options);
}

/* ---- the helpers -------------------------------------------------------------------------------- */

static void memory_goes_there_and_back(void **state)
{
    (void)state;
    attn_context *c = open_fake();
    const DLDevice devices[] = {gpu, host, {kDLCUDA, 1}};
    for (int i = 0; i < 3; i++) {
        attn_error error = ATTN_ERROR_INIT;
        char text[] = "there and back", back[sizeof text] = "";
        void *memory, *from = NULL, *to = NULL;
        double seconds = -1;
        attn_device_limits limits = {.size = sizeof limits};
        assert_int_equal(attn_device_alloc(c, devices[i], sizeof text, &memory, &error), 0);
        assert_int_equal((uintptr_t)memory % 64, 0);
        assert_int_equal(attn_device_mark(c, devices[i], NULL, &from, &error), 0);
        assert_int_equal(attn_device_copy(c, devices[i], memory, text, sizeof text, NULL, &error), 0);
        assert_int_equal(attn_device_fill(c, devices[i], memory, 'T', 1, NULL, &error), 0);
        assert_int_equal(attn_device_copy(c, devices[i], back, memory, sizeof text, NULL, &error), 0);
        assert_int_equal(attn_device_mark(c, devices[i], NULL, &to, &error), 0);
        assert_int_equal(attn_device_wait(c, devices[i], NULL, &error), 0);
        assert_int_equal(attn_device_seconds(c, devices[i], from, to, &seconds, &error), 0);
        assert_string_equal(back, "There and back");
        assert_true(seconds >= 0);
        assert_int_equal(attn_device_get_limits(c, devices[i], &limits, &error), 0);
        assert_true(limits.count >= 1);
        attn_device_unmark(c, devices[i], from);
        attn_device_unmark(c, devices[i], to);
        attn_device_free(c, devices[i], memory);
    }
    assert_int_equal(*regions, 0);
    assert_int_equal(*marks, 0);
    attn_close(c);
}

static void what_cannot_be_is_told(void **state)
{
    (void)state;
    attn_error error = ATTN_ERROR_INIT;
    attn_context *c = open_fake(), *bare = context_open(&(attn_options){
                                       .size = sizeof(attn_options), .module_path = "", .platform = "cpu"});
    void *memory;
    double flop = 0;
    attn_device_alloc(bare, gpu, 1, &memory, &error);
    assert_int_equal(error.kind, ATTN_KIND_PACKAGE_MISSING);
    attn_device_alloc(c, (DLDevice){kDLCUDA, 7}, 1, &memory, &error);
    assert_int_equal(error.kind, ATTN_KIND_DEVICE_MISMATCH);
    attn_device_alloc(c, gpu, (size_t)1 << 40, &memory, &error);
    assert_int_equal(error.kind, ATTN_KIND_OUT_OF_MEMORY);
    attn_device_copy(c, gpu, NULL, &error, 1, NULL, &error);
    assert_int_equal(error.kind, ATTN_KIND_INVALID_VALUE);
    attn_device_saturate(c, host, ATTN_BF16, NULL, &flop, &error);
    assert_int_equal(error.kind, ATTN_KIND_FEATURE_UNSUPPORTED);
    attn_device_saturate(c, gpu, ATTN_F64, NULL, &flop, &error);
    assert_int_equal(error.kind, ATTN_KIND_DTYPE_UNSUPPORTED);
    assert_int_equal(attn_device_saturate(c, gpu, ATTN_BF16, NULL, &flop, &error), 0);
    assert_true(flop > 0);
    attn_device_free(c, gpu, NULL);
    attn_device_unmark(NULL, gpu, NULL);
    attn_close(bare);
    attn_close(c);
}

/* ---- calls -------------------------------------------------------------------------------------- */

/* The device's form of a tensor; NULL stays NULL. */
typedef struct there {
    DLTensor dl;
    const tensor *from;
    void *memory;
} there;

static const DLTensor *send(attn_context *c, there *t, const tensor *from)
{
    attn_error error = ATTN_ERROR_INIT;
    t->from = from;
    t->dl = from->dl;
    t->dl.device = gpu;
    if (attn_device_alloc(c, gpu, from->bytes, &t->memory, &error) ||
        attn_device_copy(c, gpu, t->memory, from->memory, from->bytes, NULL, &error))
        fail_msg("%s", error.text);
    t->dl.data = t->memory;
    return &t->dl;
}

static void fetch(attn_context *c, const there *t)
{
    attn_error error = ATTN_ERROR_INIT;
    if (attn_device_copy(c, gpu, t->from->memory, t->memory, t->from->bytes, NULL, &error))
        fail_msg("%s", error.text);
}

typedef struct joint_call {
    test_call c;
    tensor jq, jk, jv, jout, jmask, kmask, want[2];
} joint_call;

enum { B = 2, SQ = 9, SK = 13, H = 4, HK = 2, DIM = 16, JQ = 3, JK = 5 };

static void make_joint(joint_call *j)
{
    call_make(&j->c, "TORCH_SDPA", ATTN_F32, (dims){B, SQ, SK, H, HK, DIM, DIM});
    call_mix32(&j->c, 1, 2, 3);
    tensor_make(&j->jq, ATTN_F32, 4, (int64_t[]){B, JQ, H, DIM});
    tensor_make(&j->jk, ATTN_F32, 4, (int64_t[]){B, JK, HK, DIM});
    tensor_make(&j->jv, ATTN_F32, 4, (int64_t[]){B, JK, HK, DIM});
    tensor_make(&j->jout, ATTN_F32, 4, (int64_t[]){B, JQ, H, DIM});
    tensor_make(&j->want[0], ATTN_F32, 4, (int64_t[]){B, SQ, H, DIM});
    tensor_make(&j->want[1], ATTN_F32, 4, (int64_t[]){B, JQ, H, DIM});
    tensor_make(&j->jmask, ATTN_BOOL, 2, (int64_t[]){1, JK});
    tensor_make(&j->kmask, ATTN_BOOL, 2, (int64_t[]){B, SK});
    tensor_mix32(&j->jq, 4, 1), tensor_mix32(&j->jk, 5, 1), tensor_mix32(&j->jv, 6, 1);
    tensor_fill(&j->jmask, 1), tensor_fill(&j->kmask, 1);
    for (int64_t i = 0; i < B * SK; i += 3) tensor_set_flat(&j->kmask.dl, i, 0);
    tensor_set_flat(&j->jmask.dl, 1, 0);
    j->c.args.lse = NULL;
    j->c.args.joint_q = &j->jq.dl, j->c.args.joint_k = &j->jk.dl, j->c.args.joint_v = &j->jv.dl;
    j->c.args.joint_out = &j->jout.dl;
}

/* Heads in front of rows: [B, H, S, D] in memory. */
static void heads_first(tensor *t)
{
    int64_t s = t->shape[1], h = t->shape[2], d = t->shape[3];
    tensor copy;
    tensor_make(&copy, ATTN_F32, 4, t->shape);
    tensor_copy(&copy.dl, &t->dl);
    t->strides[0] = s * h * d, t->strides[1] = d, t->strides[2] = s * d, t->strides[3] = 1;
    t->dl.strides = t->strides;
    tensor_copy(&t->dl, &copy.dl);
    tensor_free(&copy);
}

static void unmake_joint(joint_call *j)
{
    tensor *all[] = {&j->jq, &j->jk, &j->jv, &j->jout, &j->jmask, &j->kmask, &j->want[0], &j->want[1]};
    for (int i = 0; i < 8; i++) tensor_free(all[i]);
    call_free(&j->c);
}

static void on_the_device(joint_call *j, attn_context *c)
{
    attn_error error = ATTN_ERROR_INIT;
    there t[10];
    const DLTensor **args[] = {&j->c.args.q,        &j->c.args.k,
                               &j->c.args.v,        &j->c.args.out,
                               &j->c.args.joint_q,  &j->c.args.joint_k,
                               &j->c.args.joint_v,  &j->c.args.joint_out,
                               &j->c.args.key_mask, &j->c.args.joint_key_mask};
    const tensor *from[] = {&j->c.q, &j->c.k, &j->c.v,  &j->c.out, &j->jq,
                            &j->jk,  &j->jv,  &j->jout, &j->kmask, &j->jmask};
    for (int i = 0; i < 10; i++)
        if (*args[i])
            *args[i] = send(c, &t[i], from[i]);
        else
            t[i].memory = NULL;
    j->c.layer.device = gpu;
    attn_layer *layer = layer_open(c, &j->c.layer);
    if (attn_forward(layer, &j->c.args, &error)) fail_msg("%s", error.text);
    fetch(c, &t[3]), fetch(c, &t[7]);
    attn_layer_close(layer);
    for (int i = 0; i < 10; i++) attn_device_free(c, gpu, t[i].memory);
}

static void one_joint_case(int form)
{
    joint_call j;
    attn_context *c = open_fake();
    make_joint(&j);
    j.c.args.joint_order = form & 1 ? ATTN_JOINT_REAR : ATTN_JOINT_FRONT;
    if (form & 2) j.c.args.key_mask = &j.kmask.dl;
    if (form & 4) j.c.args.joint_key_mask = &j.jmask.dl;
    if (form & 8) heads_first(&j.c.q), heads_first(&j.jk), heads_first(&j.c.out);
    call_run(&j.c);
    tensor_copy(&j.want[0].dl, &j.c.out.dl), tensor_copy(&j.want[1].dl, &j.jout.dl);
    tensor_fill(&j.c.out, 0), tensor_fill(&j.jout, 0);
    on_the_device(&j, c);
    tensor_same("out", &j.c.out.dl, &j.want[0].dl);
    tensor_same("joint_out", &j.jout.dl, &j.want[1].dl);
    unmake_joint(&j);
    attn_close(c);
    assert_int_equal(*regions, 0);
}

static void joint_tensors_are_joined_on_the_device(void **state)
{
    (void)state;
    for (int form = 0; form < 16; form++) one_joint_case(form);
}

static void what_a_device_cannot_join_is_refused(void **state)
{
    (void)state;
    joint_call j;
    attn_context *c = open_fake();
    make_joint(&j);
    j.c.layer.device = gpu;
    const DLTensor **args[] = {&j.c.args.q,       &j.c.args.k,       &j.c.args.v,       &j.c.args.out,
                               &j.c.args.joint_q, &j.c.args.joint_k, &j.c.args.joint_v, &j.c.args.joint_out};
    const tensor *from[] = {&j.c.q, &j.c.k, &j.c.v, &j.c.out, &j.jq, &j.jk, &j.jv, &j.jout};
    DLTensor t[8]; /* refused before anything is touched */
    for (int i = 0; i < 8; i++) t[i] = from[i]->dl, t[i].device = gpu, *args[i] = &t[i];
    int64_t strides[] = {JQ * H * DIM, H * DIM, 1, H};
    t[4].strides = strides;
    attn_layer *layer = layer_open(c, &j.c.layer);
    attn_forward(layer, &j.c.args, &j.c.error);
    assert_int_equal(j.c.error.kind, ATTN_KIND_FEATURE_UNSUPPORTED);
    text_has(j.c.error.text, "joint_q cannot be joined on its device");
    attn_layer_close(layer);
    unmake_joint(&j);
    attn_close(c);
}

/* ---- workspaces --------------------------------------------------------------------------------- */

typedef struct plain_call {
    attn_layer *layer;
    attn_args args;
    there t[4];
    test_call c;
} plain_call;

static void make_plain(plain_call *p, attn_context *c)
{
    call_make(&p->c, "TORCH_SDPA", ATTN_F32, (dims){1, 8, 8, 2, 2, 8, 8});
    call_mix32(&p->c, 1, 2, 3);
    p->args = (attn_args){.size = sizeof p->args};
    p->args.q = send(c, &p->t[0], &p->c.q), p->args.k = send(c, &p->t[1], &p->c.k);
    p->args.v = send(c, &p->t[2], &p->c.v), p->args.out = send(c, &p->t[3], &p->c.out);
    p->c.layer.device = gpu;
    p->layer = layer_open(c, &p->c.layer);
}

static void unmake_plain(plain_call *p, attn_context *c)
{
    attn_layer_close(p->layer);
    for (int i = 0; i < 4; i++) attn_device_free(c, gpu, p->t[i].memory);
    call_free(&p->c);
}

static void go(plain_call *p, void *stream)
{
    attn_error error = ATTN_ERROR_INIT;
    p->args.stream = stream;
    if (attn_forward(p->layer, &p->args, &error)) fail_msg("%s", error.text);
}

static void a_stream_keeps_its_workspace(void **state)
{
    (void)state;
    attn_context *c = open_fake();
    plain_call p;
    size_t bytes = 0;
    void *memory;
    char streams[2];
    make_plain(&p, c);
    int before = *regions;
    attn_error error = ATTN_ERROR_INIT;
    assert_int_equal(attn_workspace_size(p.layer, &p.args, &bytes, &error), 0);
    assert_int_equal(bytes, 4096 + 64); /* one worker, whatever threads the host has */
    for (int i = 0; i < 3; i++) go(&p, NULL);
    assert_int_equal(*regions, before + 1);
    go(&p, &streams[0]), go(&p, &streams[1]), go(&p, &streams[0]);
    assert_int_equal(*regions, before + 3);
    assert_int_equal(attn_device_alloc(c, gpu, bytes, &memory, &error), 0);
    p.args.workspace = memory, p.args.workspace_bytes = bytes;
    go(&p, &p);
    assert_int_equal(*regions, before + 4); /* the caller's own and no other */
    attn_device_free(c, gpu, memory);
    unmake_plain(&p, c);
    attn_close(c);
    assert_int_equal(*regions, 0);
}

static void *run_many(void *arg)
{
    plain_call *p = arg;
    for (int i = 0; i < 50; i++) go(p, NULL);
    return NULL;
}

static void threads_share_a_stream(void **state)
{
    (void)state;
    enum { THREADS = 3 };
    attn_context *c = open_fake();
    plain_call p[THREADS];
    pthread_t id[THREADS];
    tensor want;
    for (int i = 0; i < THREADS; i++) make_plain(&p[i], c);
    go(&p[0], NULL);
    fetch(c, &p[0].t[3]);
    tensor_make(&want, ATTN_F32, 4, p[0].c.out.shape);
    tensor_copy(&want.dl, &p[0].c.out.dl);
    for (int i = 0; i < THREADS; i++) pthread_create(&id[i], NULL, run_many, &p[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(id[i], NULL);
    for (int i = 0; i < THREADS; i++) {
        fetch(c, &p[i].t[3]);
        tensor_same("out", &p[i].c.out.dl, &want.dl);
        unmake_plain(&p[i], c);
    }
    tensor_free(&want);
    attn_close(c);
    assert_int_equal(*regions, 0);
}

/* ---- alignment and long refusals ---------------------------------------------------------------- */

static int64_t align_of(attn_dtype dtype, const int64_t *shape, const int64_t *strides, uintptr_t address)
{
    tensor t;
    attn_view view;
    attn_error error = ATTN_ERROR_INIT;
    tensor_view(&t, dtype, 4, shape, strides, (void *)address);
    if (attn_view_read("t", &t.dl, 4, 4, &view, &error)) fail_msg("%s", error.text);
    return attn_view_align(&view, 64);
}

static void alignment_is_that_of_rows(void **state)
{
    (void)state;
    const int64_t shape[] = {2, 8, 4, 64}, dense[] = {2048, 256, 64, 1}, odd[] = {2056, 257, 64, 1},
                  strided[] = {4096, 512, 128, 2}, padded[] = {8 * 264, 264, 64, 1};
    assert_int_equal(align_of(ATTN_BF16, shape, dense, 4096), 64);
    assert_int_equal(align_of(ATTN_BF16, shape, dense, 4096 + 16), 16);
    assert_int_equal(align_of(ATTN_BF16, shape, odd, 4096), 2);
    assert_int_equal(align_of(ATTN_BF16, shape, padded, 4096), 16);
    assert_int_equal(align_of(ATTN_BF16, shape, strided, 4096), 4);
    assert_int_equal(align_of(ATTN_F32, shape, dense, 4096), 64);
}

static void too_many_clauses_end_in_a_number(void **state)
{
    (void)state;
    attn_clauses list = {0};
    char text[120], clause[40];
    for (int i = 0; i < 30; i++) {
        snprintf(clause, sizeof clause, "reason %d against this; say so", i);
        attn_clauses_add(&list, clause);
    }
    assert_string_equal(attn_clauses_say(&list, text, sizeof text),
                        "reason 0 against this; say so; reason 1 against this; say so; "
                        "reason 2 against this; say so; and 27 more");
    list = (attn_clauses){0};
    attn_clauses_add(&list, "one");
    assert_string_equal(attn_clauses_say(&list, text, sizeof text), "one");
    attn_clauses_add(&list, "two");
    assert_string_equal(attn_clauses_say(&list, text, sizeof text), "one; two");
}

static void long_sentences_end_in_a_whole_word(void **state)
{
    (void)state;
    attn_error error = ATTN_ERROR_INIT;
    char words[9 * 900] = "";
    for (int i = 0; i < 890; i++) strcat(words, "sentence ");
    attn_fail(&error, ATTN_KIND_INTERNAL, "%s", words);
    assert_string_equal(error.text + strlen(error.text) - 13, " sentence ...");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_goes_there_and_back),
        cmocka_unit_test(what_cannot_be_is_told),
        cmocka_unit_test(joint_tensors_are_joined_on_the_device),
        cmocka_unit_test(what_a_device_cannot_join_is_refused),
        cmocka_unit_test(a_stream_keeps_its_workspace),
        cmocka_unit_test(threads_share_a_stream),
        cmocka_unit_test(alignment_is_that_of_rows),
        cmocka_unit_test(too_many_clauses_end_in_a_number),
        cmocka_unit_test(long_sentences_end_in_a_whole_word),
    };
    return cmocka_run_group_tests(tests, find_counters, NULL);
}
