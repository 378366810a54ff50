/* bench_device.c: times backends on a device, by its own clock, interleaved with each other and with what its
 * matrix units do at most. Inputs are copies of each other that together exceed the largest cache, so that
 * none is found there. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "cli.h"
#include "generate.h"
#include "measure.h"
#include "mirror.h"

enum { SETS = 8 };

/* A sample lasts this long at least, and a device that rested this long is cool again. */
#define SAMPLE_SECONDS 0.02
#define REST_SECONDS   0.4
#define SETTLE_SECONDS 0.5

struct device_run {
    struct bench_setup *setup;
    struct bench_result *result;
    struct mirror sets[SETS];
    int count, next; /* of the sets */
    void *marks[2];
    attn_error *error;
};

static attn_context *owner(const struct device_run *run)
{
    return run->setup->set.contexts[0];
}

/* ---- one sample --------------------------------------------------------------------------------- */

static attn_status mark(struct device_run *run, int which)
{
    return attn_device_mark(owner(run), run->setup->device, NULL, &run->marks[which], run->error);
}

static attn_status elapsed(struct device_run *run, double *seconds)
{
    return attn_device_seconds(owner(run), run->setup->device, run->marks[0], run->marks[1], seconds,
                               run->error);
}

/* Seconds a call, `repeats` of them one behind the other over changing inputs. */
static attn_status sample(struct device_run *run, struct bench_candidate *c, int64_t repeats, double *seconds)
{
    attn_status status = mark(run, 0);
    for (int64_t i = 0; i < repeats && !status; i++) {
        run->next = (run->next + 1) % run->count;
        status = attn_forward(c->layer, &run->sets[run->next].args, run->error);
    }
    if (!status) status = mark(run, 1);
    if (!status) status = elapsed(run, seconds);
    *seconds /= (double)repeats;
    return status;
}

/* Operations a second of the matrix units alone; 0 where they are not measured. */
static attn_status saturate(struct device_run *run, double *rate)
{
    double flop = 0, seconds = 0;
    attn_error why = ATTN_ERROR_INIT;
    attn_status status = mark(run, 0);
    *rate = 0;
    if (!status &&
        attn_device_saturate(owner(run), run->setup->device, run->result->problem.dtype, NULL, &flop, &why))
        return attn_kind_exit(why.kind) == CLI_REFUSED ? ATTN_OK
                                                       : cli_fail(run->error, why.kind, "%s", why.text);
    if (!status) status = mark(run, 1);
    if (!status) status = elapsed(run, &seconds);
    if (!status && seconds > 0) *rate = flop / seconds;
    return status;
}

/* ---- the phases --------------------------------------------------------------------------------- */

static attn_status open_layers(struct device_run *run, const attn_layer_options *site)
{
    for (size_t i = 0; i < run->result->count; i++) {
        struct bench_candidate *c = &run->result->candidates[i];
        attn_layer_options there = *site;
        attn_layer_info info = {.size = sizeof info};
        there.device = run->setup->device;
        c->backend = run->setup->set.names[i];
        c->error = (attn_error)ATTN_ERROR_INIT;
        if (attn_layer_open(run->setup->set.contexts[i], &there, &c->layer, &c->error)) {
            c->layer = NULL;
            if (attn_kind_exit(c->error.kind) != CLI_REFUSED)
                return cli_fail(run->error, c->error.kind, "%s", c->error.text);
            continue;
        }
        attn_layer_get_info(c->layer, &info);
        snprintf(c->implementation, sizeof c->implementation, "%s",
                 info.implementation ? info.implementation : "");
    }
    return ATTN_OK;
}

/* The first call plans, compiles and may be refused; the second says how long a call takes. */
static attn_status warm_up(struct device_run *run, struct bench_candidate *c)
{
    double seconds = 0;
    attn_status status = sample(run, c, 1, &seconds);
    if (!status) status = sample(run, c, 1, &seconds);
    if (status && attn_kind_exit(run->error->kind) == CLI_REFUSED) {
        c->error = *run->error;
        *run->error = (attn_error)ATTN_ERROR_INIT;
        attn_layer_close(c->layer);
        c->layer = NULL;
        return ATTN_OK;
    }
    if (status) return status;
    bench_note(c);
    c->repeats = seconds < SAMPLE_SECONDS ? (int64_t)ceil(SAMPLE_SECONDS / fmax(seconds, 1e-6)) : 1;
    c->rounds_wanted = run->setup->rounds;
    return ATTN_OK;
}

static void rest(void)
{
    struct timespec nap = {0, (long)(REST_SECONDS * 1e9)};
    nanosleep(&nap, NULL);
}

/* After a rest the clock is high and the power low: what a single call among other work gets. */
static attn_status burst(struct device_run *run)
{
    attn_status status = ATTN_OK;
    rest();
    if (!status) status = saturate(run, &run->result->burst_rate);
    for (size_t i = 0; i < run->result->count && !status; i++) {
        struct bench_candidate *c = &run->result->candidates[i];
        if (!c->layer) continue;
        rest();
        status = sample(run, c, c->repeats < 10 ? c->repeats : 10, &c->burst);
    }
    return status;
}

/* Under load the clock settles where the power allows. */
static attn_status settle(struct device_run *run)
{
    double begin = cli_seconds(), unused;
    attn_status status = ATTN_OK;
    while (!status && cli_seconds() - begin < SETTLE_SECONDS && !cli_interrupted()) {
        size_t ran = 0;
        for (size_t i = 0; i < run->result->count && !status; i++) {
            struct bench_candidate *c = &run->result->candidates[i];
            if (c->layer) status = sample(run, c, c->repeats, &unused), ran++;
        }
        if (!ran) break;
    }
    return status;
}

static attn_status rounds(struct device_run *run, double *rates)
{
    attn_status status = ATTN_OK;
    for (int round = 0; round < run->setup->rounds && !status; round++) {
        if (cli_interrupted()) return cli_fail(run->error, ATTN_KIND_CANCELLED, "interrupted");
        status = saturate(run, &rates[round]);
        for (size_t i = 0; i < run->result->count && !status; i++) {
            struct bench_candidate *c = &run->result->candidates[i];
            if (!c->layer) continue;
            status = sample(run, c, c->repeats, &c->wall[c->rounds]);
            if (!status) c->map[c->rounds++] = measure_map(c->layer);
        }
    }
    return status;
}

/* ---- the whole ---------------------------------------------------------------------------------- */

/* So many copies that what one call reads is out of the cache when its turn comes again, as memory allows. */
static attn_status make_sets(struct device_run *run, const attn_args *args)
{
    double bytes = fmax(run->result->bytes, 1), cache = (double)run->setup->cache_bytes;
    double fit = 0.6 * (double)run->setup->memory_free / bytes;
    int wanted = 1 + (int)fmin(ceil(2 * cache / bytes), SETS - 1);
    if (wanted > fit) wanted = fit < 1 ? 1 : (int)fit;
    if (wanted < 2 && fit >= 2) wanted = 2;
    attn_status status = ATTN_OK;
    for (run->count = 0; run->count < wanted && !status; run->count++)
        status = mirror_make(&run->sets[run->count], owner(run), run->setup->device, args, run->error);
    return status;
}

static void sum_up(struct device_run *run, double *rates)
{
    struct bench_result *r = run->result;
    for (size_t i = 0; i < r->count; i++) {
        struct bench_candidate *c = &r->candidates[i];
        double sorted[BENCH_ROUNDS_MAX];
        if (c->rounds == 0) continue;
        memcpy(sorted, c->wall, sizeof sorted);
        c->seconds = c->wall_median = measure_median(sorted, (size_t)c->rounds);
        memcpy(sorted, c->map, sizeof sorted);
        c->map_median = measure_median(sorted, (size_t)c->rounds);
    }
    r->flop_rate = measure_median(rates, (size_t)run->setup->rounds);
    r->bound = r->flop_rate > 0 ? r->flop / r->flop_rate : 0;
}

attn_status bench_measure_device(struct bench_setup *setup, struct bench_result *result, attn_error *error)
{
    struct generated generated;
    struct device_run run = {.setup = setup, .result = result, .error = error};
    double rates[BENCH_ROUNDS_MAX] = {0};
    attn_status status = generate(&result->problem, &generated, error);
    if (status) return status;
    status = open_layers(&run, &generated.layer);
    if (!status) status = make_sets(&run, &generated.args);
    for (size_t i = 0; i < result->count && !status; i++)
        if (result->candidates[i].layer) status = warm_up(&run, &result->candidates[i]);
    if (!status) status = burst(&run);
    if (!status) status = settle(&run);
    if (!status) status = rounds(&run, rates);
    if (!status) sum_up(&run, rates);
    for (size_t i = 0; i < result->count; i++) {
        attn_layer_close(result->candidates[i].layer);
        result->candidates[i].layer = NULL;
    }
    for (int i = 0; i < run.count; i++) mirror_free(&run.sets[i]);
    for (int i = 0; i < 2; i++) attn_device_unmark(owner(&run), setup->device, run.marks[i]);
    generate_free(&generated);
    return status;
}
