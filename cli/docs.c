/* docs.c: attn docs, the reference pages printed from the program's own tables. */
#include "docs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "report.h"

struct values {
    int list;
    const char *write;
};

static const struct docs_page {
    const char *name;
    void (*print)(FILE *out, const attn_context *context);
    const char *title;
} pages[] = {
#define X(name, function, title) {name, function, title},
#include "docs.def"
#undef X
};

#define PAGES (sizeof pages / sizeof *pages)

static void print_page(FILE *out, const struct docs_page *page, const attn_context *context)
{
    fprintf(out, "# %s\n\nPrinted by `attn docs %s`; do not edit.\n\n", page->title, page->name);
    page->print(out, context);
}

static void print_index(FILE *out)
{
    fprintf(out, "# Reference\n\nPrinted by `attn docs`; do not edit. `attn docs PAGE` prints one page, "
                 "`attn docs man` "
                 "the man page.\n\n");
    for (size_t i = 0; i < PAGES; i++)
        fprintf(out, "- [%s](%s.md): %s\n", pages[i].name, pages[i].name, pages[i].title);
}

static const struct docs_page *find_page(const char *name)
{
    for (size_t i = 0; i < PAGES; i++)
        if (strcmp(pages[i].name, name) == 0) return &pages[i];
    return NULL;
}

static int unknown_page(const char *name)
{
    const char *names[PAGES + 2] = {"man"};
    for (size_t i = 0; i < PAGES; i++) names[i + 1] = pages[i].name;
    const char *near = cli_nearest(name, names);
    report_error("no page is called '%s'; %s%s%s'attn docs --list' prints their names", name,
                 near ? "did you mean '" : "", near ? near : "", near ? "'? " : "");
    return CLI_USAGE;
}

/* ---- writing ------------------------------------------------------------------------------------ */

static int write_failed(const char *path)
{
    report_error("%s: %s", path, strerror(errno));
    return CLI_RUNTIME;
}

/* Opens DIR/NAME.md. */
static FILE *open_page(const char *folder, const char *name, char *path, size_t bytes)
{
    int n = snprintf(path, bytes, "%s/%s.md", folder, name);
    if (n < 0 || (size_t)n >= bytes) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    return fopen(path, "w");
}

static int close_page(FILE *file, const char *path)
{
    int failed = ferror(file);
    if (fclose(file) || failed) return write_failed(path);
    return CLI_OK;
}

static int write_all(const char *folder, const attn_context *context)
{
    char path[4096];
    if (mkdir(folder, 0777) && errno != EEXIST) return write_failed(folder);
    for (size_t i = 0; i <= PAGES; i++) {
        FILE *file = open_page(folder, i < PAGES ? pages[i].name : "README", path, sizeof path);
        if (!file) return write_failed(path);
        if (i < PAGES)
            print_page(file, &pages[i], context);
        else
            print_index(file);
        int code = close_page(file, path);
        if (code != CLI_OK) return code;
    }
    return CLI_OK;
}

/* ---- the command -------------------------------------------------------------------------------- */

static int print_names(void)
{
    for (size_t i = 0; i < PAGES; i++) printf("%s\n", pages[i].name);
    printf("man\n");
    return CLI_OK;
}

/* Pages say the same on every machine: built-in parts on platform cpu, no modules, no environment. */
static attn_status open_plain(attn_context **context, attn_error *error)
{
    attn_options options = {
        .size = sizeof options, .platform = "cpu", .module_path = "", .flags = ATTN_OPEN_IGNORE_ENV};
    return attn_open(&options, context, error);
}

static int docs_run(int argc, char **argv)
{
    struct values values = {0};
    attn_context *context;
    attn_error error = ATTN_ERROR_INIT;
    int first = argc, code = options_parse(&command_docs, argc, argv, &values, &first);
    if (code != OPTIONS_GO_ON) return code;
    const char *name = first < argc ? argv[first] : NULL;
    const struct docs_page *page = name ? find_page(name) : NULL;
    int man = name && strcmp(name, "man") == 0;
    if (values.list) return print_names();
    if (name && !page && !man) return unknown_page(name);
    if (open_plain(&context, &error)) return report_failure(&error);
    code = CLI_OK;
    if (values.write)
        code = write_all(values.write, context);
    else if (man)
        docs_man(stdout);
    else if (page)
        print_page(stdout, page, context);
    else
        print_index(stdout);
    attn_close(context);
    return code;
}

static const struct option_row rows[] = {
    OPTION_ROW_FLAG(struct values, list, "list", "l", "names of the pages, one a line"),
    OPTION_ROW_TEXT(struct values, write, "write", NULL, "DIR", "writes every page into DIR, as DIR/PAGE.md"),
    OPTION_ROW_END,
};

const struct cli_command command_docs = {
    .usage = "[PAGE] [OPTION]...",
    .text =
        "Prints a reference page as Markdown, or the man page, from the tables that the program itself runs\n"
        "on; without PAGE, the list of pages.",
    .examples = "  attn docs\n"
                "  attn docs statuses\n"
                "  attn docs --write docs/reference\n"
                "  attn docs man | man -l -\n",
    .options = rows,
    .operands_max = 1,
    .run = docs_run,
};
