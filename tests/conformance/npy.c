/* npy.c: reads a .npy file (format 1 to 3, little-endian, C order). */
#include "npy.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* numpy's descr and the element type it stands for. */
static const struct {
    const char *descr;
    attn_dtype dtype;
} types[] = {
    {"<f4", ATTN_F32}, {"<f2", ATTN_F16},  {"<f8", ATTN_F64}, {"<i8", ATTN_I64},
    {"<i4", ATTN_I32}, {"|b1", ATTN_BOOL}, {"|u1", ATTN_U8},  {"|i1", ATTN_I8},
};

__attribute__((format(printf, 3, 4))) static int fail(char *why, size_t room, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(why, room, format, list);
    va_end(list);
    return -1;
}

/* The text after 'key': in the header's dictionary. */
static const char *entry(const char *header, const char *key)
{
    char quoted[32];
    snprintf(quoted, sizeof quoted, "'%s'", key);
    const char *at = strstr(header, quoted);
    if (!at) return NULL;
    at += strlen(quoted);
    while (*at == ' ' || *at == ':') at++;
    return at;
}

static int read_shape(const char *at, npy *array, char *why, size_t room)
{
    array->count = 1;
    if (*at++ != '(') return fail(why, room, "the header's shape is not a tuple");
    for (;;) {
        while (*at == ' ' || *at == ',') at++;
        if (*at == ')') return 0;
        char *end;
        errno = 0;
        long long n = strtoll(at, &end, 10);
        if (end == at || n < 0 || errno)
            return fail(why, room, "the header's shape holds no number at \"%.8s\"", at);
        if (array->rank == NPY_MAX_RANK) return fail(why, room, "more than %d axes", NPY_MAX_RANK);
        if (__builtin_mul_overflow(array->count, n, &array->count))
            return fail(why, room, "the header's shape overflows");
        array->shape[array->rank++] = n;
        at = *end == 'L' ? end + 1 : end;
    }
}

static int read_header(const char *header, npy *array, char *why, size_t room)
{
    const char *descr = entry(header, "descr"), *order = entry(header, "fortran_order");
    const char *shape = entry(header, "shape");
    if (!descr || !order || !shape) return fail(why, room, "the header lacks descr, fortran_order or shape");
    if (strncmp(order, "False", 5)) return fail(why, room, "the array is not in C order");
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (*descr == '\'' && !strncmp(descr + 1, types[i].descr, 3)) array->dtype = types[i].dtype;
    if (!array->dtype) return fail(why, room, "element type %.6s is none of those known here", descr);
    return read_shape(shape, array, why, room);
}

static int read_data(FILE *f, npy *array, char *why, size_t room)
{
    int64_t bytes;
    if (__builtin_mul_overflow(array->count, (int64_t)attn_dtype_bytes(array->dtype), &bytes))
        return fail(why, room, "the header's shape overflows");
    array->bytes = (size_t)bytes;
    array->data = malloc(array->bytes + 1);
    if (!array->data) return fail(why, room, "no memory for %zu bytes", array->bytes);
    size_t got = fread(array->data, 1, array->bytes + 1, f);
    if (got != array->bytes)
        return fail(why, room, "%s%zu bytes of data, expected %zu", got > array->bytes ? "more than " : "",
                    got > array->bytes ? array->bytes : got, array->bytes);
    return 0;
}

static int read_file(FILE *f, npy *array, char *why, size_t room)
{
    unsigned char start[12];
    if (fread(start, 1, 10, f) != 10 || memcmp(start, "\x93NUMPY", 6))
        return fail(why, room, "not a .npy file");
    size_t length = start[8] | (size_t)start[9] << 8;
    if (start[6] < 1 || start[6] > 3) return fail(why, room, "format version %d, expected 1 to 3", start[6]);
    if (start[6] > 1) {
        if (fread(start + 10, 1, 2, f) != 2) return fail(why, room, "the file ends in its header");
        length |= (size_t)start[10] << 16 | (size_t)start[11] << 24;
    }
    char header[4096];
    if (length >= sizeof header) return fail(why, room, "a header of %zu bytes is too long", length);
    if (fread(header, 1, length, f) != length) return fail(why, room, "the file ends in its header");
    header[length] = 0;
    int failed = read_header(header, array, why, room);
    return failed ? failed : read_data(f, array, why, room);
}

int npy_read(const char *path, npy *array, char *why, size_t room)
{
    memset(array, 0, sizeof *array);
    FILE *f = fopen(path, "rb");
    if (!f) return fail(why, room, "%s: %s", path, strerror(errno));
    char inner[256];
    int failed = read_file(f, array, inner, sizeof inner);
    fclose(f);
    if (!failed) return 0;
    npy_free(array);
    return fail(why, room, "%s: %s", path, inner);
}

void npy_free(npy *array)
{
    free(array->data);
    memset(array, 0, sizeof *array);
}

static double half(uint16_t bits)
{
    int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    double magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                       : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                      : ldexp(fraction, -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}

double npy_get(const npy *array, int64_t n)
{
    switch (array->dtype) {
    case ATTN_F32:
        return ((const float *)array->data)[n];
    case ATTN_F64:
        return ((const double *)array->data)[n];
    case ATTN_F16:
        return half(((const uint16_t *)array->data)[n]);
    case ATTN_I64:
        return (double)((const int64_t *)array->data)[n];
    case ATTN_I32:
        return ((const int32_t *)array->data)[n];
    case ATTN_I8:
        return ((const int8_t *)array->data)[n];
    default:
        return ((const uint8_t *)array->data)[n];
    }
}
