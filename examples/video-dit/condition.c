/* condition.c: encodes a scene as context tokens (section 2 of MODEL.md). Once per clip, so it is plain. */
#include "linear.h"
#include "rowops.h"
#include "scene.h"
#include <string.h>

static void encode_frame(const model *m, clip_shape s, float *to)
{
    const double u[] = {s.width / 64.0, s.height / 64.0, s.frames / 16.0};
    float features[3 * FEATURE];
    fourier(u, 3, features);
    linear(m->frame_w, NULL, features, to, DIM, 3 * FEATURE);
}

static void encode_background(const model *m, const unsigned char *rgb, float *to)
{
    double u[PIXEL];
    float features[3 * FEATURE];
    for (int c = 0; c < PIXEL; c++) u[c] = rgb[c] / 127.5 - 1;
    fourier(u, PIXEL, features);
    linear(m->scene_w, m->scene_b, features, to, DIM, 3 * FEATURE);
}

static void encode_object(const model *m, const object *o, clip_shape s, float *to)
{
    double way_x = (double)s.width - o->size,
           way_y = (double)s.height - o->size; /* of the centre between the walls */
    const double u[] = {o->x / 64,
                        o->y / 64,
                        o->vx / 4,
                        o->vy / 4,
                        o->size / 32,
                        (o->x - o->size / 2) / way_x,
                        (o->y - o->size / 2) / way_y,
                        8 * o->vx / way_x,
                        8 * o->vy / way_y};
    float features[9 * FEATURE];
    fourier(u, 9, features);
    linear(m->object_w, m->object_b, features, to, DIM, 9 * FEATURE);
    for (int c = 0; c < DIM; c++) to[c] += m->class_embed[o->id * DIM + c];
}

/* h + slot, then the residual MLP, then LN. */
static void finish_token(const model *m, int slot, float *h)
{
    float a[DIM], b[DIM];
    for (int c = 0; c < DIM; c++) h[c] += m->slot_embed[slot * DIM + c];
    linear(m->cond_fc1_w, m->cond_fc1_b, h, a, DIM, DIM);
    silu(a, DIM);
    linear(m->cond_fc2_w, m->cond_fc2_b, a, b, DIM, DIM);
    for (int c = 0; c < DIM; c++) h[c] += b[c];
    layer_norm(h, NULL, NULL, h, 1);
}

void scene_encode(const model *m, const scene *s, clip_shape shape, float *context, unsigned char *valid)
{
    float frame[DIM];
    memset(context, 0, SLOTS * DIM * sizeof *context);
    memset(valid, 0, SLOTS);
    encode_frame(m, shape, frame);
    for (int j = 0; j <= s->objects; j++) {
        float *h = context + j * DIM;
        if (j > 0)
            encode_object(m, &s->object[j - 1], shape, h);
        else if (s->objects)
            encode_background(m, s->background, h);
        else
            memcpy(h, m->null_scene, DIM * sizeof *h);
        for (int c = 0; c < DIM && s->objects; c++) h[c] += frame[c];
        finish_token(m, j, h);
        valid[j] = 1;
    }
}
