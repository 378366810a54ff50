/* pool.h: runs tiles of rows on several threads.
 *
 * The matrix products are cut into tiles of rows, and each thread calls a single-threaded OpenBLAS for its
 * tile. OpenBLAS' own threads would spin for a while after each product, on the cores that attention needs
 * next; the threads of this pool sleep instead, and a tile stays in a core's cache from one product to the
 * next. */
#ifndef VIDEO_DIT_POOL_H
#define VIDEO_DIT_POOL_H

#include <stdint.h>

typedef struct pool pool;
typedef void (*pool_task)(void *arg, int64_t index, int worker);

/* NULL: no memory. Fewer threads than asked for is no failure: pool_threads says how many there are. */
pool *pool_open(int threads);
void pool_close(pool *p);
int pool_threads(const pool *p);

/* Calls task once for each index in [0, count), with 0 <= worker < threads; returns when all are done. */
void pool_run(pool *p, int64_t count, pool_task task, void *arg);

#endif
