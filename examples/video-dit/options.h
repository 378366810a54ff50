/* options.h: what the command line asks for. */
#ifndef VIDEO_DIT_OPTIONS_H
#define VIDEO_DIT_OPTIONS_H

#include "fail.h"
#include "shape.h"

typedef struct options {
    clip_shape shape;
    int steps;
    uint64_t seed;
    int objects;
    const char *object[OBJECTS]; /* texts: names are in the weights file */
    const char *background;
    int no_condition;
    const char *backend, *config, *self_params;
    attn_dtype dtype;
    int threads;
    int on_gpu;
    const char *weights; /* NULL: the default */
    const char *out, *sheet, *video, *against;
    int scale;
    const char *verify; /* NULL, "small" or "large" */
    int psnr_only, no_check, json, quiet, help, version;
} options;

/* On failure o->json still tells whether to answer in JSON. */
int options_parse(options *o, int argc, char **argv, failure *f);
void options_help(const char *program);

#endif
