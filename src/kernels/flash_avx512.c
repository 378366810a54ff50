/* flash_avx512.c: the kernel set for AVX-512 (F, BW, DQ, VL): vectors of 16, register tiles of 12 x 2. */
#if defined(__x86_64__)
/* 12 x 2 sums, 2 vectors of B and a broadcast leave a few of 32 registers free. */
#define CHUNK    12
#define LANES    16
#define CASES(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)

#include "kernels/vec_avx512.h"

#include "kernels/flash_tmpl.h"

extern const attn_kernels attn_kernels_avx512;
const attn_kernels attn_kernels_avx512 = KERNEL_SET("avx512");
#else
typedef int attn_no_avx512;
#endif
