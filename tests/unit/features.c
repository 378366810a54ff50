/* features.c: what a call may ask for, on both implementations, against the plain double evaluation. */
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define F32_TOLERANCE 2e-5

static void check(test_call *c, const char *label, keep_fn keep, double atol)
{
    tensor out, lse;
    call_run(c);
    call_truth(c, keep, &out, &lse);
    tensor_near(label, &c->out.dl, &out.dl, atol);
    if (c->args.lse) tensor_near(label, &c->lse.dl, &lse.dl, atol);
    tensor_free(&out);
    tensor_free(&lse);
}

static void start(test_call *c, const char *backend, dims d)
{
    call_make(c, backend, ATTN_F32, d);
    call_mix32(c, 11, 12, 13);
}

/* ---- positions ---- */

/* Position of query i, and what causal and windows keep. */
static int64_t position(const test_call *c, int64_t i)
{
    if (c->layer.alignment == ATTN_TOP_LEFT) return i + c->args.query_start;
    return i + c->k.shape[1] - c->q.shape[1];
}

static int keep_placed(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    int64_t p = position(c, i);
    (void)b, (void)h;
    if (c->layer.causal && j > p) return 0;
    if (c->layer.window & ATTN_WINDOW_LEFT && p - j > c->layer.window_left) return 0;
    if (c->layer.window & ATTN_WINDOW_RIGHT && j - p > c->layer.window_right) return 0;
    return 1;
}

static void windows_and_alignments(void **state)
{
    (void)state;
    static const dims shapes[] = {
        {1, 7, 7, 2, 2, 16, 16}, {2, 5, 130, 2, 1, 8, 8}, {1, 70, 20, 1, 1, 32, 32}, {1, 1, 200, 4, 2, 8, 8}};
    static const int64_t sides[] = {0, 1, 3, 64, 1000, INT64_MAX};
    FOR_BACKENDS(backend)
    for (int n = 0; n < 4; n++)
        for (int mode = 0; mode < 16; mode++)
            for (int side = 0; side < 6; side++) {
                test_call c;
                if (!(mode & 6) && side) continue;
                start(&c, *backend, shapes[n]);
                c.layer.causal = mode & 1;
                c.layer.window = (uint32_t)mode >> 1 & 3;
                c.layer.window_left = sides[side];
                c.layer.window_right = sides[5 - side];
                if (mode & 8) {
                    c.layer.alignment = ATTN_TOP_LEFT;
                    c.args.query_start = side * 5;
                }
                check(&c, *backend, keep_placed, F32_TOLERANCE);
                call_free(&c);
            }
}

/* Positions beyond all keys, near the end of what 64 bits count. */
static void far_query_starts(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    for (int window = 0; window < 4; window++) {
        test_call c;
        start(&c, *backend, (dims){1, 3, 9, 1, 1, 8, 8});
        c.layer.causal = 1;
        c.layer.alignment = ATTN_TOP_LEFT;
        c.layer.window = (uint32_t)window;
        c.layer.window_left = INT64_MAX - 2;
        c.layer.window_right = INT64_MAX;
        c.args.query_start = INT64_MAX - 10;
        check(&c, *backend, keep_placed, F32_TOLERANCE);
        call_free(&c);
    }
}

/* ---- lengths and masks ---- */

static int keep_length(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    int64_t length = (int64_t)tensor_get(c->args.kv_lengths, &b), p = i + length - c->q.shape[1];
    (void)h;
    return j < length && (!c->layer.causal || j <= p) &&
           (!(c->layer.window & ATTN_WINDOW_LEFT) || p - j <= c->layer.window_left);
}

static void lengths_move_the_corner(void **state)
{
    (void)state;
    static const double lengths[] = {0, 1, 4, 66, 70};
    FOR_BACKENDS(backend)
    for (int mode = 0; mode < 4; mode++)
        for (int wide = 0; wide < 2; wide++) {
            test_call c;
            tensor valid;
            start(&c, *backend, (dims){5, 4, 70, 2, 2, 16, 16});
            tensor_make(&valid, wide ? ATTN_I64 : ATTN_I32, 1, (int64_t[]){5});
            for (int64_t b = 0; b < 5; b++) tensor_set(&valid.dl, &b, lengths[b]);
            c.args.kv_lengths = &valid.dl;
            c.layer.causal = mode & 1;
            c.layer.window = mode & 2 ? ATTN_WINDOW_LEFT : 0;
            c.layer.window_left = 2;
            check(&c, *backend, keep_length, F32_TOLERANCE);
            tensor_free(&valid);
            call_free(&c);
        }
}

static double random_keep(int64_t n, const void *arg)
{
    (void)n, (void)arg;
    return (rand() >> 4) % 3 != 0;
}

static int keep_by_mask(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    const int64_t *s = c->mask.shape;
    int64_t at[] = {s[0] == 1 ? 0 : b, s[1] == 1 ? 0 : h, s[2] == 1 ? 0 : i, s[3] == 1 ? 0 : j};
    return tensor_get(&c->mask.dl, at) != 0;
}

static int keep_mask_and_causal(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    return keep_placed(c, b, h, i, j) && keep_by_mask(c, b, h, i, j);
}

/* Every broadcast form of a keep-mask, with any non-zero byte for true, alone and under causal. */
static void keep_masks_of_every_form(void **state)
{
    (void)state;
    static const attn_dtype dtypes[] = {ATTN_BOOL, ATTN_U8, ATTN_I8};
    FOR_BACKENDS(backend)
    for (int form = 0; form < 16; form++)
        for (int n = 0; n < 3; n++) {
            test_call c;
            start(&c, *backend, (dims){2, 6, 67, 4, 2, 8, 8});
            call_mask(&c, dtypes[n], form & 1 ? 2 : 1, form & 2 ? 4 : 1, form & 4 ? 6 : 1, form & 8 ? 67 : 1);
            srand((unsigned)form + 1);
            tensor_generate(&c.mask, random_keep, NULL);
            c.args.mask_kind = ATTN_MASK_KEEP;
            for (size_t i = 0; i < c.mask.bytes; i++) /* other bytes than 1 are true as well */
                ((unsigned char *)c.mask.memory)[i] =
                    (unsigned char)(((unsigned char *)c.mask.memory)[i] ? 128 + i % 128 : 0);
            check(&c, *backend, keep_by_mask, F32_TOLERANCE);
            c.layer.causal = 1;
            check(&c, *backend, keep_mask_and_causal, F32_TOLERANCE);
            call_free(&c);
        }
}

/* A bias added to scores equals the same bias carried by one more channel of q and k. */
static void additive_masks_are_a_channel(void **state)
{
    (void)state;
    static const attn_dtype dtypes[] = {ATTN_F32, ATTN_BF16, ATTN_F16};
    FOR_BACKENDS(backend)
    for (int n = 0; n < 3; n++) {
        test_call plain, channel;
        tensor out, lse;
        start(&plain, *backend, (dims){1, 5, 70, 2, 2, 8, 8});
        call_make(&channel, *backend, ATTN_F32, (dims){1, 5, 70, 2, 2, 9, 8});
        plain.layer.scale = channel.layer.scale = 1;
        call_mask(&plain, dtypes[n], 1, 1, 1, 70);
        for (int64_t j = 0; j < 70; j++) tensor_set_flat(&plain.mask.dl, j, (double)(j % 16) / 4 - 2);
        for (int64_t r = 0; r < 140; r++)
            for (int64_t x = 0; x < 9; x++) {
                int64_t to[] = {0, r / 2, r % 2, x};
                if (r < 10) tensor_set(&channel.q.dl, to, x < 8 ? tensor_get(&plain.q.dl, to) : 1);
                tensor_set(&channel.k.dl, to,
                           x < 8 ? tensor_get(&plain.k.dl, to) : tensor_flat(&plain.mask.dl, r / 2));
            }
        tensor_copy(&channel.v.dl, &plain.v.dl);
        call_run(&plain);
        call_truth(&channel, NULL, &out, &lse);
        tensor_near(*backend, &plain.out.dl, &out.dl, F32_TOLERANCE);
        tensor_near(*backend, &plain.lse.dl, &lse.dl, F32_TOLERANCE);
        tensor_free(&out);
        tensor_free(&lse);
        call_free(&plain);
        call_free(&channel);
    }
}

static int keep_by_key_mask(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    (void)h, (void)i;
    return tensor_get(c->args.key_mask, (int64_t[]){c->args.key_mask->shape[0] == 1 ? 0 : b, j}) != 0;
}

/* Prefixes, holes, nothing and everything; hidden keys and values hold NaN. */
static void key_masks_hide_whatever_lies_there(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    for (int rows = 1; rows <= 4; rows += 3)
        for (int form = 0; form < 4; form++) {
            test_call c;
            tensor mask;
            start(&c, *backend, (dims){4, 3, 133, 2, 1, 16, 16});
            tensor_make(&mask, ATTN_BOOL, 2, (int64_t[]){rows, 133});
            for (int64_t n = 0; n < rows * 133; n++) {
                int64_t j = n % 133, b = n / 133;
                tensor_set_flat(&mask.dl, n,
                                form == 0   ? j < 40 * (b + 1)
                                : form == 1 ? j % 3 != b % 3
                                            : form == 2);
            }
            c.args.key_mask = &mask.dl;
            for (int64_t n = 0; n < 4 * 133 * 16; n++) {
                int64_t b = n / 16 / 133, j = n / 16 % 133;
                if (keep_by_key_mask(&c, b, 0, 0, j)) continue;
                tensor_set_flat(&c.k.dl, n, NAN);
                tensor_set_flat(&c.v.dl, n, NAN);
            }
            check(&c, *backend, keep_by_key_mask, F32_TOLERANCE);
            tensor_free(&mask);
            call_free(&c);
        }
}

/* ---- spans, ranges, joint tokens ---- */

static const attn_span spans[] = {{2, 9}, {40, 75}};
static const attn_query_range ranges[] = {{0, 4, 3}, {4, 5, 50}, {5, 9, 80}};

static int64_t global_position(const test_call *c, int64_t i)
{
    for (uint32_t n = 0; n < c->args.query_range_count; n++)
        if (i >= ranges[n].local_start && i < ranges[n].local_end)
            return ranges[n].global_start + i - ranges[n].local_start;
    return position(c, i);
}

/* Rows inside a span see all keys up to its end, the rest is causal. */
static int keep_spans(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    int64_t p = global_position(c, i);
    (void)b, (void)h;
    for (uint32_t n = 0; n < c->args.span_count; n++)
        if (p >= spans[n].start && p < spans[n].end) return j < spans[n].end;
    return j <= p;
}

static void spans_see_to_their_end(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    for (int mode = 0; mode < 2; mode++) {
        test_call c;
        start(&c, *backend, (dims){2, mode ? 9 : 90, 90, 2, 2, 16, 16});
        c.args.spans = spans;
        c.args.span_count = 2;
        if (mode) {
            c.args.query_ranges = ranges;
            c.args.query_range_count = 3;
        }
        check(&c, *backend, keep_spans, F32_TOLERANCE);
        call_free(&c);
    }
}

static int keep_ranges(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    (void)b, (void)h;
    return j <= global_position(c, i);
}

static void ranges_place_queries(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        start(&c, *backend, (dims){1, 9, 90, 2, 2, 16, 16});
        c.args.query_ranges = ranges;
        c.args.query_range_count = 3;
        c.layer.causal = 1;
        check(&c, *backend, keep_ranges, F32_TOLERANCE);
        call_free(&c);
    }
}

/* Splits rows [from, from + rows) of a whole tensor off into one of their own. */
static void part(tensor *to, const tensor *whole, int64_t from, int64_t rows)
{
    int64_t shape[] = {whole->shape[0], rows, whole->shape[2], whole->shape[3]};
    tensor_make(to, attn_dtype_from_dl(whole->dl.dtype), 4, shape);
    DLTensor view = whole->dl;
    view.shape = shape;
    view.byte_offset =
        (uint64_t)from * (uint64_t)whole->strides[1] * attn_dtype_bytes(attn_dtype_from_dl(view.dtype));
    tensor_copy(&to->dl, &view);
}

static void joint_in_order(const char *backend, int rear, int split, int masked)
{
    test_call whole, c;
    tensor t[3][2], joint_out, mask, joint_mask, out, lse;
    int64_t main_rows[] = {5, 8, 8}, joint_rows[] = {3, 4, 4};
    start(&whole, backend, (dims){2, 8, 12, 4, 2, 16, 8});
    tensor *full[] = {&whole.q, &whole.k, &whole.v};
    start(&c, backend, (dims){2, split ? 5 : 8, 8, 4, 2, 16, 8});
    for (int i = 0; i < 3; i++) {
        part(&t[i][0], full[i], rear ? 0 : joint_rows[i], main_rows[i]);
        part(&t[i][1], full[i], rear ? main_rows[i] : 0, joint_rows[i]);
    }
    c.args.q = &t[0][0].dl, c.args.k = &t[1][0].dl, c.args.v = &t[2][0].dl;
    c.args.joint_q = &t[0][1].dl, c.args.joint_k = &t[1][1].dl, c.args.joint_v = &t[2][1].dl;
    c.args.joint_order = rear ? ATTN_JOINT_REAR : ATTN_JOINT_FRONT;
    tensor_make(&joint_out, ATTN_F32, 4, (int64_t[]){2, 3, 4, 8});
    if (split) c.args.joint_out = &joint_out.dl, c.args.lse = NULL;
    /* The mask is that of the whole; the main half may be left out, which is all true. */
    tensor_make(&mask, ATTN_BOOL, 2, (int64_t[]){2, 12});
    tensor_make(&joint_mask, ATTN_BOOL, 2, (int64_t[]){2, 4});
    tensor_fill(&mask, 1);
    tensor_fill(&joint_mask, 1);
    for (int64_t n = 0; masked && n < 4; n++) {
        tensor_set(&joint_mask.dl, (int64_t[]){1, n}, n % 2 == 0);
        tensor_set(&mask.dl, (int64_t[]){1, (rear ? 8 : 0) + n}, n % 2 == 0);
    }
    if (masked) c.args.joint_key_mask = &joint_mask.dl;
    whole.args.key_mask = &mask.dl;
    call_run(&c);
    call_truth(&whole, keep_by_key_mask, &out, &lse);
    tensor main_want, joint_want;
    part(&main_want, &out, split && !rear ? 3 : 0, split ? 5 : 8);
    part(&joint_want, &out, rear ? 5 : 0, 3);
    tensor_near(backend, &c.out.dl, &main_want.dl, F32_TOLERANCE);
    if (split) tensor_near(backend, &joint_out.dl, &joint_want.dl, F32_TOLERANCE);
    if (!split) tensor_near(backend, &c.lse.dl, &lse.dl, F32_TOLERANCE);
    tensor *all[] = {&t[0][0], &t[0][1],    &t[1][0], &t[1][1], &t[2][0],   &t[2][1],   &joint_out,
                     &mask,    &joint_mask, &out,     &lse,     &main_want, &joint_want};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) tensor_free(all[i]);
    call_free(&whole);
    call_free(&c);
}

static void joint_tokens_are_part_of_the_sequence(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    for (int mode = 0; mode < 8; mode++) joint_in_order(*backend, mode & 1, mode & 2, mode & 4);
}

/* ---- numbers ---- */

static void scale_and_softcap(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    for (int n = 0; n < 4; n++) {
        test_call c;
        start(&c, *backend, (dims){1, 5, 70, 2, 2, 16, 16});
        c.layer.scale = n & 1 ? 3 : -0.5;
        c.layer.softcap = n & 2 ? 2.5 : 0;
        check(&c, *backend, NULL, F32_TOLERANCE);
        call_free(&c);
    }
}

/* A sink takes part in the sum and brings no value: it is one more key whose value is zero. */
static void sinks_take_weight(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        tensor sinks, out, lse;
        start(&c, *backend, (dims){2, 5, 70, 3, 3, 16, 16});
        tensor_make(&sinks, ATTN_F32, 1, (int64_t[]){3});
        for (int64_t h = 0; h < 3; h++) tensor_set(&sinks.dl, &h, (double)h * 2 - 1);
        c.args.sinks = &sinks.dl;
        call_run(&c);
        call_truth(&c, NULL, &out, &lse);
        for (int64_t n = 0; n < tensor_count(&out.dl); n++) {
            int64_t b = n / (5 * 3 * 16), i = n / (3 * 16) % 5, h = n / 16 % 3;
            double sum = exp(tensor_get(&lse.dl, (int64_t[]){b, h, i})), sink = exp((double)h * 2 - 1);
            value_near(*backend, tensor_flat(&c.out.dl, n), tensor_flat(&out.dl, n) * sum / (sum + sink),
                       F32_TOLERANCE);
        }
        tensor_free(&sinks);
        tensor_free(&out);
        tensor_free(&lse);
        call_free(&c);
    }
}

/* A row with nothing to attend to stays 0 in spite of a sink. */
static void sinks_do_not_fill_empty_rows(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        tensor sinks;
        start(&c, *backend, (dims){1, 6, 3, 2, 2, 8, 8});
        tensor_make(&sinks, ATTN_F32, 1, (int64_t[]){2});
        tensor_fill(&sinks, 5);
        c.args.sinks = &sinks.dl;
        c.layer.causal = 1;
        call_run(&c);
        for (int64_t n = 0; n < 3 * 2 * 8; n++) assert_true(tensor_flat(&c.out.dl, n) == 0);
        assert_true(tensor_get(&c.out.dl, (int64_t[]){0, 3, 0, 0}) != 0);
        tensor_free(&sinks);
        call_free(&c);
    }
}

/* 16-bit inputs: f32 outputs are exact to f32, 16-bit outputs to their rounding. */
static void sixteen_bit_inputs(void **state)
{
    (void)state;
    static const struct {
        attn_dtype in, out;
        double atol;
    } forms[] = {{ATTN_F16, ATTN_F32, 2e-5},
                 {ATTN_BF16, ATTN_F32, 2e-5},
                 {ATTN_F16, ATTN_F16, 5e-4},
                 {ATTN_BF16, ATTN_BF16, 4e-3}};
    for (int n = 0; n < 4; n++) {
        test_call c;
        tensor wide;
        call_make(&c, "TORCH_SDPA", forms[n].in, (dims){1, 9, 70, 4, 2, 40, 24});
        call_mix32(&c, 11, 12, 13);
        tensor_make(&wide, forms[n].out, 4, c.out.shape);
        tensor_free(&c.out);
        memcpy(&c.out, &wide, sizeof wide);
        c.out.dl.shape = c.out.shape, c.out.dl.strides = c.out.strides;
        check(&c, "reference", NULL, forms[n].atol);
        /* The tiled one may round weights to the inputs' type. */
        c.options.backend = "FLASH_ATTN";
        check(&c, "flash", NULL, forms[n].atol + (forms[n].in == ATTN_F16 ? 5e-4 : 4e-3));
        call_free(&c);
    }
}

static void head_sizes_of_every_kind(void **state)
{
    (void)state;
    static const int64_t sizes[][2] = {{1, 1},    {3, 5},     {7, 33},    {72, 72},
                                       {100, 17}, {129, 256}, {576, 512}, {1024, 1024}};
    FOR_BACKENDS(backend)
    for (int n = 0; n < 8; n++) {
        test_call c;
        start(&c, *backend, (dims){1, 3, 35, 2, 1, sizes[n][0], sizes[n][1]});
        check(&c, *backend, NULL, F32_TOLERANCE);
        call_free(&c);
    }
}

/* ---- strides ---- */

/* The tensor again with its last axis reversed in memory, through a negative stride. */
static void reversed(tensor *to, const tensor *t)
{
    tensor_make(to, attn_dtype_from_dl(t->dl.dtype), 4, t->shape);
    to->strides[3] = -1;
    to->dl.byte_offset = (uint64_t)(t->shape[3] - 1) * attn_dtype_bytes(attn_dtype_from_dl(t->dl.dtype));
    tensor_copy(&to->dl, &t->dl);
}

static void strides_of_every_kind(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        tensor q, k, v, out, lse;
        start(&c, *backend, (dims){2, 5, 37, 2, 2, 8, 8});
        reversed(&q, &c.q);
        reversed(&k, &c.k);
        reversed(&v, &c.v);
        c.args.q = &q.dl, c.args.k = &k.dl, c.args.v = &v.dl;
        c.out.strides[3] = -1;
        c.out.dl.byte_offset = 7 * 4;
        call_run(&c);
        call_truth(&c, NULL, &out, &lse);
        tensor_near(*backend, &c.out.dl, &out.dl, F32_TOLERANCE);
        tensor *all[] = {&q, &k, &v, &out, &lse};
        for (int i = 0; i < 5; i++) tensor_free(all[i]);
        call_free(&c);
    }
}

/* Keys and values that all batch members and heads share, through strides of zero. */
static void broadcast_keys(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        start(&c, *backend, (dims){3, 5, 37, 4, 4, 8, 8});
        c.k.strides[0] = c.v.strides[0] = c.k.strides[2] = c.v.strides[2] = 0;
        check(&c, *backend, NULL, F32_TOLERANCE);
        call_free(&c);
    }
}

/* ---- scores ---- */

static void scores_in_four_modes(void **state)
{
    (void)state;
    test_call c;
    tensor scores, out, lse;
    start(&c, "TORCH_SDPA", (dims){1, 3, 5, 2, 1, 8, 8});
    c.layer.softcap = 0.5;
    c.layer.causal = 1;
    tensor_make(&scores, ATTN_F32, 4, (int64_t[]){1, 2, 3, 5});
    c.args.scores = &scores.dl;
    for (int mode = ATTN_SCORES_SCALED; mode <= ATTN_SCORES_PROBS; mode++) {
        c.args.scores_mode = mode;
        call_run(&c);
        call_truth(&c, keep_placed, &out, &lse);
        for (int64_t n = 0; n < 30; n++) {
            int64_t h = n / 15, i = n / 5 % 3, j = n % 5;
            double raw = 0;
            for (int64_t x = 0; x < 8; x++)
                raw += tensor_get(&c.q.dl, (int64_t[]){0, i, h, x}) *
                       tensor_get(&c.k.dl, (int64_t[]){0, j, 0, x});
            raw /= sqrt(8);
            double capped = 0.5 * tanh(raw / 0.5), masked = j <= i + 2 ? capped : -INFINITY;
            double want[] = {raw, capped, masked, exp(masked - tensor_get(&lse.dl, (int64_t[]){0, h, i}))};
            value_near("scores", tensor_flat(&scores.dl, n), want[mode - 1], 1e-6);
        }
        tensor_free(&out);
        tensor_free(&lse);
    }
    c.options.backend = "FLASH_ATTN";
    assert_int_equal(call_try(&c), ATTN_UNSUPPORTED);
    assert_int_equal(c.error.kind, ATTN_KIND_FEATURE_UNSUPPORTED);
    text_has(c.error.text, "scores");
    text_has(c.error.text, "FLASH_ATTN");
    c.options.backend = "auto";
    call_run(&c);
    assert_string_equal(c.backend, "TORCH_SDPA");
    tensor_free(&scores);
    call_free(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(windows_and_alignments),
        cmocka_unit_test(far_query_starts),
        cmocka_unit_test(lengths_move_the_corner),
        cmocka_unit_test(keep_masks_of_every_form),
        cmocka_unit_test(additive_masks_are_a_channel),
        cmocka_unit_test(key_masks_hide_whatever_lies_there),
        cmocka_unit_test(spans_see_to_their_end),
        cmocka_unit_test(ranges_place_queries),
        cmocka_unit_test(joint_tokens_are_part_of_the_sequence),
        cmocka_unit_test(scale_and_softcap),
        cmocka_unit_test(sinks_take_weight),
        cmocka_unit_test(sinks_do_not_fill_empty_rows),
        cmocka_unit_test(sixteen_bit_inputs),
        cmocka_unit_test(head_sizes_of_every_kind),
        cmocka_unit_test(strides_of_every_kind),
        cmocka_unit_test(broadcast_keys),
        cmocka_unit_test(scores_in_four_modes),
    };
    return cmocka_run_group_tests_name("features", tests, NULL, NULL);
}
