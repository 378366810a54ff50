/* params.h: tables of typed values: reading JSON, copying, merging tiers. */
#ifndef ATTN_CORE_PARAMS_H
#define ATTN_CORE_PARAMS_H

#include "core/arena.h"
#include "core/fail.h"

#include <jansson.h>

/* params_json.c. All of *params lives in the arena. what: names the text in messages. Fails: invalid_type (no
 * object), invalid_value (too deep), out_of_memory. */
attn_status attn_params_from_json(attn_arena *arena, const char *what, const json_t *object,
                                  attn_params *params, attn_error *error);

/* An entry with all it points to (tensors and pointers excepted); false: out of memory or too deep. */
bool attn_param_copy(attn_arena *arena, const attn_param *from, attn_param *to);
attn_status attn_params_copy(attn_arena *arena, const attn_params *from, attn_params *to, attn_error *error);

/* A table that is being put together. Entries are kept as they are: what they point to outlives it, or lives
 * in its arena. */
typedef struct attn_param_table {
    attn_arena arena;
    attn_param *items;
    uint32_t count, room;
} attn_param_table;

void attn_param_table_init(attn_param_table *table, const attn_allocator *allocator);
void attn_param_table_reset(attn_param_table *table); /* empty; memory is kept */
void attn_param_table_clear(attn_param_table *table);
/* Replaces the entry of that name or adds one. Fails: out_of_memory. */
attn_status attn_param_table_set(attn_param_table *table, const attn_param *param, attn_error *error);
attn_params attn_param_table_view(const attn_param_table *table);

/* The rule of the tiers: later ones win, entry by entry; a null hides what earlier ones say, and at the end
 * every null is dropped. A tier may be NULL. */
attn_status attn_param_table_merge(attn_param_table *table, const attn_params *const *tiers, size_t count,
                                   attn_error *error);

#endif
