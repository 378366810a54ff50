/* clock.h: the time that choosing blocks takes. */
#ifndef ATTN_SPARSE_CLOCK_H
#define ATTN_SPARSE_CLOCK_H

#include <time.h>

/* Seconds since some moment; runs evenly. */
static inline double sparse_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
