/* arena.c: many small things that live and die together. */
#include "core/arena.h"

#include <string.h>

typedef struct attn_chunk {
    struct attn_chunk *next;
    size_t bytes, used;
    max_align_t memory[];
} chunk;

static void *take_from(chunk *c, size_t bytes, size_t align)
{
    size_t start = (c->used + align - 1) / align * align;
    if (start > c->bytes || bytes > c->bytes - start) return NULL;
    c->used = start + bytes;
    return (char *)c->memory + start;
}

static chunk *add_chunk(attn_arena *a, size_t bytes)
{
    enum { LEAST = 1024 };
    size_t room = bytes > LEAST ? bytes : LEAST, total;
    if (!attn_add(sizeof(chunk), room, &total)) return NULL;
    chunk *c = attn_take(a->allocator, total, _Alignof(max_align_t));
    if (!c) return NULL;
    c->next = NULL;
    c->bytes = room;
    c->used = 0;
    if (a->current)
        a->current->next = c;
    else
        a->first = c;
    return c;
}

/* Alignments are those of C types, at most that of a chunk's memory. */
void *attn_arena_take(attn_arena *a, size_t bytes, size_t align)
{
    void *memory = a->current ? take_from(a->current, bytes, align) : NULL;
    while (!memory) {
        chunk *next = a->current ? a->current->next : a->first;
        if (!next) next = add_chunk(a, bytes);
        if (!next) return NULL;
        a->current = next;
        memory = take_from(next, bytes, align);
        /* A kept chunk that is too small is passed over; what follows it stays linked behind. */
        if (!memory && !next->next && !add_chunk(a, bytes)) return NULL;
    }
    return memory;
}

char *attn_arena_text(attn_arena *a, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = attn_arena_take(a, bytes, 1);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

void attn_arena_reset(attn_arena *a)
{
    for (chunk *c = a->first; c; c = c->next) c->used = 0;
    a->current = a->first;
}

void attn_arena_clear(attn_arena *a)
{
    for (chunk *c = a->first; c;) {
        chunk *next = c->next;
        attn_drop(a->allocator, c);
        c = next;
    }
    a->first = a->current = NULL;
}
