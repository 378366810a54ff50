/* pooled_select.h: inner parts of pooled.c. */
#ifndef ATTN_BACKENDS_POOLED_SELECT_H
#define ATTN_BACKENDS_POOLED_SELECT_H

#include <stdint.h>

/* Scores of one mean query against `count` mean keys of d channels. A score that is not a number becomes
 * infinity, so that what made it is seen. */
void pooled_scores(const float *query, const float *keys, int64_t count, int64_t d, float scale,
                   float *scores);
/* The `keep` largest of scores[0 .. count) as ascending indices from `first` on; of equal ones the earlier.
 * copy: count floats. Returns how many. */
int64_t pooled_best(const float *scores, int64_t count, int64_t keep, int32_t first, float *copy,
                    int32_t *list);
/* out[d] = softmax(scores) values. Scores become weights. */
void pooled_attend(float *scores, const float *values, int64_t count, int64_t d, float *out);
/* To the nearest fp8 e4m3 times the largest power of two that keeps n values in its range. */
void pooled_round(float *values, int64_t n);

#endif
