/* problem.c: problem strings to problems and back. */
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "problem_parse.h"

#define SIZE_MAX_VALUE ((int64_t)1 << 40)
#define PROBLEMS_MAX   4096
#define NUMBER_BYTES   40

/* The sizes in their order. One that may be left out takes the value of the field `from`. */
static const struct size_field {
    const char *word, *what;
    size_t offset, from;
    int optional;
    int64_t min;
} sizes[] = {
#define FIELD(name) offsetof(struct problem, name)
    {"b", "b and the batch size", FIELD(batch), 0, 0, 0},
    {"h", "h and the number of heads", FIELD(heads), 0, 0, 1},
    {"kvh", "", FIELD(kv_heads), FIELD(heads), 1, 1},
    {"s", "s and the sequence length", FIELD(q_len), 0, 0, 0},
    {"x", "", FIELD(kv_len), FIELD(q_len), 1, 0},
    {"d", "d and the head size", FIELD(head_dim), 0, 0, 1},
    {"v", "", FIELD(value_head_dim), FIELD(head_dim), 1, 1},
#undef FIELD
};
#define SIZES (sizeof sizes / sizeof *sizes)

static int64_t *field_at(struct problem *problem, size_t offset)
{
    return (int64_t *)(void *)((char *)problem + offset);
}

static int64_t field_value(const struct problem *problem, size_t offset)
{
    return *(const int64_t *)(const void *)((const char *)problem + offset);
}

/* ---- reading ----------------------------------------------------------------------------------- */

int problem_expected(struct problem_cursor *cursor, const char *at, const char *expected)
{
    int rest = (int)strcspn(at, ":");
    char found[32];
    if (!*at)
        snprintf(found, sizeof found, "the end");
    else
        snprintf(found, sizeof found, "\"%.*s\"", rest ? (rest > 24 ? 24 : rest) : 1, at);
    cli_fail(cursor->error, ATTN_KIND_SYNTAX, "problem \"%.200s\", column %d: found %s, expected %s",
             cursor->text, (int)(at - cursor->text) + 1, found, expected);
    return 0;
}

/* Notes a list of n items and returns the index of the one to take; -1 when there are too many lists. */
static int64_t choose(struct problem_cursor *cursor, int64_t n)
{
    if (n == 1) return 0;
    if (cursor->lists == PROBLEM_LISTS_MAX) return -1;
    cursor->sizes[cursor->lists] = n;
    return cursor->choice[cursor->lists++];
}

/* The characters of one number at *at, copied; 0 when there is none. */
static int take_number(const char **at, const char *characters, char *number)
{
    size_t length = strspn(*at, characters);
    if (length == 0 || length >= NUMBER_BYTES) return 0;
    memcpy(number, *at, length);
    number[length] = 0;
    *at += length;
    return 1;
}

static int read_one(struct problem_cursor *cursor, int64_t min, int64_t max, int64_t *value)
{
    const char *start = cursor->at;
    char number[NUMBER_BYTES], expected[96];
    if (take_number(&cursor->at, "0123456789", number) && cli_read_int(number, min, max, value)) return 1;
    snprintf(expected, sizeof expected, "a whole number from %lld to %lld", (long long)min, (long long)max);
    return problem_expected(cursor, start, expected);
}

/* "512-4096*2" after its first number: counts the values on from *seen and notes the wanted one. */
static int read_range(struct problem_cursor *cursor, int64_t first, int64_t max, int64_t wanted,
                      int64_t *seen, int64_t *value)
{
    int64_t last, factor;
    cursor->at++;
    if (!read_one(cursor, first, max, &last)) return 0;
    if (*cursor->at != '*') return problem_expected(cursor, cursor->at, "* and the factor of the range");
    const char *start = ++cursor->at;
    if (!read_one(cursor, 2, max, &factor)) return 0;
    if (first == 0) return problem_expected(cursor, start, "no factor: a range cannot start from 0");
    for (int64_t n = first;; n *= factor) {
        if ((*seen)++ == wanted) *value = n;
        if (n > last / factor) return 1;
    }
}

/* Reads the list, taking item `wanted` (counted from 0); *count says how many there are. */
static int read_items(struct problem_cursor *cursor, int64_t min, int64_t max, int64_t wanted, int64_t *count,
                      int64_t *value)
{
    *count = 0;
    for (;;) {
        int64_t first;
        if (!read_one(cursor, min, max, &first)) return 0;
        if (*cursor->at == '-') {
            if (!read_range(cursor, first, max, wanted, count, value)) return 0;
        } else if ((*count)++ == wanted) {
            *value = first;
        }
        if (*cursor->at != ',') return 1;
        cursor->at++;
    }
}

int problem_read_int(struct problem_cursor *cursor, int64_t min, int64_t max, int64_t *value)
{
    const char *start = cursor->at;
    int64_t count;
    if (!read_items(cursor, min, max, 0, &count, value)) return 0;
    int64_t wanted = choose(cursor, count);
    if (wanted < 0) return problem_expected(cursor, start, "fewer lists in one text");
    if (wanted == 0) return 1;
    cursor->at = start;
    return read_items(cursor, min, max, wanted, &count, value);
}

/* Numbers with a fraction: lists, no ranges. */
static int read_reals(struct problem_cursor *cursor, int64_t wanted, int64_t *count, double *value)
{
    for (*count = 0;; cursor->at++) {
        const char *start = cursor->at;
        char number[NUMBER_BYTES];
        double found;
        if (!take_number(&cursor->at, "0123456789.eE+-", number) || !cli_read_real(number, &found) ||
            found <= 0)
            return problem_expected(cursor, start, "a number above 0");
        if ((*count)++ == wanted) *value = found;
        if (*cursor->at != ',') return 1;
    }
}

int problem_read_real(struct problem_cursor *cursor, double *value)
{
    const char *start = cursor->at;
    int64_t count;
    if (!read_reals(cursor, 0, &count, value)) return 0;
    int64_t wanted = choose(cursor, count);
    if (wanted < 0) return problem_expected(cursor, start, "fewer lists in one text");
    if (wanted == 0) return 1;
    cursor->at = start;
    return read_reals(cursor, wanted, &count, value);
}

static size_t word_length(const char *at)
{
    return strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789-_");
}

int problem_read_word(struct problem_cursor *cursor, const char *const *words, int *index)
{
    size_t length = word_length(cursor->at), used = 0;
    char expected[256] = "";
    for (int i = 0; words[i]; i++) {
        if (strlen(words[i]) == length && strncmp(words[i], cursor->at, length) == 0) {
            *index = i;
            cursor->at += length;
            return 1;
        }
        if (used < sizeof expected)
            used += (size_t)snprintf(expected + used, sizeof expected - used, "%s%s", i ? ", " : "one of ",
                                     words[i]);
    }
    return problem_expected(cursor, cursor->at, expected);
}

int problem_read_dtype(struct problem_cursor *cursor, unsigned allowed, attn_dtype *dtype)
{
    static const struct {
        attn_dtype dtype;
        const char *name;
    } dtypes[] = {
#define X(name, value, text, code, bits) {value, text},
        ATTN_DTYPE_LIST(X)
#undef X
    };
    const char *words[sizeof dtypes / sizeof *dtypes + 1] = {NULL};
    attn_dtype values[sizeof dtypes / sizeof *dtypes];
    int count = 0, index;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (!(allowed >> dtypes[i].dtype & 1)) continue;
        values[count] = dtypes[i].dtype;
        words[count++] = dtypes[i].name;
    }
    const char *start = cursor->at;
    int64_t n = 0, wanted;
    do {
        if (n++) cursor->at++;
        if (!problem_read_word(cursor, words, &index)) return 0;
    } while (*cursor->at == ',');
    wanted = choose(cursor, n);
    if (wanted < 0) return problem_expected(cursor, start, "fewer lists in one text");
    const char *end = cursor->at;
    cursor->at = start;
    for (int64_t i = 0; i <= wanted; i++) {
        if (i) cursor->at++;
        problem_read_word(cursor, words, &index);
    }
    cursor->at = end;
    *dtype = values[index];
    return 1;
}

static int read_sizes(struct problem_cursor *cursor, struct problem *problem)
{
    for (size_t i = 0; i < SIZES; i++) {
        const struct size_field *size = &sizes[i];
        int64_t *field = field_at(problem, size->offset);
        size_t length = strlen(size->word);
        if (strncmp(cursor->at, size->word, length) == 0) {
            cursor->at += length;
            if (!problem_read_int(cursor, size->min, SIZE_MAX_VALUE, field)) return 0;
        } else if (size->optional) {
            *field = field_value(problem, size->from);
        } else {
            return problem_expected(cursor, cursor->at, size->what);
        }
    }
    return 1;
}

/* One combination of the lists' items. */
static int read_problem(struct problem_cursor *cursor, struct problem *problem)
{
    cursor->at = cursor->text;
    cursor->lists = 0;
    problem_init(problem);
    if (!read_sizes(cursor, problem)) return 0;
    if (*cursor->at != ':') return problem_expected(cursor, cursor->at, ": and the element type");
    cursor->at++;
    if (!problem_read_dtype(cursor, PROBLEM_FLOATS, &problem->dtype)) return 0;
    problem->out_dtype = problem->dtype;
    return problem_read_keys(cursor, problem);
}

/* Steps to the next combination, the last list fastest; 0 after the last one. */
static int next_choice(struct problem_cursor *cursor)
{
    for (size_t i = cursor->lists; i-- > 0;) {
        if (++cursor->choice[i] < cursor->sizes[i]) return 1;
        cursor->choice[i] = 0;
    }
    return 0;
}

static attn_status append(struct problem_list *list, const struct problem *problem, attn_error *error)
{
    if (list->count == PROBLEMS_MAX)
        return cli_fail(error, ATTN_KIND_INVALID_VALUE, "the text stands for more than %d problems",
                        PROBLEMS_MAX);
    struct problem *items = realloc(list->items, (list->count + 1) * sizeof *items);
    if (!items) return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a list of problems");
    items[list->count++] = *problem;
    list->items = items;
    return ATTN_OK;
}

attn_status problem_parse(const char *text, struct problem_list *list, attn_error *error)
{
    attn_error local = ATTN_ERROR_INIT;
    struct problem_cursor cursor;
    attn_status status = ATTN_OK;
    memset(&cursor, 0, sizeof cursor);
    memset(list, 0, sizeof *list);
    cursor.text = text;
    cursor.error = error ? error : &local;
    do {
        struct problem problem;
        if (!read_problem(&cursor, &problem)) status = cursor.error->status;
        if (!status) status = problem_validate(&problem, cursor.error);
        if (!status) status = append(list, &problem, cursor.error);
    } while (!status && next_choice(&cursor));
    if (status) problem_list_free(list);
    return status;
}

attn_status problem_append(struct problem_list *list, const char *text, attn_error *error)
{
    struct problem_list parsed;
    attn_status status = problem_parse(text, &parsed, error);
    for (size_t i = 0; i < parsed.count && !status; i++) status = append(list, &parsed.items[i], error);
    problem_list_free(&parsed);
    return status;
}

void problem_list_free(struct problem_list *list)
{
    free(list->items);
    list->items = NULL;
    list->count = 0;
}

/* ---- writing ----------------------------------------------------------------------------------- */

char *problem_format(const struct problem *problem, char *text, size_t bytes)
{
    size_t used = 0;
    for (size_t i = 0; i < SIZES && used < bytes; i++) {
        int64_t value = field_value(problem, sizes[i].offset);
        if (sizes[i].optional && value == field_value(problem, sizes[i].from)) continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%lld", sizes[i].word, (long long)value);
    }
    if (used < bytes)
        used += (size_t)snprintf(text + used, bytes - used, ":%s", attn_dtype_name(problem->dtype));
    if (used < bytes) problem_write_keys(problem, text + used, bytes - used);
    return text;
}

/* ---- what a problem is ------------------------------------------------------------------------- */

void problem_init(struct problem *problem)
{
    memset(problem, 0, sizeof *problem);
    problem->left = problem->right = problem->lengths = -1;
    problem->sparse = -1;
    problem->seed = 1;
    problem->dtype = problem->out_dtype = ATTN_F32;
}

static int exceeds(int64_t a, int64_t b, int64_t *product)
{
    return __builtin_mul_overflow(a, b, product);
}

int64_t problem_elements(const struct problem *p)
{
    int64_t widths, q, k, rows_q, rows_k, sum;
    if (exceeds(p->heads, p->head_dim + p->value_head_dim, &q) ||
        exceeds(p->kv_heads, p->head_dim + p->value_head_dim, &k) || exceeds(p->batch, p->q_len, &rows_q) ||
        exceeds(p->batch, p->kv_len, &rows_k) || exceeds(rows_q, q, &widths) || exceeds(rows_k, k, &sum) ||
        __builtin_add_overflow(sum, widths, &sum))
        return INT64_MAX;
    return sum;
}

static unsigned window_of(const struct problem *problem)
{
    return (problem->left >= 0 ? ATTN_WINDOW_LEFT : 0) | (problem->right >= 0 ? ATTN_WINDOW_RIGHT : 0);
}

uint64_t problem_features(const struct problem *p)
{
    const struct {
        int asked;
        int bit;
    } rows[] = {
        {p->mask == PROBLEM_MASK_KEEP, ATTN_FEATURE_BIT_MASK_KEEP},
        {p->mask == PROBLEM_MASK_ADDITIVE, ATTN_FEATURE_BIT_MASK_ADDITIVE},
        {p->mask == PROBLEM_MASK_KEY || p->mask == PROBLEM_MASK_HOLES, ATTN_FEATURE_BIT_KEY_MASK},
        {p->lengths >= 0 && (!p->paged || p->plain), ATTN_FEATURE_BIT_LENGTHS},
        {p->paged && !p->plain, ATTN_FEATURE_BIT_PAGED},
        {p->kv && !p->plain && problem_kv_at(p->kv)->dtype != p->dtype, ATTN_FEATURE_BIT_CACHE_DTYPE},
        {p->alibi, ATTN_FEATURE_BIT_ALIBI},
        {p->prefix > 0, ATTN_FEATURE_BIT_PREFIX_RANGES},
        {p->tree, ATTN_FEATURE_BIT_TREE},
        {p->select > 0, ATTN_FEATURE_BIT_SELECTED},
        {p->packed > 0, ATTN_FEATURE_BIT_PACKED},
        {p->causal, ATTN_FEATURE_BIT_CAUSAL},
        {p->alignment == ATTN_TOP_LEFT, ATTN_FEATURE_BIT_TOP_LEFT},
        {window_of(p) != 0, ATTN_FEATURE_BIT_WINDOW},
        {p->spans > 0, ATTN_FEATURE_BIT_SPANS},
        {p->ranges > 0, ATTN_FEATURE_BIT_QUERY_RANGES},
        {p->sparse >= 0, ATTN_FEATURE_BIT_BLOCK_MAP},
        {p->softcap > 0, ATTN_FEATURE_BIT_SOFTCAP},
        {p->sinks, ATTN_FEATURE_BIT_SINKS},
        {p->lse, ATTN_FEATURE_BIT_LSE},
        {p->kv_heads != p->heads, ATTN_FEATURE_BIT_GROUPED},
        {p->value_head_dim != p->head_dim, ATTN_FEATURE_BIT_VALUE_DIM},
        {p->layout == PROBLEM_STRIDED, ATTN_FEATURE_BIT_STRIDED},
        {p->out_dtype != p->dtype, ATTN_FEATURE_BIT_F32_OUT},
    };
    uint64_t features = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].asked) features |= (uint64_t)1 << rows[i].bit;
    }
    return features;
}

struct problem problem_in_double(const struct problem *problem)
{
    struct problem wide = *problem;
    wide.dtype = wide.out_dtype = ATTN_F64;
    wide.layout = PROBLEM_BSND;
    wide.hidden_nan = 0;
    wide.plain = 1;
    wide.lse = 1;
    return wide;
}

void problem_layer(const struct problem *problem, attn_layer_options *layer)
{
    memset(layer, 0, sizeof *layer);
    layer->size = sizeof *layer;
    layer->heads = problem->heads;
    layer->kv_heads = problem->kv_heads;
    layer->head_dim = problem->head_dim;
    layer->value_head_dim = problem->value_head_dim;
    layer->scale = problem->scale;
    layer->softcap = problem->softcap;
    layer->causal = problem->causal;
    layer->alignment = problem->alignment;
    layer->window = window_of(problem);
    layer->window_left = problem->left >= 0 ? problem->left : 0;
    layer->window_right = problem->right >= 0 ? problem->right : 0;
    layer->dtype = problem->dtype;
    layer->needs = problem_features(problem);
}
