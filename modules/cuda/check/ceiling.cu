/* ceiling.cu: what this card's matrix units reach through mma.sync when nothing else is asked of them. */
#include <cuda_runtime.h>
#include <stdint.h>

__global__ void __launch_bounds__(256) products(const uint32_t *seed, float *out, int steps)
{
    enum { TILES = 8 };
    uint32_t a[4], b[TILES][2];
    float c[TILES][4];
    for (int i = 0; i < 4; i++) a[i] = seed[(threadIdx.x + i * 64) % 1024];
    for (int t = 0; t < TILES; t++) {
        for (int i = 0; i < 2; i++) b[t][i] = seed[(threadIdx.x * 3 + t * 7 + i) % 1024];
        for (int i = 0; i < 4; i++) c[t][i] = 0;
    }
    for (int s = 0; s < steps; s++)
#pragma unroll
        for (int t = 0; t < TILES; t++)
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                "{%0,%1,%2,%3};"
                : "+f"(c[t][0]), "+f"(c[t][1]), "+f"(c[t][2]), "+f"(c[t][3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[t][0]), "r"(b[t][1]));
    float sum = 0;
    for (int t = 0; t < TILES; t++)
        for (int i = 0; i < 4; i++) sum += c[t][i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

/* FLOP of one launch; the launch is on the default stream. out: 2048 * 256 floats, seed: 1024 words. */
extern "C" double ceiling_launch(const uint32_t *seed, float *out, int steps)
{
    int blocks = 132 * 8;
    products<<<blocks, 256>>>(seed, out, steps);
    return (double)blocks * 8 * steps * 8 * 16 * 8 * 16 * 2;
}
