/* report.c: errors, progress, JSON and units. Tables are in report_table.c. */
#include "report.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"

/* ---- errors ------------------------------------------------------------------------------------ */

static const char *command_name;

void report_command(const char *name)
{
    command_name = name;
}

/* Sentences quote what files and arguments hold; control characters in it must not reach a terminal. */
static void print_clean(const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        fputc(c < 0x20 || c == 0x7F ? '?' : c, stderr);
    }
}

#define LINE_BYTES 2048

static void print_line(enum report_style style, const char *format, va_list list)
{
    char text[LINE_BYTES];
    fflush(stdout); /* keeps the order of both streams on a terminal */
    vsnprintf(text, sizeof text, format, list);
    fprintf(stderr, "%sattn%s%s:%s ", report_begin(stderr, style), command_name ? " " : "",
            command_name ? command_name : "", style == REPORT_PLAIN ? "" : report_end(stderr));
    print_clean(text);
    fputc('\n', stderr);
}

void report_error(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    print_line(REPORT_BAD, format, list);
    va_end(list);
}

void report_note(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    print_line(REPORT_PLAIN, format, list);
    va_end(list);
}

int report_failure(const attn_error *error)
{
    report_error("%s: %s", attn_kind_name(error->kind), error->text);
    return attn_kind_exit(error->kind);
}

int report_failure_json(const attn_error *error, int json)
{
    int code = report_failure(error);
    json_t *object = json ? json_object() : NULL;
    if (!object) return code;
    report_json_error(object, error);
    return report_json(object) == CLI_OK ? code : CLI_RUNTIME;
}

/* ---- colour ------------------------------------------------------------------------------------ */

static int has_colour(FILE *stream)
{
    const char *term = getenv("TERM"), *off = getenv("NO_COLOR");
    return isatty(fileno(stream)) && !(off && *off) && term && strcmp(term, "dumb") != 0;
}

const char *report_begin(FILE *stream, enum report_style style)
{
    static const char *const codes[] = {"", "\033[1m", "\033[32m", "\033[31m", "\033[2m"};
    return has_colour(stream) ? codes[style] : "";
}

const char *report_end(FILE *stream)
{
    return has_colour(stream) ? "\033[0m" : "";
}

/* ---- progress ---------------------------------------------------------------------------------- */

void report_progress_begin(struct report_progress *progress, const char *what, int64_t total)
{
    memset(progress, 0, sizeof *progress);
    progress->what = what;
    progress->total = total;
    progress->start = progress->last = cli_seconds();
}

#define QUIET_SECONDS    1.0
#define TERMINAL_SECONDS 0.1
#define FILE_SECONDS     10.0

void report_progress_step(struct report_progress *progress, int64_t done, const char *item)
{
    double now = cli_seconds(), pause = isatty(STDERR_FILENO) ? TERMINAL_SECONDS : FILE_SECONDS;
    if (now - progress->start < QUIET_SECONDS) return;
    if ((progress->shown || pause >= FILE_SECONDS) && now - progress->last < pause) return;
    progress->last = now;
    progress->shown = 1;
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r\033[K%s %lld/%lld  %.60s", progress->what, (long long)done,
                (long long)progress->total, item ? item : "");
        fflush(stderr);
    } else {
        fprintf(stderr, "%s %lld/%lld  %s\n", progress->what, (long long)done, (long long)progress->total,
                item ? item : "");
    }
}

void report_progress_clear(struct report_progress *progress)
{
    if (progress->shown && isatty(STDERR_FILENO)) fputs("\r\033[K", stderr);
    progress->shown = 0;
}

/* ---- JSON -------------------------------------------------------------------------------------- */

static int print_json(json_t *value, size_t flags)
{
    /* json_dumpf loses write errors of a buffered stream; main sees them when it flushes. */
    int failed =
        !value || json_dumpf(value, stdout, flags | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(12)) != 0;
    json_decref(value);
    if (failed) {
        /* main tells why the stream failed, and nothing when its reader has gone. */
        if (!ferror(stdout)) report_error("the JSON text could not be made");
        return CLI_RUNTIME;
    }
    return putchar('\n') == EOF ? CLI_RUNTIME : CLI_OK;
}

int report_json(json_t *value)
{
    return print_json(value, JSON_INDENT(2));
}

int report_json_line(json_t *value)
{
    return print_json(value, JSON_COMPACT);
}

json_t *report_real(double value)
{
    if (isnan(value)) return json_string("nan");
    if (isinf(value)) return json_string(value > 0 ? "inf" : "-inf");
    return json_real(value);
}

void report_json_error(json_t *object, const attn_error *error)
{
    int failed = error && error->kind != ATTN_KIND_NONE;
    json_object_set_new(object, "error_kind",
                        failed ? json_string(attn_kind_name(error->kind)) : json_null());
    json_object_set_new(object, "error", failed ? json_string(error->text) : json_null());
}

/* ---- units ------------------------------------------------------------------------------------- */

struct unit {
    double from;
    double factor;
    const char *name;
};

static char *in_units(double value, const struct unit *units, char *text)
{
    while (units->from > 0 && fabs(value) < units->from) units++;
    double scaled = value * units->factor;
    snprintf(text, 32, "%.*f %s", fabs(scaled) < 10 ? 2 : fabs(scaled) < 100 ? 1 : 0, scaled, units->name);
    return text;
}

char *report_time(double seconds, char *text)
{
    static const struct unit units[] = {{1, 1, "s"}, {1e-3, 1e3, "ms"}, {1e-6, 1e6, "us"}, {0, 1e9, "ns"}};
    return in_units(seconds, units, text);
}

char *report_bytes(double bytes, char *text)
{
    static const struct unit units[] = {{0x1p40, 0x1p-40, "TiB"},
                                        {0x1p30, 0x1p-30, "GiB"},
                                        {0x1p20, 0x1p-20, "MiB"},
                                        {0x1p10, 0x1p-10, "KiB"}};
    if (fabs(bytes) >= 1024) return in_units(bytes, units, text);
    snprintf(text, 32, "%.0f B", bytes);
    return text;
}

/* ---- what was done with blocks ------------------------------------------------------------------- */

const char *report_blocks(const char *report, double map_seconds, double seconds, char text[256])
{
    int used = snprintf(text, 256, "%s", report);
    if (map_seconds > 0 && seconds > 0 && used >= 0 && used < 256)
        snprintf(text + used, (size_t)(256 - used), ", chosen in %.2f ms, %.1f %% of the time",
                 1e3 * map_seconds, 100 * map_seconds / seconds);
    return text;
}
