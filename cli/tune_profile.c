/* tune_profile.c: profiles as JSON. */
#include "tune.h"

#include <string.h>

#include "report.h"

#define PROFILE_VERSION 1

/* The smallest power of two that is not below a length. */
static int64_t class_of(int64_t length)
{
    int64_t up_to = 1;
    while (up_to < length && up_to < (int64_t)1 << 62) up_to *= 2;
    return up_to;
}

json_t *tune_row(const struct problem *p, const struct tune_choice *choice)
{
    json_t *row = json_pack("{s:s, s:I, s:I, s:I, s:I, s:s}", "dtype", attn_dtype_name(p->dtype), "head_dim",
                            (json_int_t)p->head_dim, "value_head_dim", (json_int_t)p->value_head_dim,
                            "q_up_to", (json_int_t)class_of(p->q_len + p->joint), "kv_up_to",
                            (json_int_t)class_of(p->kv_len + p->joint), "isa", choice->isa);
    if (choice->rows) json_object_set_new(row, "bq", json_integer(choice->rows));
    if (choice->keys) json_object_set_new(row, "bk", json_integer(choice->keys));
    if (choice->cache) json_object_set_new(row, "cache", json_true());
    return row;
}

json_t *tune_profile(const char *cpu)
{
    return json_pack("{s:i, s:s, s:s, s:[]}", "version", PROFILE_VERSION, "cpu", cpu, "libattn",
                     attn_version(), "rows");
}

static int same_calls(const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"dtype", "head_dim", "value_head_dim", "q_up_to", "kv_up_to"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!json_equal(json_object_get(a, keys[i]), json_object_get(b, keys[i]))) return 0;
    return 1;
}

int tune_add(json_t *profile, const struct tune_result *result)
{
    json_t *rows = json_object_get(profile, "rows"), *other, *row = tune_row(result->problem, &result->kept);
    size_t i;
    json_array_foreach(rows, i, other)
    {
        if (!same_calls(row, other)) continue;
        json_decref(row);
        return 0;
    }
    json_object_set_new(row, "gflops", report_real(1e-9 * result->flop / result->kept_seconds));
    json_object_set_new(row, "default_gflops", report_real(1e-9 * result->flop / result->default_seconds));
    json_array_append_new(rows, row);
    return 1;
}
