/* fidelity.c: PSNR and SSIM of two clips. */
#include "fidelity.h"
#include "npy.h"
#include <math.h>

double fidelity_psnr(const unsigned char *a, const unsigned char *b, int64_t count)
{
    double squares = 0;
    for (int64_t i = 0; i < count; i++) squares += (a[i] - b[i]) * (a[i] - b[i]);
    return squares > 0 ? 10 * log10(255.0 * 255 * (double)count / squares) : INFINITY;
}

/* Structural similarity (Wang et al., 2004): a window of 11 x 11 pixels, gaussian of 1.5 pixels, inside the
 * frame. */
enum { WINDOW = 11 };
#define SIGMA 1.5

static void window_weights(double *weights)
{
    double sum = 0;
    for (int y = 0; y < WINDOW; y++)
        for (int x = 0; x < WINDOW; x++) {
            double dy = y - WINDOW / 2, dx = x - WINDOW / 2;
            sum += weights[y * WINDOW + x] = exp(-(dy * dy + dx * dx) / (2 * SIGMA * SIGMA));
        }
    for (int i = 0; i < WINDOW * WINDOW; i++) weights[i] /= sum;
}

/* At one place of one colour; a row of pixels is `row` bytes. */
static double similarity(const unsigned char *a, const unsigned char *b, int64_t row, const double *weights)
{
    const double c1 = 0.01 * 255 * 0.01 * 255, c2 = 0.03 * 255 * 0.03 * 255;
    double ma = 0, mb = 0, aa = 0, bb = 0, ab = 0;
    for (int y = 0; y < WINDOW; y++)
        for (int x = 0; x < WINDOW; x++) {
            double w = weights[y * WINDOW + x];
            double p = a[y * row + x * PIXEL], q = b[y * row + x * PIXEL];
            ma += w * p, mb += w * q;
            aa += w * p * p, bb += w * q * q, ab += w * p * q;
        }
    return (2 * ma * mb + c1) * (2 * (ab - ma * mb) + c2) /
           ((ma * ma + mb * mb + c1) * (aa - ma * ma + bb - mb * mb + c2));
}

/* The mean over places, colours and frames. */
static double ssim(clip_shape s, const unsigned char *a, const unsigned char *b)
{
    double weights[WINDOW * WINDOW], sum = 0;
    int64_t row = s.width * PIXEL, places = 0;
    window_weights(weights);
    for (int64_t t = 0; t < s.frames; t++)
        for (int64_t y = 0; y + WINDOW <= s.height; y++)
            for (int64_t i = 0; i < (s.width - WINDOW + 1) * PIXEL; i++, places++) {
                int64_t at = (t * s.height + y) * row + i;
                sum += similarity(a + at, b + at, row, weights);
            }
    return places ? sum / (double)places : NAN;
}

int fidelity_find(fidelity *to, const char *path, clip_shape shape, const unsigned char *bytes, failure *f)
{
    npy a;
    if (npy_read(&a, path, "|u1", f)) return -1;
    int same = a.rank == 4 && a.shape[0] == shape.frames && a.shape[1] == shape.height &&
               a.shape[2] == shape.width && a.shape[3] == PIXEL;
    if (same) {
        to->psnr = fidelity_psnr(bytes, a.data, a.count);
        to->ssim = ssim(shape, bytes, a.data);
    }
    npy_drop(&a);
    return same ? 0
                : fail(f, ATTN_KIND_INVALID_SHAPE,
                       "--against %s is no clip of %lldx%lldx%lld; give one that --video wrote with the same "
                       "--size",
                       path, (long long)shape.frames, (long long)shape.height, (long long)shape.width);
}
