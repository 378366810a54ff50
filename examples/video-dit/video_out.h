/* video_out.h: a clip as GIF, as PNG contact sheet and as .npy. */
#ifndef VIDEO_DIT_VIDEO_OUT_H
#define VIDEO_DIT_VIDEO_OUT_H

#include "fail.h"
#include "file.h"
#include "shape.h"

/* bytes: [frames][height][width][3]. Each pixel becomes scale x scale pixels. The results stand in the
 * buffer, which the caller drops. */
int gif_encode(buffer *b, clip_shape s, const unsigned char *bytes, int scale, failure *f);
int sheet_encode(buffer *b, clip_shape s, const unsigned char *bytes, int scale, failure *f);

enum { COLOURS = 256 };

/* palette.c: at most COLOURS colours that suit the pixels, and for each pixel the index of the nearest. */
typedef struct palette {
    int count;
    unsigned char rgb[COLOURS][PIXEL];
} palette;
int palette_make(palette *p, const unsigned char *rgb, int64_t pixels, failure *f);
int palette_nearest(const palette *p, const unsigned char *rgb);

#endif
