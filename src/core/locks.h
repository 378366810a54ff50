/* locks.h: mutexes that a forked child finds unlocked. */
#ifndef ATTN_CORE_LOCKS_H
#define ATTN_CORE_LOCKS_H

#include <pthread.h>

/* A fork takes every such lock first and both sides release it, so that a child never waits for a thread that
 * exists only in the parent. Whoever holds one takes no other. */
typedef struct attn_lock {
    pthread_mutex_t mutex;
    struct attn_lock *next, **link; /* list of all, guarded by itself */
} attn_lock;

void attn_lock_init(attn_lock *lock);
void attn_lock_destroy(attn_lock *lock);
void attn_lock_take(attn_lock *lock);
void attn_lock_give(attn_lock *lock);

#endif
