/* tables.c: the public lists: values that are unique, names that lead back, rows that refer to rows there
 * are. */
#include "support.h"

#include <stdio.h>
#include <string.h>

typedef struct named {
    int32_t value;
    const char *text;
} named;

static void check_unique(const named *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(rows[i].value, rows[j].value);
            assert_string_not_equal(rows[i].text, rows[j].text);
        }
}

static const named statuses[] = {
#define X(name, value, text, sentence) {value, text},
    ATTN_STATUS_LIST(X)
#undef X
};
static const named kinds[] = {
#define X(name, value, text, status, exit, sentence) {value, text},
    ATTN_KIND_LIST(X)
#undef X
};
static const named dtypes[] = {
#define X(name, value, text, code, bits) {value, text},
    ATTN_DTYPE_LIST(X)
#undef X
};
static const named features[] = {
#define X(name, bit, text, sentence) {bit, text},
    ATTN_FEATURE_LIST(X)
#undef X
};
#define COUNT(rows) (sizeof rows / sizeof *rows)

static void values_and_names_are_unique(void **state)
{
    (void)state;
    check_unique(statuses, COUNT(statuses));
    check_unique(kinds, COUNT(kinds));
    check_unique(dtypes, COUNT(dtypes));
    check_unique(features, COUNT(features));
}

static void statuses_have_names(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(statuses); i++)
        assert_string_equal(attn_status_name(statuses[i].value), statuses[i].text);
    assert_string_equal(attn_status_name(-1), "unknown");
    assert_string_equal(attn_status_name(1000), "unknown");
}

static void kinds_lead_to_statuses(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(kinds); i++) {
        attn_kind kind = kinds[i].value;
        assert_string_equal(attn_kind_name(kind), kinds[i].text);
        assert_string_not_equal(attn_kind_sentence(kind), "");
        assert_string_not_equal(attn_status_name(attn_kind_status(kind)), "unknown");
        /* Exit codes are those of the command: success alone is 0. */
        assert_int_equal(attn_kind_exit(kind) == 0, kind == ATTN_KIND_NONE);
        assert_int_equal(attn_kind_status(kind) == ATTN_OK, kind == ATTN_KIND_NONE);
    }
    assert_int_equal(attn_kind_exit(ATTN_KIND_CANCELLED), 130);
    assert_string_equal(attn_kind_name(-1), "unknown");
    assert_string_equal(attn_kind_name(1000), "unknown");
    assert_int_not_equal(attn_kind_status(1000), ATTN_OK);
}

static void dtypes_lead_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(dtypes); i++) {
        attn_dtype d = dtypes[i].value;
        DLDataType type = attn_dtype_to_dl(d);
        assert_string_equal(attn_dtype_name(d), dtypes[i].text);
        assert_int_equal(attn_dtype_from_name(dtypes[i].text), d);
        assert_int_equal(attn_dtype_from_dl(type), d);
        assert_int_equal(attn_dtype_bytes(d) * 8, type.bits);
        type.lanes = 2;
        assert_int_equal(attn_dtype_from_dl(type), 0);
    }
    assert_int_equal(attn_dtype_from_name("f33"), 0);
    assert_int_equal(attn_dtype_from_name(""), 0);
    assert_int_equal(attn_dtype_bytes(0), 0);
    assert_int_equal(attn_dtype_bytes(1000), 0);
    assert_string_equal(attn_dtype_name(0), "unknown");
}

static void features_have_names(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(features); i++) {
        assert_string_equal(attn_feature_name(features[i].value), features[i].text);
        assert_non_null(attn_feature_sentence(features[i].value));
    }
    assert_null(attn_feature_name(63));
    assert_null(attn_feature_name(-1));
    assert_null(attn_feature_sentence(64));
}

static void the_version_is_the_header_s(void **state)
{
    char text[32];
    (void)state;
    snprintf(text, sizeof text, "%d.%d.%d", ATTN_VERSION_MAJOR, ATTN_VERSION_MINOR, ATTN_VERSION_PATCH);
    assert_string_equal(attn_version(), text);
}

static void lists_end(void **state)
{
    (void)state;
    attn_options options = {.size = sizeof options, .module_path = ""};
    attn_context *context = context_open(&options);
    attn_backend_info backend = {.size = sizeof backend};
    attn_impl_info impl = {.size = sizeof impl};
    attn_module_info module = {.size = sizeof module};
    size_t n = 0;
    int flash = 0, plain = 0;
    while (attn_backend_at(context, n, &backend)) {
        flash += !strcmp(backend.name, "FLASH_ATTN");
        plain += !strcmp(backend.name, "TORCH_SDPA");
        assert_int_equal(backend.size, sizeof backend);
        n++;
    }
    assert_int_equal(flash, 1);
    assert_int_equal(plain, 1);
    for (n = 0; attn_impl_at(context, n, &impl); n++) {
        assert_string_equal(impl.module, "built-in");
        assert_true(impl.features != 0 && impl.dtypes != 0 && impl.head_dim_max == 1024);
    }
    assert_true(n >= 2);
    assert_false(attn_module_at(context, 0, &module));
    assert_false(attn_backend_at(context, SIZE_MAX, &backend));
    assert_false(attn_impl_at(context, SIZE_MAX, &impl));
    attn_close(context);
    attn_close(NULL);
}

/* A caller built against a shorter struct gets what fits, and nothing behind it is touched. */
static void shorter_structs_are_filled_as_far_as_they_go(void **state)
{
    (void)state;
    attn_options options = {.size = sizeof options, .module_path = ""};
    attn_context *context = context_open(&options);
    attn_impl_info info;
    memset(&info, 0xee, sizeof info);
    info.size = offsetof(attn_impl_info, summary);
    assert_true(attn_impl_at(context, 0, &info));
    assert_true(strlen(info.name) > 0);
    for (const unsigned char *p = (unsigned char *)&info.summary; p < (unsigned char *)(&info + 1); p++)
        assert_int_equal(*p, 0xee);
    attn_close(context);
}

/* A bit that two rows share would make one thing of two. */
static void bits_are_distinct(void **state)
{
    (void)state;
#define ATTN_X(name, bit, ...) seen += (uint64_t)1 << bit, all |= (uint64_t)1 << bit;
    uint64_t seen = 0, all = 0;
    ATTN_FEATURE_LIST(ATTN_X)
    assert_true(seen == all);
    seen = all = 0;
    ATTN_IMPL_FLAG_LIST(ATTN_X)
    assert_true(seen == all);
    seen = all = 0;
    ATTN_LLM_FLAG_LIST(ATTN_X)
    assert_true(seen == all);
#undef ATTN_X
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bits_are_distinct),
        cmocka_unit_test(values_and_names_are_unique),
        cmocka_unit_test(statuses_have_names),
        cmocka_unit_test(kinds_lead_to_statuses),
        cmocka_unit_test(dtypes_lead_back),
        cmocka_unit_test(features_have_names),
        cmocka_unit_test(the_version_is_the_header_s),
        cmocka_unit_test(lists_end),
        cmocka_unit_test(shorter_structs_are_filled_as_far_as_they_go),
    };
    return cmocka_run_group_tests_name("tables", tests, NULL, NULL);
}
