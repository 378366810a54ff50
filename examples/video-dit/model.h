/* model.h: the weights of emoji-dit, in f32. */
#ifndef VIDEO_DIT_MODEL_H
#define VIDEO_DIT_MODEL_H

#include "fail.h"
#include "shape.h"
#include <jansson.h>

typedef struct block_weights {
#define B(field, name, rows, columns) const float *field;
#include "tensors.def"
} block_weights;

typedef struct model {
    float *memory; /* all tensors, one behind the other */
    int64_t values;
    json_t *classes; /* names of the emoji in order of id */
#define M(field, name, rows, columns) const float *field;
#include "tensors.def"
    block_weights blocks[DEPTH];
} model;

/* Reads the weights and checks that they are those of emoji-dit. On failure nothing is left to close. */
int model_open(model *m, const char *path, failure *f);
void model_close(model *m);

/* The id of an emoji's name; a dash or an underscore stands for a blank, "any" is CLASSES. -1: no such name,
 * and the failure lists them all. */
int model_class(const model *m, const char *name, failure *f);
const char *model_class_name(const model *m, int id);

#endif
