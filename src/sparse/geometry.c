/* geometry.c: from latent and patch sizes to frames and patches of a sequence, and what models say of both.
 */
#include "sparse/geometry.h"

enum { T, H, W, AXES };

/* The first row of a parameter; NULL when it is absent or no list of three. */
static const int64_t *first_row(const attn_params *params, const char *name)
{
    const attn_param *p = attn_params_find(params, name);
    if (!p || p->type != ATTN_PARAM_INTS || p->count < AXES || (p->columns && p->columns != AXES))
        return NULL;
    return p->value.integers;
}

static int64_t times(int64_t a, int64_t b)
{
    int64_t product;
    return __builtin_mul_overflow(a, b, &product) ? -1 : product;
}

attn_geometry_answer attn_geometry_resolve(const attn_params *params, int64_t q_len, attn_geometry *found)
{
    const int64_t *latent = first_row(params, "latent_shape"), *patch = first_row(params, "patch_size");
    if (attn_params_find(params, "total_latent_frames") || !latent || !patch) return ATTN_GEOMETRY_NONE;
    for (int i = 0; i < AXES; i++)
        if (patch[i] <= 0 || latent[i] < 0) return ATTN_GEOMETRY_NONE;
    found->frames = latent[T] / patch[T];
    found->patches = times(latent[H] / patch[H], latent[W] / patch[W]);
    if (q_len < 0 || (found->patches >= 0 && times(found->frames, found->patches) == q_len))
        return ATTN_GEOMETRY_FOUND;
    return ATTN_GEOMETRY_OTHER;
}

/* ---- what models say ------------------------------------------------------------------------------ */

int attn_latent_shape_of(const DLTensor *hidden_states, int64_t shape[3])
{
    if (!hidden_states || hidden_states->ndim < 5 || !hidden_states->shape) return 0;
    for (int i = 0; i < AXES; i++) shape[i] = hidden_states->shape[hidden_states->ndim - AXES + i];
    return 1;
}

/* The entry of the configuration, else of the attributes; null counts as absent. */
static const attn_param *either(const attn_params *config, const attn_params *attributes, const char *name)
{
    const attn_param *p = attn_params_find(config, name);
    if (p && p->type != ATTN_PARAM_NONE) return p;
    p = attn_params_find(attributes, name);
    return p && p->type != ATTN_PARAM_NONE ? p : NULL;
}

int attn_patch_size_of(const attn_params *config, const attn_params *attributes, int64_t patch[3])
{
    const attn_param *p = either(config, attributes, "patch_size");
    const attn_param *t = either(config, attributes, "patch_size_t");
    if (p && p->type == ATTN_PARAM_INTS && p->count == AXES && p->columns == 0) {
        for (int i = 0; i < AXES; i++) patch[i] = p->value.integers[i];
        return 1;
    }
    if (!p || p->type != ATTN_PARAM_INT || (t && t->type != ATTN_PARAM_INT)) return 0;
    patch[T] = t ? t->value.integer : 1;
    patch[H] = patch[W] = p->value.integer;
    return 1;
}

int attn_denoise_total_of(const attn_params *pipeline, int64_t *total)
{
    static const char *const names[] = {"num_timesteps", "_num_timesteps"};
    for (int i = 0; i < 2; i++) {
        const attn_param *p = attn_params_find(pipeline, names[i]);
        if (!p || p->type != ATTN_PARAM_INT || p->value.integer < 1) continue;
        *total = p->value.integer;
        return 1;
    }
    return 0;
}
