/* ceiling.c: measures multiply-add rate, clock and memory bandwidth on any number of threads. */
#include "ceiling.h"
#include "ceiling_loops.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

static const ceiling_loop loops[] = {
#define X(set, dtype, instruction, flop, minimum, run, have)                                                 \
    {#set, ATTN_##dtype, instruction, flop, minimum, run, have},
#include "ceiling.def"
#undef X
};

/* A sample is long beside an interrupt and shorter than the time that a busy system leaves a thread its core.
 */
#define LOOP_SECONDS  0.002
#define CHAIN_SECONDS 0.0005
#define READ_BYTES    ((size_t)256 << 20)
/* Undisturbed samples of a loop before its rate is believed. */
#define CEILING_CLEAN 9

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void ceiling_add(ceiling_samples *samples, double value)
{
    samples->value[samples->count++ % CEILING_SAMPLES] = value;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ceiling_median(const ceiling_samples *samples, int from)
{
    double sorted[CEILING_SAMPLES];
    int first = samples->count > CEILING_SAMPLES ? samples->count - CEILING_SAMPLES : 0;
    int n = 0;
    if (from > first) first = from;
    for (int i = first; i < samples->count; i++) sorted[n++] = samples->value[i % CEILING_SAMPLES];
    if (n == 0) return 0;
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return n % 2 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
}

/* ---- the same work on every thread, started together -------------------------------------------- */

typedef struct work work;
struct work {
    void (*body)(work *self);
    pthread_barrier_t *start;
    const ceiling_loop *loop;
    int64_t turns;
    int64_t chain_turns;
    const char *memory;
    size_t bytes;
    double begin, end;        /* wall, of the loop */
    double loop_cpu;          /* thread CPU seconds of the loop */
    double chain_cpu;         /* of the chains before and after it */
    double all_wall;          /* wall seconds of chain, loop and chain */
    volatile uint64_t result; /* keeps the reads */
};

static void loop_body(work *w)
{
    double enter_wall = seconds(CLOCK_MONOTONIC), t0 = seconds(CLOCK_THREAD_CPUTIME_ID);
    ceiling_run_chain(w->chain_turns);
    double t1 = seconds(CLOCK_THREAD_CPUTIME_ID);
    w->begin = seconds(CLOCK_MONOTONIC);
    w->loop->run(w->turns);
    w->end = seconds(CLOCK_MONOTONIC);
    double t2 = seconds(CLOCK_THREAD_CPUTIME_ID);
    ceiling_run_chain(w->chain_turns);
    double t3 = seconds(CLOCK_THREAD_CPUTIME_ID);
    w->all_wall = seconds(CLOCK_MONOTONIC) - enter_wall;
    w->loop_cpu = t2 - t1;
    w->chain_cpu = (t1 - t0) + (t3 - t2);
}

static void read_body(work *w)
{
    double t = seconds(CLOCK_THREAD_CPUTIME_ID);
    w->begin = seconds(CLOCK_MONOTONIC);
    w->result = ceiling_read(w->memory, w->bytes);
    w->end = seconds(CLOCK_MONOTONIC);
    w->loop_cpu = seconds(CLOCK_THREAD_CPUTIME_ID) - t;
}

static void *enter(void *arg)
{
    work *w = arg;
    pthread_barrier_wait(w->start);
    w->body(w);
    return NULL;
}

/* Threads that wait for one that cannot be started would wait for ever, so all are created before any begins:
 * the barrier opens only when every one has come. */
static int together(work *all, int threads)
{
    pthread_t *id = calloc((size_t)threads, sizeof *id);
    pthread_barrier_t start;
    int made = 1;
    if (!id) return -1;
    if (pthread_barrier_init(&start, NULL, (unsigned)threads)) {
        free(id);
        return -1;
    }
    for (int i = 0; i < threads; i++) all[i].start = &start;
    while (made < threads && pthread_create(&id[made], NULL, enter, &all[made]) == 0) made++;
    if (made == threads) enter(&all[0]);
    for (int i = 1; i < made; i++) {
        if (made < threads) pthread_cancel(id[i]);
        pthread_join(id[i], NULL);
    }
    if (made == threads) pthread_barrier_destroy(&start);
    free(id);
    return made == threads ? 0 : -1;
}

/* Wall time from the first begin to the last end. */
static double span(const work *all, int threads)
{
    double begin = all[0].begin, end = all[0].end;
    for (int i = 1; i < threads; i++) {
        if (all[i].begin < begin) begin = all[i].begin;
        if (all[i].end > end) end = all[i].end;
    }
    return end - begin;
}

/* ---- samples ------------------------------------------------------------------------------------ */

/* A thread that lost its core in between measured chain and loop on different machines, so to speak:
 * interrupts and the cold caches after them count as its own time. */
static int undisturbed(const work *w)
{
    return w->all_wall < 1.02 * (w->loop_cpu + w->chain_cpu) + 20e-6;
}

static int measure_row(ceiling *c, int row)
{
    work *all = calloc((size_t)c->threads, sizeof *all);
    int failed;
    if (!all) return -1;
    for (int i = 0; i < c->threads; i++) {
        all[i].body = loop_body;
        all[i].loop = c->loop[row];
        all[i].turns = c->turns[row];
        all[i].chain_turns = c->chain_turns;
    }
    failed = together(all, c->threads);
    if (!failed) {
        double flop = c->loop[row]->flop * (double)c->turns[row],
               adds = 2.0 * CEILING_CHAIN * (double)c->chain_turns;
        double cpu = 0, wall = 0;
        for (int i = 0; i < c->threads; i++) {
            double clock = adds / all[i].chain_cpu, rate = flop / all[i].loop_cpu;
            cpu += rate;
            wall += flop / (all[i].end - all[i].begin);
            if (!undisturbed(&all[i])) continue;
            ceiling_add(&c->clock, clock);
            ceiling_add(&c->a_cycle[row], rate / clock);
        }
        ceiling_add(&c->cpu[row], cpu);
        ceiling_add(&c->wall[row], wall);
    }
    free(all);
    return failed;
}

int ceiling_measure(ceiling *c, int all)
{
    for (int row = 0; row < c->rows; row++)
        if (all || row == ceiling_widest(c, c->loop[row]->dtype))
            if (measure_row(c, row)) return -1;
    return 0;
}

int ceiling_read_memory(const ceiling *c, const void *memory, size_t bytes, ceiling_samples *wall,
                        ceiling_samples *cpu)
{
    work *all = calloc((size_t)c->threads, sizeof *all);
    size_t part = bytes / (size_t)c->threads / 512 * 512;
    int failed;
    if (!all) return -1;
    for (int i = 0; i < c->threads; i++) {
        all[i].body = read_body;
        all[i].memory = (const char *)memory + (size_t)i * part;
        all[i].bytes = part;
    }
    failed = together(all, c->threads);
    if (!failed) {
        double rate = 0;
        for (int i = 0; i < c->threads; i++) rate += (double)part / all[i].loop_cpu;
        ceiling_add(cpu, rate);
        ceiling_add(wall, (double)part * c->threads / span(all, c->threads));
    }
    free(all);
    return failed;
}

int ceiling_measure_read(ceiling *c)
{
    return ceiling_read_memory(c, c->memory, c->memory_bytes, &c->read, &c->read_cpu);
}

int ceiling_widest(const ceiling *c, attn_dtype dtype)
{
    for (int row = c->rows - 1; row >= 0; row--)
        if (c->loop[row]->dtype == dtype) return row;
    return -1;
}

int ceiling_row(const ceiling *c, attn_dtype dtype)
{
    int row = ceiling_widest(c, dtype);
    return row >= 0 ? row : ceiling_widest(c, ATTN_F32);
}

int ceiling_settle(ceiling *c, int (*stop)(void))
{
    int most = 50 * CEILING_CLEAN, row = 0;
    for (int i = 0; i < most && row < c->rows && !stop(); i++) {
        if (ceiling_measure(c, 1)) return -1;
        for (row = 0; row < c->rows && c->a_cycle[row].count >= CEILING_CLEAN; row++) {
        }
    }
    return 0;
}

int ceiling_row_valid(const ceiling *c, int row)
{
    double a_cycle = ceiling_median(&c->a_cycle[row], 0);
    return a_cycle >= c->loop[row]->minimum && a_cycle <= CEILING_PLAUSIBLE * c->loop[row]->minimum;
}

int ceiling_valid(const ceiling *c)
{
    for (int row = 0; row < c->rows; row++)
        if (row == ceiling_widest(c, c->loop[row]->dtype) && !ceiling_row_valid(c, row)) return 0;
    return 1;
}

/* Turns that take about so many seconds. */
static int64_t turns_for(void (*run)(int64_t), double wanted)
{
    for (int64_t turns = 256;; turns *= 2) {
        double t = seconds(CLOCK_THREAD_CPUTIME_ID);
        run(turns);
        t = seconds(CLOCK_THREAD_CPUTIME_ID) - t;
        if (t > wanted / 4 || turns > INT64_C(1) << 40) return 1 + (int64_t)((double)turns * wanted / t);
    }
}

/* The core needs some milliseconds of work to reach its clock, and a sleeping machine more. */
static void warm_up(void)
{
    double end = seconds(CLOCK_MONOTONIC) + 0.05;
    while (seconds(CLOCK_MONOTONIC) < end) ceiling_run_chain(10000);
}

/* Large pages, where the system gives them: with small ones the page walk is measured along with the memory.
 */
static void *get_memory(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 1, bytes);
    return memory;
}

int ceiling_open(ceiling *c, int threads)
{
    memset(c, 0, sizeof *c);
    c->threads = threads > 0 ? threads : 1;
    warm_up();
    c->chain_turns = turns_for(ceiling_run_chain, CHAIN_SECONDS);
    for (size_t i = 0; i < sizeof loops / sizeof *loops && c->rows < CEILING_ROWS; i++)
        if (loops[i].have()) {
            c->turns[c->rows] = turns_for(loops[i].run, LOOP_SECONDS);
            c->loop[c->rows++] = &loops[i];
        }
    c->memory_bytes = READ_BYTES;
    c->memory = get_memory(READ_BYTES);
    return c->memory ? 0 : -1;
}

void ceiling_close(ceiling *c)
{
    if (c->memory) munmap(c->memory, c->memory_bytes);
    c->memory = NULL;
}
