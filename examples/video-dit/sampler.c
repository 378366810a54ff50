/* sampler.c: Philox noise, the order of pixels in tokens, and the Euler loop of rectified flow. */
#include "sampler.h"
#include <math.h>
#include <string.h>

/* Philox4x32-10: ten rounds over a counter of four words with a key of two. */
static void philox(uint64_t counter, uint64_t key, uint32_t *c)
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    c[0] = (uint32_t)counter;
    c[1] = (uint32_t)(counter >> 32);
    c[2] = c[3] = 0;
    for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t c1 = c[1], c3 = c[3];
        c[0] = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c[1] = (uint32_t)p1;
        c[2] = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c[3] = (uint32_t)p0;
    }
}

void noise_fill(uint64_t seed, float *to, int64_t count)
{
    for (int64_t i = 0; i < count; i += 4) {
        uint32_t c[4];
        float four[4];
        philox((uint64_t)(i / 4), seed, c);
        for (int j = 0; j < 4; j += 2) {
            double u = ((double)c[j] + 0.5) * 0x1p-32, w = ((double)c[j + 1] + 0.5) * 0x1p-32;
            double length = sqrt(-2 * log(u)), angle = 2 * 3.14159265358979323846 * w;
            four[j] = (float)(length * cos(angle));
            four[j + 1] = (float)(length * sin(angle));
        }
        memcpy(to + i, four, (size_t)(count - i < 4 ? count - i : 4) * sizeof *four);
    }
}

/* Calls for each row of PATCH pixels, which is contiguous in both orders. */
static void move_rows(clip_shape s, const float *from, float *to, int tokens_first)
{
    int64_t columns = s.width / PATCH, run = PATCH * PIXEL;
    for (int64_t line = 0; line < s.frames * s.height; line++)
        for (int64_t px = 0; px < columns; px++) {
            int64_t token = line / PATCH * columns + px; /* height is a multiple of PATCH */
            int64_t in_tokens = token * TOKEN + line % PATCH * run, in_clip = (line * columns + px) * run;
            memcpy(to + (tokens_first ? in_clip : in_tokens), from + (tokens_first ? in_tokens : in_clip),
                   (size_t)run * sizeof *to);
        }
}

void clip_to_tokens(clip_shape s, const float *clip, float *tokens)
{
    move_rows(s, clip, tokens, 0);
}

void tokens_to_clip(clip_shape s, const float *tokens, float *clip)
{
    move_rows(s, tokens, clip, 1);
}

void clip_to_bytes(const float *clip, unsigned char *bytes, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        float level = nearbyintf((clip[i] + 1) * 127.5f); /* half to even */
        bytes[i] = level > 0 ? level < 255 ? (unsigned char)level : 255 : 0;
    }
}

double sample_time(clip_shape s, int steps, int i)
{
    double shift = 3 * sqrt((double)shape_tokens(s) / 4096), sigma = 1 - (double)i / steps;
    return shift * sigma / (1 + (shift - 1) * sigma);
}

int sample(network *n, int steps, step_fn step, void *user, failure *f)
{
    for (int i = 0; i < steps; i++) {
        double t = sample_time(n->shape, steps, i);
        float dt = (float)(sample_time(n->shape, steps, i + 1) - t);
        moment_set(&n->when, n->shape, i, steps, t);
        if (network_run(n, t, f)) return -1;
        for (int64_t j = 0; j < n->tokens * TOKEN; j++) n->z[j] += dt * n->velocity[j];
        if (step) step(user, i, n);
    }
    return 0;
}
