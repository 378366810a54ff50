/* means.h: means of key blocks and of runs of queries, and their products: what training-free selectors look
 * at. */
#ifndef ATTN_SELECTORS_MEANS_H
#define ATTN_SELECTORS_MEANS_H

#include "selectors.h"

/* Runs of queries that are scored at a time. */
enum { MEANS_RUNS = 4 };

typedef struct means {
    const attn_sparse_call *call;
    const attn_block_map *map;
    int64_t rows;   /* queries of a run */
    int64_t blocks; /* of keys */
    int64_t room;   /* the same, rounded up to whole vectors */
    float *keys;    /* [sample, kv head, channel, room]: means of key blocks */
    float *scratch; /* of every worker */
    size_t worker_floats;
} means;

/* Computes the means of all key blocks. Query blocks will be looked at in runs of `rows` queries (at most a
 * block). A worker's scratch holds the parts below. means_close releases. Fails: out_of_memory. */
attn_status means_open(means *m, const attn_sparse_call *call, const attn_block_map *map, int64_t rows);
void means_close(means *m);

/* Parts of a worker's scratch. */
typedef struct means_scratch {
    float *queries; /* [run, head, channel]; also [kv head, channel] while key blocks are read */
    float *scores;  /* [MEANS_RUNS, room] */
    float *mass;    /* [room] */
    int32_t *order; /* [room] */
    uint8_t *keep;  /* [room], zeros */
} means_scratch;
means_scratch means_scratch_of(const means *m, int32_t worker);

/* s->queries: the means, times scale, of all runs of a query block, for all heads at once because their rows
 * lie side by side. Returns the number of runs. */
int64_t means_read(const means *m, int64_t sample, int64_t block, means_scratch *s);
/* Queries of a run of that block: fewer at the end of the sequence. */
int64_t means_rows(const means *m, int64_t block, int64_t run);
/* scores[r][j] = run `run` + r of the block that was read, times the mean of key block j; `runs` of them, at
 * most MEANS_RUNS. */
void means_score(const means *m, block_place at, int64_t run, int64_t runs, means_scratch *s);

/* Marks in keep the fewest of the largest values that add up to `enough`, at least one and at most `most`; of
 * equal values the earlier goes before. order: room for count numbers. */
void mark_largest(const float *values, int64_t count, double enough, int64_t most, int32_t *order,
                  uint8_t *keep);
/* Appends the blocks that are marked, ascending, and clears the marks. */
void list_marked(uint8_t *keep, int64_t blocks, int32_t *list, int32_t *count);

#endif
