/* timing.c: how fast implementations are, beside what the matrix units can do. */
#include "check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    int64_t block;    /* of a random block map that keeps an eighth; 0: no map */
} shape;

static const shape shapes[] = {
    {"self 4608 x 24, d 128", ATTN_BF16, 1, 24, 24, 4608, 4608, 128, 0, 1, 0, 0},
    {"self 4608 x 48, d 128", ATTN_BF16, 1, 48, 48, 4608, 4608, 128, 0, 0, 0, 0},
    {"self 14040 x 40, d 128", ATTN_BF16, 1, 40, 40, 14040, 14040, 128, 0, 0, 0, 0},
    {"cross 14040 x 512, 40 heads, d 128", ATTN_BF16, 1, 40, 40, 14040, 512, 128, 0, 0, 0, 0},
    {"self 75600 x 40, d 128", ATTN_BF16, 1, 40, 40, 75600, 75600, 128, 0, 0, 0, 0},
    {"padded 16295 x 16, 14438 kept, d 128", ATTN_BF16, 1, 16, 16, 16295, 16295, 128, 0, 0, 14438, 0},
    {"self 4096 x 24, d 64", ATTN_BF16, 1, 24, 24, 4096, 4096, 64, 0, 1, 0, 0},
    {"self 4096 x 16, batch 2, d 72", ATTN_BF16, 2, 16, 16, 4096, 4096, 72, 0, 0, 0, 0},
    {"self 1024 x 16, batch 16, d 80", ATTN_BF16, 16, 16, 16, 1024, 1024, 80, 0, 0, 0, 0},
    {"self 4096 x 16, d 256", ATTN_BF16, 1, 16, 16, 4096, 4096, 256, 0, 0, 0, 0},
    {"causal 8192, 32/8 heads, d 128", ATTN_BF16, 1, 32, 8, 8192, 8192, 128, 1, 0, 0, 0},
    {"decode 64 x 8192, 32/8 heads, d 128", ATTN_BF16, 64, 32, 8, 1, 8192, 128, 0, 0, 0, 0},
    {"self 1536 x 24, d 128", ATTN_F16, 1, 24, 24, 1536, 1536, 128, 0, 1, 0, 0},
    {"self 4096 x 8, d 64", ATTN_F32, 1, 8, 8, 4096, 4096, 64, 0, 1, 0, 0},
    {"an eighth of 14080 x 40, blocks of 128, d 128", ATTN_BF16, 1, 40, 40, 14080, 14080, 128, 0, 0, 0, 128},
    {"an eighth of 14080 x 40, blocks of 64, d 128", ATTN_BF16, 1, 40, 40, 14080, 14080, 128, 0, 0, 0, 64},
    {"an eighth of 75648 x 40, blocks of 128, d 128", ATTN_BF16, 1, 40, 40, 75648, 75648, 128, 0, 0, 0, 128},
    {"an eighth of 14080 x 40, blocks of 128, d 64", ATTN_BF16, 1, 40, 40, 14080, 14080, 64, 0, 0, 0, 128},
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
    tensor mask, counts = {0}, blocks = {0};
    attn_block_map map;
    int64_t keep = s->block ? s->sk / s->block / 8 : 0;
    if (keep) make_random_map(&counts, &blocks, &map, s->h, s->sk, s->block, keep);
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
                          .block_map = keep ? &map : NULL,
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
        int64_t keys = s->kept ? s->kept : keep ? keep * s->block : s->sk;
        double flop = 4.0 * (double)(s->b * s->h * s->sq) * (double)(keys * s->d) / (s->causal ? 2 : 1);
        double rate = flop / ms[runs / 2] / 1e9;
        printf("| %s | %s | %s | %.3f | %.3f | %.1f | %.0f %% |\n", s->name, attn_dtype_name(s->dtype), impl,
               (double)ms[runs / 2], (double)ms[0], rate, 100 * rate / ceiling);
    }
    attn_layer_close(layer);
    for (int i = 0; i < SETS; i++) drop(&q[i]), drop(&k[i]), drop(&v[i]);
    drop(&out), drop(&mask), drop(&counts), drop(&blocks);
}
void time_all(char **impls, int count)
{
    double ceiling = matrix_ceiling();
    printf("Matrix ceiling (mma.sync m16n8k16 bf16 in a loop, burst): %.0f TFLOP/s\n\n", ceiling);
    printf("| shape | type | implementation | median ms | best ms | TFLOP/s | of the ceiling "
           "|\n|---|---|---|---|---|---|---|\n");
    const char *only = getenv("GPU_CHECK_SHAPES"); /* a part of their names */
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int i = 0; i < count; i++) {
            int reference = !strcmp(impls[i], "cuda_reference");
            if (only && !strstr(shapes[s].name, only)) continue;
            if (reference ? shapes[s].slow : shapes[s].dtype != ATTN_F32)
                time_one(impls[i], &shapes[s], ceiling);
        }
}
