/* threads.h: how many threads a call may use, and the pool of workers that all contexts share. */
#ifndef ATTN_CORE_THREADS_H
#define ATTN_CORE_THREADS_H

#include <attn/attn.h>

/* How many threads this process may keep busy: the smaller of the caller's CPU affinity and the cgroup quota
 * (rounded up), capped by $ATTN_NUM_THREADS when read_env is set; at least 1. why receives one sentence on
 * where the count comes from; NULL is allowed. Any thread may call. */
int attn_threads_default(int read_env, char *why, size_t bytes);
/* 1: $ATTN_NUM_THREADS holds text that is no number above 0, so that it caps nothing. */
int attn_threads_environment_ignored(void);

/* CPUs that the cgroup of this process may use, in hundredths; 0: no quota. Reads <root>/proc/self/cgroup and
 * <root>/sys/fs/cgroup, version 1 or 2, so that a test can show it another tree; root "" is the machine. */
int64_t attn_threads_quota(const char *root);

/* The most workers a call gets, however many it asks for. */
#define ATTN_POOL_WORKERS_MAX 1024

/* Every context holds one reference. No thread exists before the first call that wants more than one worker;
 * the last release joins them all, after which the library may be unloaded. release must not run inside a
 * task. Fails: out_of_memory. */
attn_status attn_pool_acquire(attn_error *error);
void attn_pool_release(void);

/* A thread of the pool that has nothing to do stays awake for so many microseconds before it sleeps, so that
 * calls which follow one another closely need not wake anybody. Waking costs tens of microseconds, in a
 * virtual machine hundreds. */
#define ATTN_SPIN_US      50
#define ATTN_SPIN_US_MOST 1000000

/* Reads $ATTN_SPIN_US. Returns 0, with the number left as it is, for a text that is none or out of range. */
int attn_spin_read(const char *text, int32_t *microseconds);

/* How a context uses the pool. */
typedef struct attn_pool_options {
    int32_t spin_us; /* 0: sleep at once */
} attn_pool_options;

/* An attn_parallel_for_fn; needs a reference to the pool. user: const attn_pool_options, which must outlive
 * the call; NULL: the defaults above. The caller is worker 0 and always works; it never
 * waits for a worker that is busy elsewhere, so nested and concurrent calls cannot starve, they only get
 * fewer helpers. Helpers keep to the caller's CPUs, and off the one that it stands on when there are enough.
 * Runnable threads of all calls together stay near the larger of the CPUs allowed and `workers`. */
void attn_pool_parallel_for(void *user, int64_t count, int32_t workers, attn_task_fn task, void *arg);

#endif
