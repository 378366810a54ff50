/* outcome.c: the outputs of a call as numbers. */
#include "outcome.h"

#include <stdlib.h>
#include <string.h>

#include "cli.h"

static attn_status no_memory(attn_error *error)
{
    return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a copy of the outputs");
}

/* out and joint_out one after the other. */
static attn_status read_out(const attn_args *args, struct outcome *outcome, attn_error *error)
{
    int64_t count = tensor_count(args->out), more = args->joint_out ? tensor_count(args->joint_out) : 0;
    outcome->out = tensor_values(args->out);
    if (!outcome->out) return no_memory(error);
    outcome->out_count = count + more;
    if (!args->joint_out) return ATTN_OK;
    double *joint = tensor_values(args->joint_out);
    double *both = joint ? realloc(outcome->out, (size_t)(count + more + 1) * sizeof *both) : NULL;
    if (both) {
        memcpy(both + count, joint, (size_t)more * sizeof *both);
        outcome->out = both;
    }
    free(joint);
    return both ? ATTN_OK : no_memory(error);
}

attn_status outcome_read(const attn_args *args, struct outcome *outcome, attn_error *error)
{
    memset(outcome, 0, sizeof *outcome);
    attn_status status = read_out(args, outcome, error);
    if (status || !args->lse) return status;
    outcome->lse = tensor_values(args->lse);
    outcome->lse_count = tensor_count(args->lse);
    return outcome->lse ? ATTN_OK : no_memory(error);
}

void outcome_free(struct outcome *outcome)
{
    free(outcome->out);
    free(outcome->lse);
    memset(outcome, 0, sizeof *outcome);
}

static int same(const double *a, const double *b, int64_t count)
{
    return count == 0 || memcmp(a, b, (size_t)count * sizeof *a) == 0;
}

int outcome_same(const struct outcome *a, const struct outcome *b)
{
    return a->out_count == b->out_count && a->lse_count == b->lse_count &&
           same(a->out, b->out, a->out_count) && same(a->lse, b->lse, a->lse_count);
}
