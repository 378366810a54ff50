/* picture.c: block maps as PNG files. */
#include "picture.h"

#include <png.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { KEPT = 20, LEFT_OUT = 235, GROUND = 130, GAP = 4, SIDE_LEAST = 192, SQUARE_MOST = 16 };

/* Heads in rows and columns, each a field of squares. */
struct sheet {
    int64_t sample, first, heads, columns;
    int64_t square;     /* pixels of a pair of blocks */
    int64_t wide, high; /* pixels of a head */
    int64_t width, height;
    unsigned char *pixels;
};

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static attn_status lay_out(struct sheet *s, const attn_block_map *map, int64_t sample, int64_t head,
                           attn_error *error)
{
    attn_block_stats stats = {.size = sizeof stats};
    attn_status status = attn_block_map_stats(map, -1, -1, &stats, error);
    if (status) return status;
    s->sample = larger(sample, 0);
    s->first = larger(head, 0);
    s->heads = head < 0 ? stats.heads : 1;
    for (s->columns = 1; s->columns * s->columns < s->heads;) s->columns++;
    int64_t most = larger(larger(stats.q_blocks, stats.kv_blocks), 1);
    s->square = SIDE_LEAST / most;
    s->square = s->square < 1 ? 1 : s->square > SQUARE_MOST ? SQUARE_MOST : s->square;
    s->wide = stats.kv_blocks * s->square;
    s->high = stats.q_blocks * s->square;
    s->width = s->columns * (s->wide + GAP) + GAP;
    s->height = (s->heads + s->columns - 1) / s->columns * (s->high + GAP) + GAP;
    if (s->width > 1 << 16 || s->height > 1 << 16)
        return cli_fail(
            error, ATTN_KIND_INVALID_VALUE,
            "the picture would have %lld x %lld pixels; choose a --head, or --convert to larger blocks",
            (long long)s->width, (long long)s->height);
    s->pixels = malloc((size_t)(s->width * s->height));
    if (!s->pixels) return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a picture");
    memset(s->pixels, GROUND, (size_t)(s->width * s->height));
    return ATTN_OK;
}

static void square(struct sheet *s, int64_t x, int64_t y, unsigned char shade)
{
    for (int64_t row = 0; row < s->square; row++)
        memset(s->pixels + (y + row) * s->width + x, shade, (size_t)s->square);
}

static attn_status draw_head(struct sheet *s, const attn_block_map *map, int64_t n, attn_error *error)
{
    size_t bytes;
    int64_t left = n % s->columns * (s->wide + GAP) + GAP, top = n / s->columns * (s->high + GAP) + GAP,
            x = 0, y = 0;
    attn_status status = attn_block_map_text(map, s->sample, s->first + n, NULL, 0, &bytes, error);
    char *text = status ? NULL : malloc(bytes);
    if (!status && !text) status = cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a picture");
    if (!status) status = attn_block_map_text(map, s->sample, s->first + n, text, bytes, NULL, error);
    for (const char *at = text; !status && *at; at++) {
        if (*at == '\n') {
            x = 0;
            y++;
            continue;
        }
        square(s, left + x++ * s->square, top + y * s->square, *at == '#' ? KEPT : LEFT_OUT);
    }
    free(text);
    return status;
}

attn_status picture_save(const char *file, const attn_block_map *map, int64_t sample, int64_t head,
                         attn_error *error)
{
    struct sheet s = {0};
    attn_status status = lay_out(&s, map, sample, head, error);
    for (int64_t n = 0; n < s.heads && !status; n++) status = draw_head(&s, map, n, error);
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)s.width,
                       .height = (png_uint_32)s.height,
                       .format = PNG_FORMAT_GRAY};
    if (!status && !png_image_write_to_file(&image, file, 0, s.pixels, 0, NULL))
        status = cli_fail(error, ATTN_KIND_IO, "%s could not be written: %s", file, image.message);
    free(s.pixels);
    return status;
}
