/* memory.h: the allocator of a context and the workspaces that calls borrow. */
#ifndef ATTN_CORE_MEMORY_H
#define ATTN_CORE_MEMORY_H

#include "core/locks.h"

#include <attn/attn.h>
#include <stdbool.h>

enum { ATTN_ALIGN = 64 };

extern const attn_allocator attn_malloc_allocator;

void *attn_take(const attn_allocator *allocator, size_t bytes, size_t align); /* NULL: out of memory */
void *attn_take_zeroed(const attn_allocator *allocator, size_t bytes);
void attn_drop(const attn_allocator *allocator, void *memory);           /* NULL is allowed */
char *attn_copy_text(const attn_allocator *allocator, const char *text); /* NULL: out of memory */

/* a * b, a + b; false on overflow. */
bool attn_mul(size_t a, size_t b, size_t *product);
bool attn_add(size_t a, size_t b, size_t *sum);

/* Workspaces are lent to one call at a time and kept between calls, so that steady state allocates nothing
 * and page faults happen once. */
typedef struct attn_lease {
    struct attn_lease *next;
    void *memory;
    size_t bytes;
} attn_lease;

typedef struct attn_workspaces {
    const attn_allocator *allocator;
    attn_lock lock;
    attn_lease *idle;
} attn_workspaces;

void attn_workspaces_init(attn_workspaces *pool, const attn_allocator *allocator);
void attn_workspaces_clear(attn_workspaces *pool);
attn_lease *attn_workspace_borrow(attn_workspaces *pool, size_t bytes); /* NULL: out of memory */
void attn_workspace_return(attn_workspaces *pool, attn_lease *lease);

#endif
