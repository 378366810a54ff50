/* memory.c: the allocator of a context and the workspaces that calls borrow. */
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Pages of this size, where the system gives them on request: packed keys and values are read in an order
 * that needs another small page every few cycles, and looking up small pages takes time, most of all in a
 * virtual machine. */
#define LARGE_PAGE ((size_t)2 << 20)

static void *malloc_alloc(void *user, size_t bytes, size_t align)
{
    (void)user;
    void *memory = NULL;
    if (align < sizeof(void *)) align = sizeof(void *);
    if (bytes >= LARGE_PAGE && align < LARGE_PAGE) align = LARGE_PAGE;
    if (posix_memalign(&memory, align, bytes)) return NULL;
    /* A wish: without large pages the memory is as good as before. */
    if (bytes >= LARGE_PAGE) (void)madvise(memory, bytes / LARGE_PAGE * LARGE_PAGE, MADV_HUGEPAGE);
    return memory;
}

static void malloc_release(void *user, void *memory)
{
    (void)user;
    free(memory);
}

const attn_allocator attn_malloc_allocator = {malloc_alloc, malloc_release, NULL};

void *attn_take(const attn_allocator *allocator, size_t bytes, size_t align)
{
    return allocator->alloc(allocator->user, bytes ? bytes : 1, align);
}

void *attn_take_zeroed(const attn_allocator *allocator, size_t bytes)
{
    void *memory = attn_take(allocator, bytes, 16);
    if (memory) memset(memory, 0, bytes);
    return memory;
}

void attn_drop(const attn_allocator *allocator, void *memory)
{
    if (memory) allocator->release(allocator->user, memory);
}

char *attn_copy_text(const attn_allocator *allocator, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = attn_take(allocator, bytes, 1);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

bool attn_mul(size_t a, size_t b, size_t *product)
{
    return !__builtin_mul_overflow(a, b, product);
}

bool attn_add(size_t a, size_t b, size_t *sum)
{
    return !__builtin_add_overflow(a, b, sum);
}

void attn_workspaces_init(attn_workspaces *pool, const attn_allocator *allocator)
{
    pool->allocator = allocator;
    pool->idle = NULL;
    attn_lock_init(&pool->lock);
}

static void lease_free(const attn_allocator *allocator, attn_lease *lease)
{
    attn_drop(allocator, lease->memory);
    attn_drop(allocator, lease);
}

void attn_workspaces_clear(attn_workspaces *pool)
{
    while (pool->idle) {
        attn_lease *next = pool->idle->next;
        lease_free(pool->allocator, pool->idle);
        pool->idle = next;
    }
    attn_lock_destroy(&pool->lock);
}

static attn_lease *lease_new(const attn_allocator *allocator, size_t bytes)
{
    attn_lease *lease = attn_take_zeroed(allocator, sizeof *lease);
    if (!lease) return NULL;
    lease->memory = attn_take(allocator, bytes, ATTN_ALIGN);
    lease->bytes = bytes;
    if (lease->memory) return lease;
    attn_drop(allocator, lease);
    return NULL;
}

/* Takes the first idle one that is large enough; when all are too small the first is replaced, so that the
 * number kept never exceeds the number of calls that ran at once. */
attn_lease *attn_workspace_borrow(attn_workspaces *pool, size_t bytes)
{
    attn_lock_take(&pool->lock);
    attn_lease **at = &pool->idle;
    while (*at && (*at)->bytes < bytes) at = &(*at)->next;
    if (!*at) at = &pool->idle;
    attn_lease *lease = *at;
    if (lease) *at = lease->next;
    attn_lock_give(&pool->lock);
    if (lease && lease->bytes >= bytes) return lease;
    if (lease) lease_free(pool->allocator, lease);
    return lease_new(pool->allocator, bytes);
}

void attn_workspace_return(attn_workspaces *pool, attn_lease *lease)
{
    attn_lock_take(&pool->lock);
    lease->next = pool->idle;
    pool->idle = lease;
    attn_lock_give(&pool->lock);
}
