/* options.h: a command's options as rows, from which getopt's array and the text of --help are both made. */
#ifndef ATTN_CLI_OPTIONS_H
#define ATTN_CLI_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

/* What a row stores into the command's struct of values, at its offset. */
enum option_kind {
    OPTION_END = 0,
    OPTION_HEADING, /* stores nothing: help is a heading of the --help text, "Tensors" */
    OPTION_FLAG,    /* int: 1 when given */
    OPTION_TEXT,    /* const char *: the last one given counts */
    OPTION_INT,     /* int64_t in [min, max] */
    OPTION_REAL,    /* double in [min, max]; min == max: any finite value */
    OPTION_TEXTS,   /* struct option_texts: every one given, in order */
    OPTION_SETTING, /* struct option_texts of "NAME=VALUE", and of "NAME.PATH=VALUE" for a name that ends in a
                       dot: rows that share a field keep the order in which they were said */
    OPTION_PATHS    /* struct option_texts of "PATH=VALUE": the name ends in a dot, --name.PATH VALUE */
};

#define OPTION_TEXTS_MAX 64
struct option_texts {
    const char *items[OPTION_TEXTS_MAX];
    size_t count;
};

/* A struct of values is zeroed (or set to defaults) by the command before it is parsed. An optional word
 * (argument written "[=WORD]") stores "" when the option stands alone. */
struct option_row {
    enum option_kind kind;
    const char *name;       /* long name without dashes */
    const char *short_name; /* NULL, a letter "j", or a word "dac" that is written -dac */
    const char *argument;   /* NULL: takes none; "FILE"; "[=WORD]": may be left out */
    const char *help;       /* one line or more, "\n" between them; --help indents them */
    size_t offset;          /* offsetof(struct values, field) */
    double min, max;        /* of numbers, inclusive */
};

/* Shorthands: T is the struct of values, F its field.
 *   static const struct option_row rows[] = {
 *       OPTION_ROW_HEADING("Tensors"),
 *       OPTION_ROW_TEXT(struct values, q, "q", NULL, "FILE[:TENSOR]", "queries [B, S, H, D]"),
 *       OPTION_ROW_END}; */
#define OPTION_ROW_HEADING(help)                                                                             \
    {                                                                                                        \
        OPTION_HEADING, NULL, NULL, NULL, help, 0, 0, 0                                                      \
    }
#define OPTION_ROW_FLAG(T, F, name, letter, help)                                                            \
    {                                                                                                        \
        OPTION_FLAG, name, letter, NULL, help, offsetof(T, F), 0, 0                                          \
    }
#define OPTION_ROW_TEXT(T, F, name, letter, arg, help)                                                       \
    {                                                                                                        \
        OPTION_TEXT, name, letter, arg, help, offsetof(T, F), 0, 0                                           \
    }
#define OPTION_ROW_TEXTS(T, F, name, letter, arg, help)                                                      \
    {                                                                                                        \
        OPTION_TEXTS, name, letter, arg, help, offsetof(T, F), 0, 0                                          \
    }
#define OPTION_ROW_INT(T, F, name, letter, arg, help, min, max)                                              \
    {                                                                                                        \
        OPTION_INT, name, letter, arg, help, offsetof(T, F), min, max                                        \
    }
#define OPTION_ROW_REAL(T, F, name, letter, arg, help, min, max)                                             \
    {                                                                                                        \
        OPTION_REAL, name, letter, arg, help, offsetof(T, F), min, max                                       \
    }
#define OPTION_ROW_END                                                                                       \
    {                                                                                                        \
        OPTION_END, NULL, NULL, NULL, NULL, 0, 0, 0                                                          \
    }

struct cli_command;

#define OPTIONS_GO_ON (-1)

/* Parses argv of a command into values. Returns OPTIONS_GO_ON, or an exit code when the command is done:
 * CLI_OK after --help was printed, CLI_USAGE after an error was (unknown options suggest the nearest). On
 * OPTIONS_GO_ON, argv[*first_operand] up to the NULL at the end are the operands; NULL when there are none to
 * have. Texts point into argv. */
int options_parse(const struct cli_command *command, int argc, char **argv, void *values, int *first_operand);

/* The --help text of a command to stdout; name as in commands.def. */
void options_help(const char *name, const struct cli_command *command);

/* name and summary of commands.def by index; 0 past the end. */
int options_command_at(size_t index, const char **name, const char **summary);

#endif
