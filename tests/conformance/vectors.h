/* vectors.h: what programs share that take files of vectors, one JSON object a line. */
#ifndef ATTN_TESTS_VECTORS_H
#define ATTN_TESTS_VECTORS_H

#include <jansson.h>

/* Runs the lines of all files through check, which prints a line when it fails and returns whether it passed.
 * Blank lines are passed over; what is no JSON fails. Closes with "N passed, M failed" and returns the exit
 * status: 0, 1 when a vector failed or there was none, 2 when a file cannot be read. */
int vectors_run(char **files, int count, int (*check)(const json_t *vector));
/* Whether the text holds every word of an array, whatever the case. NULL words: it does. */
int vectors_mention(const char *text, const json_t *words);

#endif
