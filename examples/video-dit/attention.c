/* attention.c: everything this program asks of libattn: a context, a layer for each site, and forward calls.
 */
#include "attention.h"
#include "device.h"
#include <stdio.h>

static const struct role {
    const char *name, *prefix;
    uint64_t needs;
} roles[ROLES] = {
#define R(NAME, role, prefix, needs) {role, prefix, needs},
    ROLE_LIST(R)
#undef R
};

const char *role_name(int role)
{
    return roles[role].name;
}

static int open_layer(attention *a, int role, int block, const attn_params *params, failure *f)
{
    char prefix[48], doing[64];
    attn_error error = ATTN_ERROR_INIT;
    snprintf(prefix, sizeof prefix, "blocks.%d.%s", block, roles[role].prefix);
    snprintf(doing, sizeof doing, "cannot open the %s-attention of block %d", roles[role].name, block);
    attn_layer_options site = {
        .size = sizeof site,
        .device = {a->device ? kDLCUDA : kDLCPU, 0}, /* not the platform's own, whatever that is */
        .role = roles[role].name,
        .prefix = prefix,
        .heads = HEADS,
        .head_dim = HEAD_DIM,
        .dtype = a->dtype,
        .params = role == SELF ? params : NULL,
        .needs = roles[role].needs | (a->dtype == ATTN_F32 ? 0 : ATTN_FEATURE(F32_OUT))};
    if (attn_layer_open(a->context, &site, &a->layers[role][block], &error))
        return fail_attn(f, doing, &error);
    return 0;
}

static int open_layers(attention *a, const attn_params *params, failure *f)
{
    for (int role = 0; role < ROLES; role++)
        for (int block = 0; block < DEPTH; block++)
            if (open_layer(a, role, block, params, f)) return -1;
    return 0;
}

int attention_open(attention *a, const attention_options *options, failure *f)
{
    attn_error error = ATTN_ERROR_INIT;
    attn_params *params = NULL;
    attn_options o = {.size = sizeof o,
                      .threads = options->threads,
                      .backend = options->backend,
                      .config = options->config,
                      .flags = options->ignore_env ? ATTN_OPEN_IGNORE_ENV : 0};
    *a = (attention){.dtype = options->dtype, .cancel = options->cancel};
    if (attn_open(&o, &a->context, &error)) return fail_attn(f, "cannot open libattn", &error);
    if (options->on_gpu && !(a->device = device_open(a->context, f))) {
        attention_close(a);
        return -1;
    }
    if (options->self_params && attn_params_parse(options->self_params, &params, &error)) {
        attention_close(a);
        return fail_attn(f, "--self-params", &error);
    }
    int rc = open_layers(a, params, f);
    attn_params_free(params); /* layers keep copies */
    if (rc) attention_close(a);
    return rc;
}

void attention_close(attention *a)
{
    for (int role = 0; role < ROLES; role++)
        for (int block = 0; block < DEPTH; block++) attn_layer_close(a->layers[role][block]);
    device_close(a->device);
    attn_close(a->context);
    *a = (attention){0};
}

/* BSND with one sample: the heads of a row lie side by side, rows at any distance. */
typedef struct view {
    DLTensor tensor;
    int64_t shape[4], strides[4];
} view;

static const DLTensor *make_view(view *to, row_view r, attn_dtype dtype)
{
    *to =
        (view){.shape = {1, r.rows, HEADS, HEAD_DIM}, .strides = {r.rows * r.stride, r.stride, HEAD_DIM, 1}};
    to->tensor = (DLTensor){.data = (void *)(uintptr_t)r.data,
                            .device = {kDLCPU, 0},
                            .ndim = 4,
                            .dtype = attn_dtype_to_dl(dtype),
                            .shape = to->shape,
                            .strides = to->strides};
    return &to->tensor;
}

static const DLTensor *make_key_mask(view *to, const unsigned char *valid, int64_t keys)
{
    *to = (view){.shape = {1, keys}};
    to->tensor = (DLTensor){.data = (void *)(uintptr_t)valid,
                            .device = {kDLCPU, 0},
                            .ndim = 2,
                            .dtype = attn_dtype_to_dl(ATTN_BOOL),
                            .shape = to->shape};
    return valid ? &to->tensor : NULL;
}

void moment_set(moment *m, clip_shape shape, int step, int steps, double time)
{
    *m = (moment){.step = step,
                  .steps = steps,
                  .latent = {shape.frames, shape.height, shape.width},
                  .patch = {1, PATCH, PATCH},
                  .time = time};
    m->state = (attn_forward_state){.size = sizeof m->state,
                                    .samples = 1,
                                    .denoise_step = &m->step,
                                    .denoise_total = &m->steps,
                                    .latent_shape = m->latent,
                                    .patch_size = m->patch,
                                    .timestep = &m->time};
}

double attention_kept(const attention *a, int role, int block)
{
    attn_layer_info info = {.size = sizeof info};
    attn_layer_get_info(a->layers[role][block], &info);
    return info.kept_share;
}

int attention_run(const attention *a, const moment *when, int role, int block, row_view q, row_view k,
                  row_view v, const unsigned char *valid, float *out, int64_t out_stride, failure *f)
{
    view vq, vk, vv, vo, vm;
    char doing[64];
    attn_error error = ATTN_ERROR_INIT;
    attn_args args = {.size = sizeof args,
                      .q = make_view(&vq, q, a->dtype),
                      .k = make_view(&vk, k, a->dtype),
                      .v = make_view(&vv, v, a->dtype),
                      .out = make_view(&vo, (row_view){out, q.rows, out_stride}, ATTN_F32),
                      .key_mask = make_key_mask(&vm, valid, k.rows),
                      .cancel = a->cancel,
                      .forward = when ? &when->state : NULL};
    attn_layer *layer = a->layers[role][block];
    if (a->device ? !device_attend(a->device, layer, a->dtype, (row_view[]){q, k, v}, valid, out, out_stride,
                                   &args, &error)
                  : !attn_forward(layer, &args, &error))
        return 0;
    if (error.kind == ATTN_KIND_CANCELLED) return fail_cancelled(f);
    snprintf(doing, sizeof doing, "%s-attention of block %d failed", roles[role].name, block);
    return fail_attn(f, doing, &error);
}
