/* tune_measure.c: times what a plan could be made of, round by round. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli.h"
#include "tune.h"

/* A set this many times slower than the default is not tried with other blocks. */
#define NEAR 1.3
/* What a choice must gain before it replaces the default: less than this is noise. */
#define GAIN 1.02

static const struct tile {
    const char *name;
    int64_t rows, keys;
} tiles[] = {
#define X(name, rows, keys) {name, rows, keys},
#include "tune.def"
#undef X
};
enum { TILES = sizeof tiles / sizeof *tiles };

/* ---- candidates --------------------------------------------------------------------------------- */

/* A context reads its profile from a file; a file in memory does. */
static attn_status add_with(struct contenders *set, const struct context_values *values, json_t *profile,
                            const char *name, attn_error *error)
{
    char path[48];
    struct context_values one = *values;
    int file = memfd_create("attn-profile", MFD_CLOEXEC);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    if (file < 0 || json_dumpfd(profile, file, JSON_COMPACT))
        return cli_fail(error, ATTN_KIND_IO, "a candidate's profile could not be written to memory");
    one.profile = path;
    attn_status status = contenders_add(set, &one, name, error);
    close(file);
    return status;
}

static attn_status add_trial(struct bench_setup *setup, const struct context_values *values,
                             const struct problem *problem, struct tune_trial *trial, attn_error *error)
{
    struct context_values one = *values;
    attn_context_info info = {.size = sizeof info};
    one.backend = "FLASH_ATTN";
    one.profile = "";
    if (!*trial->choice.isa) return contenders_add(&setup->set, &one, trial->name, error);
    attn_context_get_info(setup->set.contexts[0], &info);
    json_t *profile = tune_profile(info.cpu);
    json_array_append_new(json_object_get(profile, "rows"), tune_row(problem, &trial->choice));
    attn_status status = add_with(&setup->set, &one, profile, trial->name, error);
    json_decref(profile);
    return status;
}

/* ---- measuring ---------------------------------------------------------------------------------- */

static void keep_times(const struct bench_result *measured, struct tune_trial *trials)
{
    for (size_t i = 0; i < measured->count; i++) {
        trials[i].seconds = measured->candidates[i].seconds;
        snprintf(trials[i].plan, sizeof trials[i].plan, "%s", measured->candidates[i].plan);
    }
}

/* All trials in the same rounds; the first one is the default, which must run. */
static attn_status race(struct bench_setup *setup, const struct context_values *values,
                        struct tune_result *result, struct tune_trial *trials, size_t count,
                        attn_error *error)
{
    struct bench_result measured = {.scale = 1, .problem = *result->problem};
    attn_status status = ATTN_OK;
    contenders_close(&setup->set);
    for (size_t i = 0; !status && i < count; i++)
        status = add_trial(setup, values, result->problem, &trials[i], error);
    if (!status) status = bench_measure(setup, &measured, error);
    if (!status && cli_interrupted()) status = cli_fail(error, ATTN_KIND_CANCELLED, "interrupted");
    if (!status) {
        keep_times(&measured, trials);
        result->flop = measured.flop;
        if (trials[0].seconds <= 0) result->error = measured.candidates[0].error;
    }
    bench_result_free(&measured);
    setup->done++;
    return status;
}

static struct tune_trial default_trial(void)
{
    struct tune_trial trial = {.name = "default"};
    return trial;
}

static struct tune_trial make_trial(const char *isa, const struct tile *tile)
{
    struct tune_trial trial = {.seconds = 0};
    snprintf(trial.choice.isa, sizeof trial.choice.isa, "%s", isa);
    snprintf(trial.name, sizeof trial.name, "%s%s%s", isa, tile ? " " : "", tile ? tile->name : "");
    if (!tile) return trial;
    trial.choice.rows = tile->rows;
    trial.choice.keys = tile->keys;
    trial.choice.cache = !tile->rows && !tile->keys;
    return trial;
}

/* Kernel sets of this CPU up to the user's cap, the strongest last. */
static size_t list_sets(const attn_context *context, const char **sets, size_t most)
{
    attn_context_info info = {.size = sizeof info};
    const char *name;
    size_t count = 0;
    int usable;
    attn_context_get_info(context, &info);
    for (size_t i = 0; (name = attn_kernel_set_at(i, &usable)) && count < most; i++) {
        if (usable) sets[count++] = name;
        if (strcmp(name, info.isa) == 0) break;
    }
    return count;
}

enum { SETS_MOST = 8 };

/* Which sets come near the default, the default's own among them. */
static attn_status race_sets(struct bench_setup *setup, const struct context_values *values,
                             struct tune_result *result, const char **near, size_t *count, attn_error *error)
{
    struct tune_trial *trials = result->trials;
    size_t sets = list_sets(setup->set.contexts[0], near, SETS_MOST);
    trials[0] = default_trial();
    for (size_t i = 0; i < sets; i++) trials[1 + i] = make_trial(near[i], NULL);
    result->count = 1 + sets;
    attn_status status = race(setup, values, result, trials, result->count, error);
    *count = 0;
    for (size_t i = 0; !status && i < sets; i++) {
        double seconds = trials[1 + i].seconds;
        if (seconds > 0 && seconds <= NEAR * trials[0].seconds) near[(*count)++] = near[i];
    }
    return status;
}

static attn_status race_tiles(struct bench_setup *setup, const struct context_values *values,
                              struct tune_result *result, const char *const *sets, size_t count,
                              struct tune_trial *best, attn_error *error)
{
    struct tune_trial *trials = &result->trials[result->count];
    size_t room = TUNE_TRIALS_MAX - result->count, used = 1;
    if (room > CONTENDERS_MAX) room = CONTENDERS_MAX;
    trials[0] = default_trial();
    for (size_t i = 0; i < count; i++) {
        if (used < room) trials[used++] = make_trial(sets[i], NULL);
        for (int t = 0; t < TILES && used < room; t++) trials[used++] = make_trial(sets[i], &tiles[t]);
    }
    attn_status status = race(setup, values, result, trials, used, error);
    *best = trials[0];
    for (size_t i = 1; !status && i < used; i++)
        if (trials[i].seconds > 0 && trials[i].seconds < best->seconds) *best = trials[i];
    /* The table of a problem shows the comparison of blocks; of the one of sets, the default says nothing
     * new. */
    if (!status) result->count += used;
    return status;
}

/* The best of many medians is partly luck: it must win again, alone against the default. */
static attn_status confirm(struct bench_setup *setup, const struct context_values *values,
                           struct tune_result *result, const struct tune_trial *best, const char *own,
                           attn_error *error)
{
    struct tune_trial pair[2] = {default_trial(), *best};
    attn_status status = race(setup, values, result, pair, *best->choice.isa ? 2 : 1, error);
    if (status) return status;
    result->kept = make_trial(own, NULL).choice;
    result->default_seconds = result->kept_seconds = pair[0].seconds;
    if (!*best->choice.isa || pair[1].seconds <= 0 || pair[0].seconds < GAIN * pair[1].seconds)
        return ATTN_OK;
    result->kept = best->choice;
    result->kept_seconds = pair[1].seconds;
    return ATTN_OK;
}

attn_status tune_problem(struct bench_setup *setup, const struct context_values *values,
                         struct tune_result *result, attn_error *error)
{
    const char *near[SETS_MOST];
    size_t count = 0;
    struct tune_trial best;
    attn_context_info info = {.size = sizeof info};
    attn_context_get_info(setup->set.contexts[0], &info);
    const char *own = info.isa; /* a name of the library's table, which outlives the context */
    attn_status status = race_sets(setup, values, result, near, &count, error);
    if (!status && !result->error.kind) status = race_tiles(setup, values, result, near, count, &best, error);
    if (!status && !result->error.kind) status = confirm(setup, values, result, &best, own, error);
    return status;
}
