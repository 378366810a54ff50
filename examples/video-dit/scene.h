/* scene.h: what a clip shows, and its context tokens. */
#ifndef VIDEO_DIT_SCENE_H
#define VIDEO_DIT_SCENE_H

#include "model.h"

typedef struct object {
    int id; /* of a class; CLASSES: any */
    double x, y, vx, vy, size;
} object;

typedef struct scene {
    int objects; /* 0: the clip is not described at all, and the background does not count */
    object object[OBJECTS];
    unsigned char background[PIXEL];
} scene;

/* Parses NAME:X,Y,VX,VY,SIZE. */
int scene_parse_object(const model *m, const char *text, object *o, failure *f);
/* Parses RRGGBB, with or without '#'. */
int scene_parse_background(const char *text, unsigned char *rgb, failure *f);

/* Three emoji that suit the shape. */
int scene_default(const model *m, clip_shape shape, scene *s, failure *f);

/* Objects must be smaller than the picture. */
int scene_check(const model *m, const scene *s, clip_shape shape, failure *f);

/* Context tokens of section 2 of MODEL.md: SLOTS rows of DIM, of which those with valid[j] = 1 mean something
 * and the others are zero. */
void scene_encode(const model *m, const scene *s, clip_shape shape, float *context, unsigned char *valid);

#endif
