/* machine.c: threads, forks, memory, and contexts beside one another. */
#include "field.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void thread_counts(const char *backend)
{
    static const int threads[] = {1, 2, 3, 8};
    test_call first, c;
    call_make(&first, backend, ATTN_F32, (dims){2, 64, 64, 4, 4, 64, 64});
    call_mix32(&first, 190, 191, 192);
    first.options.threads = 1;
    call_run(&first);
    for (int i = 0; i < 4; i++) {
        call_make(&c, backend, ATTN_F32, (dims){2, 64, 64, 4, 4, 64, 64});
        call_mix32(&c, 190, 191, 192);
        c.options.threads = threads[i];
        attn_context *context = context_open(&c.options);
        for (int turn = 0; turn < 20; turn++) {
            memset(c.out.memory, 0xff, c.out.bytes);
            if (call_try_in(&c, context)) fail_msg("%s: %s", backend, c.error.text);
            assert_memory_equal(c.out.memory, first.out.memory, c.out.bytes);
            assert_memory_equal(c.lse.memory, first.lse.memory, c.lse.bytes);
        }
        attn_close(context);
        call_free(&c);
    }
    call_free(&first);
}

void determinism_01(void **state)
{
    (void)state;
    FOR_BACKENDS(backend) thread_counts(*backend);
}

/* ---- determinism-03: two host threads in one context ---- */

#define CALLS (TEST_TSAN || TEST_ASAN ? 40 : 200)

typedef struct worker {
    attn_context *context;
    test_call c;
    tensor alone;
    int wrong, failed;
    pthread_t thread;
} worker;

/* No cmocka in here: its assertions jump, which only the main thread may. */
static void *call_many(void *arg)
{
    worker *w = arg;
    for (int i = 0; i < CALLS; i++) {
        memset(w->c.out.memory, 0xff, w->c.out.bytes);
        w->failed += call_try_in(&w->c, w->context) != ATTN_OK;
        w->wrong += memcmp(w->c.out.memory, w->alone.memory, w->c.out.bytes) != 0;
    }
    return NULL;
}

static void two_callers(const char *backend)
{
    worker w[2];
    attn_options options = {.size = sizeof options, .backend = backend, .module_path = ""};
    attn_context *context = context_open(&options);
    for (uint32_t i = 0; i < 2; i++) {
        w[i].context = context;
        w[i].wrong = w[i].failed = 0;
        call_make(&w[i].c, backend, ATTN_F32, (dims){1, 128, 128, 4, 4, 64, 64});
        call_mix32(&w[i].c, 10 * i + 1, 10 * i + 2, 10 * i + 3);
        if (call_try_in(&w[i].c, context)) fail_msg("%s: %s", backend, w[i].c.error.text);
        tensor_make(&w[i].alone, ATTN_F32, 4, w[i].c.out.shape);
        tensor_copy(&w[i].alone.dl, &w[i].c.out.dl);
    }
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&w[i].thread, NULL, call_many, &w[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(w[i].thread, NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w[i].failed, 0);
        assert_int_equal(w[i].wrong, 0);
        tensor_free(&w[i].alone);
        call_free(&w[i].c);
    }
    attn_close(context);
}

void determinism_03(void **state)
{
    (void)state;
    FOR_BACKENDS(backend) two_callers(*backend);
}

/* ---- process-01: a call in a forked child ---- */

enum { CHILD_SAME_BITS = 0, CHILD_CLEAN_ERROR = 10, CHILD_OTHER_BITS, CHILD_UNCLEAR_ERROR };

static int in_child(test_call *c, attn_context *context, const void *before)
{
    alarm(20); /* ends a child that hangs */
    memset(c->out.memory, 0xff, c->out.bytes);
    if (call_try_in(c, context) != ATTN_OK)
        return strstr(c->error.text, "fork") ? CHILD_CLEAN_ERROR : CHILD_UNCLEAR_ERROR;
    return memcmp(c->out.memory, before, c->out.bytes) ? CHILD_OTHER_BITS : CHILD_SAME_BITS;
}

static void fork_after_use(const char *backend)
{
    test_call c;
    call_make(&c, backend, ATTN_F32, (dims){2, 64, 64, 4, 4, 64, 64});
    call_mix32(&c, 1, 2, 3);
    c.options.threads = 4;
    attn_context *context = context_open(&c.options);
    if (call_try_in(&c, context)) fail_msg("%s: %s", backend, c.error.text);
    void *before = malloc(c.out.bytes);
    assert_non_null(before);
    memcpy(before, c.out.memory, c.out.bytes);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(in_child(&c, context, before));
    int end = 0;
    assert_int_equal(waitpid(child, &end, 0), child);
    if (WIFSIGNALED(end)) fail_msg("%s: the child was ended by signal %d", backend, WTERMSIG(end));
    assert_true(WEXITSTATUS(end) == CHILD_SAME_BITS || WEXITSTATUS(end) == CHILD_CLEAN_ERROR);
    /* The parent's threads are as they were. */
    if (call_try_in(&c, context)) fail_msg("%s: %s", backend, c.error.text);
    assert_memory_equal(c.out.memory, before, c.out.bytes);
    free(before);
    attn_close(context);
    call_free(&c);
}

void process_01(void **state)
{
    (void)state;
    if (TEST_TSAN) SKIP_BECAUSE("ThreadSanitizer ends a forked child that starts threads");
    FOR_BACKENDS(backend) fork_after_use(*backend);
}

/* ---- process-04: eight callers share one pool ---- */

typedef struct crowd {
    attn_context *context;
    const char *backend;
    pthread_barrier_t *start;
    pthread_t thread;
    int most, failed;
} crowd;

static void *call_in_crowd(void *arg)
{
    crowd *w = arg;
    test_call c;
    call_make(&c, w->backend, ATTN_F32, (dims){1, 256, 256, 8, 8, 64, 64});
    call_mix32(&c, 1, 2, 3);
    pthread_barrier_wait(w->start);
    for (int i = 0; i < 5; i++) {
        w->failed += call_try_in(&c, w->context) != ATTN_OK;
        int now = task_count();
        if (now > w->most) w->most = now;
    }
    call_free(&c);
    return NULL;
}

static void eight_callers(const char *backend)
{
    crowd w[8];
    pthread_barrier_t start;
    attn_options options = {.size = sizeof options, .backend = backend, .module_path = ""};
    attn_context *context = context_open(&options);
    attn_context_info info = {.size = sizeof info};
    attn_context_get_info(context, &info);
    int before = task_count();
    assert_int_equal(pthread_barrier_init(&start, NULL, 8), 0);
    for (int i = 0; i < 8; i++) {
        w[i] = (crowd){.context = context, .backend = backend, .start = &start};
        assert_int_equal(pthread_create(&w[i].thread, NULL, call_in_crowd, &w[i]), 0);
    }
    for (int i = 0; i < 8; i++) pthread_join(w[i].thread, NULL);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(w[i].failed, 0);
        if (w[i].most - before - 8 > info.threads)
            fail_msg("%d threads beside the 8 callers, expected at most %d", w[i].most - before - 8,
                     info.threads);
    }
    pthread_barrier_destroy(&start);
    attn_close(context);
}

void process_04(void **state)
{
    (void)state;
    if (TEST_TSAN) SKIP_BECAUSE("ThreadSanitizer has a thread of its own in the count");
    FOR_BACKENDS(backend) eight_callers(*backend);
}

/* ---- memory-01: a key mask stays one row ---- */

static double not_the_last_63(int64_t n, const void *arg)
{
    (void)arg;
    return n < 20000 - 63;
}

static void long_masked_call(const char *backend)
{
    test_call c;
    counting memory;
    tensor key_mask;
    counting_init(&memory);
    call_make(&c, backend, ATTN_F32, (dims){1, 20000, 20000, 1, 1, 16, 16});
    call_mix32(&c, 200, 201, 202);
    tensor_make(&key_mask, ATTN_BOOL, 2, (int64_t[]){1, 20000});
    tensor_generate(&key_mask, not_the_last_63, NULL);
    c.args.key_mask = &key_mask.dl;
    c.options.allocator = &memory.allocator;
    memset(c.out.memory, 0, c.out.bytes); /* the caller's own pages are real before counting starts */
    memset(c.lse.memory, 0, c.lse.bytes);
    int counted = reset_peak_memory();
    int64_t before = status_kib("VmRSS");
    call_run(&c);
    int64_t extra = status_kib("VmHWM") - before;
    assert_true(memory.peak_bytes > 0 && memory.peak_bytes < 64 << 20);
    if (counted == 0 && extra >= 64 << 10)
        fail_msg("%s: %lld KiB more than before", backend, (long long)extra);
    if (counted)
        print_message("the peak of /proc/self/status cannot be reset here; only allocations were counted\n");
    assert_false(tensor_flat(&c.out.dl, 0) == 0);
    tensor_free(&key_mask);
    call_free(&c);
}

void memory_01(void **state)
{
    (void)state;
    if (TEST_ASAN || TEST_TSAN) SKIP_BECAUSE("a sanitizer's own memory is in the count");
    FOR_BACKENDS(backend) long_masked_call(*backend);
}

/* ---- isolation-01: a choice of one context is its own ---- */

static void use(attn_context *context, attn_dtype dtype, const char *implementation, attn_status status)
{
    test_call c;
    call_make(&c, NULL, dtype, (dims){1, 3, 1, 2, 2, 8, 8}); /* one key: attention is its value */
    c.args.lse = NULL;
    c.layer.dtype = dtype;
    call_mix32(&c, 1, 2, 3);
    attn_status got = call_try_in(&c, context);
    if (got != status) fail_msg("status %d, expected %d: %s", got, status, c.error.text);
    if (status == ATTN_OK) {
        for (int64_t n = 0; n < 3 * 16; n++)
            value_near("out", tensor_flat(&c.out.dl, n), tensor_flat(&c.v.dl, n % 16), 0);
        if (implementation)
            assert_string_equal(c.implementation, implementation);
        else
            assert_string_not_equal(c.implementation, "f16_only_dense");
    } else {
        assert_int_equal(c.error.kind, ATTN_KIND_DTYPE_UNSUPPORTED);
        text_has(c.error.text, "fp32");
        text_has(c.error.text, "fp16");
    }
    call_free(&c);
}

void isolation_01(void **state)
{
    (void)state;
    attn_options a = {.size = sizeof a,
                      .backend = "FLASH_ATTN",
                      .module_path = FIXTURE("f16_only"),
                      .overrides = "FLASH_ATTN=f16_only_dense"};
    attn_options b = {.size = sizeof b, .backend = "auto", .module_path = ""};
    attn_context *first = context_open(&a);
    use(first, ATTN_F16, "f16_only_dense", ATTN_OK);
    attn_context *second = context_open(&b);
    use(second, ATTN_F32, NULL, ATTN_OK);
    use(first, ATTN_F32, NULL, ATTN_UNSUPPORTED);
    use(first, ATTN_F16, "f16_only_dense", ATTN_OK);
    use(second, ATTN_F32, NULL, ATTN_OK);
    attn_close(first);
    use(second, ATTN_F16, NULL, ATTN_OK);
    attn_close(second);
}
