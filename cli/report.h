/* report.h: what the tools print: errors and progress on stderr, tables and JSON on stdout. */
#ifndef ATTN_CLI_REPORT_H
#define ATTN_CLI_REPORT_H

#include <attn/attn.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>

/* ---- errors ------------------------------------------------------------------------------------ */

/* "attn COMMAND: sentence" on stderr. report_command sets the name once (main does). */
void report_command(const char *name);
void report_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void report_note(const char *format, ...) __attribute__((format(printf, 1, 2))); /* the same without colour */
/* Prints a library or tool failure and returns its exit code. */
int report_failure(const attn_error *error);
/* As report_failure; with json non-zero it also prints {"error_kind": ..., "error": ...} on stdout. */
int report_failure_json(const attn_error *error, int json);

/* ---- colour ------------------------------------------------------------------------------------ */

enum report_style { REPORT_PLAIN, REPORT_BOLD, REPORT_GOOD, REPORT_BAD, REPORT_FAINT };
/* Escape sequence for a stream, "" unless it is a terminal, NO_COLOR is unset and TERM is not dumb. */
const char *report_begin(FILE *stream, enum report_style style);
const char *report_end(FILE *stream);

/* ---- progress ---------------------------------------------------------------------------------- */

/* One line on stderr, rewritten on a terminal at most ten times a second, otherwise printed every ten
 * seconds. Nothing appears before a second has passed. */
struct report_progress {
    const char *what; /* "check" */
    int64_t total;
    double start, last;
    int shown;
};
void report_progress_begin(struct report_progress *progress, const char *what, int64_t total);
void report_progress_step(struct report_progress *progress, int64_t done, const char *item);
/* Clears the line. Call before printing something else as well; the next step draws it again. */
void report_progress_clear(struct report_progress *progress);

/* The same for one long call: "WHAT 12 s" every second on a terminal, otherwise every ten, from a thread that
 * takes no signals. Without a thread to be had it stays silent. End it before printing anything else. */
struct report_pulse {
    const char *what; /* "run: attention" */
    double start;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int running, ended, shown; /* the last two under lock */
};
void report_pulse_begin(struct report_pulse *pulse, const char *what);
void report_pulse_end(struct report_pulse *pulse);

/* ---- what was done with blocks ------------------------------------------------------------------ */

/* A layer's report on its blocks, and how much of a call of `seconds` went into choosing them (map_seconds;
 * 0: nothing is said): "4 of 32 cubes (12.5 %), chosen in 1.23 ms, 1.4 % of the time". Returns text. */
const char *report_blocks(const char *report, double map_seconds, double seconds, char text[256]);

/* ---- tables ------------------------------------------------------------------------------------ */

enum report_format { REPORT_TABLE, REPORT_MARKDOWN };

struct report_table; /* text cells, columns as wide as their widest cell (UTF-8 counted by code point) */
/* headings: NULL-terminated; a heading that starts with '>' is right-aligned (and printed without it). NULL:
 * out of memory. */
struct report_table *report_table_new(const char *const *headings);
/* The next cell of the row; printf format. A row is full after as many cells as there are headings. */
void report_cell(struct report_table *table, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Style of the cell that was added last. */
void report_cell_style(struct report_table *table, enum report_style style);
void report_table_print(FILE *stream, const struct report_table *table, enum report_format format);
void report_table_free(struct report_table *table); /* NULL allowed */

/* ---- JSON -------------------------------------------------------------------------------------- */

/* Prints a value with two blanks of indentation and a newline, and releases it. Returns CLI_OK or
 * CLI_RUNTIME. */
int report_json(json_t *value);
/* The same on one line, for JSON lines. */
int report_json_line(json_t *value);
/* A number; infinities and NaN, which JSON lacks, become the texts "inf", "-inf", "nan". */
json_t *report_real(double value);
/* Adds "error_kind" and "error" of a failure to an object (null and null for kind none, or error NULL). */
void report_json_error(json_t *object, const attn_error *error);

/* ---- units ------------------------------------------------------------------------------------- */

/* "1.50 ms", "3.2 MiB", into a buffer of at least 32 bytes, which is returned. */
char *report_time(double seconds, char *text);
char *report_bytes(double bytes, char *text);

#endif
