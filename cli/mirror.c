/* mirror.c: copies the tensors of a call to a device and the outputs back. */
#include "mirror.h"

#include <stddef.h>
#include <string.h>

#include "cli.h"

/* Guards are as long as the alignment of device memory, so that tensors keep it. */
enum { GUARD = 256, GUARD_BYTE = 0x5a };
/* Longer ranges have rows that lie far apart; their rows are copied, not what lies between. */
#define WHOLE ((int64_t)64 << 20)

static const struct {
    size_t arg; /* in attn_args */
    const char *name;
    int is_output;
} rows[] = {
#define ROW(arg, is_output)                                                                                  \
    {                                                                                                        \
        offsetof(attn_args, arg), #arg, is_output                                                            \
    }
    ROW(q, 0),
    ROW(k, 0),
    ROW(v, 0),
    ROW(out, 1),
    ROW(lse, 1),
    ROW(mask, 0),
    ROW(key_mask, 0),
    ROW(kv_lengths, 0),
    ROW(cu_seqlens_q, 0),
    ROW(cu_seqlens_k, 0),
    ROW(sinks, 0),
    ROW(scores, 1),
    ROW(joint_q, 0),
    ROW(joint_k, 0),
    ROW(joint_v, 0),
    ROW(joint_out, 1),
    ROW(joint_key_mask, 0),
#undef ROW
};
enum { ROWS = sizeof rows / sizeof *rows, COUNTS = ROWS, BLOCKS, ALL };
_Static_assert(ALL <= MIRROR_TENSORS, "tensors of a mirror");

int mirror_is_host(DLDevice device)
{
    return device.device_type == kDLCPU;
}

static const DLTensor **arg_at(attn_args *args, int row)
{
    return (const DLTensor **)(void *)((char *)args + rows[row].arg);
}

/* ---- ranges ------------------------------------------------------------------------------------- */

static int64_t stride_of(const DLTensor *t, int axis)
{
    int64_t dense = 1;
    if (t->strides) return t->strides[axis];
    for (int i = axis + 1; i < t->ndim; i++) dense *= t->shape[i];
    return dense;
}

/* Bytes from the data pointer to the first element, and past the last, of the axes from `axis` on. */
static void range_of(const DLTensor *t, int axis, int64_t *low, int64_t *high)
{
    int64_t size = t->dtype.bits / 8;
    *low = 0, *high = size;
    for (int i = axis; i < t->ndim; i++) {
        int64_t far = t->shape[i] > 0 ? (t->shape[i] - 1) * stride_of(t, i) * size : -size;
        if (t->shape[i] == 0) *low = *high = 0;
        if (t->shape[i] == 0) return;
        *(far < 0 ? low : high) += far;
    }
}

static attn_status copy_at(struct mirror *m, char *there, char *here, size_t bytes, int back,
                           attn_error *error)
{
    return back ? attn_device_copy(m->context, m->device, here, there, bytes, NULL, error)
                : attn_device_copy(m->context, m->device, there, here, bytes, NULL, error);
}

/* The axes from `axis` on, whose data begin at these addresses. */
static attn_status copy_axes(struct mirror *m, const DLTensor *t, int axis, char *there, char *here, int back,
                             attn_error *error)
{
    int64_t low, high, step = axis < t->ndim ? stride_of(t, axis) * (t->dtype.bits / 8) : 0;
    range_of(t, axis, &low, &high);
    if (high - low <= WHOLE || axis >= t->ndim)
        return copy_at(m, there + low, here + low, (size_t)(high - low), back, error);
    for (int64_t i = 0; i < t->shape[axis]; i++) {
        attn_status status = copy_axes(m, t, axis + 1, there + i * step, here + i * step, back, error);
        if (status) return status;
    }
    return ATTN_OK;
}

static attn_status copy(struct mirror *m, struct mirror_tensor *t, int back, attn_error *error)
{
    if (!t->bytes) return ATTN_OK;
    return copy_axes(m, t->host, 0, t->dl.data, (char *)t->host->data + t->host->byte_offset, back, error);
}

/* ---- tensors ------------------------------------------------------------------------------------ */

static attn_status guard(struct mirror *m, struct mirror_tensor *t, attn_error *error)
{
    char *end = (char *)t->memory + GUARD + t->bytes;
    attn_status status = attn_device_fill(m->context, m->device, t->memory, GUARD_BYTE, GUARD, NULL, error);
    return status ? status : attn_device_fill(m->context, m->device, end, GUARD_BYTE, GUARD, NULL, error);
}

static attn_status add(struct mirror *m, struct mirror_tensor *t, const DLTensor *host, attn_error *error)
{
    int64_t high;
    t->host = host;
    t->dl = *host;
    t->dl.device = m->device;
    t->dl.byte_offset = 0;
    range_of(host, 0, &t->low, &high);
    t->bytes = (size_t)(high - t->low);
    attn_status status = attn_device_alloc(m->context, m->device, t->bytes + 2 * GUARD, &t->memory, error);
    if (status) return status;
    t->dl.data = (char *)t->memory + GUARD - t->low;
    status = guard(m, t, error);
    return status ? status : copy(m, t, 0, error);
}

static attn_status add_row(struct mirror *m, int row, attn_error *error)
{
    const DLTensor **arg = arg_at(&m->args, row);
    if (!*arg) return ATTN_OK;
    m->tensors[row].is_output = rows[row].is_output;
    attn_status status = add(m, &m->tensors[row], *arg, error);
    if (!status) *arg = &m->tensors[row].dl;
    return status;
}

static attn_status add_map(struct mirror *m, attn_error *error)
{
    if (!m->args.block_map) return ATTN_OK;
    m->map = *m->args.block_map;
    attn_status status = add(m, &m->tensors[COUNTS], m->map.counts, error);
    if (!status) status = add(m, &m->tensors[BLOCKS], m->map.blocks, error);
    m->map.counts = &m->tensors[COUNTS].dl;
    m->map.blocks = &m->tensors[BLOCKS].dl;
    m->args.block_map = &m->map;
    return status;
}

attn_status mirror_make(struct mirror *m, attn_context *context, DLDevice device, const attn_args *args,
                        attn_error *error)
{
    attn_status status = ATTN_OK;
    memset(m, 0, sizeof *m);
    m->context = context;
    m->device = device;
    m->args = *args;
    for (int row = 0; row < ROWS && !status; row++) status = add_row(m, row, error);
    return status ? status : add_map(m, error);
}

attn_status mirror_poison(struct mirror *m, attn_error *error)
{
    attn_status status = ATTN_OK;
    for (int row = 0; row < ROWS && !status; row++)
        if (m->tensors[row].is_output && m->tensors[row].memory) status = copy(m, &m->tensors[row], 0, error);
    return status;
}

static attn_status check_guards(struct mirror *m, int row, attn_error *error)
{
    const struct mirror_tensor *t = &m->tensors[row];
    char found[2][GUARD], *memory = t->memory;
    attn_status status = attn_device_copy(m->context, m->device, found[0], memory, GUARD, NULL, error);
    if (!status)
        status =
            attn_device_copy(m->context, m->device, found[1], memory + GUARD + t->bytes, GUARD, NULL, error);
    if (!status) status = attn_device_wait(m->context, m->device, NULL, error);
    for (int i = 0; i < GUARD && !status; i++)
        if (found[0][i] != GUARD_BYTE || found[1][i] != GUARD_BYTE)
            return cli_fail(error, ATTN_KIND_INTERNAL, "memory around %s was written on the device",
                            rows[row].name);
    return status;
}

attn_status mirror_fetch(struct mirror *m, attn_error *error)
{
    attn_status status = attn_device_wait(m->context, m->device, NULL, error);
    for (int row = 0; row < ROWS && !status; row++) {
        if (!m->tensors[row].is_output || !m->tensors[row].memory) continue;
        status = check_guards(m, row, error);
        if (!status) status = copy(m, &m->tensors[row], 1, error);
    }
    return status ? status : attn_device_wait(m->context, m->device, NULL, error);
}

void mirror_free(struct mirror *m)
{
    for (int i = 0; i < ALL && m->context; i++) attn_device_free(m->context, m->device, m->tensors[i].memory);
    memset(m, 0, sizeof *m);
}
