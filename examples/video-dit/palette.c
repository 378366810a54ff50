/* palette.c: a palette for a clip by cutting boxes of colours where they vary most. */
#include "video_out.h"
#include <stdlib.h>
#include <string.h>

typedef struct colour {
    unsigned char rgb[4]; /* the fourth is zero */
    int64_t pixels;
} colour;

typedef struct box {
    colour *first;
    int64_t count;
    int channel;   /* along which it varies most */
    double spread; /* sum of squares around the mean along that channel */
    double mean[PIXEL];
} box;

static int by_rgb(const void *a, const void *b)
{
    return memcmp(a, b, PIXEL);
}

/* Sorts the pixels and merges equal ones. Returns the number of colours. */
static int64_t merge_colours(colour *list, const unsigned char *rgb, int64_t pixels)
{
    int64_t count = 0;
    for (int64_t i = 0; i < pixels; i++) {
        list[i] = (colour){.pixels = 1};
        memcpy(list[i].rgb, rgb + i * PIXEL, PIXEL);
    }
    qsort(list, (size_t)pixels, sizeof *list, by_rgb);
    for (int64_t i = 0; i < pixels; i++) {
        if (count && !by_rgb(&list[count - 1], &list[i]))
            list[count - 1].pixels++;
        else
            list[count++] = list[i];
    }
    return count;
}

static void measure(box *b)
{
    double sum[PIXEL] = {0}, squares[PIXEL] = {0}, weight = 0;
    for (int64_t i = 0; i < b->count; i++) {
        double w = (double)b->first[i].pixels;
        weight += w;
        for (int c = 0; c < PIXEL; c++) {
            sum[c] += w * b->first[i].rgb[c];
            squares[c] += w * b->first[i].rgb[c] * b->first[i].rgb[c];
        }
    }
    b->spread = 0;
    for (int c = 0; c < PIXEL; c++) {
        b->mean[c] = weight > 0 ? sum[c] / weight : 0;
        double spread = squares[c] - sum[c] * b->mean[c];
        if (spread > b->spread) {
            b->spread = spread;
            b->channel = c;
        }
    }
}

/* Moves the colours up to the mean to the front; both sides are non-empty when the box has spread. */
static void cut(box *b, box *other)
{
    int64_t low = 0;
    for (int64_t i = 0; i < b->count; i++)
        if (b->first[i].rgb[b->channel] <= b->mean[b->channel]) {
            colour moved = b->first[i];
            b->first[i] = b->first[low];
            b->first[low++] = moved;
        }
    *other = (box){.first = b->first + low, .count = b->count - low};
    b->count = low;
    measure(b);
    measure(other);
}

static int widest(const box *boxes, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++)
        if (boxes[i].spread > boxes[best].spread) best = i;
    return best;
}

int palette_make(palette *p, const unsigned char *rgb, int64_t pixels, failure *f)
{
    box boxes[COLOURS];
    colour *list = malloc((size_t)pixels * sizeof *list);
    if (!list) return fail(f, ATTN_KIND_OUT_OF_MEMORY, "no memory for the colours of the clip");
    boxes[0] = (box){.first = list, .count = merge_colours(list, rgb, pixels)};
    measure(&boxes[0]);
    for (p->count = 1; p->count < COLOURS; p->count++) {
        box *b = &boxes[widest(boxes, p->count)];
        if (b->spread < 0.25) break; /* two neighbouring colours have 0.5: every box is one colour */
        cut(b, &boxes[p->count]);
    }
    for (int i = 0; i < p->count; i++)
        for (int c = 0; c < PIXEL; c++) p->rgb[i][c] = (unsigned char)(boxes[i].mean[c] + 0.5);
    free(list);
    return 0;
}

int palette_nearest(const palette *p, const unsigned char *rgb)
{
    int best = 0, least = 1 << 30;
    for (int i = 0; i < p->count; i++) {
        int r = rgb[0] - p->rgb[i][0], g = rgb[1] - p->rgb[i][1], b = rgb[2] - p->rgb[i][2];
        int distance = r * r + g * g + b * b;
        if (distance < least) {
            least = distance;
            best = i;
        }
    }
    return best;
}
