/* ceiling_loops.c: loops that run at the speed of the multiply-add units, of the clock and of memory. */
#include "ceiling_loops.h"

int ceiling_have_always(void)
{
    return 1;
}

/* An empty statement that may change x in a register: the compiler can neither drop nor merge what feeds it.
 */
#define OPAQUE(x) __asm__ volatile("" : "+r"(x))

#if !defined(__x86_64__) && !defined(__aarch64__)
#define FOUR(step)    step step step step
#define SIXTEEN(step) FOUR(step) FOUR(step) FOUR(step) FOUR(step)
#endif

/* Register-register additions: some cores fold additions of a constant away when they rename registers.
 * Assembly where it is known, so that a build without optimisation measures the same clock. */
void ceiling_run_chain(int64_t turns)
{
    uint64_t sum = 1, step = 3;
    OPAQUE(step);
    for (int64_t i = 0; i < turns; i++) {
#if defined(__x86_64__)
        __asm__ volatile(".rept 64\n\taddq %1, %0\n\t.endr" : "+r"(sum) : "r"(step) : "cc");
#elif defined(__aarch64__)
        __asm__ volatile(".rept 64\n\tadd %0, %0, %1\n\t.endr" : "+r"(sum) : "r"(step));
#else
        FOUR(SIXTEEN(sum += step; OPAQUE(sum);))
#endif
    }
}

/* Wide enough that one core is limited by memory and not by its load instructions; compilers split the vector
 * into what the baseline has. */
typedef uint64_t wide __attribute__((vector_size(64)));

uint64_t ceiling_read(const void *memory, size_t bytes)
{
    const wide *from = memory;
    size_t count = bytes / sizeof *from;
    wide a = {0}, b = {0}, sum;
    for (size_t i = 0; i + 1 < count; i += 2) {
        a += from[i];
        b ^= from[i + 1];
    }
    sum = a + b;
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

/* 14 chains of one multiplication and one addition each: what a build without instruction-set flags can do.
 */
typedef float quad __attribute__((vector_size(16)));
#define FOURTEEN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13)

void ceiling_run_scalar(int64_t turns)
{
    volatile float half = 0.5f, one = 1.0f;
    quad times = {half, half, half, half}, plus = {one, one, one, one}, sum = {0};
#define START(n) quad a##n = plus + n;
    FOURTEEN(START)
#define STEP(n) a##n = a##n * times + plus;
    for (int64_t i = 0; i < turns; i++) {
        FOURTEEN(STEP)
    }
#define ADD(n) sum += a##n;
    FOURTEEN(ADD)
    volatile float keep = sum[0] + sum[1] + sum[2] + sum[3];
    (void)keep;
}

#if defined(__x86_64__)
/* __builtin_cpu_supports also asks whether the system saves the wide registers. */
int ceiling_have_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

int ceiling_have_avx512(void)
{
    return __builtin_cpu_supports("avx512f") != 0;
}

int ceiling_have_avx512_bf16(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bf16");
}

/* Assembly, so that no compiler spills an accumulator. a = a * 1/2 + 1 stays near 2: no infinities, no
 * denormals. */
__attribute__((target("avx2,fma"))) void ceiling_run_avx2(int64_t turns)
{
    static const float half = 0.5f, one = 1.0f;
    __asm__ volatile("vbroadcastss %1, %%ymm14\n\t"
                     "vbroadcastss %2, %%ymm15\n\t"
                     ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13\n\t"
                     "vmovaps %%ymm15, %%ymm\\n\n\t"
                     ".endr\n"
                     "1:\n\t"
                     ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13\n\t"
                     "vfmadd213ps %%ymm15, %%ymm14, %%ymm\\n\n\t"
                     ".endr\n\t"
                     "decq %0\n\t"
                     "jnz 1b\n\t"
                     "vzeroupper"
                     : "+r"(turns)
                     : "m"(half), "m"(one)
                     : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9",
                       "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

#define ALL_24 "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23"
#define CLOBBER_26                                                                                           \
    "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",  \
        "xmm12", "xmm13", "xmm14", "xmm15", "xmm16", "xmm17", "xmm18", "xmm19", "xmm20", "xmm21", "xmm22",   \
        "xmm23", "xmm24", "xmm25"

__attribute__((target("avx512f"))) void ceiling_run_avx512(int64_t turns)
{
    static const float half = 0.5f, one = 1.0f;
    __asm__ volatile("vbroadcastss %1, %%zmm24\n\t"
                     "vbroadcastss %2, %%zmm25\n\t"
                     ".irp n," ALL_24 "\n\t"
                     "vmovaps %%zmm25, %%zmm\\n\n\t"
                     ".endr\n"
                     "1:\n\t"
                     ".irp n," ALL_24 "\n\t"
                     "vfmadd213ps %%zmm25, %%zmm24, %%zmm\\n\n\t"
                     ".endr\n\t"
                     "decq %0\n\t"
                     "jnz 1b\n\t"
                     "vzeroupper"
                     : "+r"(turns)
                     : "m"(half), "m"(one)
                     : CLOBBER_26);
}

/* Pairs of bf16: 0x3f80 is 1 and 0x0080 the smallest normal number, so sums stay finite for ever. */
__attribute__((target("avx512f,avx512bf16"))) void ceiling_run_avx512_bf16(int64_t turns)
{
    static const uint32_t ones = 0x3f803f80u, tiny = 0x00800080u;
    __asm__ volatile("vpbroadcastd %1, %%zmm24\n\t"
                     "vpbroadcastd %2, %%zmm25\n\t"
                     ".irp n," ALL_24 "\n\t"
                     "vmovaps %%zmm25, %%zmm\\n\n\t"
                     ".endr\n"
                     "1:\n\t"
                     ".irp n," ALL_24 "\n\t"
                     "vdpbf16ps %%zmm25, %%zmm24, %%zmm\\n\n\t"
                     ".endr\n\t"
                     "decq %0\n\t"
                     "jnz 1b\n\t"
                     "vzeroupper"
                     : "+r"(turns)
                     : "m"(ones), "m"(tiny)
                     : CLOBBER_26);
}
#endif
