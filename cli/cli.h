/* cli.h: what the commands share: exit codes, the shape of a command, errors, the interrupt flag. */
#ifndef ATTN_CLI_H
#define ATTN_CLI_H

#include <attn/attn.h>
#include <stddef.h>

#include "options.h"

/* Exit codes of every command. A failure of the library gives attn_kind_exit(kind), which uses the same. */
enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED_CHECK = 1,
    CLI_USAGE = 2,   /* usage or configuration */
    CLI_REFUSED = 3, /* nothing can or may run it */
    CLI_RUNTIME = 4, /* run-time or I/O failure */
    CLI_INTERRUPTED = 130
};

/* One command. Each file of a command defines `const struct cli_command command_NAME`; its name and summary
 * stand in commands.def. `run` gets argv[0] = the command's name and calls options_parse first. It returns an
 * exit code; main flushes stdout afterwards and turns a write error into CLI_RUNTIME. */
struct cli_command {
    const char *usage;    /* what follows "attn NAME", "[OPTION]... --problem STRING" */
    const char *text;     /* a paragraph for --help, lines of at most 100 columns, "\n" between them */
    const char *examples; /* whole command lines, one a line, "\n" at each end */
    const struct option_row *options; /* ends with OPTION_END; --help is added */
    size_t operands_max;              /* words beside the options; 0: none */
    int (*run)(int argc, char **argv);
};

#define X(name, summary) extern const struct cli_command command_##name;
#include "commands.def"
#undef X

/* Raised by SIGINT. attn_args.cancel points here, and loops of commands look at it between steps; a command
 * that stops for it returns CLI_INTERRUPTED. A second SIGINT ends the process at once. */
extern int32_t cli_cancel;
int cli_interrupted(void);
void cli_catch_interrupt(void); /* called by main */

/* Fills error (NULL allowed) and returns the kind's status, like every failure of a tool function here. */
attn_status cli_fail(attn_error *error, attn_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Nearest of names (NULL-terminated) to word by edit distance, or NULL when none is near. */
const char *cli_nearest(const char *word, const char *const *names);

/* Numbers of text, whatever the locale says. The whole of text must be the number. Returns 0 when it is not
 * one or is out of range. cli_read_real takes decimal notation with an exponent; no hex, inf or nan. */
int cli_read_int(const char *text, int64_t min, int64_t max, int64_t *value);
int cli_read_real(const char *text, double *value);
/* The shortest decimal text that reads back as value; text has at least 32 bytes and is returned. */
char *cli_write_real(double value, char *text);

double cli_seconds(void); /* monotonic clock */

#endif
