/* index.h: cases.txt, one case at a time. */
#ifndef CONFORMANCE_INDEX_H
#define CONFORMANCE_INDEX_H

#include "npy.h"

#include <stdio.h>

#define INDEX_MAX_SLOTS 16
#define INDEX_MAX_ATTRS 32
#define INDEX_WORD      128

typedef struct slot {
    char name[INDEX_WORD];
    npy array;
    double rtol, atol; /* outputs only */
} slot;

typedef struct attribute {
    char key[INDEX_WORD], type[16], value[INDEX_WORD];
} attribute;

typedef struct index_case {
    char name[INDEX_WORD], op[INDEX_WORD];
    int inputs, outputs, attrs;
    slot in[INDEX_MAX_SLOTS], out[INDEX_MAX_SLOTS];
    attribute attr[INDEX_MAX_ATTRS];
    char broken[768]; /* not empty: why the case cannot be run */
} index_case;

typedef struct index_reader {
    FILE *file;
    const char *folder;
    int line;
} index_reader;

/* 1: a case was read (perhaps a broken one), 0: the end, -1: the index itself is malformed (see broken). */
int index_next(index_reader *reader, index_case *c);
void index_free(index_case *c);

/* NULL when the case has no such slot. */
const npy *index_in(const index_case *c, const char *name);
const slot *index_out(const index_case *c, const char *name);
/* fallback when the case has no such attribute. A value that is no number marks the case broken. */
double index_number(index_case *c, const char *key, double fallback);
const char *index_word(const index_case *c, const char *key); /* NULL: absent */

#endif
