/* machine.c: reads /proc and /sys for reports. */
#include "machine.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif

const char *machine_libc(void)
{
#ifdef __GLIBC__
    static char text[32];
    snprintf(text, sizeof text, "glibc %s", gnu_get_libc_version());
    return text;
#else
    return "another libc than glibc";
#endif
}

int machine_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
    /* More CPUs than a cpu_set_t holds. */
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

double machine_memory_free(void)
{
    char line[128];
    unsigned long long kib;
    double bytes = INFINITY;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1) bytes = 1024.0 * (double)kib;
    if (file) fclose(file);
    return bytes;
}

size_t machine_cache_bytes(void)
{
    size_t most = 0;
    for (int i = 0; i < 8; i++) {
        char path[80], text[32], *end;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        FILE *file = fopen(path, "r");
        if (!file) break;
        if (fgets(text, sizeof text, file)) {
            size_t bytes = strtoul(text, &end, 10) * (*end == 'M' ? 1024 * 1024 : *end == 'K' ? 1024 : 1);
            if (bytes > most) most = bytes;
        }
        fclose(file);
    }
    return most;
}

double machine_busy_seconds(void)
{
    /* user nice system idle iowait irq softirq steal: all but idle and iowait keep a core from this process.
     */
    unsigned long long t[8] = {0};
    FILE *file = fopen("/proc/stat", "r");
    int n = 0;
    if (!file) return -1;
    n = fscanf(file, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &t[0], &t[1], &t[2], &t[3], &t[4], &t[5],
               &t[6], &t[7]);
    fclose(file);
    return n == 8 ? (double)(t[0] + t[1] + t[2] + t[5] + t[6] + t[7]) / (double)sysconf(_SC_CLK_TCK) : -1;
}

double machine_own_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
