/* ceiling.h: what this machine can do at most, measured in the same run as what is compared with it. */
#ifndef ATTN_CLI_CEILING_H
#define ATTN_CLI_CEILING_H

#include <attn/attn.h>

/* One row of ceiling.def. */
typedef struct ceiling_loop {
    const char *set;
    attn_dtype dtype;
    const char *instruction;
    double flop;    /* of one turn */
    double minimum; /* FLOP a cycle and core below which the measurement is void */
    void (*run)(int64_t turns);
    int (*have)(void);
} ceiling_loop;

#define CEILING_ROWS    8
#define CEILING_SAMPLES 512
/* The widest known cores do a little more than twice the minimum; far above it the clock was measured
 * wrongly. */
#define CEILING_PLAUSIBLE 2.5

/* Samples of one quantity. Once full, a new sample takes the place of the oldest. */
typedef struct ceiling_samples {
    int count;
    double value[CEILING_SAMPLES];
} ceiling_samples;

/* Measurements of one run. Rates are of all threads together; a rate a cycle is of one core. */
typedef struct ceiling {
    int threads;
    int rows; /* loops that this CPU has */
    const ceiling_loop *loop[CEILING_ROWS];
    ceiling_samples wall[CEILING_ROWS];    /* FLOP a second of wall time, summed over threads */
    ceiling_samples cpu[CEILING_ROWS];     /* FLOP a second of thread CPU time, likewise */
    ceiling_samples a_cycle[CEILING_ROWS]; /* FLOP a cycle and core, of undisturbed samples */
    ceiling_samples clock;                 /* cycles a second: dependent additions a second of CPU time */
    ceiling_samples read;                  /* bytes a second of wall time */
    ceiling_samples read_cpu;              /* bytes a second of thread CPU time, summed over threads */
    int64_t turns[CEILING_ROWS];           /* of one sample */
    int64_t chain_turns;
    void *memory;
    size_t memory_bytes;
} ceiling;

/* Finds the loops, sizes their samples (a few milliseconds each), gets the memory that is read. Returns 0, or
 * -1 when memory or threads cannot be had. */
int ceiling_open(ceiling *c, int threads);
void ceiling_close(ceiling *c);

/* Measures every loop until each has enough samples in which no thread lost its core, within a limit. stop is
 * asked between samples. Returns as ceiling_measure. */
int ceiling_settle(ceiling *c, int (*stop)(void));
/* Adds one sample of every loop (all) or of the fastest loop of each dtype, with the clock before and after.
 * Returns -1 when a thread cannot be started. */
int ceiling_measure(ceiling *c, int all);
/* Adds one sample of reading memory. */
int ceiling_measure_read(ceiling *c);
/* Reads other memory in the same way: adds to wall and cpu, in bytes a second. */
int ceiling_read_memory(const ceiling *c, const void *memory, size_t bytes, ceiling_samples *wall,
                        ceiling_samples *cpu);

/* The row whose rate bounds problems of this dtype: its own, else that of f32. */
int ceiling_row(const ceiling *c, attn_dtype dtype);
/* The widest loop of exactly this dtype that the CPU has, or -1. */
int ceiling_widest(const ceiling *c, attn_dtype dtype);
/* 1 when the row's rate a cycle, by the median of all samples, is between its minimum and what cores can do.
 */
int ceiling_row_valid(const ceiling *c, int row);
/* 1 when the widest loop of every dtype is valid. */
int ceiling_valid(const ceiling *c);

void ceiling_add(ceiling_samples *samples, double value);
/* Median of the samples from index `from` on; 0 of none. */
double ceiling_median(const ceiling_samples *samples, int from);

#endif
