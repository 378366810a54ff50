/* saturate.cu: what this card's matrix units reach when nothing else is asked of them: operands stay where
 * they are, are random, and nothing waits. */
#include "saturate.h"

#include <stdint.h>

enum { WARPGROUPS = 2, WG_M = 64, WG_N = 256, WG_K = 16, K_STEPS = 4, LOOPS = 4000, SUMS = 128 };
enum { A_BYTES = WG_M * WG_K * K_STEPS * 2, B_BYTES = WG_N * WG_K * K_STEPS * 2 };
enum { SHARED = WARPGROUPS * A_BYTES + B_BYTES + 1024 }; /* room to align */
enum { TILES = 8, STEPS = 3000, WARPS = 8, BLOCKS_AN_SM = 2 };

/* Two numbers of size one to two with random digits and signs, as bf16 or f16. */
template <int bf16> __device__ uint32_t noise(uint32_t n)
{
    n = (n ^ 61u ^ n >> 16) * 9u;
    n = (n ^ n >> 4) * 0x27d4eb2du;
    n ^= n >> 15;
    return bf16 ? (n & 0x807f807fu) | 0x3f803f80u : (n & 0x83ff83ffu) | 0x3c003c00u;
}

template <int bf16> __device__ void product(float *c, const uint32_t *a, const uint32_t *b)
{
    if (bf16)
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    else
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* out is never written to: no sum of such numbers is that one. */
template <int bf16> __global__ void __launch_bounds__(32 * WARPS) warp_products(float *out)
{
    uint32_t a[4], b[TILES][2];
    float c[TILES][4], sum = 0;
    for (int i = 0; i < 4; i++) a[i] = noise<bf16>(threadIdx.x * 4 + i);
    for (int t = 0; t < TILES; t++) {
        for (int i = 0; i < 2; i++) b[t][i] = noise<bf16>((threadIdx.x + 999) * 32 + t * 2 + i);
        for (int i = 0; i < 4; i++) c[t][i] = 0;
    }
    for (int s = 0; s < STEPS; s++)
#pragma unroll
        for (int t = 0; t < TILES; t++) product<bf16>(c[t], a, b[t]);
    for (int t = 0; t < TILES; t++)
        for (int i = 0; i < 4; i++) sum += c[t][i];
    if (sum == 1e38f) *out = sum;
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define SUM4(i)  "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define SUM16(i) SUM4(i), SUM4(i + 4), SUM4(i + 8), SUM4(i + 12)
#define SUM64(i) SUM16(i), SUM16(i + 16), SUM16(i + 32), SUM16(i + 48)
#define NAMES                                                                                                \
    "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,"    \
    "%27,%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,"   \
    "%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,"   \
    "%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,"      \
    "%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,"   \
    "%121,%122,%123,%124,%125,%126,%127}"
#define WGMMA(type)                                                                                          \
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." type "." type " " NAMES                      \
                 ", %128, %129, 1, 1, 1, 0, 0;"                                                              \
                 : SUM64(0), SUM64(64)                                                                       \
                 : "l"(a), "l"(b))

template <int bf16> __device__ void group_product(float (&c)[SUMS], uint64_t a, uint64_t b)
{
    if (bf16)
        WGMMA("bf16");
    else
        WGMMA("f16");
}

/* Rows of 128 bytes in the 128-byte swizzle, groups of eight rows 1024 bytes apart; numbers are random, so
 * that their order does not matter. */
__device__ uint64_t describe(const void *shared)
{
    uint64_t address = __cvta_generic_to_shared(shared);
    return (address & 0x3ffff) >> 4 | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}
#endif

template <int bf16> __global__ void __launch_bounds__(128 * WARPGROUPS, 1) group_products(float *out)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    extern __shared__ char raw[];
    char *shared = raw + (1024 - __cvta_generic_to_shared(raw) % 1024) % 1024;
    float c[SUMS], sum = 0;
    for (int i = threadIdx.x; i < (WARPGROUPS * A_BYTES + B_BYTES) / 4; i += blockDim.x)
        ((uint32_t *)shared)[i] = noise<bf16>(i);
    for (int i = 0; i < SUMS; i++) c[i] = 0;
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    uint64_t a = describe(shared + threadIdx.x / 128 * A_BYTES), b = describe(shared + WARPGROUPS * A_BYTES);
    for (int s = 0; s < LOOPS; s++) {
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int k = 0; k < K_STEPS; k++) group_product<bf16>(c, a + 2 * k, b + 2 * k);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    for (int i = 0; i < SUMS; i++) sum += c[i];
    if (sum == 1e38f) *out = sum;
#else
    (void)out;
#endif
}

template <int bf16>
static cudaError_t launch(int major, int minor, int sms, cudaStream_t stream, double *flop)
{
    if (major != 9 || minor != 0) {
        int blocks = BLOCKS_AN_SM * sms;
        *flop = 2.0 * blocks * WARPS * STEPS * TILES * 16 * 8 * 16;
        warp_products<bf16><<<blocks, 32 * WARPS, 0, stream>>>(NULL);
        return cudaGetLastError();
    }
    cudaError_t code =
        cudaFuncSetAttribute(group_products<bf16>, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
    if (code) return code;
    *flop = 2.0 * sms * WARPGROUPS * LOOPS * K_STEPS * WG_M * WG_N * WG_K;
    group_products<bf16><<<sms, 128 * WARPGROUPS, SHARED, stream>>>(NULL);
    return cudaGetLastError();
}

extern "C" cudaError_t attn_cuda_saturate(int device, int bf16, cudaStream_t stream, double *flop)
{
    int sms = 0, major = 0, minor = 0;
    cudaError_t code = cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device);
    if (!code) code = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (!code) code = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
    if (code) return code;
    return bf16 ? launch<1>(major, minor, sms, stream, flop) : launch<0>(major, minor, sms, stream, flop);
}
