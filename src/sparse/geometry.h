/* geometry.h: from latent and patch sizes to frames and patches of a sequence. */
#ifndef ATTN_SPARSE_GEOMETRY_H
#define ATTN_SPARSE_GEOMETRY_H

#include <attn/module.h>

typedef struct attn_geometry {
    int64_t frames, patches; /* total_latent_frames, patches_per_frame */
} attn_geometry;

typedef enum attn_geometry_answer {
    ATTN_GEOMETRY_NONE,  /* nothing to resolve, or the frames are given */
    ATTN_GEOMETRY_FOUND, /* both are filled */
    ATTN_GEOMETRY_OTHER  /* the latent does not make this sequence; both are filled for the message */
} attn_geometry_answer;

/* The default resolver over merged parameters: latent_shape and patch_size, first sample. frames * patches
 * must be q_len; below 0 it is not known and nothing is compared. */
attn_geometry_answer attn_geometry_resolve(const attn_params *params, int64_t q_len, attn_geometry *found);

#endif
