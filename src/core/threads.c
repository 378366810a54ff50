/* threads.c: the pool of worker threads that all contexts of the process share.
 *
 * A call puts a job in a queue and works on it itself; idle workers join the job while it has indices left
 * and leave it when it has none. So a call never waits for a worker that is busy elsewhere. `active` counts
 * the threads inside any call: a worker joins, and stays, only while that count is within the job's limit,
 * which keeps several calling threads from filling the machine many times over. */
#include "core/threads.h"

#include <attn/module.h>

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct job {
    struct job *next;
    attn_task_fn task;
    void *arg;
    int64_t count;
    _Atomic int64_t cursor;  /* the next index nobody has taken */
    int32_t wanted;          /* helpers that may still join */
    _Atomic int32_t running; /* helpers inside; changed under the lock */
    int32_t limit;           /* of the threads inside all calls, for helpers of this job */
    int32_t spin_us;
    int32_t has_cpus;
    uint64_t generation;
    cpu_set_t cpus;                               /* where its helpers run */
    uint64_t numbers[ATTN_POOL_WORKERS_MAX / 64]; /* worker numbers in use */
};

struct worker {
    struct worker *next;
    pthread_t thread;
    int32_t asleep;   /* under the lock */
    int32_t has_cpus; /* with the next: the worker's own, but under the lock while it sleeps */
    cpu_set_t cpus;
};

static struct {
    pthread_mutex_t life; /* held through acquire and release; taken before lock */
    pthread_mutex_t lock; /* of all fields below but the atomic ones */
    pthread_cond_t work;  /* idle workers wait here */
    pthread_cond_t done;  /* callers wait here for their helpers */
    int64_t references;
    int32_t allowed; /* threads that the machine allows */
    int32_t threads;
    int32_t idle;   /* workers in no job: */
    int32_t asleep; /* those that wait for a signal, */
    int32_t awake;  /* and those that will look for a job soon */
    int32_t stopping;
    int32_t fork_handled;
    uint64_t generation; /* counts forks: a job or worker of an older generation lost its threads */
    struct worker *workers;
    struct job *jobs;       /* in order of arrival */
    _Atomic int32_t opened; /* jobs so far, modulo 2^32; changed under the lock */
    _Atomic int32_t wanted; /* sum over jobs */
    _Atomic int32_t active; /* threads inside a call, each once */
} pool = {.life = PTHREAD_MUTEX_INITIALIZER,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .work = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

/* How many calls this thread is inside of; nested ones do not count again in pool.active. */
static _Thread_local int32_t depth;

/* ---- a job's bookkeeping, under the lock ------------------------------------------------------ */

static struct job *joinable(void)
{
    for (struct job *job = pool.jobs; job; job = job->next)
        if (job->wanted > 0 && atomic_load(&pool.active) < job->limit &&
            atomic_load_explicit(&job->cursor, memory_order_relaxed) < job->count)
            return job;
    return NULL;
}

static int32_t take_number(struct job *job)
{
    int32_t word = 0;
    while (job->numbers[word] == UINT64_MAX) word++;
    int32_t bit = __builtin_ctzll(~job->numbers[word]);
    job->numbers[word] |= (uint64_t)1 << bit;
    return word * 64 + bit;
}

static int32_t join(struct job *job)
{
    pool.idle--;
    job->wanted--;
    job->running++;
    atomic_fetch_sub(&pool.wanted, 1);
    return take_number(job);
}

static void leave(struct job *job, int32_t number)
{
    job->numbers[number / 64] &= ~((uint64_t)1 << number % 64);
    job->wanted++;
    atomic_fetch_add(&pool.wanted, 1);
    pool.idle++;
    if (--job->running == 0) pthread_cond_broadcast(&pool.done);
}

static void enqueue(struct job *job)
{
    struct job **end = &pool.jobs;
    while (*end) end = &(*end)->next;
    *end = job;
    atomic_fetch_add(&pool.opened, 1);
    atomic_fetch_add(&pool.wanted, job->wanted);
}

static void dequeue(struct job *job)
{
    struct job **at = &pool.jobs;
    while (*at && *at != job) at = &(*at)->next;
    if (!*at) return;
    *at = job->next;
    atomic_fetch_sub(&pool.wanted, job->wanted);
    job->wanted = 0;
}

/* ---- running ---------------------------------------------------------------------------------- */

/* Leaves the count of active threads when it is above the limit; several helpers may try, and only as many
 * succeed as are too many. */
static int retire(int32_t limit)
{
    int32_t active = atomic_load(&pool.active);
    while (active > limit)
        if (atomic_compare_exchange_weak(&pool.active, &active, active - 1)) return 1;
    return 0;
}

/* Takes indices until none is left. Returns 1 when a helper left before, having retired. */
static int run_tasks(struct job *job, int32_t number)
{
    for (;;) {
        int64_t index = atomic_fetch_add_explicit(&job->cursor, 1, memory_order_relaxed);
        if (index >= job->count) return 0;
        job->task(job->arg, index, number);
        if (number > 0 && retire(job->limit)) return 1;
    }
}

/* One thread less is active: helpers of a queued job may have waited for that. */
static void deactivate(void)
{
    atomic_fetch_sub(&pool.active, 1);
    if (atomic_load(&pool.wanted) <= 0) return;
    pthread_mutex_lock(&pool.lock);
    if (pool.asleep > 0 && joinable()) pthread_cond_signal(&pool.work);
    pthread_mutex_unlock(&pool.lock);
}

static void enter(void)
{
    if (depth++ == 0) atomic_fetch_add(&pool.active, 1);
}

static void leave_call(void)
{
    if (--depth == 0) deactivate();
}

/* ---- where helpers run ------------------------------------------------------------------------- */

/* A call may be confined to some CPUs; its helpers follow it there, since the pool's threads may have been
 * started by a thread with another affinity. They keep off the CPU that the caller stands on: a system that
 * wakes a thread where the one that woke it runs moves it elsewhere only milliseconds later, and a small call
 * is over by then. */
static void choose_cpus(struct job *job, int32_t allowed)
{
    int cpu = sched_getcpu();
    if (job->wanted < allowed && cpu >= 0 && cpu < CPU_SETSIZE) CPU_CLR((size_t)cpu, &job->cpus);
}

static int stands_right(const struct worker *worker, const struct job *job)
{
    return !job->has_cpus || (worker->has_cpus && CPU_EQUAL(&worker->cpus, &job->cpus));
}

static void follow(struct worker *worker, const struct job *job)
{
    if (stands_right(worker, job)) return;
    worker->has_cpus = sched_setaffinity(0, sizeof job->cpus, &job->cpus) == 0;
    worker->cpus = job->cpus;
}

/* Sleepers are told before they are woken, or they would wake in the wrong place. With more than a few, there
 * are CPUs enough for the system to do well by itself. Under the lock. */
static void place_sleepers(const struct job *job)
{
    enum { MOST = 16 };
    int32_t told = 0;
    for (struct worker *worker = pool.workers; worker && told < MOST; worker = worker->next) {
        if (!worker->asleep || stands_right(worker, job)) continue;
        worker->has_cpus = pthread_setaffinity_np(worker->thread, sizeof job->cpus, &job->cpus) == 0;
        worker->cpus = job->cpus;
        told++;
    }
}

/* ---- waiting ---------------------------------------------------------------------------------- */

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Stays awake until the count is above `most`, or below `least`, or for so many microseconds. */
static void spin(const _Atomic int32_t *count, int32_t least, int32_t most, int32_t microseconds)
{
    int64_t end = now_ns() + (int64_t)microseconds * 1000;
    do {
        for (int i = 0; i < 16; i++) {
            int32_t value = atomic_load_explicit(count, memory_order_relaxed);
            if (value < least || value > most) return;
            relax();
        }
    } while (now_ns() < end);
}

/* ---- a worker's life -------------------------------------------------------------------------- */

/* Joins one job and works on it; called and returns with the lock held. Returns 0 when the process was forked
 * meanwhile and this thread is the child's only one: the job's memory is then no longer its caller's. */
static int help(struct worker *worker, struct job *job)
{
    uint64_t generation = pool.generation;
    int32_t number = join(job);
    atomic_fetch_add(&pool.active, 1);
    pthread_mutex_unlock(&pool.lock);

    follow(worker, job);
    depth = 1;
    int retired = run_tasks(job, number);
    depth = 0;
    if (!retired) atomic_fetch_sub(&pool.active, 1);

    pthread_mutex_lock(&pool.lock);
    if (pool.generation != generation) return 0;
    leave(job, number);
    return 1;
}

/* Waits for something to do, with the lock held before and after: awake first, when a job has just ended. */
static void rest(struct worker *worker, int32_t spin_us)
{
    if (spin_us > 0) {
        int32_t opened = atomic_load(&pool.opened);
        pool.awake++;
        pthread_mutex_unlock(&pool.lock);
        spin(&pool.opened, opened, opened, spin_us);
        pthread_mutex_lock(&pool.lock);
        pool.awake--;
        return;
    }
    worker->asleep = 1;
    pool.asleep++;
    pthread_cond_wait(&pool.work, &pool.lock);
    pool.asleep--;
    worker->asleep = 0;
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    int32_t spin_us = 0;
    pthread_mutex_lock(&pool.lock);
    while (!pool.stopping) {
        struct job *job = joinable();
        if (job) {
            spin_us = job->spin_us;
            if (!help(worker, job)) break;
        } else {
            rest(worker, spin_us);
            spin_us = 0;
        }
    }
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

/* ---- growing ---------------------------------------------------------------------------------- */

/* Asynchronous signals belong to the program's own threads. Those that a thread raises by what it does stay
 * open, or the program's handlers for them (and its crash reports) would be passed over. */
static void worker_signals(sigset_t *blocked)
{
    static const int synchronous[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT};
    sigfillset(blocked);
    for (size_t i = 0; i < sizeof synchronous / sizeof *synchronous; i++) sigdelset(blocked, synchronous[i]);
}

/* The thread starts where it will work. */
static int create(struct worker *worker)
{
    pthread_attr_t attributes;
    int failed = pthread_attr_init(&attributes);
    if (failed) return failed;
    if (worker->has_cpus) pthread_attr_setaffinity_np(&attributes, sizeof worker->cpus, &worker->cpus);
    failed = pthread_create(&worker->thread, &attributes, worker_main, worker);
    pthread_attr_destroy(&attributes);
    return failed;
}

static int spawn(const struct job *job)
{
    sigset_t blocked, before;
    char name[16];
    struct worker *worker = calloc(1, sizeof *worker);
    if (!worker) return 0;
    worker->has_cpus = job->has_cpus;
    worker->cpus = job->cpus;
    worker_signals(&blocked);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int failed = create(worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed) {
        free(worker);
        return 0;
    }
    snprintf(name, sizeof name, "attn-%d", (pool.threads + 1) % 10000);
    pthread_setname_np(worker->thread, name);
    worker->next = pool.workers;
    pool.workers = worker;
    pool.threads++;
    pool.idle++;
    return 1;
}

/* Starts what the job could use beyond the idle workers that nobody else wants. A thread that cannot be had
 * is no error: the call runs with fewer. */
static void grow(const struct job *job)
{
    int32_t room = job->limit - atomic_load(&pool.active);
    int32_t missing = job->wanted < room ? job->wanted : room;
    int32_t others = atomic_load(&pool.wanted) - job->wanted;
    if (pool.idle > others) missing -= pool.idle - others;
    while (missing-- > 0 && pool.threads < job->limit - 1)
        if (!spawn(job)) return;
}

/* ---- the call --------------------------------------------------------------------------------- */

static void open_job(struct job *job, int32_t workers)
{
    int32_t allowed = pool.allowed;
    job->wanted = workers - 1;
    job->numbers[0] = 1; /* the caller is worker 0 */
    job->has_cpus = sched_getaffinity(0, sizeof job->cpus, &job->cpus) == 0;
    if (job->has_cpus && CPU_COUNT(&job->cpus) < allowed) allowed = CPU_COUNT(&job->cpus);
    if (job->has_cpus) choose_cpus(job, allowed);
    pthread_mutex_lock(&pool.lock);
    job->limit = workers > allowed ? workers : allowed;
    job->generation = pool.generation;
    enqueue(job);
    grow(job);
    int32_t signals = job->wanted - pool.awake < pool.asleep ? job->wanted - pool.awake : pool.asleep;
    if (signals > 0) place_sleepers(job);
    pthread_mutex_unlock(&pool.lock);
    /* Without the lock, which the woken take first of all. */
    while (signals-- > 0) pthread_cond_signal(&pool.work);
}

static void close_job(struct job *job)
{
    pthread_mutex_lock(&pool.lock);
    dequeue(job);
    if (job->spin_us > 0 && job->running > 0) {
        pthread_mutex_unlock(&pool.lock);
        spin(&job->running, 1, INT32_MAX, job->spin_us);
        pthread_mutex_lock(&pool.lock);
    }
    while (job->running > 0 && job->generation == pool.generation) pthread_cond_wait(&pool.done, &pool.lock);
    pthread_mutex_unlock(&pool.lock);
}

void attn_pool_parallel_for(void *user, int64_t count, int32_t workers, attn_task_fn task, void *arg)
{
    const attn_pool_options *options = user;
    if (count <= 0) return;
    if (workers > count) workers = (int32_t)count;
    if (workers > ATTN_POOL_WORKERS_MAX) workers = ATTN_POOL_WORKERS_MAX;
    struct job job = {.task = task, .arg = arg, .count = count};
    job.spin_us = options ? options->spin_us : ATTN_SPIN_US;
    enter();
    if (workers > 1) open_job(&job, workers);
    run_tasks(&job, 0);
    leave_call(); /* before the wait: a thread that waits keeps no CPU busy */
    if (workers > 1) close_job(&job);
}

/* ---- fork ------------------------------------------------------------------------------------- */

static void before_fork(void)
{
    pthread_mutex_lock(&pool.life);
    pthread_mutex_lock(&pool.lock);
}

static void after_fork_parent(void)
{
    pthread_mutex_unlock(&pool.lock);
    pthread_mutex_unlock(&pool.life);
}

/* The child has none of the workers and, of the calls in flight, at most the one its only thread is in. It
 * starts with an empty pool; that call finishes alone. A wait of a thread that is gone may be recorded in the
 * condition variables, so they are made anew. */
static void after_fork_child(void)
{
    while (pool.workers) {
        struct worker *worker = pool.workers;
        pool.workers = worker->next;
        free(worker);
    }
    pool.generation++;
    pool.threads = pool.idle = pool.asleep = pool.awake = pool.stopping = 0;
    pool.jobs = NULL;
    atomic_store(&pool.wanted, 0);
    atomic_store(&pool.active, depth > 0);
    pthread_cond_init(&pool.work, NULL);
    pthread_cond_init(&pool.done, NULL);
    after_fork_parent();
}

/* ---- life ------------------------------------------------------------------------------------- */

attn_status attn_pool_acquire(attn_error *error)
{
    pthread_mutex_lock(&pool.life);
    int failed = pool.fork_handled ? 0 : pthread_atfork(before_fork, after_fork_parent, after_fork_child);
    if (!failed) {
        pool.fork_handled = 1;
        if (pool.references++ == 0) pool.allowed = attn_threads_default(0, NULL, 0);
    }
    pthread_mutex_unlock(&pool.life);
    if (!failed) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY,
                     "the thread pool's fork handler could not be installed: %s; free memory and try again",
                     strerror(failed));
}

static void stop(void)
{
    pthread_mutex_lock(&pool.lock);
    struct worker *workers = pool.workers;
    pool.workers = NULL;
    pool.stopping = 1;
    pthread_cond_broadcast(&pool.work);
    pthread_mutex_unlock(&pool.lock);
    while (workers) {
        struct worker *worker = workers;
        workers = worker->next;
        pthread_join(worker->thread, NULL);
        free(worker);
    }
    pthread_mutex_lock(&pool.lock);
    pool.threads = pool.idle = pool.stopping = 0;
    pthread_mutex_unlock(&pool.lock);
}

void attn_pool_release(void)
{
    pthread_mutex_lock(&pool.life);
    if (pool.references > 0 && --pool.references == 0) stop();
    pthread_mutex_unlock(&pool.life);
}
