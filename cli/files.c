/* files.c: tensor files by name: which format, which tensor, whole or not at all. */
#include "files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

/* ---- streams ----------------------------------------------------------------------------------- */

attn_status file_open(const char *path, struct file_in *file, attn_error *error)
{
    struct stat info;
    memset(file, 0, sizeof *file);
    file->path = path;
    /* A pipe is refused before it is opened, which would wait for a writer. */
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return cli_fail(error, ATTN_KIND_IO, "%s: is no regular file", path);
    file->stream = fopen(path, "rb");
    if (!file->stream)
        return cli_fail(error, ATTN_KIND_IO, "%s: cannot be opened: %s", path, strerror(errno));
    if (fstat(fileno(file->stream), &info) == 0 && S_ISREG(info.st_mode)) {
        file->bytes = (uint64_t)info.st_size;
        return ATTN_OK;
    }
    file_close(file);
    return cli_fail(error, ATTN_KIND_IO, "%s: is no regular file", path);
}

void file_close(struct file_in *file)
{
    if (file->stream) fclose(file->stream);
    file->stream = NULL;
}

attn_status file_read(struct file_in *file, void *to, size_t bytes, const char *what, attn_error *error)
{
    if (bytes == 0 || fread(to, 1, bytes, file->stream) == bytes) return ATTN_OK;
    if (ferror(file->stream))
        return cli_fail(error, ATTN_KIND_IO, "%s: cannot be read: %s", file->path, strerror(errno));
    return cli_fail(error, ATTN_KIND_IO, "%s: truncated: the file of %llu bytes ends within %s", file->path,
                    (unsigned long long)file->bytes, what);
}

attn_status tensor_make_in(const struct file_in *file, attn_dtype dtype, int ndim, const int64_t *shape,
                           struct tensor *tensor, attn_error *error)
{
    uint64_t bytes = attn_dtype_bytes(dtype);
    int empty = 0, overflow = 0;
    for (int i = 0; i < ndim; i++) {
        empty |= shape[i] == 0;
        overflow |= __builtin_mul_overflow(bytes, (uint64_t)shape[i], &bytes);
    }
    if (overflow && !empty)
        return cli_fail(error, ATTN_KIND_INVALID_SHAPE, "%s: the shape overflows 64 bits", file->path);
    if (!empty && bytes > file->bytes)
        return cli_fail(error, ATTN_KIND_IO, "%s: truncated: the elements need %llu bytes, the file has %llu",
                        file->path, (unsigned long long)bytes, (unsigned long long)file->bytes);
    attn_error inner = ATTN_ERROR_INIT;
    if (tensor_make(tensor, dtype, ndim, shape, &inner) == ATTN_OK) return ATTN_OK;
    return cli_fail(error, inner.kind, "%s: %s", file->path, inner.text);
}

#define ROW_BYTES 65536

/* Elements of a strided row are gathered piece by piece. */
static int write_row(FILE *stream, const char *at, int64_t count, int64_t step, size_t size)
{
    char piece[ROW_BYTES];
    if (step == (int64_t)size) return fwrite(at, size, (size_t)count, stream) == (size_t)count ? 0 : -1;
    while (count > 0) {
        int64_t n = count < (int64_t)(ROW_BYTES / size) ? count : (int64_t)(ROW_BYTES / size);
        for (int64_t i = 0; i < n; i++) memcpy(piece + (size_t)i * size, at + i * step, size);
        if (fwrite(piece, size, (size_t)n, stream) != (size_t)n) return -1;
        at += n * step;
        count -= n;
    }
    return 0;
}

int file_write_elements(FILE *stream, const DLTensor *tensor)
{
    size_t size = tensor->dtype.bits / 8;
    int64_t count = tensor_count(tensor), row = tensor->ndim ? tensor->shape[tensor->ndim - 1] : 1;
    int64_t step = (tensor->strides && tensor->ndim ? tensor->strides[tensor->ndim - 1] : 1) * (int64_t)size;
    for (int64_t i = 0; i < count; i += row) {
        if (write_row(stream, tensor_address(tensor, i), row, step, size) != 0) return -1;
    }
    return 0;
}

/* ---- names ------------------------------------------------------------------------------------- */

enum format { FORMAT_NPY, FORMAT_SAFETENSORS };

#define PATH_BYTES 4096

struct place {
    enum format format;
    char path[PATH_BYTES];
    const char *tensor; /* within the spec; NULL: none given */
};

static int ends_with(const char *text, size_t length, const char *end)
{
    size_t n = strlen(end);
    return length > n && strncmp(text + length - n, end, n) == 0;
}

static attn_status parse_place(const char *spec, struct place *place, attn_error *error)
{
    size_t length = strlen(spec);
    const char *colon = strstr(spec, ".safetensors:");
    place->tensor = NULL;
    if (colon) {
        length = (size_t)(colon - spec) + strlen(".safetensors");
        place->tensor = spec + length + 1;
    }
    if (length >= PATH_BYTES) return cli_fail(error, ATTN_KIND_IO, "%.80s...: the path is too long", spec);
    memcpy(place->path, spec, length);
    place->path[length] = 0;
    if (place->tensor && !*place->tensor)
        return cli_fail(error, ATTN_KIND_INVALID_VALUE, "%s: no tensor is named after the colon", spec);
    if (place->tensor && strcmp(place->tensor, "__metadata__") == 0)
        return cli_fail(error, ATTN_KIND_INVALID_VALUE, "%s: __metadata__ is no name of a tensor", spec);
    place->format = ends_with(spec, length, ".npy") ? FORMAT_NPY : FORMAT_SAFETENSORS;
    if (place->format == FORMAT_NPY || ends_with(spec, length, ".safetensors")) return ATTN_OK;
    return cli_fail(error, ATTN_KIND_INVALID_VALUE,
                    "%s: expected a name that ends in .npy, .safetensors or "
                    ".safetensors:TENSOR",
                    spec);
}

attn_status tensor_load(const char *spec, attn_dtype as, struct tensor *tensor, attn_error *error)
{
    struct place place;
    struct file_in file;
    memset(tensor, 0, sizeof *tensor);
    attn_status status = parse_place(spec, &place, error);
    if (!status) status = file_open(place.path, &file, error);
    if (status) return status;
    status = place.format == FORMAT_NPY ? npy_read(&file, as, tensor, error)
                                        : safetensors_read(&file, place.tensor, as, tensor, error);
    file_close(&file);
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------- */

static attn_status write_failed(const char *path, attn_error *error)
{
    return cli_fail(error, ATTN_KIND_IO, "%s: cannot be written: %s", path, strerror(errno));
}

/* A new file beside the final one. mkstemp makes it private; it gets the rights any new file would have. */
static FILE *open_beside(const char *path, char *temporary, size_t bytes)
{
    if ((size_t)snprintf(temporary, bytes, "%s.XXXXXX", path) >= bytes) {
        errno = ENAMETOOLONG;
        return NULL;
    }
    int handle = mkstemp(temporary);
    if (handle < 0) return NULL;
    mode_t mask = umask(0);
    umask(mask);
    fchmod(handle, 0666 & ~mask);
    FILE *stream = fdopen(handle, "wb");
    if (stream) return stream;
    int saved = errno;
    close(handle);
    unlink(temporary);
    errno = saved;
    return NULL;
}

/* The safetensors file that stands there already, whose other tensors are kept; its stream is NULL when there
 * is none or an empty one. */
static attn_status open_before(const struct place *place, struct file_in *old, attn_error *error)
{
    struct stat info;
    memset(old, 0, sizeof *old);
    if (place->format == FORMAT_NPY || stat(place->path, &info) != 0 || info.st_size == 0) return ATTN_OK;
    return file_open(place->path, old, error);
}

static attn_status write_format(FILE *stream, const struct place *place, const struct safetensors_out *out,
                                attn_error *error)
{
    struct file_in old;
    attn_error inner = ATTN_ERROR_INIT;
    if (place->format == FORMAT_NPY)
        return npy_write(stream, out->tensors[0]) == 0 ? ATTN_OK : write_failed(place->path, error);
    attn_status status = open_before(place, &old, error);
    if (status) return status;
    status = safetensors_write(stream, out, old.stream ? &old : NULL, &inner);
    file_close(&old);
    return status ? cli_fail(error, inner.kind, "%s: cannot be written: %s", place->path, inner.text)
                  : ATTN_OK;
}

static attn_status write_file(const struct place *place, const struct safetensors_out *out, attn_error *error)
{
    char temporary[PATH_BYTES + 16];
    FILE *stream = open_beside(place->path, temporary, sizeof temporary);
    if (!stream) return write_failed(place->path, error);
    attn_status status = write_format(stream, place, out, error);
    if (!status && fflush(stream) != 0) status = write_failed(place->path, error);
    if (fclose(stream) != 0 && !status) status = write_failed(place->path, error);
    if (!status && rename(temporary, place->path) != 0) status = write_failed(place->path, error);
    if (status) unlink(temporary);
    return status;
}

/* A file whose other tensors could not be kept is told before long work. */
static attn_status check_before(const struct place *place, attn_error *error)
{
    struct file_in old;
    json_t *header = NULL;
    uint64_t start;
    attn_error inner = ATTN_ERROR_INIT;
    attn_status status = open_before(place, &old, error);
    if (status || !old.stream) return status;
    status = safetensors_header(&old, &header, &start, &inner);
    file_close(&old);
    json_decref(header);
    if (!status) return ATTN_OK;
    return cli_fail(error, inner.kind,
                    "%.400s; an output is added to the tensors of this file, so remove it or name another",
                    inner.text);
}

attn_status tensor_save_check(const char *spec, attn_error *error)
{
    struct place place;
    struct stat info;
    attn_status status = parse_place(spec, &place, error);
    if (status) return status;
    if (stat(place.path, &info) == 0 && !S_ISREG(info.st_mode))
        return cli_fail(error, ATTN_KIND_IO, "%s: exists and is no regular file", place.path);
    status = check_before(&place, error);
    if (status) return status;
    char *slash = strrchr(place.path, '/');
    if (slash) *slash = 0;
    if (access(!slash ? "." : place.path[0] ? place.path : "/", W_OK | X_OK) == 0) return ATTN_OK;
    return cli_fail(error, ATTN_KIND_IO, "%s: its folder cannot be written: %s", spec, strerror(errno));
}

attn_status tensor_save_apart(const char *spec, const char *input, attn_error *error)
{
    struct place out, in;
    struct stat a, b;
    attn_status status = parse_place(spec, &out, error);
    if (!status) status = parse_place(input, &in, error);
    if (status || out.format != FORMAT_NPY || stat(out.path, &a) != 0 || stat(in.path, &b) != 0)
        return status;
    if (a.st_dev != b.st_dev || a.st_ino != b.st_ino) return ATTN_OK;
    return cli_fail(error, ATTN_KIND_MUTUALLY_EXCLUSIVE,
                    "%s: is an input (%s) too and would be replaced by the output; name another file",
                    out.path, in.path);
}

#define OUTPUTS_MAX 8

/* Gathers the outputs that share the file of outputs[first]; those before it have been written with theirs.
 */
static attn_status save_group(const struct tensor_output *outputs, size_t count, size_t first,
                              attn_error *error)
{
    struct place place, other;
    const char *names[OUTPUTS_MAX];
    const DLTensor *tensors[OUTPUTS_MAX];
    size_t n = 0;
    attn_status status = parse_place(outputs[first].spec, &place, error);
    for (size_t i = 0; !status && i < count; i++) {
        status = parse_place(outputs[i].spec, &other, error);
        if (status || strcmp(other.path, place.path) != 0) continue;
        if (i < first) return ATTN_OK;
        names[n] = other.tensor ? other.tensor : "out";
        for (size_t j = 0; j < n; j++) {
            if (place.format == FORMAT_NPY || strcmp(names[j], names[n]) == 0)
                return cli_fail(error, ATTN_KIND_INVALID_VALUE, "%s: two outputs have this name",
                                outputs[i].spec);
        }
        tensors[n++] = outputs[i].tensor;
    }
    const struct safetensors_out out = {names, tensors, n};
    return status ? status : write_file(&place, &out, error);
}

attn_status tensor_save_all(const struct tensor_output *outputs, size_t count, attn_error *error)
{
    attn_status status = ATTN_OK;
    if (count > OUTPUTS_MAX)
        return cli_fail(error, ATTN_KIND_INVALID_VALUE, "more than %d outputs", OUTPUTS_MAX);
    for (size_t i = 0; i < count && !status; i++) status = save_group(outputs, count, i, error);
    return status;
}
