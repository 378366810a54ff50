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

/* An attn_parallel_for_fn; needs a reference to the pool. The caller is worker 0 and always works; it never
 * waits for a worker that is busy elsewhere, so nested and concurrent calls cannot starve, they only get
 * fewer helpers. Runnable threads of all calls together stay near the larger of the CPUs allowed and
 * `workers`. */
void attn_pool_parallel_for(void *user, int64_t count, int32_t workers, attn_task_fn task, void *arg);

#endif
