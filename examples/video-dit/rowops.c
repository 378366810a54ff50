/* rowops.c: norms, RoPE, GELU and rounding over rows of channels. */
#include "rowops.h"
#include "shape.h"
#include <math.h>
#include <string.h>

enum { LANES = 16 };

/* The loops are compiled for wider vectors as well, and the loader picks. Nothing is fused or reordered, so
 * all give the same numbers. Sanitizers do not get along with functions that are picked while the program
 * loads. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&     \
    !defined(__SANITIZE_THREAD__)
#define WIDE __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WIDE
#endif

static const float eps = 1e-6f;

/* A compiler may not reorder a float sum; sixteen partial sums give it vectors and also lose less. */
static inline float add_lanes(const float *lane)
{
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += lane[i];
    return sum;
}

static inline float sum_of(const float *x, int count)
{
    float lane[LANES] = {0};
    for (int c = 0; c < count; c += LANES)
        for (int i = 0; i < LANES; i++) lane[i] += x[c + i];
    return add_lanes(lane);
}

static inline float sum_of_squares(const float *x, int count, float mean)
{
    float lane[LANES] = {0};
    for (int c = 0; c < count; c += LANES)
        for (int i = 0; i < LANES; i++) lane[i] += (x[c + i] - mean) * (x[c + i] - mean);
    return add_lanes(lane);
}

WIDE void layer_norm(const float *from, const float *scale, const float *shift, float *to, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++, from += DIM, to += DIM) {
        float mean = sum_of(from, DIM) / DIM;
        float inverse = 1 / sqrtf(sum_of_squares(from, DIM, mean) / DIM + eps);
        if (scale)
            for (int c = 0; c < DIM; c++) to[c] = (from[c] - mean) * inverse * (1 + scale[c]) + shift[c];
        else
            for (int c = 0; c < DIM; c++) to[c] = (from[c] - mean) * inverse;
    }
}

WIDE void rms_heads(float *x, int64_t stride, const float *weight, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++)
        for (int h = 0; h < HEADS; h++) {
            float *head = x + r * stride + h * HEAD_DIM;
            float inverse = 1 / sqrtf(sum_of_squares(head, HEAD_DIM, 0) / HEAD_DIM + eps);
            for (int c = 0; c < HEAD_DIM; c++) head[c] = head[c] * inverse * weight[c];
        }
}

WIDE void rope_heads(float *x, int64_t stride, const float *cos, const float *sin, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++, cos += PAIRS, sin += PAIRS)
        for (int h = 0; h < HEADS; h++) {
            float *head = x + r * stride + h * HEAD_DIM;
            for (int i = 0; i < PAIRS; i++) {
                float a = head[2 * i], b = head[2 * i + 1];
                head[2 * i] = a * cos[i] - b * sin[i];
                head[2 * i + 1] = a * sin[i] + b * cos[i];
            }
        }
}

/* e^x for |x| <= 87, within two units in the last place: x = n ln 2 + r with |r| <= ln 2 / 2, and the Taylor
 * sum of e^r to r^7 is short of it by less than 2^-27. Adding and taking away 1.5 * 2^23 rounds to a whole
 * number. */
static inline float exp_bounded(float x)
{
    const float whole = 12582912.0f;
    float n = (x * 1.44269504f + whole) - whole;
    float r = (x - n * 0.693359375f) + n * 2.12194440e-4f; /* ln 2 in two parts; the first has few digits */
    float p =
        1 +
        r * (1 + r * (0.5f + r * (1.f / 6 + r * (1.f / 24 + r * (1.f / 120 + r * (1.f / 720 + r / 5040))))));
    int32_t bits = ((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

/* 0.5 (1 + tanh u) = 1 / (1 + exp(-2u)): one exponential and no cancellation. */
WIDE void gelu_bias(float *x, const float *bias, int64_t rows, int64_t columns)
{
    for (int64_t r = 0; r < rows; r++, x += columns)
        for (int64_t c = 0; c < columns; c++) {
            float y = x[c] + bias[c];
            float u = -2 * 0.7978845608f * (y + 0.044715f * y * y * y);
            u = u > 87 ? 87 : u;
            u = u < -87 ? -87 : u;
            x[c] = y / (1 + exp_bounded(u));
        }
}

WIDE void add_gated(float *x, const float *gate, const float *y, const float *bias, int64_t rows)
{
    for (int64_t r = 0; r < rows; r++, x += DIM, y += DIM) {
        if (bias)
            for (int c = 0; c < DIM; c++) x[c] += gate[c] * (y[c] + bias[c]);
        else
            for (int c = 0; c < DIM; c++) x[c] += gate[c] * y[c];
    }
}

WIDE void to_bf16(const float *from, int64_t stride, uint16_t *to, int64_t to_stride, int64_t rows,
                  int64_t columns)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            uint32_t bits;
            memcpy(&bits, from + r * stride + c, sizeof bits);
            to[r * to_stride + c] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
        }
}
