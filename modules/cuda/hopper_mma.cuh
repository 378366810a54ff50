/* hopper_mma.cuh: the warpgroup products of sm_90a.
 *
 * products<T, N>::scores adds A (64 x 16, shared) times B (16 x N, shared, depth contiguous) to c;
 * products<T, N>::values adds A (64 x 16, registers) times B (16 x N, shared, columns contiguous). Both run
 * on their own: c and A's registers are theirs until hopper_products_wait. first_scores replaces c: what it
 * held before is no operand, so that it may be written while other products run. */
#ifndef ATTN_CUDA_HOPPER_MMA_CUH
#define ATTN_CUDA_HOPPER_MMA_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

template <typename T, int N> struct products;

/* clang-format off */
/* N columns are N / 2 accumulators a thread; the lists below grow from one size to the next. */
#define R4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define N4(i) "=f"(c[i]), "=f"(c[i + 1]), "=f"(c[i + 2]), "=f"(c[i + 3])
#define NAMES_64 "%0, %1, %2, %3" ", %4, %5, %6, %7" ", %8, %9, %10, %11" ", %12, %13, %14, %15" \
    ", %16, %17, %18, %19" ", %20, %21, %22, %23" ", %24, %25, %26, %27" ", %28, %29, %30, %31"
#define REGISTERS_64 R4(0), R4(4), R4(8), R4(12), R4(16), R4(20), R4(24), R4(28)
#define NEW_64 N4(0), N4(4), N4(8), N4(12), N4(16), N4(20), N4(24), N4(28)
#define NAMES_72 NAMES_64 ", %32, %33, %34, %35"
#define REGISTERS_72 REGISTERS_64, R4(32)
#define NEW_72 NEW_64, N4(32)
#define NAMES_80 NAMES_72 ", %36, %37, %38, %39"
#define REGISTERS_80 REGISTERS_72, R4(36)
#define NEW_80 NEW_72, N4(36)
#define NAMES_96 NAMES_80 ", %40, %41, %42, %43" ", %44, %45, %46, %47"
#define REGISTERS_96 REGISTERS_80, R4(40), R4(44)
#define NEW_96 NEW_80, N4(40), N4(44)
#define NAMES_112 NAMES_96 ", %48, %49, %50, %51" ", %52, %53, %54, %55"
#define REGISTERS_112 REGISTERS_96, R4(48), R4(52)
#define NEW_112 NEW_96, N4(48), N4(52)
#define NAMES_128 NAMES_112 ", %56, %57, %58, %59" ", %60, %61, %62, %63"
#define REGISTERS_128 REGISTERS_112, R4(56), R4(60)
#define NEW_128 NEW_112, N4(56), N4(60)
#define NAMES_144 NAMES_128 ", %64, %65, %66, %67" ", %68, %69, %70, %71"
#define REGISTERS_144 REGISTERS_128, R4(64), R4(68)
#define NEW_144 NEW_128, N4(64), N4(68)
#define NAMES_160 NAMES_144 ", %72, %73, %74, %75" ", %76, %77, %78, %79"
#define REGISTERS_160 REGISTERS_144, R4(72), R4(76)
#define NEW_160 NEW_144, N4(72), N4(76)
#define NAMES_176 NAMES_160 ", %80, %81, %82, %83" ", %84, %85, %86, %87"
#define REGISTERS_176 REGISTERS_160, R4(80), R4(84)
#define NEW_176 NEW_160, N4(80), N4(84)
#define NAMES_192 NAMES_176 ", %88, %89, %90, %91" ", %92, %93, %94, %95"
#define REGISTERS_192 REGISTERS_176, R4(88), R4(92)
#define NEW_192 NEW_176, N4(88), N4(92)
#define NAMES_208 NAMES_192 ", %96, %97, %98, %99" ", %100, %101, %102, %103"
#define REGISTERS_208 REGISTERS_192, R4(96), R4(100)
#define NEW_208 NEW_192, N4(96), N4(100)
#define NAMES_256 NAMES_208 ", %104, %105, %106, %107" ", %108, %109, %110, %111" ", %112, %113, %114, %115" \
    ", %116, %117, %118, %119" ", %120, %121, %122, %123" ", %124, %125, %126, %127"
#define REGISTERS_256 REGISTERS_208, R4(104), R4(108), R4(112), R4(116), R4(120), R4(124)
#define NEW_256 NEW_208, N4(104), N4(108), N4(112), N4(116), N4(120), N4(124)

/* a to f: numbers of the operands after the accumulators. */
#define PRODUCTS(T, TYPE, N, A, B, C, D, E, F)                                                               \
    template <> struct products<T, N> {                                                                      \
        static __device__ __forceinline__ void scores(float (&c)[N / 2], uint64_t a, uint64_t b)             \
        {                                                                                                    \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\n"                                          \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NAMES_##N "}, "  \
                         "%" #A ", %" #B ", p, 1, 1, 0, 0;\n}"                                                \
                         : REGISTERS_##N : "l"(a), "l"(b));                                                  \
        }                                                                                                    \
        static __device__ __forceinline__ void first_scores(float (&c)[N / 2], uint64_t a, uint64_t b)       \
        {                                                                                                    \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 0, 0;\n"                                          \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NAMES_##N "}, "  \
                         "%" #A ", %" #B ", p, 1, 1, 0, 0;\n}"                                                \
                         : NEW_##N : "l"(a), "l"(b));                                                        \
        }                                                                                                    \
        static __device__ __forceinline__ void values(float (&c)[N / 2], const uint32_t *a, uint64_t b,      \
                                                      int keep)                                              \
        {                                                                                                    \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #F ", 0;\n"                                    \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" NAMES_##N "}, "  \
                         "{%" #A ", %" #B ", %" #C ", %" #D "}, %" #E ", p, 1, 1, 1;\n}"                      \
                         : REGISTERS_##N : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));   \
        }                                                                                                    \
    };
#define PRODUCTS_OF(N, A, B, C, D, E, F)                                                                     \
    PRODUCTS(__half, "f16", N, A, B, C, D, E, F) PRODUCTS(__nv_bfloat16, "bf16", N, A, B, C, D, E, F)

PRODUCTS_OF(64, 32, 33, 34, 35, 36, 37)
PRODUCTS_OF(72, 36, 37, 38, 39, 40, 41)
PRODUCTS_OF(80, 40, 41, 42, 43, 44, 45)
PRODUCTS_OF(96, 48, 49, 50, 51, 52, 53)
PRODUCTS_OF(112, 56, 57, 58, 59, 60, 61)
PRODUCTS_OF(128, 64, 65, 66, 67, 68, 69)
PRODUCTS_OF(144, 72, 73, 74, 75, 76, 77)
PRODUCTS_OF(160, 80, 81, 82, 83, 84, 85)
PRODUCTS_OF(176, 88, 89, 90, 91, 92, 93)
PRODUCTS_OF(192, 96, 97, 98, 99, 100, 101)
PRODUCTS_OF(208, 104, 105, 106, 107, 108, 109)
PRODUCTS_OF(256, 128, 129, 130, 131, 132, 133)
#undef PRODUCTS_OF
#undef PRODUCTS
#undef NAMES_64
#undef REGISTERS_64
#undef NEW_64
#undef NAMES_72
#undef REGISTERS_72
#undef NEW_72
#undef NAMES_80
#undef REGISTERS_80
#undef NEW_80
#undef NAMES_96
#undef REGISTERS_96
#undef NEW_96
#undef NAMES_112
#undef REGISTERS_112
#undef NEW_112
#undef NAMES_128
#undef REGISTERS_128
#undef NEW_128
#undef NAMES_144
#undef REGISTERS_144
#undef NEW_144
#undef NAMES_160
#undef REGISTERS_160
#undef NEW_160
#undef NAMES_176
#undef REGISTERS_176
#undef NEW_176
#undef NAMES_192
#undef REGISTERS_192
#undef NEW_192
#undef NAMES_208
#undef REGISTERS_208
#undef NEW_208
#undef NAMES_256
#undef REGISTERS_256
#undef NEW_256
#undef R4
#undef N4
/* clang-format on */

#endif
