/* call.h: one attention call of a command: layer and arguments, from files or from a problem string. */
#ifndef ATTN_CLI_CALL_H
#define ATTN_CLI_CALL_H

#include <attn/attn.h>

#include "generate.h"
#include "options.h"
#include "tensor.h"

/* Values of options_call.def. When not given, left and right are -1 and scale is NaN: call_defaults sets
 * them. */
struct call_values {
    const char *problem, *q, *k, *v, *layout, *dtype, *mask, *mask_kind, *key_mask, *kv_lengths,
        *cu_seqlens_q;
    const char *cu_seqlens_k, *sinks, *causal;
    int64_t heads, kv_heads, left, right;
    double scale, softcap;
};
void call_defaults(struct call_values *values);

/* Row of a command whose struct of values T has a `struct call_values` called `call`. */
#define CALL_ROW(T, kind, field, name, letter, argument, help, min, max)                                     \
    {OPTION_##kind, name, letter, argument, help, offsetof(T, call.field), min, max},

enum call_file {
    CALL_Q,
    CALL_K,
    CALL_V,
    CALL_MASK,
    CALL_KEY_MASK,
    CALL_LENGTHS,
    CALL_CU_Q,
    CALL_CU_K,
    CALL_SINKS,
    CALL_OUT,
    CALL_LSE,
    CALL_SCORES,
    CALL_FILES
};

/* A tensor's BSND view: other axes over the same memory. */
struct call_view {
    DLTensor dl;
    int64_t shape[4], strides[4];
};

struct call {
    attn_layer_options layer; /* role and device are the caller's to add */
    attn_args args;
    struct generated generated; /* store NULL: from files */
    struct tensor files[CALL_FILES];
    struct call_view views[4];          /* q, k, v, out */
    char text[PROBLEM_TEXT_BYTES + 64]; /* problem string or shapes, for reports */
};

/* From a problem (values say nothing about files then). */
attn_status call_from_problem(const struct problem *problem, struct call *call, attn_error *error);
/* From files. out is made beside them, in q's layout and of out_dtype (0: q's); it holds NaN. */
attn_status call_from_files(const struct call_values *values, attn_dtype out_dtype, struct call *call,
                            attn_error *error);
/* Fails with mutually_exclusive when a problem string stands beside other options of options_call.def, which
 * it has keys of its own for. */
attn_status call_check_problem(const struct call_values *values, attn_error *error);
void call_free(struct call *call);

/* Fails when an output is the file of one of the inputs. */
attn_status call_check_output(const struct call_values *values, const char *spec, attn_error *error);

/* What a command keeps in memory beside a problem's own tensors. */
struct call_extra {
    int exact;    /* q, k, v and out in f64 */
    int masks;    /* with masks of their own */
    int outcomes; /* copies of the outputs in f64 */
    int scores;   /* a matrix of scores in f32 */
};
/* Fails with out_of_memory when all of that exceeds what the machine has left; asked before generate. */
attn_status call_fits(const struct problem *problem, const struct call_extra *extra, attn_error *error);

/* Adds an lse or a scores output; nothing when there is one already. */
attn_status call_add_lse(struct call *call, attn_error *error);
attn_status call_add_scores(struct call *call, const char *mode, attn_error *error);

/* Fills out, lse and scores with NaN. */
void call_reset(struct call *call);

/* out of the call as the caller's file holds it: the files' layout, BSND for problems. */
const DLTensor *call_out(const struct call *call);

#endif
