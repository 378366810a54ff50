/* schedule.h: the calls that a sparse backend computes densely by its own definition: the first and last
 * denoise steps, and exempt layers. */
#ifndef ATTN_SPARSE_SCHEDULE_H
#define ATTN_SPARSE_SCHEDULE_H

#include <attn/module.h>

typedef struct sparse_schedule {
    int64_t start_step;    /* steps before it are dense */
    int64_t end_step;      /* so many last steps are dense */
    const int64_t *layers; /* exempt layers, by the number in their name; borrowed from the parameters */
    int64_t layer_count;
} sparse_schedule;

/* Parameters start_step, end_step and skip_layers; all absent: every call is sparse. Fails: invalid_type,
 * invalid_value. */
attn_status sparse_schedule_read(const attn_params *params, sparse_schedule *schedule, attn_error *error);

/* Writes "dense:" and why, or nothing when the call is sparse. who: the backend, for messages. Fails:
 * invalid_value when steps are scheduled and the step, or for end_step the number of steps, is not published,
 * and when samples of one call fall on both sides. */
attn_status sparse_schedule_ask(const sparse_schedule *schedule, const char *who, const attn_call *call,
                                char *text, size_t bytes, attn_error *error);

#endif
