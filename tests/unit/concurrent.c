/* concurrent.c: many host threads in one context and in many, with a plan cache that is too small for them.
 */
#include "support.h"

#include <pthread.h>
#include <string.h>

enum { THREADS = 4, SHAPES = 5, ROUNDS = TEST_TSAN || TEST_ASAN ? 20 : 60 };

/* The calls with their right answers, made by one thread before the others start. */
typedef struct problem {
    test_call c;
    tensor want;
} problem;

static problem problems[SHAPES];

static void make_problems(const char *backend)
{
    static const dims shapes[SHAPES] = {{1, 33, 33, 2, 2, 16, 16},
                                        {2, 1, 200, 4, 1, 8, 24},
                                        {1, 64, 64, 2, 1, 64, 64},
                                        {1, 7, 300, 1, 1, 32, 32},
                                        {3, 5, 5, 2, 2, 8, 8}};
    for (int n = 0; n < SHAPES; n++) {
        call_make(&problems[n].c, backend, n % 2 ? ATTN_BF16 : ATTN_F32, shapes[n]);
        call_mix32(&problems[n].c, 1, 2, 3);
        problems[n].c.layer.causal = n == 2;
        call_run(&problems[n].c);
        tensor_make(&problems[n].want, n % 2 ? ATTN_BF16 : ATTN_F32, 4, problems[n].c.out.shape);
        tensor_copy(&problems[n].want.dl, &problems[n].c.out.dl);
    }
}

static void free_problems(void)
{
    for (int n = 0; n < SHAPES; n++) {
        tensor_free(&problems[n].want);
        call_free(&problems[n].c);
    }
}

typedef struct worker {
    pthread_t thread;
    attn_context *shared; /* NULL: a context of its own for every round */
    const char *backend;
    int index, failed, wrong;
} worker;

/* Assertions of cmocka belong to the main thread; a worker counts. */
static void one_round(worker *w, attn_context *context, int round)
{
    const problem *p = &problems[(w->index + round) % SHAPES];
    test_call c = p->c; /* inputs are shared, outputs are this thread's own */
    tensor out;
    int64_t *shape = (int64_t *)(uintptr_t)p->c.out.shape;
    tensor_make(&out, attn_dtype_from_dl(p->c.out.dl.dtype), 4, shape);
    c.args.out = &out.dl;
    c.args.lse = NULL;
    c.args.q = &p->c.q.dl, c.args.k = &p->c.k.dl, c.args.v = &p->c.v.dl;
    w->failed += call_try_in(&c, context) != ATTN_OK;
    w->wrong += memcmp(out.memory, p->want.memory, out.bytes) != 0;
    tensor_free(&out);
}

static void *work(void *arg)
{
    worker *w = arg;
    attn_error error = ATTN_ERROR_INIT;
    for (int round = 0; round < ROUNDS; round++) {
        attn_context *context = w->shared;
        attn_options options = {
            .size = sizeof options, .backend = w->backend, .module_path = "", .threads = 1 + round % 3};
        if (!context && attn_open(&options, &context, &error) != ATTN_OK) {
            w->failed++;
            continue;
        }
        one_round(w, context, round);
        if (!w->shared) attn_close(context);
    }
    return NULL;
}

static void run_workers(const char *backend, attn_context *shared)
{
    worker w[THREADS];
    for (int i = 0; i < THREADS; i++) {
        w[i] = (worker){.shared = shared, .backend = backend, .index = i};
        assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(w[i].thread, NULL);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(w[i].failed, 0);
        assert_int_equal(w[i].wrong, 0);
    }
}

static void one_context_many_threads(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        counting memory;
        counting_init(&memory);
        attn_options options = {.size = sizeof options,
                                .backend = *backend,
                                .module_path = "",
                                .plan_cache = 2,
                                .threads = 3,
                                .allocator = &memory.allocator};
        make_problems(*backend);
        attn_context *context = context_open(&options);
        run_workers(*backend, context);
        attn_close(context);
        assert_int_equal(memory.live_blocks, 0);
        free_problems();
    }
}

static void many_contexts_many_threads(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        make_problems(*backend);
        run_workers(*backend, NULL);
        free_problems();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_context_many_threads),
        cmocka_unit_test(many_contexts_many_threads),
    };
    return cmocka_run_group_tests_name("concurrent", tests, NULL, NULL);
}
