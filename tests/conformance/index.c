/* index.c: parses cases.txt and loads the arrays that it names. */
#include "index.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static void broken(index_case *c, const char *format, ...)
{
    if (c->broken[0]) return; /* the first reason is the one to mend first */
    va_list list;
    va_start(list, format);
    vsnprintf(c->broken, sizeof c->broken, format, list);
    va_end(list);
}

/* Splits a line at blanks; returns how many words there are, at most most. */
static int split(char *line, char **words, int most)
{
    int n = 0;
    for (char *word = strtok(line, " \t\r\n"); word && n < most; word = strtok(NULL, " \t\r\n"))
        words[n++] = word;
    return n;
}

static int word_copy(index_case *c, char *to, const char *from)
{
    if (strlen(from) >= INDEX_WORD) {
        broken(c, "the word \"%.32s...\" is longer than %d bytes", from, INDEX_WORD - 1);
        return -1;
    }
    strcpy(to, from);
    return 0;
}

static int shape_differs(const npy *array, const char *text)
{
    int rank = 0;
    for (const char *at = text; strcmp(text, "-") && *at;) {
        char *end;
        long long n = strtoll(at, &end, 10);
        if (end == at || rank >= array->rank || array->shape[rank++] != n) return 1;
        at = *end == ',' ? end + 1 : end;
    }
    return rank != array->rank;
}

/* Names of the index that differ from attn's. */
static attn_dtype dtype_of(const char *word)
{
    static const struct {
        const char *word;
        attn_dtype dtype;
    } names[] = {{"float32", ATTN_F32}, {"float16", ATTN_F16}, {"float64", ATTN_F64}, {"int64", ATTN_I64},
                 {"int32", ATTN_I32},   {"int8", ATTN_I8},     {"uint8", ATTN_U8},    {"bool", ATTN_BOOL}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i].word, word)) return names[i].dtype;
    return 0;
}

/* in SLOT DTYPE SHAPE FILE, out SLOT DTYPE SHAPE FILE RTOL ATOL */
static void read_slot(const index_reader *reader, index_case *c, char **words, int count)
{
    int output = !strcmp(words[0], "out");
    int *used = output ? &c->outputs : &c->inputs;
    char path[2048], why[512];
    if (count != (output ? 7 : 5)) {
        broken(c, "line %d: \"%s\" takes %d words", reader->line, words[0], output ? 6 : 4);
        return;
    }
    if (*used == INDEX_MAX_SLOTS) {
        broken(c, "line %d: more than %d arrays", reader->line, INDEX_MAX_SLOTS);
        return;
    }
    slot *s = (output ? c->out : c->in) + *used;
    memset(s, 0, sizeof *s);
    if (word_copy(c, s->name, words[1])) return;
    snprintf(path, sizeof path, "%s/%s", reader->folder, words[4]);
    if (npy_read(path, &s->array, why, sizeof why)) {
        broken(c, "line %d: %s", reader->line, why);
        return;
    }
    ++*used;
    if (dtype_of(words[2]) != s->array.dtype)
        broken(c, "line %d: %s is %s in the index and %s in its file", reader->line, words[1], words[2],
               attn_dtype_name(s->array.dtype));
    if (shape_differs(&s->array, words[3]))
        broken(c, "line %d: %s has another shape in its file than %s", reader->line, words[1], words[3]);
    if (!output) return;
    char *end_r, *end_a;
    s->rtol = strtod(words[5], &end_r);
    s->atol = strtod(words[6], &end_a);
    if (*end_r || *end_a || !(s->rtol >= 0) || !(s->atol >= 0))
        broken(c, "line %d: the tolerances %s and %s are no numbers from 0 on", reader->line, words[5],
               words[6]);
}

static void read_attr(const index_reader *reader, index_case *c, char **words, int count)
{
    if (count != 4) broken(c, "line %d: \"attr\" takes a key, a type and a value", reader->line);
    if (c->attrs == INDEX_MAX_ATTRS)
        broken(c, "line %d: more than %d attributes", reader->line, INDEX_MAX_ATTRS);
    if (count != 4 || c->attrs == INDEX_MAX_ATTRS) return;
    attribute *a = c->attr + c->attrs++;
    memset(a, 0, sizeof *a);
    if (word_copy(c, a->key, words[1]) || word_copy(c, a->value, words[3])) return;
    snprintf(a->type, sizeof a->type, "%s", words[2]);
}

/* One line inside a case; 1 at its end. */
static int read_line(const index_reader *reader, index_case *c, char **words, int count)
{
    if (!strcmp(words[0], "end")) return 1;
    if (!strcmp(words[0], "op") && count == 2)
        word_copy(c, c->op, words[1]);
    else if (!strcmp(words[0], "in") || !strcmp(words[0], "out"))
        read_slot(reader, c, words, count);
    else if (!strcmp(words[0], "attr"))
        read_attr(reader, c, words, count);
    else if (strcmp(words[0], "opset") && strcmp(words[0], "features"))
        broken(c, "line %d: unknown line \"%s\"", reader->line, words[0]);
    return 0;
}

int index_next(index_reader *reader, index_case *c)
{
    char line[4096], *words[64];
    memset(c, 0, sizeof *c);
    int inside = 0;
    while (fgets(line, sizeof line, reader->file)) {
        reader->line++;
        if (!strchr(line, '\n') && !feof(reader->file)) {
            broken(c, "line %d is longer than %zu bytes", reader->line, sizeof line - 2);
            return -1;
        }
        int count = split(line, words, 64);
        if (count == 0 || words[0][0] == '#') continue;
        if (!inside) {
            if (strcmp(words[0], "case") || count != 2) {
                broken(c, "line %d: \"case NAME\" expected, found \"%s\"", reader->line, words[0]);
                return -1;
            }
            inside = 1;
            word_copy(c, c->name, words[1]);
        } else if (read_line(reader, c, words, count)) {
            return 1;
        }
    }
    if (!inside) return 0;
    broken(c, "line %d: the index ends inside case %s", reader->line, c->name);
    return -1;
}

void index_free(index_case *c)
{
    for (int i = 0; i < c->inputs; i++) npy_free(&c->in[i].array);
    for (int i = 0; i < c->outputs; i++) npy_free(&c->out[i].array);
}

const npy *index_in(const index_case *c, const char *name)
{
    for (int i = 0; i < c->inputs; i++)
        if (!strcmp(c->in[i].name, name)) return &c->in[i].array;
    return NULL;
}

const slot *index_out(const index_case *c, const char *name)
{
    for (int i = 0; i < c->outputs; i++)
        if (!strcmp(c->out[i].name, name)) return &c->out[i];
    return NULL;
}

const char *index_word(const index_case *c, const char *key)
{
    for (int i = 0; i < c->attrs; i++)
        if (!strcmp(c->attr[i].key, key)) return c->attr[i].value;
    return NULL;
}

double index_number(index_case *c, const char *key, double fallback)
{
    const char *word = index_word(c, key);
    char *end;
    if (!word) return fallback;
    double value = strtod(word, &end);
    if (end == word || *end) broken(c, "attribute %s is \"%s\", expected a number", key, word);
    return value;
}
