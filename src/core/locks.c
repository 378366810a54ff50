/* locks.c: mutexes that a forked child finds unlocked. */
#include "core/locks.h"

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static attn_lock *all;

static void before_fork(void)
{
    pthread_mutex_lock(&list_lock);
    for (attn_lock *l = all; l; l = l->next) pthread_mutex_lock(&l->mutex);
}

static void after_fork(void)
{
    for (attn_lock *l = all; l; l = l->next) pthread_mutex_unlock(&l->mutex);
    pthread_mutex_unlock(&list_lock);
}

/* Without memory for the handlers forks are as they were before: safe when no call is under way. */
static void handle_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

void attn_lock_init(attn_lock *lock)
{
    pthread_once(&once, handle_forks);
    pthread_mutex_init(&lock->mutex, NULL);
    pthread_mutex_lock(&list_lock);
    lock->next = all;
    lock->link = &all;
    if (all) all->link = &lock->next;
    all = lock;
    pthread_mutex_unlock(&list_lock);
}

void attn_lock_destroy(attn_lock *lock)
{
    pthread_mutex_lock(&list_lock);
    *lock->link = lock->next;
    if (lock->next) lock->next->link = lock->link;
    pthread_mutex_unlock(&list_lock);
    pthread_mutex_destroy(&lock->mutex);
}

void attn_lock_take(attn_lock *lock)
{
    pthread_mutex_lock(&lock->mutex);
}

void attn_lock_give(attn_lock *lock)
{
    pthread_mutex_unlock(&lock->mutex);
}
