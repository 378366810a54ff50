/* pooled_select.c: arithmetic over the means of blocks. */
#include "backends/pooled_select.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };

static float dot(const float *a, const float *b, int64_t n)
{
    float sum[LANES] = {0}, all = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int t = 0; t < LANES; t++) sum[t] += a[i + t] * b[i + t];
    for (; i < n; i++) sum[i % LANES] += a[i] * b[i];
    for (int t = 0; t < LANES; t++) all += sum[t];
    return all;
}

void pooled_scores(const float *query, const float *keys, int64_t count, int64_t d, float scale,
                   float *scores)
{
    for (int64_t j = 0; j < count; j++) {
        float s = scale * dot(query, keys + j * d, d);
        scores[j] = s == s ? s : INFINITY;
    }
}

/* Puts the k-th largest at its place (k from 0) and returns it. */
static float select_largest(float *v, int64_t count, int64_t k)
{
    int64_t low = 0, high = count - 1;
    while (low < high) {
        float pivot = v[low + (high - low) / 2];
        int64_t i = low, j = high;
        while (i <= j) {
            while (v[i] > pivot) i++;
            while (v[j] < pivot) j--;
            if (i > j) break;
            float t = v[i];
            v[i++] = v[j];
            v[j--] = t;
        }
        if (k <= j)
            high = j;
        else if (k >= i)
            low = i;
        else
            break;
    }
    return v[k];
}

int64_t pooled_best(const float *scores, int64_t count, int64_t keep, int32_t first, float *copy,
                    int32_t *list)
{
    int64_t listed = 0, better = 0;
    if (keep >= count) keep = count;
    if (keep <= 0) return 0;
    memcpy(copy, scores, (size_t)count * sizeof *copy);
    float least = select_largest(copy, count, keep - 1);
    for (int64_t j = 0; j < count; j++) better += scores[j] > least;
    for (int64_t j = 0, equal = keep - better; j < count; j++)
        if (scores[j] > least || (scores[j] == least && equal-- > 0)) list[listed++] = first + (int32_t)j;
    return listed;
}

void pooled_attend(float *scores, const float *values, int64_t count, int64_t d, float *out)
{
    float top = -INFINITY, sum = 0;
    for (int64_t j = 0; j < count; j++) top = scores[j] > top ? scores[j] : top;
    for (int64_t j = 0; j < count; j++) sum += scores[j] = expf(scores[j] - top);
    memset(out, 0, (size_t)d * sizeof *out);
    for (int64_t j = 0; j < count; j++)
        for (int64_t i = 0; i < d; i++) out[i] += scores[j] / sum * values[j * d + i];
}

/* e4m3: 3 bits of fraction, exponents from -6, below that units of 2^-9; at most 448. */
static float round_e4m3(float x)
{
    int exponent;
    if (!isfinite(x) || x == 0) return x;
    frexpf(x, &exponent); /* x = f 2^exponent, 0.5 <= |f| < 1 */
    float unit = ldexpf(1, exponent - 4 < -9 ? -9 : exponent - 4);
    float rounded = nearbyintf(x / unit) * unit;
    return rounded > 448 ? 448 : rounded < -448 ? -448 : rounded;
}

void pooled_round(float *values, int64_t n)
{
    float most = 0;
    int exponent = 0;
    for (int64_t i = 0; i < n; i++)
        most = isfinite(values[i]) && fabsf(values[i]) > most ? fabsf(values[i]) : most;
    if (most == 0) return;
    frexpf(most / 448, &exponent);
    float scale = ldexpf(1, exponent); /* most / scale < 448 */
    if (most / (scale / 2) <= 448) scale /= 2;
    for (int64_t i = 0; i < n; i++) values[i] = round_e4m3(values[i] / scale) * scale;
}
