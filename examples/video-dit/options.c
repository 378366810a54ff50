/* options.c: the command line, from one table. */
#include "options.h"
#include "file.h"
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

static int parse_device(options *o, const char *text, failure *f)
{
    o->on_gpu = !strcmp(text, "cuda");
    return o->on_gpu || !strcmp(text, "cpu") ? 0 : bad_value("device", text, "cpu or cuda", f);
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
    const char *name, *brief, *value;
    int (*parse)(options *o, const char *text, failure *f); /* NULL: by kind */
    enum kind kind;
    size_t field; /* offset in options */
    int limit;
    const char *help;
} rows[] = {
#define O(name, brief, value, rule, help) {name, brief, value, rule, help},
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
        printf("  %s%s%s--%s%s%s\n", rows[i].brief ? "-" : "", rows[i].brief ? rows[i].brief : "",
               rows[i].brief ? ", " : "", rows[i].name, rows[i].value ? " " : "",
               rows[i].value ? rows[i].value : "");
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

/* The long form of a word such as -dac; 0 when it is none. */
static int lengthen(const char *word, char *to, size_t bytes)
{
    for (int i = 0; i < ROWS; i++) {
        if (!rows[i].brief || word[0] != '-' || strcmp(word + 1, rows[i].brief)) continue;
        snprintf(to, bytes, "--%s", rows[i].name);
        return 1;
    }
    return 0;
}

/* getopt_long knows no short names of several letters; while it reads one, the long name stands in its place.
 */
static int next_option(int argc, char **argv, const struct option *list, const char **word)
{
    char name[64];
    int at = optind;
    char *given = at < argc ? argv[at] : NULL;
    if (given && lengthen(given, name, sizeof name)) argv[at] = name;
    int id = getopt_long(argc, argv, "+:", list, NULL);
    if (given) argv[at] = given;
    *word = given;
    return id;
}

/* What a reference case settles itself. */
static int check_verify(const options *o, const int *given, failure *f)
{
    static const char *const settled[] = {"size", "steps", "seed",  "object", "background", "no-condition",
                                          "out",  "sheet", "video", "scale",  "against"};
    for (int i = 0; i < ROWS && o->verify; i++)
        for (size_t j = 0; j < sizeof settled / sizeof *settled; j++)
            if (given[i] && !strcmp(rows[i].name, settled[j]))
                return fail(
                    f, ATTN_KIND_MUTUALLY_EXCLUSIVE,
                    "--verify draws the recorded case '%s' and writes no file; leave out --%s, or --verify",
                    o->verify, rows[i].name);
    if (o->psnr_only && !o->verify)
        return fail(
            f, ATTN_KIND_INVALID_VALUE,
            "--psnr-only says how --verify judges; give --verify small or large too, or leave it out");
    return 0;
}

static int check_outputs(const options *o, failure *f)
{
    const struct {
        const char *name, *path;
    } outputs[] = {{"out", o->out}, {"sheet", o->sheet}, {"video", o->video}};
    for (int i = 0; i < 3; i++)
        for (int j = i + 1; j < 3; j++)
            if (outputs[i].path && outputs[j].path && file_same(outputs[i].path, outputs[j].path))
                return fail(f, ATTN_KIND_MUTUALLY_EXCLUSIVE,
                            "--%s and --%s name the same file, %.200s; give each its own", outputs[i].name,
                            outputs[j].name, outputs[j].path);
    return 0;
}

static int check_together(const options *o, const int *given, failure *f)
{
    if (check_verify(o, given, f) || check_outputs(o, f)) return -1;
    if (o->no_condition && o->objects)
        return fail(f, ATTN_KIND_MUTUALLY_EXCLUSIVE,
                    "--no-condition describes nothing; leave out --object, or the switch");
    return 0;
}

int options_parse(options *o, int argc, char **argv, failure *f)
{
    int id, given[ROWS] = {0};
    const char *word;
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
    while ((id = next_option(argc, argv, long_options, &word)) != -1) {
        if (id == ':')
            return fail(f, ATTN_KIND_INVALID_VALUE, "%.80s needs a value; --help lists the options", word);
        if (id == '?')
            return fail(f, ATTN_KIND_UNKNOWN_NAME, "there is no option %.80s here; --help lists the options",
                        word);
        given[id - FIRST_ROW] = 1;
        if (apply(o, &rows[id - FIRST_ROW], optarg, f)) return -1;
    }
    if (optind < argc)
        return fail(f, ATTN_KIND_UNKNOWN_NAME, "'%.80s' is no option; --help lists them", argv[optind]);
    return o->help || o->version ? 0 : check_together(o, given, f);
}
