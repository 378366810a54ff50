/* problems.c: one random problem, with whatever a call may have. */
#include "check.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void point(problem *p, size_t field, tensor *t)
{
    for (int f = DEVICE; f < FORMS; f++) {
        const DLTensor *dl = &t->dl[f];
        memcpy((char *)&p->args[f] + field, &dl, sizeof dl);
    }
}
#define POINT(p, field) point(p, offsetof(attn_args, field), &(p)->field)

void note(problem *p, const char *format, ...)
{
    size_t used = strlen(p->text);
    va_list list;
    va_start(list, format);
    vsnprintf(p->text + used, sizeof p->text - used, format, list);
    va_end(list);
}

static void add_packed(problem *p, int64_t sequences, int64_t sq, int64_t sk)
{
    int64_t shape[] = {sequences + 1};
    make(&p->cu_q, ATTN_I32, 1, shape, 1, 0);
    make(&p->cu_k, ATTN_I32, 1, shape, 1, 0);
    int32_t *q = p->cu_q.dl[HOST].data, *k = p->cu_k.dl[HOST].data;
    for (int64_t i = 1; i < sequences; i++) {
        q[i] = q[i - 1] + (int32_t)random_below(sq - q[i - 1] + 1) / 2;
        k[i] = k[i - 1] + (int32_t)random_below(sk - k[i - 1] + 1) / 2;
    }
    q[sequences] = (int32_t)sq, k[sequences] = (int32_t)sk;
    upload(&p->cu_q), upload(&p->cu_k);
    point(p, offsetof(attn_args, cu_seqlens_q), &p->cu_q);
    point(p, offsetof(attn_args, cu_seqlens_k), &p->cu_k);
    note(p, " packed=%d", (int)sequences);
}

/* Values that no row may see, and one that some rows see, are NaN. */
static void poison_values(problem *p, int64_t b, int64_t sk)
{
    int64_t row_k = p->k.shape[2] * p->k.shape[3], row_v = p->v.shape[2] * p->v.shape[3];
    const uint8_t *keep = p->key_mask.dl[HOST].data;
    const int32_t *lengths = p->lengths.dl[HOST].data;
    for (int64_t s = 0; s < b; s++)
        for (int64_t j = 0; j < sk; j++) {
            int hidden =
                (keep && !keep[(p->key_mask.shape[0] > 1 ? s : 0) * sk + j]) || (lengths && j >= lengths[s]);
            for (int64_t c = 0; hidden && c < row_k; c++) set(&p->k, (s * sk + j) * row_k + c, NAN);
            for (int64_t c = 0; hidden && c < row_v; c++) set(&p->v, (s * sk + j) * row_v + c, NAN);
        }
    int64_t key = random_below(sk);
    for (int64_t c = 0; c < p->v.shape[3]; c += 3) set(&p->v, key * row_v + c, NAN);
    note(p, " nan");
}

static void add_masks(problem *p, int64_t b, int64_t h, int64_t sq, int64_t sk)
{
    if (chance(25)) {
        int64_t shape[] = {chance(50) ? b : 1, sk};
        make(&p->key_mask, ATTN_BOOL, 2, shape, 1, 0);
        uint8_t *keep = p->key_mask.dl[HOST].data;
        for (int64_t i = 0; i < p->key_mask.count; i++)
            keep[i] = (uint8_t)(chance(70) ? 1 + random_below(2) : 0);
        upload(&p->key_mask);
        POINT(p, key_mask);
        note(p, " key_mask");
    }
    if (chance(60)) return;
    int additive = chance(50);
    int64_t shape[] = {chance(50) ? b : 1, chance(50) ? h : 1, chance(70) ? sq : 1, chance(80) ? sk : 1};
    attn_dtype floats[] = {ATTN_F32, ATTN_F16, ATTN_BF16};
    make(&p->mask, additive ? floats[random_below(3)] : ATTN_BOOL, 4, shape, 1, 0);
    /* Blocks of one kind, so that whole tiles are hidden. */
    int64_t block = chance(50) ? 80 : 1, kind = 1;
    for (int64_t i = 0; i < p->mask.count; i++) {
        if (i % block == 0) kind = chance(60);
        if (additive)
            set_element(p->mask.dtype, p->mask.dl[HOST].data, i, kind ? random_normal() : -INFINITY);
        else
            ((uint8_t *)p->mask.dl[HOST].data)[i] = (uint8_t)kind;
    }
    upload(&p->mask);
    POINT(p, mask);
    note(p, " mask=%s[%d,%d,%d,%d]", attn_dtype_name(p->mask.dtype), (int)shape[0], (int)shape[1],
         (int)shape[2], (int)shape[3]);
}

static void add_structure(problem *p, int64_t sq, int64_t sk, int packed)
{
    attn_layer_options *l = &p->layer;
    l->causal = chance(45);
    if (l->causal) note(p, " causal");
    if (chance(30)) {
        l->alignment = ATTN_TOP_LEFT;
        int64_t start = chance(50) ? random_below(sk + 1) : 0;
        for (int f = DEVICE; f < FORMS; f++) p->args[f].query_start = start;
        note(p, " top_left@%d", (int)start);
    }
    if (chance(25)) {
        l->window = (uint32_t)(1 + random_below(3));
        l->window_left = chance(10) ? INT64_MAX : random_below(sk + 1),
        l->window_right = random_below(sk + 1);
        note(p, " window=%u:%d,%d", l->window, (int)l->window_left, (int)l->window_right);
    }
    if (packed) return;
    if (chance(15)) {
        for (int i = 0; i < 3; i++) {
            p->spans[i].start = random_below(sk + 1);
            p->spans[i].end = p->spans[i].start + random_below(sk + 1);
        }
        for (int f = DEVICE; f < FORMS; f++) p->args[f].spans = p->spans, p->args[f].span_count = 3;
        note(p, " spans");
    }
    if (sq && chance(15)) {
        int64_t middle = random_below(sq);
        p->ranges[0] = (attn_query_range){0, middle, random_below(sk + 1)};
        p->ranges[1] = (attn_query_range){middle, sq, random_below(sk + 1)};
        for (int f = DEVICE; f < FORMS; f++)
            p->args[f].query_ranges = p->ranges, p->args[f].query_range_count = 2;
        note(p, " ranges");
    }
}

static void add_sinks(problem *p, int64_t heads)
{
    make(&p->sinks, ATTN_F32, 1, &heads, 1, 0);
    for (int64_t i = 0; i < heads; i++) ((float *)p->sinks.dl[HOST].data)[i] = (float)random_normal();
    upload(&p->sinks);
    POINT(p, sinks);
    note(p, " sinks");
}

static void add_lengths(problem *p, int64_t b, int64_t sk)
{
    make(&p->lengths, ATTN_I32, 1, &b, 1, 0);
    for (int64_t i = 0; i < b; i++) ((int32_t *)p->lengths.dl[HOST].data)[i] = (int32_t)random_below(sk + 1);
    upload(&p->lengths);
    point(p, offsetof(attn_args, kv_lengths), &p->lengths);
    note(p, " lengths");
}

void make_problem(problem *p, int flash)
{
    static const attn_dtype all[] = {ATTN_F32, ATTN_F16, ATTN_BF16, ATTN_F64};
    static const int64_t sizes[] = {64, 72, 80, 96, 128, 192, 256, 8, 40, 112}, odd[] = {1, 3, 33, 130, 300};
    memset(p, 0, sizeof *p);
    p->broken[0] = -1;
    p->dtype = flash ? all[1 + random_below(2)] : all[random_below(4)];
    int64_t d = sizes[random_below(10)], dv = chance(80) ? d : sizes[random_below(10)];
    if (!flash && chance(30)) d = odd[random_below(5)], dv = chance(50) ? d : odd[random_below(5)];
    int packed = chance(15), strided = !flash && chance(20), f32_out = p->dtype != ATTN_F64 && chance(20);
    int64_t b = packed ? 1 : 1 + random_below(3), hk = 1 + random_below(2), h = hk * (1 + random_below(3));
    int64_t sq = chance(10) ? 1 : chance(50) ? 1 + random_below(150) : 1 + random_below(400);
    int64_t sk = chance(30) ? sq : chance(5) ? 0 : 1 + random_below(400);
    int64_t qs[] = {b, sq, h, d}, ks[] = {b, sk, hk, d}, vs[] = {b, sk, hk, dv}, os[] = {b, sq, h, dv};
    int64_t ls[] = {b, h, sq};
    p->peak = chance(20) ? 6 : 1;
    note(p, "b%dh%dkvh%ds%dx%dd%dv%d:%s", (int)b, (int)h, (int)hk, (int)sq, (int)sk, (int)d, (int)dv,
         attn_dtype_name(p->dtype));
    if (p->peak > 1) note(p, " peaked");
    if (f32_out) note(p, " f32_out");
    if (strided) note(p, " strided");
    p->layer = (attn_layer_options){.size = sizeof p->layer,
                                    .heads = h,
                                    .kv_heads = hk,
                                    .head_dim = d,
                                    .value_head_dim = dv,
                                    .softcap = chance(15) ? 5 : 0};
    if (p->layer.softcap > 0) note(p, " softcap");
    for (int f = 0; f < FORMS; f++) p->args[f].size = sizeof p->args[f];
    make(&p->q, p->dtype, 4, qs, 1 + strided, 1);
    make(&p->k, p->dtype, 4, ks, 1 + strided, 1);
    make(&p->v, p->dtype, 4, vs, 1 + strided, 1);
    make(&p->out, f32_out ? ATTN_F32 : p->dtype, 4, os, 1 + strided, 1);
    make(&p->lse, ATTN_F32, 3, ls, 1, 0);
    free(p->lse.dl[HOST].data);
    need((p->lse.dl[HOST].data = malloc(p->lse.bytes)) && (p->lse.dl[WIDE].data = malloc(p->lse.bytes)),
         "no memory");
    POINT(p, q), POINT(p, k), POINT(p, v), POINT(p, out);
    if (chance(70)) POINT(p, lse);
    fill(&p->q, p->peak), fill(&p->k, p->peak), fill(&p->v, 1);
    if (packed) add_packed(p, 1 + random_below(6), sq, sk);
    if (!packed && chance(20)) add_lengths(p, b, sk);
    if (!packed) add_masks(p, b, h, sq, sk);
    if (!packed && chance(40)) add_map(p, b, h, sq, sk);
    if (chance(15)) add_sinks(p, h);
    add_structure(p, sq, sk, packed);
    if (!packed && sk && chance(30)) poison_values(p, b, sk);
    upload(&p->q), upload(&p->k), upload(&p->v);
}

void drop_problem(problem *p)
{
    tensor *all[] = {&p->q,       &p->k,    &p->v,    &p->out,   &p->lse,    &p->mask,  &p->key_mask,
                     &p->lengths, &p->cu_q, &p->cu_k, &p->sinks, &p->counts, &p->blocks};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) drop(all[i]);
}
