/* main.c: draws a clip with emoji-dit. Attention runs in libattn, matrix products in OpenBLAS or cuBLAS. */
#include "exact.h"
#include "npy.h"
#include "options.h"
#include "progress.h"
#include "report.h"
#include "sampler.h"
#include "video_out.h"
#include <cblas.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Raised by ^C; libattn and the network look at it. */
static int32_t cancel;

static void on_interrupt(int signal)
{
    (void)signal;
    __atomic_store_n(&cancel, 1, __ATOMIC_RELAXED);
}

static void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is a failed write with a sentence */
}

/* ---- where the model is ------------------------------------------------------------------------- */

#define WEIGHTS_FILE "emoji-dit.safetensors"

typedef struct folders {
    char model[PATH_MAX]; /* with the weights and reference/ */
    char weights[PATH_MAX + 32];
    char reference[PATH_MAX + 32];
} folders;

/* The source tree of the build, else share/ beside the folder of the installed program. */
static void find_folders(folders *d, const char *weights)
{
    static const char installed[] = "/../share/attn/video-dit";
    snprintf(d->model, sizeof d->model, "%s", VIDEO_DIT_MODEL);
    if (access(d->model, R_OK | X_OK)) {
        char self[PATH_MAX] = "";
        ssize_t n = readlink("/proc/self/exe", self, sizeof self - sizeof installed);
        char *slash = n > 0 ? strrchr(self, '/') : NULL;
        if (slash) {
            memcpy(slash, installed, sizeof installed);
            if (!access(self, R_OK | X_OK)) memcpy(d->model, self, sizeof self);
        }
    }
    snprintf(d->weights, sizeof d->weights, "%s/%s", d->model, WEIGHTS_FILE);
    snprintf(d->reference, sizeof d->reference, "%s/reference", d->model);
    if (weights) snprintf(d->weights, sizeof d->weights, "%s", weights);
}

static int open_model(model *m, const folders *d, failure *f)
{
    if (access(d->weights, R_OK))
        return fail_errno(
            f,
            "the weights %s cannot be read; they are examples/video-dit/model/%s of libattn's source "
            "tree, and --weights FILE names another place",
            d->weights, WEIGHTS_FILE);
    return model_open(m, d->weights, f);
}

/* ---- the clip ----------------------------------------------------------------------------------- */

typedef struct app {
    options options;
    folders folders;
    model model;
    attention attention;
    pool *pool;
    scene scene;
    exact exact;
    network network;
    verdict verdict;
    fidelity fidelity;
    progress bar;
    int threads;
    double seconds;
} app;

static int read_scene(app *a, failure *f)
{
    const options *o = &a->options;
    scene *s = &a->scene;
    if (scene_parse_background(o->background, s->background, f)) return -1;
    if (o->no_condition) return 0;
    if (!o->objects && scene_default(&a->model, o->shape, s, f)) return -1;
    for (int i = 0; i < o->objects; i++)
        if (scene_parse_object(&a->model, o->object[i], &s->object[i], f)) return -1;
    if (o->objects) s->objects = o->objects;
    return scene_check(&a->model, s, o->shape, f);
}

static void after_block(void *user, int block)
{
    (void)block;
    progress_advance(&((app *)user)->bar);
}

/* Halfway there is picture and noise in q and k; that is where the error of attention is measured. */
static void after_step(void *user, int step, const network *n)
{
    app *a = user;
    (void)n;
    a->exact.armed = step + 1 == a->options.steps / 2;
}

static int run_steps(app *a, failure *f)
{
    network *n = &a->network;
    int64_t values = shape_values(a->options.shape);
    noise_fill(a->options.seed, n->velocity, values); /* the velocity is not needed yet */
    clip_to_tokens(a->options.shape, n->velocity, n->z);
    n->tap = exact_tap;
    n->tap_user = &a->exact;
    n->progress = after_block;
    n->progress_user = a;
    a->exact.armed = a->options.steps < 2;
    progress_begin(&a->bar, "drawing", (int64_t)a->options.steps * DEPTH, a->options.quiet);
    double start = seconds_now();
    int rc = sample(n, a->options.steps, after_step, a, f);
    a->seconds = seconds_now() - start - a->exact.seconds;
    double known = 0;
    for (int c = 0; c < CLOCKS; c++) known += n->clocks[c];
    n->clocks[CLOCK_OTHER] += a->seconds > known ? a->seconds - known : 0;
    progress_end(&a->bar);
    return rc;
}

static int write_clip(const options *o, const unsigned char *bytes, failure *f)
{
    const int64_t shape[] = {o->shape.frames, o->shape.height, o->shape.width, PIXEL};
    buffer gif = {0}, sheet = {0}, array = {0};
    int rc = gif_encode(&gif, o->shape, bytes, o->scale, f);
    if (!rc && o->sheet) rc = sheet_encode(&sheet, o->shape, bytes, o->scale, f);
    if (!rc && o->video) npy_encode_u8(&array, bytes, shape, 4);
    if (!rc) rc = file_write(o->out, &gif, f);
    if (!rc && o->sheet) rc = file_write(o->sheet, &sheet, f);
    if (!rc && o->video) rc = file_write(o->video, &array, f);
    buffer_drop(&gif);
    buffer_drop(&sheet);
    buffer_drop(&array);
    return rc;
}

static int save(app *a, failure *f)
{
    int64_t count = shape_values(a->options.shape);
    unsigned char *bytes = malloc((size_t)count);
    if (!bytes) return fail(f, ATTN_KIND_OUT_OF_MEMORY, "no memory for the bytes of the clip");
    tokens_to_clip(a->options.shape, a->network.z, a->network.velocity);
    clip_to_bytes(a->network.velocity, bytes, count);
    int rc = write_clip(&a->options, bytes, f);
    if (!rc && a->options.against)
        rc = fidelity_find(&a->fidelity, a->options.against, a->options.shape, bytes, f);
    free(bytes);
    return rc;
}

static int can_write(const options *o, failure *f)
{
    const char *const paths[] = {o->out, o->sheet, o->video};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (paths[i] && file_can_write(paths[i], f)) return -1;
    return 0;
}

static int check(app *a, const char *name, failure *f)
{
    return verify(&a->verdict, a->folders.reference, name, &a->model, &a->attention, a->pool,
                  a->options.quiet, f);
}

static int draw(app *a, failure *f)
{
    const options *o = &a->options;
    const char *same = verify_same_case(a->folders.reference, o->shape, &a->scene, o->seed, o->steps);
    if (!o->no_check && !same && check(a, "small", f)) return -1;
    if (exact_open(&a->exact, &cancel, a->threads, f)) return -1;
    if (network_open(&a->network, &a->model, &a->attention, a->pool, o->shape, &a->scene, f)) return -1;
    if (run_steps(a, f) || save(a, f)) return -1;
    return !o->no_check && same
               ? verify_clip(&a->verdict, a->folders.reference, same, &a->network, o->steps, f)
               : 0;
}

/* ---- the program -------------------------------------------------------------------------------- */

static int open_engine(app *a, failure *f)
{
    const options *o = &a->options;
    const attention_options wanted = {.backend = o->backend,
                                      .config = o->config,
                                      .self_params = o->self_params,
                                      .dtype = o->dtype,
                                      .threads = o->threads,
                                      .on_gpu = o->on_gpu,
                                      .cancel = &cancel};
    attn_context_info info = {.size = sizeof info};
    if (attention_open(&a->attention, &wanted, f)) return -1;
    attn_context_get_info(a->attention.context, &info);
    a->pool = pool_open(info.threads > 0 ? info.threads : 1);
    if (!a->pool) return fail(f, ATTN_KIND_OUT_OF_MEMORY, "no memory for threads");
    a->threads = pool_threads(a->pool);
    openblas_set_num_threads(1); /* pool.h says why */
    return 0;
}

static int run(app *a, failure *f)
{
    const options *o = &a->options;
    find_folders(&a->folders, o->weights);
    if (!o->verify && can_write(o, f)) return -1;
    if (o->against && access(o->against, R_OK))
        return fail_errno(f, "--against %s cannot be read; give a file that --video wrote", o->against);
    if (open_model(&a->model, &a->folders, f) || read_scene(a, f) || open_engine(a, f)) return -1;
    return o->verify ? check(a, o->verify, f) : draw(a, f);
}

static int finish(const app *a)
{
    const options *o = &a->options;
    int drawn = !o->verify, checked = o->verify || !o->no_check;
    const report r = {.options = o,
                      .attention = &a->attention,
                      .verdict = checked ? &a->verdict : NULL,
                      .exact = drawn ? &a->exact : NULL,
                      .network = drawn ? &a->network : NULL,
                      .fidelity = drawn && o->against ? &a->fidelity : NULL,
                      .steps = o->steps,
                      .threads = a->threads,
                      .seconds = a->seconds};
    report_print(&r);
    return checked && !report_verdict_good(o, &a->verdict) ? 1 : 0;
}

static void close_all(app *a)
{
    network_close(&a->network);
    exact_close(&a->exact);
    pool_close(a->pool);
    attention_close(&a->attention);
    model_close(&a->model);
}

static int stop(const char *program, const options *o, const failure *f)
{
    if (o->json) report_failure_json(f);
    fprintf(stderr, "%s: %s\n", program, f->text);
    return attn_kind_exit(f->kind);
}

int main(int argc, char **argv)
{
    static app a;
    failure f = {0};
    if (options_parse(&a.options, argc, argv, &f)) return stop("video-dit", &a.options, &f);
    if (a.options.help) options_help("video-dit");
    if (a.options.version) printf("video-dit with libattn %s\n", attn_version());
    if (a.options.help || a.options.version) return 0;
    catch_interrupts();
    int code = run(&a, &f) ? stop("video-dit", &a.options, &f) : finish(&a);
    close_all(&a);
    if (fflush(stdout) && code == 0) {
        perror("video-dit: cannot print the report");
        code = 4;
    }
    return code;
}
