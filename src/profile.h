/* profile.h: what was measured on a machine, for plans that may use it. */
#ifndef ATTN_PROFILE_H
#define ATTN_PROFILE_H

#include <attn/module.h>
#include <stdbool.h>

/* A profile is a JSON file that `attn tune` writes:
 *   {"version": 1, "cpu": NAME, "rows": [ROW, ...]}
 * A row holds for calls of one dtype and pair of head sizes whose lengths lie in (N / 2, N], N a power of
 * two:
 *   {"dtype": "f32", "head_dim": 128, "value_head_dim": 128, "q_up_to": 4096, "kv_up_to": 512, "isa":
 * "avx512"} and gives, each of them optional, "bq" and "bk" (blocks of query rows and of keys) and "cache"
 * (true: blocks by the level-2 cache of this machine). What else `attn tune` notes in a file is for people;
 * see the keys in profile.c. */
typedef struct attn_profile attn_profile;

#define ATTN_PROFILE_VERSION 1

/* Fails: io, syntax (line and column), invalid_type, invalid_value (version, another CPU),
 * unknown_or_missing_key, unknown_name (dtype, kernel set), out_of_memory. */
attn_status attn_profile_load(const char *path, const char *cpu, const attn_allocator *allocator,
                              attn_profile **profile, attn_error *error);
void attn_profile_free(attn_profile *profile); /* NULL is allowed */

int attn_profile_count(const attn_profile *profile);

/* The value of a key for a problem: "isa" (index of a kernel set), "bq", "bk", "cache". cap: the user's cap
 * on kernel sets, above which no row holds. False: the profile says nothing. profile NULL is allowed. */
bool attn_profile_value(const attn_profile *profile, const char *cap, const attn_problem *problem,
                        const char *key, int64_t *value);

#endif
