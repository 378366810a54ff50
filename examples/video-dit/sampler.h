/* sampler.h: from noise to a clip in Euler steps. */
#ifndef VIDEO_DIT_SAMPLER_H
#define VIDEO_DIT_SAMPLER_H

#include "network.h"

/* Normal numbers of section 6 of MODEL.md: every language draws the same from a seed. */
void noise_fill(uint64_t seed, float *to, int64_t count);

/* Clips in memory are [frames][height][width][PIXEL]; the network sees tokens of TOKEN values. */
void clip_to_tokens(clip_shape s, const float *clip, float *tokens);
void tokens_to_clip(clip_shape s, const float *tokens, float *clip);
void clip_to_bytes(const float *clip, unsigned char *bytes, int64_t count);

/* The time before step i of `steps`; 1 for i = 0 and 0 for i = steps. */
double sample_time(clip_shape s, int steps, int i);

/* Told after each step; n->z is the clip so far. */
typedef void (*step_fn)(void *user, int step, const network *n);

/* n->z: noise in, clip out. `step` may be NULL. */
int sample(network *n, int steps, step_fn step, void *user, failure *f);

#endif
