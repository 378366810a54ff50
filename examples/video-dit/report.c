/* report.c: the closing text of a run. */
#include "report.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Inner values are judged where they were asked for and float32 can reach them. */
static int judges_values(const options *o)
{
    return o->verify && !o->psnr_only && o->dtype == ATTN_F32;
}

int report_verdict_good(const options *o, const verdict *v)
{
    return v->psnr_good && (v->values_good || !judges_values(o));
}

static attn_layer_info layer_info(const attention *a, int role)
{
    attn_layer_info info = {.size = sizeof info};
    attn_layer_get_info(a->layers[role][0], &info);
    return info;
}

static attn_context_info context_info(const attention *a)
{
    attn_context_info info = {.size = sizeof info};
    attn_context_get_info(a->context, &info);
    return info;
}

/* Multiplications and additions of the two products of self-attention in all blocks of one network call. */
static double self_gflop(const network *n)
{
    return 4e-9 * (double)n->tokens * (double)n->tokens * DIM * DEPTH;
}

/* ---- text --------------------------------------------------------------------------------------- */

static void print_attention(const report *r)
{
    attn_context_info c = context_info(r->attention);
    printf("attention by libattn %s: platform %s, kernel set %s, %s inputs, %d thread%s\n", attn_version(),
           c.platform, c.isa, attn_dtype_name(r->attention->dtype), r->threads, r->threads == 1 ? "" : "s");
    for (int role = 0; role < ROLES; role++) {
        attn_layer_info i = layer_info(r->attention, role);
        printf("  %-6s %s, run by %s (%s)\n         source: %s\n", role_name(role), i.backend,
               i.implementation, i.plan, i.source);
        if (!i.report || !*i.report) continue;
        printf("         last call: %s", i.report);
        if (i.map_seconds > 0) printf(", chosen in %.2f ms", 1e3 * i.map_seconds);
        putchar('\n');
    }
}

/* Share of the pairs of blocks that self-attention computed, over all calls; block -1: of all blocks. */
static double kept_share(const network *n, int block)
{
    double sum = 0;
    for (int b = 0; b < DEPTH; b++) sum += block < 0 ? n->kept[b] / DEPTH : b == block ? n->kept[b] : 0;
    return n->calls ? sum / n->calls : 1;
}

static void print_kept(const network *n)
{
    if (kept_share(n, -1) >= 1) return;
    printf("self-attention computed %.1f %% of its blocks; by block of the network:",
           100 * kept_share(n, -1));
    for (int b = 0; b < DEPTH; b++) printf(" %.1f", 100 * kept_share(n, b));
    putchar('\n');
}

static void print_fidelity(const report *r)
{
    if (!r->fidelity) return;
    printf("against %s: PSNR %.2f dB, SSIM %.4f\n", r->options->against, r->fidelity->psnr,
           r->fidelity->ssim);
}

static void print_exact(const report *r)
{
    printf("error of the attention against %s, on the q, k and v of block %d halfway\n", EXACT_BACKEND,
           r->exact->block);
    for (int role = 0; role < ROLES; role++) {
        const deviation *d = &r->exact->deviations[role];
        printf("  %-6s relative L2 %.2e, largest %.2e  (%lld queries, %d heads)\n", role_name(role),
               d->relative, d->largest, (long long)d->rows, HEADS);
    }
}

static void print_time(const report *r)
{
    static const char *const names[] = {
#define C(NAME, json, text) text,
        CLOCK_LIST(C)
#undef C
    };
    const network *n = r->network;
    printf("time %.2f s: %d steps of %.2f s, %lld tokens\n", r->seconds, r->steps, r->seconds / r->steps,
           (long long)n->tokens);
    for (int c = 0; c < CLOCKS; c++) {
        printf("  %-28s %7.2f s  %5.1f %%", names[c], n->clocks[c], 100 * n->clocks[c] / r->seconds);
        if (c == CLOCK_SELF_ATTENTION) printf("  %.1f GFLOP/s", self_gflop(n) * r->steps / n->clocks[c]);
        putchar('\n');
    }
}

static void print_psnr(const verdict *v, const options *o)
{
    char number[32];
    if (isinf(v->psnr))
        snprintf(number, sizeof number, "inf");
    else
        snprintf(number, sizeof number, "%.2f", v->psnr);
    printf(
        "PSNR %s dB against the reference video '%s' (%lld of %lld bytes differ; %.0f dB are needed): %s\n",
        number, v->name, (long long)v->differing, (long long)v->bytes, PSNR_LIMIT,
        report_verdict_good(o, v) ? "good"
        : v->psnr_good            ? "VALUES ARE TOO FAR, see --verify"
                                  : "TOO LOW");
}

static void print_values(const verdict *v, const options *o)
{
    int judged = judges_values(o);
    printf("reference case '%s', %lldx%lldx%lld, %d steps, %.1f s\n", v->name, (long long)v->shape.frames,
           (long long)v->shape.height, (long long)v->shape.width, v->steps, v->seconds);
    printf("  %-16s %-10s %10s %10s\n", "value", "measure", "found", judged ? "limit" : "of f32");
    for (int i = 0; i < v->count; i++) {
        const comparison *c = &v->rows[i];
        printf("  %-16s %-10s %10.2e %10.2e%s\n", c->name, c->measure, c->value, c->limit,
               c->value <= c->limit ? ""
               : judged             ? "  TOO FAR"
                                    : "  above");
    }
}

static void print_files(const options *o)
{
    const char *const files[][2] = {{"GIF", o->out}, {"sheet", o->sheet}, {"bytes", o->video}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (!files[i][1]) continue;
        char *full = realpath(files[i][1], NULL);
        printf("%-5s %s\n", files[i][0], full ? full : files[i][1]);
        free(full);
    }
}

static void print_text(const report *r)
{
    if (r->options->verify) print_values(r->verdict, r->options);
    print_attention(r);
    if (r->network) {
        print_exact(r);
        print_kept(r->network);
        print_time(r);
        print_fidelity(r);
    }
    if (r->verdict) print_psnr(r->verdict, r->options);
    if (r->network) print_files(r->options);
}

/* ---- JSON --------------------------------------------------------------------------------------- */

/* JSON has no infinity and no NaN. */
static json_t *json_finite(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *json_attention(const report *r)
{
    json_t *all = json_object();
    for (int role = 0; role < ROLES; role++) {
        attn_layer_info i = layer_info(r->attention, role);
        json_object_set_new(all, role_name(role),
                            json_pack("{s:s, s:s, s:s, s:s, s:b, s:s, s:s, s:f, s:I, s:I}", "backend",
                                      i.backend, "implementation", i.implementation, "source", i.source,
                                      "reason", i.reason, "explicit", i.explicit_choice, "plan", i.plan,
                                      "last_call", i.report ? i.report : "", "map_seconds", i.map_seconds,
                                      "sparse_calls", (json_int_t)i.sparse_calls, "dense_calls",
                                      (json_int_t)i.dense_calls));
    }
    return all;
}

static json_t *json_verdict(const report *r)
{
    const verdict *v = r->verdict;
    json_t *values = json_array();
    for (int i = 0; i < v->count; i++)
        json_array_append_new(values, json_pack("{s:s, s:s, s:o, s:f}", "name", v->rows[i].name, "measure",
                                                v->rows[i].measure, "value", json_finite(v->rows[i].value),
                                                "limit", v->rows[i].limit));
    return json_pack("{s:s, s:o, s:f, s:I, s:I, s:i, s:f, s:b, s:o}", "case", v->name, "psnr_db",
                     json_finite(v->psnr), "psnr_limit_db", PSNR_LIMIT, "bytes", (json_int_t)v->bytes,
                     "bytes_that_differ", (json_int_t)v->differing, "steps", v->steps, "seconds", v->seconds,
                     "good", report_verdict_good(r->options, v), "values", values);
}

static json_t *json_clocks(const network *n)
{
    static const char *const names[] = {
#define C(NAME, json, text) json,
        CLOCK_LIST(C)
#undef C
    };
    json_t *all = json_object();
    for (int c = 0; c < CLOCKS; c++) json_object_set_new(all, names[c], json_real(n->clocks[c]));
    return all;
}

static json_t *json_kept(const network *n)
{
    json_t *all = json_array();
    for (int b = 0; b < DEPTH; b++) json_array_append_new(all, json_real(kept_share(n, b)));
    return json_pack("{s:f, s:o}", "all", kept_share(n, -1), "blocks", all);
}

static json_t *json_fidelity(const report *r)
{
    if (!r->fidelity) return NULL;
    return json_pack("{s:s, s:o, s:o}", "file", r->options->against, "psnr_db",
                     json_finite(r->fidelity->psnr), "ssim", json_finite(r->fidelity->ssim));
}

static json_t *json_clip(const report *r)
{
    const network *n = r->network;
    json_t *errors = json_object();
    for (int role = 0; role < ROLES; role++) {
        const deviation *d = &r->exact->deviations[role];
        json_object_set_new(errors, role_name(role),
                            json_pack("{s:o, s:o, s:I}", "relative_l2", json_finite(d->relative), "largest",
                                      json_finite(d->largest), "queries", (json_int_t)d->rows));
    }
    return json_pack(
        "{s:[I, I, I], s:I, s:i, s:f, s:o, s:o, s:s, s:o, s:o, s:o*, s:s?, s:s?, s:s?}", "shape",
        (json_int_t)n->shape.frames, (json_int_t)n->shape.height, (json_int_t)n->shape.width, "tokens",
        (json_int_t)n->tokens, "steps", r->steps, "seconds", r->seconds, "time", json_clocks(n),
        "self_attention_gflops", json_finite(self_gflop(n) * r->steps / n->clocks[CLOCK_SELF_ATTENTION]),
        "error_against", EXACT_BACKEND, "attention_error", errors, "kept_share", json_kept(n), "against",
        json_fidelity(r), "gif", r->options->out, "sheet", r->options->sheet, "video", r->options->video);
}

static void print_json(json_t *all)
{
    json_dumpf(all, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9));
    putchar('\n');
    json_decref(all);
}

static json_t *json_report(const report *r)
{
    attn_context_info c = context_info(r->attention);
    return json_pack("{s:n, s:n, s:s, s:s, s:s, s:s, s:i, s:o, s:o*, s:o*}", "error_kind", "error", "version",
                     attn_version(), "platform", c.platform, "kernel_set", c.isa, "attention_dtype",
                     attn_dtype_name(r->attention->dtype), "threads", r->threads, "roles", json_attention(r),
                     "clip", r->network ? json_clip(r) : NULL, "check", r->verdict ? json_verdict(r) : NULL);
}

void report_failure_json(const failure *f)
{
    print_json(json_pack("{s:s, s:s}", "error_kind", attn_kind_name(f->kind), "error", f->text));
}

void report_print(const report *r)
{
    if (r->options->json)
        print_json(json_report(r));
    else
        print_text(r);
}
