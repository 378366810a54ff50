/* call.c: files and problems become layers and arguments. */
#include "call.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "measure.h"
#include "report.h"

enum { VIEW_Q, VIEW_K, VIEW_V, VIEW_OUT };

void call_defaults(struct call_values *values)
{
    memset(values, 0, sizeof *values);
    values->left = values->right = -1;
    values->scale = (double)NAN;
}

/* ---- problems ---------------------------------------------------------------------------------- */

attn_status call_from_problem(const struct problem *problem, struct call *call, attn_error *error)
{
    memset(call, 0, sizeof *call);
    attn_status status = generate(problem, &call->generated, error);
    if (status) return status;
    call->layer = call->generated.layer;
    call->args = call->generated.args;
    problem_format(problem, call->text, sizeof call->text);
    return ATTN_OK;
}

attn_status call_fits(const struct problem *problem, const struct call_extra *extra, attn_error *error)
{
    struct generate_need need, exact = {0};
    struct problem wide = *problem;
    char text[PROBLEM_TEXT_BYTES], needed[32], left[32];
    wide.plain = 1;
    wide.dtype = wide.out_dtype = ATTN_F64;
    wide.layout = PROBLEM_BSND;
    int64_t available = measure_available();
    attn_status status = generate_measure(problem, &need, error);
    if (!status && extra->exact) status = generate_measure(&wide, &exact, error);
    if (status || available < 0) return status;
    double bytes = need.bytes + exact.bytes - (extra->masks ? 0 : exact.mask_bytes) +
                   extra->outcomes * need.out_elements * sizeof(double);
    if (extra->scores)
        bytes += (double)sizeof(float) * (double)problem->batch * (double)problem->heads *
                 (double)(problem->q_len + problem->joint) * (double)(problem->kv_len + problem->joint);
    if (bytes <= (double)available) return ATTN_OK;
    return cli_fail(
        error, ATTN_KIND_OUT_OF_MEMORY,
        "problem \"%.200s\" needs %s of memory for its tensors, and %s are available; give a smaller "
        "--problem",
        problem_format(problem, text, sizeof text), report_bytes(bytes, needed),
        report_bytes((double)available, left));
}

/* ---- files ------------------------------------------------------------------------------------- */

/* Inputs that are files, and where they go. */
static const struct input {
    const char *option;
    size_t spec; /* in call_values */
    enum call_file file;
    size_t arg; /* in attn_args; q, k, v go there by way of views */
} inputs[] = {
#define INPUT(option, field, file, arg)                                                                      \
    {                                                                                                        \
        option, offsetof(struct call_values, field), file, offsetof(attn_args, arg)                          \
    }
    INPUT("q", q, CALL_Q, q),
    INPUT("k", k, CALL_K, k),
    INPUT("v", v, CALL_V, v),
    INPUT("mask", mask, CALL_MASK, mask),
    INPUT("key-mask", key_mask, CALL_KEY_MASK, key_mask),
    INPUT("kv-lengths", kv_lengths, CALL_LENGTHS, kv_lengths),
    INPUT("cu-seqlens-q", cu_seqlens_q, CALL_CU_Q, cu_seqlens_q),
    INPUT("cu-seqlens-k", cu_seqlens_k, CALL_CU_K, cu_seqlens_k),
    INPUT("sinks", sinks, CALL_SINKS, sinks),
#undef INPUT
};
#define INPUTS (sizeof inputs / sizeof *inputs)

static const char *spec_of(const struct call_values *values, const struct input *input)
{
    return *(const char *const *)(const void *)((const char *)values + input->spec);
}

attn_status call_check_problem(const struct call_values *values, attn_error *error)
{
    struct call_values alone;
    call_defaults(&alone);
    alone.problem = values->problem;
    /* Both were zeroed before they were filled, padding included. */
    if (!values->problem || memcmp(&alone, values, sizeof alone) == 0) return ATTN_OK;
    return cli_fail(error, ATTN_KIND_MUTUALLY_EXCLUSIVE,
                    "--problem excludes the other options of inputs; say it in the problem string, as in "
                    "b1h12s1024d64:f32:causal, or give files");
}

static attn_status load_files(const struct call_values *values, attn_dtype as, struct call *call,
                              attn_error *error)
{
    for (size_t i = 0; i < INPUTS; i++) {
        const struct input *input = &inputs[i];
        const char *spec = spec_of(values, input);
        int required = input->file <= CALL_V;
        if (!spec && required)
            return cli_fail(error, ATTN_KIND_INVALID_VALUE,
                            "--%s is missing; give --q, --k and --v, or --problem", input->option);
        if (!spec) continue;
        attn_status status = tensor_load(spec, required ? as : 0, &call->files[input->file], error);
        if (status) return status;
        if (!required)
            *(const DLTensor **)(void *)((char *)&call->args + input->arg) = &call->files[input->file].dl;
    }
    return ATTN_OK;
}

/* Shape "[1, 2, 3]" of a tensor. */
static char *shape_text(const DLTensor *tensor, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (int i = 0; i < tensor->ndim && used < bytes; i++)
        used +=
            (size_t)snprintf(text + used, bytes - used, "%s%lld", i ? ", " : "", (long long)tensor->shape[i]);
    if (used < bytes) snprintf(text + used, bytes - used, "]");
    return text;
}

/* Sets axis `axis` of a view from axis `from` of the file; from -1: an axis of size 1. */
static void take_axis(struct call_view *view, int axis, const struct tensor *tensor, int from)
{
    view->shape[axis] = from < 0 ? 1 : tensor->shape[from];
    view->strides[axis] = from < 0 ? 0 : tensor->strides[from];
}

/* [B, S, H*D] as [B, S, H, D]. */
static attn_status split_heads(struct call_view *view, const struct tensor *tensor, int64_t heads,
                               const char *option, attn_error *error)
{
    char shape[128];
    if (tensor->dl.ndim != 3 || tensor->shape[2] % heads != 0)
        return cli_fail(error, ATTN_KIND_INVALID_SHAPE,
                        "--%s has shape %s; with --heads it is [B, S, H*D], and %lld "
                        "heads must divide the last axis",
                        option, shape_text(&tensor->dl, shape, sizeof shape), (long long)heads);
    take_axis(view, 0, tensor, 0);
    take_axis(view, 1, tensor, 1);
    view->shape[2] = heads;
    view->shape[3] = tensor->shape[2] / heads;
    view->strides[3] = tensor->strides[2];
    view->strides[2] = view->shape[3] * tensor->strides[2];
    return ATTN_OK;
}

static attn_status make_view(struct call_view *view, const struct tensor *tensor, int bnsd, int64_t heads,
                             const char *option, attn_error *error)
{
    static const int orders[2][4] = {{0, 1, 2, 3}, {0, 2, 1, 3}};
    char shape[128];
    int ndim = tensor->dl.ndim, missing = 4 - ndim;
    if (heads) {
        attn_status status = split_heads(view, tensor, heads, option, error);
        if (status) return status;
    } else if (ndim == 3 || ndim == 4) {
        for (int axis = 0; axis < 4; axis++) take_axis(view, axis, tensor, orders[bnsd][axis] - missing);
    } else {
        return cli_fail(error, ATTN_KIND_INVALID_SHAPE,
                        "--%s has shape %s; expected 4 axes %s, or 3 without the batch", option,
                        shape_text(&tensor->dl, shape, sizeof shape), bnsd ? "[B, H, S, D]" : "[B, S, H, D]");
    }
    view->dl = tensor->dl;
    view->dl.ndim = 4;
    view->dl.shape = view->shape;
    view->dl.strides = view->strides;
    return ATTN_OK;
}

/* out has q's axes with v's head size, and is made of the same axes that q's file has. */
static attn_status make_out(struct call *call, int bnsd, int64_t heads, attn_dtype dtype, attn_error *error)
{
    const struct tensor *q = &call->files[CALL_Q];
    int64_t shape[4] = {0}, value_dim = call->views[VIEW_V].shape[3];
    int ndim = q->dl.ndim;
    for (int i = 0; i < ndim; i++) shape[i] = q->shape[i];
    shape[ndim - 1] = heads ? heads * value_dim : value_dim;
    attn_status status = tensor_make(&call->files[CALL_OUT], dtype, ndim, shape, error);
    if (!status)
        status = make_view(&call->views[VIEW_OUT], &call->files[CALL_OUT], bnsd, heads, "out", error);
    if (!status) call->args.out = &call->views[VIEW_OUT].dl;
    return status;
}

static attn_status read_words(const struct call_values *values, struct call *call, int *bnsd, attn_dtype *as,
                              attn_error *error)
{
    attn_layer_options *layer = &call->layer;
    *bnsd = values->layout && strcmp(values->layout, "bnsd") == 0;
    if (values->layout && !*bnsd && strcmp(values->layout, "bsnd") != 0)
        return cli_fail(error, ATTN_KIND_UNKNOWN_NAME, "--layout is \"%s\"; expected bsnd or bnsd",
                        values->layout);
    if (*bnsd && values->heads)
        return cli_fail(error, ATTN_KIND_MUTUALLY_EXCLUSIVE, "--layout bnsd and --heads exclude each other");
    if (values->kv_heads && !values->heads)
        return cli_fail(error, ATTN_KIND_INVALID_VALUE, "--kv-heads needs --heads");
    if (values->scale == 0)
        return cli_fail(error, ATTN_KIND_INVALID_VALUE, "--scale is 0; leave it out for 1 / sqrt(D)");
    *as = values->dtype ? attn_dtype_from_name(values->dtype) : 0;
    if (values->dtype && !*as)
        return cli_fail(error, ATTN_KIND_UNKNOWN_NAME, "--dtype is \"%s\"; expected f32, f16, bf16 or f64",
                        values->dtype);
    layer->alignment =
        values->causal && strcmp(values->causal, "top-left") == 0 ? ATTN_TOP_LEFT : ATTN_BOTTOM_RIGHT;
    if (values->causal && *values->causal && !layer->alignment && strcmp(values->causal, "bottom-right") != 0)
        return cli_fail(error, ATTN_KIND_UNKNOWN_NAME,
                        "--causal is \"%s\"; expected bottom-right or top-left", values->causal);
    const char *kind = values->mask_kind;
    if (kind && !values->mask)
        return cli_fail(error, ATTN_KIND_INVALID_VALUE,
                        "--mask-kind says what a mask means; give --mask too, or leave it out");
    call->args.mask_kind = !kind                           ? ATTN_MASK_BY_DTYPE
                           : strcmp(kind, "keep") == 0     ? ATTN_MASK_KEEP
                           : strcmp(kind, "additive") == 0 ? ATTN_MASK_ADDITIVE
                                                           : -1;
    if (call->args.mask_kind < 0)
        return cli_fail(error, ATTN_KIND_UNKNOWN_NAME, "--mask-kind is \"%s\"; expected keep or additive",
                        kind);
    return ATTN_OK;
}

/* The library asks for the same in terms of its own interface. */
static attn_status check_mask_kind(const struct call *call, attn_error *error)
{
    attn_dtype dtype = call->files[CALL_MASK].dtype;
    if (call->args.mask_kind != ATTN_MASK_BY_DTYPE || (dtype != ATTN_U8 && dtype != ATTN_I8)) return ATTN_OK;
    return cli_fail(
        error, ATTN_KIND_INVALID_DTYPE,
        "--mask holds %s; add --mask-kind keep if a non-zero byte means attend, or save it as floating",
        attn_dtype_name(dtype));
}

static void fill_layer(const struct call_values *values, struct call *call)
{
    attn_layer_options *layer = &call->layer;
    const struct call_view *views = call->views;
    layer->heads = views[VIEW_Q].shape[2];
    layer->kv_heads = views[VIEW_K].shape[2];
    layer->head_dim = views[VIEW_Q].shape[3];
    layer->value_head_dim = views[VIEW_V].shape[3];
    layer->dtype = call->files[CALL_Q].dtype;
    layer->scale = isnan(values->scale) ? 0 : values->scale;
    layer->softcap = values->softcap;
    layer->causal = values->causal != NULL;
    layer->window = (values->left >= 0 ? ATTN_WINDOW_LEFT : 0) | (values->right >= 0 ? ATTN_WINDOW_RIGHT : 0);
    layer->window_left = values->left >= 0 ? values->left : 0;
    layer->window_right = values->right >= 0 ? values->right : 0;
}

/* What the call will ask for, so that an automatic choice can look for it. */
static uint64_t needs_of(const struct call *call)
{
    const attn_args *args = &call->args;
    const attn_layer_options *layer = &call->layer;
    int keep = args->mask_kind == ATTN_MASK_KEEP || (args->mask_kind == ATTN_MASK_BY_DTYPE && args->mask &&
                                                     args->mask->dtype.code == ATTN_DL_BOOL);
    const struct {
        int asked, bit;
    } rows[] = {
        {args->mask && keep, ATTN_FEATURE_BIT_MASK_KEEP},
        {args->mask && !keep, ATTN_FEATURE_BIT_MASK_ADDITIVE},
        {args->key_mask != NULL, ATTN_FEATURE_BIT_KEY_MASK},
        {args->kv_lengths != NULL, ATTN_FEATURE_BIT_LENGTHS},
        {args->cu_seqlens_q != NULL, ATTN_FEATURE_BIT_PACKED},
        {layer->causal, ATTN_FEATURE_BIT_CAUSAL},
        {layer->alignment == ATTN_TOP_LEFT, ATTN_FEATURE_BIT_TOP_LEFT},
        {layer->window != 0, ATTN_FEATURE_BIT_WINDOW},
        {layer->softcap > 0, ATTN_FEATURE_BIT_SOFTCAP},
        {args->sinks != NULL, ATTN_FEATURE_BIT_SINKS},
        {layer->kv_heads != layer->heads, ATTN_FEATURE_BIT_GROUPED},
        {layer->value_head_dim != layer->head_dim, ATTN_FEATURE_BIT_VALUE_DIM},
        {args->out->dtype.bits != args->q->dtype.bits, ATTN_FEATURE_BIT_F32_OUT},
    };
    uint64_t needs = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].asked) needs |= (uint64_t)1 << rows[i].bit;
    }
    return needs;
}

static attn_status view_inputs(const struct call_values *values, int bnsd, struct call *call,
                               attn_error *error)
{
    int64_t kv_heads = values->heads && !values->kv_heads ? values->heads : values->kv_heads;
    attn_status status =
        make_view(&call->views[VIEW_Q], &call->files[CALL_Q], bnsd, values->heads, "q", error);
    if (!status) status = make_view(&call->views[VIEW_K], &call->files[CALL_K], bnsd, kv_heads, "k", error);
    if (!status) status = make_view(&call->views[VIEW_V], &call->files[CALL_V], bnsd, kv_heads, "v", error);
    call->args.q = &call->views[VIEW_Q].dl;
    call->args.k = &call->views[VIEW_K].dl;
    call->args.v = &call->views[VIEW_V].dl;
    return status;
}

static void describe(struct call *call)
{
    char q[64], k[64];
    snprintf(call->text, sizeof call->text, "q %s, k %s, %s", shape_text(call->args.q, q, sizeof q),
             shape_text(call->args.k, k, sizeof k), attn_dtype_name(call->files[CALL_Q].dtype));
}

attn_status call_from_files(const struct call_values *values, attn_dtype out_dtype, struct call *call,
                            attn_error *error)
{
    int bnsd = 0;
    attn_dtype as = 0;
    memset(call, 0, sizeof *call);
    call->layer.size = sizeof call->layer;
    call->args.size = sizeof call->args;
    call->args.cancel = &cli_cancel;
    attn_status status = read_words(values, call, &bnsd, &as, error);
    if (!status) status = load_files(values, as, call, error);
    if (!status) status = check_mask_kind(call, error);
    if (!status) status = view_inputs(values, bnsd, call, error);
    if (!status)
        status =
            make_out(call, bnsd, values->heads, out_dtype ? out_dtype : call->files[CALL_Q].dtype, error);
    if (status) {
        call_free(call);
        return status;
    }
    fill_layer(values, call);
    call->layer.needs = needs_of(call);
    describe(call);
    call_reset(call);
    return ATTN_OK;
}

attn_status call_check_output(const struct call_values *values, const char *spec, attn_error *error)
{
    for (size_t i = 0; i < INPUTS; i++) {
        const char *input = spec_of(values, &inputs[i]);
        attn_status status = input ? tensor_save_apart(spec, input, error) : ATTN_OK;
        if (status) return status;
    }
    return ATTN_OK;
}

/* ---- outputs ----------------------------------------------------------------------------------- */

attn_status call_add_lse(struct call *call, attn_error *error)
{
    const DLTensor *q = call->args.q;
    int64_t joint = call->args.joint_q ? call->args.joint_q->shape[1] : 0;
    if (call->args.lse) return ATTN_OK;
    int64_t shape[3] = {q->shape[0], q->shape[2], q->shape[1] + joint};
    attn_status status = tensor_make(&call->files[CALL_LSE], ATTN_F32, 3, shape, error);
    if (status) return status;
    call->args.lse = &call->files[CALL_LSE].dl;
    call->layer.needs |= ATTN_FEATURE(LSE);
    call_reset(call);
    return ATTN_OK;
}

attn_status call_add_scores(struct call *call, const char *mode, attn_error *error)
{
    static const char *const modes[] = {"scaled", "capped", "masked", "probs"}; /* attn_scores_mode less 1 */
    const DLTensor *q = call->args.q, *k = call->args.k;
    int64_t joint = call->args.joint_q ? call->args.joint_q->shape[1] : 0;
    int64_t shape[4] = {q->shape[0], q->shape[2], q->shape[1] + joint, k->shape[1] + joint};
    for (int i = 0; i < 4; i++) {
        if (strcmp(mode, modes[i]) == 0) call->args.scores_mode = i + 1;
    }
    if (!call->args.scores_mode)
        return cli_fail(error, ATTN_KIND_UNKNOWN_NAME,
                        "--scores-mode is \"%s\"; expected scaled, capped, masked or probs", mode);
    attn_status status = tensor_make(&call->files[CALL_SCORES], ATTN_F32, 4, shape, error);
    if (status) return status;
    call->args.scores = &call->files[CALL_SCORES].dl;
    call->layer.needs |= ATTN_FEATURE(SCORES);
    call_reset(call);
    return ATTN_OK;
}

void call_reset(struct call *call)
{
    static const enum call_file outputs[] = {CALL_OUT, CALL_LSE, CALL_SCORES};
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        struct tensor *tensor = &call->files[outputs[i]];
        if (tensor->memory) memset(tensor->memory, 0xFF, tensor->bytes);
    }
    if (call->generated.store) generate_reset(&call->generated);
}

const DLTensor *call_out(const struct call *call)
{
    return call->files[CALL_OUT].memory ? &call->files[CALL_OUT].dl : call->args.out;
}

void call_free(struct call *call)
{
    for (int i = 0; i < CALL_FILES; i++) tensor_free(&call->files[i]);
    generate_free(&call->generated);
}
