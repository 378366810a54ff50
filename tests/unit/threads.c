/* threads.c: tests of the thread count and of the pool of workers. */
#include "core/threads.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__)
#define TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TSAN 1
#endif
#endif
/* The thread sanitizer takes a child's new threads for its parent's, so under it a child keeps to one. */
#ifdef TSAN
#define CHILD_WORKERS 1
#else
#define CHILD_WORKERS 4
#endif

enum { INDICES = 1000, WORKERS = 8 };

/* ---- helpers ---------------------------------------------------------------------------------- */

/* Threads of this process whose name starts with prefix. */
static int count_threads(const char *prefix)
{
    DIR *folder = opendir("/proc/self/task");
    assert_non_null(folder);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        char path[300], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
        if (!file) continue;
        if (fgets(name, sizeof name, file) && !strncmp(name, prefix, strlen(prefix))) count++;
        fclose(file);
    }
    closedir(folder);
    return count;
}

static int pool_open(void **state)
{
    (void)state;
    return attn_pool_acquire(NULL);
}

static int pool_close(void **state)
{
    (void)state;
    attn_pool_release();
    return count_threads("attn-");
}

struct record {
    _Atomic int32_t times[INDICES]; /* that an index ran */
    _Atomic int32_t busy[ATTN_POOL_WORKERS_MAX];
    _Atomic int32_t clashes; /* two tasks with one worker number at once */
    _Atomic int32_t highest; /* worker number */
    _Atomic int32_t at_once, most_at_once;
    int32_t nap; /* microseconds */
    int32_t nested;
};

static void raise_to(_Atomic int32_t *most, int32_t value)
{
    int32_t seen = atomic_load(most);
    while (seen < value && !atomic_compare_exchange_weak(most, &seen, value)) {
    }
}

static void check_record(const struct record *record, int32_t workers)
{
    for (int i = 0; i < INDICES; i++) assert_int_equal(record->times[i], 1);
    assert_int_equal(record->clashes, 0);
    assert_true(record->highest < workers);
    assert_true(record->most_at_once <= workers);
}

static void record_task(void *arg, int64_t index, int32_t worker)
{
    struct record *record = arg;
    if (atomic_fetch_add(&record->busy[worker], 1)) atomic_fetch_add(&record->clashes, 1);
    raise_to(&record->most_at_once, atomic_fetch_add(&record->at_once, 1) + 1);
    raise_to(&record->highest, worker);
    atomic_fetch_add(&record->times[index], 1);
    if (record->nap) usleep((useconds_t)record->nap);
    if (record->nested && index % 50 == 0) {
        struct record *inner = calloc(1, sizeof *inner);
        attn_pool_parallel_for(NULL, INDICES, 4, record_task, inner);
        for (int i = 0; i < INDICES; i++)
            if (inner->times[i] != 1) atomic_fetch_add(&record->clashes, 1);
        atomic_fetch_add(&record->clashes, inner->clashes);
        free(inner);
    }
    atomic_fetch_sub(&record->at_once, 1);
    atomic_fetch_sub(&record->busy[worker], 1);
}

/* ---- the count -------------------------------------------------------------------------------- */

static void counts_affinity(void **state)
{
    (void)state;
    char why[256];
    cpu_set_t all, one;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    int count = attn_threads_default(0, why, sizeof why);
    assert_in_range(count, 1, CPU_COUNT(&all));
    assert_non_null(strstr(why, "affinity allows"));

    int cpu = 0;
    while (!CPU_ISSET(cpu, &all)) cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(attn_threads_default(0, why, sizeof why), 1);
    assert_non_null(strstr(why, "1 thread: affinity allows 1 CPU,"));
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_int_equal(attn_threads_default(0, NULL, 0), count);
}

static void count_warning(void *user, int32_t level, const char *text)
{
    if (level == ATTN_LOG_WARNING &&
        (strstr(text, "ATTN_NUM_THREADS='two'") || strstr(text, "ATTN_SPIN_US='soon'")))
        ++*(int *)user;
}

static void warns_of_a_useless_variable(void **state)
{
    (void)state;
    int warnings = 0;
    attn_options options = {.size = sizeof options, .log = count_warning, .log_user = &warnings};
    attn_context *context = NULL;
    setenv("ATTN_NUM_THREADS", "two", 1);
    assert_int_equal(attn_open(&options, &context, NULL), ATTN_OK);
    attn_close(context);
    assert_int_equal(warnings, 1);
    options.threads = 1;
    assert_int_equal(attn_open(&options, &context, NULL), ATTN_OK);
    attn_close(context);
    options.threads = 0, options.flags = ATTN_OPEN_IGNORE_ENV;
    assert_int_equal(attn_open(&options, &context, NULL), ATTN_OK);
    attn_close(context);
    assert_int_equal(warnings, 1);
    unsetenv("ATTN_NUM_THREADS");
}

static void reads_environment(void **state)
{
    (void)state;
    static const char *const ignored[] = {
        "0", "-2", "", "two", "3x", " 3", "3 ", "1.5", "99999999999999999999"};
    char why[256];
    int count = attn_threads_default(0, NULL, 0);
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
        setenv("ATTN_NUM_THREADS", ignored[i], 1);
        assert_int_equal(attn_threads_default(1, why, sizeof why), count);
        assert_non_null(strstr(why, "is ignored"));
        assert_non_null(strstr(why, ignored[i]));
    }
    setenv("ATTN_NUM_THREADS", "1", 1);
    assert_int_equal(attn_threads_default(1, why, sizeof why), 1);
    assert_non_null(strstr(why, "ATTN_NUM_THREADS=1"));
    assert_int_equal(attn_threads_default(0, why, sizeof why), count);
    assert_null(strstr(why, "ATTN_NUM_THREADS"));
    setenv("ATTN_NUM_THREADS", "100000", 1);
    assert_int_equal(attn_threads_default(1, why, sizeof why), count);
    unsetenv("ATTN_NUM_THREADS");
}

/* Writes text to root/path, making the folders on the way. */
static void put(const char *root, const char *path, const char *text)
{
    char full[512];
    snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = 0;
        mkdir(full, 0700);
    }
    FILE *file = fopen(full, "we");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void reads_quota(void **state)
{
    (void)state;
    static const struct {
        const char *group; /* /proc/self/cgroup */
        const char *file[2], *text[2];
        int64_t hundredths;
    } rows[] = {
        {"0::/a/b\n", {"sys/fs/cgroup/a/b/cpu.max"}, {"250000 100000\n"}, 250},
        {"0::/a/b\n",
         {"sys/fs/cgroup/a/cpu.max", "sys/fs/cgroup/a/b/cpu.max"},
         {"150000 100000\n", "max 100000\n"},
         150},
        {"0::/a/b\n",
         {"sys/fs/cgroup/a/cpu.max", "sys/fs/cgroup/a/b/cpu.max"},
         {"150000 100000\n", "400000 100000\n"},
         150},
        {"0::/a/b\n",
         {"sys/fs/cgroup/a/cpu.max", "sys/fs/cgroup/a/b/cpu.max"},
         {"400000 100000\n", "150000 100000\n"},
         150},
        {"0::/\n", {"sys/fs/cgroup/cpu.max"}, {"max 100000\n"}, 0},
        {"0::/\n", {"sys/fs/cgroup/cpu.max"}, {"100 100000\n"}, 1},
        {"0::/far/../away\n", {"sys/fs/cgroup/cpu.max"}, {"300000 100000\n"}, 300},
        {"3:cpuset:/x\n4:cpu,cpuacct:/x\n",
         {"sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_quota_us", "sys/fs/cgroup/cpu,cpuacct/x/cpu.cfs_period_us"},
         {"50000\n", "100000\n"},
         50},
        {"4:cpu:/x\n",
         {"sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "sys/fs/cgroup/cpu/x/cpu.cfs_period_us"},
         {"-1\n", "100000\n"},
         0},
        {"nonsense\n", {"sys/fs/cgroup/cpu.max"}, {"300000 100000\n"}, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char root[] = "/tmp/attn-quota-XXXXXX", command[64];
        assert_non_null(mkdtemp(root));
        put(root, "proc/self/cgroup", rows[i].group);
        for (int f = 0; f < 2 && rows[i].file[f]; f++) put(root, rows[i].file[f], rows[i].text[f]);
        int64_t found = attn_threads_quota(root);
        snprintf(command, sizeof command, "rm -r %s", root);
        assert_int_equal(system(command), 0);
        assert_int_equal(found, rows[i].hundredths);
    }
    assert_int_equal(attn_threads_quota("/nonexistent"), 0);
}

/* ---- the pool --------------------------------------------------------------------------------- */

static void starts_late_and_ends(void **state)
{
    (void)state;
    static struct record record;
    memset(&record, 0, sizeof record);
    assert_int_equal(attn_pool_acquire(NULL), ATTN_OK);
    assert_int_equal(attn_pool_acquire(NULL), ATTN_OK);
    attn_pool_parallel_for(NULL, 1, 8, record_task, &record);
    assert_int_equal(count_threads("attn-"), 0);
    memset(&record, 0, sizeof record);
    attn_pool_parallel_for(NULL, INDICES, 1, record_task, &record);
    check_record(&record, 1);
    assert_int_equal(count_threads("attn-"), 0);
    memset(&record, 0, sizeof record);
    attn_pool_parallel_for(NULL, INDICES, 4, record_task, &record);
    check_record(&record, 4);
    assert_int_equal(count_threads("attn-"), 3);
    attn_pool_release();
    assert_int_equal(count_threads("attn-"), 3);
    attn_pool_release();
    assert_int_equal(count_threads("attn-"), 0);
}

static void runs_each_index_once(void **state)
{
    (void)state;
    static struct record record;
    for (int32_t round = 0; round < 50; round++) {
        int32_t workers = 2 + round % (WORKERS - 1);
        memset(&record, 0, sizeof record);
        attn_pool_parallel_for(NULL, INDICES, workers, record_task, &record);
        check_record(&record, workers);
    }
    attn_pool_parallel_for(NULL, 0, WORKERS, record_task, NULL);
}

/* Workers above the CPUs of the machine are honoured when they are asked for. */
static void honours_many_workers(void **state)
{
    (void)state;
    static struct record record;
    memset(&record, 0, sizeof record);
    record.nap = 400;
    attn_pool_parallel_for(NULL, INDICES, WORKERS, record_task, &record);
    check_record(&record, WORKERS);
    assert_int_equal(record.highest, WORKERS - 1);
    assert_int_equal(record.most_at_once, WORKERS);
    assert_int_equal(count_threads("attn-"), WORKERS - 1);
}

static void nests(void **state)
{
    (void)state;
    static struct record record;
    memset(&record, 0, sizeof record);
    record.nested = 1;
    attn_pool_parallel_for(NULL, INDICES, 4, record_task, &record);
    check_record(&record, 4);
}

static void *caller_main(void *arg)
{
    struct record *record = arg;
    attn_pool_parallel_for(NULL, INDICES, 4, record_task, record);
    return NULL;
}

static void serves_several_callers(void **state)
{
    (void)state;
    enum { CALLERS = 8 };
    struct record *records = calloc(CALLERS, sizeof *records);
    pthread_t callers[CALLERS];
    assert_non_null(records);
    for (int i = 0; i < CALLERS; i++) {
        records[i].nap = 20;
        assert_int_equal(pthread_create(&callers[i], NULL, caller_main, &records[i]), 0);
    }
    int most = 0;
    for (int i = 0; i < 20; i++) {
        int now = count_threads("attn-");
        if (now > most) most = now;
        usleep(2000);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i], NULL);
        check_record(&records[i], 4);
    }
    int allowed = attn_threads_default(0, NULL, 0);
    assert_true(most <= (allowed > 4 ? allowed : 4) - 1);
    free(records);
}

struct gate {
    _Atomic int32_t inside, open;
};

static void gate_task(void *arg, int64_t index, int32_t worker)
{
    (void)index;
    (void)worker;
    struct gate *gate = arg;
    atomic_fetch_add(&gate->inside, 1);
    while (!atomic_load(&gate->open)) usleep(100);
}

static void *gate_main(void *arg)
{
    attn_pool_parallel_for(NULL, 4, 4, gate_task, arg);
    return NULL;
}

/* While another call holds every worker, a call runs on its own thread and does not wait. */
static void waits_for_no_busy_worker(void **state)
{
    (void)state;
    static struct record record;
    struct gate gate = {0};
    pthread_t other;
    memset(&record, 0, sizeof record);
    assert_int_equal(pthread_create(&other, NULL, gate_main, &gate), 0);
    while (atomic_load(&gate.inside) < 4) usleep(100);
    attn_pool_parallel_for(NULL, INDICES, 2, record_task, &record);
    check_record(&record, 2);
    atomic_store(&gate.open, 1);
    pthread_join(other, NULL);
}

static void *lone_main(void *arg)
{
    attn_pool_parallel_for(NULL, 1, 1, gate_task, arg);
    return NULL;
}

/* Whether a call ever has `least` tasks at once in the next 200 ms. */
static int seen_at_once(const struct record *record, int32_t least)
{
    for (int i = 0; i < 400; i++) {
        if (atomic_load(&record->at_once) >= least) return 1;
        usleep(500);
    }
    return 0;
}

/* Helpers leave a call when other callers keep the machine busy, and come back when those are done. */
static void yields_to_other_callers(void **state)
{
    (void)state;
    static struct record record;
    struct gate gate = {0};
    pthread_t first, others[ATTN_POOL_WORKERS_MAX];
    int allowed = attn_threads_default(0, NULL, 0), callers = allowed > 4 ? allowed : 4;
    assert_true(callers <= ATTN_POOL_WORKERS_MAX);
    memset(&record, 0, sizeof record);
    record.nap = 1000;
    assert_int_equal(pthread_create(&first, NULL, caller_main, &record), 0);
    assert_true(seen_at_once(&record, 4));
    for (int i = 0; i < callers; i++) assert_int_equal(pthread_create(&others[i], NULL, lone_main, &gate), 0);
    while (atomic_load(&gate.inside) < callers) usleep(100);
    usleep(100000); /* for the tasks that were running */
    assert_false(seen_at_once(&record, 2));
    assert_true(seen_at_once(&record, 1));
    atomic_store(&gate.open, 1);
    assert_true(seen_at_once(&record, 2));
    for (int i = 0; i < callers; i++) pthread_join(others[i], NULL);
    pthread_join(first, NULL);
    check_record(&record, 4);
}

struct place {
    pthread_t caller;
    int cpu;
    _Atomic int32_t elsewhere, signals_open, crashes_blocked, helped;
};

static void place_task(void *arg, int64_t index, int32_t worker)
{
    (void)index;
    struct place *place = arg;
    cpu_set_t cpus;
    sigset_t blocked;
    usleep(500);
    sched_getaffinity(0, sizeof cpus, &cpus);
    if (CPU_COUNT(&cpus) != 1 || !CPU_ISSET(place->cpu, &cpus)) atomic_fetch_add(&place->elsewhere, 1);
    if (worker == 0) return;
    atomic_fetch_add(&place->helped, 1);
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (!sigismember(&blocked, SIGINT) || !sigismember(&blocked, SIGUSR1))
        atomic_fetch_add(&place->signals_open, 1);
    if (sigismember(&blocked, SIGSEGV)) atomic_fetch_add(&place->crashes_blocked, 1);
}

/* Helpers started by an unconfined caller go where a confined one is. */
static void follows_the_caller(void **state)
{
    (void)state;
    static struct record record;
    struct place place = {.caller = pthread_self()};
    cpu_set_t all, one;
    memset(&record, 0, sizeof record);
    attn_pool_parallel_for(NULL, INDICES, 4, record_task, &record);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET(place.cpu, &all)) place.cpu++;
    CPU_ZERO(&one);
    CPU_SET(place.cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    attn_pool_parallel_for(NULL, 64, 4, place_task, &place);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_true(place.helped > 0);
    assert_int_equal(place.elsewhere, 0);
    assert_int_equal(place.signals_open, 0);
    assert_int_equal(place.crashes_blocked, 0);
}

/* Helpers keep off the CPU that the caller stands on, but not when there are too few. */
static void task_of_masks(void *arg, int64_t index, int32_t worker)
{
    cpu_set_t cpus;
    (void)index;
    usleep(500);
    sched_getaffinity(0, sizeof cpus, &cpus);
    if (worker > 0) atomic_store((_Atomic int32_t *)arg, CPU_COUNT(&cpus));
}

static void keeps_off_the_caller(void **state)
{
    (void)state;
    cpu_set_t all;
    int allowed = attn_threads_default(0, NULL, 0);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    for (int32_t workers = 2; workers <= allowed + 2; workers++) {
        _Atomic int32_t seen = 0;
        /* On a busy machine a helper may come too late for one call. */
        for (int i = 0; i < 100 && seen == 0; i++)
            attn_pool_parallel_for(NULL, 64, workers, task_of_masks, &seen);
        assert_int_equal(seen, workers <= allowed ? CPU_COUNT(&all) - 1 : CPU_COUNT(&all));
    }
}

/* ---- staying awake ---------------------------------------------------------------------------- */

static double process_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* CPU seconds that the pool takes while its caller sleeps after a call. */
static double rest_seconds(int32_t spin_us)
{
    static struct record record;
    attn_pool_options options = {.spin_us = spin_us};
    memset(&record, 0, sizeof record);
    record.nap = 100;
    attn_pool_parallel_for(&options, INDICES, 2, record_task, &record);
    check_record(&record, 2);
    double before = process_seconds();
    usleep(300000);
    return process_seconds() - before;
}

static void stays_awake_as_told(void **state)
{
    (void)state;
    assert_true(rest_seconds(200000) > 0.005); /* other processes may take most of it */
    assert_true(rest_seconds(0) < 0.005);
    assert_true(rest_seconds(ATTN_SPIN_US) < 0.005);
}

static int ignored(const char *text, int32_t option)
{
    int warnings = 0;
    attn_options options = {.size = sizeof options, .log = count_warning, .log_user = &warnings};
    attn_context *context = NULL;
    options.spin_us = option;
    setenv("ATTN_SPIN_US", text, 1);
    assert_int_equal(attn_open(&options, &context, NULL), ATTN_OK);
    attn_close(context);
    unsetenv("ATTN_SPIN_US");
    return warnings;
}

static void reads_how_long_to_stay_awake(void **state)
{
    (void)state;
    int32_t microseconds = 7;
    assert_true(attn_spin_read("0", &microseconds));
    assert_int_equal(microseconds, 0);
    assert_true(attn_spin_read("1000000", &microseconds));
    assert_int_equal(microseconds, 1000000);
    assert_false(attn_spin_read("1000001", &microseconds));
    assert_false(attn_spin_read("-1", &microseconds));
    assert_false(attn_spin_read("5us", &microseconds));
    assert_int_equal(microseconds, 1000000);
    assert_int_equal(ignored("soon", 0), 1);
    assert_int_equal(ignored("soon", -1), 0);
    assert_int_equal(ignored("20", 0), 0);
    attn_error error = ATTN_ERROR_INIT;
    attn_context *context = NULL;
    attn_options options = {.size = sizeof options, .spin_us = 1000001};
    assert_int_equal(attn_open(&options, &context, &error), ATTN_INVALID_ARGUMENT);
    assert_int_equal(error.kind, ATTN_KIND_INVALID_VALUE);
}

/* ---- fork ------------------------------------------------------------------------------------- */

/* Ends with 0 when a call in the child does all its work on threads of its own. */
static void child_main(void)
{
    static struct record record;
    memset(&record, 0, sizeof record);
    record.nap = 300;
    alarm(20);
    attn_pool_parallel_for(NULL, INDICES, CHILD_WORKERS, record_task, &record);
    int bad =
        record.clashes || record.highest != CHILD_WORKERS - 1 || count_threads("attn-") != CHILD_WORKERS - 1;
    for (int i = 0; i < INDICES; i++) bad |= record.times[i] != 1;
    attn_pool_release();
    bad |= count_threads("attn-") != 0;
    _exit(bad);
}

static void check_child(pid_t child)
{
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void forks_after_use(void **state)
{
    (void)state;
    static struct record record;
    memset(&record, 0, sizeof record);
    attn_pool_parallel_for(NULL, INDICES, 4, record_task, &record);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) child_main();
    check_child(child);
    memset(&record, 0, sizeof record);
    attn_pool_parallel_for(NULL, INDICES, 4, record_task, &record);
    check_record(&record, 4);
}

static void forks_during_others_calls(void **state)
{
    (void)state;
    enum { CALLERS = 3 };
    pthread_t callers[CALLERS];
    struct record *records = calloc(CALLERS, sizeof *records);
    assert_non_null(records);
    for (int i = 0; i < CALLERS; i++) {
        records[i].nap = 100;
        assert_int_equal(pthread_create(&callers[i], NULL, caller_main, &records[i]), 0);
    }
    for (int i = 0; i < 5; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) child_main();
        check_child(child);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(callers[i], NULL);
        check_record(&records[i], 4);
    }
    free(records);
}

struct family {
    _Atomic int32_t forked, is_child, good_children;
};

static void forking_task(void *arg, int64_t index, int32_t worker)
{
    struct family *family = arg;
    (void)index;
    usleep(1000);
    if (worker > 0 || family->is_child || atomic_fetch_add(&family->forked, 1) > 0) return;
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        family->is_child = 1;
        return;
    }
    int status = -1;
    if (waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0)
        family->good_children++;
}

/* The child of a task comes back from the call that its parent's thread was in. */
static void forks_inside_a_task(void **state)
{
    (void)state;
    struct family family = {0};
    attn_pool_parallel_for(NULL, 64, 4, forking_task, &family);
    if (family.is_child) child_main();
    assert_int_equal(family.good_children, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_affinity),
        cmocka_unit_test(reads_environment),
        cmocka_unit_test(warns_of_a_useless_variable),
        cmocka_unit_test(reads_quota),
        cmocka_unit_test(starts_late_and_ends),
        cmocka_unit_test_setup_teardown(runs_each_index_once, pool_open, pool_close),
        cmocka_unit_test_setup_teardown(honours_many_workers, pool_open, pool_close),
        cmocka_unit_test_setup_teardown(nests, pool_open, pool_close),
        cmocka_unit_test_setup_teardown(serves_several_callers, pool_open, pool_close),
        cmocka_unit_test_setup_teardown(waits_for_no_busy_worker, pool_open, pool_close),
        cmocka_unit_test_setup_teardown(yields_to_other_callers, pool_open, pool_close),
        cmocka_unit_test_setup_teardown(follows_the_caller, pool_open, pool_close),
        cmocka_unit_test_setup_teardown(keeps_off_the_caller, pool_open, pool_close),
        cmocka_unit_test_setup_teardown(stays_awake_as_told, pool_open, pool_close),
        cmocka_unit_test(reads_how_long_to_stay_awake),
        cmocka_unit_test_setup_teardown(forks_after_use, pool_open, pool_close),
        cmocka_unit_test_setup_teardown(forks_during_others_calls, pool_open, pool_close),
        cmocka_unit_test_setup_teardown(forks_inside_a_task, pool_open, pool_close),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
