/* hopper.cu: variants of the warpgroup kernel side by side, checked against cuda_reference and timed in
 * turns. usage: hopper check | time [ROUNDS [PART OF A NAME]] | skip */
#include "skip.cuh"

#include <algorithm>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

static void must(cudaError_t code, const char *what)
{
    if (!code) return;
    printf("FAIL %s: %s\n", what, cudaGetErrorString(code));
    exit(4);
}

/* What libattn would bring. */
extern "C" attn_status attn_fail(attn_error *, attn_kind, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vprintf(format, list), printf("\n");
    va_end(list);
    exit(4);
}
extern "C" void attn_reason(attn_reasons *, attn_kind, const char *, ...)
{
}

struct variant {
    const char *name;
    int d;
    attn_cuda_hopper_tile tile;
    const void *bf16;
};

static const variant variants[] = {
#define X(name, d, groups, keys, width, queries, blocks, stages)                                             \
    {#name, d,                                                                                               \
     hopper_tile_of<shape<__nv_bfloat16, d, d, groups, keys, width, queries, 0, blocks, stages>>(d, d, 0),   \
     (const void *)                                                                                          \
         attend_hopper<shape<__nv_bfloat16, d, d, groups, keys, width, queries, 0, blocks, stages>>},
#include "variants.def"
#undef X
};

struct problem {
    const char *name;
    int64_t b, h, hk, sq, sk, d;
    int causal;
};

static const problem timed[] = {
    {"4608x24", 1, 24, 24, 4608, 4608, 128, 0},
    {"4608x48", 1, 48, 48, 4608, 4608, 128, 0},
    {"14040x40", 1, 40, 40, 14040, 14040, 128, 0},
    {"75600x40", 1, 40, 40, 75600, 75600, 128, 0},
    {"cross 14040x512x40", 1, 40, 40, 14040, 512, 128, 0},
    {"1536x24", 1, 24, 24, 1536, 1536, 128, 0},
    {"causal 8192 32/8", 1, 32, 8, 8192, 8192, 128, 1},
    {"decode 64x8192 32/8", 64, 32, 8, 1, 8192, 128, 0},
    {"d64 4096x24", 1, 24, 24, 4096, 4096, 64, 0},
    {"d72 2x4096x16", 2, 16, 16, 4096, 4096, 72, 0},
    {"d80 16x1024x16", 16, 16, 16, 1024, 1024, 80, 0},
};
static const problem checked[] = {
    {"1 tile", 1, 1, 1, 64, 64, 0, 0},         {"ragged", 2, 2, 2, 300, 777, 0, 0},
    {"grouped", 1, 6, 2, 200, 500, 0, 0},      {"causal", 2, 2, 1, 333, 333, 0, 1},
    {"causal wide", 1, 8, 2, 700, 1500, 0, 1}, {"decode", 3, 8, 2, 1, 1000, 0, 0},
    {"many", 1, 24, 24, 1500, 1500, 0, 0},
};

static std::vector<__nv_bfloat16> noise;

static void *tensor(int64_t count, double scale)
{
    void *p;
    std::vector<__nv_bfloat16> x((size_t)count);
    const size_t shift = (size_t)rand();
    for (size_t i = 0; i < x.size(); i++) x[i] = noise[(i + shift) % noise.size()];
    if (scale != 1)
        for (auto &y : x) y = __float2bfloat16((float)(__bfloat162float(y) * scale));
    must(cudaMalloc(&p, x.size() * 2), "cudaMalloc");
    must(cudaMemcpy(p, x.data(), x.size() * 2, cudaMemcpyHostToDevice), "upload");
    return p;
}

static void fill(attn_cuda_call &c, const problem &s, int64_t d)
{
    memset(&c, 0, sizeof c);
    attn_problem &p = c.p;
    p.dtype = p.out_dtype = ATTN_BF16;
    p.batch = s.b, p.heads = s.h, p.kv_heads = s.hk, p.q_len = s.sq, p.kv_len = s.sk;
    p.head_dim = p.value_head_dim = d;
    p.causal = s.causal;
    p.scale = 1 / sqrt((double)d);
    int64_t *q[] = {p.q_stride, p.out_stride}, *k[] = {p.k_stride, p.v_stride};
    for (int i = 0; i < 2; i++) {
        int64_t sizes[2][3] = {{s.b, s.sq, s.h}, {s.b, s.sk, s.hk}};
        for (int j = 0; j < 2; j++) {
            int64_t *to = j ? k[i] : q[i];
            to[2] = sizes[j][2] > 1 ? d : 0, to[1] = sizes[j][1] > 1 ? sizes[j][2] * d : 0;
            to[0] = sizes[j][0] > 1 ? sizes[j][1] * sizes[j][2] * d : 0, to[3] = 1;
        }
    }
    p.lse_stride[2] = 1, p.lse_stride[1] = s.sq, p.lse_stride[0] = s.sq * s.h;
}

static void launch(const variant &v, const attn_cuda_call &c)
{
    attn_cuda_hopper_call a;
    a.c = c;
    attn_cuda_hopper_map(&a, &v.tile, v.name, nullptr);
    must(attn_cuda_hopper_launch(&a, &v.tile, v.bf16, 0), v.name);
}

static double error_of(const std::vector<__nv_bfloat16> &got, const std::vector<float> &want, int64_t *odd)
{
    double e = 0, n = 0;
    for (size_t i = 0; i < got.size(); i++) {
        const double x = __bfloat162float(got[i]), y = want[i];
        if (!(fabs(x - y) < 1e3))
            (*odd)++;
        else
            e += (x - y) * (x - y), n += y * y;
    }
    return sqrt(e / n);
}

static int check(const variant &v, const problem &s, double peak)
{
    attn_cuda_call c;
    fill(c, s, v.d);
    const int64_t nq = s.b * s.sq * s.h * v.d, nk = s.b * s.sk * s.hk * v.d, nl = s.b * s.h * s.sq;
    c.q = tensor(nq, peak), c.k = tensor(nk, peak), c.v = tensor(nk, 1);
    void *out, *lse;
    must(cudaMalloc(&out, nq * 4), "cudaMalloc"), must(cudaMalloc(&lse, nl * 4), "cudaMalloc");
    std::vector<float> want(nq), lse_want(nl), lse_got(nl);
    std::vector<__nv_bfloat16> got(nq);
    c.out = out, c.lse = (float *)lse, c.p.out_dtype = ATTN_F32;
    must(attn_cuda_reference_launch(&c, 0), "reference");
    must(cudaMemcpy(want.data(), out, nq * 4, cudaMemcpyDeviceToHost), "reference");
    must(cudaMemcpy(lse_want.data(), lse, nl * 4, cudaMemcpyDeviceToHost), "reference");
    must(cudaMemset(out, 0xff, nq * 4), "poison"), must(cudaMemset(lse, 0xff, nl * 4), "poison");
    c.p.out_dtype = ATTN_BF16;
    launch(v, c);
    cudaError_t code = cudaDeviceSynchronize();
    if (code) {
        printf("FAIL %s %s: %s\n", v.name, s.name, cudaGetErrorString(code));
        exit(4);
    }
    must(cudaMemcpy(got.data(), out, nq * 2, cudaMemcpyDeviceToHost), "download");
    must(cudaMemcpy(lse_got.data(), lse, nl * 4, cudaMemcpyDeviceToHost), "download");
    int64_t odd = 0;
    double l2 = error_of(got, want, &odd), worst = 0;
    for (int64_t i = 0; i < nl; i++)
        worst = std::max(worst,
                         (double)(fabsf(lse_got[i] - lse_want[i]) <= 1e30f ? fabsf(lse_got[i] - lse_want[i])
                                  : lse_got[i] == lse_want[i]              ? 0
                                                                           : 1e30f));
    const bool bad = odd || !(l2 < 3e-3) || !(worst < 1e-3);
    if (bad) {
        printf("FAIL %s %s peak %g: l2 %.2e odd %lld lse %.2e\n", v.name, s.name, peak, l2, (long long)odd,
               worst);
        for (int i = 0, shown = 0; i < nl && shown < 8; i++)
            if (!(fabsf(lse_got[i] - lse_want[i]) < 1e-3f))
                printf("   lse %d: %g, not %g\n", i, lse_got[i], lse_want[i]), shown++;
        for (int i = 0, shown = 0; i < (int)nq && shown < 6; i++) {
            const float x = __bfloat162float(got[i]);
            if (!(fabsf(x - want[i]) < 0.02f + 0.02f * fabsf(want[i])))
                printf("   row %d head %d channel %d: %g, not %g\n", (int)(i / v.d / s.h % s.sq),
                       (int)(i / v.d % s.h), i % v.d, x, want[i]),
                    shown++;
        }
    }
    cudaFree((void *)c.q), cudaFree((void *)c.k), cudaFree((void *)c.v), cudaFree(out), cudaFree(lse);
    return bad;
}

static void time_all(const problem &s, int rounds)
{
    enum { SETS = 2 };
    const int large = s.sq > 50000, BURST = large ? 1 : 4;
    if (large) rounds = 2;
    attn_cuda_call c[SETS];
    void *out;
    must(cudaMalloc(&out, s.b * s.sq * s.h * s.d * 2), "cudaMalloc");
    for (int i = 0; i < SETS; i++) {
        fill(c[i], s, s.d);
        c[i].q = tensor(s.b * s.sq * s.h * s.d, 1), c[i].k = tensor(s.b * s.sk * s.hk * s.d, 1);
        c[i].v = tensor(s.b * s.sk * s.hk * s.d, 1), c[i].out = out;
    }
    cudaEvent_t e[2];
    cudaEventCreate(&e[0]), cudaEventCreate(&e[1]);
    std::vector<std::vector<float>> ms(sizeof variants / sizeof *variants);
    for (int r = -1; r < rounds; r++)
        for (size_t i = 0; i < ms.size(); i++) {
            if (variants[i].d != s.d) continue;
            cudaEventRecord(e[0]);
            for (int n = 0; n < BURST; n++) launch(variants[i], c[n % SETS]);
            cudaEventRecord(e[1]);
            must(cudaEventSynchronize(e[1]), variants[i].name);
            float t;
            cudaEventElapsedTime(&t, e[0], e[1]);
            if (r >= 0) ms[i].push_back(t / BURST);
        }
    for (size_t i = 0; i < ms.size(); i++) {
        if (ms[i].empty()) continue;
        std::sort(ms[i].begin(), ms[i].end());
        const double m = ms[i][ms[i].size() / 2],
                     flop = 4.0 * s.b * s.h * s.sq * (double)s.sk * s.d / (s.causal ? 2 : 1);
        printf("%-22s %-16s %8.4f ms (best %8.4f) %6.1f TFLOP/s\n", s.name, variants[i].name, m, ms[i][0],
               flop / m / 1e9);
    }
    for (int i = 0; i < SETS; i++)
        cudaFree((void *)c[i].q), cudaFree((void *)c[i].k), cudaFree((void *)c[i].v);
    cudaFree(out);
}

/* ---- skip-softmax ---------------------------------------------------------------------------------------
 */

typedef skipping<shape<__nv_bfloat16, 128, 128, 2, 128, 64, 2>> skip_shape;
static const variant skip = {"skip", 128, hopper_tile_of<skip_shape>(128, 128, 0),
                             (const void *)attend_hopper<skip_shape>};

/* One margin: the error to exact attention, the share of tiles that took no part, and the time. */
static void skip_one(const attn_cuda_call &exact, const std::vector<float> &want, double margin, float dense)
{
    enum { RUNS = 9 };
    attn_cuda_call c = exact;
    unsigned long long tiles[2] = {0, 0};
    std::vector<__nv_bfloat16> got(want.size());
    std::vector<float> ms;
    const float value = (float)(margin * 1.4426950408889634);
    cudaEvent_t e[2];
    c.p.out_dtype = ATTN_BF16;
    must(cudaMemcpyToSymbol(skip_margin, &value, sizeof value), "margin");
    must(cudaMemcpyToSymbol(skip_tiles, tiles, sizeof tiles), "counters");
    must(cudaMemset(c.out, 0xff, want.size() * 2), "poison");
    launch(skip, c);
    must(cudaDeviceSynchronize(), "skip");
    must(cudaMemcpyFromSymbol(tiles, skip_tiles, sizeof tiles), "counters");
    must(cudaMemcpy(got.data(), c.out, want.size() * 2, cudaMemcpyDeviceToHost), "download");
    cudaEventCreate(&e[0]), cudaEventCreate(&e[1]);
    for (int i = 0; i < RUNS; i++) {
        float t;
        cudaEventRecord(e[0]);
        launch(skip, c);
        cudaEventRecord(e[1]);
        must(cudaEventSynchronize(e[1]), "skip");
        cudaEventElapsedTime(&t, e[0], e[1]);
        ms.push_back(t);
    }
    std::sort(ms.begin(), ms.end());
    int64_t odd = 0;
    const double error = error_of(got, want, &odd);
    printf("skip margin %-5g tiles left out %5.1f %%  relative l2 %.2e%s  %.4f ms, dense %.4f\n", margin,
           100.0 * (double)tiles[1] / (double)(tiles[0] ? tiles[0] : 1), error, odd ? " ODD" : "",
           ms[RUNS / 2], dense);
}

static float time_dense(const attn_cuda_call &c)
{
    std::vector<float> ms;
    cudaEvent_t e[2];
    cudaEventCreate(&e[0]), cudaEventCreate(&e[1]);
    for (int i = 0; i < 9; i++) {
        float t;
        cudaEventRecord(e[0]);
        launch(variants[1], c); /* the same tiles */
        cudaEventRecord(e[1]);
        must(cudaEventSynchronize(e[1]), "dense");
        cudaEventElapsedTime(&t, e[0], e[1]);
        ms.push_back(t);
    }
    std::sort(ms.begin(), ms.end());
    return ms[4];
}

/* Keys that belong to one of 16 topics, 256 in a row; a query is near one topic: as local as heads of video
 * models. */
static void skip_all()
{
    const problem s = {"local", 1, 8, 8, 4096, 4096, 128, 0};
    attn_cuda_call c;
    std::vector<__nv_bfloat16> q((size_t)(s.sq * s.h * 128)), k(q.size());
    for (size_t i = 0; i < q.size(); i++) {
        const size_t row = i / 128 / s.h, topic = row / 256 * 131 + i % (128 * s.h) * 17;
        const float shared = __bfloat162float(noise[topic % noise.size()]);
        q[i] = __float2bfloat16(shared + 0.7f * __bfloat162float(noise[(i * 3 + 7) % noise.size()]));
        k[i] = __float2bfloat16(shared + 0.7f * __bfloat162float(noise[(i * 5 + 3) % noise.size()]));
    }
    void *out;
    std::vector<float> want(q.size());
    fill(c, s, 128);
    c.q = tensor((int64_t)q.size(), 1), c.k = tensor((int64_t)q.size(), 1),
    c.v = tensor((int64_t)q.size(), 1);
    must(cudaMemcpy((void *)c.q, q.data(), q.size() * 2, cudaMemcpyHostToDevice), "upload");
    must(cudaMemcpy((void *)c.k, k.data(), k.size() * 2, cudaMemcpyHostToDevice), "upload");
    must(cudaMalloc(&out, want.size() * 4), "cudaMalloc");
    must(cudaFuncSetAttribute(skip.bf16, cudaFuncAttributeMaxDynamicSharedMemorySize, skip.tile.bytes),
         "skip");
    c.out = out, c.p.out_dtype = ATTN_F32;
    must(attn_cuda_reference_launch(&c, 0), "reference");
    must(cudaMemcpy(want.data(), out, want.size() * 4, cudaMemcpyDeviceToHost), "reference");
    c.p.out_dtype = ATTN_BF16;
    const float dense = time_dense(c);
    for (double margin : {1e30, 12.0, 8.0, 6.0, 4.0, 2.0}) skip_one(c, want, margin, dense);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    noise.resize(1 << 22);
    for (auto &x : noise) {
        const double u = (rand() + 0.5) / (RAND_MAX + 1.0), w = (rand() + 0.5) / (RAND_MAX + 1.0);
        x = __float2bfloat16((float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * w)));
    }
    for (auto &v : variants)
        must(cudaFuncSetAttribute(v.bf16, cudaFuncAttributeMaxDynamicSharedMemorySize, v.tile.bytes), v.name);
    int failures = 0;
    if (argc > 1 && !strcmp(argv[1], "check")) {
        for (auto &v : variants) {
            int bad = 0;
            for (auto &s : checked) bad += check(v, s, 1) + check(v, s, 4);
            printf("%s %s\n", bad ? "FAIL" : "ok  ", v.name);
            failures += bad;
        }
    } else if (argc > 1 && !strcmp(argv[1], "skip")) {
        skip_all();
    } else if (argc > 3 && !strcmp(argv[1], "one")) {
        for (auto &s : timed)
            for (auto &v : variants)
                if (!strcmp(s.name, argv[2]) && !strcmp(v.name, argv[3])) {
                    attn_cuda_call c;
                    fill(c, s, s.d);
                    c.q = tensor(s.b * s.sq * s.h * s.d, 1), c.k = tensor(s.b * s.sk * s.hk * s.d, 1);
                    c.v = tensor(s.b * s.sk * s.hk * s.d, 1), c.out = tensor(s.b * s.sq * s.h * s.d, 1);
                    for (int i = 0; i < 4; i++) launch(v, c);
                    must(cudaDeviceSynchronize(), "one");
                }
    } else {
        for (auto &s : timed)
            if (argc < 4 || strstr(s.name, argv[3])) time_all(s, argc > 2 ? atoi(argv[2]) : 7);
    }
    return failures != 0;
}
