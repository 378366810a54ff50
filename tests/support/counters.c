/* counters.c: what tests count instead of time: trace lines, allocations, threads, memory. */
#include "support.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void trace_collect(void *user, const attn_trace *trace)
{
    trace_text *t = user;
    size_t used = strlen(t->text);
    t->reasons += trace->event == ATTN_TRACE_REASON;
    snprintf(t->text + used, sizeof t->text - used, "%d %s/%s: %s\n", trace->event,
             trace->backend ? trace->backend : "-", trace->implementation ? trace->implementation : "-",
             trace->text ? trace->text : "");
}

/* Each block is preceded by its size and the address that malloc gave. */
typedef struct block {
    void *memory;
    size_t bytes;
} block;

static void *counting_alloc(void *user, size_t bytes, size_t align)
{
    counting *c = user;
    if (__atomic_add_fetch(&c->calls, 1, __ATOMIC_RELAXED) == c->fail_at) return NULL;
    size_t room = align > sizeof(block) ? align : sizeof(block);
    char *memory = malloc(bytes + 2 * room);
    if (!memory) return NULL;
    uintptr_t at = ((uintptr_t)memory + sizeof(block) + align - 1) / align * align;
    block *head = (block *)(at - sizeof(block));
    memcpy(head, &(block){memory, bytes}, sizeof *head);
    if (c->poison) memset((void *)at, 0xff, bytes);
    __atomic_add_fetch(&c->live_blocks, 1, __ATOMIC_RELAXED);
    int64_t live = __atomic_add_fetch(&c->live_bytes, (int64_t)bytes, __ATOMIC_RELAXED);
    int64_t peak = __atomic_load_n(&c->peak_bytes, __ATOMIC_RELAXED);
    while (live > peak &&
           !__atomic_compare_exchange_n(&c->peak_bytes, &peak, live, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return (void *)at;
}

static void counting_release(void *user, void *memory)
{
    counting *c = user;
    if (!memory) return;
    block head;
    memcpy(&head, (char *)memory - sizeof head, sizeof head);
    if (c->poison) memset(memory, 0xff, head.bytes);
    __atomic_sub_fetch(&c->live_blocks, 1, __ATOMIC_RELAXED);
    __atomic_sub_fetch(&c->live_bytes, (int64_t)head.bytes, __ATOMIC_RELAXED);
    free(head.memory);
}

void counting_init(counting *c)
{
    memset(c, 0, sizeof *c);
    c->allocator = (attn_allocator){counting_alloc, counting_release, c};
}

int task_count(void)
{
    int n = 0;
    DIR *folder = opendir("/proc/self/task");
    if (!folder) return -1;
    for (struct dirent *e; (e = readdir(folder));) n += e->d_name[0] != '.';
    closedir(folder);
    return n;
}

int64_t status_kib(const char *field)
{
    FILE *f = fopen("/proc/self/status", "r");
    char line[256];
    long long value = -1;
    size_t length = strlen(field);
    if (!f) return -1;
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, field, length) && line[length] == ':')
            value = strtoll(line + length + 1, NULL, 10);
    fclose(f);
    return value;
}

int reset_peak_memory(void)
{
    FILE *f = fopen("/proc/self/clear_refs", "w");
    if (!f) return -1;
    int written = fputs("5", f) >= 0;
    return fclose(f) == 0 && written ? 0 : -1;
}
