/* field.h: what the field case tests share. The cases themselves are quoted in field-cases.jsonl. */
#ifndef TESTS_FIELD_H
#define TESTS_FIELD_H

#include "support.h"

#define CASE(function, id) void function(void **state);
#define DEFERRED(id, reason)
#include "cases.def"
#undef CASE
#undef DEFERRED

/* A value case: mix32 inputs with three seeds in a row from seed, a mask from arrange, and known elements of
 * out. */
typedef struct probe {
    int64_t at[4];
    double value;
} probe;
typedef struct probe_case {
    const char *id;
    attn_dtype dtype;
    dims d;
    uint32_t seed;
    double atol;
    void (*arrange)(test_call *c); /* NULL: nothing more */
    int probes;
    probe probe[4];
} probe_case;

/* Runs the case on both backends; each also agrees with the double evaluation under keep unless keep is
 * field_no_truth. After, the callers' own checks may look at *c (NULL: none). */
void field_probes(const probe_case *p, keep_fn keep, void (*after)(const test_call *c));
int field_no_truth(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j);
/* keep_fn over a keep-mask of any broadcast shape, and over a key mask. */
int keep_by_mask(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j);
int keep_by_key_mask(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j);
int keep_bottom_right(const test_call *c, int64_t b, int64_t h, int64_t i, int64_t j);

/* Generators of inputs that the cases name. */
void fill_key_index(const tensor *v, double first); /* v[b, j, h, x] = j + first */

/* Path of a test module. */
#define FIXTURE(name) TEST_MODULES "/" name ".so"

#endif
