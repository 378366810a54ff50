/* file.h: whole files in, whole files out. */
#ifndef VIDEO_DIT_FILE_H
#define VIDEO_DIT_FILE_H

#include "fail.h"
#include <stddef.h>
#include <stdio.h>

/* Bytes that grow; `failed` is set when memory ran out and nothing is added after that. */
typedef struct buffer {
    unsigned char *bytes;
    size_t count, room;
    int failed;
} buffer;

void buffer_add(buffer *b, const void *bytes, size_t count);
void buffer_drop(buffer *b);

/* A regular file to read, and its size; NULL on failure. */
FILE *file_open(const char *path, size_t *bytes, failure *f);

/* The whole of a regular file; the caller frees *bytes. */
int file_read(const char *path, unsigned char **bytes, size_t *count, failure *f);

/* Whether two paths name one file, which need not exist yet. Devices and pipes may take several outputs. */
int file_same(const char *a, const char *b);

/* Says early whether a file could be written there: its folder exists and is writable, it is no folder
 * itself. */
int file_can_write(const char *path, failure *f);

/* Writes beside the path and renames, so that the path holds the old file or the whole new one. */
int file_write(const char *path, const buffer *b, failure *f);

#endif
