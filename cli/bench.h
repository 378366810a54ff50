/* bench.h: what attn bench measures and reports. */
#ifndef ATTN_CLI_BENCH_H
#define ATTN_CLI_BENCH_H

#include <attn/attn.h>

#include "bench_shapes.h"
#include "ceiling.h"
#include "contenders.h"
#include "problem.h"
#include "report.h"

#define BENCH_ROUNDS_MAX 101

/* One backend on one problem. */
struct bench_candidate {
    const char *backend;
    char implementation[64];
    char plan[160];   /* kernel set and tiles */
    char note[160];   /* what the call did with blocks, "dense:no threshold"; "": nothing to say */
    attn_error error; /* kind none: it ran */
    attn_layer *layer;
    int64_t repeats;   /* calls in one sample */
    int rounds_wanted; /* far slower candidates take part in the first rounds only */
    int rounds;        /* samples kept */
    double wall[BENCH_ROUNDS_MAX], cpu[BENCH_ROUNDS_MAX]; /* seconds a call */
    double map[BENCH_ROUNDS_MAX];                         /* of the round's last call, choosing blocks */
    double wall_median, cpu_median, map_median;
    double seconds; /* the median that counts: thread CPU time for one thread, else wall time; a device's: its
                       own */
    double burst;   /* on a device: after a rest; 0: none */
};

/* One problem. */
struct bench_result {
    const struct bench_shape *shape; /* NULL: the user's own */
    double scale;
    struct problem problem;
    double flop, bytes;
    double burst_rate;                      /* a device's matrix units after a rest; 0: not known */
    ceiling_samples own_read, own_read_cpu; /* bytes a second: k and v of this problem, read plainly */
    double own_read_rate;                   /* the median of what counts; 0: not measured */
    double flop_rate, read_rate; /* ceilings in this problem's rounds, a second; 0: not known, not counted */
    double bound;                /* seconds that the ceilings allow; 0: not known */
    int bound_by_memory;
    int disturbed;      /* rounds in which other processes used the cores */
    int disturbed_kept; /* of those, rounds that had to be kept */
    size_t count;
    struct bench_candidate *candidates;
};

/* What holds for the whole run. */
struct bench_setup {
    struct contenders set;
    int threads;
    int rounds;
    int huge_pages; /* tensors are moved to large pages first */
    size_t cache_bytes;
    ceiling *ceiling; /* NULL on a device, which is measured with each problem */
    DLDevice device;
    char device_name[128];
    int64_t memory_free; /* of the device */
    struct report_progress progress;
    int64_t done; /* problems */
};

/* Prepares to measure what setup->set holds: threads, caches, the machine's ceilings. Ended by bench_end,
 * which closes the set too, also after a failure. Fails: out_of_memory. */
attn_status bench_begin(struct bench_setup *setup, int rounds, attn_error *error);
/* The same for a device: its name, cache and memory in place of the host's. Fails as attn_device_get_limits.
 */
attn_status bench_begin_device(struct bench_setup *setup, DLDevice device, int rounds, attn_error *error);
void bench_end(struct bench_setup *setup);

/* Measures every backend on result->problem, round by round, the machine's ceilings among them. A backend
 * that refuses keeps its error; ATTN_OK then too. Fails: out_of_memory, cancelled, and what is wrong with the
 * request. */
attn_status bench_measure(struct bench_setup *setup, struct bench_result *result, attn_error *error);
/* bench_device.c: the same on setup->device; called by bench_measure. */
attn_status bench_measure_device(struct bench_setup *setup, struct bench_result *result, attn_error *error);
void bench_result_free(struct bench_result *result);
/* Notes what the last call of the candidate's layer was and did. */
void bench_note(struct bench_candidate *c);

/* Smallest of the candidates' times; 0 when none ran. */
double bench_best(const struct bench_result *result);

/* The whole run for people, or as Markdown with the command line that made it. */
void bench_print(const struct bench_setup *setup, const struct bench_result *results, size_t count,
                 enum report_format format, const char *command_line);
/* error: why the run ended early; NULL: it did not. */
int bench_print_json(const struct bench_setup *setup, const struct bench_result *results, size_t count,
                     const attn_error *error);
/* Says on stderr which loop missed its limit. */
void bench_print_void(const ceiling *c);

/* attn bench --selection: prints what choosing costs and returns an exit code. */
int bench_selection(int json, enum report_format format);

#endif
