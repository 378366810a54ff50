/* file.c: reads a file at once, and replaces a file so that nobody ever sees half of it. */
#include "file.h"
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void buffer_add(buffer *b, const void *bytes, size_t count)
{
    if (b->failed) return;
    if (count > b->room - b->count) {
        size_t room = 2 * (b->count + count) + 4096;
        unsigned char *grown = room > count ? realloc(b->bytes, room) : NULL;
        if (!grown) {
            b->failed = 1;
            return;
        }
        b->bytes = grown;
        b->room = room;
    }
    if (count) memcpy(b->bytes + b->count, bytes, count);
    b->count += count;
}

void buffer_drop(buffer *b)
{
    free(b->bytes);
    *b = (buffer){0};
}

static int read_stream(FILE *stream, buffer *b)
{
    unsigned char *part = malloc(1 << 20);
    size_t n;
    if (!part) return -1;
    while ((n = fread(part, 1, 1 << 20, stream)) > 0) buffer_add(b, part, n);
    free(part);
    return b->failed ? -1 : 0;
}

FILE *file_open(const char *path, size_t *bytes, failure *f)
{
    struct stat s;
    /* Before it is opened: a pipe would wait for a writer, a device may never end. */
    if (!stat(path, &s) && !S_ISREG(s.st_mode)) {
        fail(f, ATTN_KIND_IO, "%s is no regular file", path);
        return NULL;
    }
    FILE *stream = fopen(path, "rb");
    if (!stream || fstat(fileno(stream), &s)) {
        fail_errno(f, "cannot open %s", path);
        if (stream) fclose(stream);
        return NULL;
    }
    *bytes = (size_t)s.st_size;
    return stream;
}

int file_read(const char *path, unsigned char **bytes, size_t *count, failure *f)
{
    buffer b = {0};
    FILE *stream = file_open(path, &b.room, f);
    if (!stream) return -1;
    b.bytes = malloc(++b.room); /* the size is known: a file that memory cannot hold is not begun */
    int rc = b.bytes ? read_stream(stream, &b) : -1;
    if (rc) fail(f, ATTN_KIND_OUT_OF_MEMORY, "no memory to read %s", path);
    if (!rc && ferror(stream)) rc = fail_errno(f, "cannot read %s", path);
    fclose(stream);
    if (rc) buffer_drop(&b);
    *bytes = b.bytes;
    *count = b.count;
    return rc;
}

/* The folder without links and "..", and the name in it; NULL when there is no such folder. */
static char *whole_path(const char *path)
{
    char *copy = strdup(path), *folder = copy ? realpath(dirname(copy), NULL) : NULL, *whole = NULL;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t bytes = folder ? strlen(folder) + strlen(name) + 2 : 0;
    if (folder) whole = malloc(bytes);
    if (whole) snprintf(whole, bytes, "%s/%s", folder, name);
    free(folder);
    free(copy);
    return whole;
}

int file_same(const char *a, const char *b)
{
    struct stat x, y;
    int there = !stat(a, &x), other = !stat(b, &y);
    if (there && !S_ISREG(x.st_mode)) return 0;
    if (there && other) return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
    if (there || other) return 0;
    char *first = whole_path(a), *second = whole_path(b);
    int same = first && second && !strcmp(first, second);
    free(first);
    free(second);
    return same;
}

int file_can_write(const char *path, failure *f)
{
    struct stat s;
    if (!*path) return fail(f, ATTN_KIND_INVALID_VALUE, "the path of an output is empty; name a file");
    char *copy = strdup(path);
    if (!copy) return fail(f, ATTN_KIND_OUT_OF_MEMORY, "no memory for the path %s", path);
    const char *folder = dirname(copy);
    int rc = 0;
    if (access(folder, W_OK | X_OK))
        rc = fail_errno(f, "cannot write %s: folder '%s' cannot be used", path, folder);
    free(copy);
    if (!rc && !stat(path, &s) && S_ISDIR(s.st_mode))
        rc = fail(f, ATTN_KIND_IO, "cannot write %s: it is a folder; name a file in it", path);
    return rc;
}

static int write_all(int fd, const buffer *b)
{
    for (size_t done = 0; done < b->count;) {
        ssize_t n = write(fd, b->bytes + done, b->count - done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -1;
        done += (size_t)n;
    }
    return 0;
}

/* On failure errno says why and the temporary file is gone. */
static int write_and_rename(const char *path, const char *temporary, const buffer *b)
{
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return -1;
    int rc = write_all(fd, b), why = errno;
    if (close(fd) && !rc) {
        rc = -1;
        why = errno;
    }
    if (!rc && rename(temporary, path)) {
        rc = -1;
        why = errno;
    }
    if (rc) unlink(temporary);
    errno = why;
    return rc;
}

/* Pipes and devices (/dev/stdout, /dev/null) are written in place: a rename would replace them. */
static int write_special(const char *path, const buffer *b)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    int rc = write_all(fd, b), why = errno;
    close(fd);
    errno = why;
    return rc;
}

int file_write(const char *path, const buffer *b, failure *f)
{
    struct stat s;
    size_t bytes = strlen(path) + 32;
    char *temporary = malloc(bytes);
    if (b->failed || !temporary) {
        free(temporary);
        return fail(f, ATTN_KIND_OUT_OF_MEMORY, "no memory to write %s", path);
    }
    snprintf(temporary, bytes, "%s.%ld.part", path, (long)getpid());
    int special = !stat(path, &s) && !S_ISREG(s.st_mode);
    int rc = special ? write_special(path, b) : write_and_rename(path, temporary, b);
    free(temporary);
    return rc ? fail_errno(f, "cannot write %s (%zu bytes)", path, b->count) : 0;
}
