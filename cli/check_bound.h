/* check_bound.h: how far a result may be from the exact one.
 *
 * With u = 2^-24, V = max |v|, M = |scale| max |q| max |k| (Euclidean norms of rows; a bound of every score),
 * A = the largest finite additive mask value, D the head size and S the number of keys:
 *
 *   f32 error  t = u V (16 + sqrt(S) / 2 + (M + A)(2 + sqrt(D) / 8))
 *   of out     |out - exact| <= 2 r + t,   ||out - exact|| <= 2 R + t sqrt(n)
 *   of lse     |lse - exact| <= u (16 + sqrt(S) / 2 + |lse| + (M + A)(2 + sqrt(D) / 8))
 *
 * r and R are the largest and the Euclidean error that rounding the exact result to out's dtype makes, so
 * that low precision is judged by what it must lose. The terms of t: an exponential may be off by
 * 8 u, in the weights and in their sum; each score is a sum of D products of at most M in all, whose rounding
 * errors add up as their root; exp turns an absolute error of its argument into a relative one of the weight;
 * the weighted sum over S keys adds its own. f32 inputs use the same r, of f32;
 * f64 inputs have u = 2^-24 too, as scores may be kept in f32. */
#ifndef ATTN_CLI_CHECK_BOUND_H
#define ATTN_CLI_CHECK_BOUND_H

#include "generate.h"
#include "outcome.h"

struct check_bound {
    double max_abs; /* of out: 2 r + t */
    double norm;    /* of out: 2 R + t sqrt(n) */
    double f32;     /* t */
    double weights; /* what rounding the weights to bf16 may add to each element: 2^-9 V */
    double lse;     /* without the term |lse|, which is the result's own */
};

/* exact_call holds the problem's numbers in f64; exact is its result. Fails: out_of_memory. */
attn_status check_bound_of(const struct generated *exact_call, const struct outcome *exact,
                           attn_dtype out_dtype, struct check_bound *bound, attn_error *error);

/* The bound of a kernel set that rounds its weights to bf16 before they meet the values, as sets with bf16
 * dot products do for bf16 inputs: an error of at most 2^-9 in each weight, so at most 2^-9 V in the weighted
 * sum. */
struct check_bound check_bound_bf16_weights(const struct check_bound *bound, int64_t out_count);

/* The bound of a device's implementation: weights rounded to the type of the inputs (2^-8 V for bf16, 2^-11 V
 * for f16, as sums of weights are 1 and each is off by its last place), and four times t, as exponentials of
 * the special function units are off by more places. */
struct check_bound check_bound_device(const struct check_bound *bound, attn_dtype dtype, int64_t out_count);

/* Checks a result against the exact one. Of the error of out beyond r, *share becomes the largest part of
 * what is allowed, and the same of lse, where it was less before. Fails: internal, with the place and both
 * values. */
attn_status check_against(const struct outcome *found, const struct outcome *exact,
                          const struct check_bound *bound, double *share, attn_error *error);
/* The same between two results that are both within their bounds: at most twice as far from each other. */
attn_status check_between(const struct outcome *found, const struct outcome *other,
                          const struct check_bound *bound, const char *name, attn_error *error);

#endif
