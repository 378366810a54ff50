/* grid.c: which frame, row and column a token is. */
#include "selectors.h"

#include <inttypes.h>

enum { AXES = 3 };

/* latent_shape over patch_size, rounded down, of the first sample; 0: not published. */
static int published(const attn_forward_state *forward, video_grid *grid)
{
    if (!forward || !forward->latent_shape || !forward->patch_size) return 0;
    for (int i = 0; i < AXES; i++) {
        if (forward->patch_size[i] < 1) return 0;
        grid->size[i] = forward->latent_shape[i] / forward->patch_size[i];
    }
    return 1;
}

static int64_t tokens_of(const video_grid *grid)
{
    int64_t n = 1;
    for (int i = 0; i < AXES; i++)
        if (grid->size[i] < 1 || __builtin_mul_overflow(n, grid->size[i], &n)) return -1;
    return n;
}

attn_status selector_grid(const attn_sparse_call *call, const char *selector, video_grid *grid)
{
    const attn_problem *p = call->problem;
    const int64_t *given = NULL;
    int64_t count = 0;
    attn_status status = attn_params_ints(call->params, "grid", &given, &count, NULL, call->error);
    if (status) return status;
    if (given && count != AXES)
        return attn_fail(call->error, ATTN_KIND_INVALID_VALUE,
                         "parameter grid of %s has %" PRId64
                         " numbers; it is [frames, rows, columns] in tokens",
                         selector, count);
    for (int i = 0; given && i < AXES; i++) grid->size[i] = given[i];
    if (!given && !published(call->forward, grid))
        return attn_fail(call->error, ATTN_KIND_FEATURE_UNSUPPORTED,
                         "%s knows no video: no latent shape and patch size are published; publish them "
                         "(attn_args.forward), or give the parameter grid: [frames, rows, columns]",
                         selector);
    if (tokens_of(grid) == p->q_len && p->q_len == p->kv_len) return ATTN_OK;
    return attn_fail(call->error, ATTN_KIND_INVALID_SHAPE,
                     "%s has a video of %" PRId64 " x %" PRId64 " x %" PRId64
                     " tokens, and the call has %" PRId64 " queries and %" PRId64
                     " keys; both are the tokens of the video, so use it for self-attention "
                     "without other tokens, or correct %s",
                     selector, grid->size[0], grid->size[1], grid->size[2], p->q_len, p->kv_len,
                     given ? "the parameter grid" : "the published latent shape and patch size");
}
