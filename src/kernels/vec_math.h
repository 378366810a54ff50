/* vec_math.h: functions of a vector that every vector kernel set needs, made of its type vec and functions
 * v_*. Included after those. Everything is static, so that the linker can never pick a copy built for another
 * CPU. */
#ifndef ATTN_KERNELS_VEC_MATH_H
#define ATTN_KERNELS_VEC_MATH_H

#define ALWAYS_INLINE static inline __attribute__((always_inline))
/* Register tiles are loops over constants that must vanish. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* 2^x for x <= 0: x = n + f with f in [-1/2, 1/2], and a polynomial for 2^f. Below 2^-126 the result is 0;
 * NaN stays NaN. The coefficients come from a Remez exchange for the relative error at degree 5 (7.5e-8),
 * after which the constant term is set to 1 (1.6e-7), so that the largest score has the weight 1 exactly. */
ALWAYS_INLINE vec v_exp2(vec x)
{
    vec n = v_round(x), f = v_sub(x, n);
    vec p = v_set1(0.00132764721678f);
    p = v_fma(p, f, v_set1(0.00967554133102f));
    p = v_fma(p, f, v_set1(0.0555071327288f));
    p = v_fma(p, f, v_set1(0.24022119724f));
    p = v_fma(p, f, v_set1(0.693146967065f));
    p = v_fma(p, f, v_set1(1.0f));
    return v_ldexp(p, n, x);
}

/* The same at degree 6 (2.6e-9), for a result that is not a weight but part of a score. */
ALWAYS_INLINE vec v_exp2_fine(vec x)
{
    vec n = v_round(x), f = v_sub(x, n);
    vec p = v_set1(0.000155946781613f);
    p = v_fma(p, f, v_set1(0.00134066439024f));
    p = v_fma(p, f, v_set1(0.00961769297299f));
    p = v_fma(p, f, v_set1(0.0555031055101f));
    p = v_fma(p, f, v_set1(0.240226527829f));
    p = v_fma(p, f, v_set1(0.693147214968f));
    p = v_fma(p, f, v_set1(1.0f));
    return v_ldexp(p, n, x);
}

/* Near zero x + x^3 P(x^2), P from a Remez exchange on |x| <= 5/8 (relative error 4.4e-9); further out
 * (1 - e) / (1 + e) with e = exp(-2 |x|), which would cancel near zero. */
ALWAYS_INLINE vec v_tanh(vec x)
{
    vec a = v_abs(x), u = v_mul(x, x);
    vec p = v_set1(-0.00570498690798f);
    p = v_fma(p, u, v_set1(0.020639087127f));
    p = v_fma(p, u, v_set1(-0.0537397150319f));
    p = v_fma(p, u, v_set1(0.133314421972f));
    p = v_fma(p, u, v_set1(-0.33333281942f));
    vec near = v_fma(v_mul(p, u), x, x);
    vec e = v_exp2_fine(v_mul(a, v_set1(-2.88539008178f)));
    vec far = v_div(v_sub(v_set1(1.0f), e), v_add(v_set1(1.0f), e));
    return v_pick_less(a, v_set1(0.625f), near, v_copysign(far, x));
}

#endif
