/* npy.c: NumPy's array files. The format: numpy.org/doc/stable/reference/generated/numpy.lib.format.html */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "files.h"

static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

#define HEADER_MAX (1u << 20)

/* Element types. bf16 has no name of its own: it is stored as uint16 or as two opaque bytes. */
static const struct descr_row {
    const char *descr;
    attn_dtype dtype; /* 0: raw two bytes */
} descrs[] = {
    {"<f4", ATTN_F32}, {"<f2", ATTN_F16}, {"<f8", ATTN_F64}, {"<i4", ATTN_I32},
    {"<i8", ATTN_I64}, {"|u1", ATTN_U8},  {"|i1", ATTN_I8},  {"|b1", ATTN_BOOL},
    {"<u2", 0},        {"|V2", 0},        {"<V2", 0},
};

struct npy_header {
    char descr[16];
    int fortran, ndim;
    int64_t shape[TENSOR_DIMS];
    unsigned seen; /* bit per key */
};

/* ---- the header: a Python dictionary of three keys --------------------------------------------- */

struct literal {
    const char *at;
    const char *path;
    const char *start;
    attn_error *error;
};

static int bad(struct literal *in, const char *expected)
{
    cli_fail(in->error, ATTN_KIND_SYNTAX, "%s: npy header, column %d: found \"%.16s\", expected %s", in->path,
             (int)(in->at - in->start) + 1, in->at, expected);
    return 0;
}

static void skip_blanks(struct literal *in)
{
    while (*in->at && isspace((unsigned char)*in->at)) in->at++;
}

static int take(struct literal *in, const char *token)
{
    skip_blanks(in);
    if (strncmp(in->at, token, strlen(token)) != 0) return 0;
    in->at += strlen(token);
    return 1;
}

static int need(struct literal *in, const char *token)
{
    return take(in, token) ? 1 : bad(in, token);
}

static int read_string(struct literal *in, char *text, size_t bytes)
{
    skip_blanks(in);
    char quote = *in->at;
    if (quote != '\'' && quote != '"') return bad(in, "a quoted text");
    size_t length = strcspn(in->at + 1, quote == '\'' ? "'" : "\"");
    if (!in->at[1 + length]) return bad(in, "a closed text");
    if (length >= bytes) return bad(in, "one simple element type");
    memcpy(text, in->at + 1, length);
    text[length] = 0;
    in->at += length + 2;
    return 1;
}

static int read_size(struct literal *in, int64_t *value)
{
    char number[24];
    skip_blanks(in);
    size_t length = strspn(in->at, "0123456789");
    if (length == 0 || length >= sizeof number) return bad(in, "a size");
    memcpy(number, in->at, length);
    number[length] = 0;
    if (!cli_read_int(number, 0, INT64_MAX, value)) return bad(in, "a size below 2^63");
    in->at += length;
    if (*in->at == 'L') in->at++; /* Python 2 wrote long integers so */
    return 1;
}

static int read_shape(struct literal *in, struct npy_header *header)
{
    if (!need(in, "(")) return 0;
    while (!take(in, ")")) {
        if (header->ndim == TENSOR_DIMS) return bad(in, "at most 8 axes");
        if (!read_size(in, &header->shape[header->ndim++])) return 0;
        if (!take(in, ",")) return header->ndim == 1 ? bad(in, ",") : need(in, ")");
    }
    return 1;
}

static int read_order(struct literal *in, struct npy_header *header)
{
    header->fortran = take(in, "True");
    return header->fortran || take(in, "False") ? 1 : bad(in, "True or False");
}

static int read_pair(struct literal *in, struct npy_header *header)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char key[16];
    unsigned k = 0;
    if (!read_string(in, key, sizeof key)) return 0;
    while (k < 3 && strcmp(key, keys[k]) != 0) k++;
    if (k == 3 || header->seen >> k & 1) return bad(in, "the keys descr, fortran_order and shape, each once");
    header->seen |= 1u << k;
    if (!need(in, ":")) return 0;
    if (k == 2) return read_shape(in, header);
    if (k == 1) return read_order(in, header);
    skip_blanks(in);
    if (*in->at == '[') return bad(in, "one simple element type, no record");
    return read_string(in, header->descr, sizeof header->descr);
}

static int read_header(struct literal *in, struct npy_header *header)
{
    if (!need(in, "{")) return 0;
    while (!take(in, "}")) {
        if (!read_pair(in, header)) return 0;
        if (!take(in, ",")) {
            if (!need(in, "}")) return 0;
            break;
        }
    }
    skip_blanks(in);
    if (*in->at) return bad(in, "the end of the header");
    return header->seen == 7 ? 1 : bad(in, "the keys descr, fortran_order and shape");
}

/* ---- reading ----------------------------------------------------------------------------------- */

/* The header's text, terminated; NULL after a failure. */
static char *load_header(struct file_in *file, attn_error *error)
{
    unsigned char start[12];
    if (file_read(file, start, 8, "the npy magic and version", error)) return NULL;
    if (memcmp(start, magic, sizeof magic) != 0) {
        cli_fail(error, ATTN_KIND_SYNTAX, "%s: does not start with \\x93NUMPY; it is no .npy file",
                 file->path);
        return NULL;
    }
    if (start[6] < 1 || start[6] > 3 || start[7] != 0) {
        cli_fail(error, ATTN_KIND_SYNTAX, "%s: npy version %d.%d; expected 1.0, 2.0 or 3.0", file->path,
                 start[6], start[7]);
        return NULL;
    }
    size_t width = start[6] == 1 ? 2 : 4, bytes = 0;
    if (file_read(file, start + 8, width, "the npy header length", error)) return NULL;
    for (size_t i = width; i-- > 0;) bytes = bytes << 8 | start[8 + i];
    if (bytes > HEADER_MAX) {
        cli_fail(error, ATTN_KIND_SYNTAX, "%s: npy header of %zu bytes is too large; at most %u are read",
                 file->path, bytes, HEADER_MAX);
        return NULL;
    }
    char *text = malloc(bytes + 1);
    if (!text) {
        cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "%s: no memory for the header", file->path);
        return NULL;
    }
    text[bytes] = 0;
    if (file_read(file, text, bytes, "the npy header", error) == ATTN_OK) {
        if (strlen(text) == bytes) return text;
        cli_fail(error, ATTN_KIND_SYNTAX, "%s: npy header holds a NUL byte", file->path);
    }
    free(text);
    return NULL;
}

static attn_status element_type(const struct file_in *file, const struct npy_header *header, attn_dtype as,
                                attn_dtype *dtype, attn_error *error)
{
    for (size_t i = 0; i < sizeof descrs / sizeof *descrs; i++) {
        if (strcmp(descrs[i].descr, header->descr) != 0) continue;
        *dtype = descrs[i].dtype;
        if (*dtype == 0 && as == ATTN_BF16) *dtype = as;
        if (*dtype == 0)
            return cli_fail(error, ATTN_KIND_INVALID_DTYPE,
                            "%s: holds %s, two-byte elements of no known meaning; "
                            "--dtype bf16 reads them as bf16",
                            file->path, header->descr);
        if (as && as != *dtype)
            return cli_fail(error, ATTN_KIND_INVALID_DTYPE, "%s: holds %s, expected %s%s", file->path,
                            attn_dtype_name(*dtype), attn_dtype_name(as),
                            as == ATTN_BF16 ? " stored as uint16" : "");
        return ATTN_OK;
    }
    if (header->descr[0] == '>')
        return cli_fail(error, ATTN_KIND_INVALID_DTYPE,
                        "%s: holds big-endian elements %s; save them little-endian", file->path,
                        header->descr);
    return cli_fail(error, ATTN_KIND_INVALID_DTYPE,
                    "%s: holds elements %s; expected f2, f4, f8, i4, i8, u1, i1, b1 or u2", file->path,
                    header->descr);
}

/* Memory order of a Fortran array: the first axis is dense. */
static void column_major(struct tensor *tensor)
{
    int64_t stride = 1;
    for (int i = 0; i < tensor->dl.ndim; i++) {
        tensor->strides[i] = stride;
        stride *= tensor->shape[i] ? tensor->shape[i] : 1;
    }
}

static attn_status read_data(struct file_in *file, struct tensor *tensor, attn_error *error)
{
    attn_status status = file_read(file, tensor->memory, tensor->bytes, "the elements", error);
    if (status || getc(file->stream) == EOF) return status;
    return cli_fail(error, ATTN_KIND_SYNTAX,
                    "%s: has bytes behind its elements; expected %llu in all, found %llu", file->path,
                    (unsigned long long)(ftello(file->stream) - 1), (unsigned long long)file->bytes);
}

attn_status npy_read(struct file_in *file, attn_dtype as, struct tensor *tensor, attn_error *error)
{
    struct npy_header header;
    attn_error local = ATTN_ERROR_INIT;
    attn_dtype dtype = 0;
    memset(&header, 0, sizeof header);
    error = error ? error : &local;
    char *text = load_header(file, error);
    if (!text) return error->status;
    struct literal in = {text, file->path, text, error};
    int good = read_header(&in, &header);
    free(text);
    if (!good) return error->status;
    attn_status status = element_type(file, &header, as, &dtype, error);
    if (status) return status;
    status = tensor_make_in(file, dtype, header.ndim, header.shape, tensor, error);
    if (status) return status;
    if (header.fortran) column_major(tensor);
    status = read_data(file, tensor, error);
    if (status) tensor_free(tensor);
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------- */

static const char *descr_of(attn_dtype dtype)
{
    for (size_t i = 0; i < sizeof descrs / sizeof *descrs; i++) {
        if (descrs[i].dtype == dtype) return descrs[i].descr;
    }
    return "<u2"; /* bf16 */
}

int npy_write(FILE *stream, const DLTensor *tensor)
{
    char header[512];
    unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, 0, 0};
    size_t used =
        (size_t)snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                         descr_of(attn_dtype_from_dl(tensor->dtype)));
    for (int i = 0; i < tensor->ndim; i++)
        used += (size_t)snprintf(header + used, sizeof header - used, "%lld%s", (long long)tensor->shape[i],
                                 i + 1 < tensor->ndim ? ", "
                                 : tensor->ndim == 1  ? ","
                                                      : "");
    used += (size_t)snprintf(header + used, sizeof header - used, "), }");
    /* Elements start at a multiple of 64. */
    while ((sizeof start + used + 1) % 64 != 0) header[used++] = ' ';
    header[used++] = '\n';
    start[8] = (unsigned char)(used & 255);
    start[9] = (unsigned char)(used >> 8);
    if (fwrite(start, 1, sizeof start, stream) != sizeof start || fwrite(header, 1, used, stream) != used)
        return -1;
    return file_write_elements(stream, tensor);
}
