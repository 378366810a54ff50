/* progress.c: a bar on a terminal; elsewhere a line every few seconds, so that a log stays short. */
#include "progress.h"
#include "network.h"
#include <stdio.h>
#include <unistd.h>

enum { WIDTH = 30, LINE_SECONDS = 10 };

void progress_begin(progress *p, const char *what, int64_t total, int quiet)
{
    double now = seconds_now();
    *p = (progress){.what = what, .total = total, .start = now, .shown = now, .quiet = quiet};
    p->terminal = isatty(STDERR_FILENO);
}

static void draw_bar(const progress *p, double elapsed)
{
    char bar[WIDTH + 1];
    int filled = (int)(p->done * WIDTH / p->total);
    for (int i = 0; i < WIDTH; i++) bar[i] = i < filled ? '=' : i == filled ? '>' : ' ';
    bar[WIDTH] = '\0';
    double left = elapsed / (double)p->done * (double)(p->total - p->done);
    fprintf(stderr, "\r%s [%s] %3d %%  %.0f s, %.0f s left \033[K", p->what, bar,
            (int)(p->done * 100 / p->total), elapsed, left);
    fflush(stderr);
}

void progress_advance(progress *p)
{
    double now = seconds_now(), elapsed = now - p->start;
    p->done++;
    if (p->quiet) return;
    if (p->terminal) {
        if (now - p->shown < 0.1 && p->done > 1) return;
        draw_bar(p, elapsed);
    } else {
        if (now - p->shown < LINE_SECONDS) return;
        fprintf(stderr, "%s: %d %% after %.0f s\n", p->what, (int)(p->done * 100 / p->total), elapsed);
    }
    p->shown = now;
}

void progress_end(progress *p)
{
    if (p->terminal && !p->quiet) fputs("\r\033[K", stderr);
}
