/* schedule.c: dense first and last denoise steps, and exempt layers. */
#include "sparse/schedule.h"

#include <inttypes.h>
#include <stdio.h>

attn_status sparse_schedule_read(const attn_params *params, sparse_schedule *s, attn_error *error)
{
    attn_status status;
    *s = (sparse_schedule){0};
    if ((status = attn_params_int(params, "start_step", 0, INT32_MAX, &s->start_step, error)) ||
        (status = attn_params_int(params, "end_step", 0, INT32_MAX, &s->end_step, error)))
        return status;
    return attn_params_ints(params, "skip_layers", &s->layers, &s->layer_count, NULL, error);
}

static int exempt_layer(const sparse_schedule *s, int64_t layer)
{
    for (int64_t i = 0; layer >= 0 && i < s->layer_count; i++)
        if (s->layers[i] == layer) return 1;
    return 0;
}

static int exempt_step(const sparse_schedule *s, const attn_forward_state *f, int64_t sample)
{
    int64_t step = f->denoise_step[sample];
    return step < s->start_step || (s->end_step && step >= f->denoise_total[sample] - s->end_step);
}

static attn_status check_published(const sparse_schedule *s, const char *who, const attn_forward_state *f,
                                   attn_error *error)
{
    if (f && f->denoise_step && (f->denoise_total || !s->end_step)) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_FEATURE_UNSUPPORTED,
                     "%s has start_step %" PRId64 " and end_step %" PRId64
                     " but the forward publishes no %s; publish it, or set both to 0",
                     who, s->start_step, s->end_step,
                     f && f->denoise_step ? "number of steps" : "denoise step");
}

/* All samples of a call are on one side. */
static attn_status check_samples(const sparse_schedule *s, const attn_forward_state *f, int64_t batch,
                                 attn_error *error)
{
    for (int64_t b = 1; b < batch; b++)
        if (exempt_step(s, f, b) != exempt_step(s, f, 0))
            return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                             "sample %" PRId64 " of the call is at step %" PRId64 " and sample 0 at %" PRId64
                             ", one dense and one sparse; run them in calls of their own",
                             b, f->denoise_step[b], f->denoise_step[0]);
    return ATTN_OK;
}

attn_status sparse_schedule_ask(const sparse_schedule *s, const char *who, const attn_call *call, char *text,
                                size_t bytes, attn_error *error)
{
    const attn_forward_state *f = call->forward;
    attn_status status;
    if (bytes) text[0] = 0;
    if (exempt_layer(s, call->layer_index)) {
        snprintf(text, bytes, "dense:layer %" PRId64 " is exempt", call->layer_index);
        return ATTN_OK;
    }
    if (call->problem->batch < 1 || (!s->start_step && !s->end_step)) return ATTN_OK;
    if ((status = check_published(s, who, f, error)) ||
        (status = check_samples(s, f, call->problem->batch, error)))
        return status;
    if (exempt_step(s, f, 0)) snprintf(text, bytes, "dense:step %" PRId64 " is exempt", f->denoise_step[0]);
    return ATTN_OK;
}
