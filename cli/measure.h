/* measure.h: runs a layer several times and says how long it took and what memory it needed. */
#ifndef ATTN_CLI_MEASURE_H
#define ATTN_CLI_MEASURE_H

#include <attn/attn.h>

#include "mirror.h"

struct measure {
    int64_t repeats;     /* timed runs, after one that is not */
    double median, best; /* seconds a run */
    size_t workspace;    /* attn_workspace_size */
    int64_t peak_bytes;  /* growth of the process's peak memory while running; -1: not known here */
    double map_seconds;  /* of a run, choosing blocks: the median; 0: none were chosen */
};

/* Runs once untimed, then `repeat` times; repeat 0: at least 3 times and until `seconds` have gone by (at
 * most 1000). Outputs hold the last run's values. Fails like attn_forward; `cancelled` after SIGINT when
 * args->cancel is cli_cancel. */
attn_status measure_forward(attn_layer *layer, const attn_args *args, int64_t repeat, double seconds,
                            struct measure *measure, attn_error *error);
/* The same over a mirror: seconds are the device's, by marks in its default stream. */
attn_status measure_mirror(attn_layer *layer, const struct mirror *mirror, int64_t repeat, double seconds,
                           struct measure *measure, attn_error *error);

/* Memory that the machine can give without swapping, in bytes; -1: not known here. */
int64_t measure_available(void);

/* What the layer's last forward said of choosing blocks, in seconds. */
double measure_map(const attn_layer *layer);

/* Median of count > 0 numbers, which are sorted in place. */
double measure_median(double *values, size_t count);

#endif
