/* mirror.h: the tensors of a call on a device, made from those in host memory. */
#ifndef ATTN_CLI_MIRROR_H
#define ATTN_CLI_MIRROR_H

#include <attn/attn.h>

#define MIRROR_TENSORS 20

/* One tensor there: the same shape and strides, between guard bytes. memory NULL: none. */
struct mirror_tensor {
    DLTensor dl;
    const DLTensor *host;
    void *memory; /* of the device, guards included */
    size_t bytes; /* from the first element to the last, padding between rows included */
    int64_t low;  /* bytes from the data pointer down to the first element, 0 or less */
    int is_output;
};

struct mirror {
    attn_context *context;
    DLDevice device;
    attn_args args;     /* ready for attn_forward */
    attn_block_map map; /* that args name, if any */
    struct mirror_tensor tensors[MIRROR_TENSORS];
};

/* 1: tensors of this device are host memory and need no mirror. */
int mirror_is_host(DLDevice device);

/* Allocates and copies every tensor that args name, outputs with what they hold. Freed by mirror_free, also
 * after a failure. Fails as attn_device_alloc and attn_device_copy do. The host tensors must outlive the
 * mirror. */
attn_status mirror_make(struct mirror *mirror, attn_context *context, DLDevice device, const attn_args *args,
                        attn_error *error);
/* Copies the outputs there anew: poisoned ones before a run. */
attn_status mirror_poison(struct mirror *mirror, attn_error *error);
/* Waits for the device and copies the outputs back, padding too; fails with internal when something around
 * them was written. */
attn_status mirror_fetch(struct mirror *mirror, attn_error *error);
void mirror_free(struct mirror *mirror);

#endif
