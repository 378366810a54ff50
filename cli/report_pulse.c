/* report_pulse.c: a sign of life during one call that nothing can step through. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "report.h"

#define TERMINAL_SECONDS 1
#define FILE_SECONDS     10

static void show(const struct report_pulse *pulse, int terminal)
{
    int seconds = (int)(cli_seconds() - pulse->start); /* whole ones that have gone by */
    fprintf(stderr, terminal ? "\r\033[K%s %d s" : "%s %d s\n", pulse->what, seconds);
    fflush(stderr);
}

static void *beat(void *argument)
{
    struct report_pulse *pulse = argument;
    int terminal = isatty(STDERR_FILENO);
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    pthread_mutex_lock(&pulse->lock);
    while (!pulse->ended) {
        next.tv_sec += terminal ? TERMINAL_SECONDS : FILE_SECONDS;
        int late = 0;
        while (!pulse->ended && !late) late = pthread_cond_timedwait(&pulse->wake, &pulse->lock, &next);
        if (pulse->ended) break;
        show(pulse, terminal);
        pulse->shown = 1;
    }
    pthread_mutex_unlock(&pulse->lock);
    return NULL;
}

/* Signals stay with the command's own thread, which is the one that ends early for them. */
static int start_thread(struct report_pulse *pulse)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&pulse->thread, NULL, beat, pulse);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return !failed;
}

void report_pulse_begin(struct report_pulse *pulse, const char *what)
{
    pthread_condattr_t clock;
    memset(pulse, 0, sizeof *pulse);
    pulse->what = what;
    pulse->start = cli_seconds();
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&pulse->lock, NULL);
    pthread_cond_init(&pulse->wake, &clock);
    pthread_condattr_destroy(&clock);
    pulse->running = start_thread(pulse);
}

void report_pulse_end(struct report_pulse *pulse)
{
    if (pulse->running) {
        pthread_mutex_lock(&pulse->lock);
        pulse->ended = 1;
        pthread_cond_signal(&pulse->wake);
        pthread_mutex_unlock(&pulse->lock);
        pthread_join(pulse->thread, NULL);
    }
    if (pulse->shown && isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
    pthread_cond_destroy(&pulse->wake);
    pthread_mutex_destroy(&pulse->lock);
}
