/* device.h: the devices of a context and the workspaces that their streams hold. */
#ifndef ATTN_DEVICE_H
#define ATTN_DEVICE_H

#include "core/locks.h"

#include <attn/module.h>

/* Workspace of one stream of a device. What calls enqueue on a stream runs one after the other there, so they
 * share memory; the lock keeps apart what two threads enqueue. A captured graph may hold the memory, so what
 * became too small is kept until the end; sizes are powers of two, which keeps all of it below twice the
 * largest. */
typedef enum attn_space_use {
    ATTN_SPACE_CALL,
    ATTN_SPACE_BLOCKS /* of a call within a call: lists of key blocks, and its workspace */
} attn_space_use;

typedef struct attn_space {
    struct attn_space *next;
    attn_space_use use;
    const attn_device *ops;
    int32_t device;
    void *stream;
    attn_lock lock;
    int count;
    void *memory[48]; /* the last one is in use */
    size_t bytes;     /* of the last one */
} attn_space;

/* The host as a device: everything is done on return. */
extern const attn_device attn_device_host;

/* Who serves a device type; NULL with the error filled. */
const attn_device *attn_device_find(attn_context *context, int32_t device_type, attn_error *error);

/* A workspace of at least `bytes` for what the calling thread enqueues on a stream next, until it is given
 * back. */
attn_status attn_space_take(attn_context *context, DLDevice device, void *stream, attn_space_use use,
                            size_t bytes, attn_space **space, attn_error *error);
void attn_space_give(attn_space *space);
void attn_spaces_clear(attn_context *context);

#endif
