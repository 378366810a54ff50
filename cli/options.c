/* options.c: rows of options to getopt_long's array, to values and to the text of --help. */
#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "report.h"

static const struct {
    const char *name, *summary;
} commands[] = {
#define X(name, summary) {#name, summary},
#include "commands.def"
#undef X
};

int options_command_at(size_t index, const char **name, const char **summary)
{
    if (index >= sizeof commands / sizeof *commands) return 0;
    *name = commands[index].name;
    *summary = commands[index].summary;
    return 1;
}

/* ---- help -------------------------------------------------------------------------------------- */

static int is_optional(const struct option_row *row)
{
    return row->argument && row->argument[0] == '[';
}

static int takes_path(const struct option_row *row)
{
    size_t length = strlen(row->name);
    return row->kind == OPTION_PATHS || (row->kind == OPTION_SETTING && row->name[length - 1] == '.');
}

#define HELP_COLUMN 34

/* "-j, --json", "    --q FILE", "-dac, --diffusion-attention-config JSON"; returns the columns used. */
static int print_names(const struct option_row *row)
{
    const char *letter = row->short_name;
    int columns = letter ? printf("  -%s, ", letter) : printf("      ");
    columns += printf("--%s", row->name);
    if (row->argument)
        columns += printf("%s%s", is_optional(row) || takes_path(row) ? "" : " ", row->argument);
    return columns;
}

static void print_row(const struct option_row *row)
{
    const char *line = row->help;
    int columns = print_names(row);
    if (columns + 2 > HELP_COLUMN) {
        putchar('\n');
        columns = 0;
    }
    for (;;) {
        size_t length = strcspn(line, "\n");
        printf("%*s%.*s\n", HELP_COLUMN - columns, "", (int)length, line);
        if (!line[length]) return;
        line += length + 1;
        columns = 0;
    }
}

static const struct option_row help_row = {OPTION_FLAG, "help", "h", NULL, "this text", 0, 0, 0};

void options_help(const char *name, const struct cli_command *command)
{
    printf("Usage: attn %s%s%s\n", name, command->usage[0] ? " " : "", command->usage);
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(commands[i].name, name) == 0) printf("attn %s: %s.\n", name, commands[i].summary);
    }
    if (command->text && command->text[0]) printf("\n%s\n", command->text);
    if (command->options[0].kind != OPTION_HEADING)
        printf("\n%sOptions%s\n", report_begin(stdout, REPORT_BOLD), report_end(stdout));
    for (const struct option_row *row = command->options; row->kind != OPTION_END; row++) {
        if (row->kind == OPTION_HEADING) {
            printf("\n%s%s%s\n", report_begin(stdout, REPORT_BOLD), row->help, report_end(stdout));
        } else {
            print_row(row);
        }
    }
    print_row(&help_row);
    if (command->examples)
        printf("\n%sExamples%s\n%s", report_begin(stdout, REPORT_BOLD), report_end(stdout),
               command->examples);
    puts("\nExit status: 0 ok, 1 failed check, 2 usage or configuration, 3 refused, 4 run-time or I/O "
         "failure,\n"
         "130 interrupted.");
}

/* ---- parsing ----------------------------------------------------------------------------------- */

#define ROWS_MAX 96

struct parser {
    const char *command;
    const struct option_row *rows[ROWS_MAX]; /* by index, the last one is --help */
    int count;
    struct option longs[ROWS_MAX + 1];
    char shorts[3 * ROWS_MAX + 2];
};

/* getopt's value of row i, beyond every letter. */
enum { VALUE_BASE = 1000 };

static void add_row(struct parser *parser, const struct option_row *row, size_t *shorts)
{
    int argument = !row->argument ? no_argument : is_optional(row) ? optional_argument : required_argument;
    if (parser->count == ROWS_MAX) return;
    parser->longs[parser->count] = (struct option){row->name, argument, NULL, VALUE_BASE + parser->count};
    parser->rows[parser->count++] = row;
    if (!row->short_name || row->short_name[1]) return;
    parser->shorts[(*shorts)++] = row->short_name[0];
    for (int i = 0; i < argument; i++) parser->shorts[(*shorts)++] = ':';
}

static void parser_init(struct parser *parser, const char *name, const struct cli_command *command)
{
    size_t shorts = 0;
    memset(parser, 0, sizeof *parser);
    parser->command = name;
    parser->shorts[shorts++] = ':'; /* a missing argument is told apart from an unknown option */
    for (const struct option_row *row = command->options; row->kind != OPTION_END; row++) {
        if (row->kind != OPTION_HEADING) add_row(parser, row, &shorts);
    }
    add_row(parser, &help_row, &shorts);
}

/* Row of getopt's value, a letter or VALUE_BASE + index. */
static const struct option_row *row_of(const struct parser *parser, int value)
{
    if (value >= VALUE_BASE) return parser->rows[value - VALUE_BASE];
    for (int i = 0; i < parser->count; i++) {
        const char *letter = parser->rows[i]->short_name;
        if (letter && !letter[1] && letter[0] == value) return parser->rows[i];
    }
    return NULL;
}

/* Words such as -dac and -ac.KEY are no letters: they become the long form, in place. Returns 0 when memory
 * is out. */
static int expand_words(const struct parser *parser, int argc, char **argv, char **made, size_t *made_count)
{
    for (int a = 1; a < argc && strcmp(argv[a], "--") != 0; a++) {
        size_t length = strcspn(argv[a], "=.");
        for (int i = 0; i < parser->count && argv[a][0] == '-' && argv[a][1] != '-'; i++) {
            const char *word = parser->rows[i]->short_name;
            if (!word || !word[1] || strlen(word) != length - 1 ||
                strncmp(word, argv[a] + 1, length - 1) != 0)
                continue;
            size_t bytes = strlen(parser->rows[i]->name) + strlen(argv[a] + length) + 3;
            char *text = *made_count < ROWS_MAX ? malloc(bytes) : NULL;
            if (!text) return 0;
            snprintf(text, bytes, "--%s%s", parser->rows[i]->name, argv[a] + length);
            made[(*made_count)++] = argv[a] = text;
        }
    }
    return 1;
}

/* Whether a row has this name, up to its first dot. */
static int is_known(const struct parser *parser, const char *name, size_t length)
{
    for (int i = 0; i < parser->count; i++) {
        const char *row = parser->rows[i]->name;
        if (strncmp(row, name, length) == 0 && (!row[length] || row[length] == '.')) return 1;
    }
    return 0;
}

/* "--attention_config.KEY" becomes "--attention-config.KEY", in place: underscores before the first dot equal
 * dashes. Values that look like options stay as they are, since no row has their name. Returns 0 when memory
 * is out. */
static int dash_words(const struct parser *parser, int argc, char **argv, char **made, size_t *made_count)
{
    for (int a = 1; a < argc && strcmp(argv[a], "--") != 0; a++) {
        size_t length = strcspn(argv[a], "=.");
        if (strncmp(argv[a], "--", 2) != 0 || !memchr(argv[a], '_', length)) continue;
        char *text = *made_count < ROWS_MAX ? strdup(argv[a]) : NULL;
        if (!text) return 0;
        for (size_t i = 0; i < length; i++)
            if (text[i] == '_') text[i] = '-';
        if (is_known(parser, text + 2, length - 2))
            made[(*made_count)++] = argv[a] = text;
        else
            free(text);
    }
    return 1;
}

/* "--name.PATH VALUE" and "--name.PATH=VALUE" become "--name.=PATH=VALUE", in place and one word shorter,
 * since getopt knows whole names only. Returns the new count of words, or -1 when memory is out. */
static int join_paths(const struct parser *parser, int argc, char **argv, char **made, size_t *made_count)
{
    for (int a = 1; a < argc && strcmp(argv[a], "--") != 0; a++) {
        for (int i = 0; i < parser->count; i++) {
            const struct option_row *row = parser->rows[i];
            size_t length = strlen(row->name);
            if (!takes_path(row) || strncmp(argv[a], "--", 2) != 0 ||
                strncmp(argv[a] + 2, row->name, length) != 0 || !argv[a][2 + length] ||
                argv[a][2 + length] == '=')
                continue;
            const char *path = argv[a] + 2 + length;
            int apart = !strchr(path, '=') && a + 1 < argc;
            size_t bytes = strlen(argv[a]) + (apart ? strlen(argv[a + 1]) : 0) + 3;
            char *text = *made_count < ROWS_MAX ? malloc(bytes) : NULL;
            if (!text) return -1;
            snprintf(text, bytes, "--%s=%s%s%s", row->name, path, apart ? "=" : "", apart ? argv[a + 1] : "");
            made[(*made_count)++] = argv[a] = text;
            if (apart) memmove(argv + a + 1, argv + a + 2, (size_t)(argc - a - 1) * sizeof *argv), argc--;
            break;
        }
    }
    return argc;
}

static int unknown_option(const struct parser *parser, const char *word)
{
    const char *names[ROWS_MAX + 1] = {NULL};
    char plain[64];
    for (int i = 0; i < parser->count; i++) names[i] = parser->rows[i]->name;
    snprintf(plain, sizeof plain, "%.*s", (int)strcspn(word, "="), word);
    const char *near = strncmp(plain, "--", 2) == 0 ? cli_nearest(plain + 2, names) : NULL;
    if (near) {
        report_error("unknown option %s; the nearest is --%s; see attn %s --help", plain, near,
                     parser->command);
    } else {
        report_error("unknown option %s; see attn %s --help", plain, parser->command);
    }
    return CLI_USAGE;
}

static int bad_number(const struct option_row *row, const char *text, const char *what)
{
    if (row->min == row->max) {
        report_error("--%s is \"%s\"; expected %s", row->name, text, what);
    } else {
        report_error("--%s is \"%s\"; expected %s from %.17g to %.17g", row->name, text, what, row->min,
                     row->max);
    }
    return CLI_USAGE;
}

static int store_int(const struct option_row *row, const char *text, void *field)
{
    int64_t min = row->min == row->max ? INT64_MIN : (int64_t)row->min;
    int64_t max = row->min == row->max || row->max >= 0x1p63 ? INT64_MAX : (int64_t)row->max;
    if (!cli_read_int(text, min, max, field)) return bad_number(row, text, "a whole number");
    return OPTIONS_GO_ON;
}

static int store_real(const struct option_row *row, const char *text, void *field)
{
    double value;
    if (!cli_read_real(text, &value) || (row->min < row->max && (value < row->min || value > row->max)))
        return bad_number(row, text, "a number");
    *(double *)field = value;
    return OPTIONS_GO_ON;
}

/* "NAME=VALUE"; after a name with a dot the text has its own "=". Lives as long as the process, like every
 * text that values point to. NULL: no memory, or too many. */
static const char *setting_text(const struct option_row *row, const char *text)
{
    static char *kept[OPTION_TEXTS_MAX];
    static size_t count;
    size_t bytes = strlen(row->name) + strlen(text) + 2;
    char *made = count < OPTION_TEXTS_MAX ? malloc(bytes) : NULL;
    if (made) snprintf(kept[count++] = made, bytes, "%s%s%s", row->name, takes_path(row) ? "" : "=", text);
    return made;
}

static int store(const struct option_row *row, const char *text, void *values)
{
    void *field = (char *)values + row->offset;
    struct option_texts *texts = field;
    switch (row->kind) {
    case OPTION_FLAG:
        *(int *)field = 1;
        break;
    case OPTION_TEXT:
        *(const char **)field = text ? text : "";
        break;
    case OPTION_INT:
        return store_int(row, text, field);
    case OPTION_REAL:
        return store_real(row, text, field);
    case OPTION_SETTING:
    case OPTION_PATHS:
    case OPTION_TEXTS:
        if (texts->count == OPTION_TEXTS_MAX) {
            report_error("--%s was given more than %d times", row->name, OPTION_TEXTS_MAX);
            return CLI_USAGE;
        }
        if (row->kind == OPTION_SETTING && !(text = setting_text(row, text))) {
            report_error("no memory for --%s", row->name);
            return CLI_RUNTIME;
        }
        texts->items[texts->count++] = text;
        break;
    case OPTION_END:
    case OPTION_HEADING:
        break;
    }
    return OPTIONS_GO_ON;
}

/* The word that getopt has just refused: a long option stands whole at optind - 1, a letter in optopt. */
static int refuse(const struct parser *parser, int value, char **argv)
{
    const struct option_row *row = optopt ? row_of(parser, optopt) : NULL;
    char letter[3] = {'-', (char)optopt, 0};
    if (value == ':') {
        report_error("%s needs %s", argv[optind - 1], row && row->argument ? row->argument : "a value");
        return CLI_USAGE;
    }
    if (row && optopt >= VALUE_BASE) {
        report_error("--%s takes no value", row->name);
        return CLI_USAGE;
    }
    return unknown_option(parser, optopt && optopt < VALUE_BASE ? letter : argv[optind - 1]);
}

static int parse(const struct parser *parser, const struct cli_command *command, int argc, char **argv,
                 void *values, int *first_operand)
{
    int value, code = OPTIONS_GO_ON;
    optind = 0; /* starts getopt anew */
    opterr = 0;
    while (code == OPTIONS_GO_ON &&
           (value = getopt_long(argc, argv, parser->shorts, parser->longs, NULL)) != -1) {
        if (value == '?' || value == ':') return refuse(parser, value, argv);
        const struct option_row *row = row_of(parser, value);
        if (row == &help_row) {
            options_help(parser->command, command);
            return CLI_OK;
        }
        code = store(row, optarg, values);
    }
    if (code != OPTIONS_GO_ON) return code;
    if ((size_t)(argc - optind) > command->operands_max) {
        report_error("unexpected word \"%s\"; see attn %s --help", argv[optind + (int)command->operands_max],
                     parser->command);
        return CLI_USAGE;
    }
    if (first_operand) *first_operand = optind;
    return OPTIONS_GO_ON;
}

/* The words made of -dac live as long as the process: values point into them. */
int options_parse(const struct cli_command *command, int argc, char **argv, void *values, int *first_operand)
{
    static char *made[ROWS_MAX];
    static size_t made_count;
    struct parser parser;
    parser_init(&parser, argv[0], command);
    int ready = expand_words(&parser, argc, argv, made, &made_count) &&
                dash_words(&parser, argc, argv, made, &made_count);
    int words = ready ? argc : -1;
    if (words >= 0) words = join_paths(&parser, argc, argv, made, &made_count);
    if (words < 0) {
        report_error("out of memory, or an option was given more than %d times", ROWS_MAX);
        return CLI_RUNTIME;
    }
    return parse(&parser, command, words, argv, values, first_operand);
}
