/* generate_store.h: the tensors behind a generated problem; shared by generate*.c only. */
#ifndef ATTN_CLI_GENERATE_STORE_H
#define ATTN_CLI_GENERATE_STORE_H

#include "generate.h"

enum slot_id {
    SLOT_Q,
    SLOT_K,
    SLOT_V,
    SLOT_OUT,
    SLOT_LSE,
    SLOT_MASK,
    SLOT_KEY_MASK,
    SLOT_LENGTHS,
    SLOT_CU_Q,
    SLOT_CU_K,
    SLOT_SINKS,
    SLOT_JOINT_Q,
    SLOT_JOINT_K,
    SLOT_JOINT_V,
    SLOT_JOINT_OUT,
    SLOT_JOINT_KEY_MASK,
    SLOT_COUNTS,
    SLOT_BLOCKS,
    SLOT_PAGES_K, /* the cache; scales and table are plain, whatever the layout of the others */
    SLOT_PAGES_V,
    SLOT_SCALE_K,
    SLOT_SCALE_V,
    SLOT_TABLE,
    SLOT_CONTEXTS, /* keys of each request */
    SLOT_ALIBI,
    SLOT_TREE,
    SLOT_SELECT,
    SLOT_COUNT,
    SLOT_STREAMS =
        18 /* apart from the count, so that a new slot leaves the values of all problems as they were */
};

/* Shapes are kept with four axes, missing ones in front with size 1 and skipped by dl. */
struct slot {
    DLTensor dl; /* data NULL: absent */
    int64_t shape[4], strides[4];
    attn_dtype dtype;
    int64_t extent; /* elements from the first to one past the last, tail padding included */
    char *base;     /* of the allocation; NULL: within another slot's */
    size_t bytes;   /* of the allocation */
    int mapped;     /* by mmap, not malloc */
};

struct generate_store {
    struct slot slots[SLOT_COUNT];
    attn_span *spans;
    attn_query_range *ranges;
    attn_prefix_range *prefix;
    attn_cache cache;
    attn_block_map map; /* of SLOT_COUNTS and SLOT_BLOCKS */
    int bare;           /* address space only, nothing is filled but what shapes depend on */
    int measured;       /* no memory at all: slots have shapes and strides, `bytes` alone grows */
    double bytes, mask_bytes;
};

#define GUARD_BYTES 64
#define GUARD_VALUE 0xA5

/* Fills what the tensors of a problem hold: values, masks, lengths, spans. */
void generate_values(const struct problem *problem, struct generate_store *store);
/* generate_cache.c: puts the keys and values into pages, and the numbers that go with them. */
void generate_cache(const struct problem *problem, struct generate_store *store);
void generate_cache_vectors(const struct problem *problem, struct generate_store *store);
/* What the cache of a problem makes of a value. */
double generate_stored(const struct problem *problem, double value);
/* A random stream of its own for each slot. */
void generate_stream(const struct problem *problem, enum slot_id id, struct random_stream *random);
/* Requests of the cache, and pages that one of them may have. */
static inline int64_t generate_requests(const struct problem *problem)
{
    return problem->packed ? problem->packed : problem->batch;
}

static inline int64_t generate_pages(const struct problem *problem)
{
    return (problem->kv_len + problem->paged - 1) / problem->paged;
}

/* Only those that shape the call: lengths, bounds of packed sequences, spans, ranges. */
void generate_vectors(const struct problem *problem, struct generate_store *store);
/* 1 when no query can see key j of sample b, as far as masks, lengths, windows and causal order of a problem
 * without packing say. */
int generate_hidden(const struct problem *problem, const struct generate_store *store, int64_t b, int64_t j);

/* Key blocks of each list of a problem's block map. */
static inline int64_t generate_listed(const struct problem *p)
{
    int64_t blocks = (p->kv_len + p->joint + p->block_k - 1) / p->block_k;
    return blocks - (int64_t)(p->sparse * (double)blocks + 0.5);
}

static inline char *slot_at(const struct slot *slot, int64_t a, int64_t b, int64_t c, int64_t d)
{
    int64_t offset =
        a * slot->strides[0] + b * slot->strides[1] + c * slot->strides[2] + d * slot->strides[3];
    return (char *)slot->dl.data + offset * (int64_t)(slot->dl.dtype.bits / 8);
}

#endif
