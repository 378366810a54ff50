/* radial.c: attention that narrows with the distance in time ("radial attention", Li et al. 2025).
 *
 * Token n of a video is place n % patches of frame n / patches. Between frames at distance d, places within
 * width = decay * patches / 2^floor(log2(max(d, 1))) of each other see each other: the whole frame nearby,
 * half as far with every doubling of the distance. Where the width is below one place, the same place is
 * seen, in every 1/width-th frame. Everything sees the first `sink_frames` frames. Work grows like n log n.
 *
 * A key block is kept when any pair of its tokens is. Parameters: decay (0.01 to 4, default 1), sink_frames
 * (default 1), grid. */
#include "selectors.h"

#include <math.h>

typedef struct radial {
    const attn_sparse_call *call;
    const attn_block_map *map;
    int64_t frames, patches, sink;
    double decay;
} radial;

/* How far apart places of frames at a distance may be, in places. */
static double width_at(const radial *r, int64_t distance)
{
    return r->decay * (double)r->patches / exp2(floor(log2((double)larger(distance, 1))));
}

/* Whether some place of [q0, q1) and some of [k0, k1) see each other; the ranges are not empty. */
static int frames_meet(const radial *r, int64_t distance, int64_t q0, int64_t q1, int64_t k0, int64_t k1)
{
    int64_t apart = larger(0, larger(k0 - (q1 - 1), q0 - (k1 - 1)));
    double width = width_at(r, distance);
    if (width >= 1) return (double)(apart + 1) <= width;
    return apart == 0 && distance % (int64_t)ceil(1 / width) == 0;
}

/* The places of tokens [first, end) that lie in a frame. */
static void places_in(const radial *r, int64_t frame, int64_t first, int64_t end, int64_t *from, int64_t *to)
{
    *from = larger(first - frame * r->patches, 0);
    *to = smaller(end - frame * r->patches, r->patches);
}

static int keeps(const radial *r, int64_t q0, int64_t q1, int64_t k0, int64_t k1)
{
    if (k0 < r->sink * r->patches) return 1;
    for (int64_t i = q0 / r->patches; i <= (q1 - 1) / r->patches; i++)
        for (int64_t j = k0 / r->patches; j <= (k1 - 1) / r->patches; j++) {
            int64_t a0, a1, b0, b1;
            places_in(r, i, q0, q1, &a0, &a1);
            places_in(r, j, k0, k1, &b0, &b1);
            if (frames_meet(r, i > j ? i - j : j - i, a0, a1, b0, b1)) return 1;
        }
    return 0;
}

static void fill_list(void *arg, int64_t index, int32_t worker)
{
    const radial *r = arg;
    const attn_block_map *m = r->map;
    block_place at = place_of(r->call, m, index);
    int32_t *count, *list = attn_sparse_list(m, at.sample, at.head, at.block, &count);
    int64_t q0 = at.block * m->block_q, q1 = smaller(q0 + m->block_q, m->q_len);
    (void)worker;
    for (int64_t j = 0; j < blocks_of(m->kv_len, m->block_k); j++) {
        int64_t k0 = j * m->block_k, k1 = smaller(k0 + m->block_k, m->kv_len);
        if (keeps(r, q0, q1, k0, k1)) list[(*count)++] = (int32_t)j;
    }
}

static int select_blocks(const attn_sparse_call *call, attn_block_map *map)
{
    radial r = {.call = call, .map = map, .sink = 1, .decay = 1};
    video_grid grid;
    attn_status status;
    if ((status = attn_params_known(call->params, "decay sink_frames grid block_q block_k", call->error)) ||
        (status = attn_params_number(call->params, "decay", 0.01, 4, &r.decay, call->error)) ||
        (status = attn_params_int(call->params, "sink_frames", 0, INT32_MAX, &r.sink, call->error)) ||
        (status = selector_grid(call, "radial", &grid)))
        return status;
    r.frames = grid.size[0];
    r.patches = grid.size[1] * grid.size[2];
    r.sink = smaller(r.sink, r.frames);
    call->host->parallel_for(call->host, place_count(call, map), call->call->workers, fill_list, &r);
    return 0;
}

const attn_sparse selector_radial = {
    .size = sizeof(attn_sparse),
    .abi_major = ATTN_MODULE_MAJOR,
    .abi_minor = ATTN_MODULE_MINOR,
    .name = "radial",
    .summary = "video attention that narrows with the distance in time",
    .select = select_blocks,
    .any_device = 1,
};
