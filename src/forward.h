/* forward.h: what a call hands to an implementation that consumes parameters and the per-forward state. */
#ifndef ATTN_FORWARD_H
#define ATTN_FORWARD_H

#include "core/params.h"
#include "core/problem.h"

/* One layer's: its static parameters, and the memory of what each call builds. */
typedef struct attn_consumer {
    attn_arena keep;     /* of the static parameters */
    attn_params own;     /* those of the layer's options */
    attn_params settled; /* those of the configuration, which go before them */
    int64_t layer_index; /* -1: none */
    attn_param_table table;
    attn_params view;         /* what the call sees */
    attn_forward_state state; /* the copy that the call sees */
} attn_consumer;

void attn_consumer_init(attn_consumer *consumer, const attn_allocator *allocator);
void attn_consumer_clear(attn_consumer *consumer);
/* handed: the flat table of the configuration, NULL: none. */
attn_status attn_consumer_settle(attn_consumer *consumer, const attn_layer_options *options,
                                 const json_t *handed, attn_error *error);

/* Whether any of the values of the rule is published. */
bool attn_forward_state_has(const attn_forward_state *state);
/* The state for a call: the caller's, else this thread's; NULL: none. */
const attn_forward_state *attn_forward_state_of(const attn_args *args);

/* Builds params and state of a call into the consumer: static < per-forward < per-call, nulls dropped. *built
 * says whether a state was. Fails: invalid_struct, invalid_shape, invalid_value, out_of_memory. */
attn_status attn_consumer_build(attn_consumer *consumer, const attn_args *args, int64_t batch, bool *built,
                                attn_error *error);

#endif
