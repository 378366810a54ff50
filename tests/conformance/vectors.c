/* vectors.c: files of vectors, line by line. */
#include "vectors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static int contains(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (; *text; text++)
        if (!strncasecmp(text, word, n)) return 1;
    return n == 0;
}

int vectors_mention(const char *text, const json_t *words)
{
    for (size_t i = 0; i < json_array_size(words); i++)
        if (!contains(text, json_string_value(json_array_get(words, i)))) return 0;
    return 1;
}

/* Counts one file's lines; -1 when it cannot be read. */
static int run_file(const char *path, int (*check)(const json_t *vector), int *passed, int *failed)
{
    char *line = NULL;
    size_t room = 0;
    int number = 0;
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "%s cannot be read\n", path);
        return -1;
    }
    while (getline(&line, &room, file) > 0) {
        json_error_t at;
        number++;
        if (!line[strspn(line, " \t\r\n")]) continue;
        json_t *vector = json_loads(line, 0, &at);
        int good = vector && check(vector);
        if (!vector) printf("%s:%d: not JSON: %s\n", path, number, at.text);
        *(good ? passed : failed) += 1;
        json_decref(vector);
    }
    free(line);
    fclose(file);
    return 0;
}

int vectors_run(char **files, int count, int (*check)(const json_t *vector))
{
    int passed = 0, failed = 0;
    for (int i = 0; i < count; i++)
        if (run_file(files[i], check, &passed, &failed)) return 2;
    printf("%d passed, %d failed\n", passed, failed);
    return failed || !passed;
}
