/* trace.c: one event as a line for people or an object for machines. */
#include <attn/attn.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const words[] = {"event", "source", "reason", "candidate", "choice", "note"};

static const char *word_of(int32_t event)
{
    return event > 0 && event < (int32_t)(sizeof words / sizeof *words) ? words[event] : words[0];
}

static const char *or_empty(const char *text)
{
    return text ? text : "";
}

static const char *verdict_of(const attn_trace *t)
{
    if (t->event == ATTN_TRACE_REASON) return "reason against it";
    if (t->event == ATTN_TRACE_CANDIDATE) return t->usable ? "usable" : "refused";
    return word_of(t->event);
}

static size_t format_text(const attn_trace *t, char *text, size_t bytes)
{
    const char *kind = t->kind ? attn_kind_name(t->kind) : "";
    return (size_t)snprintf(text, bytes, "role '%s' via %s: %s%s%s%s: %s%s%s%s: %s", or_empty(t->role),
                            or_empty(t->source), or_empty(t->backend), t->implementation ? " (" : "",
                            or_empty(t->implementation), t->implementation ? ")" : "", verdict_of(t),
                            *kind ? " (" : "", kind, *kind ? ")" : "", or_empty(t->text)) +
           1;
}

static size_t format_json(const attn_trace *t, char *text, size_t bytes)
{
    json_t *object =
        json_pack("{ss ss* ss* ss* ss* sb ss ss*}", "event", word_of(t->event), "role", t->role, "source",
                  t->source, "backend", t->backend, "implementation", t->implementation, "usable",
                  t->usable != 0, "kind", attn_kind_name(t->kind), "text", t->text);
    char *dump = object ? json_dumps(object, JSON_COMPACT) : NULL;
    const char *line = dump ? dump : "{\"event\":\"note\",\"text\":\"an event that is not UTF-8 text\"}";
    size_t needed = strlen(line) + 1;
    if (bytes) snprintf(text, bytes, "%s", line);
    free(dump);
    json_decref(object);
    return needed;
}

size_t attn_trace_format(const attn_trace *trace, int json, char *text, size_t bytes)
{
    return json ? format_json(trace, text, bytes) : format_text(trace, text, bytes);
}
