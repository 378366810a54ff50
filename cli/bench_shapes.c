/* bench_shapes.c: shapes of real models, scaled. */
#include "bench_shapes.h"

#include <math.h>
#include <string.h>
#include <strings.h>

static const struct bench_shape shapes[] = {
#define X(model, site, usual, problem, source) {model, site, problem, source, usual},
#include "../bench/shapes.def"
#undef X
};

const struct bench_shape *bench_shape_at(size_t index)
{
    return index < sizeof shapes / sizeof *shapes ? &shapes[index] : NULL;
}

int bench_shape_matches(const struct bench_shape *shape, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = shape->model; *at; at++)
        if (strncasecmp(at, word, length) == 0) return 1;
    return 0;
}

#define LENGTH_KEPT 512

static int64_t scaled(int64_t length, double scale)
{
    int64_t shorter = (int64_t)ceil((double)length / scale);
    if (length <= LENGTH_KEPT) return length;
    return shorter > LENGTH_KEPT ? shorter : LENGTH_KEPT;
}

void bench_scale(struct problem *problem, double scale)
{
    problem->q_len = scaled(problem->q_len, scale);
    problem->kv_len = scaled(problem->kv_len, scale);
    if (problem->lengths > problem->kv_len) problem->lengths = problem->kv_len;
}

/* 1, 1.5, 2, 3, 4, 6, 8, 12 ... */
static double next_scale(double scale)
{
    int exponent;
    return frexp(scale, &exponent) > 0.5 ? scale * 4 / 3 : scale * 3 / 2;
}

double bench_scale_for(const struct problem *problem)
{
    double scale = 1;
    struct problem now = *problem, next;
    while (bench_flop(&now) > BENCH_FLOP) {
        next = *problem;
        bench_scale(&next, next_scale(scale));
        if (next.q_len == now.q_len && next.kv_len == now.kv_len) break;
        now = next;
        scale = next_scale(scale);
    }
    return scale;
}

double bench_flop(const struct problem *p)
{
    double queries = (double)(p->q_len + p->joint), keys = (double)(p->kv_len + p->joint);
    /* A packed batch holds no pairs across its sequences; they are about equally long. */
    if (p->packed > 1) keys /= (double)p->packed;
    return 2.0 * (double)p->batch * (double)p->heads * queries * keys *
           (double)(p->head_dim + p->value_head_dim);
}

double bench_bytes(const struct problem *p)
{
    double queries = (double)p->batch * (double)(p->q_len + p->joint);
    double keys = (double)p->batch * (double)(p->kv_len + p->joint);
    double in = (double)attn_dtype_bytes(p->dtype), out = (double)attn_dtype_bytes(p->out_dtype);
    return queries * (double)p->heads * ((double)p->head_dim * in + (double)p->value_head_dim * out) +
           keys * (double)p->kv_heads * (double)(p->head_dim + p->value_head_dim) * in;
}
