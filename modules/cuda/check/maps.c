/* maps.c: random block maps. */
#include "check.h"

#include <math.h>
#include <string.h>

static int64_t ceil_div(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Half of them as the tensor-core kernels like them best. */
static void draw_blocks(int64_t *block_q, int64_t *block_k)
{
    static const int64_t liked[] = {64, 128, 64, 128, 256, 192}, others[] = {48, 130, 200, 33, 1000, 64};
    const int64_t *sizes = chance(70) ? liked : others;
    *block_q = sizes[random_below(6)], *block_k = sizes[random_below(6)];
}

/* Each list keeps its blocks with a chance of its own. */
static void draw_lists(problem *p)
{
    int32_t *counts = p->counts.dl[HOST].data, *blocks = p->blocks.dl[HOST].data;
    const int64_t most = p->blocks.shape[3];
    for (int64_t list = 0; list < p->counts.count; list++) {
        const int percent = chance(15) ? 0 : chance(20) ? 100 : (int)random_below(101);
        for (int64_t j = 0; j < most; j++)
            if (chance(percent)) blocks[list * most + counts[list]++] = (int32_t)j;
    }
}

/* One list of the device's copy gets a count or an entry that is out of range or out of order. */
static void break_list(problem *p)
{
    const int64_t list = random_below(p->counts.count), most = p->blocks.shape[3];
    const int64_t blocks = p->counts.shape[2], heads = p->counts.shape[1];
    int32_t count, entry, entries[2];
    int32_t *counts = p->counts.dl[DEVICE].data, *at = (int32_t *)p->blocks.dl[DEVICE].data + list * most;
    cuda(cudaMemcpy(&count, counts + list, sizeof count, cudaMemcpyDeviceToHost), "download");
    if (count < 2 || chance(30)) {
        count = chance(50) ? (int32_t)most + 1 : -1;
        cuda(cudaMemcpy(counts + list, &count, sizeof count, cudaMemcpyHostToDevice), "upload");
    } else {
        cuda(cudaMemcpy(entries, at, sizeof entries, cudaMemcpyDeviceToHost), "download");
        entry = chance(40) ? entries[0] : chance(50) ? (int32_t)most : -3;
        cuda(cudaMemcpy(at + 1, &entry, sizeof entry, cudaMemcpyHostToDevice), "upload");
    }
    p->broken[0] = p->counts.shape[0] > 1 ? list / blocks / heads : INT64_MAX;
    p->broken[1] = heads > 1 ? list / blocks % heads : INT64_MAX;
    p->broken[2] = list % blocks;
    note(p, "!list%d", (int)list);
}

void add_map(problem *p, int64_t b, int64_t h, int64_t sq, int64_t sk)
{
    int64_t block_q, block_k;
    draw_blocks(&block_q, &block_k);
    int64_t rows = ceil_div(sq, block_q), keys = ceil_div(sk, block_k);
    int64_t counts[] = {chance(60) ? b : 1, chance(70) ? h : 1, rows},
            blocks[] = {counts[0], counts[1], rows, keys};
    make(&p->counts, ATTN_I32, 3, counts, 1, 0);
    make(&p->blocks, ATTN_I32, 4, blocks, 1, 0);
    draw_lists(p);
    upload(&p->counts), upload(&p->blocks);
    note(p, " map=%dx%d[%d,%d]", (int)block_q, (int)block_k, (int)counts[0], (int)counts[1]);
    if (sk && chance(20)) break_list(p);
    for (int f = DEVICE; f < FORMS; f++) {
        p->map[f] = (attn_block_map){.size = sizeof p->map[f],
                                     .block_q = block_q,
                                     .block_k = block_k,
                                     .counts = &p->counts.dl[f],
                                     .blocks = &p->blocks.dl[f]};
        p->args[f].block_map = &p->map[f];
    }
}

static int hit(int64_t broken, int64_t at)
{
    return broken == INT64_MAX || broken == at;
}

void break_truth(problem *p)
{
    double *out = p->out.dl[WIDE].data;
    float *lse = p->lse.dl[WIDE].data;
    const int64_t rows = p->out.shape[1], heads = p->out.shape[2], channels = p->out.shape[3];
    if (p->broken[0] < 0) return;
    for (int64_t b = 0; b < p->out.shape[0]; b++)
        for (int64_t i = 0; i < rows; i++)
            for (int64_t h = 0; h < heads; h++) {
                if (!hit(p->broken[0], b) || !hit(p->broken[1], h) ||
                    i / p->map[DEVICE].block_q != p->broken[2])
                    continue;
                for (int64_t c = 0; c < channels; c++) out[((b * rows + i) * heads + h) * channels + c] = NAN;
                lse[(b * heads + h) * rows + i] = NAN;
            }
}

void make_random_map(tensor *counts, tensor *blocks, attn_block_map *map, int64_t heads, int64_t length,
                     int64_t block, int64_t keep)
{
    int64_t n = ceil_div(length, block), c[] = {1, heads, n}, l[] = {1, heads, n, keep};
    make(counts, ATTN_I32, 3, c, 1, 0), make(blocks, ATTN_I32, 4, l, 1, 0);
    int32_t *count = counts->dl[HOST].data, *list = blocks->dl[HOST].data;
    for (int64_t i = 0; i < counts->count; i++) {
        /* Of the blocks that are left, as many as are wanted still. */
        int64_t wanted = keep;
        for (int64_t j = 0; j < n; j++)
            if (random_below(n - j) < wanted) list[i * keep + (keep - wanted--)] = (int32_t)j;
        count[i] = (int32_t)keep;
    }
    upload(counts), upload(blocks);
    *map = (attn_block_map){.size = sizeof *map,
                            .block_q = block,
                            .block_k = block,
                            .counts = &counts->dl[DEVICE],
                            .blocks = &blocks->dl[DEVICE]};
}
