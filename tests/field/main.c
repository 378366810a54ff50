/* main.c: the list of field cases as one cmocka program: field [PATTERN] runs those whose id matches. */
#include "field.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

typedef struct row {
    const char *id, *reason;
} row;

static const row rows[] = {
#define CASE(function, id)   {id, NULL},
#define DEFERRED(id, reason) {id, reason},
#include "cases.def"
#undef CASE
#undef DEFERRED
};

static void deferred(void **state)
{
    const row *r = *state;
    print_message("deferred: %s %s\n", r->id, r->reason);
    skip();
}

/* The kinds that this program answers for: the word before the slash. */
static int ours(const char *kind)
{
    static const char *const kinds[] = {"masking",  "mask-semantics", "alignment", "numerics",    "shape",
                                        "gqa",      "headdim",        "varlen",    "layout",      "offset64",
                                        "lse",      "determinism",    "process",   "memory",      "isolation",
                                        "cache",    "config",         "selection", "env",         "plugin",
                                        "platform", "observability",  "install",   "blocksparse", "vsa"};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        size_t length = strlen(kinds[i]);
        if (!strncmp(kind, kinds[i], length) && kind[length] == '/') return 1;
    }
    return 0;
}

static int registered(const char *id)
{
    int n = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) n += !strcmp(rows[i].id, id);
    return n;
}

/* Every case of our kinds in the file has exactly one row, and there is no row without a case. */
static void all_cases_are_registered(void **state)
{
    (void)state;
    FILE *f = fopen(FIELD_CASES, "r");
    char line[16384];
    size_t found = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        json_error_t error;
        json_t *one = json_loads(line, 0, &error);
        const char *id = NULL, *kind = NULL;
        if (!one || json_unpack(one, "{s:s, s:s}", "id", &id, "kind", &kind))
            fail_msg("%s: %s", FIELD_CASES, error.text);
        if (id && ours(kind)) {
            if (registered(id) != 1) print_error("%s has %d rows in cases.def\n", id, registered(id));
            assert_int_equal(registered(id), 1);
            found++;
        }
        json_decref(one);
    }
    fclose(f);
    assert_int_equal(found, sizeof rows / sizeof *rows);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
#define CASE(function, id)   {id, function, NULL, NULL, NULL},
#define DEFERRED(id, reason) {id, deferred, NULL, NULL, (void *)&(row){id, reason}},
#include "cases.def"
#undef CASE
#undef DEFERRED
        cmocka_unit_test(all_cases_are_registered),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests_name("field cases", tests, NULL, NULL);
}
