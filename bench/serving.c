/* serving.c: what a paged cache costs. Batches of decodes and prefills over a bf16 cache in shuffled pages
 * and over plain packed tensors take turns; every number is a median. Prints Markdown; exit status 1 when a
 * ratio misses --most.
 *
 * The results of both ways are compared bit by bit before anything is timed. */
#include <attn/attn.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { HEADS = 32, KV_HEADS = 8, D = 128, REQUESTS = 18, ROUNDS_MAX = 101 };

typedef struct request {
    int64_t queries, keys;
} request;

typedef struct workload {
    const char *name;
    int count;
    request requests[REQUESTS];
} workload;

#define DECODE                                                                                               \
    {                                                                                                        \
        1, 4096                                                                                              \
    }
#define DECODES                                                                                              \
    DECODE, DECODE, DECODE, DECODE, DECODE, DECODE, DECODE, DECODE, DECODE, DECODE, DECODE, DECODE, DECODE,  \
        DECODE, DECODE, DECODE
#define PREFILLS                                                                                             \
    {2048, 2048},                                                                                            \
    {                                                                                                        \
        2048, 2048                                                                                           \
    }

static const workload workloads[] = {
    {"16 decodes of 4k context", 16, {DECODES}},
    {"2 prefills of 2k", 2, {PREFILLS}},
    {"both in one call", 18, {DECODES, PREFILLS}},
};
#define WORKLOADS (sizeof workloads / sizeof *workloads)

typedef struct options {
    int threads, rounds;
    int64_t block;
    double most;
} options;

/* A tensor of at most four axes over memory of its own, row-major. */
typedef struct array {
    DLTensor dl;
    int64_t shape[4];
} array;

static void stop(const char *what)
{
    fprintf(stderr, "serving: %s\n", what);
    exit(4);
}

static void make(array *a, attn_dtype dtype, int ndim, const int64_t *shape)
{
    size_t bytes = attn_dtype_bytes(dtype);
    memset(a, 0, sizeof *a);
    for (int i = 0; i < ndim; i++) bytes *= (size_t)(a->shape[i] = shape[i]);
    a->dl = (DLTensor){.data = aligned_alloc(64, (bytes + 127) / 64 * 64),
                       .device = {kDLCPU, 0},
                       .ndim = ndim,
                       .dtype = attn_dtype_to_dl(dtype),
                       .shape = a->shape};
    if (!a->dl.data) stop("no memory for the tensors");
    memset(a->dl.data, 0xff, bytes);
}

/* bf16 numbers in (-1, 1), the same in every run. */
static void fill(const array *a)
{
    static uint32_t x = 1;
    uint16_t *at = a->dl.data;
    int64_t n = 1;
    for (int i = 0; i < a->dl.ndim; i++) n *= a->shape[i];
    for (int64_t i = 0; i < n; i++) {
        float f;
        x = x * 1664525u + 1013904223u;
        f = (float)((int32_t)(x >> 24) - 128) / 128;
        memcpy(&at[i], (char *)&f + 2, 2);
    }
}

typedef struct batch {
    array q, out, dense_out, k, v, pages_k, pages_v, table, lengths, cu_q, cu_k;
    attn_cache cache;
    attn_args dense, paged;
} batch;

static int64_t most_blocks(const workload *w, int64_t block)
{
    int64_t most = 0;
    for (int b = 0; b < w->count; b++)
        if ((w->requests[b].keys + block - 1) / block > most)
            most = (w->requests[b].keys + block - 1) / block;
    return most;
}

static uint32_t draw(void)
{
    static uint32_t x = 12345;
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    return x;
}

/* Pages in an order without rule. */
static int32_t *shuffled(int64_t pages)
{
    int32_t *order = malloc((size_t)pages * sizeof *order);
    if (!order) stop("no memory for the pages");
    for (int64_t i = 0; i < pages; i++) order[i] = (int32_t)i;
    for (int64_t i = pages - 1; i > 0; i--) {
        int64_t j = draw() % (i + 1);
        int32_t held = order[i];
        order[i] = order[j], order[j] = held;
    }
    return order;
}

static void fill_pages(batch *t, const workload *w, int64_t block, int64_t pages)
{
    int64_t next = 0, row = KV_HEADS * D * 2, first = 0, width = t->table.shape[1];
    int32_t *table = t->table.dl.data, *order = shuffled(pages);
    for (int b = 0; b < w->count; b++) {
        int64_t keys = w->requests[b].keys;
        for (int64_t n = 0; n * block < keys; n++, next++) {
            int64_t page = order[next], rows = keys - n * block < block ? keys - n * block : block;
            table[b * width + n] = (int32_t)page;
            memcpy((char *)t->pages_k.dl.data + page * block * row,
                   (char *)t->k.dl.data + (first + n * block) * row, (size_t)(rows * row));
            memcpy((char *)t->pages_v.dl.data + page * block * row,
                   (char *)t->v.dl.data + (first + n * block) * row, (size_t)(rows * row));
        }
        first += keys;
    }
    free(order);
}

static void fill_vectors(batch *t, const workload *w)
{
    int32_t *q = t->cu_q.dl.data, *k = t->cu_k.dl.data, *lengths = t->lengths.dl.data;
    q[0] = k[0] = 0;
    for (int b = 0; b < w->count; b++) {
        q[b + 1] = q[b] + (int32_t)w->requests[b].queries;
        k[b + 1] = k[b] + (int32_t)w->requests[b].keys;
        lengths[b] = (int32_t)w->requests[b].keys;
    }
}

static void make_batch(batch *t, const workload *w, int64_t block)
{
    int64_t queries = 0, keys = 0, pages = 0, n = w->count;
    for (int b = 0; b < n; b++) {
        queries += w->requests[b].queries, keys += w->requests[b].keys;
        pages += (w->requests[b].keys + block - 1) / block;
    }
    make(&t->q, ATTN_BF16, 3, (int64_t[]){queries, HEADS, D});
    make(&t->out, ATTN_BF16, 3, t->q.shape);
    make(&t->dense_out, ATTN_BF16, 3, t->q.shape);
    make(&t->k, ATTN_BF16, 3, (int64_t[]){keys, KV_HEADS, D});
    make(&t->v, ATTN_BF16, 3, t->k.shape);
    make(&t->pages_k, ATTN_BF16, 4, (int64_t[]){pages, block, KV_HEADS, D});
    make(&t->pages_v, ATTN_BF16, 4, t->pages_k.shape);
    make(&t->table, ATTN_I32, 2, (int64_t[]){n, most_blocks(w, block)});
    make(&t->lengths, ATTN_I32, 1, &n);
    make(&t->cu_q, ATTN_I32, 1, (int64_t[]){n + 1});
    make(&t->cu_k, ATTN_I32, 1, (int64_t[]){n + 1});
    fill(&t->q), fill(&t->k), fill(&t->v);
    fill_pages(t, w, block, pages);
    fill_vectors(t, w);
    t->cache = (attn_cache){.size = sizeof t->cache, .k = &t->pages_k.dl, .v = &t->pages_v.dl};
    t->dense = (attn_args){.size = sizeof t->dense,
                           .q = &t->q.dl,
                           .k = &t->k.dl,
                           .v = &t->v.dl,
                           .out = &t->dense_out.dl,
                           .cu_seqlens_q = &t->cu_q.dl,
                           .cu_seqlens_k = &t->cu_k.dl};
    t->paged = (attn_args){.size = sizeof t->paged,
                           .q = &t->q.dl,
                           .out = &t->out.dl,
                           .cu_seqlens_q = &t->cu_q.dl,
                           .kv_lengths = &t->lengths.dl,
                           .cache = &t->cache,
                           .block_table = &t->table.dl};
}

static void free_batch(batch *t)
{
    array *all[] = {&t->q,       &t->out,   &t->dense_out, &t->k,    &t->v,   &t->pages_k,
                    &t->pages_v, &t->table, &t->lengths,   &t->cu_q, &t->cu_k};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]->dl.data);
}

/* One thread by its CPU clock, which does not count what others do; more by wall time. */
static double seconds(int threads)
{
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double time_call(attn_layer *layer, const attn_args *args, int threads)
{
    attn_error error = ATTN_ERROR_INIT;
    double start = seconds(threads);
    if (attn_forward(layer, args, &error)) stop(error.text);
    return seconds(threads) - start;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, ascending);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

/* Returns the ratio. */
static double measure(attn_context *context, const workload *w, const options *o)
{
    static double dense[ROUNDS_MAX], paged[ROUNDS_MAX];
    attn_layer_options site = {.size = sizeof site,
                               .heads = HEADS,
                               .kv_heads = KV_HEADS,
                               .head_dim = D,
                               .causal = 1,
                               .dtype = ATTN_BF16};
    attn_layer *layers[2];
    attn_error error = ATTN_ERROR_INIT;
    batch t;
    for (int i = 0; i < 2; i++)
        if (attn_layer_open(context, &site, &layers[i], &error)) stop(error.text);
    make_batch(&t, w, o->block);
    time_call(layers[0], &t.dense, o->threads);
    time_call(layers[1], &t.paged, o->threads);
    if (memcmp(t.out.dl.data, t.dense_out.dl.data, (size_t)(t.q.shape[0] * HEADS * D * 2)))
        stop("the paged result differs from that of plain tensors");
    for (int i = 0; i < o->rounds; i++) {
        dense[i] = time_call(layers[0], &t.dense, o->threads);
        paged[i] = time_call(layers[1], &t.paged, o->threads);
    }
    double a = median(dense, o->rounds), b = median(paged, o->rounds);
    printf("| %s | %.2f | %.2f | %.3f |\n", w->name, a * 1e3, b * 1e3, b / a);
    fflush(stdout);
    free_batch(&t);
    attn_layer_close(layers[0]);
    attn_layer_close(layers[1]);
    return b / a;
}

static int usage(FILE *to, int code)
{
    fputs("usage: serving [--threads N] [--rounds N] [--block N] [--most X]\n"
          "Times batches over a paged bf16 cache in turns with the same work on plain packed tensors.\n"
          "--threads N   1 (CPU time of the thread) or more (wall time); default 1\n"
          "--rounds N    median of so many; default 9\n"
          "--block N     tokens of a page; default 16\n"
          "--most X      exit status 1 when a call costs more than X times its plain form; default: never\n",
          to);
    return code;
}

static int read_options(int argc, char **argv, options *o)
{
    static const struct option rows[] = {{"threads", 1, NULL, 't'}, {"rounds", 1, NULL, 'r'},
                                         {"block", 1, NULL, 'b'},   {"most", 1, NULL, 'm'},
                                         {"help", 0, NULL, 'h'},    {NULL, 0, NULL, 0}};
    for (int c; (c = getopt_long(argc, argv, "t:r:b:m:h", rows, NULL)) != -1;) {
        if (c == 't') o->threads = atoi(optarg);
        if (c == 'r') o->rounds = atoi(optarg);
        if (c == 'b') o->block = atoll(optarg);
        if (c == 'm') o->most = atof(optarg);
        if (c == 'h') exit(usage(stdout, 0));
        if (c == '?') return 0;
    }
    return optind == argc && o->threads > 0 && o->rounds > 0 && o->rounds <= ROUNDS_MAX && o->block > 0;
}

int main(int argc, char **argv)
{
    options o = {.threads = 1, .rounds = 9, .block = 16};
    attn_context *context;
    attn_error error = ATTN_ERROR_INIT;
    int missed = 0;
    if (!read_options(argc, argv, &o)) return usage(stderr, 2);
    attn_options opening = {
        .size = sizeof opening, .threads = o.threads, .backend = "FLASH_ATTN", .module_path = ""};
    if (attn_open(&opening, &context, &error)) stop(error.text);
    attn_context_info info = {.size = sizeof info};
    attn_context_get_info(context, &info);
    printf("    serving --threads %d --rounds %d --block %lld\n\n", o.threads, o.rounds, (long long)o.block);
    printf(
        "libattn %s on %s, kernels %s, %d heads over %d, head size %d, bf16, causal; medians of %s time.\n\n",
        attn_version(), info.cpu, info.isa, HEADS, KV_HEADS, D, o.threads == 1 ? "thread CPU" : "wall");
    printf("| batch | plain ms | paged ms | ratio |\n|---|---|---|---|\n");
    for (size_t i = 0; i < WORKLOADS; i++) {
        double ratio = measure(context, &workloads[i], &o);
        missed += o.most > 0 && ratio > o.most;
    }
    attn_close(context);
    return missed > 0;
}
