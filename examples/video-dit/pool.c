/* pool.c: a few threads that sleep until there are tiles. */
#include "pool.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

typedef struct member {
    pool *owner;
    pthread_t thread;
    int worker;
} member;

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    int threads; /* the caller is one of them: worker 0 */
    int busy;    /* threads that have not finished the current job */
    uint64_t job;
    int closing;
    int64_t next, count; /* under the lock: tiles take milliseconds, so nobody waits for it */
    pool_task task;
    void *arg;
    member members[];
};

static void run_tiles(pool *p, int worker)
{
    for (;;) {
        pthread_mutex_lock(&p->lock);
        int64_t index = p->next < p->count ? p->next++ : -1;
        pthread_mutex_unlock(&p->lock);
        if (index < 0) return;
        p->task(p->arg, index, worker);
    }
}

static void *serve(void *arg)
{
    member *self = arg;
    pool *p = self->owner;
    uint64_t seen = 0;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->closing && p->job == seen) pthread_cond_wait(&p->work, &p->lock);
        if (p->closing) break;
        seen = p->job;
        pthread_mutex_unlock(&p->lock);
        run_tiles(p, self->worker);
        pthread_mutex_lock(&p->lock);
        if (--p->busy == 0) pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Signals stay with the main thread. */
static int start(member *m)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int rc = pthread_create(&m->thread, NULL, serve, m);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

pool *pool_open(int threads)
{
    pool *p = calloc(1, sizeof *p + (size_t)threads * sizeof *p->members);
    if (!p) return NULL;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->done, NULL);
    for (p->threads = 1; p->threads < threads; p->threads++) {
        member *m = &p->members[p->threads];
        *m = (member){.owner = p, .worker = p->threads};
        if (start(m)) break;
    }
    return p;
}

void pool_close(pool *p)
{
    if (!p) return;
    pthread_mutex_lock(&p->lock);
    p->closing = 1;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (int i = 1; i < p->threads; i++) pthread_join(p->members[i].thread, NULL);
    pthread_cond_destroy(&p->work);
    pthread_cond_destroy(&p->done);
    pthread_mutex_destroy(&p->lock);
    free(p);
}

int pool_threads(const pool *p)
{
    return p->threads;
}

void pool_run(pool *p, int64_t count, pool_task task, void *arg)
{
    pthread_mutex_lock(&p->lock);
    p->next = 0;
    p->count = count;
    p->task = task;
    p->arg = arg;
    p->busy = p->threads - 1;
    p->job++;
    if (p->busy) pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    run_tiles(p, 0);
    pthread_mutex_lock(&p->lock);
    while (p->busy) pthread_cond_wait(&p->done, &p->lock);
    pthread_mutex_unlock(&p->lock);
}
