/* cudnn_graph.c: attention as a graph of cuDNN's operations:
 *   scores = q k^T, scaled, plus the bias, -inf beyond the lengths and above the diagonal,
 *   p = exp(scores - max) / sum, stats = max + log(sum), out = p v.
 * This is the chain that cuDNN knows how to fuse; its order matters. */
#include "cudnn_graph.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- descriptors -------------------------------------------------------------------------------- */

/* Keeps the first failure; what follows it does nothing. */
static int note(attn_cudnn_plan *g, int status, const char *doing)
{
    if (!status || g->status) return g->status;
    g->status = status;
    g->doing = doing;
    g->said[0] = 0;
    g->lib->last_error(g->said, sizeof g->said);
    return status;
}

static void *make(attn_cudnn_plan *g, int type)
{
    void *d = NULL;
    if (g->status) return NULL;
    if (g->count == CUDNN_DESCRIPTORS) {
        note(g, CUDNN_UNSUPPORTED_END, "counting descriptors");
        return NULL;
    }
    if (note(g, g->lib->new_descriptor(type, &d), "making a descriptor")) return NULL;
    return g->descriptors[g->count++] = d;
}

static void put(attn_cudnn_plan *g, void *d, int name, int type, int64_t count, const void *elements)
{
    if (!g->status) note(g, g->lib->set(d, name, type, count, elements), "describing an operation");
}

static void put_number(attn_cudnn_plan *g, void *d, int name, int type, int value)
{
    put(g, d, name, type, 1, &value); /* enumerations are int */
}

static void put_descriptor(attn_cudnn_plan *g, void *d, int name, void *other)
{
    if (other) put(g, d, name, CUDNN_IS_DESCRIPTOR, 1, &other);
}

static void finish(attn_cudnn_plan *g, void *d, const char *doing)
{
    if (!g->status) note(g, g->lib->finalize(d), doing);
}

/* ---- tensors ------------------------------------------------------------------------------------ */

enum { ALIGN = 16 };

static void *tensor(attn_cudnn_plan *g, int64_t id, int type, const int64_t *shape, const int64_t *strides,
                    int by_value)
{
    void *d = make(g, CUDNN_DESC_TENSOR);
    char yes = 1;
    int64_t align = ALIGN, own = id ? id : g->next_id++;
    put(g, d, CUDNN_AT_TENSOR_ID, CUDNN_IS_INT64, 1, &own);
    put_number(g, d, CUDNN_AT_TENSOR_TYPE, CUDNN_IS_TYPE, type);
    put(g, d, CUDNN_AT_TENSOR_ALIGNMENT, CUDNN_IS_INT64, 1, &align);
    put(g, d, CUDNN_AT_TENSOR_SHAPE, CUDNN_IS_INT64, 4, shape);
    put(g, d, CUDNN_AT_TENSOR_STRIDES, CUDNN_IS_INT64, 4, strides);
    if (!id) put(g, d, CUDNN_AT_TENSOR_VIRTUAL, CUDNN_IS_BOOLEAN, 1, &yes);
    if (by_value) put(g, d, CUDNN_AT_TENSOR_BY_VALUE, CUDNN_IS_BOOLEAN, 1, &yes);
    finish(g, d, "describing a tensor");
    return d;
}

static void *inner(attn_cudnn_plan *g, int type, const int64_t *shape)
{
    int64_t strides[4] = {shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
    return tensor(g, 0, type, shape, strides, 0);
}

static void *scalar(attn_cudnn_plan *g, int64_t id, int type)
{
    static const int64_t ones[4] = {1, 1, 1, 1};
    return tensor(g, id, type, ones, ones, 1);
}

/* The problem's strides are batch, sequence, head, channel, and 0 along axes of size 1; cuDNN's axes are
 * batch, head, sequence, channel. */
static void *bhsd(attn_cudnn_plan *g, int64_t id, int type, const int64_t *shape, const int64_t *stride,
                  int transposed)
{
    static const int order[2][4] = {{0, 2, 1, 3}, {0, 2, 3, 1}};
    int64_t sizes[4], steps[4], dense = 1;
    for (int i = 3; i >= 0; i--) {
        int from = order[transposed][i];
        sizes[i] = shape[from];
        steps[i] = shape[from] > 1 ? stride[from] : dense;
        dense *= shape[from];
    }
    return tensor(g, id, type, sizes, steps, 0);
}

/* ---- operations --------------------------------------------------------------------------------- */

static void add_op(attn_cudnn_plan *g, void *op)
{
    finish(g, op, "describing an operation");
    if (!g->status) g->ops[g->op_count++] = op;
}

/* y = mode(x, b, t); b and t may be NULL. axis: of an index, else -1. */
static void pointwise_to(attn_cudnn_plan *g, int mode, int precision, void *x, void *b, void *t, int64_t axis,
                         void *y)
{
    void *what = make(g, CUDNN_DESC_POINTWISE), *op;
    put_number(g, what, CUDNN_AT_POINTWISE_MODE, CUDNN_IS_POINTWISE_MODE, mode);
    put_number(g, what, CUDNN_AT_POINTWISE_PREC, CUDNN_IS_TYPE, precision);
    if (axis >= 0) put(g, what, CUDNN_AT_POINTWISE_AXIS, CUDNN_IS_INT64, 1, &axis);
    finish(g, what, "describing an operation");
    op = make(g, CUDNN_DESC_OP_POINTWISE);
    put_descriptor(g, op, CUDNN_AT_OP_POINTWISE, what);
    put_descriptor(g, op, CUDNN_AT_OP_POINTWISE_X, x);
    put_descriptor(g, op, CUDNN_AT_OP_POINTWISE_B, b);
    put_descriptor(g, op, CUDNN_AT_OP_POINTWISE_T, t);
    put_descriptor(g, op, CUDNN_AT_OP_POINTWISE_Y, y);
    add_op(g, op);
}

static void *pointwise(attn_cudnn_plan *g, int mode, int precision, void *x, void *b, void *t, int64_t axis,
                       int type, const int64_t *shape)
{
    void *y = inner(g, type, shape);
    pointwise_to(g, mode, precision, x, b, t, axis, y);
    return y;
}

static void *reduce(attn_cudnn_plan *g, int how, void *x, const int64_t *shape)
{
    void *what = make(g, CUDNN_DESC_REDUCTION), *y = inner(g, CUDNN_F32, shape), *op;
    put_number(g, what, CUDNN_AT_REDUCTION_OPERATOR, CUDNN_IS_REDUCTION, how);
    put_number(g, what, CUDNN_AT_REDUCTION_PREC, CUDNN_IS_TYPE, CUDNN_F32);
    finish(g, what, "describing a reduction");
    op = make(g, CUDNN_DESC_OP_REDUCTION);
    put_descriptor(g, op, CUDNN_AT_OP_REDUCTION, what);
    put_descriptor(g, op, CUDNN_AT_OP_REDUCTION_X, x);
    put_descriptor(g, op, CUDNN_AT_OP_REDUCTION_Y, y);
    add_op(g, op);
    return y;
}

/* m, n, k: lengths of each sample in place of the shape's, or NULL. */
static void matmul(attn_cudnn_plan *g, void *a, void *b, void *c, void *m, void *n, void *k, int padded)
{
    void *what = make(g, CUDNN_DESC_MATMUL), *op;
    double zero = 0;
    put_number(g, what, CUDNN_AT_MATMUL_PREC, CUDNN_IS_TYPE, CUDNN_F32);
    if (padded) put(g, what, CUDNN_AT_MATMUL_PADDING, CUDNN_IS_DOUBLE, 1, &zero);
    finish(g, what, "describing a product");
    op = make(g, CUDNN_DESC_OP_MATMUL);
    put_descriptor(g, op, CUDNN_AT_OP_MATMUL, what);
    put_descriptor(g, op, CUDNN_AT_OP_MATMUL_A, a);
    put_descriptor(g, op, CUDNN_AT_OP_MATMUL_B, b);
    put_descriptor(g, op, CUDNN_AT_OP_MATMUL_C, c);
    put_descriptor(g, op, CUDNN_AT_OP_MATMUL_M, m);
    put_descriptor(g, op, CUDNN_AT_OP_MATMUL_N, n);
    put_descriptor(g, op, CUDNN_AT_OP_MATMUL_K, k);
    add_op(g, op);
}

/* ---- the chain ---------------------------------------------------------------------------------- */

typedef struct chain {
    const attn_problem *p;
    int type; /* of q, k, v and out */
    int64_t scores[4], rows[4];
    void *last; /* the scores so far */
    void *q_lengths, *kv_lengths, *minus_infinity;
} chain;

static void keep_where(attn_cudnn_plan *g, chain *c, void *condition)
{
    c->last = pointwise(g, CUDNN_SELECT, CUDNN_F32, c->last, c->minus_infinity, condition, -1, CUDNN_F32,
                        c->scores);
}

static void hide_padding(attn_cudnn_plan *g, chain *c)
{
    void *row = pointwise(g, CUDNN_INDEX, CUDNN_I32, c->last, NULL, NULL, 2, CUDNN_I32, c->scores);
    void *column = pointwise(g, CUDNN_INDEX, CUDNN_I32, c->last, NULL, NULL, 3, CUDNN_I32, c->scores);
    void *in_rows = pointwise(g, CUDNN_LT, CUDNN_BOOL, row, c->q_lengths, NULL, -1, CUDNN_BOOL, c->scores);
    void *in_keys =
        pointwise(g, CUDNN_LT, CUDNN_BOOL, column, c->kv_lengths, NULL, -1, CUDNN_BOOL, c->scores);
    keep_where(g, c, pointwise(g, CUDNN_AND, CUDNN_BOOL, in_rows, in_keys, NULL, -1, CUDNN_BOOL, c->scores));
}

/* Bottom right: row + keys - queries >= column. */
static void hide_future(attn_cudnn_plan *g, chain *c)
{
    void *row = pointwise(g, CUDNN_INDEX, CUDNN_F32, c->last, NULL, NULL, 2, CUDNN_I32, c->scores);
    void *column = pointwise(g, CUDNN_INDEX, CUDNN_F32, c->last, NULL, NULL, 3, CUDNN_I32, c->scores);
    if (g->corner) {
        void *keys = c->kv_lengths ? c->kv_lengths : scalar(g, CUDNN_KV_COUNT, CUDNN_I32);
        void *queries = c->q_lengths ? c->q_lengths : scalar(g, CUDNN_Q_COUNT, CUDNN_I32);
        row = pointwise(g, CUDNN_ADD, CUDNN_I32, row, keys, NULL, -1, CUDNN_I32, c->scores);
        row = pointwise(g, CUDNN_SUB, CUDNN_I32, row, queries, NULL, -1, CUDNN_I32, c->scores);
    }
    keep_where(g, c, pointwise(g, CUDNN_GE, CUDNN_BOOL, row, column, NULL, -1, CUDNN_BOOL, c->scores));
}

static void read_inputs(attn_cudnn_plan *g, chain *c)
{
    int64_t one[4] = {c->p->batch, 1, 1, 1}, ones[4] = {1, 1, 1, 1};
    if (g->lengths) {
        c->q_lengths = tensor(g, CUDNN_Q_LENGTHS, CUDNN_I32, one, ones, 0);
        c->kv_lengths = tensor(g, CUDNN_KV_LENGTHS, CUDNN_I32, one, ones, 0);
    }
    if (g->lengths || g->causal) c->minus_infinity = scalar(g, CUDNN_MINUS_INFINITY, CUDNN_F32);
}

static void multiply_keys(attn_cudnn_plan *g, chain *c)
{
    const attn_problem *p = c->p;
    int64_t q[4] = {p->batch, p->q_len, p->heads, p->head_dim},
            k[4] = {p->batch, p->kv_len, p->kv_heads, p->head_dim};
    void *product = inner(g, CUDNN_F32, c->scores);
    matmul(g, bhsd(g, CUDNN_Q, c->type, q, p->q_stride, 0), bhsd(g, CUDNN_K, c->type, k, p->k_stride, 1),
           product, c->q_lengths, c->kv_lengths, NULL, g->lengths);
    c->last = pointwise(g, CUDNN_MUL, CUDNN_F32, product, scalar(g, CUDNN_SCALE, CUDNN_F32), NULL, -1,
                        CUDNN_F32, c->scores);
}

static int type_of(attn_dtype dtype)
{
    return dtype == ATTN_BF16 ? CUDNN_BF16 : dtype == ATTN_F16 ? CUDNN_F16 : CUDNN_F32;
}

static void add_bias(attn_cudnn_plan *g, chain *c)
{
    const attn_cudnn_bias *b = &g->bias;
    void *bias = tensor(g, CUDNN_BIAS, type_of(b->dtype), b->shape, b->strides, 0);
    c->last = pointwise(g, CUDNN_ADD, CUDNN_F32, c->last, bias, NULL, -1, CUDNN_F32, c->scores);
}

/* cuDNN's pattern has the log-sum-exp always; who did not ask for it gets none. */
static void *stats_of(attn_cudnn_plan *g, const chain *c)
{
    const int64_t *given = c->p->lse_stride;
    int64_t strides[4] = {given[0], given[1], given[2], 1}, dense = 1;
    if (!(c->p->features & ATTN_FEATURE(LSE))) return inner(g, CUDNN_F32, c->rows);
    for (int i = 2; i >= 0; i--) {
        if (c->rows[i] <= 1) strides[i] = dense;
        dense *= c->rows[i];
    }
    return tensor(g, CUDNN_STATS, CUDNN_F32, c->rows, strides, 0);
}

static void soften(attn_cudnn_plan *g, chain *c)
{
    void *most = reduce(g, CUDNN_REDUCE_MAX, c->last, c->rows);
    void *less = pointwise(g, CUDNN_SUB, CUDNN_F32, c->last, most, NULL, -1, CUDNN_F32, c->scores);
    void *weights = pointwise(g, CUDNN_EXP, CUDNN_F32, less, NULL, NULL, -1, CUDNN_F32, c->scores);
    void *sum = reduce(g, CUDNN_REDUCE_SUM, weights, c->rows);
    void *log_sum = pointwise(g, CUDNN_LOG, CUDNN_F32, sum, NULL, NULL, -1, CUDNN_F32, c->rows);
    pointwise_to(g, CUDNN_ADD, CUDNN_F32, most, log_sum, NULL, -1, stats_of(g, c));
    c->last = pointwise(g, CUDNN_DIV, CUDNN_F32, weights, sum, NULL, -1, c->type, c->scores);
}

static void multiply_values(attn_cudnn_plan *g, chain *c)
{
    const attn_problem *p = c->p;
    int64_t v[4] = {p->batch, p->kv_len, p->kv_heads, p->value_head_dim};
    int64_t o[4] = {p->batch, p->q_len, p->heads, p->value_head_dim};
    matmul(g, c->last, bhsd(g, CUDNN_V, c->type, v, p->v_stride, 0),
           bhsd(g, CUDNN_OUT, c->type, o, p->out_stride, 0), c->q_lengths, NULL, c->kv_lengths, 0);
}

static void describe_chain(attn_cudnn_plan *g, const attn_problem *p)
{
    chain c = {.p = p,
               .type = type_of(p->dtype),
               .scores = {p->batch, p->heads, p->q_len, p->kv_len},
               .rows = {p->batch, p->heads, p->q_len, 1}};
    read_inputs(g, &c);
    multiply_keys(g, &c);
    if (g->bias.dtype) add_bias(g, &c);
    if (g->lengths) hide_padding(g, &c);
    if (g->causal) hide_future(g, &c);
    soften(g, &c);
    multiply_values(g, &c);
}

/* ---- the plan ----------------------------------------------------------------------------------- */

static void *device_of(attn_cudnn_plan *g, const attn_cudnn_target *target)
{
    if (target->handle) return NULL;
    void *d = make(g, CUDNN_DESC_DEVICEPROP);
    put(g, d, CUDNN_AT_DEVICEPROP_JSON, CUDNN_IS_CHAR, (int64_t)strlen(target->device_json),
        target->device_json);
    finish(g, d, "describing a device");
    return d;
}

/* The first of cuDNN's own suggestions that it can also carry out. */
static int try_config(attn_cudnn_plan *g, const attn_cudnn_target *target, void *device, void *config)
{
    void *plan = make(g, CUDNN_DESC_PLAN);
    int64_t got = 0;
    if (target->handle) put(g, plan, CUDNN_AT_PLAN_HANDLE, CUDNN_IS_HANDLE, 1, &target->handle);
    put_descriptor(g, plan, CUDNN_AT_PLAN_CONFIG, config);
    put_descriptor(g, plan, CUDNN_AT_PLAN_DEVICEPROP, device);
    if (g->status) return 0;
    if (note(g, g->lib->finalize(plan), "making a plan")) return 0;
    if (note(g, g->lib->get(plan, CUDNN_AT_PLAN_WORKSPACE, CUDNN_IS_INT64, 1, &got, &g->workspace_bytes),
             "asking for the workspace"))
        return 0;
    g->plan = plan;
    return 1;
}

static void choose(attn_cudnn_plan *g, const attn_cudnn_target *target, void *device, void *graph, int mode)
{
    enum { MOST = 6 };
    void *heuristics = make(g, CUDNN_DESC_ENGINEHEUR), *configs[MOST];
    int64_t count = 0;
    put_descriptor(g, heuristics, CUDNN_AT_HEUR_GRAPH, graph);
    put_number(g, heuristics, CUDNN_AT_HEUR_MODE, CUDNN_IS_HEUR_MODE, mode);
    put_descriptor(g, heuristics, CUDNN_AT_HEUR_DEVICEPROP, device);
    finish(g, heuristics, "asking for engines");
    for (int i = 0; i < MOST; i++) configs[i] = make(g, CUDNN_DESC_ENGINECFG);
    if (g->status) return;
    if (note(g, g->lib->get(heuristics, CUDNN_AT_HEUR_RESULTS, CUDNN_IS_DESCRIPTOR, MOST, &count, configs),
             "asking for engines"))
        return;
    for (int64_t i = 0; i < count && i < MOST; i++) {
        g->status = 0;
        if (try_config(g, target, device, configs[i])) return;
    }
    if (!count) note(g, CUDNN_UNSUPPORTED, "asking for engines");
}

static void plan_graph(attn_cudnn_plan *g, const attn_cudnn_target *target)
{
    static const int modes[] = {CUDNN_HEURISTICS_A, CUDNN_HEURISTICS_FALLBACK};
    void *device = device_of(g, target), *graph = make(g, CUDNN_DESC_GRAPH);
    if (target->handle) put(g, graph, CUDNN_AT_GRAPH_HANDLE, CUDNN_IS_HANDLE, 1, &target->handle);
    put(g, graph, CUDNN_AT_GRAPH_OPS, CUDNN_IS_DESCRIPTOR, g->op_count, g->ops);
    finish(g, graph, "joining the operations");
    if (g->status) return;
    for (int i = 0; i < 2 && !g->plan; i++) {
        g->status = 0;
        choose(g, target, device, graph, modes[i]);
    }
    if (g->plan) g->status = 0;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void attn_cudnn_bias_of(const attn_problem *p, attn_cudnn_bias *b)
{
    const int64_t whole[3] = {p->batch, p->heads, p->q_len};
    int additive = p->mask_form == ATTN_FORM_ADDITIVE, keys = (p->features & ATTN_FEATURE(KEY_MASK)) != 0;
    memset(b, 0, sizeof *b);
    if (!p->mask_form && !keys) return;
    /* Zero and -inf are exact in every type; the values of an fp32 mask are not. */
    b->dtype = additive && p->mask_dtype != p->dtype ? ATTN_F32 : p->dtype;
    for (int i = 0; i < 3; i++) b->shape[i] = p->mask_form && p->mask_stride[i] ? whole[i] : 1;
    if (keys && p->key_mask_stride[0]) b->shape[0] = larger(b->shape[0], p->batch);
    b->shape[3] = p->kv_len;
    int64_t each = (int64_t)attn_dtype_bytes(b->dtype), unit = ALIGN / each;
    b->strides[3] = 1;
    b->strides[2] = (p->kv_len + unit - 1) / unit * unit;
    b->strides[1] = b->strides[2] * b->shape[2];
    b->strides[0] = b->strides[1] * b->shape[1];
    b->bytes = (size_t)(b->strides[0] * b->shape[0] * each);
}

/* Older versions want the lowest number in place of -inf. */
static float hidden(const attn_cudnn *lib)
{
    return lib->version() < 91000 ? -3.402823466e38f : -INFINITY;
}

attn_status attn_cudnn_plan_make(const attn_cudnn *lib, const attn_cudnn_target *target,
                                 const attn_problem *p, attn_cudnn_plan *g, attn_error *error)
{
    g->lib = lib;
    g->next_id = CUDNN_NAMED;
    g->lengths = (p->features & ATTN_FEATURE(LENGTHS)) != 0;
    g->causal = p->causal != 0;
    g->corner = p->alignment == ATTN_BOTTOM_RIGHT && (g->lengths || p->q_len != p->kv_len);
    g->q_count = (int32_t)p->q_len;
    g->kv_count = (int32_t)p->kv_len;
    g->scale = (float)p->scale;
    g->minus_infinity = hidden(lib);
    attn_cudnn_bias_of(p, &g->bias);
    describe_chain(g, p);
    plan_graph(g, target);
    return g->status ? attn_cudnn_fail(g, error) : ATTN_OK;
}

attn_status attn_cudnn_fail(const attn_cudnn_plan *g, attn_error *error)
{
    int refused = g->status >= CUDNN_UNSUPPORTED && g->status < CUDNN_UNSUPPORTED_END;
    return attn_fail(error, refused ? ATTN_KIND_FEATURE_UNSUPPORTED : ATTN_KIND_INTERNAL,
                     "cuDNN %zu says %s when %s%s%.120s; %s", g->lib->version(),
                     g->lib->error_string(g->status), g->doing, g->said[0] ? ": " : "", g->said,
                     refused ? "choose FLASH_ATTN or TORCH_SDPA for this call"
                             : "an earlier failure of the device may show here");
}

void attn_cudnn_plan_free(attn_cudnn_plan *g)
{
    while (g->count > 0) g->lib->free_descriptor(g->descriptors[--g->count]);
}
