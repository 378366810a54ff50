/* problem.h: layer facts and arguments become one checked call. Every shape error comes from here. */
#ifndef ATTN_CORE_PROBLEM_H
#define ATTN_CORE_PROBLEM_H

#include "core/site.h"
#include "core/tensor.h"

/* The parts of one kind of tensor that joint tokens are put before or after. */
typedef struct attn_joint_pair {
    attn_view main, joint;
    size_t bytes;  /* of the joined copy, 0: none is needed */
    size_t offset; /* in the joint area of the workspace */
} attn_joint_pair;

typedef enum attn_use { ATTN_INPUT, ATTN_OUTPUT } attn_use;

enum { ATTN_TENSORS = 32 }; /* more than attn_args can name */

/* A cache, checked: axes are those of NHD whatever its layout is. Of a latent cache v is a part of k. */
typedef struct attn_pages {
    attn_view k, v, k_scale, v_scale;
    int32_t k_form, v_form; /* attn_scale_form */
    int64_t k_scale_stride[3], v_scale_stride[3];
    bool latent;
} attn_pages;

/* Fails with invalid_struct, invalid_value, invalid_shape, invalid_dtype, invalid_layout. Heads and widths of
 * 0 are not known. */
attn_status attn_cache_read(const attn_cache *cache, int64_t heads, int64_t width, int64_t value_width,
                            attn_pages *pages, attn_error *error);

typedef struct attn_request {
    const attn_site *site;
    attn_view tensors[ATTN_TENSORS]; /* every tensor that was read, for the check of overlaps */
    attn_use uses[ATTN_TENSORS];
    int tensor_count;
    attn_problem problem;
    attn_call call;
    attn_args args; /* the caller's, zero-filled to our size */
    bool joint;
    bool at_fault; /* the implementation itself failed, in plan or in run */
    attn_joint_pair jq, jk, jv, jout, jkey;
    size_t joint_bytes; /* area that attn_joint_gather fills */
    attn_pages pages;   /* of a call over a cache */
    attn_view table;
    int64_t blocks;
} attn_request;

/* Checks everything that does not depend on an implementation. With joint tensors the problem is that of the
 * joined sequence and call's pointers are set by attn_joint_gather. */
attn_status attn_request_read(const attn_site *site, const attn_args *args, attn_request *request,
                              attn_error *error);

/* joint.c: lays out, fills and scatters the joined copies. */
bool attn_joint_layout(attn_request *request); /* false: larger than the address space */
/* By the functions of the device that holds the tensors (of the host: attn_device_host); what they enqueue is
 * in the order of the call's stream. */
attn_status attn_joint_gather(attn_request *request, const attn_device *device, void *area,
                              attn_error *error);
attn_status attn_joint_scatter(const attn_request *request, const attn_device *device, void *area,
                               attn_error *error);
/* Fails with feature_unsupported when a part cannot be moved as rows of bytes, which is all that devices do.
 */
attn_status attn_joint_check(const attn_request *request, attn_error *error);

#endif
