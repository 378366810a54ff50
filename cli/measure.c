/* measure.c: timed runs of a layer. */
#include "measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double measure_median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, ascending);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Linux keeps the peak of a process; "5" starts it anew from what is resident now. */
static void reset_peak(void)
{
    FILE *file = fopen("/proc/self/clear_refs", "w");
    if (!file) return;
    fputs("5", file);
    fclose(file);
}

/* A line "VmHWM:   1234 kB" of a file, in bytes; -1: not there. */
static int64_t line_bytes(const char *path, const char *key)
{
    FILE *file = fopen(path, "r");
    char line[256];
    long long found = -1;
    if (!file) return -1;
    while (found < 0 && fgets(line, sizeof line, file)) {
        if (strncmp(line, key, strlen(key)) == 0) found = strtoll(line + strlen(key), NULL, 10) * 1024;
    }
    fclose(file);
    return found;
}

static int64_t status_bytes(const char *key)
{
    return line_bytes("/proc/self/status", key);
}

int64_t measure_available(void)
{
    return line_bytes("/proc/meminfo", "MemAvailable:");
}

#define RUNS_MAX 1000

double measure_map(const attn_layer *layer)
{
    attn_layer_info info = {.size = sizeof info};
    attn_layer_get_info(layer, &info);
    return info.map_seconds;
}

/* Where time is taken: NULL context: the host's clock, else marks in a stream. */
struct clock {
    attn_context *context;
    DLDevice device;
    void *marks[2];
};

static attn_status timed(attn_layer *layer, const attn_args *args, struct clock *clock, double *seconds,
                         attn_error *error)
{
    double before = cli_seconds();
    attn_status status = ATTN_OK;
    if (clock->context)
        status = attn_device_mark(clock->context, clock->device, NULL, &clock->marks[0], error);
    if (!status) status = attn_forward(layer, args, error);
    *seconds = cli_seconds() - before;
    if (status || !clock->context) return status;
    status = attn_device_mark(clock->context, clock->device, NULL, &clock->marks[1], error);
    return status ? status
                  : attn_device_seconds(clock->context, clock->device, clock->marks[0], clock->marks[1],
                                        seconds, error);
}

static attn_status measure_by(attn_layer *layer, const attn_args *args, struct clock *clock, int64_t repeat,
                              double seconds, struct measure *measure, attn_error *error)
{
    double times[RUNS_MAX], maps[RUNS_MAX];
    memset(measure, 0, sizeof *measure);
    attn_status status = attn_workspace_size(layer, args, &measure->workspace, error);
    if (status) return status;
    reset_peak();
    int64_t resident = status_bytes("VmRSS:");
    double first;
    status = timed(layer, args, clock, &first, error);
    int64_t peak = status_bytes("VmHWM:");
    measure->peak_bytes = resident < 0 || peak < 0 ? -1 : peak > resident ? peak - resident : 0;
    int64_t n = 0, limit = repeat > 0 && repeat < RUNS_MAX ? repeat : RUNS_MAX;
    double start = cli_seconds();
    if (repeat == 0 && first >= seconds) { /* long enough to be its own warm-up */
        maps[n] = measure_map(layer);
        times[n++] = first;
        limit = 1;
    }
    while (!status && n < limit && (repeat > 0 || n < 3 || cli_seconds() - start < seconds)) {
        status = timed(layer, args, clock, &times[n], error);
        maps[n++] = measure_map(layer);
    }
    if (status) return status;
    measure->repeats = n;
    measure->median = measure_median(times, (size_t)n);
    measure->best = times[0]; /* sorted by now */
    measure->map_seconds = measure_median(maps, (size_t)n);
    return ATTN_OK;
}

attn_status measure_forward(attn_layer *layer, const attn_args *args, int64_t repeat, double seconds,
                            struct measure *measure, attn_error *error)
{
    struct clock clock = {NULL, {kDLCPU, 0}, {NULL, NULL}};
    return measure_by(layer, args, &clock, repeat, seconds, measure, error);
}

attn_status measure_mirror(attn_layer *layer, const struct mirror *mirror, int64_t repeat, double seconds,
                           struct measure *measure, attn_error *error)
{
    struct clock clock = {mirror->context, mirror->device, {NULL, NULL}};
    attn_status status = measure_by(layer, &mirror->args, &clock, repeat, seconds, measure, error);
    for (int i = 0; i < 2; i++) attn_device_unmark(clock.context, clock.device, clock.marks[i]);
    return status;
}
