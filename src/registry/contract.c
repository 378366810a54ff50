/* contract.c: the requirement rows and the small checks they name. */
#include "registry/contract.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CUDNN_9_5 = 90500 };

/* One property each; true means it holds. */
typedef bool check_fn(const attn_facts *f, int64_t head_size, const char *arg);

static bool blackwell(const attn_facts *f)
{
    return f->has_capability && f->major >= 10 && f->major <= 12;
}

static bool has(const attn_facts *f, int package)
{
    return package >= 0 && f->packages >> package & 1;
}

/* "9.0" as 90; minors have one digit. */
static int32_t version(const char *text)
{
    char *end;
    long major = strtol(text, &end, 10), minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
    return (int32_t)(major * 10 + minor);
}

static bool listed(const char *words, int32_t (*read)(const char *), int64_t number)
{
    for (const char *p = words; *p; p += strcspn(p, " "), p += *p == ' ')
        if (read(p) == number) return true;
    return false;
}

static int32_t whole(const char *text)
{
    return (int32_t)strtol(text, NULL, 10);
}

static int32_t arch(const attn_facts *f)
{
    return f->major * 10 + f->minor;
}

static bool check_NEVER(const attn_facts *f, int64_t head_size, const char *arg)
{
    (void)f, (void)head_size, (void)arg;
    return false;
}

static bool check_ARCH_MIN(const attn_facts *f, int64_t head_size, const char *arg)
{
    (void)head_size;
    return f->has_capability && arch(f) >= version(arg);
}

static bool check_ARCH_IN(const attn_facts *f, int64_t head_size, const char *arg)
{
    (void)head_size;
    return f->has_capability && listed(arg, version, arch(f));
}

/* Both ends are out. */
static bool check_ARCH_BETWEEN(const attn_facts *f, int64_t head_size, const char *arg)
{
    (void)head_size;
    return f->has_capability && arch(f) > version(arg) && arch(f) < version(strchr(arg, ' ') + 1);
}

static bool check_MAJOR_IN(const attn_facts *f, int64_t head_size, const char *arg)
{
    (void)head_size;
    return f->has_capability && listed(arg, whole, f->major);
}

static bool check_MAJOR_MIN(const attn_facts *f, int64_t head_size, const char *arg)
{
    (void)head_size;
    return f->has_capability && f->major >= whole(arg);
}

static bool check_PACKAGE(const attn_facts *f, int64_t head_size, const char *arg)
{
    (void)head_size;
    return has(f, attn_package_find(arg));
}

static bool cute_age(const attn_facts *f)
{
    return f->has_capability && f->major >= 10;
}

/* Older devices whose names say Turing have no kernel, whatever is installed. */
static bool check_FLASH_OLD(const attn_facts *f, int64_t head_size, const char *arg)
{
    static const char *const never[] = {"Turing", "Tesla", "T4"};
    (void)head_size;
    for (size_t i = 0; i < sizeof never / sizeof *never; i++)
        if (strstr(f->device_name, never[i])) return false;
    return cute_age(f) || has(f, attn_package_find(arg));
}

static bool check_FLASH_BLACKWELL(const attn_facts *f, int64_t head_size, const char *arg)
{
    (void)head_size;
    return !cute_age(f) || has(f, attn_package_find(arg));
}

static bool check_CUDNN_MIN(const attn_facts *f, int64_t head_size, const char *arg)
{
    (void)head_size;
    return f->cudnn_version >= whole(arg);
}

static bool check_CUDNN_BLACKWELL(const attn_facts *f, int64_t head_size, const char *arg)
{
    (void)head_size;
    return !blackwell(f) || f->cudnn_version >= whole(arg);
}

static bool check_HEAD_IN(const attn_facts *f, int64_t head_size, const char *arg)
{
    (void)f;
    return head_size <= 0 || listed(arg, whole, head_size);
}

static bool check_HEAD_MULTIPLE(const attn_facts *f, int64_t head_size, const char *arg)
{
    (void)f;
    return head_size <= 0 || (head_size % whole(arg) == 0 && head_size <= whole(strchr(arg, ' ') + 1));
}

static bool check_XPU_ARCH_NOT(const attn_facts *f, int64_t head_size, const char *arg)
{
    (void)head_size;
    return !f->has_xpu_architecture || f->xpu_architecture != strtoll(arg, NULL, 10);
}

static const struct requirement {
    const char *platform;
    int backend; /* row of backends.def */
    check_fn *check;
    const char *argument;
    attn_kind kind;
    const char *sentence;
} requirements[] = {
#define X(platform, backend, check, argument, kind, sentence)                                                \
    {platform, ATTN_BACKEND_##backend, check_##check, argument, ATTN_KIND_##kind, sentence},
#include "registry/requirements.def"
#undef X
};

bool attn_contract_platform(const attn_backend *backend, const char *platform)
{
    bool unidentified = !strcmp(platform, "none");
    for (const char *p = backend->platforms; *p; p += strcspn(p, " "), p += *p == ' ') {
        size_t length = strcspn(p, " ");
        if (length == strlen(platform) && !strncmp(p, platform, length)) return true;
        if (!unidentified && length == 3 && !strncmp(p, "all", 3)) return true;
    }
    return false;
}

/* What was found, beside what is needed. */
static const char *found(const struct requirement *r, const attn_facts *f, int64_t head_size, char *text,
                         size_t bytes)
{
    char machine[64];
    attn_facts_arch(f, machine, sizeof machine);
    if (r->check == check_HEAD_IN || r->check == check_HEAD_MULTIPLE)
        snprintf(text, bytes, "the head size is %" PRId64, head_size);
    else if (r->check == check_CUDNN_MIN || r->check == check_CUDNN_BLACKWELL)
        snprintf(text, bytes, "cuDNN is %d.%d.%d on %s", f->cudnn_version / 10000,
                 f->cudnn_version / 100 % 100, f->cudnn_version % 100, machine);
    else
        snprintf(text, bytes, "this is %s%s%.60s", machine, *f->device_name ? ", " : "", f->device_name);
    return text;
}

void attn_contract_check(const attn_backend *b, const attn_facts *f, int64_t head_size, attn_reasons *reasons)
{
    char text[160];
    for (size_t i = 0; i < sizeof requirements / sizeof *requirements; i++) {
        const struct requirement *r = &requirements[i];
        bool applies = b == &attn_built_in_backends[r->backend] &&
                       (!strcmp(r->platform, "*") || !strcmp(r->platform, f->platform));
        if (applies && !r->check(f, head_size, r->argument))
            attn_reason(reasons, r->kind, "%s %s (%s)", b->name, r->sentence,
                        found(r, f, head_size, text, sizeof text));
    }
}

bool attn_contract_f32(const attn_backend *b, const attn_facts *f)
{
    return b->from_module || !strcmp(b->family, "plain") || !strcmp(f->platform, "cpu");
}

const char *attn_contract_condition(attn_condition condition, const attn_facts *f, int64_t head_size,
                                    bool permitted)
{
    switch (condition) {
    case PERMITTED:
        return permitted ? NULL : "the model does not permit it";
    case BLACKWELL:
        return blackwell(f) ? NULL : "the GPU is not Blackwell";
    case CUDNN_READY:
        return f->cudnn_version >= CUDNN_9_5 ? NULL : "cuDNN is older than 9.5";
    case HEAD_KNOWN:
        return head_size > 0 ? NULL : "the head size is not known";
    case ALWAYS:
        break;
    }
    return NULL;
}

const char *attn_contract_remark(const attn_facts *f, bool *warning)
{
    static const char tested[] = "10.0 10.3 12.0 12.1";
    *warning = blackwell(f) && f->cudnn_version < CUDNN_9_5;
    if (*warning)
        return "this is a Blackwell GPU and cuDNN is absent or older than 9.5: CUDNN_ATTN is passed over; "
               "install cuDNN 9.5 "
               "or later";
    if (blackwell(f) && !listed(tested, version, arch(f)))
        return "this Blackwell variant is none of 10.0, 10.3, 12.0 and 12.1, on which the choice was tested";
    return NULL;
}
