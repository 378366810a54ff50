/* fail.c: errors and reasons as text. */
#include "core/fail.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Cuts what did not fit behind its last whole word. */
static void cut_at_word(char *text, size_t bytes)
{
    static const char dots[] = " ...";
    if (bytes < 2 * sizeof dots) return;
    size_t at = bytes - sizeof dots;
    while (at > bytes / 2 && text[at] != ' ') at--;
    while (at > 1 && strchr(" ,;:", text[at - 1])) at--;
    memcpy(text + at, dots, sizeof dots);
}

void attn_clauses_add(attn_clauses *list, const char *clause)
{
    size_t used = strlen(list->text), length = strlen(clause);
    bool fits = list->kept == list->count && used + length + 2 <= sizeof list->text;
    if (fits) snprintf(list->text + used, sizeof list->text - used, "%s\n", clause);
    list->kept += fits;
    list->count++;
}

const char *attn_clauses_say(const attn_clauses *list, char *text, size_t bytes)
{
    enum { MORE = 24 }; /* "; and 1000 more" */
    size_t used = 0;
    int shown = 0;
    text[0] = 0;
    for (const char *at = list->text; *at; at += strcspn(at, "\n") + 1, shown++) {
        size_t length = strcspn(at, "\n"), last = shown + 1 == list->count;
        if (shown && used + length + 3 + (last ? 0 : MORE) > bytes) break;
        int wanted = snprintf(text + used, bytes - used, "%s%.*s", shown ? "; " : "", (int)length, at);
        used = strlen(text);
        if (shown || (size_t)wanted + (last ? 0 : MORE) < bytes) continue;
        cut_at_word(text, bytes > 3 * MORE && !last ? bytes - MORE : bytes);
        used = strlen(text);
    }
    if (shown < list->count) snprintf(text + used, bytes - used, "; and %d more", list->count - shown);
    return text;
}

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
        int wanted = vsnprintf(error->text, room, format, list);
        va_end(list);
        if (wanted > 0 && (size_t)wanted >= room) cut_at_word(error->text, room);
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
    char line[1000];
    va_list list;
    va_start(list, format);
    vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (!kind) kind = ATTN_KIND_INTERNAL;
    if (reasons->count++ == 0) reasons->first = kind;
    attn_clauses_add(&reasons->clauses, line);
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
