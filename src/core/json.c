/* json.c: JSON files, read with errors that name the place. */
#include "core/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

attn_status attn_json_load_file(const char *what, const char *path, json_t **root, attn_error *error)
{
    json_error_t at;
    struct stat info;
    FILE *file = fopen(path, "rb");
    int reason = errno;
    bool folder = file && !fstat(fileno(file), &info) && S_ISDIR(info.st_mode);
    *root = file && !folder ? json_loadf(file, JSON_REJECT_DUPLICATES, &at) : NULL;
    bool unreadable = !file || folder || (!*root && ferror(file));
    if (file) fclose(file);
    if (*root) return ATTN_OK;
    if (unreadable)
        return attn_fail(error, ATTN_KIND_IO, "the %s file %.160s cannot be read: %s; check its path", what,
                         path, folder ? "it is a folder" : strerror(file ? EIO : reason));
    return attn_fail(error, ATTN_KIND_SYNTAX, "%.160s is not JSON at line %d, column %d: %.160s", path,
                     at.line, at.column, at.text);
}
