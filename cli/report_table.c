/* report_table.c: text tables, as columns or as markdown. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

#define CELL_BYTES 1024

struct cell {
    char *text;
    enum report_style style;
};

struct report_table {
    const char **headings; /* the table's own copy of the caller's list */
    size_t columns;
    struct cell *cells; /* row after row */
    size_t count, room;
};

struct report_table *report_table_new(const char *const *headings)
{
    struct report_table *table = calloc(1, sizeof *table);
    if (!table) return NULL;
    while (headings[table->columns]) table->columns++;
    table->headings = malloc(table->columns * sizeof *table->headings);
    if (!table->headings) {
        free(table);
        return NULL;
    }
    memcpy(table->headings, headings, table->columns * sizeof *table->headings);
    return table;
}

void report_table_free(struct report_table *table)
{
    if (!table) return;
    for (size_t i = 0; i < table->count; i++) free(table->cells[i].text);
    free(table->cells);
    free(table->headings);
    free(table);
}

/* Grows by doubling; a cell that finds no memory is left out. */
static struct cell *next_cell(struct report_table *table)
{
    if (table->count == table->room) {
        size_t room = table->room ? 2 * table->room : 64;
        struct cell *cells = realloc(table->cells, room * sizeof *cells);
        if (!cells) return NULL;
        table->cells = cells;
        table->room = room;
    }
    return &table->cells[table->count];
}

void report_cell(struct report_table *table, const char *format, ...)
{
    char text[CELL_BYTES];
    struct cell *cell = next_cell(table);
    va_list list;
    if (!cell) return;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    cell->text = strdup(text);
    cell->style = REPORT_PLAIN;
    if (cell->text) table->count++;
}

void report_cell_style(struct report_table *table, enum report_style style)
{
    if (table->count) table->cells[table->count - 1].style = style;
}

/* Columns on a screen: bytes that do not continue a UTF-8 sequence. */
static int width(const char *text)
{
    int columns = 0;
    for (; *text; text++) columns += ((unsigned char)*text & 0xC0) != 0x80;
    return columns;
}

static const char *heading(const struct report_table *table, size_t column)
{
    return table->headings[column] + (table->headings[column][0] == '>');
}

static int column_width(const struct report_table *table, size_t column)
{
    int widest = width(heading(table, column));
    for (size_t i = column; i < table->count; i += table->columns) {
        int cell = width(table->cells[i].text);
        if (cell > widest) widest = cell;
    }
    return widest;
}

/* Pads to the column's width; the last column of a plain table is not padded. */
static void print_cell(FILE *stream, const struct report_table *table, size_t column, int columns,
                       const char *text, enum report_style style)
{
    int right = table->headings[column][0] == '>', pad = columns - width(text);
    fprintf(stream, "%*s%s%s%s", right ? pad : 0, "", style ? report_begin(stream, style) : "", text,
            style ? report_end(stream) : "");
    if (!right) fprintf(stream, "%*s", column + 1 < table->columns ? pad : 0, "");
}

static void print_row(FILE *stream, const struct report_table *table, const int *widths,
                      const struct cell *cells)
{
    for (size_t c = 0; c < table->columns; c++) {
        print_cell(stream, table, c, widths[c], cells ? cells[c].text : heading(table, c),
                   cells ? cells[c].style : REPORT_BOLD);
        fputs(c + 1 < table->columns ? "  " : "\n", stream);
    }
}

/* A bar inside a cell would end it. */
static void print_escaped(FILE *stream, const char *text)
{
    for (; *text; text++) {
        if (*text == '|') fputc('\\', stream);
        fputc(*text, stream);
    }
}

static void print_markdown(FILE *stream, const struct report_table *table)
{
    for (size_t c = 0; c < table->columns; c++) fprintf(stream, "| %s ", heading(table, c));
    fputs("|\n", stream);
    for (size_t c = 0; c < table->columns; c++)
        fputs(table->headings[c][0] == '>' ? "| ---: " : "| --- ", stream);
    fputs("|\n", stream);
    for (size_t i = 0; i + table->columns <= table->count; i += table->columns) {
        for (size_t c = 0; c < table->columns; c++) {
            fputs("| ", stream);
            print_escaped(stream, table->cells[i + c].text);
            fputc(' ', stream);
        }
        fputs("|\n", stream);
    }
}

void report_table_print(FILE *stream, const struct report_table *table, enum report_format format)
{
    int *widths = format == REPORT_TABLE ? calloc(table->columns, sizeof *widths) : NULL;
    if (!widths) {
        print_markdown(stream, table);
        return;
    }
    for (size_t c = 0; c < table->columns; c++) widths[c] = column_width(table, c);
    print_row(stream, table, widths, NULL);
    for (size_t i = 0; i + table->columns <= table->count; i += table->columns)
        print_row(stream, table, widths, table->cells + i);
    free(widths);
}
