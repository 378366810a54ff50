/* params.c: tables of typed values: strict look-ups, copies, and the rule of the tiers. */
#include "core/params.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct {
    int32_t type;
    const char *name;
} types[] = {
#define X(name, value, text, sentence) {value, text},
    ATTN_PARAM_TYPE_LIST(X)
#undef X
};

const char *attn_param_type_name(attn_param_type type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (types[i].type == type) return types[i].name;
    return "unknown";
}

/* ---- look-ups ------------------------------------------------------------------------------------- */

/* What is no table of ours counts as empty. */
static uint32_t count_of(const attn_params *params)
{
    return params && params->size >= sizeof *params && params->items ? params->count : 0;
}

const attn_param *attn_params_find(const attn_params *params, const char *name)
{
    for (uint32_t i = count_of(params); name && i-- > 0;)
        if (params->items[i].name && !strcmp(params->items[i].name, name)) return &params->items[i];
    return NULL;
}

static attn_status wrong_type(const attn_param *p, const char *expected, attn_error *error)
{
    return attn_fail(error, ATTN_KIND_INVALID_TYPE, "parameter %.80s is of type %s; it is %s", p->name,
                     attn_param_type_name(p->type), expected);
}

/* NULL when there is nothing to read: absent, or null. */
static const attn_param *given(const attn_params *params, const char *name)
{
    const attn_param *p = attn_params_find(params, name);
    return p && p->type != ATTN_PARAM_NONE ? p : NULL;
}

attn_status attn_params_bool(const attn_params *params, const char *name, int32_t *value, attn_error *error)
{
    const attn_param *p = given(params, name);
    if (p && p->type != ATTN_PARAM_BOOL) return wrong_type(p, "true or false", error);
    if (p) *value = p->value.integer != 0;
    return ATTN_OK;
}

attn_status attn_params_int(const attn_params *params, const char *name, int64_t low, int64_t high,
                            int64_t *value, attn_error *error)
{
    const attn_param *p = given(params, name);
    if (!p) return ATTN_OK;
    if (p->type != ATTN_PARAM_INT) return wrong_type(p, "a whole number", error);
    if (p->value.integer < low || p->value.integer > high)
        return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                         "parameter %.80s is %" PRId64 "; it is %" PRId64 " to %" PRId64, name,
                         p->value.integer, low, high);
    *value = p->value.integer;
    return ATTN_OK;
}

attn_status attn_params_number(const attn_params *params, const char *name, double low, double high,
                               double *value, attn_error *error)
{
    const attn_param *p = given(params, name);
    if (!p) return ATTN_OK;
    if (p->type != ATTN_PARAM_INT && p->type != ATTN_PARAM_NUMBER) return wrong_type(p, "a number", error);
    double number = p->type == ATTN_PARAM_INT ? (double)p->value.integer : p->value.number;
    if (!(number >= low && number <= high))
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "parameter %.80s is %g; it is %g to %g", name,
                         number, low, high);
    *value = number;
    return ATTN_OK;
}

attn_status attn_params_text(const attn_params *params, const char *name, const char **value,
                             attn_error *error)
{
    const attn_param *p = given(params, name);
    if (p && (p->type != ATTN_PARAM_TEXT || !p->value.text)) return wrong_type(p, "text", error);
    if (p) *value = p->value.text;
    return ATTN_OK;
}

/* Whether a blank-separated list holds a word. */
static bool listed(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *p = words; *p; p += strcspn(p, " "), p += *p == ' ')
        if (strcspn(p, " ") == length && !strncmp(p, word, length)) return true;
    return false;
}

attn_status attn_params_word(const attn_params *params, const char *name, const char *words,
                             const char **value, attn_error *error)
{
    const char *word = NULL;
    ATTN_TRY(attn_params_text(params, name, &word, error));
    if (word && (!*word || !listed(words, word)))
        return attn_fail(error, ATTN_KIND_INVALID_VALUE, "parameter %.80s is '%.80s'; it is one of: %.200s",
                         name, word, words);
    if (word) *value = word;
    return ATTN_OK;
}

attn_status attn_params_ints(const attn_params *params, const char *name, const int64_t **values,
                             int64_t *count, int32_t *columns, attn_error *error)
{
    const attn_param *p = given(params, name);
    if (!p) return ATTN_OK;
    if (p->type != ATTN_PARAM_INTS) return wrong_type(p, "a list of whole numbers", error);
    if (p->columns && !columns)
        return attn_fail(error, ATTN_KIND_INVALID_TYPE,
                         "parameter %.80s has rows of %d numbers; it is a flat list", name, p->columns);
    *values = p->value.integers;
    *count = p->count;
    if (columns) *columns = p->columns;
    return ATTN_OK;
}

/* What the library fills by itself. */
static const char own[] = "denoise_step_idx total_denoise_steps latent_shape patch_size timestep "
                          "total_latent_frames patches_per_frame attn_mask key_mask full_attn_spans "
                          "start_step end_step skip_layers";

attn_status attn_params_known(const attn_params *params, const char *names, attn_error *error)
{
    for (uint32_t i = 0; i < count_of(params); i++) {
        const char *name = params->items[i].name;
        if (!name || listed(names, name) || listed(own, name)) continue;
        return attn_fail(error, ATTN_KIND_UNKNOWN_OR_MISSING_KEY,
                         "'%.80s' is no parameter here; the parameters are: %.300s", name,
                         *names ? names : "none");
    }
    return ATTN_OK;
}

/* ---- copies --------------------------------------------------------------------------------------- */

enum { DEPTH = 16 };

static bool copy_entry(attn_arena *arena, const attn_param *from, attn_param *to, int depth);

static bool copy_items(attn_arena *arena, const attn_params *from, attn_params *to, int depth)
{
    uint32_t count = count_of(from);
    attn_param *items = count ? attn_arena_take(arena, count * sizeof *items, _Alignof(attn_param)) : NULL;
    if ((count && !items) || depth > DEPTH) return false;
    for (uint32_t i = 0; i < count; i++)
        if (!copy_entry(arena, &from->items[i], &items[i], depth)) return false;
    *to = (attn_params){sizeof *to, count, items};
    return true;
}

static bool copy_bytes(attn_arena *arena, const void *from, int64_t count, size_t width, const void **to)
{
    size_t bytes;
    if (!count) return true;
    if (count < 0 || !from || !attn_mul((size_t)count, width, &bytes)) return false;
    void *copy = attn_arena_take(arena, bytes, width);
    if (copy) memcpy(copy, from, bytes);
    *to = copy;
    return copy != NULL;
}

static bool copy_table(attn_arena *arena, const attn_param *from, attn_param *to, int depth)
{
    attn_params *table = attn_arena_take(arena, sizeof *table, _Alignof(attn_params));
    to->value.table = table;
    return table && copy_items(arena, from->value.table, table, depth + 1);
}

static bool copy_entry(attn_arena *arena, const attn_param *from, attn_param *to, int depth)
{
    const void *list = NULL;
    *to = *from;
    if (from->name && !(to->name = attn_arena_text(arena, from->name))) return false;
    switch (from->type) {
    case ATTN_PARAM_TEXT:
        return (to->value.text = attn_arena_text(arena, from->value.text ? from->value.text : "")) != NULL;
    case ATTN_PARAM_INTS:
        if (!copy_bytes(arena, from->value.integers, from->count, sizeof(int64_t), &list)) return false;
        to->value.integers = list;
        return true;
    case ATTN_PARAM_NUMBERS:
        if (!copy_bytes(arena, from->value.numbers, from->count, sizeof(double), &list)) return false;
        to->value.numbers = list;
        return true;
    case ATTN_PARAM_LIST:
    case ATTN_PARAM_TABLE:
        return copy_table(arena, from, to, depth);
    default:
        return true;
    }
}

bool attn_param_copy(attn_arena *arena, const attn_param *from, attn_param *to)
{
    return copy_entry(arena, from, to, 0);
}

attn_status attn_params_copy(attn_arena *arena, const attn_params *from, attn_params *to, attn_error *error)
{
    if (copy_items(arena, from, to, 0)) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY,
                     "no memory for a copy of %u parameters, or they are nested more than %d deep",
                     count_of(from), DEPTH);
}

/* ---- tables --------------------------------------------------------------------------------------- */

void attn_param_table_init(attn_param_table *t, const attn_allocator *allocator)
{
    memset(t, 0, sizeof *t);
    t->arena.allocator = allocator;
}

void attn_param_table_reset(attn_param_table *t)
{
    attn_arena_reset(&t->arena);
    t->count = 0;
}

void attn_param_table_clear(attn_param_table *t)
{
    attn_arena_clear(&t->arena);
    attn_drop(t->arena.allocator, t->items);
    t->items = NULL;
    t->count = t->room = 0;
}

attn_params attn_param_table_view(const attn_param_table *t)
{
    return (attn_params){sizeof(attn_params), t->count, t->items};
}

static bool grow(attn_param_table *t)
{
    uint32_t room = t->room ? t->room * 2 : 16;
    attn_param *more = room > t->room ? attn_take_zeroed(t->arena.allocator, room * sizeof *more) : NULL;
    if (!more) return false;
    if (t->items) memcpy(more, t->items, t->count * sizeof *more);
    attn_drop(t->arena.allocator, t->items);
    t->items = more;
    t->room = room;
    return true;
}

attn_status attn_param_table_set(attn_param_table *t, const attn_param *param, attn_error *error)
{
    attn_params view = attn_param_table_view(t);
    const attn_param *old = attn_params_find(&view, param->name);
    if (old) {
        t->items[old - t->items] = *param;
        return ATTN_OK;
    }
    if (t->count == t->room && !grow(t))
        return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for %u parameters; pass fewer", t->count);
    t->items[t->count++] = *param;
    return ATTN_OK;
}

static void drop_nulls(attn_param_table *t)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < t->count; i++)
        if (t->items[i].type != ATTN_PARAM_NONE) t->items[kept++] = t->items[i];
    t->count = kept;
}

attn_status attn_param_table_merge(attn_param_table *t, const attn_params *const *tiers, size_t count,
                                   attn_error *error)
{
    for (size_t tier = 0; tier < count; tier++)
        for (uint32_t i = 0; i < count_of(tiers[tier]); i++)
            if (tiers[tier]->items[i].name) ATTN_TRY(attn_param_table_set(t, &tiers[tier]->items[i], error));
    drop_nulls(t);
    return ATTN_OK;
}
