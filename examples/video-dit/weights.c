/* weights.c: reads safetensors: eight bytes of header length, a JSON header, then the data. */
#include "weights.h"
#include "file.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct extent {
    int64_t begin, end;
} extent;

static const struct element {
    const char *name;
    int64_t bytes;
} elements[] = {{"F16", 2}, {"F32", 4}};

static const struct element *find_element(const char *name)
{
    for (size_t i = 0; name && i < sizeof elements / sizeof *elements; i++)
        if (!strcmp(elements[i].name, name)) return &elements[i];
    return NULL;
}

static float widen_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 1023;
    uint32_t bits;
    float value;
    if (exponent == 0) { /* zero or subnormal: fraction units of 2^-24 */
        value = (float)fraction * 0x1p-24f;
        return sign ? -value : value;
    }
    bits = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int read_integer(const json_t *array, size_t index, int64_t *to)
{
    const json_t *v = json_array_get(array, index);
    *to = json_integer_value(v);
    return json_is_integer(v) && *to >= 0 ? 0 : -1;
}

/* The number of bytes a shape asks for, or -1 when it is no shape or too large. */
static int64_t shape_bytes(const json_t *shape, int64_t element)
{
    int64_t bytes = element, n;
    if (!json_is_array(shape)) return -1;
    for (size_t i = 0; i < json_array_size(shape); i++)
        if (read_integer(shape, i, &n) || __builtin_mul_overflow(bytes, n, &bytes)) return -1;
    return bytes;
}

static int check_entry(const weights *w, const char *name, const json_t *entry, extent *e, failure *f)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const struct element *element = find_element(dtype);
    const json_t *offsets = json_object_get(entry, "data_offsets");
    if (!element)
        return fail(f, ATTN_KIND_IO, "%s: tensor '%s' has dtype %s; this program reads F16 and F32", w->path,
                    name, dtype ? dtype : "of another type than text");
    int64_t bytes = shape_bytes(json_object_get(entry, "shape"), element->bytes);
    if (json_array_size(offsets) != 2 || read_integer(offsets, 0, &e->begin) ||
        read_integer(offsets, 1, &e->end) || e->begin > e->end || (uint64_t)e->end > w->data_bytes)
        return fail(f, ATTN_KIND_IO,
                    "%s: tensor '%s' lies outside the file's %zu bytes of data; the file is cut off "
                    "or damaged, fetch it again",
                    w->path, name, w->data_bytes);
    if (bytes != e->end - e->begin)
        return fail(f, ATTN_KIND_IO,
                    "%s: tensor '%s' takes %" PRId64 " bytes, its shape and dtype ask for %" PRId64, w->path,
                    name, e->end - e->begin, bytes);
    return 0;
}

static int by_begin(const void *a, const void *b)
{
    const extent *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static int check_overlaps(const weights *w, extent *list, size_t count, failure *f)
{
    qsort(list, count, sizeof *list, by_begin);
    for (size_t i = 1; i < count; i++)
        if (list[i].begin < list[i - 1].end)
            return fail(f, ATTN_KIND_IO,
                        "%s: two tensors overlap at byte %" PRId64 " of the data; the file is damaged",
                        w->path, list[i].begin);
    return 0;
}

static int check_entries(const weights *w, failure *f)
{
    size_t count = 0;
    extent *list = calloc(json_object_size(w->header) + 1, sizeof *list);
    const char *name;
    json_t *entry;
    int rc = list ? 0 : fail(f, ATTN_KIND_OUT_OF_MEMORY, "no memory for the list of tensors");
    json_object_foreach(w->header, name, entry)
    {
        if (rc) break;
        if (strcmp(name, "__metadata__")) rc = check_entry(w, name, entry, &list[count++], f);
    }
    if (!rc) rc = check_overlaps(w, list, count, f);
    free(list);
    return rc;
}

static int check_length(const weights *w, uint64_t length, size_t bytes, failure *f)
{
    if (bytes >= 8 && length <= bytes - 8) return 0;
    return fail(f, ATTN_KIND_IO,
                "%s: the header should take %" PRIu64 " bytes, the file has %zu; it is no "
                "safetensors file or is cut off",
                w->path, length, bytes);
}

/* Before the whole file is read: a large file of another kind is told by its first bytes. */
static int check_start(const weights *w, failure *f)
{
    unsigned char start[8] = {0};
    uint64_t length = 0;
    size_t bytes;
    FILE *stream = file_open(w->path, &bytes, f);
    if (!stream) return -1;
    size_t n = fread(start, 1, sizeof start, stream);
    fclose(stream);
    for (size_t i = 0; i < n; i++) length |= (uint64_t)start[i] << (8 * i);
    return check_length(w, length, bytes, f);
}

static int parse_header(weights *w, size_t bytes, failure *f)
{
    uint64_t length = 0;
    json_error_t error;
    for (int i = 0; i < 8 && bytes >= 8; i++) length |= (uint64_t)w->bytes[i] << (8 * i);
    if (check_length(w, length, bytes, f)) return -1;
    w->data = w->bytes + 8 + length;
    w->data_bytes = bytes - 8 - (size_t)length;
    w->header = json_loadb((const char *)w->bytes + 8, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(w->header))
        return fail(f, ATTN_KIND_IO, "%s: the header is no JSON object (line %d, column %d: %s)", w->path,
                    error.line, error.column, error.text);
    return check_entries(w, f);
}

int weights_open(weights *w, const char *path, failure *f)
{
    size_t bytes;
    *w = (weights){.path = path};
    if (check_start(w, f)) return -1;
    if (file_read(path, &w->bytes, &bytes, f)) return -1;
    if (parse_header(w, bytes, f)) {
        weights_close(w);
        return -1;
    }
    return 0;
}

void weights_close(weights *w)
{
    json_decref(w->header);
    free(w->bytes);
    *w = (weights){0};
}

static void widen(const unsigned char *from, int64_t element, int64_t count, float *to)
{
    uint16_t half;
    if (element == 4) {
        memcpy(to, from, (size_t)count * sizeof *to);
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        memcpy(&half, from + 2 * i, sizeof half);
        to[i] = widen_f16(half);
    }
}

int weights_read(const weights *w, const char *name, int64_t rows, int64_t columns, float *to, failure *f)
{
    const json_t *entry = json_object_get(w->header, name), *shape = json_object_get(entry, "shape");
    const json_t *offsets = json_object_get(entry, "data_offsets");
    int64_t begin, n[2] = {0, 0};
    size_t rank = columns ? 2 : 1;
    if (!entry)
        return fail(f, ATTN_KIND_IO, "%s: there is no tensor '%s'; these are not the weights of emoji-dit",
                    w->path, name);
    for (size_t i = 0; i < rank; i++) read_integer(shape, i, &n[i]);
    if (json_array_size(shape) != rank || n[0] != rows || n[1] != columns)
        return fail(f, ATTN_KIND_IO,
                    "%s: tensor '%s' has %zu dimensions that begin with %" PRId64 ", %" PRId64
                    "; emoji-dit has %zu: %" PRId64 ", %" PRId64,
                    w->path, name, json_array_size(shape), n[0], n[1], rank, rows, columns);
    read_integer(offsets, 0, &begin);
    const struct element *element = find_element(json_string_value(json_object_get(entry, "dtype")));
    widen(w->data + begin, element->bytes, rows * (columns ? columns : 1), to);
    return 0;
}

json_t *weights_metadata(const weights *w, const char *key)
{
    const char *text = json_string_value(json_object_get(json_object_get(w->header, "__metadata__"), key));
    return text ? json_loads(text, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES, NULL) : NULL;
}
