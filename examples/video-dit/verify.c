/* verify.c: one reference case of reference.json, from its noise to its video. */
#include "verify.h"
#include "fidelity.h"
#include "npy.h"
#include "progress.h"
#include "sampler.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char RELATIVE[] = "relative", LARGEST[] = "largest", LEVELS[] = "levels", SUMS[] = "sums";

typedef struct state {
    verdict *v;
    const char *folder;
    const json_t *reference; /* of the case */
    float *clip;             /* room for a clip */
    int64_t values;
    int first_call; /* taps compare during the network call at t = 1 */
} state;

static void add_row(verdict *v, const char *name, const char *measure, double value, double limit)
{
    if (v->count == COMPARISONS) return;
    comparison *row = &v->rows[v->count++];
    *row = (comparison){.measure = measure, .value = value, .limit = limit};
    snprintf(row->name, sizeof row->name, "%s", name);
    if (!(value <= limit)) v->values_good = 0; /* also when it is not a number */
}

static void array_path(const state *s, const char *name, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/%s_%s.npy", s->folder, s->v->name, name);
}

/* ---- against arrays ----------------------------------------------------------------------------- */

static double distance(const float *a, int64_t stride, const float *b, int64_t rows, int64_t columns,
                       const char *measure)
{
    double difference = 0, norm = 0, largest = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            double want = b[r * columns + c], d = a[r * stride + c] - want;
            difference += d * d;
            norm += want * want;
            if (!(fabs(d) <= largest)) largest = fabs(d);
        }
    return measure == LARGEST ? largest : sqrt(difference / norm);
}

/* Returns 0 also when the case has no such array. */
static int compare_array(state *s, const char *name, const float *data, int64_t rows, int64_t columns,
                         int64_t stride, const char *measure, double limit, failure *f)
{
    char path[4096];
    npy a;
    array_path(s, name, path, sizeof path);
    if (access(path, F_OK)) return 0;
    if (npy_read(&a, path, "<f4", f)) return -1;
    int rc = 0;
    if (a.count < rows * columns)
        rc = fail(f, ATTN_KIND_IO, "%s has %lld values, expected at least %lld", path, (long long)a.count,
                  (long long)(rows * columns));
    else
        add_row(s->v, name, measure, distance(data, stride, a.data, rows, columns, measure), limit);
    npy_drop(&a);
    return rc;
}

static int compare_clip(state *s, const char *name, const network *n, const float *tokens,
                        const char *measure, double limit, failure *f)
{
    tokens_to_clip(n->shape, tokens, s->clip);
    return compare_array(s, name, s->clip, 1, s->values, s->values, measure, limit, f);
}

static int64_t count_valid(const network *n)
{
    int64_t count = 0;
    while (count < SLOTS && n->valid[count]) count++;
    return count;
}

/* ---- against sums ------------------------------------------------------------------------------- */

static double sum_distance(const json_t *entry, const char *key, double found, double norm)
{
    return fabs(json_number_value(json_object_get(entry, key)) - found) / norm;
}

/* reference.json has three sums of h around every block, for both cases. */
static void compare_sums(state *s, const char *key, int block, const network *n)
{
    char name[32];
    const json_t *checks = json_object_get(s->reference, "checks_t1");
    const json_t *entry = json_array_get(json_object_get(checks, key), (size_t)block);
    double sum = 0, sum_abs = 0, sum_sq = 0;
    if (!entry) return;
    for (int64_t i = 0; i < n->tokens * DIM; i++) {
        double x = n->h[i];
        sum += x;
        sum_abs += fabs(x);
        sum_sq += x * x;
    }
    double worst = sum_distance(entry, "sum", sum, sum_abs);
    worst = fmax(worst, sum_distance(entry, "sum_abs", sum_abs, sum_abs));
    worst = fmax(worst, sum_distance(entry, "sum_sq", sum_sq, sum_sq));
    snprintf(name, sizeof name, "%s[%d]", key, block);
    add_row(s->v, name, SUMS, worst, 1e-5);
}

/* ---- the run ------------------------------------------------------------------------------------ */

static int tap(void *user, int point, int block, const network *n, failure *f)
{
    state *s = user;
    int rc = 0;
    if (!s->first_call) return 0;
#define K(name, at, data, rows, columns, stride, measure, limit)                                             \
    if (!rc && point == at && block == 0)                                                                    \
        rc = compare_array(s, name, data, rows, columns, stride, measure, limit, f);
#include "checks.def"
    if (point == TAP_BLOCK_IN) compare_sums(s, "block_in", block, n);
    if (point == TAP_BLOCK_OUT) compare_sums(s, "block_out", block, n);
    if (!rc && point == TAP_VELOCITY) rc = compare_clip(s, "v_t1", n, n->velocity, RELATIVE, 1e-5, f);
    if (point == TAP_VELOCITY) s->first_call = 0;
    return rc;
}

typedef struct step_state {
    state *s;
    int rc;
    failure *f;
} step_state;

static void after_step(void *user, int step, const network *n)
{
    step_state *t = user;
    if (step == 0) t->rc = compare_clip(t->s, "x_step1", n, n->z, LARGEST, 2e-4, t->f);
}

static int compare_video(state *s, failure *f)
{
    char path[4096];
    npy a;
    verdict *v = s->v;
    double largest = 0;
    array_path(s, "video", path, sizeof path);
    if (npy_read(&a, path, "|u1", f)) return -1;
    unsigned char *bytes = malloc((size_t)s->values);
    int rc = bytes && a.count == s->values
                 ? 0
                 : fail(f, ATTN_KIND_IO, "%s does not have %lld bytes", path, (long long)s->values);
    if (!rc) clip_to_bytes(s->clip, bytes, s->values);
    for (int64_t i = 0; !rc && i < s->values; i++) {
        double d = bytes[i] - ((const unsigned char *)a.data)[i];
        v->differing += d != 0;
        largest = fmax(largest, fabs(d));
    }
    v->bytes = s->values;
    if (!rc) v->psnr = fidelity_psnr(bytes, a.data, s->values);
    v->psnr_good = v->psnr >= PSNR_LIMIT;
    add_row(v, "video", LEVELS, largest, 1);
    free(bytes);
    npy_drop(&a);
    return rc;
}

static int run_case(state *s, network *n, uint64_t seed, failure *f)
{
    step_state t = {s, 0, f};
    double start = seconds_now();
    noise_fill(seed, s->clip, s->values);
    if (compare_array(s, "noise", s->clip, 1, s->values, s->values, LARGEST, 1e-6, f)) return -1;
    clip_to_tokens(n->shape, s->clip, n->z);
    s->first_call = 1;
    if (sample(n, s->v->steps, after_step, &t, f) || t.rc) return -1;
    if (compare_clip(s, "x_final", n, n->z, LARGEST, 2e-4, f) || compare_video(s, f)) return -1;
    s->v->seconds = seconds_now() - start;
    return 0;
}

/* ---- reading a case ----------------------------------------------------------------------------- */

static int64_t whole(const json_t *array, size_t i)
{
    return json_integer_value(json_array_get(array, i));
}

static int read_scene(const json_t *c, scene *s, failure *f)
{
    const json_t *ids = json_object_get(c, "class_ids"), *list = json_object_get(c, "objects");
    const char *background = json_string_value(json_object_get(c, "background"));
    *s = (scene){.objects = (int)json_array_size(list)};
    for (int i = 0; i < s->objects && i < OBJECTS; i++) {
        double n[5];
        const json_t *o = json_array_get(list, (size_t)i);
        for (size_t j = 0; j < 5; j++) n[j] = json_number_value(json_array_get(o, j + 1));
        s->object[i] = (object){(int)whole(ids, (size_t)i), n[0], n[1], n[2], n[3], n[4]};
        if (s->object[i].id < 0 || s->object[i].id > CLASSES) s->objects = OBJECTS + 1;
    }
    if (s->objects > OBJECTS || !background)
        return fail(f, ATTN_KIND_IO, "reference.json does not describe a scene");
    return scene_parse_background(background, s->background, f);
}

static int read_shape(const json_t *c, clip_shape *s, failure *f)
{
    const json_t *shape = json_object_get(c, "shape");
    *s = (clip_shape){whole(shape, 0), whole(shape, 1), whole(shape, 2)};
    if (s->frames > 0 && s->height > 0 && s->width > 0 && s->frames < 1024 && s->height < 1024 &&
        s->width < 1024 && s->height % PATCH == 0 && s->width % PATCH == 0)
        return 0;
    return fail(f, ATTN_KIND_IO, "reference.json has a case without a usable shape");
}

static json_t *read_reference(const char *folder, failure *f)
{
    char path[4096];
    json_error_t error;
    snprintf(path, sizeof path, "%s/reference.json", folder);
    json_t *all = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!all) fail(f, ATTN_KIND_IO, "cannot read %s: line %d: %s", path, error.line, error.text);
    return all;
}

static void advance(void *user, int block)
{
    (void)block;
    progress_advance(user);
}

static int open_and_run(state *s, const scene *what, const model *m, const attention *a, pool *p, int quiet,
                        failure *f)
{
    char title[64];
    network n;
    progress bar;
    uint64_t seed = (uint64_t)json_integer_value(json_object_get(s->reference, "seed"));
    if (network_open(&n, m, a, p, s->v->shape, what, f)) return -1;
    snprintf(title, sizeof title, "reference case '%s'", s->v->name);
    progress_begin(&bar, title, (int64_t)s->v->steps * DEPTH, quiet);
    n.tap = tap;
    n.tap_user = s;
    n.progress = advance;
    n.progress_user = &bar;
    int rc = run_case(s, &n, seed, f);
    progress_end(&bar);
    network_close(&n);
    return rc;
}

static int read_case(state *s, const json_t *all, scene *what, failure *f)
{
    verdict *v = s->v;
    s->reference = json_object_get(all, v->name);
    v->steps = (int)json_integer_value(json_object_get(s->reference, "steps"));
    if (v->steps < 1) return fail(f, ATTN_KIND_IO, "reference.json has no case '%s' with steps", v->name);
    if (read_shape(s->reference, &v->shape, f) || read_scene(s->reference, what, f)) return -1;
    s->values = shape_values(v->shape);
    s->clip = malloc((size_t)s->values * sizeof *s->clip);
    return s->clip ? 0 : fail(f, ATTN_KIND_OUT_OF_MEMORY, "no memory for the clip of the reference case");
}

static const char *const case_names[] = {"small", "large"};

static int same_scene(const scene *a, const scene *b)
{
    int same = a->objects == b->objects && !memcmp(a->background, b->background, sizeof a->background);
    for (int i = 0; same && i < a->objects; i++) {
        const object *x = &a->object[i], *y = &b->object[i];
        same = x->id == y->id && x->x == y->x && x->y == y->y && x->vx == y->vx && x->vy == y->vy &&
               x->size == y->size;
    }
    return same;
}

static int same_case(const json_t *c, clip_shape shape, const scene *s, uint64_t seed, int steps)
{
    failure ignored;
    scene other;
    clip_shape t;
    return json_integer_value(json_object_get(c, "steps")) == steps &&
           (uint64_t)json_integer_value(json_object_get(c, "seed")) == seed && !read_shape(c, &t, &ignored) &&
           t.frames == shape.frames && t.height == shape.height && t.width == shape.width &&
           !read_scene(c, &other, &ignored) && same_scene(&other, s);
}

const char *verify_same_case(const char *folder, clip_shape shape, const scene *s, uint64_t seed, int steps)
{
    failure ignored;
    const char *found = NULL;
    json_t *all = read_reference(folder, &ignored);
    for (size_t i = 0; i < sizeof case_names / sizeof *case_names; i++)
        if (same_case(json_object_get(all, case_names[i]), shape, s, seed, steps)) found = case_names[i];
    json_decref(all);
    return found;
}

int verify_clip(verdict *v, const char *folder, const char *name, const network *n, int steps, failure *f)
{
    state s = {.v = v, .folder = folder, .values = shape_values(n->shape)};
    *v = (verdict){.name = name, .shape = n->shape, .steps = steps, .values_good = 1};
    s.clip = malloc((size_t)s.values * sizeof *s.clip);
    if (!s.clip) return fail(f, ATTN_KIND_OUT_OF_MEMORY, "no memory to compare the clip");
    tokens_to_clip(n->shape, n->z, s.clip);
    int rc = compare_video(&s, f);
    free(s.clip);
    return rc;
}

int verify(verdict *v, const char *folder, const char *name, const model *m, const attention *a, pool *p,
           int quiet, failure *f)
{
    scene what;
    state s = {.v = v, .folder = folder};
    *v = (verdict){.name = name, .values_good = 1};
    json_t *all = read_reference(folder, f);
    if (!all) return -1;
    int rc = read_case(&s, all, &what, f);
    if (!rc) rc = open_and_run(&s, &what, m, a, p, quiet, f);
    free(s.clip);
    json_decref(all);
    return rc;
}
