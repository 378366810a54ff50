/* plugin_cases.c: sparse plugins that do one thing wrong each; -DCASE=N says which. */
#include <attn/module.h>

#define EXPORT ATTN_MODULE_EXPORT

#if CASE < 10
static int calls;

static void fill(const attn_sparse_call *call, float value, int64_t rows)
{
    const attn_problem *p = call->problem;
    for (int64_t b = 0; b < p->batch; b++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t h = 0; h < p->heads; h++)
                for (int64_t d = 0; d < p->head_dim; d++)
                    attn_store(p->dtype, call->out,
                               b * p->out_stride[0] + i * p->out_stride[1] + h * p->out_stride[2] + d, value);
}

EXPORT int attn_sparse_forward(const attn_sparse_call *call)
{
    const attn_problem *p = call->problem;
    fill(call, 0, p->q_len);
    calls++;
    switch (CASE) {
    case 1: /* leaves a row out */
        fill(call, (float)(1e300 * 1e300 - 1e300 * 1e300), 1);
        return 0;
    case 2: /* another result each time */
        fill(call, (float)calls, p->q_len);
        return 0;
    case 3: /* writes behind the end */
        attn_store(p->dtype, call->out, p->batch * p->q_len * p->heads * p->head_dim, 1);
        return 0;
    case 4: /* fails without a word */
        return 7;
    case 5: /* refuses shapes, which is its right */
        if (p->q_len == p->kv_len) return 0;
        return (int)attn_fail(call->error, ATTN_KIND_CAPABILITY_UNSUPPORTED, "only as many keys as queries");
    case 6: /* wants what a pipeline publishes */
        if (call->forward && call->forward->denoise_step && call->forward->latent_shape &&
            call->forward->patch_size && call->forward->denoise_total &&
            call->forward->denoise_step[0] < call->forward->denoise_total[0])
            return 0;
        return 1;
    case 7: /* reads where nothing is */
        return *(const volatile int *)8;
    default: /* refuses everything */
        return (int)attn_fail(call->error, ATTN_KIND_CAPABILITY_UNSUPPORTED, "not on a Tuesday");
    }
}
#else
EXPORT int attn_sparse_select(const attn_sparse_call *call, attn_block_map *map)
{
    const int64_t *n = map->blocks->shape;
    for (int64_t list = 0; list < n[0] * n[1] * n[2]; list++) {
        int32_t *count, *blocks = attn_sparse_list(map, 0, 0, list, &count);
        blocks[(*count)++] = 0;
        if (CASE == 10) blocks[(*count)++] = 0; /* twice the same */
        /* Chooses by v, so that the map of the run that tells keys apart is another one. */
        if (CASE == 11 && n[3] > 1 && call->problem->value_head_dim == call->problem->head_dim)
            blocks[(*count)++] = 1;
        if (CASE == 12) *count = 0; /* sees nothing: the output is 0 */
    }
    return 0;
}
#endif
