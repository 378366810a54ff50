/* video_out.c: encodes a clip with giflib and libpng, in memory: what is written to disk is written at once.
 */
#include "video_out.h"
#include <gif_lib.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>

enum { FRAME_TIME = 8, /* hundredths of a second */ SHEET_GAP = 4, SHEET_GREY = 255 };

static int add_bytes(GifFileType *gif, const GifByteType *bytes, int count)
{
    buffer_add(gif->UserData, bytes, (size_t)count);
    return ((buffer *)gif->UserData)->failed ? 0 : count;
}

static int put_loop(GifFileType *gif)
{
    const GifByteType forever[] = {1, 0, 0};
    return EGifPutExtensionLeader(gif, APPLICATION_EXT_FUNC_CODE) == GIF_OK &&
           EGifPutExtensionBlock(gif, 11, "NETSCAPE2.0") == GIF_OK &&
           EGifPutExtensionBlock(gif, sizeof forever, forever) == GIF_OK &&
           EGifPutExtensionTrailer(gif) == GIF_OK;
}

static int put_header(GifFileType *gif, clip_shape s, const palette *p, int scale)
{
    ColorMapObject *map = GifMakeMapObject(COLOURS, NULL);
    if (!map) return 0;
    for (int i = 0; i < p->count; i++)
        map->Colors[i] = (GifColorType){p->rgb[i][0], p->rgb[i][1], p->rgb[i][2]};
    EGifSetGifVersion(gif, true);
    int good = EGifPutScreenDesc(gif, (int)s.width * scale, (int)s.height * scale, 8, 0, map) == GIF_OK;
    GifFreeMapObject(map);
    return good && put_loop(gif);
}

static int put_control(GifFileType *gif)
{
    const GraphicsControlBlock control = {DISPOSE_DO_NOT, false, FRAME_TIME, NO_TRANSPARENT_COLOR};
    GifByteType bytes[4];
    EGifGCBToExtension(&control, bytes);
    return EGifPutExtension(gif, GRAPHICS_EXT_FUNC_CODE, sizeof bytes, bytes) == GIF_OK;
}

/* line: room for a scaled line. */
static int put_frame(GifFileType *gif, clip_shape s, const palette *p, const unsigned char *rgb, int scale,
                     GifPixelType *line)
{
    int width = (int)s.width * scale;
    if (!put_control(gif) || EGifPutImageDesc(gif, 0, 0, width, (int)s.height * scale, false, NULL) != GIF_OK)
        return 0;
    for (int64_t y = 0; y < s.height; y++) {
        for (int64_t x = 0; x < s.width; x++)
            memset(line + x * scale, palette_nearest(p, rgb + (y * s.width + x) * PIXEL), (size_t)scale);
        for (int i = 0; i < scale; i++) {
            GifPixelType copy[4096]; /* EGifPutLine may mask the pixels it is given */
            memcpy(copy, line, (size_t)width);
            if (EGifPutLine(gif, copy, width) != GIF_OK) return 0;
        }
    }
    return 1;
}

int gif_encode(buffer *b, clip_shape s, const unsigned char *bytes, int scale, failure *f)
{
    palette p;
    GifPixelType line[4096];
    int error = 0;
    int64_t frame = s.height * s.width * PIXEL;
    if (s.width * scale > (int64_t)sizeof line || s.height * scale > 65535)
        return fail(f, ATTN_KIND_INVALID_VALUE,
                    "a GIF of %lld x %lld pixels is more than this program writes (%zu wide); "
                    "choose a smaller --scale",
                    (long long)s.width * scale, (long long)s.height * scale, sizeof line);
    if (palette_make(&p, bytes, s.frames * s.height * s.width, f)) return -1;
    GifFileType *gif = EGifOpen(b, add_bytes, &error);
    int good = gif && put_header(gif, s, &p, scale);
    for (int64_t t = 0; good && t < s.frames; t++)
        good = put_frame(gif, s, &p, bytes + t * frame, scale, line);
    if (gif) {
        if (!good) error = gif->Error;
        int why = 0;
        if (EGifCloseFile(gif, &why) != GIF_OK && good) {
            good = 0;
            error = why;
        }
    }
    if (good) return 0;
    const char *text = GifErrorString(error);
    return fail(f, ATTN_KIND_INTERNAL, "giflib could not encode the clip: %s",
                text ? text : "no reason given");
}

/* As near to a square of frames as whole lines allow. */
static int64_t sheet_columns(int64_t frames)
{
    int64_t columns = 1;
    while (columns * columns < frames) columns++;
    return columns;
}

static void put_tile(unsigned char *sheet, int64_t sheet_width, clip_shape s, const unsigned char *rgb,
                     int scale, int64_t left, int64_t top)
{
    for (int64_t y = 0; y < s.height * scale; y++)
        for (int64_t x = 0; x < s.width * scale; x++)
            memcpy(sheet + ((top + y) * sheet_width + left + x) * PIXEL,
                   rgb + (y / scale * s.width + x / scale) * PIXEL, PIXEL);
}

static int encode_png(buffer *b, const unsigned char *rgb, int64_t width, int64_t height, failure *f)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = PNG_FORMAT_RGB};
    png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
    unsigned char *png = malloc(bytes);
    if (!png) return fail(f, ATTN_KIND_OUT_OF_MEMORY, "no memory for the contact sheet");
    int good = png_image_write_to_memory(&image, png, &bytes, 0, rgb, 0, NULL);
    if (good) buffer_add(b, png, bytes);
    free(png);
    return good ? 0
                : fail(f, ATTN_KIND_INTERNAL, "libpng could not encode the contact sheet: %s", image.message);
}

int sheet_encode(buffer *b, clip_shape s, const unsigned char *bytes, int scale, failure *f)
{
    int64_t columns = sheet_columns(s.frames), lines = (s.frames + columns - 1) / columns;
    int64_t step_x = s.width * scale + SHEET_GAP, step_y = s.height * scale + SHEET_GAP;
    int64_t width = columns * step_x + SHEET_GAP, height = lines * step_y + SHEET_GAP;
    if (width > 16384 || height > 16384)
        return fail(f, ATTN_KIND_INVALID_VALUE,
                    "a contact sheet of %lld x %lld pixels is too large; choose a smaller "
                    "--scale",
                    (long long)width, (long long)height);
    unsigned char *sheet = malloc((size_t)(width * height * PIXEL));
    if (!sheet) return fail(f, ATTN_KIND_OUT_OF_MEMORY, "no memory for the contact sheet");
    memset(sheet, SHEET_GREY, (size_t)(width * height * PIXEL));
    for (int64_t t = 0; t < s.frames; t++)
        put_tile(sheet, width, s, bytes + t * s.height * s.width * PIXEL, scale,
                 SHEET_GAP + t % columns * step_x, SHEET_GAP + t / columns * step_y);
    int rc = encode_png(b, sheet, width, height, f);
    free(sheet);
    return rc;
}
