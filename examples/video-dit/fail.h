/* fail.h: what stops the program is one sentence and the exit code of its kind. */
#ifndef VIDEO_DIT_FAIL_H
#define VIDEO_DIT_FAIL_H

#include <attn/attn.h>

typedef struct failure {
    attn_kind kind; /* a row of ATTN_KIND_LIST, which also gives the exit code */
    char text[640];
} failure;

/* Fills the failure and returns -1, so that a caller can write `return fail(...)`. */
int fail(failure *f, attn_kind kind, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The same with what the library said; `doing` is put in front of it. */
int fail_attn(failure *f, const char *doing, const attn_error *error);

/* The same with errno's words at the end. */
int fail_errno(failure *f, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same for ^C, wherever it was noticed. */
int fail_cancelled(failure *f);

#endif
