/* problem_parse.h: the cursor that problem.c and problem_keys.c share. */
#ifndef ATTN_CLI_PROBLEM_PARSE_H
#define ATTN_CLI_PROBLEM_PARSE_H

#include "problem.h"

#define PROBLEM_LISTS_MAX 32

/* Position in a text. Where the text holds a list, item choice[n] of the n-th list is taken; sizes[n] says
 * how many there are. The text is read once for each combination. */
struct problem_cursor {
    const char *text;
    const char *at;
    attn_error *error;
    size_t lists;
    int64_t choice[PROBLEM_LISTS_MAX];
    int64_t sizes[PROBLEM_LISTS_MAX];
};

/* Kind syntax: column, what was found at `at`, what was expected. Returns 0. */
int problem_expected(struct problem_cursor *cursor, const char *at, const char *expected);

/* Each reads one value (or list) at the cursor; 0 after a failure. */
int problem_read_int(struct problem_cursor *cursor, int64_t min, int64_t max, int64_t *value);
int problem_read_real(struct problem_cursor *cursor, double *value);
/* One of the NULL-terminated words; *index says which. */
int problem_read_word(struct problem_cursor *cursor, const char *const *words, int *index);
/* Any dtype of ATTN_DTYPE_LIST whose bit (1 << dtype) is in allowed. */
int problem_read_dtype(struct problem_cursor *cursor, unsigned allowed, attn_dtype *dtype);

/* ":key=value" parts up to the end of the text. */
int problem_read_keys(struct problem_cursor *cursor, struct problem *problem);
/* Appends the keys of a problem that differ from their defaults. */
void problem_write_keys(const struct problem *problem, char *text, size_t bytes);

#define PROBLEM_FLOATS (1u << ATTN_F32 | 1u << ATTN_F16 | 1u << ATTN_BF16 | 1u << ATTN_F64)
#define PROBLEM_BYTES  (1u << ATTN_BOOL | 1u << ATTN_U8 | 1u << ATTN_I8)

#endif
