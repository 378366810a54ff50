/* check_cases.c: the problems of attn check: a table, and combinations drawn at random. */
#include "check_cases.h"

#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "generate.h"

static const struct row {
    const char *problem, *aim;
} rows[] =
    {
#define X(problem, aim) {problem, aim},
#include "checks.def"
#undef X
},
  device_rows[] = {
#define X(problem, aim) {problem, aim},
#include "checks_device.def"
#undef X
};

static attn_status append(struct problem_list *list, const struct problem *problems, size_t count,
                          attn_error *error)
{
    struct problem *items = realloc(list->items, (list->count + count) * sizeof *items);
    if (!items) return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a list of problems");
    memcpy(items + list->count, problems, count * sizeof *items);
    list->items = items;
    list->count += count;
    return ATTN_OK;
}

static attn_status add_rows(const struct row *row, size_t count, struct problem_list *list, attn_error *error)
{
    attn_status status = ATTN_OK;
    for (size_t i = 0; i < count && !status; i++) status = problem_append(list, row[i].problem, error);
    return status;
}

/* ---- random problems --------------------------------------------------------------------------- */

static int64_t pick(struct random_stream *random, const int64_t *values, size_t count)
{
    return values[random_below(random, count)];
}

static int one_in(struct random_stream *random, uint64_t n)
{
    return random_below(random, n) == 0;
}

static void draw_sizes(struct random_stream *random, struct problem *p)
{
    static const int64_t groups[] = {1, 1, 1, 2, 3, 4},
                         dims[] = {8, 16, 32, 40, 64, 64, 72, 80, 96, 128, 128};
    static const attn_dtype dtypes[] = {ATTN_F32, ATTN_F32, ATTN_BF16, ATTN_F16};
    p->batch = 1 + (int64_t)random_below(random, 3);
    p->kv_heads = 1 + (int64_t)random_below(random, 3);
    p->heads = p->kv_heads * pick(random, groups, 6);
    p->q_len = 1 + (int64_t)random_below(random, one_in(random, 4) ? 150 : 40);
    p->kv_len =
        one_in(random, 3) ? p->q_len : 1 + (int64_t)random_below(random, one_in(random, 4) ? 400 : 90);
    p->head_dim = one_in(random, 3) ? 1 + (int64_t)random_below(random, 130) : pick(random, dims, 11);
    p->value_head_dim = one_in(random, 5) ? 1 + (int64_t)random_below(random, 130) : p->head_dim;
    p->dtype = dtypes[random_below(random, 4)];
    p->out_dtype = one_in(random, 6) ? ATTN_F32 : p->dtype;
}

static void draw_mask(struct random_stream *random, struct problem *p)
{
    static const attn_dtype keeps[] = {ATTN_BOOL, ATTN_BOOL, ATTN_U8, ATTN_I8};
    static const attn_dtype adds[] = {ATTN_F32, ATTN_F32, ATTN_F16, ATTN_BF16};
    if (!one_in(random, 2)) return;
    p->mask = (enum problem_mask)(1 + random_below(random, 4));
    p->mask_dtype = ATTN_BOOL;
    p->mask_axes = PROBLEM_AXIS_K | (one_in(random, 2) ? PROBLEM_AXIS_B : 0);
    if (p->mask == PROBLEM_MASK_KEY || p->mask == PROBLEM_MASK_HOLES) return;
    p->mask_axes = 1 + (unsigned)random_below(random, 15);
    p->mask_dtype =
        p->mask == PROBLEM_MASK_KEEP ? keeps[random_below(random, 4)] : adds[random_below(random, 4)];
}

static void draw_order(struct random_stream *random, struct problem *p)
{
    p->causal = one_in(random, 3);
    if (one_in(random, 4)) p->left = (int64_t)random_below(random, 60);
    if (one_in(random, 6)) p->right = (int64_t)random_below(random, 30);
    if (!p->causal && p->left < 0 && p->right < 0) return;
    if (!one_in(random, 4)) return;
    p->alignment = ATTN_TOP_LEFT;
    if (one_in(random, 2)) p->start = (int64_t)random_below(random, 50);
}

static void draw_rest(struct random_stream *random, struct problem *p)
{
    static const enum problem_layout layouts[] = {PROBLEM_BSND,   PROBLEM_BSND,    PROBLEM_BNSD,  PROBLEM_QKV,
                                                  PROBLEM_PADDED, PROBLEM_STRIDED, PROBLEM_PADDED};
    static const double caps[] = {0.5, 5, 50};
    p->layout = layouts[random_below(random, 7)];
    if (one_in(random, 6)) p->softcap = caps[random_below(random, 3)];
    if (one_in(random, 6)) p->scale = (double)(1 + random_below(random, 16)) / 32;
    p->sinks = one_in(random, 5);
    p->lse = one_in(random, 2);
    if (one_in(random, 5)) p->lengths = 0;
    if (one_in(random, 8)) {
        p->packed = 1 + (int64_t)random_below(random, 8);
        p->batch = 1;
    }
    if (one_in(random, 10)) p->spans = 1 + (int64_t)random_below(random, 4);
    if (one_in(random, 10)) p->ranges = 1 + (int64_t)random_below(random, 4);
    if (one_in(random, 6)) {
        p->sparse = (double)(1 + random_below(random, 16)) / 16;
        p->block_q = 16 + (int64_t)random_below(random, 120);
        p->block_k = one_in(random, 2) ? p->block_q : 16 + (int64_t)random_below(random, 120);
    }
    if (one_in(random, 10)) p->joint = 1 + (int64_t)random_below(random, 20);
    p->joint_rear = p->joint && one_in(random, 2);
    p->hidden_nan = one_in(random, 2);
}

/* What servers ask for; only where the rest allows it, so that few draws are lost. */
static void draw_serving(struct random_stream *random, struct problem *p)
{
    static const int64_t pages[] = {1, 3, 16, 16, 32, 64};
    if (p->joint || p->sparse >= 0) return;
    p->alibi = one_in(random, 6);
    if (p->causal && !p->alignment && !p->spans && !p->ranges && one_in(random, 4))
        p->prefix = 1 + (int64_t)random_below(random, 4);
    if (one_in(random, 8)) p->select = 1 + (int64_t)random_below(random, 100);
    if (one_in(random, 6) && p->left < 0 && p->right < 0 && !p->packed && p->lengths < 0 && !p->spans &&
        !p->ranges && !p->prefix && !p->alignment && p->q_len <= p->kv_len)
        p->tree = 1;
    if (p->mask || !one_in(random, 2)) return;
    p->paged = pick(random, pages, 6);
    if (one_in(random, 3)) p->kv = 1 + (int)random_below(random, 7);
    p->latent = p->value_head_dim <= p->head_dim && one_in(random, 5);
}

/* Draws until the features go together; most draws do. The seed of the values is the seed of the draw, so
 * that the printed problem is all there is to know. */
static void draw(struct random_stream *random, struct problem *p)
{
    do {
        problem_init(p);
        p->seed = random_next(random) >> 33;
        draw_sizes(random, p);
        draw_mask(random, p);
        draw_order(random, p);
        draw_rest(random, p);
        draw_serving(random, p);
    } while (problem_validate(p, NULL) != ATTN_OK);
}

attn_status check_cases(uint64_t seed, int64_t count, int quick, int device, struct problem_list *list,
                        attn_error *error)
{
    struct random_stream random;
    memset(list, 0, sizeof *list);
    random_seed(&random, seed);
    attn_status status = add_rows(rows, sizeof rows / sizeof *rows, list, error);
    if (device && !status)
        status = add_rows(device_rows, sizeof device_rows / sizeof *device_rows, list, error);
    for (int64_t i = 0; i < count && !status; i++) {
        struct problem problem;
        draw(&random, &problem);
        status = append(list, &problem, 1, error);
    }
    if (status) {
        problem_list_free(list);
        return status;
    }
    if (!quick) return ATTN_OK;
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i += 3) list->items[kept++] = list->items[i];
    list->count = kept;
    return ATTN_OK;
}
