/* poison.c: values that a row does not see never enter it, however they are hidden and whoever else sees
 * them. */
#include "support.h"

#include <math.h>
#include <string.h>

enum { KEYS = 150, QUERIES = 70 };

/* How keys are hidden. */
typedef enum means {
    KEEP_MASK,
    ADDITIVE_MASK,
    HALF_ADDITIVE_MASK,
    CAUSAL,
    CAUSAL_TOP_LEFT,
    WINDOW,
    LENGTHS,
    KEY_MASK,
    SPANS,
    MEANS
} means;

static const char *const names[MEANS] = {"keep mask", "additive mask",   "f16 additive mask",
                                         "causal",    "causal top-left", "window",
                                         "lengths",   "key mask",        "spans"};
static const attn_span spans[] = {{100, 110}, {120, 130}};

/* Row i does not see every third key, shifted by the row: hidden keys stand side by side with seen ones. */
static int scattered(int64_t i, int64_t j)
{
    return (i + j) % 3 != 0;
}

static int sees(means m, int64_t i, int64_t j)
{
    int64_t p = i + KEYS - QUERIES;
    switch (m) {
    case CAUSAL:
        return j <= p;
    case CAUSAL_TOP_LEFT:
        return j <= i;
    case WINDOW:
        return j >= p - 5 && j <= p + 3;
    case LENGTHS:
        return j < 97;
    case KEY_MASK:
        return j % 4 != 2;
    case SPANS:
        for (int n = 0; n < 2; n++)
            if (p >= spans[n].start && p < spans[n].end) return j < spans[n].end;
        return j <= p;
    default:
        return scattered(i, j);
    }
}

static means current;

static int keep(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j)
{
    (void)c, (void)b, (void)h;
    return sees(current, i, j);
}

static void hide(test_call *c, means m, tensor *lengths, tensor *key_mask)
{
    tensor_make(lengths, ATTN_I32, 1, (int64_t[]){1});
    tensor_make(key_mask, ATTN_BOOL, 2, (int64_t[]){1, KEYS});
    tensor_fill(lengths, 97);
    for (int64_t j = 0; j < KEYS; j++) tensor_set_flat(&key_mask->dl, j, sees(KEY_MASK, 0, j));
    if (m <= HALF_ADDITIVE_MASK) {
        static const attn_dtype dtypes[] = {ATTN_BOOL, ATTN_F32, ATTN_F16};
        call_mask(c, dtypes[m], 1, 1, QUERIES, KEYS);
        for (int64_t n = 0; n < QUERIES * KEYS; n++) {
            int seen = scattered(n / KEYS, n % KEYS);
            tensor_set_flat(&c->mask.dl, n, m == KEEP_MASK ? seen : seen ? 0 : -INFINITY);
        }
    }
    c->layer.causal = m == CAUSAL || m == CAUSAL_TOP_LEFT;
    if (m == CAUSAL_TOP_LEFT) c->layer.alignment = ATTN_TOP_LEFT;
    if (m == WINDOW) c->layer.window = ATTN_WINDOW_LEFT | ATTN_WINDOW_RIGHT;
    c->layer.window_left = 5, c->layer.window_right = 3;
    if (m == LENGTHS) c->args.kv_lengths = &lengths->dl;
    if (m == KEY_MASK) c->args.key_mask = &key_mask->dl;
    if (m == SPANS) c->args.spans = spans, c->args.span_count = 2;
}

/* The rows that do not see the key are as they were without the poison. */
static void check_rows(const test_call *c, means m, int64_t bad, const tensor *out, const tensor *lse,
                       double atol)
{
    for (int64_t i = 0; i < QUERIES; i++) {
        if (sees(m, i, bad)) continue;
        for (int64_t h = 0; h < 2; h++) {
            int64_t at[] = {0, h, i};
            value_near(names[m], tensor_get(&c->lse.dl, at), tensor_get(&lse->dl, at), 1e-5);
            for (int64_t x = 0; x < 24; x++) {
                int64_t element[] = {0, i, h, x};
                value_near(names[m], tensor_get(&c->out.dl, element), tensor_get(&out->dl, element), atol);
            }
        }
    }
}

/* Poisons one key in K (where 1), V (2) or both (3) and calls in an open context. */
static void poison_one(test_call *c, attn_context *context, int64_t bad, double poison, int where)
{
    tensor_mix32(&c->k, 2, 1);
    tensor_mix32(&c->v, 3, 1);
    for (int64_t x = 0; where & 1 && x < 16; x += 5) tensor_set(&c->k.dl, (int64_t[]){0, bad, 0, x}, poison);
    for (int64_t x = 0; where & 2 && x < 24; x += 7) tensor_set(&c->v.dl, (int64_t[]){0, bad, 0, x}, poison);
    if (call_try_in(c, context)) fail_msg("%s", c->error.text);
}

static void poison_each(means m, attn_dtype dtype)
{
    static const double poisons[] = {NAN, INFINITY, -INFINITY, 1e30};
    static const int64_t keys[] = {0, 64, 149};
    test_call c;
    tensor lengths, key_mask, out, lse;
    call_make(&c, NULL, dtype, (dims){1, QUERIES, KEYS, 2, 1, 16, 24});
    call_mix32(&c, 1, 2, 3);
    hide(&c, m, &lengths, &key_mask);
    current = m;
    call_truth(&c, keep, &out, &lse);
    FOR_BACKENDS(backend)
    {
        c.options.backend = *backend;
        attn_context *context = context_open(&c.options);
        for (int n = 0; n < 3 * 4 * 3; n++) {
            poison_one(&c, context, keys[n % 3], poisons[n / 3 % 4], n / 12 + 1);
            check_rows(&c, m, keys[n % 3], &out, &lse, dtype == ATTN_F32 ? 1e-5 : 1e-2);
        }
        attn_close(context);
    }
    tensor *all[] = {&lengths, &key_mask, &out, &lse};
    for (int t = 0; t < 4; t++) tensor_free(all[t]);
    call_free(&c);
}

static void what_is_hidden_does_not_enter(void **state)
{
    (void)state;
    for (int m = 0; m < MEANS; m++) {
        poison_each((means)m, ATTN_F32);
        poison_each((means)m, ATTN_BF16);
    }
}

/* A row that does see the poison shows it: nothing is swept under the carpet. */
static void what_is_seen_does_enter(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c;
        call_make(&c, *backend, ATTN_F32, (dims){1, 3, 100, 1, 1, 16, 16});
        call_mix32(&c, 1, 2, 3);
        tensor_set(&c.v.dl, (int64_t[]){0, 70, 0, 5}, NAN);
        call_run(&c);
        for (int64_t n = 0; n < 48; n++) assert_int_equal(isnan(tensor_flat(&c.out.dl, n)) != 0, n % 16 == 5);
        call_free(&c);
    }
}

/* Rows of neighbours in a packed call, and the room between strided rows. */
static void neighbours_do_not_enter(void **state)
{
    (void)state;
    FOR_BACKENDS(backend)
    {
        test_call c, one;
        tensor cu_q, cu_k, out, lse;
        call_make(&c, *backend, ATTN_F32, (dims){1, 30, 75, 1, 1, 16, 16});
        call_make(&one, *backend, ATTN_F32, (dims){1, 10, 33, 1, 1, 16, 16});
        call_mix32(&c, 1, 2, 3);
        tensor_make(&cu_q, ATTN_I32, 1, (int64_t[]){4});
        tensor_make(&cu_k, ATTN_I32, 1, (int64_t[]){4});
        static const double q[] = {0, 10, 20, 30}, k[] = {0, 21, 54, 75};
        for (int64_t n = 0; n < 4; n++)
            tensor_set_flat(&cu_q.dl, n, q[n]), tensor_set_flat(&cu_k.dl, n, k[n]);
        for (int64_t n = 0; n < 30 * 16; n++)
            if (n / 16 < 10 || n / 16 >= 20)
                tensor_set_flat(&c.q.dl, n, NAN);
            else
                tensor_set_flat(&one.q.dl, n - 160, tensor_flat(&c.q.dl, n));
        for (int64_t n = 0; n < 75 * 16; n++)
            if (n / 16 < 21 || n / 16 >= 54) {
                tensor_set_flat(&c.k.dl, n, NAN);
                tensor_set_flat(&c.v.dl, n, NAN);
            } else {
                tensor_set_flat(&one.k.dl, n - 21 * 16, tensor_flat(&c.k.dl, n));
                tensor_set_flat(&one.v.dl, n - 21 * 16, tensor_flat(&c.v.dl, n));
            }
        c.args.cu_seqlens_q = &cu_q.dl, c.args.cu_seqlens_k = &cu_k.dl;
        call_run(&c);
        call_truth(&one, NULL, &out, &lse);
        for (int64_t n = 0; n < 160; n++)
            value_near(*backend, tensor_flat(&c.out.dl, 160 + n), tensor_flat(&out.dl, n), 1e-5);
        tensor *all[] = {&cu_q, &cu_k, &out, &lse};
        for (int t = 0; t < 4; t++) tensor_free(all[t]);
        call_free(&c);
        call_free(&one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_hidden_does_not_enter),
        cmocka_unit_test(what_is_seen_does_enter),
        cmocka_unit_test(neighbours_do_not_enter),
    };
    return cmocka_run_group_tests_name("poison", tests, NULL, NULL);
}
