/* npy.c: reads the reference arrays and writes the clip for other programs. */
#include "npy.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[] = "\x93NUMPY";

/* The text behind 'key': in the header, a Python dict. */
static const char *find_value(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    if (!at) return NULL;
    at += strlen(key);
    while (*at == ' ' || *at == ':') at++;
    return at;
}

static int parse_shape(npy *a, const char *text)
{
    a->count = 1;
    if (!text || *text++ != '(') return -1;
    while (*text && *text != ')') {
        char *end;
        errno = 0;
        long long n = strtoll(text, &end, 10);
        if (end == text || errno || n < 0 || a->rank == 8) return -1;
        a->shape[a->rank++] = n;
        if (__builtin_mul_overflow(a->count, (int64_t)n, &a->count)) return -1;
        for (text = end; *text == ',' || *text == ' ';) text++;
    }
    return *text ? 0 : -1;
}

static int parse_header(npy *a, const char *header)
{
    const char *type = find_value(header, "'descr'"), *order = find_value(header, "'fortran_order'");
    if (!type || strlen(type) < 5 || !order || strncmp(order, "False", 5)) return -1;
    memcpy(a->type, type + 1, 3);
    return parse_shape(a, find_value(header, "'shape'"));
}

static int parse(npy *a, size_t bytes)
{
    char header[1024] = "";
    if (bytes < 10 || memcmp(a->file, magic, 6) || a->file[6] != 1) return -1;
    size_t length = a->file[8] | (size_t)a->file[9] << 8;
    if (length >= sizeof header || length > bytes - 10) return -1;
    memcpy(header, a->file + 10, length);
    a->data = a->file + 10 + length;
    if (parse_header(a, header)) return -1;
    int64_t element = a->type[2] == '4' ? 4 : 1, need;
    if (__builtin_mul_overflow(a->count, element, &need)) return -1;
    return (uint64_t)need == bytes - 10 - length ? 0 : -1;
}

int npy_read(npy *a, const char *path, const char *type, failure *f)
{
    size_t bytes;
    *a = (npy){0};
    if (file_read(path, &a->file, &bytes, f)) return -1;
    if (!parse(a, bytes) && !strcmp(a->type, type)) return 0;
    npy_drop(a);
    return fail(f, ATTN_KIND_IO, "%s is no whole .npy file of version 1 with elements of type %s in C order",
                path, type);
}

void npy_drop(npy *a)
{
    free(a->file);
    *a = (npy){0};
}

void npy_encode_u8(buffer *b, const unsigned char *values, const int64_t *shape, int rank)
{
    char header[256];
    size_t count = 1;
    int n = snprintf(header, sizeof header, "{'descr': '|u1', 'fortran_order': False, 'shape': (");
    for (int i = 0; i < rank; i++) {
        n += snprintf(header + n, sizeof header - (size_t)n, "%lld,", (long long)shape[i]);
        count *= (size_t)shape[i];
    }
    n += snprintf(header + n, sizeof header - (size_t)n, "), }");
    while ((10 + n + 1) % 64) header[n++] = ' '; /* the data starts on a multiple of 64 */
    header[n++] = '\n';
    const unsigned char start[4] = {1, 0, (unsigned char)n, (unsigned char)(n >> 8)};
    buffer_add(b, magic, 6);
    buffer_add(b, start, 4);
    buffer_add(b, header, (size_t)n);
    buffer_add(b, values, count);
}
