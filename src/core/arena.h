/* arena.h: many small things that live and die together. */
#ifndef ATTN_CORE_ARENA_H
#define ATTN_CORE_ARENA_H

#include "core/memory.h"

/* Zero-initialised but for the allocator. Steady state allocates nothing: a reset keeps the chunks. */
typedef struct attn_arena {
    const attn_allocator *allocator;
    struct attn_chunk *first, *current;
} attn_arena;

void *attn_arena_take(attn_arena *arena, size_t bytes, size_t align); /* NULL: out of memory */
char *attn_arena_text(attn_arena *arena, const char *text);
void attn_arena_reset(attn_arena *arena); /* what was taken is gone */
void attn_arena_clear(attn_arena *arena); /* and so is the memory */

#endif
