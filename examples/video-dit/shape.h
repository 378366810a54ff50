/* shape.h: the sizes of emoji-dit and of a clip. */
#ifndef VIDEO_DIT_SHAPE_H
#define VIDEO_DIT_SHAPE_H

#include <stdint.h>

enum {
    DIM = 256, /* channels */
    DEPTH = 6, /* blocks */
    HEADS = 4, /* heads of HEAD_DIM channels: DIM together */
    HEAD_DIM = 64,
    MLP = 1024,
    PATCH = 4, /* pixels of a patch along each side; one frame */
    PIXEL = 3, /* numbers of a pixel */
    TOKEN = PATCH * PATCH * PIXEL,
    WAVES = 6, /* frequencies of a Fourier feature */
    FEATURE = 1 + 2 * WAVES,
    CLASSES = 24, /* one row more stands for "any" */
    OBJECTS = 3,
    SLOTS = 8, /* keys of cross-attention, most of them padding */
    MODULATIONS = 6,
    PAIRS = HEAD_DIM / 2 /* pairs of channels that RoPE turns */
};

typedef struct clip_shape {
    int64_t frames, height, width;
} clip_shape;

static inline int64_t shape_tokens(clip_shape s)
{
    return s.frames * (s.height / PATCH) * (s.width / PATCH);
}

static inline int64_t shape_values(clip_shape s)
{
    return s.frames * s.height * s.width * PIXEL;
}

#endif
