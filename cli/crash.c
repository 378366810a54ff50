/* crash.c: tells what ran when the process crashed. */
#include "crash.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "problem.h"

static char crash_text[PROBLEM_TEXT_BYTES + 256];

static void on_crash(int number)
{
    if (write(STDERR_FILENO, crash_text, strlen(crash_text)) < 0) _exit(CLI_RUNTIME);
    signal(number, SIG_DFL);
    raise(number);
}

void crash_catch(void)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) signal(numbers[i], on_crash);
}

void crash_note(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(crash_text, sizeof crash_text, format, args);
    va_end(args);
}
