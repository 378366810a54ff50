/* cli.c: errors, numbers, names and the interrupt flag of the commands. */
#include "cli.h"

#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- interrupt --------------------------------------------------------------------------------- */

int32_t cli_cancel;

static void on_interrupt(int number)
{
    __atomic_store_n(&cli_cancel, 1, __ATOMIC_RELAXED);
    signal(number, SIG_DFL);
}

void cli_catch_interrupt(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_interrupt;
    sigemptyset(&action.sa_mask);
    /* The second signal of a kind ends the process: the handler puts the default back. */
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        /* A shell starts background jobs with SIGINT ignored, nohup ignores SIGHUP; they stay deaf to it. */
        struct sigaction before;
        if (sigaction(numbers[i], NULL, &before) == 0 && before.sa_handler == SIG_IGN) continue;
        sigaction(numbers[i], &action, NULL);
    }
}

int cli_interrupted(void)
{
    return __atomic_load_n(&cli_cancel, __ATOMIC_RELAXED) != 0;
}

/* ---- errors ------------------------------------------------------------------------------------ */

attn_status cli_fail(attn_error *error, attn_kind kind, const char *format, ...)
{
    attn_status status = attn_kind_status(kind);
    if (error) {
        va_list list;
        va_start(list, format);
        vsnprintf(error->text, sizeof error->text, format, list);
        va_end(list);
        error->kind = kind;
        error->status = status;
    }
    return status;
}

/* ---- names ------------------------------------------------------------------------------------- */

#define WORD_MAX 63

static size_t least(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* Levenshtein distance, row by row. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t n = strlen(b), row[WORD_MAX + 1];
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 1; j <= n; j++) {
            size_t above = row[j];
            row[j] = least(above + 1, row[j - 1] + 1, diagonal + (a[i] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[n];
}

const char *cli_nearest(const char *word, const char *const *names)
{
    const char *best = NULL;
    size_t length = strlen(word), best_distance = length < 3 ? 1 : length < 6 ? 2 : length / 3;
    if (length > WORD_MAX) return NULL;
    best_distance++; /* anything below is near enough */
    for (; *names; names++) {
        if (strlen(*names) > WORD_MAX) continue;
        size_t distance = edit_distance(word, *names);
        /* An abbreviation is near however much was left out. */
        if (length >= 3 && strncmp(word, *names, length) == 0) distance = 1;
        if (distance >= best_distance) continue;
        best = *names;
        best_distance = distance;
    }
    return best;
}

/* ---- numbers ----------------------------------------------------------------------------------- */

int cli_read_int(const char *text, int64_t min, int64_t max, int64_t *value)
{
    int negative = *text == '-';
    uint64_t sum = 0, limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
    if (*text == '-' || *text == '+') text++;
    if (!*text) return 0;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return 0;
        uint64_t digit = (uint64_t)(*text - '0');
        if (sum > (limit - digit) / 10) return 0;
        sum = sum * 10 + digit;
    }
    int64_t found = negative ? (sum ? -(int64_t)(sum - 1) - 1 : 0) : (int64_t)sum;
    if (found < min || found > max) return 0;
    *value = found;
    return 1;
}

/* strtod and printf follow the locale of the process; numbers here are always in C notation. */
static locale_t c_locale(void)
{
    static locale_t locale;
    if (!locale) locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return locale;
}

static double read_c_number(const char *text, char **end)
{
    return c_locale() ? strtod_l(text, end, c_locale()) : strtod(text, end);
}

char *cli_write_real(double value, char *text)
{
    locale_t before = c_locale() ? uselocale(c_locale()) : (locale_t)0;
    char *end;
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, 32, "%.*g", digits, value);
        if (strtod(text, &end) == value) break;
    }
    if (before) uselocale(before);
    return text;
}

int cli_read_real(const char *text, double *value)
{
    char *end;
    if (!*text || text[strspn(text, "+-.0123456789eE")]) return 0;
    double found = read_c_number(text, &end);
    if (*end || end == text || !isfinite(found)) return 0;
    *value = found;
    return 1;
}

double cli_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
