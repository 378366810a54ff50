/* block_map.c: fuzz target of block maps: what the check lets through runs alike on both implementations, and
 * what it refuses a call refuses as well. The arrays have exactly the size that the tensors say, so that a
 * sanitizer sees every step beyond them.
 *
 * With libFuzzer (ATTN_FUZZ=ON) it is driven by that. Otherwise: block_map FILE... replays inputs, block_map
 * --random N makes N of its own. */
#include <attn/attn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADS = 2, WIDTH = 8, HEADER = 12 };

#define MUST(condition)                                                                                      \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                  \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

typedef struct input {
    int64_t q_len, kv_len, block_q, block_k;
    int64_t count_shape[3], block_shape[4], count_strides[3], block_strides[4];
    DLTensor counts, blocks;
    attn_block_map map;
} input;

/* Bytes of the input after each other; zeros at the end. */
typedef struct reader {
    const uint8_t *at, *end;
} reader;

static uint8_t byte(reader *r)
{
    return r->at < r->end ? *r->at++ : 0;
}

/* A number that is mostly one of the `usual` first ones, now and then strange. */
static int64_t number(reader *r, int64_t usual)
{
    uint8_t b = byte(r);
    if (b < 250) return b % usual;
    static const int64_t strange[] = {-1, INT64_MAX, INT64_MIN, INT32_MAX, (int64_t)1 << 40, 255};
    return strange[b - 250];
}

static int32_t *make_array(reader *r, const int64_t *shape, int ndim, int64_t usual)
{
    int64_t count = 1;
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0 || shape[i] > 64) return NULL;
        count *= shape[i];
    }
    int32_t *array = malloc((size_t)count * sizeof *array + (count == 0));
    MUST(array);
    for (int64_t i = 0; i < count; i++) array[i] = (int32_t)number(r, usual);
    return array;
}

static void read_input(reader *r, input *in)
{
    static const int64_t sizes[] = {16, 1, 17, 32, 64, 20, 128, 0};
    in->q_len = byte(r) % 80;
    in->kv_len = byte(r) % 120;
    in->block_q = byte(r) < 250 ? sizes[byte(r) % 7] : number(r, 3);
    in->block_k = byte(r) < 250 ? sizes[byte(r) % 7] : number(r, 3);
    int64_t rows = in->block_q > 0 ? (in->q_len + in->block_q - 1) / in->block_q : 1;
    if (byte(r) > 240) rows = number(r, 5);
    in->count_shape[0] = 1;
    in->count_shape[1] = byte(r) % 2 ? HEADS : byte(r) > 250 ? number(r, 4) : 1;
    in->count_shape[2] = rows;
    memcpy(in->block_shape, in->count_shape, sizeof in->count_shape);
    in->block_shape[3] = byte(r) % 9;
    if (byte(r) > 240) in->block_shape[2] = number(r, 5);
    in->counts = (DLTensor){
        make_array(r, in->count_shape, 3, 5), {kDLCPU, 0}, 3, {kDLInt, 32, 1}, in->count_shape, NULL, 0};
    in->blocks = (DLTensor){
        make_array(r, in->block_shape, 4, 9), {kDLCPU, 0}, 4, {kDLInt, 32, 1}, in->block_shape, NULL, 0};
    in->map = (attn_block_map){sizeof in->map, 0,          in->block_q, in->block_k,
                               in->q_len,      in->kv_len, &in->counts, &in->blocks};
    if (byte(r) > 248) in->map.blocks = NULL;
    if (byte(r) > 248) in->counts.dtype.bits = 64;
}

/* Half of the lists are put in order, so that many maps are good ones. */
static void mend(reader *r, input *in)
{
    int32_t *counts = in->counts.data, *blocks = in->blocks.data;
    if (byte(r) % 2 || !counts || !blocks || in->block_shape[2] != in->count_shape[2]) return;
    for (int64_t n = 0; n < in->count_shape[1] * in->count_shape[2]; n++) {
        int32_t next = 0;
        for (int64_t j = 0; j < in->block_shape[3]; j++) {
            next += blocks[n * in->block_shape[3] + j] % 3 + (j > 0);
            blocks[n * in->block_shape[3] + j] = next;
        }
        int64_t most = in->block_k > 0 ? (in->kv_len + in->block_k - 1) / in->block_k : 0, fits = 0;
        while (fits < in->block_shape[3] && blocks[n * in->block_shape[3] + fits] < most) fits++;
        if (counts[n] > fits) counts[n] = (int32_t)fits;
    }
}

static attn_status run(const input *in, const char *backend, float *out, attn_error *error)
{
    static float q[80 * HEADS * WIDTH], k[120 * HEADS * WIDTH];
    for (int i = 0; i < 80 * HEADS * WIDTH; i++) q[i] = (float)(i * 37 % 101) / 50 - 1;
    for (int i = 0; i < 120 * HEADS * WIDTH; i++) k[i] = (float)(i * 53 % 103) / 51 - 1;
    int64_t rows[] = {1, in->q_len, HEADS, WIDTH}, keys[] = {1, in->kv_len, HEADS, WIDTH};
    DLTensor tq = {q, {kDLCPU, 0}, 4, {kDLFloat, 32, 1}, rows, NULL, 0}, tk = tq, tout = tq;
    tk.data = k, tk.shape = keys, tout.data = out;
    attn_context *context = NULL;
    attn_layer *layer = NULL;
    attn_options options = {.size = sizeof options, .backend = backend, .module_path = "", .threads = 1};
    attn_layer_options site = {.size = sizeof site, .heads = HEADS, .head_dim = WIDTH};
    attn_args args = {.size = sizeof args, .q = &tq, .k = &tk, .v = &tk, .out = &tout, .block_map = &in->map};
    attn_status status = attn_open(&options, &context, error);
    if (!status) status = attn_layer_open(context, &site, &layer, error);
    if (!status) status = attn_forward(layer, &args, error);
    attn_layer_close(layer);
    attn_close(context);
    return status;
}

static void check_values(const input *in)
{
    attn_error error = ATTN_ERROR_INIT;
    attn_block_stats stats = {.size = sizeof stats};
    attn_block_map *other = NULL;
    char text[256];
    size_t needed;
    MUST(attn_block_map_stats(&in->map, -1, -1, &stats, &error) == ATTN_OK);
    MUST(stats.kept >= 0 && stats.kept <= stats.total && stats.share >= 0 && stats.share <= 1.0000001);
    if (stats.heads > 0)
        MUST(attn_block_map_text(&in->map, 0, 0, text, sizeof text, &needed, &error) == ATTN_OK);
    if (attn_block_map_convert(&in->map, 24, 40, &other, NULL, &error) == ATTN_OK) {
        MUST(attn_block_map_check(other, &error) == ATTN_OK);
        attn_block_map_free(other);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    reader r = {data, data + size};
    input in;
    attn_error error = ATTN_ERROR_INIT;
    float out[2][80 * HEADS * WIDTH];
    memset(out, 0, sizeof out);
    read_input(&r, &in);
    mend(&r, &in);
    int good = attn_block_map_check(&in.map, &error) == ATTN_OK;
    if (good) check_values(&in);
    attn_status plain = run(&in, "TORCH_SDPA", out[0], &error),
                flash = run(&in, "FLASH_ATTN", out[1], &error);
    if (!good && in.q_len && in.kv_len) MUST(plain == ATTN_INVALID_ARGUMENT || plain == ATTN_OUT_OF_MEMORY);
    if (plain) MUST(flash == plain);
    for (int64_t i = 0; !plain && !flash && i < in.q_len * HEADS * WIDTH; i++)
        MUST(fabsf(out[0][i] - out[1][i]) < 1e-4f); /* a NaN is no less */
    free(in.counts.data);
    free(in.blocks.data);
    return 0;
}

#ifndef ATTN_FUZZ
static int replay(const char *path)
{
    uint8_t data[4096];
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "%s cannot be read\n", path);
        return 1;
    }
    size_t size = fread(data, 1, sizeof data, f);
    fclose(f);
    LLVMFuzzerTestOneInput(data, size);
    return 0;
}

static int make_inputs(long count)
{
    uint32_t state = 12345;
    uint8_t data[512];
    for (long n = 0; n < count; n++) {
        for (size_t i = 0; i < sizeof data; i++) {
            state = state * 1664525u + 1013904223u;
            data[i] = (uint8_t)(state >> 24);
        }
        LLVMFuzzerTestOneInput(data, (state >> 8) % sizeof data);
    }
    printf("%ld inputs\n", count);
    return 0;
}

int main(int argc, char **argv)
{
    int failed = 0;
    if (argc == 3 && !strcmp(argv[1], "--random")) return make_inputs(atol(argv[2]));
    for (int i = 1; i < argc; i++) failed |= replay(argv[i]);
    printf("%d inputs\n", argc - 1);
    return failed;
}
#endif
