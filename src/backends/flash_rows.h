/* flash_rows.h: a block of query rows at work, between flash_rows.c and flash_tile.c. */
#ifndef ATTN_BACKENDS_FLASH_ROWS_H
#define ATTN_BACKENDS_FLASH_ROWS_H

#include "backends/flash.h"

#define LOG2E 1.44269504088896340736
#define LN2   0.69314718055994530942

/* What one item works on. Rows are numbered head by head: row r is query row `first + r % each` of head
 * `head + r / each`. */
typedef struct flash_rows {
    flash_run *run;
    const attn_call *call;
    const attn_problem *p;
    const attn_kernels *kernels;
    const flash_unit *unit;
    int32_t rows;
    int64_t first, each, head;
    int64_t first_next; /* first row of the block that this worker may do next; negative: unknown */
    int masked_rows;    /* the mask differs from row to row or from head to head */
    int natural;  /* scores are natural: an additive mask near the end of the range would overflow in base 2,
                     the unit of all other calls, which saves a multiplication */
    float factor; /* that scores lack, because the packed queries have only the sign of the scale; else 1 */
    float cap;
    void *queries;
    float *scores, *out, *best, *top, *sum, *decay, *bias, *turn;
    attn_interval *ranges;
    attn_interval all; /* holds the ranges of all rows */
    const void **query_rows;
    uint8_t *key_keep, *row_keep, *seen; /* ATTN_KEYS_MAX each: by keys alone, by row, after all edits */
    uint8_t *tree_keep;                  /* ATTN_KEYS_MAX: by row and tree */
    float *slopes;                       /* ATTN_KEYS_MAX: the bias of a row with its slopes */
    const int32_t *list;                 /* with a block map: its key blocks */
    int64_t listed;
} flash_rows;

/* Keys [first, first + keys) of the sample, out of one packed block. */
typedef struct flash_tile {
    const flash_block *block;
    const char *packed_keys, *packed_values;         /* of the block */
    const void *const *key_rows, *const *value_rows; /* of the block, where they are; NULL: packed */
    int64_t known_keys, known_values;                /* rows from the start of the block that exist */
    int64_t first, keys;
    int64_t skip;     /* keys of the block before `first` */
    int starts, last; /* among the tiles of these rows */
} flash_tile;

/* The tile's part in the softmax and the output of the rows. */
void flash_do_tile(const flash_rows *job, const flash_tile *tile);
/* The same for several tiles that every row sees in full and that nothing but the scale edits, as if their
 * keys lay side by side: the columns of all tiles, each rounded up to whole vectors, are at most
 * ATTN_KEYS_MAX. */
void flash_do_tiles(const flash_rows *job, const flash_tile *tiles, int32_t count);
/* The part of block `index` of the keys that these rows see. Returns 0 when there is none. */
int flash_set_tile(const flash_rows *job, int64_t index, const flash_block *block, flash_tile *tile);
/* flash_blocks.c: the rows that item `index` of a unit with a block map works on, and their list. */
void flash_place_listed(flash_rows *job, int64_t index);
void flash_walk_list(flash_rows *job, const char *slot);

static inline int64_t flash_head_of(const flash_rows *job, int32_t r)
{
    return r < job->each ? job->head : job->head + r / job->each; /* mostly one head, and no division */
}

static inline int64_t flash_row_of(const flash_rows *job, int32_t r)
{
    return job->first + (r < job->each ? r : r % job->each);
}

static inline const char *flash_query_row(const flash_rows *job, int64_t i, int64_t h)
{
    const int64_t *stride = job->p->q_stride;
    int64_t at = job->unit->batch * stride[0] + (job->unit->rows.q0 + i) * stride[1] + h * stride[2];
    return (const char *)job->call->q + at * (int64_t)flash_element_bytes(job->p->dtype);
}

static inline char *flash_out_row(const flash_rows *job, int32_t r)
{
    const int64_t *stride = job->p->out_stride;
    int64_t i = job->unit->rows.q0 + flash_row_of(job, r);
    int64_t at = job->unit->batch * stride[0] + i * stride[1] + flash_head_of(job, r) * stride[2];
    return (char *)job->call->out + at * (int64_t)flash_element_bytes(job->p->out_dtype);
}

/* Floats from one row of the output tile to the next. */
static inline int64_t flash_out_ld(const flash_rows *job)
{
    return attn_round_up(job->p->value_head_dim, job->kernels->lanes);
}

#endif
