/* exact.c: a second context that is told to use the reference backend, run on queries spread over the clip.
 */
#include "exact.h"
#include <math.h>
#include <stdlib.h>

int exact_open(exact *e, const int32_t *cancel, int threads, failure *f)
{
    const attention_options options = {
        .backend = EXACT_BACKEND, .dtype = ATTN_F32, .threads = threads, .ignore_env = 1, .cancel = cancel};
    *e = (exact){.block = DEPTH / 2};
    e->out = malloc(EXACT_ROWS * DIM * sizeof *e->out);
    if (!e->out) return fail(f, ATTN_KIND_OUT_OF_MEMORY, "no memory for the reference attention");
    if (!attention_open(&e->reference, &options, f)) return 0;
    free(e->out);
    return -1;
}

void exact_close(exact *e)
{
    attention_close(&e->reference);
    free(e->out);
    *e = (exact){0};
}

static deviation compare(const float *out, int64_t stride, const float *reference, int64_t rows)
{
    double difference = 0, norm = 0, largest = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int c = 0; c < DIM; c++) {
            double want = reference[r * DIM + c], d = out[r * stride + c] - want;
            difference += d * d;
            norm += want * want;
            largest = fmax(largest, fabs(d));
        }
    return (deviation){norm > 0 ? sqrt(difference / norm) : sqrt(difference), largest, rows};
}

/* Every `every`-th query: a strided view, nothing is copied. The reference sees f32 also when the model's
 * attention got rounded inputs, so that the rounding counts as part of the error. */
static int look(exact *e, int role, const network *n, failure *f)
{
    int64_t every = (n->tokens + EXACT_ROWS - 1) / EXACT_ROWS, count = (n->tokens + every - 1) / every;
    int b = e->block, of_self = role == SELF;
    row_view q = {of_self ? n->qkv : n->cross_q, count, every * (of_self ? 3 * DIM : DIM)};
    row_view k = {n->qkv + DIM, n->tokens, 3 * DIM}, v = {n->qkv + 2 * DIM, n->tokens, 3 * DIM};
    if (!of_self) {
        k = (row_view){n->cross_k[b], SLOTS, DIM};
        v = (row_view){n->cross_v[b], SLOTS, DIM};
    }
    if (attention_run(&e->reference, NULL, role, b, q, k, v, of_self ? NULL : n->valid, e->out, DIM, f))
        return -1;
    e->deviations[role] = compare(n->mixed, every * DIM, e->out, count);
    return 0;
}

int exact_tap(void *user, int point, int block, const network *n, failure *f)
{
    exact *e = user;
    if (!e->armed || block != e->block || (point != TAP_SELF_OUT && point != TAP_CROSS_OUT)) return 0;
    double start = seconds_now();
    int rc = look(e, point == TAP_SELF_OUT ? SELF : CROSS, n, f);
    e->seconds += seconds_now() - start;
    return rc;
}
