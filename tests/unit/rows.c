/* rows.c: tables that name things of other tables name things that exist. */
#include "support.h"

#include "core/facts.h"
#include "platform/platform.h"
#include "registry/registry.h"

#include <stdio.h>
#include <string.h>

/* Every word of a list is a package. */
static void packages_exist(const char *where, const char *words)
{
    char word[64];
    for (const char *p = words; *p; p += strcspn(p, " "), p += *p == ' ') {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(p, " "), p);
        if (attn_package_find(word) < 0)
            fail_msg("%s names the package '%s', which packages.def lacks", where, word);
    }
}

static int is_package_check(const char *check)
{
    return !strcmp(check, "PACKAGE") || !strncmp(check, "FLASH_", 6);
}

static void packages_in_rows(void **state)
{
    (void)state;
#define X(platform, backend, check, argument, kind, sentence)                                                \
    if (is_package_check(#check)) packages_exist("requirements.def", argument);
#include "registry/requirements.def"
#undef X
#define X(name, platform, major, minor, device, cudnn, xpu, list, source) packages_exist("presets.def", list);
#include "core/presets.def"
#undef X
#define X(backend, field, choices, package, needs) packages_exist("construct.def", package);
#include "policy/construct.def"
#undef X
#define X(name, log, family, platforms, mask, spans, heads, needs, imports)                                  \
    packages_exist("backends.def", imports);
#include "registry/backends.def"
#undef X
}

/* "*" and "none" stand beside the platforms that there are. */
static void platform_exists(const char *where, const char *name)
{
    if (strcmp(name, "*") && strcmp(name, "none") && !attn_platform_named(name))
        fail_msg("%s names the platform '%s', which platforms.def lacks", where, name);
}

static void platforms_in_rows(void **state)
{
    (void)state;
#define X(domain, platform, ...) platform_exists("routes.def", platform);
#include "registry/routes.def"
#undef X
#define X(platform, backend, check, argument, kind, sentence) platform_exists("requirements.def", platform);
#include "registry/requirements.def"
#undef X
#define X(name, platform, major, minor, device, cudnn, xpu, list, source)                                    \
    platform_exists("presets.def", platform);
#include "core/presets.def"
#undef X
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(packages_in_rows),
                                       cmocka_unit_test(platforms_in_rows)};
    return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
