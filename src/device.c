/* device.c: memory, copies and time of devices, for callers and for the library's own calls. */
#include "context.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- the host as a device ----------------------------------------------------------------------- */

static attn_status host_alloc(int32_t device, size_t bytes, void **memory, attn_error *error)
{
    enum { ALIGN = 256 };
    (void)device;
    if (!posix_memalign(memory, ALIGN, bytes ? bytes : 1)) return ATTN_OK;
    *memory = NULL;
    return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for %zu bytes", bytes);
}

static void host_release(int32_t device, void *memory)
{
    (void)device;
    free(memory);
}

static attn_status host_copy(int32_t device, void *to, int64_t to_pitch, const void *from, int64_t from_pitch,
                             size_t width, int64_t rows, void *stream, attn_error *error)
{
    (void)device, (void)stream, (void)error;
    for (int64_t i = 0; i < rows; i++)
        memcpy((char *)to + i * to_pitch, (const char *)from + i * from_pitch, width);
    return ATTN_OK;
}

static attn_status host_fill(int32_t device, void *to, int byte, size_t bytes, void *stream,
                             attn_error *error)
{
    (void)device, (void)stream, (void)error;
    memset(to, byte, bytes);
    return ATTN_OK;
}

static attn_status host_wait(int32_t device, void *stream, attn_error *error)
{
    (void)device, (void)stream, (void)error;
    return ATTN_OK;
}

static attn_status host_mark(int32_t device, void *stream, void **mark, attn_error *error)
{
    (void)device, (void)stream;
    if (!*mark) *mark = malloc(sizeof(struct timespec));
    if (!*mark) return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a mark");
    clock_gettime(CLOCK_MONOTONIC, *mark);
    return ATTN_OK;
}

static attn_status host_seconds(int32_t device, void *from, void *to, double *seconds, attn_error *error)
{
    const struct timespec *a = from, *b = to;
    (void)device, (void)error;
    *seconds = (double)(b->tv_sec - a->tv_sec) + 1e-9 * (double)(b->tv_nsec - a->tv_nsec);
    return ATTN_OK;
}

static attn_status host_limits(int32_t device, attn_device_limits *limits, attn_error *error)
{
    (void)device, (void)error;
    limits->count = 1;
    return ATTN_OK;
}

const attn_device attn_device_host = {.size = sizeof(attn_device),
                                      .device_type = kDLCPU,
                                      .platform = "cpu",
                                      .alloc = host_alloc,
                                      .release = host_release,
                                      .copy = host_copy,
                                      .fill = host_fill,
                                      .wait = host_wait,
                                      .mark = host_mark,
                                      .seconds = host_seconds,
                                      .unmark = host_release,
                                      .limits = host_limits};

/* ---- finding ------------------------------------------------------------------------------------ */

const attn_device *attn_device_find(attn_context *c, int32_t type, attn_error *error)
{
    if (type == kDLCPU) return &attn_device_host;
    const attn_device *found = attn_registry_device(&c->registry, type);
    if (!found)
        attn_fail(error, ATTN_KIND_PACKAGE_MISSING,
                  "no loaded module offers memory of DLPack device type %d; install the module of that "
                  "platform (modules "
                  "were searched in '%.200s')",
                  (int)type, c->registry.searched ? c->registry.searched : "");
    return found;
}

static attn_status find(attn_context *c, DLDevice device, const attn_device **found, attn_error *error)
{
    if (!c) return attn_fail(error, ATTN_KIND_INVALID_VALUE, "context is NULL; open one with attn_open");
    *found = attn_device_find(c, device.device_type, error);
    return *found ? ATTN_OK : ATTN_NOT_AVAILABLE;
}

static attn_status need(const void *pointer, const char *what, attn_error *error)
{
    if (pointer) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_INVALID_VALUE, "%s is NULL", what);
}

/* ---- for callers -------------------------------------------------------------------------------- */

attn_status attn_device_alloc(attn_context *c, DLDevice device, size_t bytes, void **memory,
                              attn_error *error)
{
    const attn_device *ops;
    ATTN_TRY(need(memory, "the place for the memory", error));
    *memory = NULL;
    ATTN_TRY(find(c, device, &ops, error));
    return ops->alloc(device.device_id, bytes, memory, error);
}

void attn_device_free(attn_context *c, DLDevice device, void *memory)
{
    const attn_device *ops;
    if (memory && !find(c, device, &ops, NULL)) ops->release(device.device_id, memory);
}

attn_status attn_device_copy(attn_context *c, DLDevice device, void *to, const void *from, size_t bytes,
                             void *stream, attn_error *error)
{
    const attn_device *ops;
    ATTN_TRY(find(c, device, &ops, error));
    if (!bytes) return ATTN_OK;
    ATTN_TRY(need(to, "the copy's destination", error));
    ATTN_TRY(need(from, "the copy's source", error));
    return ops->copy(device.device_id, to, (int64_t)bytes, from, (int64_t)bytes, bytes, 1, stream, error);
}

attn_status attn_device_fill(attn_context *c, DLDevice device, void *to, int byte, size_t bytes, void *stream,
                             attn_error *error)
{
    const attn_device *ops;
    ATTN_TRY(find(c, device, &ops, error));
    if (!bytes) return ATTN_OK;
    ATTN_TRY(need(to, "the memory to fill", error));
    return ops->fill(device.device_id, to, byte, bytes, stream, error);
}

attn_status attn_device_wait(attn_context *c, DLDevice device, void *stream, attn_error *error)
{
    const attn_device *ops;
    ATTN_TRY(find(c, device, &ops, error));
    return ops->wait(device.device_id, stream, error);
}

attn_status attn_device_mark(attn_context *c, DLDevice device, void *stream, void **mark, attn_error *error)
{
    const attn_device *ops;
    ATTN_TRY(need(mark, "the place for the mark", error));
    ATTN_TRY(find(c, device, &ops, error));
    return ops->mark(device.device_id, stream, mark, error);
}

attn_status attn_device_seconds(attn_context *c, DLDevice device, void *from, void *to, double *seconds,
                                attn_error *error)
{
    const attn_device *ops;
    ATTN_TRY(find(c, device, &ops, error));
    ATTN_TRY(need(from, "the first mark", error));
    ATTN_TRY(need(to, "the second mark", error));
    ATTN_TRY(need(seconds, "the place for the seconds", error));
    return ops->seconds(device.device_id, from, to, seconds, error);
}

void attn_device_unmark(attn_context *c, DLDevice device, void *mark)
{
    const attn_device *ops;
    if (mark && !find(c, device, &ops, NULL)) ops->unmark(device.device_id, mark);
}

attn_status attn_device_saturate(attn_context *c, DLDevice device, attn_dtype dtype, void *stream,
                                 double *flop, attn_error *error)
{
    const attn_device *ops;
    ATTN_TRY(find(c, device, &ops, error));
    ATTN_TRY(need(flop, "the place for the operations", error));
    if (ops->saturate) return ops->saturate(device.device_id, dtype, stream, flop, error);
    return attn_fail(error, ATTN_KIND_FEATURE_UNSUPPORTED,
                     "device type %d (%s) offers no measure of what it can do at most; leave the ceiling out",
                     (int)device.device_type, ops->platform);
}

attn_status attn_device_get_limits(attn_context *c, DLDevice device, attn_device_limits *limits,
                                   attn_error *error)
{
    const attn_device *ops;
    attn_device_limits ours = {.size = sizeof ours};
    ATTN_TRY(find(c, device, &ops, error));
    ATTN_TRY(need(limits, "the place for the limits", error));
    ATTN_TRY(ops->limits(device.device_id, &ours, error));
    attn_give_struct(limits, &ours, sizeof ours);
    return ATTN_OK;
}

/* ---- workspaces of streams ---------------------------------------------------------------------- */

enum { SPACE_LEAST = 1 << 16 };

static attn_status find_space(attn_context *c, const attn_device *ops, int32_t device, void *stream,
                              attn_space_use use, attn_space **space, attn_error *error)
{
    attn_lock_take(&c->spaces_lock);
    attn_space *s = c->spaces;
    while (s && (s->ops != ops || s->device != device || s->stream != stream || s->use != use)) s = s->next;
    if (!s && (s = attn_take_zeroed(&c->allocator, sizeof *s))) {
        *s = (attn_space){.next = c->spaces, .use = use, .ops = ops, .device = device, .stream = stream};
        attn_lock_init(&s->lock);
        c->spaces = s;
    }
    attn_lock_give(&c->spaces_lock);
    *space = s;
    return s ? ATTN_OK : attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the workspace of a stream");
}

static attn_status grow(attn_space *s, size_t bytes, attn_error *error)
{
    size_t size = SPACE_LEAST;
    while (size < bytes && size <= SIZE_MAX / 2) size *= 2;
    if (size < bytes) size = bytes;
    ATTN_TRY(s->ops->alloc(s->device, size, &s->memory[s->count], error));
    s->count++;
    s->bytes = size;
    return ATTN_OK;
}

attn_status attn_space_take(attn_context *c, DLDevice device, void *stream, attn_space_use use, size_t bytes,
                            attn_space **space, attn_error *error)
{
    attn_error why = ATTN_ERROR_INIT;
    const attn_device *ops = attn_device_find(c, device.device_type, &why);
    if (!ops)
        return attn_fail(error, why.kind,
                         "this call needs a workspace of %zu bytes and %s; or pass one in attn_args", bytes,
                         why.text);
    ATTN_TRY(find_space(c, ops, device.device_id, stream, use, space, error));
    attn_lock_take(&(*space)->lock);
    attn_status status = bytes > (*space)->bytes ? grow(*space, bytes, error) : ATTN_OK;
    if (status) attn_lock_give(&(*space)->lock);
    return status;
}

void attn_space_give(attn_space *space)
{
    attn_lock_give(&space->lock);
}

void attn_spaces_clear(attn_context *c)
{
    while (c->spaces) {
        attn_space *s = c->spaces;
        c->spaces = s->next;
        for (int i = 0; i < s->count; i++) s->ops->release(s->device, s->memory[i]);
        attn_lock_destroy(&s->lock);
        attn_drop(&c->allocator, s);
    }
    attn_lock_destroy(&c->spaces_lock);
}
