/* scene.c: reads what a clip shows from text. */
#include "scene.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBERS = 5 };

static int bad_object(const char *text, failure *f)
{
    return fail(f, ATTN_KIND_SYNTAX,
                "object '%.80s' is not NAME:X,Y,VX,VY,SIZE, for example cat:20,30,1.5,-1,22 (pixels, "
                "and pixels per frame)",
                text);
}

static int parse_numbers(const char *text, double *numbers)
{
    for (int i = 0; i < NUMBERS; i++) {
        char *end;
        numbers[i] = strtod(text, &end);
        if (end == text || !isfinite(numbers[i]) || fabs(numbers[i]) > 1e6) return -1;
        if (*end != (i + 1 < NUMBERS ? ',' : '\0')) return -1;
        text = end + 1;
    }
    return 0;
}

int scene_parse_object(const model *m, const char *text, object *o, failure *f)
{
    char name[48];
    double n[NUMBERS];
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    if (!length || length >= sizeof name || parse_numbers(colon + 1, n)) return bad_object(text, f);
    memcpy(name, text, length);
    name[length] = '\0';
    int id = model_class(m, name, f);
    *o = (object){id, n[0], n[1], n[2], n[3], n[4]};
    return id < 0 ? -1 : 0;
}

int scene_parse_background(const char *text, unsigned char *rgb, failure *f)
{
    const char *digits = *text == '#' ? text + 1 : text;
    size_t n = strlen(digits);
    for (size_t i = 0; i < n; i++)
        if (!isxdigit((unsigned char)digits[i])) n = 0;
    if (n != 2 * PIXEL)
        return fail(f, ATTN_KIND_SYNTAX,
                    "background '%.40s' is not RRGGBB, six hexadecimal digits such as 6db58a", text);
    long value = strtol(digits, NULL, 16);
    for (int c = 0; c < PIXEL; c++) rgb[c] = (unsigned char)(value >> (8 * (PIXEL - 1 - c)));
    return 0;
}

/* Sizes and speeds lie in the ranges that the model was trained with at each of its three shapes. */
static const struct suggestion {
    int side; /* of the trained shape */
    const char *objects[OBJECTS];
} suggestions[] = {
    {32, {"cat:13,19,1.6,-1.1,20"}},
    {48, {"fox:15,33,1.9,-1.2,22", "penguin:33,16,-1.3,1.6,20"}},
    {64, {"rocket:16,45,2.4,-1.9,27", "panda:46,20,-1.6,1.2,25", "doughnut:40,48,1.2,2.3,22"}},
};

int scene_default(const model *m, clip_shape shape, scene *s, failure *f)
{
    size_t i = 0, last = sizeof suggestions / sizeof *suggestions - 1;
    int64_t side = shape.height < shape.width ? shape.height : shape.width;
    while (i < last && suggestions[i + 1].side <= side) i++;
    for (s->objects = 0; s->objects < OBJECTS && suggestions[i].objects[s->objects]; s->objects++) {
        object *o = &s->object[s->objects];
        if (scene_parse_object(m, suggestions[i].objects[s->objects], o, f)) return -1;
        o->x *= (double)shape.width / suggestions[i].side;
        o->y *= (double)shape.height / suggestions[i].side;
        o->size *= fmin(1, (double)side / suggestions[i].side);
    }
    return 0;
}

int scene_check(const model *m, const scene *s, clip_shape shape, failure *f)
{
    double side = (double)(shape.height < shape.width ? shape.height : shape.width);
    for (int i = 0; i < s->objects; i++)
        if (!(s->object[i].size > 0 && s->object[i].size < side))
            return fail(f, ATTN_KIND_INVALID_VALUE,
                        "object %d (%s) has size %g; it must be above 0 and below %g, the "
                        "shorter side of the picture (the model knows 16 to 28)",
                        i + 1, model_class_name(m, s->object[i].id), s->object[i].size, side);
    return 0;
}
