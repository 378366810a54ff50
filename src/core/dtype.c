/* dtype.c: the public lists as functions. */
#include "core/dtype.h"

#include "core/fail.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define ATTN_QUOTE_(x) #x
#define ATTN_QUOTE(x)  ATTN_QUOTE_(x)

const char *attn_version(void)
{
    return ATTN_QUOTE(ATTN_VERSION_MAJOR) "." ATTN_QUOTE(ATTN_VERSION_MINOR) "." ATTN_QUOTE(
        ATTN_VERSION_PATCH);
}

const char *attn_status_name(attn_status status)
{
    switch (status) {
#define X(name, value, text, sentence)                                                                       \
    case value:                                                                                              \
        return text;
        ATTN_STATUS_LIST(X)
#undef X
    default:
        return "unknown";
    }
}

static const struct kind_row {
    const char *name;
    attn_status status;
    int exit;
    const char *sentence;
} kind_rows[] = {
#define X(name, value, text, status, exit, sentence) [value] = {text, ATTN_##status, exit, sentence},
    ATTN_KIND_LIST(X)
#undef X
};

static const struct kind_row *kind_row(attn_kind kind)
{
    static const struct kind_row unknown = {"unknown", ATTN_INTERNAL, 4, "an unknown kind"};
    bool known = kind >= 0 && (size_t)kind < sizeof kind_rows / sizeof *kind_rows && kind_rows[kind].name;
    return known ? &kind_rows[kind] : &unknown;
}

const char *attn_kind_name(attn_kind kind)
{
    return kind_row(kind)->name;
}

const char *attn_kind_sentence(attn_kind kind)
{
    return kind_row(kind)->sentence;
}

attn_status attn_kind_status(attn_kind kind)
{
    return kind_row(kind)->status;
}

int attn_kind_exit(attn_kind kind)
{
    return kind_row(kind)->exit;
}

attn_kind attn_kind_of(attn_status status)
{
    for (attn_kind k = 1; (size_t)k < sizeof kind_rows / sizeof *kind_rows; k++)
        if (status && kind_rows[k].name && kind_rows[k].status == status) return k;
    return ATTN_KIND_INTERNAL;
}

static const struct dtype_row {
    const char *name;
    uint8_t code, bits;
} dtype_rows[] = {
#define X(name, value, text, code, bits) [value] = {text, code, bits},
    ATTN_DTYPE_LIST(X)
#undef X
};
enum { DTYPES = sizeof dtype_rows / sizeof *dtype_rows };

static bool known(attn_dtype dtype)
{
    return dtype > 0 && dtype < DTYPES && dtype_rows[dtype].name;
}

const char *attn_dtype_name(attn_dtype dtype)
{
    return known(dtype) ? dtype_rows[dtype].name : "unknown";
}

attn_dtype attn_dtype_from_name(const char *name)
{
    for (attn_dtype t = 1; name && t < DTYPES; t++)
        if (dtype_rows[t].name && !strcmp(name, dtype_rows[t].name)) return t;
    return 0;
}

attn_dtype attn_dtype_from_dl(DLDataType type)
{
    for (attn_dtype t = 1; type.lanes == 1 && t < DTYPES; t++)
        if (dtype_rows[t].name && dtype_rows[t].code == type.code && dtype_rows[t].bits == type.bits)
            return t;
    return 0;
}

DLDataType attn_dtype_to_dl(attn_dtype dtype)
{
    DLDataType type = {0, 0, 1};
    if (!known(dtype)) return type;
    type.code = dtype_rows[dtype].code;
    type.bits = dtype_rows[dtype].bits;
    return type;
}

size_t attn_dtype_bytes(attn_dtype dtype)
{
    return known(dtype) ? dtype_rows[dtype].bits / 8u : 0;
}

static const struct domain_row {
    attn_domain domain;
    const char *name;
} domain_rows[] = {
#define X(name, value, text, sentence) {value, text},
    ATTN_DOMAIN_LIST(X)
#undef X
};

const char *attn_domain_name(attn_domain domain)
{
    for (size_t i = 0; i < sizeof domain_rows / sizeof *domain_rows; i++)
        if (domain_rows[i].domain == domain) return domain_rows[i].name;
    return "unknown";
}

int attn_domain_from_name(const char *name, attn_domain *domain)
{
    for (size_t i = 0; name && i < sizeof domain_rows / sizeof *domain_rows; i++) {
        if (strcmp(domain_rows[i].name, name)) continue;
        *domain = domain_rows[i].domain;
        return 1;
    }
    return 0;
}

const char *attn_feature_name(int bit)
{
    switch (bit) {
#define X(name, value, text, sentence)                                                                       \
    case value:                                                                                              \
        return text;
        ATTN_FEATURE_LIST(X)
#undef X
    default:
        return NULL;
    }
}

const char *attn_feature_sentence(int bit)
{
    switch (bit) {
#define X(name, value, text, sentence)                                                                       \
    case value:                                                                                              \
        return sentence;
        ATTN_FEATURE_LIST(X)
#undef X
    default:
        return NULL;
    }
}

const char *attn_dtype_word(attn_dtype dtype)
{
    /* The names of IEEE types are written fpN in messages, as users of the field search for them. */
    switch (dtype) {
    case ATTN_F64:
        return "fp64";
    case ATTN_F32:
        return "fp32";
    case ATTN_F16:
        return "fp16";
    default:
        return attn_dtype_name(dtype);
    }
}

const char *attn_dtype_words(uint64_t set, char *text, size_t bytes)
{
    text[0] = 0;
    for (attn_dtype t = 1; t < DTYPES; t++)
        if (set >> t & 1) {
            size_t used = strlen(text);
            snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", attn_dtype_word(t));
        }
    return text;
}

const char *attn_dl_word(DLDataType type, char *text, size_t bytes)
{
    attn_dtype dtype = attn_dtype_from_dl(type);
    if (dtype)
        snprintf(text, bytes, "%s", attn_dtype_word(dtype));
    else
        snprintf(text, bytes, "DLPack type code %d, %d bits, %d lanes", type.code, type.bits, type.lanes);
    return text;
}
