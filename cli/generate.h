/* generate.h: a problem and its seed become tensors.
 *
 * Values are multiples of 1/32 in (-4, 4), bell-shaped, exact in bf16, f16, f32 and f64: two problems that
 * differ only in dtype or layout hold the same numbers, so the f64 form of a problem gives its exact result.
 * Outputs start as NaN bytes and stand between guard bytes; padding between rows holds NaN or 1e30. */
#ifndef ATTN_CLI_GENERATE_H
#define ATTN_CLI_GENERATE_H

#include <attn/attn.h>

#include "problem.h"

/* Tensors of a problem. args is ready for attn_forward; layer for attn_layer_open (add role and device).
 * Absent tensors are NULL in args. Everything is freed by generate_free; args may be copied and changed. */
struct generated {
    struct problem problem;
    attn_layer_options layer;
    attn_args args; /* cancel points to cli_cancel */
    struct generate_store *store;
};

/* Fails: out_of_memory, invalid_shape (sizes overflow), invalid_value. All memory is 64-byte aligned. */
attn_status generate(const struct problem *problem, struct generated *out, attn_error *error);
/* The same shapes, strides, lengths and spans over memory that nothing touches, for questions about a call
 * that does not run: a tensor may be larger than the machine's memory. */
attn_status generate_shapes(const struct problem *problem, struct generated *out, attn_error *error);
void generate_free(struct generated *generated);

/* Memory of what generate makes: bytes of all tensors and elements of all outputs but lse. Fails like
 * generate, never with out_of_memory. */
struct generate_need {
    double bytes, mask_bytes, out_elements; /* bytes include the mask's */
};
attn_status generate_measure(const struct problem *problem, struct generate_need *need, attn_error *error);

/* The same call over plain tensors: args, without their cache. */
attn_args generate_plain(const struct generated *generated, const attn_args *args);

/* Poisons out, lse and joint_out again, for another run over the same inputs. */
void generate_reset(struct generated *generated);

/* Checks that nothing around the outputs was written: guards and the padding between rows. Fails: internal.
 */
attn_status generate_verify(const struct generated *generated, attn_error *error);

/* A stream of uniform 64-bit numbers; equal seeds give equal streams on every machine. */
struct random_stream {
    uint64_t state;
};
void random_seed(struct random_stream *random, uint64_t seed);
uint64_t random_next(struct random_stream *random);
uint64_t random_below(struct random_stream *random, uint64_t bound); /* bound > 0 */

#endif
