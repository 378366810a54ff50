/* safetensors.c: the safetensors format. Its law: the section "Format" of the
 * safetensors README. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "files.h"

#define HEADER_MAX 100000000u /* the format's own limit */

/* Every element type of the format; those without a dtype of ours cannot be loaded but do not spoil a file.
 */
static const struct type_row {
    const char *name;
    attn_dtype dtype;
    unsigned bytes;
} types[] = {
    {"F32", ATTN_F32, 4},
    {"F16", ATTN_F16, 2},
    {"BF16", ATTN_BF16, 2},
    {"F64", ATTN_F64, 8},
    {"I32", ATTN_I32, 4},
    {"I64", ATTN_I64, 8},
    {"U8", ATTN_U8, 1},
    {"I8", ATTN_I8, 1},
    {"BOOL", ATTN_BOOL, 1},
    {"U16", 0, 2},
    {"I16", 0, 2},
    {"U32", 0, 4},
    {"U64", 0, 8},
    {"F8_E4M3", ATTN_F8E4M3, 1},
    {"F8_E5M2", ATTN_F8E5M2, 1},
};

static const struct type_row *type_of(const char *name)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (strcmp(types[i].name, name) == 0) return &types[i];
    }
    return NULL;
}

/* One tensor's entry, checked. */
struct entry {
    const char *name;
    const struct type_row *type;
    int ndim;
    int64_t shape[TENSOR_DIMS];
    uint64_t begin, end;
};

/* ---- header ------------------------------------------------------------------------------------ */

static attn_status bad_entry(const struct file_in *file, const char *name, const char *what,
                             attn_error *error)
{
    return cli_fail(error, ATTN_KIND_SYNTAX, "%s: tensor \"%.100s\": %s", file->path, name, what);
}

static attn_status read_shape(const struct file_in *file, struct entry *entry, const json_t *shape,
                              uint64_t *bytes, attn_error *error)
{
    *bytes = entry->type->bytes;
    if (!json_is_array(shape)) return bad_entry(file, entry->name, "has no list \"shape\"", error);
    size_t ndim = json_array_size(shape);
    if (ndim > TENSOR_DIMS) return bad_entry(file, entry->name, "has more than 8 axes", error);
    for (size_t i = 0; i < ndim; i++) {
        const json_t *size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return bad_entry(file, entry->name, "has a shape with something other than whole numbers from 0",
                             error);
        entry->shape[entry->ndim++] = json_integer_value(size);
    }
    for (size_t i = 0; i < ndim; i++) {
        if (__builtin_mul_overflow(*bytes, (uint64_t)entry->shape[i], bytes)) {
            *bytes = 0;
            for (size_t j = 0; j < ndim; j++) {
                if (entry->shape[j] == 0) return ATTN_OK;
            }
            return bad_entry(file, entry->name, "has a shape whose size overflows 64 bits", error);
        }
    }
    return ATTN_OK;
}

static attn_status read_offsets(const struct file_in *file, struct entry *entry, const json_t *offsets,
                                uint64_t bytes, uint64_t data_bytes, attn_error *error)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return bad_entry(file, entry->name, "has no \"data_offsets\" of two whole numbers", error);
    long long from = json_integer_value(begin), to = json_integer_value(end);
    if (from < 0 || to < from || (uint64_t)to > data_bytes)
        return cli_fail(
            error, ATTN_KIND_SYNTAX,
            "%s: tensor \"%.100s\" lies at [%lld, %lld), out of the bounds of the data, [0, %llu)%s",
            file->path, entry->name, from, to, (unsigned long long)data_bytes,
            to > from ? "; the file may be truncated" : "");
    if ((uint64_t)(to - from) != bytes)
        return cli_fail(error, ATTN_KIND_SYNTAX,
                        "%s: tensor \"%.100s\" has %lld bytes; its shape and %s need %llu", file->path,
                        entry->name, to - from, entry->type->name, (unsigned long long)bytes);
    entry->begin = (uint64_t)from;
    entry->end = (uint64_t)to;
    return ATTN_OK;
}

static attn_status read_entry(const struct file_in *file, const char *name, const json_t *value,
                              uint64_t data_bytes, struct entry *entry, attn_error *error)
{
    const char *type = json_string_value(json_object_get(value, "dtype"));
    uint64_t bytes;
    memset(entry, 0, sizeof *entry);
    entry->name = name;
    if (!json_is_object(value) || json_object_size(value) != 3)
        return bad_entry(file, name, "is no object of dtype, shape and data_offsets", error);
    if (!type) return bad_entry(file, name, "has no text \"dtype\"", error);
    entry->type = type_of(type);
    if (!entry->type)
        return cli_fail(error, ATTN_KIND_INVALID_DTYPE,
                        "%s: tensor \"%.100s\" has dtype \"%.20s\", which the format "
                        "does not know",
                        file->path, name, type);
    attn_status status = read_shape(file, entry, json_object_get(value, "shape"), &bytes, error);
    if (status) return status;
    return read_offsets(file, entry, json_object_get(value, "data_offsets"), bytes, data_bytes, error);
}

static int by_place(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* The tensors, in order, must fill the data exactly. */
static attn_status check_places(const struct file_in *file, struct entry *entries, size_t count,
                                uint64_t data_bytes, attn_error *error)
{
    uint64_t at = 0;
    qsort(entries, count, sizeof *entries, by_place);
    for (size_t i = 0; i < count; at = entries[i++].end) {
        if (entries[i].begin == at) continue;
        return cli_fail(error, ATTN_KIND_SYNTAX, "%s: tensor \"%.100s\" starts at %llu, expected %llu: %s",
                        file->path, entries[i].name, (unsigned long long)entries[i].begin,
                        (unsigned long long)at,
                        entries[i].begin < at ? "two tensors overlap" : "there is a hole");
    }
    if (at == data_bytes) return ATTN_OK;
    return cli_fail(error, ATTN_KIND_SYNTAX, "%s: the tensors end at %llu, the data at %llu", file->path,
                    (unsigned long long)at, (unsigned long long)data_bytes);
}

static attn_status check_metadata(const struct file_in *file, json_t *metadata, attn_error *error)
{
    const char *key;
    json_t *value;
    int good = json_is_object(metadata);
    json_object_foreach(metadata, key, value) good = good && json_is_string(value);
    if (good) return ATTN_OK;
    return cli_fail(error, ATTN_KIND_SYNTAX, "%s: __metadata__ is no object of texts", file->path);
}

static attn_status check_header(const struct file_in *file, json_t *header, uint64_t data_bytes,
                                attn_error *error)
{
    size_t count = 0;
    const char *name;
    json_t *value;
    attn_status status = ATTN_OK;
    struct entry *entries = calloc(json_object_size(header) + 1, sizeof *entries);
    if (!entries) return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "%s: no memory for the header", file->path);
    json_object_foreach(header, name, value)
    {
        if (strcmp(name, "__metadata__") == 0)
            status = check_metadata(file, value, error);
        else
            status = read_entry(file, name, value, data_bytes, &entries[count++], error);
        if (status) break;
    }
    if (!status) status = check_places(file, entries, count, data_bytes, error);
    free(entries);
    return status;
}

static attn_status parse_header(const struct file_in *file, const char *text, size_t bytes, json_t **header,
                                attn_error *error)
{
    json_error_t at;
    *header = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &at);
    if (!*header)
        return cli_fail(error, ATTN_KIND_SYNTAX, "%s: header, line %d, column %d: %s", file->path, at.line,
                        at.column, at.text);
    if (json_is_object(*header)) return ATTN_OK;
    json_decref(*header);
    *header = NULL;
    return cli_fail(error, ATTN_KIND_SYNTAX, "%s: the header is no JSON object", file->path);
}

attn_status safetensors_header(struct file_in *file, json_t **header, uint64_t *data_start, attn_error *error)
{
    unsigned char start[8];
    uint64_t bytes = 0;
    *header = NULL;
    attn_status status = file_read(file, start, sizeof start, "the length of the safetensors header", error);
    if (status) return status;
    for (int i = 8; i-- > 0;) bytes = bytes << 8 | start[i];
    if (bytes > HEADER_MAX)
        return cli_fail(error, ATTN_KIND_SYNTAX,
                        "%s: a header of %llu bytes is too large; the format allows %u", file->path,
                        (unsigned long long)bytes, HEADER_MAX);
    if (bytes > file->bytes - sizeof start)
        return cli_fail(error, ATTN_KIND_IO, "%s: truncated: a header of %llu bytes in a file of %llu",
                        file->path, (unsigned long long)bytes, (unsigned long long)file->bytes);
    char *text = malloc(bytes + 1);
    if (!text) return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "%s: no memory for the header", file->path);
    status = file_read(file, text, bytes, "the header", error);
    if (!status) status = parse_header(file, text, bytes, header, error);
    free(text);
    *data_start = sizeof start + bytes;
    if (!status) status = check_header(file, *header, file->bytes - *data_start, error);
    if (!status) return ATTN_OK;
    json_decref(*header);
    *header = NULL;
    return status;
}

/* ---- reading ----------------------------------------------------------------------------------- */

#define NAMES_SHOWN 8

/* "a, b, c ..." */
static void list_names(json_t *header, char *text, size_t bytes)
{
    size_t used = 0, shown = 0;
    const char *name;
    json_t *value;
    *text = 0;
    json_object_foreach(header, name, value)
    {
        if (strcmp(name, "__metadata__") == 0 || used >= bytes) continue;
        if (shown++ == NAMES_SHOWN) {
            snprintf(text + used, bytes - used, " ...");
            return;
        }
        used += (size_t)snprintf(text + used, bytes - used, "%s%.24s", used ? ", " : "", name);
    }
}

static const char *only_name(json_t *header)
{
    const char *name, *found = NULL;
    json_t *value;
    json_object_foreach(header, name, value)
    {
        if (strcmp(name, "__metadata__") == 0) continue;
        if (found) return NULL;
        found = name;
    }
    return found;
}

static attn_status find_entry(const struct file_in *file, json_t *header, const char *name,
                              uint64_t data_bytes, struct entry *entry, attn_error *error)
{
    char names[256];
    const char *wanted = name ? name : only_name(header);
    json_t *value = wanted && strcmp(wanted, "__metadata__") != 0 ? json_object_get(header, wanted) : NULL;
    if (value) return read_entry(file, wanted, value, data_bytes, entry, error);
    list_names(header, names, sizeof names);
    if (name)
        return cli_fail(error, ATTN_KIND_UNKNOWN_NAME, "%s: has no tensor \"%.100s\"; it has %s", file->path,
                        name, *names ? names : "none");
    return cli_fail(error, ATTN_KIND_UNKNOWN_NAME, "%s: has %s; name one with FILE:TENSOR%s%s", file->path,
                    *names ? "several tensors" : "no tensor", *names ? ", of " : "", names);
}

attn_status safetensors_read(struct file_in *file, const char *name, attn_dtype as, struct tensor *tensor,
                             attn_error *error)
{
    json_t *header;
    uint64_t start;
    struct entry entry;
    attn_status status = safetensors_header(file, &header, &start, error);
    if (status) return status;
    status = find_entry(file, header, name, file->bytes - start, &entry, error);
    attn_dtype dtype = status ? 0 : entry.type->dtype;
    if (!status && strcmp(entry.type->name, "U16") == 0 && as == ATTN_BF16) dtype = ATTN_BF16;
    if (!status && (!dtype || (as && as != dtype)))
        status = cli_fail(error, ATTN_KIND_INVALID_DTYPE, "%s: tensor \"%.100s\" holds %s, expected %s",
                          file->path, entry.name, entry.type->name,
                          as ? attn_dtype_name(as) : "a type that can be read here");
    if (!status) status = tensor_make_in(file, dtype, entry.ndim, entry.shape, tensor, error);
    if (!status && fseeko(file->stream, (off_t)(start + entry.begin), SEEK_SET) != 0)
        status = cli_fail(error, ATTN_KIND_IO, "%s: cannot seek", file->path);
    if (!status) status = file_read(file, tensor->memory, tensor->bytes, "the elements", error);
    if (status && tensor->memory) tensor_free(tensor);
    json_decref(header);
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------- */

static const char *type_name(attn_dtype dtype)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        if (types[i].dtype == dtype) return types[i].name;
    }
    return NULL;
}

static json_t *make_entry(const DLTensor *tensor, uint64_t *offset)
{
    uint64_t end = *offset + (uint64_t)tensor_count(tensor) * (tensor->dtype.bits / 8u);
    json_t *shape = json_array();
    for (int i = 0; i < tensor->ndim; i++) json_array_append_new(shape, json_integer(tensor->shape[i]));
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", type_name(attn_dtype_from_dl(tensor->dtype)),
                              "shape", shape, "data_offsets", (json_int_t)*offset, (json_int_t)end);
    *offset = end;
    return entry;
}

static int write_header(FILE *stream, const char *text)
{
    size_t bytes = strlen(text), padded = (bytes + 7) / 8 * 8; /* elements start at a multiple of 8 */
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)padded >> 8 * i);
    if (fwrite(length, 1, sizeof length, stream) != sizeof length || fwrite(text, 1, bytes, stream) != bytes)
        return -1;
    for (size_t i = bytes; i < padded; i++) {
        if (putc(' ', stream) == EOF) return -1;
    }
    return 0;
}

/* ---- tensors of the file before ---------------------------------------------------------------- */

/* What is kept of the file before: entries in the order of their places. */
struct kept {
    json_t *header; /* of the old file */
    uint64_t start; /* of its data */
    struct entry *entries;
    size_t count;
};

static int is_replaced(const struct safetensors_out *out, const char *name)
{
    for (size_t i = 0; i < out->count; i++) {
        if (strcmp(out->names[i], name) == 0) return 1;
    }
    return 0;
}

static attn_status read_kept(const struct safetensors_out *out, struct file_in *old, struct kept *kept,
                             attn_error *error)
{
    const char *name;
    json_t *value;
    attn_status status = safetensors_header(old, &kept->header, &kept->start, error);
    if (status) return status;
    kept->entries = calloc(json_object_size(kept->header) + 1, sizeof *kept->entries);
    if (!kept->entries)
        return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "%s: no memory for the header", old->path);
    json_object_foreach(kept->header, name, value)
    {
        if (strcmp(name, "__metadata__") == 0 || is_replaced(out, name)) continue;
        status = read_entry(old, name, value, old->bytes - kept->start, &kept->entries[kept->count++], error);
        if (status) return status;
    }
    qsort(kept->entries, kept->count, sizeof *kept->entries, by_place);
    return ATTN_OK;
}

/* An entry of the old header with its new place. */
static json_t *move_entry(json_t *old, const struct entry *entry, uint64_t *offset)
{
    uint64_t end = *offset + (entry->end - entry->begin);
    json_t *moved = json_copy(old);
    json_object_set_new(moved, "data_offsets", json_pack("[I, I]", (json_int_t)*offset, (json_int_t)end));
    *offset = end;
    return moved;
}

static char *header_text(const struct safetensors_out *out, const struct kept *kept)
{
    uint64_t offset = 0;
    json_t *header = json_object(), *metadata = json_object_get(kept->header, "__metadata__");
    size_t expected = out->count + kept->count + (metadata != NULL);
    if (metadata) json_object_set(header, "__metadata__", metadata);
    for (size_t i = 0; i < out->count; i++)
        json_object_set_new(header, out->names[i], make_entry(out->tensors[i], &offset));
    for (size_t i = 0; i < kept->count; i++) {
        const struct entry *entry = &kept->entries[i];
        json_object_set_new(header, entry->name,
                            move_entry(json_object_get(kept->header, entry->name), entry, &offset));
    }
    char *text =
        json_object_size(header) == expected ? json_dumps(header, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
    json_decref(header);
    return text;
}

static attn_status copy_elements(FILE *stream, const struct kept *kept, const struct entry *entry,
                                 struct file_in *old, attn_error *error)
{
    char piece[65536];
    if (fseeko(old->stream, (off_t)(kept->start + entry->begin), SEEK_SET) != 0)
        return cli_fail(error, ATTN_KIND_IO, "%s: cannot seek", old->path);
    for (uint64_t left = entry->end - entry->begin; left > 0;) {
        size_t n = left < sizeof piece ? (size_t)left : sizeof piece;
        attn_status status = file_read(old, piece, n, "the elements", error);
        if (status) return status;
        if (fwrite(piece, 1, n, stream) != n) return cli_fail(error, ATTN_KIND_IO, "%s", strerror(errno));
        left -= n;
    }
    return ATTN_OK;
}

static attn_status write_all(FILE *stream, const struct safetensors_out *out, const struct kept *kept,
                             struct file_in *old, attn_error *error)
{
    attn_status status = ATTN_OK;
    char *text = header_text(out, kept);
    if (!text)
        return cli_fail(error, ATTN_KIND_INVALID_VALUE,
                        "no header could be made; are the names of the tensors UTF-8?");
    int failed = write_header(stream, text) != 0;
    free(text);
    for (size_t i = 0; i < out->count && !failed; i++)
        failed = file_write_elements(stream, out->tensors[i]) != 0;
    if (failed) return cli_fail(error, ATTN_KIND_IO, "%s", strerror(errno));
    for (size_t i = 0; i < kept->count && !status; i++)
        status = copy_elements(stream, kept, &kept->entries[i], old, error);
    return status;
}

attn_status safetensors_write(FILE *stream, const struct safetensors_out *out, struct file_in *old,
                              attn_error *error)
{
    struct kept kept = {0};
    attn_status status = old ? read_kept(out, old, &kept, error) : ATTN_OK;
    if (!status) status = write_all(stream, out, &kept, old, error);
    free(kept.entries);
    json_decref(kept.header);
    return status;
}
