/* options.c: the command line, from one table. */
#include "options.h"
#include <errno.h>
#include <getopt.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_COLUMN = 6, PAGE = 100 };

/* The rules of options.def fill the fields parse, kind, field and limit of a row. */
enum kind { KEEP, RAISE, NUMBER };
#define BY(function)        function, KEEP, 0, 0
#define TEXT(field)         NULL, KEEP, offsetof(options, field), 0
#define SWITCH(field)       NULL, RAISE, offsetof(options, field), 0
#define COUNT(field, limit) NULL, NUMBER, offsetof(options, field), limit

static int bad_value(const char *name, const char *text, const char *expected, failure *f)
{
    return fail(f, ATTN_KIND_INVALID_VALUE, "--%s '%.80s' is not %s", name, text, expected);
}

static int parse_whole(const char *text, unsigned long long limit, unsigned long long *to)
{
    char *end;
    errno = 0;
    *to = strtoull(text, &end, 10);
    return *text < '0' || *text > '9' || *end || errno || *to > limit ? -1 : 0;
}

static int parse_count(const char *name, const char *text, int limit, int *to, failure *f)
{
    unsigned long long value;
    char expected[64];
    snprintf(expected, sizeof expected, "a whole number from 1 to %d", limit);
    if (parse_whole(text, (unsigned long long)limit, &value) || value < 1)
        return bad_value(name, text, expected, f);
    *to = (int)value;
    return 0;
}

static int parse_size(options *o, const char *text, failure *f)
{
    static const char expected[] =
        "TxHxW with T from 1 to 256 and H and W multiples of 4 from 4 to 512, such as 8x32x32";
    unsigned n[3];
    int used = 0;
    if (strspn(text, "0123456789x") != strlen(text) || strlen(text) > 20 ||
        sscanf(text, "%5ux%5ux%5u%n", &n[0], &n[1], &n[2], &used) != 3 || text[used])
        return bad_value("size", text, expected, f);
    if (n[0] < 1 || n[0] > 256 || n[1] < PATCH || n[2] < PATCH || n[1] > 512 || n[2] > 512 || n[1] % PATCH ||
        n[2] % PATCH)
        return bad_value("size", text, expected, f);
    o->shape = (clip_shape){n[0], n[1], n[2]};
    return 0;
}

static int parse_seed(options *o, const char *text, failure *f)
{
    unsigned long long value;
    if (parse_whole(text, UINT64_MAX, &value))
        return bad_value("seed", text, "a whole number from 0 to 2^64 - 1", f);
    o->seed = value;
    return 0;
}

static int parse_dtype(options *o, const char *text, failure *f)
{
    o->dtype = attn_dtype_from_name(text);
    return o->dtype == ATTN_F32 || o->dtype == ATTN_BF16
               ? 0
               : bad_value("attention-dtype", text, "f32 or bf16", f);
}

static int parse_case(options *o, const char *text, failure *f)
{
    o->verify = text;
    return strcmp(text, "small") && strcmp(text, "large") ? bad_value("verify", text, "small or large", f)
                                                          : 0;
}

static int add_object(options *o, const char *text, failure *f)
{
    if (o->objects == OBJECTS)
        return fail(f, ATTN_KIND_INVALID_VALUE,
                    "--object '%.80s' is one too many: the model draws at most %d", text, OBJECTS);
    o->object[o->objects++] = text;
    return 0;
}

static const struct row {
    const char *name, *value;
    int (*parse)(options *o, const char *text, failure *f); /* NULL: by kind */
    enum kind kind;
    size_t field; /* offset in options */
    int limit;
    const char *help;
} rows[] = {
#define O(name, value, rule, help) {name, value, rule, help},
#include "options.def"
};

enum { ROWS = sizeof rows / sizeof *rows, FIRST_ROW = 256 /* above every character that getopt returns */ };

static int apply(options *o, const struct row *row, const char *text, failure *f)
{
    void *field = (char *)o + row->field;
    if (row->parse) return row->parse(o, text, f);
    if (row->kind == NUMBER) return parse_count(row->name, text, row->limit, field, f);
    if (row->kind == RAISE)
        *(int *)field = 1;
    else
        *(const char **)field = text;
    return 0;
}

static void fill_long_options(struct option *list)
{
    for (int i = 0; i < ROWS; i++)
        list[i] = (struct option){rows[i].name, rows[i].value ? required_argument : no_argument, NULL,
                                  FIRST_ROW + i};
    list[ROWS] = (struct option){0};
}

/* ---- help --------------------------------------------------------------------------------------- */

/* Prints words, breaking lines before the page's edge. */
static void print_wrapped(const char *text)
{
    int column = PAGE; /* the first word begins a line */
    for (int length; *text; text += length + (text[length] == ' ')) {
        length = (int)strcspn(text, " ");
        if (column + 1 + length > PAGE) {
            printf("%s%*s", column == PAGE ? "" : "\n", TEXT_COLUMN, "");
            column = TEXT_COLUMN;
        } else {
            putchar(' ');
            column++;
        }
        printf("%.*s", length, text);
        column += length;
    }
    putchar('\n');
}

void options_help(const char *program)
{
    printf("Draws a short clip of bouncing emoji with a video diffusion transformer whose attention runs in "
           "libattn.\n\n"
           "usage: %s [options]\n\n",
           program);
    for (int i = 0; i < ROWS; i++) {
        printf("  --%s%s%s\n", rows[i].name, rows[i].value ? " " : "", rows[i].value ? rows[i].value : "");
        print_wrapped(rows[i].help);
    }
    printf(
        "\nexamples:\n"
        "  %s --size 8x32x32 --object cat:13,19,1.6,-1.1,20 --out cat.gif\n"
        "  %s --object rocket:16,45,2.4,-1.9,27 --object panda:46,20,-1.6,1.2,25 --background ffd080\n"
        "  %s --verify small --diffusion-attention-backend TORCH_SDPA\n"
        "\nexit codes: 0 good, 1 the reference was not reproduced, 2 usage, 3 refused by libattn, 4 file or "
        "memory,\n"
        "130 interrupted\n",
        program, program, program);
}

/* ---- the command line --------------------------------------------------------------------------- */

static int wants_json(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--json")) return 1;
    return 0;
}

static int check_together(const options *o, failure *f)
{
    if (o->no_condition && o->objects)
        return fail(f, ATTN_KIND_MUTUALLY_EXCLUSIVE,
                    "--no-condition describes nothing; leave out --object, or the switch");
    return 0;
}

int options_parse(options *o, int argc, char **argv, failure *f)
{
    int id;
    struct option long_options[ROWS + 1];
    fill_long_options(long_options);
    *o = (options){.shape = {16, 64, 64},
                   .steps = 20,
                   .seed = 11,
                   .background = "6db58a",
                   .dtype = ATTN_F32,
                   .out = "clip.gif",
                   .scale = 4,
                   .json = wants_json(argc, argv)};
    opterr = 0;
    while ((id = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
        if (id == ':')
            return fail(f, ATTN_KIND_INVALID_VALUE, "%.80s needs a value; --help lists the options",
                        argv[optind - 1]);
        if (id == '?')
            return fail(f, ATTN_KIND_UNKNOWN_NAME, "there is no option %.80s here; --help lists the options",
                        argv[optind - 1]);
        if (apply(o, &rows[id - FIRST_ROW], optarg, f)) return -1;
    }
    if (optind < argc)
        return fail(f, ATTN_KIND_UNKNOWN_NAME, "'%.80s' is no option; --help lists them", argv[optind]);
    return o->help || o->version ? 0 : check_together(o, f);
}
