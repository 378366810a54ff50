/* check.c: the program gpu-check. It runs the implementations of the CUDA module through the public interface
 * on random problems, compares every element with cpu_reference in double from the same values, and times
 * them. usage: gpu-check MODULE.so IMPLEMENTATION[:partial]...; partial: it may
 * refuse problems, with a reason. */
#include <attn/attn.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double ceiling_launch(const uint32_t *seed, float *out, int steps);

static int failures;

static void need(int ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "gpu-check: %s\n", what);
    exit(4);
}

static void cuda(cudaError_t code, const char *what)
{
    if (!code) return;
    fprintf(stderr, "gpu-check: %s: %s\n", what, cudaGetErrorString(code));
    exit(4);
}

/* ---- random numbers and element types ------------------------------------------------------------ */

static uint64_t random_state = 1;

static uint32_t random_word(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

static int64_t random_below(int64_t n)
{
    return (int64_t)(random_word() % (uint32_t)n);
}

static double random_unit(void)
{
    return ((double)random_word() + 0.5) / 4294967296.0;
}

static double random_normal(void)
{
    return sqrt(-2 * log(random_unit())) * cos(6.283185307179586 * random_unit());
}

static uint16_t to_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, 4);
    if (isnan(x)) return 0x7fc0;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t h)
{
    uint32_t u = (uint32_t)h << 16;
    float x;
    memcpy(&x, &u, 4);
    return x;
}

__extension__ typedef _Float16 half;

static uint16_t to_f16(float x)
{
    half h = (half)x;
    uint16_t u;
    memcpy(&u, &h, 2);
    return u;
}

static float from_f16(uint16_t u)
{
    half h;
    memcpy(&h, &u, 2);
    return (float)h;
}

static double element(attn_dtype dtype, const void *data, int64_t at)
{
    switch (dtype) {
    case ATTN_F16:
        return from_f16(((const uint16_t *)data)[at]);
    case ATTN_BF16:
        return from_bf16(((const uint16_t *)data)[at]);
    case ATTN_F64:
        return ((const double *)data)[at];
    default:
        return ((const float *)data)[at];
    }
}

static void set_element(attn_dtype dtype, void *data, int64_t at, double x)
{
    switch (dtype) {
    case ATTN_F16:
        ((uint16_t *)data)[at] = to_f16((float)x);
        break;
    case ATTN_BF16:
        ((uint16_t *)data)[at] = to_bf16((float)x);
        break;
    case ATTN_F64:
        ((double *)data)[at] = x;
        break;
    default:
        ((float *)data)[at] = (float)x;
    }
}

/* ---- tensors: one on the host, one on the device, and for floats one in double ----------------------- */

enum { HOST, DEVICE, WIDE, FORMS };

typedef struct tensor {
    attn_dtype dtype;
    int64_t shape[4], strides[4], wide_strides[4], elements, count;
    size_t bytes;
    DLTensor dl[FORMS];
} tensor;

/* inner: stride of the last axis. wide: the truth reads these values in double, else in the same type. */
static void make(tensor *t, attn_dtype dtype, int ndim, const int64_t *shape, int64_t inner, int wide)
{
    int64_t step = inner, dense = 1;
    memset(t, 0, sizeof *t);
    t->dtype = dtype;
    for (int i = ndim - 1; i >= 0; i--) {
        t->shape[i] = shape[i];
        t->strides[i] = step, t->wide_strides[i] = dense;
        step *= shape[i], dense *= shape[i];
    }
    t->elements = step, t->count = dense;
    t->bytes = (size_t)(step ? step : 1) * attn_dtype_bytes(dtype);
    for (int f = 0; f < FORMS; f++) {
        int own = f == WIDE && wide;
        t->dl[f] = (DLTensor){.device = {f == DEVICE ? kDLCUDA : kDLCPU, 0},
                              .ndim = ndim,
                              .dtype = attn_dtype_to_dl(own ? ATTN_F64 : dtype),
                              .shape = t->shape,
                              .strides = own ? t->wide_strides : t->strides};
    }
    t->dl[HOST].data = calloc(1, t->bytes);
    t->dl[WIDE].data = wide ? calloc((size_t)dense + 1, 8) : t->dl[HOST].data;
    need(t->dl[HOST].data && t->dl[WIDE].data, "no memory");
    cuda(cudaMalloc(&t->dl[DEVICE].data, t->bytes), "cudaMalloc");
}

static void drop(tensor *t)
{
    if (t->dl[WIDE].data != t->dl[HOST].data) free(t->dl[WIDE].data);
    free(t->dl[HOST].data);
    if (t->dl[DEVICE].data) cudaFree(t->dl[DEVICE].data);
    memset(t, 0, sizeof *t);
}

static int64_t offset_of(const tensor *t, int64_t flat)
{
    int64_t at = 0;
    for (int i = t->dl[HOST].ndim - 1; i >= 0; i--) {
        at += flat % t->shape[i] * t->strides[i];
        flat /= t->shape[i];
    }
    return at;
}

static void set(tensor *t, int64_t flat, double x)
{
    int64_t at = offset_of(t, flat);
    set_element(t->dtype, t->dl[HOST].data, at, x);
    if (t->dl[WIDE].data != t->dl[HOST].data)
        ((double *)t->dl[WIDE].data)[flat] = element(t->dtype, t->dl[HOST].data, at);
}

static void upload(tensor *t)
{
    cuda(cudaMemcpy(t->dl[DEVICE].data, t->dl[HOST].data, t->bytes, cudaMemcpyHostToDevice), "upload");
}

static void fill(tensor *t, double scale)
{
    for (int64_t i = 0; i < t->count; i++) set(t, i, random_normal() * scale);
}

/* ---- one random problem ------------------------------------------------------------------------------ */

typedef struct problem {
    char text[320];
    attn_layer_options layer;
    attn_args args[FORMS]; /* DEVICE, and WIDE for the truth */
    tensor q, k, v, out, lse, mask, key_mask, lengths, cu_q, cu_k, sinks;
    attn_span spans[3];
    attn_query_range ranges[2];
    attn_dtype dtype;
    double peak;
} problem;

static void point(problem *p, size_t field, tensor *t)
{
    for (int f = DEVICE; f < FORMS; f++) {
        const DLTensor *dl = &t->dl[f];
        memcpy((char *)&p->args[f] + field, &dl, sizeof dl);
    }
}
#define POINT(p, field) point(p, offsetof(attn_args, field), &(p)->field)

static void note(problem *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
#include <stdarg.h>
static void note(problem *p, const char *format, ...)
{
    size_t used = strlen(p->text);
    va_list list;
    va_start(list, format);
    vsnprintf(p->text + used, sizeof p->text - used, format, list);
    va_end(list);
}

static void add_packed(problem *p, int64_t sequences, int64_t sq, int64_t sk)
{
    int64_t shape[] = {sequences + 1};
    make(&p->cu_q, ATTN_I32, 1, shape, 1, 0);
    make(&p->cu_k, ATTN_I32, 1, shape, 1, 0);
    int32_t *q = p->cu_q.dl[HOST].data, *k = p->cu_k.dl[HOST].data;
    for (int64_t i = 1; i < sequences; i++) {
        q[i] = q[i - 1] + (int32_t)random_below(sq - q[i - 1] + 1) / 2;
        k[i] = k[i - 1] + (int32_t)random_below(sk - k[i - 1] + 1) / 2;
    }
    q[sequences] = (int32_t)sq, k[sequences] = (int32_t)sk;
    upload(&p->cu_q), upload(&p->cu_k);
    point(p, offsetof(attn_args, cu_seqlens_q), &p->cu_q);
    point(p, offsetof(attn_args, cu_seqlens_k), &p->cu_k);
    note(p, " packed=%d", (int)sequences);
}

/* Values that no row may see, and one that some rows see, are NaN. */
static void poison_values(problem *p, int64_t b, int64_t sk)
{
    int64_t row_k = p->k.shape[2] * p->k.shape[3], row_v = p->v.shape[2] * p->v.shape[3];
    const uint8_t *keep = p->key_mask.dl[HOST].data;
    const int32_t *lengths = p->lengths.dl[HOST].data;
    for (int64_t s = 0; s < b; s++)
        for (int64_t j = 0; j < sk; j++) {
            int hidden =
                (keep && !keep[(p->key_mask.shape[0] > 1 ? s : 0) * sk + j]) || (lengths && j >= lengths[s]);
            for (int64_t c = 0; hidden && c < row_k; c++) set(&p->k, (s * sk + j) * row_k + c, NAN);
            for (int64_t c = 0; hidden && c < row_v; c++) set(&p->v, (s * sk + j) * row_v + c, NAN);
        }
    int64_t key = random_below(sk);
    for (int64_t c = 0; c < p->v.shape[3]; c += 3) set(&p->v, key * row_v + c, NAN);
    note(p, " nan");
}

static int chance(int percent)
{
    return random_below(100) < percent;
}

static void add_masks(problem *p, int64_t b, int64_t h, int64_t sq, int64_t sk)
{
    if (chance(25)) {
        int64_t shape[] = {chance(50) ? b : 1, sk};
        make(&p->key_mask, ATTN_BOOL, 2, shape, 1, 0);
        uint8_t *keep = p->key_mask.dl[HOST].data;
        for (int64_t i = 0; i < p->key_mask.count; i++)
            keep[i] = (uint8_t)(chance(70) ? 1 + random_below(2) : 0);
        upload(&p->key_mask);
        POINT(p, key_mask);
        note(p, " key_mask");
    }
    if (chance(60)) return;
    int additive = chance(50);
    int64_t shape[] = {chance(50) ? b : 1, chance(50) ? h : 1, chance(70) ? sq : 1, chance(80) ? sk : 1};
    attn_dtype floats[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
    make(&p->mask, additive ? floats[random_below(3)] : ATTN_BOOL, 4, shape, 1, 0);
    /* Blocks of one kind, so that whole tiles are hidden. */
    int64_t block = chance(50) ? 80 : 1, kind = 1;
    for (int64_t i = 0; i < p->mask.count; i++) {
        if (i % block == 0) kind = chance(60);
        if (additive)
            set_element(p->mask.dtype, p->mask.dl[HOST].data, i, kind ? random_normal() : -INFINITY);
        else
            ((uint8_t *)p->mask.dl[HOST].data)[i] = (uint8_t)kind;
    }
    upload(&p->mask);
    POINT(p, mask);
    note(p, " mask=%s[%d,%d,%d,%d]", attn_dtype_name(p->mask.dtype), (int)shape[0], (int)shape[1],
         (int)shape[2], (int)shape[3]);
}

static void add_structure(problem *p, int64_t sq, int64_t sk, int packed)
{
    attn_layer_options *l = &p->layer;
    l->causal = chance(45);
    if (l->causal) note(p, " causal");
    if (chance(30)) {
        l->alignment = ATTN_TOP_LEFT;
        int64_t start = chance(50) ? random_below(sk + 1) : 0;
        for (int f = DEVICE; f < FORMS; f++) p->args[f].query_start = start;
        note(p, " top_left@%d", (int)start);
    }
    if (chance(25)) {
        l->window = (uint32_t)(1 + random_below(3));
        l->window_left = chance(10) ? INT64_MAX : random_below(sk + 1),
        l->window_right = random_below(sk + 1);
        note(p, " window=%u:%d,%d", l->window, (int)l->window_left, (int)l->window_right);
    }
    if (packed) return;
    if (chance(15)) {
        for (int i = 0; i < 3; i++) {
            p->spans[i].start = random_below(sk + 1);
            p->spans[i].end = p->spans[i].start + random_below(sk + 1);
        }
        for (int f = DEVICE; f < FORMS; f++) p->args[f].spans = p->spans, p->args[f].span_count = 3;
        note(p, " spans");
    }
    if (sq && chance(15)) {
        int64_t middle = random_below(sq);
        p->ranges[0] = (attn_query_range){0, middle, random_below(sk + 1)};
        p->ranges[1] = (attn_query_range){middle, sq, random_below(sk + 1)};
        for (int f = DEVICE; f < FORMS; f++)
            p->args[f].query_ranges = p->ranges, p->args[f].query_range_count = 2;
        note(p, " ranges");
    }
}

static void add_sinks(problem *p, int64_t heads)
{
    make(&p->sinks, ATTN_F32, 1, &heads, 1, 0);
    for (int64_t i = 0; i < heads; i++) ((float *)p->sinks.dl[HOST].data)[i] = (float)random_normal();
    upload(&p->sinks);
    POINT(p, sinks);
    note(p, " sinks");
}

static void add_lengths(problem *p, int64_t b, int64_t sk)
{
    make(&p->lengths, ATTN_I32, 1, &b, 1, 0);
    for (int64_t i = 0; i < b; i++) ((int32_t *)p->lengths.dl[HOST].data)[i] = (int32_t)random_below(sk + 1);
    upload(&p->lengths);
    point(p, offsetof(attn_args, kv_lengths), &p->lengths);
    note(p, " lengths");
}

/* flash: only what tensor-core kernels take. */
static void make_problem(problem *p, int flash)
{
    static const attn_dtype all[] = {ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_F64};
    static const int64_t sizes[] = {64, 72, 80, 96, 128, 192, 256, 8, 40, 112}, odd[] = {1, 3, 33, 130, 300};
    memset(p, 0, sizeof *p);
    p->dtype = flash ? all[1 + random_below(2)] : all[random_below(4)];
    int64_t d = sizes[random_below(10)], dv = chance(80) ? d : sizes[random_below(10)];
    if (!flash && chance(30)) d = odd[random_below(5)], dv = chance(50) ? d : odd[random_below(5)];
    int packed = chance(15), strided = !flash && chance(20), f32_out = p->dtype != ATTN_F64 && chance(20);
    int64_t b = packed ? 1 : 1 + random_below(3), hk = 1 + random_below(2), h = hk * (1 + random_below(3));
    int64_t sq = chance(10) ? 1 : chance(50) ? 1 + random_below(150) : 1 + random_below(400);
    int64_t sk = chance(30) ? sq : chance(5) ? 0 : 1 + random_below(400);
    int64_t qs[] = {b, sq, h, d}, ks[] = {b, sk, hk, d}, vs[] = {b, sk, hk, dv}, os[] = {b, sq, h, dv};
    int64_t ls[] = {b, h, sq};
    p->peak = chance(20) ? 6 : 1;
    note(p, "b%dh%dkvh%ds%dx%dd%dv%d:%s", (int)b, (int)h, (int)hk, (int)sq, (int)sk, (int)d, (int)dv,
         attn_dtype_name(p->dtype));
    if (p->peak > 1) note(p, " peaked");
    if (f32_out) note(p, " f32_out");
    if (strided) note(p, " strided");
    p->layer = (attn_layer_options){.size = sizeof p->layer,
                                    .heads = h,
                                    .kv_heads = hk,
                                    .head_dim = d,
                                    .value_head_dim = dv,
                                    .softcap = chance(15) ? 5 : 0};
    if (p->layer.softcap > 0) note(p, " softcap");
    for (int f = 0; f < FORMS; f++) p->args[f].size = sizeof p->args[f];
    make(&p->q, p->dtype, 4, qs, 1 + strided, 1);
    make(&p->k, p->dtype, 4, ks, 1 + strided, 1);
    make(&p->v, p->dtype, 4, vs, 1 + strided, 1);
    make(&p->out, f32_out ? ATTN_F32 : p->dtype, 4, os, 1 + strided, 1);
    make(&p->lse, ATTN_F32, 3, ls, 1, 0);
    free(p->lse.dl[HOST].data);
    need((p->lse.dl[HOST].data = malloc(p->lse.bytes)) && (p->lse.dl[WIDE].data = malloc(p->lse.bytes)),
         "no memory");
    POINT(p, q), POINT(p, k), POINT(p, v), POINT(p, out);
    if (chance(70)) POINT(p, lse);
    fill(&p->q, p->peak), fill(&p->k, p->peak), fill(&p->v, 1);
    if (packed) add_packed(p, 1 + random_below(6), sq, sk);
    if (!packed && chance(20)) add_lengths(p, b, sk);
    if (!packed) add_masks(p, b, h, sq, sk);
    if (chance(15)) add_sinks(p, h);
    add_structure(p, sq, sk, packed);
    if (!packed && sk && chance(30)) poison_values(p, b, sk);
    upload(&p->q), upload(&p->k), upload(&p->v);
}

static void drop_problem(problem *p)
{
    tensor *all[] = {&p->q,        &p->k,       &p->v,    &p->out,  &p->lse,  &p->mask,
                     &p->key_mask, &p->lengths, &p->cu_q, &p->cu_k, &p->sinks};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) drop(all[i]);
}

/* ---- running and judging ----------------------------------------------------------------------------- */

static attn_context *device_context, *host_context;
static cudaStream_t stream;

static attn_status forward(attn_context *c, const attn_layer_options *options, DLDevice device,
                           const char *impl, attn_args *args, attn_error *error)
{
    attn_layer *layer;
    attn_layer_options o = *options;
    char overrides[128];
    snprintf(overrides, sizeof overrides, "TORCH_SDPA=%s,FLASH_ATTN=%s", impl, impl);
    o.device = device;
    o.impl_overrides = overrides;
    attn_status status = attn_layer_open(c, &o, &layer, error);
    if (status) return status;
    status = attn_forward(layer, args, error);
    attn_layer_close(layer);
    return status;
}

static attn_status forward_captured(const problem *p, attn_layer *layer, attn_args *args, attn_error *error)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    (void)p;
    cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    attn_status status = attn_forward(layer, args, error);
    cuda(cudaStreamEndCapture(stream, &graph), "end of capture");
    if (status) return status;
    cuda(cudaGraphInstantiate(&exec, graph, 0), "instantiate");
    cuda(cudaGraphLaunch(exec, stream), "graph launch");
    cuda(cudaStreamSynchronize(stream), "graph");
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return ATTN_OK;
}

static void poison(tensor *t)
{
    cuda(cudaMemset(t->dl[DEVICE].data, 0xa5, t->bytes), "memset");
}

/* Worst element and relative L2 error; NaN must meet NaN. Returns elements that differ in kind. */
static int64_t compare(tensor *t, const void *want, int wide, double *worst, double *l2)
{
    double error = 0, norm = 0;
    int64_t wrong = 0;
    cuda(cudaMemcpy(t->dl[HOST].data, t->dl[DEVICE].data, t->bytes, cudaMemcpyDeviceToHost), "download");
    *worst = 0;
    for (int64_t i = 0; i < t->count; i++) {
        double got = element(t->dtype, t->dl[HOST].data, offset_of(t, i));
        double truth = wide ? ((const double *)want)[i] : (double)((const float *)want)[i];
        if (isfinite(got) && isfinite(truth)) {
            double e = fabs(got - truth);
            if (e > *worst) *worst = e;
            error += e * e, norm += truth * truth;
        } else if (!(isnan(got) && isnan(truth)) && got != truth) {
            wrong++;
        }
    }
    *l2 = norm > 0 ? sqrt(error / norm) : sqrt(error);
    return wrong;
}

/* Bounds of the relative L2 error, and of one element where values are about one. */
static void bounds(const problem *p, int flash, double *l2, double *worst)
{
    attn_dtype out = p->out.dtype;
    double unit = p->dtype == ATTN_F64 ? 1e-13 : p->peak > 1 ? 1e-4 : 1e-5;
    double rounding = out == ATTN_BF16 ? 2.2e-3 : out == ATTN_F16 ? 3e-4 : 0;
    double weights = flash ? (p->dtype == ATTN_BF16 ? 2.6e-3 : 3.5e-4) : 0;
    *l2 = unit + rounding + weights;
    *worst = 8 * unit + (out == ATTN_BF16 ? 2.0e-2 : out == ATTN_F16 ? 2.5e-3 : 0) + 8 * weights;
    /* A few elements that cancel have no norm to compare with. */
    if (p->out.count < 2000) *l2 *= 2;
}

static double most_l2[16];
static int refused; /* problems of this implementation */

/* partial: the implementation may refuse problems, with a reason. */
static void check_one(const char *impl, int flash, int partial, int number)
{
    problem p;
    attn_error error = ATTN_ERROR_INIT;
    double worst, l2, most_worst, bound_l2, lse_worst = 0, lse_l2;
    make_problem(&p, flash);
    poison(&p.out), poison(&p.lse);
    p.args[DEVICE].stream = stream;
    attn_status status =
        forward(host_context, &p.layer, (DLDevice){kDLCPU, 0}, "cpu_reference", &p.args[WIDE], &error);
    if (status) printf("truth refused: %s: %s\n", p.text, error.text);
    need(!status, "the truth must run");
    attn_layer_options o = p.layer;
    char overrides[128];
    attn_layer *layer = NULL;
    snprintf(overrides, sizeof overrides, "TORCH_SDPA=%s,FLASH_ATTN=%s", impl, impl);
    o.device = (DLDevice){kDLCUDA, 0}, o.impl_overrides = overrides;
    status = attn_layer_open(device_context, &o, &layer, &error);
    if (!status) status = attn_forward(layer, &p.args[DEVICE], &error);
    if (!status) cuda(cudaStreamSynchronize(stream), p.text);
    if (!status && number % 4 == 0) {
        poison(&p.out), poison(&p.lse);
        status = forward_captured(&p, layer, &p.args[DEVICE], &error);
        note(&p, " captured");
    }
    if (status) {
        int may =
            partial && status != ATTN_INTERNAL && status != ATTN_OUT_OF_MEMORY && strstr(error.text, impl);
        if (!may) printf("FAIL %s %s: %s\n", impl, p.text, error.text);
        refused += may;
        failures += !may;
        attn_layer_close(layer);
        drop_problem(&p);
        return;
    }
    attn_layer_close(layer);
    int64_t wrong = compare(&p.out, p.out.dl[WIDE].data, 1, &worst, &l2), lse_wrong = 0;
    if (p.args[DEVICE].lse) lse_wrong = compare(&p.lse, p.lse.dl[WIDE].data, 0, &lse_worst, &lse_l2);
    bounds(&p, flash, &bound_l2, &most_worst);
    double lse_bound = p.dtype == ATTN_F64 ? 2e-6 : 1e-5 * (p.peak > 1 ? 20 : 1) * (flash ? 4 : 1);
    if (wrong || lse_wrong || !(l2 <= bound_l2) || !(worst <= most_worst) || !(lse_worst <= lse_bound)) {
        failures++;
        if (failures < 40)
            printf("FAIL %s #%d %s: l2 %.2e (%.2e), worst %.2e (%.2e), lse %.2e (%.2e), wrong %lld, lse "
                   "wrong %lld\n",
                   impl, number, p.text, l2, bound_l2, worst, most_worst, lse_worst, lse_bound,
                   (long long)wrong, (long long)lse_wrong);
    }
    if (l2 > most_l2[p.out.dtype] && p.out.count >= 2000) most_l2[p.out.dtype] = l2;
    drop_problem(&p);
}

/* ---- speed --------------------------------------------------------------------------------------------- */

static double matrix_ceiling(void)
{
    enum { STEPS = 4000, RUNS = 15 };
    uint32_t *seed, host[1024];
    float *out, ms[RUNS];
    double flop = 0;
    cudaEvent_t a, b;
    for (int i = 0; i < 1024; i++)
        host[i] = (uint32_t)to_bf16((float)random_normal()) << 16 | to_bf16((float)random_normal());
    cuda(cudaMalloc((void **)&seed, sizeof host), "cudaMalloc");
    cuda(cudaMalloc((void **)&out, 2048 * 256 * sizeof *out), "cudaMalloc");
    cuda(cudaMemcpy(seed, host, sizeof host, cudaMemcpyHostToDevice), "upload");
    cudaEventCreate(&a), cudaEventCreate(&b);
    float best = 1e9f;
    for (int i = 0; i < RUNS; i++) {
        cudaEventRecord(a, 0);
        flop = ceiling_launch(seed, out, STEPS);
        cudaEventRecord(b, 0);
        cuda(cudaEventSynchronize(b), "ceiling");
        cudaEventElapsedTime(&ms[i], a, b);
        if (ms[i] < best) best = ms[i];
    }
    cudaFree(seed), cudaFree(out);
    return flop / best / 1e9;
}

static int by_size(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

typedef struct shape {
    const char *name;
    attn_dtype dtype;
    int64_t b, h, hk, sq, sk, d;
    int causal, slow; /* slow: also for the reference */
    int64_t kept;     /* keys before the padding that a boolean mask hides; 0: no mask */
} shape;

static const shape shapes[] = {
    {"self 4608 x 24, d 128", ATTN_BF16, 1, 24, 24, 4608, 4608, 128, 0, 1, 0},
    {"self 4608 x 48, d 128", ATTN_BF16, 1, 48, 48, 4608, 4608, 128, 0, 0, 0},
    {"self 14040 x 40, d 128", ATTN_BF16, 1, 40, 40, 14040, 14040, 128, 0, 0, 0},
    {"cross 14040 x 512, 40 heads, d 128", ATTN_BF16, 1, 40, 40, 14040, 512, 128, 0, 0, 0},
    {"self 75600 x 40, d 128", ATTN_BF16, 1, 40, 40, 75600, 75600, 128, 0, 0, 0},
    {"padded 16295 x 16, 14438 kept, d 128", ATTN_BF16, 1, 16, 16, 16295, 16295, 128, 0, 0, 14438},
    {"self 4096 x 24, d 64", ATTN_BF16, 1, 24, 24, 4096, 4096, 64, 0, 1, 0},
    {"self 4096 x 16, batch 2, d 72", ATTN_BF16, 2, 16, 16, 4096, 4096, 72, 0, 0, 0},
    {"self 1024 x 16, batch 16, d 80", ATTN_BF16, 16, 16, 16, 1024, 1024, 80, 0, 0, 0},
    {"self 4096 x 16, d 256", ATTN_BF16, 1, 16, 16, 4096, 4096, 256, 0, 0, 0},
    {"causal 8192, 32/8 heads, d 128", ATTN_BF16, 1, 32, 8, 8192, 8192, 128, 1, 0, 0},
    {"decode 64 x 8192, 32/8 heads, d 128", ATTN_BF16, 64, 32, 8, 1, 8192, 128, 0, 0, 0},
    {"self 1536 x 24, d 128", ATTN_F16, 1, 24, 24, 1536, 1536, 128, 0, 1, 0},
    {"self 4096 x 8, d 64", ATTN_F32, 1, 8, 8, 4096, 4096, 64, 0, 1, 0},
};

static void time_one(const char *impl, const shape *s, double ceiling)
{
    enum { RUNS = 30, SETS = 4 };
    int64_t qs[] = {s->b, s->sq, s->h, s->d}, ks[] = {s->b, s->sk, s->hk, s->d};
    tensor q[SETS], k[SETS], v[SETS], out;
    attn_error error = ATTN_ERROR_INIT;
    attn_layer *layer;
    cudaEvent_t a, b;
    float ms[RUNS];
    int runs = !strcmp(impl, "cuda_reference") || s->sq > 50000 ? 5 : RUNS;
    uint16_t *noise = malloc(1 << 22);
    char overrides[128];
    for (int i = 0; i < 1 << 20; i++) {
        float x = (float)random_normal();
        if (s->dtype == ATTN_F32)
            ((float *)(void *)noise)[i] = x;
        else
            noise[i] = s->dtype == ATTN_F16 ? to_f16(x) : to_bf16(x);
    }
    tensor *all[3] = {q, k, v};
    for (int i = 0; i < 3 * SETS; i++) {
        tensor *t = &all[i % 3][i / 3];
        size_t chunk = (s->dtype == ATTN_F32 ? 4u : 2u) << 20;
        make(t, s->dtype, 4, i % 3 ? ks : qs, 1, 0);
        for (size_t at = 0; at < t->bytes; at += chunk) /* random bytes, one piece after the other */
            cuda(cudaMemcpy((char *)t->dl[DEVICE].data + at, noise,
                            t->bytes - at < chunk ? t->bytes - at : chunk, cudaMemcpyHostToDevice),
                 "upload");
    }
    free(noise);
    make(&out, s->dtype, 4, qs, 1, 0);
    tensor mask;
    make(&mask, ATTN_BOOL, 4, (int64_t[]){1, 1, 1, s->sk}, 1, 0);
    memset(mask.dl[HOST].data, 1, (size_t)s->kept);
    upload(&mask);
    attn_layer_options o = {.size = sizeof o,
                            .device = {kDLCUDA, 0},
                            .heads = s->h,
                            .kv_heads = s->hk,
                            .head_dim = s->d,
                            .causal = s->causal,
                            .impl_overrides = overrides};
    snprintf(overrides, sizeof overrides, "TORCH_SDPA=%s,FLASH_ATTN=%s", impl, impl);
    attn_status status = attn_layer_open(device_context, &o, &layer, &error);
    cudaEventCreate(&a), cudaEventCreate(&b);
    for (int i = -5; !status && i < runs; i++) {
        int n = (i + 5) % SETS;
        attn_args args = {.size = sizeof args,
                          .q = &q[n].dl[DEVICE],
                          .k = &k[n].dl[DEVICE],
                          .v = &v[n].dl[DEVICE],
                          .out = &out.dl[DEVICE],
                          .mask = s->kept ? &mask.dl[DEVICE] : NULL,
                          .stream = stream};
        cudaEventRecord(a, stream);
        status = attn_forward(layer, &args, &error);
        cudaEventRecord(b, stream);
        cuda(cudaEventSynchronize(b), "run");
        if (i >= 0) cudaEventElapsedTime(&ms[i], a, b);
    }
    if (status) {
        printf("| %s | %s | refused: %s |\n", s->name, impl, error.text);
    } else {
        qsort(ms, (size_t)runs, sizeof *ms, by_size);
        double flop = 4.0 * (double)(s->b * s->h * s->sq) * (double)((s->kept ? s->kept : s->sk) * s->d) /
                      (s->causal ? 2 : 1);
        double rate = flop / ms[runs / 2] / 1e9;
        printf("| %s | %s | %s | %.3f | %.3f | %.1f | %.0f %% |\n", s->name, attn_dtype_name(s->dtype), impl,
               (double)ms[runs / 2], (double)ms[0], rate, 100 * rate / ceiling);
    }
    attn_layer_close(layer);
    for (int i = 0; i < SETS; i++) drop(&q[i]), drop(&k[i]), drop(&v[i]);
    drop(&out), drop(&mask);
}

/* A large problem: the tensor-core kernel against the plain one, both on the device. */
static void check_large(const char *impl)
{
    static const int64_t sizes[] = {64, 72, 80, 96, 128, 192, 256};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        int64_t axes[] = {1, 4095, 3, sizes[n]};
        tensor q, k, v, out, truth;
        attn_error error = ATTN_ERROR_INIT;
        double worst, l2;
        attn_dtype dtype = n % 2 ? ATTN_F16 : ATTN_BF16;
        make(&q, dtype, 4, axes, 1, 0), make(&k, dtype, 4, axes, 1, 0), make(&v, dtype, 4, axes, 1, 0);
        make(&out, dtype, 4, axes, 1, 0), make(&truth, ATTN_F32, 4, axes, 1, 0);
        fill(&q, 1), fill(&k, 1), fill(&v, 1);
        upload(&q), upload(&k), upload(&v);
        poison(&out), poison(&truth);
        attn_layer_options o = {.size = sizeof o, .heads = 3, .head_dim = sizes[n]};
        attn_args args = {.size = sizeof args,
                          .q = &q.dl[DEVICE],
                          .k = &k.dl[DEVICE],
                          .v = &v.dl[DEVICE],
                          .out = &out.dl[DEVICE],
                          .stream = stream};
        attn_status status = forward(device_context, &o, (DLDevice){kDLCUDA, 0}, impl, &args, &error);
        args.out = &truth.dl[DEVICE];
        if (!status)
            status = forward(device_context, &o, (DLDevice){kDLCUDA, 0}, "cuda_reference", &args, &error);
        cuda(cudaStreamSynchronize(stream), "large problem");
        cuda(cudaMemcpy(truth.dl[HOST].data, truth.dl[DEVICE].data, truth.bytes, cudaMemcpyDeviceToHost),
             "download");
        int64_t wrong = status ? 1 : compare(&out, truth.dl[HOST].data, 0, &worst, &l2);
        int bad = status || wrong || !(l2 <= (dtype == ATTN_BF16 ? 3e-3 : 4e-4));
        failures += bad;
        printf("%s %s s4095 d%d %s: %s, relative l2 %.2e\n", bad ? "FAIL" : "ok  ", impl, (int)sizes[n],
               attn_dtype_name(dtype), status ? error.text : "against cuda_reference", status ? 0.0 : l2);
        drop(&q), drop(&k), drop(&v), drop(&out), drop(&truth);
    }
}

static attn_context *open_context(const char *platform, const char *module)
{
    attn_context *c;
    attn_error error = ATTN_ERROR_INIT;
    attn_module_info info = {.size = sizeof info};
    attn_options o = {
        .size = sizeof o, .platform = platform, .module_path = module, .flags = ATTN_OPEN_IGNORE_ENV};
    if (attn_open(&o, &c, &error)) {
        fprintf(stderr, "gpu-check: %s\n", error.text);
        exit(3);
    }
    if (*module && (!attn_module_at(c, 0, &info) || info.kind)) {
        fprintf(stderr, "gpu-check: %s\n", info.text);
        exit(3);
    }
    return c;
}

static void time_all(char **impls, int count)
{
    double ceiling = matrix_ceiling();
    printf("Matrix ceiling (mma.sync m16n8k16 bf16 in a loop, burst): %.0f TFLOP/s\n\n", ceiling);
    printf("| shape | type | implementation | median ms | best ms | TFLOP/s | of the ceiling "
           "|\n|---|---|---|---|---|---|---|\n");
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int i = 0; i < count; i++) {
            int reference = !strcmp(impls[i], "cuda_reference");
            if (reference ? shapes[s].slow : shapes[s].dtype != ATTN_F32)
                time_one(impls[i], &shapes[s], ceiling);
        }
}

int main(int argc, char **argv)
{
    struct cudaDeviceProp properties;
    int driver = 0, count = getenv("GPU_CHECK_COUNT") ? atoi(getenv("GPU_CHECK_COUNT")) : 600;
    int timing = strcmp(argv[argc - 1], "--no-timing") != 0;
    char date[32];
    time_t now = time(NULL);
    argc -= !timing;
    if (argc < 3) {
        fprintf(stderr, "usage: gpu-check MODULE.so IMPLEMENTATION[:partial]... [--no-timing]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    cuda(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties");
    cudaDriverGetVersion(&driver);
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    printf("# CUDA kernels on %s\n\n%s, driver for CUDA %d.%d, %d multiprocessors\n\n", properties.name, date,
           driver / 1000, driver % 1000 / 10, properties.multiProcessorCount);
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    device_context = open_context(NULL, argv[1]);
    host_context = open_context("cpu", "");
    printf("```\n");
    for (int i = 2; i < argc; i++) {
        char *option = strchr(argv[i], ':');
        int flash = strcmp(argv[i], "cuda_reference") != 0, before = failures, partial = option != NULL;
        if (option) *option = 0;
        refused = 0;
        random_state = 7;
        memset(most_l2, 0, sizeof most_l2);
        for (int n = 0; n < count; n++) check_one(argv[i], flash, partial, n);
        /* A check that refuses most of its problems proves nothing. */
        failures += refused > count / 2;
        printf("%s: %d random problems against cpu_reference in double, %d refused, %d failed; largest "
               "relative l2 f32 "
               "%.1e f16 %.1e "
               "bf16 %.1e f64 %.1e\n",
               argv[i], count, refused, failures - before, most_l2[ATTN_F32], most_l2[ATTN_F16],
               most_l2[ATTN_BF16], most_l2[ATTN_F64]);
        if (flash && timing) check_large(argv[i]);
    }
    printf("```\n\n");
    if (timing) time_all(argv + 2, argc - 2);
    attn_close(device_context), attn_close(host_context);
    printf("\n%s\n", failures ? "FAILED" : "all checks passed");
    return failures ? 1 : 0;
}
