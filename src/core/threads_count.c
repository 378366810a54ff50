/* threads_count.c: how many threads affinity, cgroup quota and $ATTN_NUM_THREADS allow. */
#include "core/threads.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

/* ---- affinity --------------------------------------------------------------------------------- */

/* CPUs the calling thread may run on; 0 when the kernel does not say. The kernel refuses sets smaller than
 * its own, hence the growing ones. */
static int affinity_count(void)
{
    for (int cpus = CPU_SETSIZE; cpus <= 1 << 18; cpus *= 4) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (!set) return 0;
        size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
        int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0) return count;
    }
    return 0;
}

/* ---- cgroup quota ----------------------------------------------------------------------------- */

/* Reads the first line of a file without its newline; 0 when there is none. */
static int read_line(const char *path, char *line, int bytes)
{
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    char *got = fgets(line, bytes, file);
    fclose(file);
    if (!got) return 0;
    line[strcspn(line, "\n")] = 0;
    return 1;
}

/* Digits only, up to the end of the text or a blank; -1 for anything else and for what does not fit. */
static int64_t read_number(const char *text)
{
    int64_t value = 0;
    if (*text < '0' || *text > '9') return -1;
    for (; *text >= '0' && *text <= '9'; text++) {
        if (value > (INT64_MAX - 9) / 10) return -1;
        value = value * 10 + (*text - '0');
    }
    return *text == 0 || *text == ' ' ? value : -1;
}

static int64_t hundredths(int64_t quota, int64_t period)
{
    if (quota <= 0 || period <= 0 || quota > INT64_MAX / 100) return 0;
    int64_t value = quota * 100 / period;
    return value > 0 ? value : 1;
}

/* Version 2 keeps "quota period" or "max period" in one file, version 1 has a file for each. */
static int64_t quota_v2(const char *folder)
{
    char path[PATH_BYTES + 32], line[128];
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (!read_line(path, line, sizeof line)) return 0;
    const char *blank = strchr(line, ' ');
    return hundredths(read_number(line), blank ? read_number(blank + 1) : 100000);
}

static int64_t quota_v1(const char *folder)
{
    char path[PATH_BYTES + 32], quota[128], period[128];
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!read_line(path, quota, sizeof quota)) return 0;
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    if (!read_line(path, period, sizeof period)) return 0;
    return hundredths(read_number(quota), read_number(period));
}

/* A parent's quota binds its children, so the smallest on the way up counts. In a container the group's path
 * may lie outside what is mounted; the way up then still ends at the mount itself. */
static int64_t smallest_quota(const char *mount, const char *group, int64_t (*quota)(const char *folder))
{
    char folder[PATH_BYTES];
    size_t root = strlen(mount);
    if (snprintf(folder, sizeof folder, "%s%s", mount, group) >= (int)sizeof folder) return 0;
    for (int64_t smallest = 0;;) {
        int64_t here = quota(folder);
        if (here > 0 && (smallest == 0 || here < smallest)) smallest = here;
        char *slash = strrchr(folder + root, '/');
        if (!slash) return smallest;
        *slash = 0;
    }
}

/* Whether a comma-separated list of cgroup controllers has "cpu". */
static int names_cpu(const char *list)
{
    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (strcspn(list, ",") == 3 && !memcmp(list, "cpu", 3)) return 1;
    return 0;
}

/* One line of /proc/self/cgroup, "id:controllers:path"; version 2 has no controllers. */
static int64_t line_quota(const char *root, char *line)
{
    char mount[PATH_BYTES];
    char *controllers = strchr(line, ':');
    char *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group) return 0;
    *controllers++ = 0;
    *group++ = 0;
    int v2 = *controllers == 0;
    if (!v2 && !names_cpu(controllers)) return 0;
    int length = snprintf(mount, sizeof mount, "%s/sys/fs/cgroup%s%s", root, v2 ? "" : "/", controllers);
    if (length >= (int)sizeof mount) return 0;
    return smallest_quota(mount, group, v2 ? quota_v2 : quota_v1);
}

int64_t attn_threads_quota(const char *root)
{
    char path[PATH_BYTES], line[PATH_BYTES];
    int64_t smallest = 0;
    if (snprintf(path, sizeof path, "%s/proc/self/cgroup", root) >= (int)sizeof path) return 0;
    FILE *file = fopen(path, "re");
    if (!file) return 0;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        int64_t here = line_quota(root, line);
        if (here > 0 && (smallest == 0 || here < smallest)) smallest = here;
    }
    fclose(file);
    return smallest;
}

/* ---- the count -------------------------------------------------------------------------------- */

/* What $ATTN_NUM_THREADS says: 0 when it is unset, -1 when it is no number above 0. */
static int64_t environment_count(void)
{
    const char *text = getenv("ATTN_NUM_THREADS");
    if (!text) return 0;
    int64_t value = strchr(text, ' ') ? -1 : read_number(text);
    return value < 1 ? -1 : value;
}

int attn_spin_read(const char *text, int32_t *microseconds)
{
    int64_t value = strchr(text, ' ') ? -1 : read_number(text);
    if (value < 0 || value > ATTN_SPIN_US_MOST) return 0;
    *microseconds = (int32_t)value;
    return 1;
}

int attn_threads_environment_ignored(void)
{
    const char *text = getenv("ATTN_NUM_THREADS");
    return text && *text && environment_count() < 0;
}

/* The cap that $ATTN_NUM_THREADS sets: 0 when it is unset or not a count. note: what to say about it. */
static int64_t environment_cap(int64_t allowed, char *note, size_t bytes)
{
    const char *text = getenv("ATTN_NUM_THREADS");
    int64_t value = environment_count();
    if (value == 0) return 0;
    if (value < 0) {
        snprintf(note, bytes, "; ATTN_NUM_THREADS='%.40s' is not a number above 0 and is ignored", text);
        return 0;
    }
    snprintf(note, bytes,
             value < allowed ? "; ATTN_NUM_THREADS=%.40s caps it"
                             : "; ATTN_NUM_THREADS=%.40s asks for no less",
             text);
    return value;
}

int attn_threads_default(int read_env, char *why, size_t bytes)
{
    char note[160] = "", quota_text[64] = "no cgroup quota";
    int cpus = affinity_count();
    const char *source = cpus > 0 ? "affinity allows" : "the system has";
    if (cpus == 0) cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (cpus < 1) cpus = 1;

    int64_t quota = attn_threads_quota("");
    int64_t count = cpus;
    if (quota > 0) {
        snprintf(quota_text, sizeof quota_text, "the cgroup quota allows %lld.%02lld",
                 (long long)(quota / 100), (long long)(quota % 100));
        if ((quota + 99) / 100 < count) count = (quota + 99) / 100;
    }
    int64_t cap = read_env ? environment_cap(count, note, sizeof note) : 0;
    if (cap > 0 && cap < count) count = cap;
    if (why && bytes)
        snprintf(why, bytes, "%lld thread%s: %s %d CPU%s, %s%s", (long long)count, count == 1 ? "" : "s",
                 source, cpus, cpus == 1 ? "" : "s", quota_text, note);
    return (int)count;
}
