/* progress.h: how far the work is, on stderr. */
#ifndef VIDEO_DIT_PROGRESS_H
#define VIDEO_DIT_PROGRESS_H

#include <stdint.h>

typedef struct progress {
    const char *what; /* of the caller */
    int64_t done, total;
    double start, shown;
    int terminal; /* a bar that is redrawn, else a line now and then */
    int quiet;
} progress;

void progress_begin(progress *p, const char *what, int64_t total, int quiet);
void progress_advance(progress *p);
/* Removes the bar. */
void progress_end(progress *p);

#endif
