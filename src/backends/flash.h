/* flash.h: inner parts of the tiled implementation.
 *
 * The work is cut into units, one for each sample and key/value head. A unit packs K and V once, block of
 * keys by block of keys, into one of a few slots of shared memory; then every block of its query rows, of all
 * heads that share the K and V, runs over them with an online softmax. flash.c plans and answers,
 * flash_walk.c hands out the items of work in an order that never deadlocks, flash_pack.c and flash_tile.c do
 * them. Rows in pages, in lists or of another type come through flash_source.c. With a block map,
 * flash_blocks.c says how a unit is cut and walks the lists. */
#ifndef ATTN_BACKENDS_FLASH_H
#define ATTN_BACKENDS_FLASH_H

#include <attn/module.h>
#include <pthread.h>
#include <stdatomic.h>

#include "backends/rows.h"
#include "kernels/isa.h"

extern const attn_impl attn_flash_impl;

/* ---- plan --------------------------------------------------------------------------------------- */

/* Blocks at most: query rows and keys. */
typedef struct flash_caps {
    int64_t rows, keys;
} flash_caps;

/* The level-2 cache that plans are made for unless something allows them to look at the machine's own. */
#define FLASH_CACHE_KIB 1024

/* By flash_tiles.def; width is D + Dv. */
flash_caps flash_caps_of(int64_t width, int64_t cache_kib, int64_t panel);
/* Brings blocks that a profile asks for within what the kernels and FLASH_SCRATCH_MOST allow. */
flash_caps flash_caps_legal(flash_caps caps, const attn_problem *p, int64_t panel);

/* The workspace of a call takes at most threads * FLASH_SCRATCH_MOST + (threads + 1) * keys * (D + Dv) * 4
 * bytes, with Dv rounded up to whole vectors; packed sequences, which may be of both kinds, twice the second
 * part. The first part holds scratch and what rounding adds to the packed keys. */
#define FLASH_SCRATCH_MOST 2621440

/* A unit with no more rows than this does not repay packing: each block of keys is read where it is, and the
 * results of the blocks are merged. */
#define FLASH_ROWS_FEW 16

/* One block of packed keys. */
typedef struct flash_block {
    int32_t keys;   /* that may be visible; the others of the block are hidden for every row */
    uint8_t masked; /* some of these keys are hidden by a mask that holds for all rows and heads */
    uint8_t broken; /* V holds an infinity or a NaN: a weight of 0 does not hide it */
    uint8_t reserved[2];
} flash_block;

/* Parts of a slot, of the area behind the slots and of a worker's scratch, as byte offsets from its start. */
typedef struct flash_layout {
    size_t keys, values, blocks, parts, slot_bytes;
    size_t used, order; /* with a block map: from the start of shared memory */
    size_t queries, scores, out, best, top, sum, decay, ranges, rows, bias, keep, turn, part_keys,
        part_values, key_rows, value_rows, gathered, bits, scratch_bytes;
    size_t lists; /* of selected keys: from the start of shared memory */
} flash_layout;

typedef struct flash_plan {
    attn_kernels kernels;
    flash_layout layout;
    int64_t slots;               /* units whose packed K and V are kept at a time */
    int64_t row_cap;             /* query rows of a block at most */
    int64_t key_cap;             /* keys of a block at most */
    int tuned;                   /* a row of the user's profile holds */
    int64_t q_blocks, kv_blocks; /* of the block map; 0: there is none */
    int64_t tile;                /* of flash_ask */
    int32_t type;                /* of K and V as the kernels get them: an ATTN_ELEMENT */
    int64_t kv_step;             /* key/value heads of a unit with few rows: see flash_unit */
    int32_t gathers;             /* K and V come through flash_source.c */
    float eight[256];            /* values of the 8-bit floating type that a cache stores */
} flash_plan;

/* How one sample is cut. A function of its lengths and the head sizes only, so that a result does not depend
 * on threads, strides or the rest of the batch. */
typedef struct flash_tiles {
    int64_t rows, row_blocks;   /* query rows of a block, and how many blocks of a head */
    int64_t heads, head_blocks; /* heads of a block: several when a head has few rows */
    int64_t keys, key_blocks;
    /* With a block map: blocks of rows that a query block of the map is cut into, and blocks of keys (the
     * last ones may be empty) that a key block of the map is; 0: no map. */
    int64_t row_parts, key_parts;
} flash_tiles;

/* What implementations that are built on this one add to a call. Zeroed fields add nothing. */
typedef struct flash_extra {
    /* Block maps whose blocks differ in size: the first row (key) of each block, and the end. NULL: all
     * blocks but the last have the size that the problem says, which is the largest otherwise. */
    const int64_t *row_starts, *key_starts;
    /* A tile whose best score is below the running maximum of every row by a factor less than this is
     * skipped: `skip`, or `skip_factor` divided by the keys of the sample; at most 1. Both 0: none is. */
    double skip, skip_factor;
    _Atomic int64_t *tiles, *skipped; /* counters, with skip or skip_factor */
} flash_extra;

/* What such an implementation asks of a plan. */
typedef struct flash_ask {
    int64_t q_blocks, kv_blocks; /* of a block map with starts of its own; 0: those of the problem */
    int64_t tile; /* rows and keys of every tile but the last, no part of a tile on its own; 0: as
                     flash chooses */
} flash_ask;

/* The cap on kernel sets for a problem: the user's, or the set that a profile names. */
const char *flash_isa(flash_plan *plan, const attn_host *host, const attn_problem *p);
/* Sets row_cap and key_cap: the default rows of the table, unless a profile says otherwise. */
void flash_choose_caps(flash_plan *plan, const attn_host *host, const attn_problem *p);

flash_tiles flash_cut(const flash_plan *plan, int64_t q_len, int64_t kv_len, int64_t group);

/* Plans for other implementations that are built on this one; ask may be NULL. flash_plan_drop releases. */
attn_status flash_plan_make(const attn_host *host, const attn_problem *p, const flash_ask *ask,
                            flash_plan **plan, attn_workspace *workspace, attn_error *error);
void flash_plan_drop(const attn_host *host, flash_plan *plan);

/* ---- run ---------------------------------------------------------------------------------------- */

/* The shared head of a slot. A unit of sequence number n uses slot n % slots in its round n / slots. */
typedef struct flash_slot {
    _Atomic int64_t ready;            /* rounds whose packing is complete */
    _Atomic int64_t freed;            /* rounds that nobody reads any more */
    _Atomic int64_t packed, attended; /* items done in this round */
    char pad[32];
} flash_slot;

/* A sample and key/value head with at least one query row. */
typedef struct flash_unit {
    int64_t number; /* -1 before the first */
    int64_t index;  /* of sample and head: sample * kv_heads + head */
    int64_t batch, kv_head;
    attn_rows rows;
    attn_interval seen; /* keys that any row may see */
    /* With a list the unit is one row of the sample, and its keys are the entries of the list, ascending. */
    attn_rows sample;
    int64_t row;
    const int32_t *list; /* NULL: none; then `rows` are those of the sample, and row is 0 */
    flash_tiles tiles;
    int64_t kv_count; /* key/value heads from kv_head on that share the unit: 1, or with few rows more */
    int64_t kv_at;    /* of these, the one at work: kv_head is its own */
    int few;          /* rows: blocks of keys are attended to one by one, and then merged */
    int64_t packs, attends; /* items: pack (or attend to) a block of keys, attend (or merge) */
    int64_t next;           /* item */
} flash_unit;

typedef struct flash_item {
    int pack; /* else attend */
    int64_t index;
    flash_unit unit;
} flash_item;

typedef struct flash_run {
    const flash_plan *plan;
    const attn_call *call;
    int64_t group; /* query heads of a key/value head */
    flash_extra extra;
    int64_t ahead; /* units that are packed before the current one is finished */
    pthread_mutex_t lock;
    flash_unit pack, attend; /* behind the lock: where both walks stand */
    int packed_all;
    _Atomic int cancelled;
} flash_run;

/* The whole call: prepares the walk and runs it on the host's workers. extra may be NULL. */
attn_status flash_execute(const attn_host *host, const flash_plan *plan, const attn_call *call,
                          const flash_extra *extra, attn_error *error);

void flash_pack(flash_run *run, const flash_item *item, char *slot, char *scratch);
void flash_attend(flash_run *run, const flash_item *item, char *slot, char *scratch);
/* The same two steps for a unit with few rows. */
void flash_part(flash_run *run, const flash_item *item, char *slot, char *scratch);
void flash_merge(flash_run *run, const flash_item *item, char *slot, char *scratch);

/* ---- flash_source.c ---- */

/* Sets type, gathers and eight. */
void flash_choose_source(flash_plan *plan, const attn_problem *p);
/* Query rows and keys of a unit at most. */
int64_t flash_rows_most(const attn_problem *p);
int64_t flash_keys_most(const attn_problem *p);
/* Whether the kernels can read rows of `width` elements where they are. */
int flash_in_place(const flash_plan *plan, const attn_problem *p, const int64_t *stride, int64_t width);
/* rows[j]: where row first + j of K (or V, by base and stride) of the unit is. */
void flash_point(const flash_run *run, const flash_unit *unit, const void *base, const int64_t *stride,
                 int64_t first, int64_t n, const void **rows);
/* The same n rows side by side in `copy`, in the type of the plan. rows: room for n pointers. */
void flash_gather(const flash_run *run, const flash_unit *unit, int of_values, int64_t first, int64_t n,
                  const void **rows, void *copy);
/* Packs keys [first, first + n) of the unit; returns what pack_values does. */
int flash_pack_gathered(const flash_run *run, const flash_unit *unit, int64_t first, int64_t n, void *keys,
                        void *values, char *scratch);
/* With lists every query row and key/value head is a unit: how many, their memory behind the slots, the step
 * that sorts the lists, and the unit of an index (0 at the end). */
int64_t flash_listed_units(const attn_problem *p);
size_t flash_list_bytes(const attn_problem *p);
void flash_read_lists(const attn_host *host, const flash_run *run);
int flash_locate_listed(const flash_run *run, flash_unit *unit);
/* Keys of the unit that its row i sees by the structure of the call. */
attn_interval flash_row_keys(const flash_run *run, const flash_unit *unit, int64_t i);

/* flash_blocks.c: how a unit is cut along a block map. */
flash_tiles flash_cut_map(const flash_plan *plan, const attn_problem *p, int64_t group);
/* Places the used blocks and the order of work behind the slots; adds to *shared like a plan does. */
void flash_lay_out_map(flash_plan *plan, const attn_problem *p, size_t *shared);
/* Before the walk: which blocks of keys any list of a unit names, and the longest lists first. */
void flash_read_map(const attn_host *host, flash_run *run);
/* Tells how many pairs of blocks the call's map keeps. */
void flash_report_map(const attn_call *call);
/* Whether any list of the unit names the packed block. */
int flash_block_used(const flash_run *run, const flash_unit *unit, int64_t index);
/* Packed blocks of one item of packing. */
int64_t flash_pack_step(const flash_run *run, const flash_unit *unit);

/* Keys [first, end) of the sample that packed block `index` of a unit holds. */
attn_interval flash_block_keys(const flash_run *run, const flash_unit *unit, int64_t index);

/* What of a block of keys of a unit any row can see. */
flash_block flash_see_block(const flash_run *run, const flash_unit *unit, int64_t index);

/* Whether a keep mask speaks of keys only, for all rows and heads: it then works like a key mask. */
static inline int flash_mask_of_keys(const attn_problem *p)
{
    return p->mask_form == ATTN_FORM_KEEP && p->mask_stride[1] == 0 && p->mask_stride[2] == 0;
}

/* keep[j]: keys [first, first + n) of the sample by the masks that hold for all its rows and heads. */
void flash_key_keep(const flash_run *run, const flash_unit *unit, int64_t first, int64_t n, uint8_t *keep);

/* Bytes that n packed keys and values take. */
static inline size_t flash_key_bytes(const flash_run *run, int64_t n)
{
    int64_t padded = attn_round_up(run->call->problem->head_dim, run->plan->kernels.pair);
    return (size_t)(n * padded) * (size_t)run->plan->kernels.packed_bytes;
}

static inline size_t flash_value_bytes(const flash_run *run, int64_t n)
{
    int64_t padded = attn_round_up(run->call->problem->value_head_dim, run->plan->kernels.lanes);
    return (size_t)(n * padded) * (size_t)run->plan->kernels.packed_bytes;
}

static inline size_t flash_element_bytes(attn_dtype dtype)
{
    return dtype == ATTN_F32 ? 4 : 2;
}

/* Key (value) row `first` of a unit, the stride of its axes as in the problem. */
static inline const char *flash_kv_row(const flash_unit *unit, const void *base, const int64_t *stride,
                                       int64_t first, attn_dtype dtype)
{
    int64_t at = unit->batch * stride[0] + (unit->rows.k0 + first) * stride[1] + unit->kv_head * stride[2];
    return (const char *)base + at * (int64_t)flash_element_bytes(dtype);
}

#endif
