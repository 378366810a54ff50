/* fail.c: fills a failure. */
#include "fail.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int fail(failure *f, attn_kind kind, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    f->kind = kind;
    vsnprintf(f->text, sizeof f->text, format, list);
    va_end(list);
    return -1;
}

int fail_attn(failure *f, const char *doing, const attn_error *error)
{
    return fail(f, error->kind, "%s: %s", doing, error->text);
}

int fail_errno(failure *f, const char *format, ...)
{
    const char *why = strerror(errno);
    va_list list;
    va_start(list, format);
    f->kind = ATTN_KIND_IO;
    int n = vsnprintf(f->text, sizeof f->text, format, list);
    va_end(list);
    if (n >= 0 && (size_t)n < sizeof f->text) snprintf(f->text + n, sizeof f->text - (size_t)n, ": %s", why);
    return -1;
}

int fail_cancelled(failure *f)
{
    return fail(f, ATTN_KIND_CANCELLED, "interrupted; nothing was written");
}
