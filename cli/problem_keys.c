/* problem_keys.c: the keys of a problem string: how each value is read, written and checked. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "problem.h"
#include "problem_parse.h"

#define INT_LIMIT ((int64_t)1 << 40)

static const char *const alignments[] = {"bottom-right", "top-left", NULL};
static const char *const masks[] = {"key", "holes", "keep", "additive", NULL}; /* enum problem_mask less 1 */
static const char *const layouts[] = {"bsnd", "bnsd", "qkv", "padded", "strided", "huge", NULL};
static const char axes_letters[] = "bhsk"; /* enum problem_axes, bit by bit */

/* Where a value goes and what it is called. */
struct key {
    const char *name;
    size_t offset;
};

static void *field_of(struct problem *problem, const struct key *key)
{
    return (char *)problem + key->offset;
}

static const void *value_of(const struct problem *problem, const struct key *key)
{
    return (const char *)problem + key->offset;
}

static int has_value(const struct problem_cursor *cursor)
{
    return *cursor->at == '=';
}

/* Steps over the = that a key cannot do without. */
static int need_value(struct problem_cursor *cursor)
{
    if (!has_value(cursor)) return problem_expected(cursor, cursor->at, "= and a value");
    cursor->at++;
    return 1;
}

/* ---- types: a read_ function and a write_ function each; write appends "=value" or nothing, 0: key is
 * absent ---- */

static int read_FLAG(struct problem_cursor *cursor, struct problem *problem, const struct key *key)
{
    (void)cursor;
    *(int *)field_of(problem, key) = 1;
    return 1;
}

static int write_FLAG(const struct problem *problem, const struct key *key, char *value)
{
    *value = 0;
    return *(const int *)value_of(problem, key) != 0;
}

static int read_INT(struct problem_cursor *cursor, struct problem *problem, const struct key *key)
{
    return need_value(cursor) && problem_read_int(cursor, 0, INT_LIMIT, field_of(problem, key));
}

static int write_INT(const struct problem *problem, const struct key *key, char *value)
{
    struct problem defaults;
    int64_t found = *(const int64_t *)value_of(problem, key);
    problem_init(&defaults);
    sprintf(value, "=%lld", (long long)found);
    return found != *(const int64_t *)value_of(&defaults, key);
}

static int read_COUNT(struct problem_cursor *cursor, struct problem *problem, const struct key *key)
{
    *(int64_t *)field_of(problem, key) = 1;
    if (!has_value(cursor)) return 1;
    cursor->at++;
    return problem_read_int(cursor, 1, 1024, field_of(problem, key));
}

static int write_COUNT(const struct problem *problem, const struct key *key, char *value)
{
    return write_INT(problem, key, value);
}

static int read_SEED(struct problem_cursor *cursor, struct problem *problem, const struct key *key)
{
    int64_t seed;
    (void)key;
    if (!need_value(cursor) || !problem_read_int(cursor, 0, INT64_MAX, &seed)) return 0;
    problem->seed = (uint64_t)seed;
    return 1;
}

static int write_SEED(const struct problem *problem, const struct key *key, char *value)
{
    (void)key;
    sprintf(value, "=%llu", (unsigned long long)problem->seed);
    return problem->seed != 1;
}

static int read_REAL(struct problem_cursor *cursor, struct problem *problem, const struct key *key)
{
    return need_value(cursor) && problem_read_real(cursor, field_of(problem, key));
}

static int write_REAL(const struct problem *problem, const struct key *key, char *value)
{
    double found = *(const double *)value_of(problem, key);
    *value = '=';
    cli_write_real(found, value + 1);
    return found > 0;
}

static int read_ALIGN(struct problem_cursor *cursor, struct problem *problem, const struct key *key)
{
    int index;
    (void)key;
    if (!need_value(cursor) || !problem_read_word(cursor, alignments, &index)) return 0;
    problem->alignment = index;
    return 1;
}

static int write_ALIGN(const struct problem *problem, const struct key *key, char *value)
{
    (void)key;
    sprintf(value, "=%s", alignments[problem->alignment == ATTN_TOP_LEFT]);
    return !problem->causal && problem->alignment != ATTN_BOTTOM_RIGHT;
}

static int read_CAUSAL(struct problem_cursor *cursor, struct problem *problem, const struct key *key)
{
    problem->causal = 1;
    return has_value(cursor) ? read_ALIGN(cursor, problem, key) : 1;
}

static int write_CAUSAL(const struct problem *problem, const struct key *key, char *value)
{
    *value = 0;
    if (problem->alignment != ATTN_BOTTOM_RIGHT) write_ALIGN(problem, key, value);
    return problem->causal;
}

static unsigned all_axes(enum problem_mask mask)
{
    return mask == PROBLEM_MASK_KEY || mask == PROBLEM_MASK_HOLES
               ? PROBLEM_AXIS_B | PROBLEM_AXIS_K
               : PROBLEM_AXIS_B | PROBLEM_AXIS_H | PROBLEM_AXIS_S | PROBLEM_AXIS_K;
}

static int read_axes(struct problem_cursor *cursor, struct problem *problem)
{
    const char *start = cursor->at;
    unsigned allowed = all_axes(problem->mask), axes = 0;
    for (int i = 0; i < 4; i++) {
        if (*cursor->at != axes_letters[i]) continue;
        axes |= 1u << i;
        cursor->at++;
    }
    /* A key mask without keys is none. */
    if (allowed == (PROBLEM_AXIS_B | PROBLEM_AXIS_K) && (axes & ~allowed || !(axes & PROBLEM_AXIS_K)))
        return problem_expected(cursor, start, "k or bk");
    if (cursor->at == start || (*cursor->at && *cursor->at != ':'))
        return problem_expected(cursor, start, "some of the letters bhsk in this order");
    problem->mask_axes = axes;
    return 1;
}

static attn_dtype default_mask_dtype(const struct problem *problem)
{
    return problem->mask == PROBLEM_MASK_NONE       ? 0
           : problem->mask == PROBLEM_MASK_ADDITIVE ? ATTN_F32
                                                    : ATTN_BOOL;
}

static int read_MASK(struct problem_cursor *cursor, struct problem *problem, const struct key *key)
{
    int index;
    (void)key;
    if (!need_value(cursor) || !problem_read_word(cursor, masks, &index)) return 0;
    problem->mask = (enum problem_mask)(index + 1);
    problem->mask_axes = all_axes(problem->mask);
    if (*cursor->at != '@') return 1;
    cursor->at++;
    return read_axes(cursor, problem);
}

static int write_MASK(const struct problem *problem, const struct key *key, char *value)
{
    (void)key;
    if (problem->mask == PROBLEM_MASK_NONE) return 0;
    value += sprintf(value, "=%s", masks[problem->mask - 1]);
    if (problem->mask_axes == all_axes(problem->mask)) return 1;
    *value++ = '@';
    for (int i = 0; i < 4; i++) {
        if (problem->mask_axes >> i & 1) *value++ = axes_letters[i];
    }
    *value = 0;
    return 1;
}

static int read_MASKDTYPE(struct problem_cursor *cursor, struct problem *problem, const struct key *key)
{
    (void)key;
    return need_value(cursor) &&
           problem_read_dtype(cursor, PROBLEM_FLOATS | PROBLEM_BYTES, &problem->mask_dtype);
}

static int write_MASKDTYPE(const struct problem *problem, const struct key *key, char *value)
{
    (void)key;
    sprintf(value, "=%s", attn_dtype_name(problem->mask_dtype));
    return problem->mask_dtype != default_mask_dtype(problem);
}

static int read_LENGTHS(struct problem_cursor *cursor, struct problem *problem, const struct key *key)
{
    problem->lengths = 0;
    if (!has_value(cursor)) return 1;
    cursor->at++;
    return problem_read_int(cursor, 1, INT_LIMIT, field_of(problem, key));
}

static int write_LENGTHS(const struct problem *problem, const struct key *key, char *value)
{
    (void)key;
    *value = 0;
    if (problem->lengths > 0) sprintf(value, "=%lld", (long long)problem->lengths);
    return problem->lengths >= 0;
}

/* SHARE is a plain number, of which 0 stands for a map of all blocks. */
static int read_SPARSE(struct problem_cursor *cursor, struct problem *problem, const struct key *key)
{
    static const char *const none[] = {"0", NULL};
    int zero = 0;
    (void)key;
    if (!need_value(cursor)) return 0;
    if (cursor->at[0] == '0' && cursor->at[1] == '/')
        problem->sparse = 0, problem_read_word(cursor, none, &zero);
    else if (!problem_read_real(cursor, &problem->sparse))
        return 0;
    if (*cursor->at != '/') return problem_expected(cursor, cursor->at, "/ and the size of a block");
    cursor->at++;
    if (!problem_read_int(cursor, 1, INT_LIMIT, &problem->block_q)) return 0;
    problem->block_k = problem->block_q;
    if (*cursor->at != 'x') return 1;
    cursor->at++;
    return problem_read_int(cursor, 1, INT_LIMIT, &problem->block_k);
}

static int write_SPARSE(const struct problem *problem, const struct key *key, char *value)
{
    char number[32];
    (void)key;
    if (problem->sparse < 0) return 0;
    value += sprintf(value, "=%s/%lld", cli_write_real(problem->sparse, number), (long long)problem->block_q);
    if (problem->block_k != problem->block_q) sprintf(value, "x%lld", (long long)problem->block_k);
    return 1;
}

static int read_JOINT(struct problem_cursor *cursor, struct problem *problem, const struct key *key)
{
    static const char *const ends[] = {"front", "rear", NULL};
    if (!need_value(cursor) || !problem_read_int(cursor, 1, INT_LIMIT, field_of(problem, key))) return 0;
    if (*cursor->at != '@') return 1;
    cursor->at++;
    return problem_read_word(cursor, ends, &problem->joint_rear);
}

static int write_JOINT(const struct problem *problem, const struct key *key, char *value)
{
    (void)key;
    sprintf(value, "=%lld%s", (long long)problem->joint, problem->joint_rear ? "@rear" : "");
    return problem->joint > 0;
}

static const struct problem_kv stores[] = {{NULL, 0, 0, 0},
                                           {"f32", ATTN_F32, 0, 1},
                                           {"f16", ATTN_F16, 0, 1},
                                           {"bf16", ATTN_BF16, 0, 1},
                                           {"fp8_e4m3", ATTN_F8E4M3, 1, 0.5},
                                           {"fp8_e5m2", ATTN_F8E5M2, 2, 0.5},
                                           {"fp8_per_token_head", ATTN_F8E4M3, 3, 0x1p-6},
                                           {"int8_per_token_head", ATTN_I8, 3, 0x1p-5}};
#define STORES ((int)(sizeof stores / sizeof *stores))

const struct problem_kv *problem_kv_at(int index)
{
    return index > 0 && index < STORES ? &stores[index] : NULL;
}

static int read_KV(struct problem_cursor *cursor, struct problem *problem, const struct key *key)
{
    const char *words[STORES] = {NULL};
    int index;
    (void)key;
    for (int i = 1; i < STORES; i++) words[i - 1] = stores[i].word;
    if (!need_value(cursor) || !problem_read_word(cursor, words, &index)) return 0;
    problem->kv = index + 1;
    return 1;
}

static int write_KV(const struct problem *problem, const struct key *key, char *value)
{
    (void)key;
    sprintf(value, "=%s", problem->kv ? stores[problem->kv].word : "");
    return problem->kv > 0;
}

static int read_OUT(struct problem_cursor *cursor, struct problem *problem, const struct key *key)
{
    (void)key;
    return need_value(cursor) && problem_read_dtype(cursor, 1u << ATTN_F32, &problem->out_dtype);
}

static int write_OUT(const struct problem *problem, const struct key *key, char *value)
{
    (void)key;
    sprintf(value, "=%s", attn_dtype_name(problem->out_dtype));
    return problem->out_dtype != problem->dtype;
}

static int read_LAYOUT(struct problem_cursor *cursor, struct problem *problem, const struct key *key)
{
    int index;
    (void)key;
    if (!need_value(cursor) || !problem_read_word(cursor, layouts, &index)) return 0;
    problem->layout = (enum problem_layout)index;
    return 1;
}

static int write_LAYOUT(const struct problem *problem, const struct key *key, char *value)
{
    (void)key;
    sprintf(value, "=%s", layouts[problem->layout]);
    return problem->layout != PROBLEM_BSND;
}

/* ---- the table --------------------------------------------------------------------------------- */

#define ATTN_FEATURE_BIT_NONE (-1)
#define KEY_VALUE_BYTES       64

static const struct key_row {
    struct key key;
    int (*read)(struct problem_cursor *cursor, struct problem *problem, const struct key *key);
    int (*write)(const struct problem *problem, const struct key *key, char *value);
    struct problem_key_info info;
} rows[] = {
#define X(name, type, field, feature, argument, help)                                                        \
    {{#name, offsetof(struct problem, field)},                                                               \
     read_##type,                                                                                            \
     write_##type,                                                                                           \
     {#name, argument, help, ATTN_FEATURE_BIT_##feature}},
#include "problem_keys.def"
#undef X
};
#define ROWS (sizeof rows / sizeof *rows)

int problem_key_at(size_t index, struct problem_key_info *info)
{
    if (index >= ROWS) return 0;
    *info = rows[index].info;
    return 1;
}

static int unknown_key(struct problem_cursor *cursor)
{
    const char *names[ROWS + 1] = {NULL};
    char word[32], expected[64];
    for (size_t i = 0; i < ROWS; i++) names[i] = rows[i].key.name;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(cursor->at, ":="), cursor->at);
    const char *near = cli_nearest(word, names);
    snprintf(expected, sizeof expected, "a key%s%s%s",
             near ? " (the nearest is " : " such as causal or mask=key", near ? near : "", near ? ")" : "");
    return problem_expected(cursor, cursor->at, expected);
}

static int read_key(struct problem_cursor *cursor, struct problem *problem, unsigned *seen)
{
    const char *start = cursor->at;
    size_t length = strcspn(start, ":=");
    for (size_t i = 0; i < ROWS; i++) {
        if (strlen(rows[i].key.name) != length || strncmp(rows[i].key.name, start, length) != 0) continue;
        if (*seen >> i & 1) return problem_expected(cursor, start, "each key once");
        *seen |= 1u << i;
        cursor->at += length;
        return rows[i].read(cursor, problem, &rows[i].key);
    }
    return unknown_key(cursor);
}

int problem_read_keys(struct problem_cursor *cursor, struct problem *problem)
{
    unsigned seen = 0;
    _Static_assert(ROWS <= 32, "one bit of `seen` a key");
    while (*cursor->at) {
        if (*cursor->at != ':') return problem_expected(cursor, cursor->at, ": and a key, or the end");
        cursor->at++;
        if (!read_key(cursor, problem, &seen)) return 0;
    }
    if (!problem->mask_dtype) problem->mask_dtype = default_mask_dtype(problem);
    return 1;
}

void problem_write_keys(const struct problem *problem, char *text, size_t bytes)
{
    size_t used = 0;
    if (bytes) *text = 0;
    for (size_t i = 0; i < ROWS && used < bytes; i++) {
        char value[KEY_VALUE_BYTES];
        if (!rows[i].write(problem, &rows[i].key, value)) continue;
        used += (size_t)snprintf(text + used, bytes - used, ":%s%s", rows[i].key.name, value);
    }
}

/* ---- what excludes what ------------------------------------------------------------------------ */

static int is_key_mask(const struct problem *problem)
{
    return problem->mask == PROBLEM_MASK_KEY || problem->mask == PROBLEM_MASK_HOLES;
}

static int mask_dtype_fits(const struct problem *problem)
{
    unsigned allowed = problem->mask == PROBLEM_MASK_NONE       ? 1u
                       : problem->mask == PROBLEM_MASK_ADDITIVE ? PROBLEM_FLOATS
                       : is_key_mask(problem)                   ? 1u << ATTN_BOOL
                                                                : PROBLEM_BYTES;
    return allowed >> problem->mask_dtype & 1;
}

/* Far enough from overflow that padding and strides of 2 fit as well. */
#define SIZE_LIMIT ((int64_t)1 << 56)

static int64_t mask_elements(const struct problem *p)
{
    const int64_t sizes[] = {p->batch, p->heads, p->q_len, p->kv_len};
    int64_t product = 1;
    for (int i = 0; i < 4; i++) {
        if (p->mask && p->mask_axes >> i & 1 && __builtin_mul_overflow(product, sizes[i], &product))
            return INT64_MAX;
    }
    return product;
}

/* Entries of the lists of a block map. */
static int64_t list_elements(const struct problem *p)
{
    if (p->sparse < 0) return 0;
    int64_t queries = p->q_len + p->joint, keys = p->kv_len + p->joint, product = p->batch;
    if (__builtin_mul_overflow(product, p->heads, &product) ||
        __builtin_mul_overflow(product, (queries + p->block_q - 1) / p->block_q, &product) ||
        __builtin_mul_overflow(product, (keys + p->block_k - 1) / p->block_k, &product))
        return INT64_MAX;
    return product;
}

attn_status problem_validate(const struct problem *p, attn_error *error)
{
    int has_mask = p->mask != PROBLEM_MASK_NONE, has_window = p->left >= 0 || p->right >= 0;
    const struct {
        int wrong;
        const char *sentence;
    } rules[] = {
        {p->heads % p->kv_heads != 0, "kvh must divide h"},
        {!mask_dtype_fits(p),
         "maskdtype does not fit the mask: keep takes bool, u8, i8; additive f32, f16, bf16, f64; "
         "key and holes bool"},
        {p->mask_dtype == ATTN_F64 && p->dtype != ATTN_F64, "an f64 mask needs f64 inputs"},
        {p->out_dtype != p->dtype && (p->out_dtype != ATTN_F32 || p->dtype == ATTN_F64),
         "the output has the inputs' type, or f32 for f16 and bf16"},
        {p->packed && p->batch != 1, "packed needs b1: s is the total of all sequences"},
        {p->packed && (has_mask || p->lengths >= 0 || p->spans || p->ranges || p->joint),
         "packed excludes mask, lengths, spans, ranges and joint"},
        {p->kv && !p->paged, "kv says what the pages of a cache hold; give paged too"},
        {p->paged && (has_mask || p->joint || p->sparse >= 0 || (p->dtype == ATTN_F64 && !p->plain)),
         "paged excludes masks, joint, sparse and f64"},
        {p->paged > 65536, "paged takes pages of at most 65536 tokens"},
        {p->latent && p->value_head_dim > p->head_dim, "latent needs v at most d"},
        {p->prefix && (!p->causal || p->alignment || p->spans || p->ranges || p->joint),
         "prefix needs causal, and excludes top-left alignment, spans, ranges and joint"},
        {p->tree &&
             (has_window || p->spans || p->ranges || p->prefix || p->alignment || p->packed || p->joint ||
              p->q_len > p->kv_len || p->lengths == 0 || (p->lengths > 0 && p->lengths < p->q_len)),
         "tree excludes windows, spans, ranges, prefix, packed, joint, top-left alignment and random "
         "lengths, and "
         "needs as many keys as queries"},
        {p->tree && p->q_len > 4096, "tree takes at most 4096 queries"},
        {p->select && p->joint, "select excludes joint"},
        {p->select > 65536, "select takes lists of at most 65536 keys"},
        {p->lengths > p->kv_len, "lengths is beyond the number of keys"},
        {p->joint && (p->mask == PROBLEM_MASK_KEEP || p->mask == PROBLEM_MASK_ADDITIVE || p->lengths >= 0 ||
                      p->spans || p->ranges),
         "joint excludes mask=keep, mask=additive, lengths, spans and ranges"},
        {p->sparse > 1, "sparse leaves out a share from 0 to 1"},
        {p->sparse >= 0 && p->packed, "sparse excludes packed: a block map describes one length"},
        {p->sparse >= 0 && list_elements(p) > SIZE_LIMIT, "the block map has more than 2^56 entries"},
        {p->spans && (has_window || p->alignment), "spans exclude windows and top-left alignment"},
        {p->alignment && !p->causal && !has_window, "align needs left, right or causal"},
        {p->start && !p->alignment, "start needs causal=top-left or align=top-left"},
        {p->ranges && (p->start || !(p->causal || has_window || p->spans)),
         "ranges need causal, left, right or spans, and exclude start"},
        {p->layout == PROBLEM_QKV && p->q_len != p->kv_len, "layout=qkv needs as many keys as queries"},
        {p->layout == PROBLEM_HUGE &&
             (p->kv_len > 64 || p->q_len > 64 || p->batch > 2 || problem_elements(p) > 1 << 24),
         "layout=huge takes at most 64 rows, batch 2 and 2^24 elements"},
        {problem_elements(p) > SIZE_LIMIT, "the tensors have more than 2^56 elements"},
        {mask_elements(p) > SIZE_LIMIT, "the mask has more than 2^56 elements"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        char text[PROBLEM_TEXT_BYTES];
        if (!rules[i].wrong) continue;
        return cli_fail(error, ATTN_KIND_INVALID_VALUE, "problem %s: %s",
                        problem_format(p, text, sizeof text), rules[i].sentence);
    }
    return ATTN_OK;
}
