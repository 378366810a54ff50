/* bench_measure.c: times backends on one problem, interleaved with each other and with the machine's
 * ceilings. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "bench.h"
#include "cli.h"
#include "generate.h"
#include "machine.h"
#include "measure.h"

/* Since Linux 6.1; glibc 2.36 has no name for it. */
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
/* Calls shorter than this are repeated within a sample, so that reading the clock costs nothing. */
#define SAMPLE_SECONDS 0.01
/* A candidate this many times slower than the fastest is known well enough after a few rounds. */
#define SLOW_FACTOR 8
#define SLOW_ROUNDS 3

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- opening ------------------------------------------------------------------------------------ */

/* A refusal is a result of the bench; anything else is a mistake in the request or a failure of the machine.
 */
static int is_refusal(attn_kind kind)
{
    return attn_kind_exit(kind) == CLI_REFUSED;
}

static attn_status open_layers(struct bench_setup *setup, struct bench_result *result,
                               const attn_layer_options *site, attn_error *error)
{
    for (size_t i = 0; i < result->count; i++) {
        struct bench_candidate *c = &result->candidates[i];
        attn_layer_info info = {.size = sizeof info};
        c->backend = setup->set.names[i];
        c->error = (attn_error)ATTN_ERROR_INIT;
        if (attn_layer_open(setup->set.contexts[i], site, &c->layer, &c->error)) {
            c->layer = NULL;
            if (is_refusal(c->error.kind)) continue;
            *error = c->error;
            return error->status;
        }
        attn_layer_get_info(c->layer, &info);
        snprintf(c->implementation, sizeof c->implementation, "%s",
                 info.implementation ? info.implementation : "");
    }
    return ATTN_OK;
}

static void close_layers(struct bench_result *result)
{
    for (size_t i = 0; i < result->count; i++) {
        attn_layer_close(result->candidates[i].layer);
        result->candidates[i].layer = NULL;
    }
}

/* Bytes of a [B, H, Sq, Sk] mask with its broadcast axes left out; key masks are small beside k. */
static double mask_bytes(const struct problem *p)
{
    double bytes = p->mask_dtype ? (double)attn_dtype_bytes(p->mask_dtype) : 1;
    if (p->mask != PROBLEM_MASK_KEEP && p->mask != PROBLEM_MASK_ADDITIVE) return 0;
    if (p->mask_axes & PROBLEM_AXIS_B) bytes *= (double)p->batch;
    if (p->mask_axes & PROBLEM_AXIS_H) bytes *= (double)p->heads;
    if (p->mask_axes & PROBLEM_AXIS_S) bytes *= (double)p->q_len;
    if (p->mask_axes & PROBLEM_AXIS_K) bytes *= (double)p->kv_len;
    return bytes;
}

static attn_status check_memory(const struct bench_result *result, attn_error *error)
{
    /* Packed copies of k and v and the workspace come on top of the tensors. */
    double needed = 2 * result->bytes + mask_bytes(&result->problem), available = machine_memory_free();
    char text[PROBLEM_TEXT_BYTES], need[32], have[32];
    if (needed <= available) return ATTN_OK;
    return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY,
                    "%s needs about %s and %s are free; a larger --scale makes the sequences shorter",
                    problem_format(&result->problem, text, sizeof text), report_bytes(needed, need),
                    report_bytes(available, have));
}

static void refuse_all(const struct bench_setup *setup, struct bench_result *result, attn_error *error)
{
    for (size_t i = 0; i < result->count; i++) {
        result->candidates[i].backend = setup->set.names[i];
        result->candidates[i].error = *error;
    }
    *error = (attn_error)ATTN_ERROR_INIT;
}

/* ---- the tensors' own memory ------------------------------------------------------------------------ */

/* Bytes from the first element on that hold nothing but elements; 0 when there are gaps. */
static size_t dense_bytes(const DLTensor *t)
{
    int64_t count = 1;
    for (int i = t->ndim; i-- > 0; count *= t->shape[i])
        if (t->strides && t->shape[i] > 1 && t->strides[i] != count) return 0;
    return (size_t)count * t->dtype.bits / 8;
}

/* Whatever memory a tensor has is copied to large pages, as far as it covers whole ones. */
static attn_status to_huge_pages(const attn_args *args, attn_error *error)
{
    enum { HUGE = 2 << 20 };
    const DLTensor *all[] = {args->q, args->k, args->v, args->out};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        uintptr_t first = ((uintptr_t)all[i]->data + HUGE - 1) / HUGE * HUGE,
                  end = ((uintptr_t)all[i]->data + dense_bytes(all[i])) / HUGE * HUGE;
        if (first < end && madvise((void *)first, end - first, MADV_COLLAPSE))
            return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY,
                            "the system gives no large pages (error %d); run without --huge-pages", errno);
    }
    return ATTN_OK;
}

/* For calls that are bound by memory: k and v once, as plain reads. */
static int read_own(struct bench_setup *setup, struct bench_result *result, const attn_args *args)
{
    const DLTensor *both[] = {args->k, args->v};
    for (int i = 0; i < 2; i++) {
        size_t bytes = dense_bytes(both[i]);
        if (bytes > setup->cache_bytes &&
            ceiling_read_memory(setup->ceiling, (const char *)both[i]->data + both[i]->byte_offset, bytes,
                                &result->own_read, &result->own_read_cpu))
            return -1;
    }
    return 0;
}

/* ---- samples ------------------------------------------------------------------------------------ */

static attn_status take_sample(struct bench_candidate *c, const attn_args *args, int64_t repeats,
                               double *wall, double *cpu, attn_error *error)
{
    double w = cli_seconds(), t = thread_seconds();
    for (int64_t i = 0; i < repeats; i++) {
        attn_status status = attn_forward(c->layer, args, error);
        if (status) return status;
    }
    *cpu = (thread_seconds() - t) / (double)repeats;
    *wall = (cli_seconds() - w) / (double)repeats;
    return ATTN_OK;
}

void bench_note(struct bench_candidate *c)
{
    attn_layer_info info = {.size = sizeof info};
    attn_layer_get_info(c->layer, &info);
    snprintf(c->plan, sizeof c->plan, "%s", info.plan ? info.plan : "");
    snprintf(c->note, sizeof c->note, "%s", info.report ? info.report : "");
}

/* Runs a candidate until the first call's page faults and thread starts are past, and says how long a call
 * takes. */
static attn_status warm_up(struct bench_candidate *c, const attn_args *args, double *seconds,
                           attn_error *error)
{
    double cpu;
    attn_status status = take_sample(c, args, 1, seconds, &cpu, &c->error);
    if (!status && *seconds < 0.1) status = take_sample(c, args, 1, seconds, &cpu, &c->error);
    if (status && is_refusal(c->error.kind)) {
        attn_layer_close(c->layer);
        c->layer = NULL;
        return ATTN_OK;
    }
    if (status) {
        *error = c->error;
        return status;
    }
    bench_note(c);
    return ATTN_OK;
}

static void show(struct bench_setup *setup, const struct bench_result *result,
                 const struct bench_candidate *c)
{
    char item[PROBLEM_TEXT_BYTES + 64], text[PROBLEM_TEXT_BYTES];
    snprintf(item, sizeof item, "%s %s", problem_format(&result->problem, text, sizeof text), c->backend);
    report_progress_step(&setup->progress, setup->done, item);
}

static attn_status prepare(struct bench_setup *setup, struct bench_result *result, const attn_args *args,
                           attn_error *error)
{
    double seconds[CONTENDERS_MAX], best = INFINITY;
    for (size_t i = 0; i < result->count; i++) {
        struct bench_candidate *c = &result->candidates[i];
        if (!c->layer) continue;
        show(setup, result, c);
        attn_status status = warm_up(c, args, &seconds[i], error);
        if (status) return status;
        if (c->layer && seconds[i] < best) best = seconds[i];
    }
    for (size_t i = 0; i < result->count; i++) {
        struct bench_candidate *c = &result->candidates[i];
        if (!c->layer) continue;
        int slow = seconds[i] > SLOW_FACTOR * best && seconds[i] > SAMPLE_SECONDS;
        c->repeats = seconds[i] < SAMPLE_SECONDS ? (int64_t)ceil(SAMPLE_SECONDS / fmax(seconds[i], 1e-7)) : 1;
        c->rounds_wanted = slow && setup->rounds > SLOW_ROUNDS ? SLOW_ROUNDS : setup->rounds;
    }
    return ATTN_OK;
}

static attn_status one_round(struct bench_setup *setup, struct bench_result *result, const attn_args *args,
                             int round, attn_error *error)
{
    if (ceiling_measure(setup->ceiling, 0) ||
        (result->bytes > (double)setup->cache_bytes && ceiling_measure_read(setup->ceiling)) ||
        read_own(setup, result, args))
        return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY,
                        "the ceiling needs %d threads, and they could not be started", setup->threads);
    for (size_t i = 0; i < result->count; i++) {
        struct bench_candidate *c = &result->candidates[i];
        if (!c->layer || round >= c->rounds_wanted) continue;
        show(setup, result, c);
        attn_status status = take_sample(c, args, c->repeats, &c->wall[c->rounds], &c->cpu[c->rounds], error);
        if (status) return status;
        c->map[c->rounds] = measure_map(c->layer);
        c->rounds++;
    }
    return ATTN_OK;
}

/* Removes the samples of the last round. */
static void drop_round(struct bench_result *result, int round)
{
    for (size_t i = 0; i < result->count; i++) {
        struct bench_candidate *c = &result->candidates[i];
        if (c->layer && round < c->rounds_wanted) c->rounds--;
    }
}

/* Rounds shorter than a few ticks of /proc/stat cannot be told apart; 3 ticks may belong to anybody. */
static int disturbed(double wall, double busy, double own)
{
    return busy >= 0 && wall > 0.1 && busy - own > 0.1 * wall + 0.03;
}

/* With one thread the CPU clock does not count what others do. With more, wall time does, and such rounds are
 * measured again, up to half as many as were asked for. */
static attn_status all_rounds(struct bench_setup *setup, struct bench_result *result, const attn_args *args,
                              attn_error *error)
{
    int spare = setup->threads > 1 ? (setup->rounds + 1) / 2 : 0;
    for (int round = 0; round < setup->rounds;) {
        double wall = cli_seconds(), busy = machine_busy_seconds(), own = machine_own_seconds();
        attn_status status = one_round(setup, result, args, round, error);
        if (status) return status;
        double now = machine_busy_seconds();
        int bad = setup->threads > 1 &&
                  disturbed(cli_seconds() - wall, now < 0 ? -1 : now - busy, machine_own_seconds() - own);
        result->disturbed += bad;
        if (bad && spare > 0) {
            drop_round(result, round);
            spare--;
            continue;
        }
        result->disturbed_kept += bad;
        round++;
    }
    return ATTN_OK;
}

/* ---- sums --------------------------------------------------------------------------------------- */

static double median(const double *values, int count)
{
    double sorted[BENCH_ROUNDS_MAX];
    if (count == 0) return 0;
    memcpy(sorted, values, (size_t)count * sizeof *sorted);
    return measure_median(sorted, (size_t)count);
}

static void sum_up(struct bench_setup *setup, struct bench_result *result, int from_flop, int from_read)
{
    const ceiling *c = setup->ceiling;
    int row = ceiling_row(c, result->problem.dtype);
    double by_flop = 0, by_read = 0;
    for (size_t i = 0; i < result->count; i++) {
        struct bench_candidate *one = &result->candidates[i];
        one->wall_median = median(one->wall, one->rounds);
        one->cpu_median = median(one->cpu, one->rounds);
        one->map_median = median(one->map, one->rounds);
        one->seconds = setup->threads == 1 ? one->cpu_median : one->wall_median;
    }
    if (row >= 0 && result->problem.dtype != ATTN_F64)
        result->flop_rate = ceiling_median(setup->threads == 1 ? &c->cpu[row] : &c->wall[row], from_flop);
    if (result->bytes > (double)setup->cache_bytes)
        result->read_rate = ceiling_median(setup->threads == 1 ? &c->read_cpu : &c->read, from_read);
    result->own_read_rate =
        ceiling_median(setup->threads == 1 ? &result->own_read_cpu : &result->own_read, 0);
    if (result->flop_rate > 0) by_flop = result->flop / result->flop_rate;
    if (result->read_rate > 0) by_read = result->bytes / result->read_rate;
    result->bound_by_memory = by_read > by_flop;
    result->bound = result->flop_rate > 0 ? fmax(by_flop, by_read) : 0;
}

double bench_best(const struct bench_result *result)
{
    double best = 0;
    for (size_t i = 0; i < result->count; i++) {
        const struct bench_candidate *c = &result->candidates[i];
        if (c->rounds && (best == 0 || c->seconds < best)) best = c->seconds;
    }
    return best;
}

void bench_result_free(struct bench_result *result)
{
    free(result->candidates);
    result->candidates = NULL;
}

attn_status bench_measure(struct bench_setup *setup, struct bench_result *result, attn_error *error)
{
    struct generated generated;
    attn_status status;
    result->flop = bench_flop(&result->problem);
    result->bytes = bench_bytes(&result->problem);
    result->count = setup->set.count;
    result->candidates = calloc(setup->set.count, sizeof *result->candidates);
    if (!result->candidates) return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the results");
    if (check_memory(result, error)) {
        /* The other problems may still fit. */
        refuse_all(setup, result, error);
        return ATTN_OK;
    }
    if (!setup->ceiling) return bench_measure_device(setup, result, error);
    int row = ceiling_row(setup->ceiling, result->problem.dtype);
    int from_flop = row < 0 ? 0 : setup->ceiling->wall[row].count, from_read = setup->ceiling->read.count;
    status = generate(&result->problem, &generated, error);
    if (status) return status;
    if (setup->huge_pages) status = to_huge_pages(&generated.args, error);
    if (!status) status = open_layers(setup, result, &generated.layer, error);
    if (!status) status = prepare(setup, result, &generated.args, error);
    if (!status) status = all_rounds(setup, result, &generated.args, error);
    sum_up(setup, result, from_flop, from_read);
    close_layers(result);
    generate_free(&generated);
    return status;
}
