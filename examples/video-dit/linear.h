/* linear.h: small dense pieces: one row through a linear layer, Fourier features, SiLU. */
#ifndef VIDEO_DIT_LINEAR_H
#define VIDEO_DIT_LINEAR_H

/* y = w x + bias for one row; w [out][in]; bias NULL: none. */
void linear(const float *w, const float *bias, const float *x, float *y, int out, int in);

/* FEATURE numbers for each u: u, sin(2^k pi u), cos(2^k pi u). */
void fourier(const double *u, int count, float *to);

void silu(float *x, int count);

#endif
