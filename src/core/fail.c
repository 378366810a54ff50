/* fail.c: errors and reasons as text. */
#include "core/fail.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

attn_status attn_fail(attn_error *error, attn_kind kind, const char *format, ...)
{
    if (!kind) kind = ATTN_KIND_INTERNAL; /* a failure without a kind must not read as success */
    attn_status status = attn_kind_status(kind);
    size_t least = offsetof(attn_error, text) + 1;
    size_t room = error && error->size >= least ? error->size - offsetof(attn_error, text) : 0;
    if (room > sizeof error->text) room = sizeof error->text;
    if (room) {
        error->status = status;
        error->kind = kind;
        va_list list;
        va_start(list, format);
        vsnprintf(error->text, room, format, list);
        va_end(list);
    }
    return status;
}

void attn_reasons_start(attn_reasons *reasons, attn_trace_fn sink, void *user, const attn_trace *who)
{
    memset(reasons, 0, sizeof *reasons);
    reasons->sink = sink;
    reasons->user = user;
    reasons->who = *who;
}

void attn_reason(attn_reasons *reasons, attn_kind kind, const char *format, ...)
{
    char line[400];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (!kind) kind = ATTN_KIND_INTERNAL;
    if (reasons->count++ == 0) reasons->first = kind;
    size_t used = strlen(reasons->text);
    snprintf(reasons->text + used, sizeof reasons->text - used, "%s%s", used ? "; " : "", line);
    if (!reasons->sink) return;
    attn_trace trace = reasons->who;
    trace.size = sizeof trace;
    trace.event = ATTN_TRACE_REASON;
    trace.usable = 0;
    trace.kind = kind;
    trace.text = line;
    reasons->sink(reasons->user, &trace);
}

bool attn_copy_struct(void *ours, size_t our_size, const void *theirs, uint32_t their_size, size_t least)
{
    memset(ours, 0, our_size);
    if (!theirs) return true;
    if (their_size < least) return false;
    memcpy(ours, theirs, their_size < our_size ? their_size : our_size);
    return true;
}

void attn_give_struct(void *theirs, const void *ours, size_t our_size)
{
    uint32_t size;
    memcpy(&size, theirs, sizeof size);
    if (size <= sizeof size) return;
    size_t bytes = size < our_size ? size : our_size;
    memcpy((char *)theirs + sizeof size, (const char *)ours + sizeof size, bytes - sizeof size);
}
