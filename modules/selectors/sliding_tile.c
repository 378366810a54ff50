/* sliding_tile.c: each tile of a video attends to a window of tiles around it ("sliding tile attention",
 * Zhang et al. 2025).
 *
 * The video is cut into tiles of frames x rows x columns. Along each axis a query tile sees `window` tiles,
 * itself in the middle; near the border the window is moved inwards, so that every tile sees equally many. A
 * key block is kept when a tile of it lies in the window of a tile of the query block.
 *
 * Parameters: tile (default [4, 4, 4] tokens), window (default [3, 3, 3] tiles, odd), grid, order ("frames":
 * tokens come frame by frame; "tiles": tile by tile, as models that were made for it have them), and file: a
 * JSON object
 *
 *   {"tile": [4, 4, 4],
 *    "rules": [{"layers": [0, 1], "heads": [3], "steps": [0, 1, 2], "window": [5, 5, 5]},
 *              {"window": [3, 1, 1]}]}
 *
 * The first rule that names the call's layer, head and step holds; a rule without one of them holds for all.
 * Where none does, `window` holds. The file is read at every call, so a change of it counts from the next
 * one. */
#include "selectors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { AXES = 3, FILE_MOST = 1 << 20 };

typedef struct sliding {
    const attn_sparse_call *call;
    const attn_block_map *map;
    video_grid grid, tiles; /* in tokens, in tiles */
    int64_t tile[AXES], window[AXES];
    int tile_order;
    const attn_params *rules; /* NULL: none */
    const int32_t *tile_of;   /* of each token */
    uint8_t *seen;            /* one byte a tile, for each worker */
} sliding;

/* ---- where a token is ---------------------------------------------------------------------------- */

static int64_t tile_count(const sliding *s)
{
    return s->tiles.size[0] * s->tiles.size[1] * s->tiles.size[2];
}

static int64_t tile_number(const sliding *s, const int64_t at[AXES])
{
    return (at[0] * s->tiles.size[1] + at[1]) * s->tiles.size[2] + at[2];
}

static void number_by_frames(const sliding *s, int32_t *tile_of)
{
    const int64_t *n = s->grid.size, *t = s->tile;
    for (int64_t f = 0; f < n[0]; f++)
        for (int64_t y = 0; y < n[1]; y++)
            for (int64_t x = 0; x < n[2]; x++)
                *tile_of++ = (int32_t)tile_number(s, (int64_t[]){f / t[0], y / t[1], x / t[2]});
}

/* Tiles at the far borders may be smaller. */
static void number_by_tiles(const sliding *s, int32_t *tile_of)
{
    int64_t at[AXES];
    for (at[0] = 0; at[0] < s->tiles.size[0]; at[0]++)
        for (at[1] = 0; at[1] < s->tiles.size[1]; at[1]++)
            for (at[2] = 0; at[2] < s->tiles.size[2]; at[2]++) {
                int64_t tokens = 1;
                for (int i = 0; i < AXES; i++)
                    tokens *= smaller(s->tile[i], s->grid.size[i] - at[i] * s->tile[i]);
                while (tokens-- > 0) *tile_of++ = (int32_t)tile_number(s, at);
            }
}

/* ---- windows ------------------------------------------------------------------------------------- */

/* Tiles [*first, *end) of an axis that tile `at` of `count` sees through a window. */
static void window_range(int64_t at, int64_t count, int64_t window, int64_t *first, int64_t *end)
{
    window = smaller(window, count);
    *first = larger(0, smaller(at - window / 2, count - window));
    *end = *first + window;
}

static void see(const sliding *s, int64_t tile, const int64_t *window, uint8_t *seen)
{
    const int64_t *n = s->tiles.size, at[AXES] = {tile / (n[1] * n[2]), tile / n[2] % n[1], tile % n[2]};
    int64_t first[AXES], end[AXES], i[AXES];
    for (int a = 0; a < AXES; a++) window_range(at[a], n[a], window[a], &first[a], &end[a]);
    for (i[0] = first[0]; i[0] < end[0]; i[0]++)
        for (i[1] = first[1]; i[1] < end[1]; i[1]++)
            memset(seen + tile_number(s, (int64_t[]){i[0], i[1], first[2]}), 1, (size_t)(end[2] - first[2]));
}

static attn_status check_window(const int64_t *w, int64_t count, attn_error *error)
{
    int good = count == AXES;
    for (int i = 0; good && i < AXES; i++) good = w[i] > 0 && w[i] % 2 == 1;
    if (good) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_INVALID_VALUE,
                     "a window of sliding_tile has %" PRId64
                     " numbers%s; it is three odd numbers of tiles above 0, for frames, rows and columns",
                     count, count == AXES ? ", not all odd and above 0" : "");
}

/* ---- rules of a file ----------------------------------------------------------------------------- */

static attn_status check_rules(const attn_params *rules, const char *path, attn_error *error)
{
    for (uint32_t i = 0; rules && i < rules->count; i++) {
        const attn_param *rule = &rules->items[i];
        const int64_t *list = NULL;
        int64_t count = 0;
        attn_status status;
        if (rule->type != ATTN_PARAM_TABLE)
            return attn_fail(error, ATTN_KIND_INVALID_TYPE, "%.200s: rule %u is no object with a window",
                             path, i);
        if ((status = attn_params_known(rule->value.table, "layers heads steps window", error)) ||
            (status = attn_params_ints(rule->value.table, "window", &list, &count, NULL, error)) ||
            (status = check_window(list, count, error)))
            return status;
        static const char *const names[] = {"layers", "heads", "steps"};
        for (int n = 0; n < 3; n++)
            if ((status = attn_params_ints(rule->value.table, names[n], &list, &count, NULL, error)))
                return status;
    }
    return ATTN_OK;
}

/* A list of a rule holds for a number when the number is in it, or there is no such list. */
static int names_number(const attn_params *rule, const char *name, int64_t number)
{
    const int64_t *list = NULL;
    int64_t count = 0;
    if (attn_params_ints(rule, name, &list, &count, NULL, NULL) || !list) return 1;
    while (count-- > 0)
        if (list[count] == number) return 1;
    return 0;
}

static const int64_t *window_of(const sliding *s, block_place at)
{
    const attn_forward_state *f = s->call->forward;
    int64_t step = f && f->denoise_step ? f->denoise_step[f->samples > 1 ? at.sample : 0] : -1, count;
    for (uint32_t i = 0; s->rules && i < s->rules->count; i++) {
        const attn_params *rule = s->rules->items[i].value.table;
        const int64_t *window = NULL;
        if (names_number(rule, "layers", s->call->call->layer_index) &&
            names_number(rule, "heads", at.head) && names_number(rule, "steps", step) &&
            !attn_params_ints(rule, "window", &window, &count, NULL, NULL))
            return window;
    }
    return s->window;
}

/* The text of a file, terminated; the caller frees it. */
static attn_status read_text(const char *path, char **text, attn_error *error)
{
    FILE *f = fopen(path, "rb");
    size_t bytes = 0;
    if (!f)
        return attn_fail(error, ATTN_KIND_IO, "cannot open %.300s, the parameter file of sliding_tile", path);
    *text = malloc(FILE_MOST + 1);
    if (*text) bytes = fread(*text, 1, FILE_MOST, f);
    int bad = ferror(f) || !feof(f);
    fclose(f);
    if (!*text) return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the text of %.300s", path);
    (*text)[bytes] = 0;
    if (bad)
        return attn_fail(error, ATTN_KIND_IO,
                         "%.300s could not be read to its end; it is a file of at most %d bytes", path,
                         FILE_MOST);
    return ATTN_OK;
}

static attn_status read_file(const char *path, attn_params **parsed, attn_error *error)
{
    char *text = NULL;
    attn_status status = read_text(path, &text, error);
    if (!status) status = attn_params_parse(text, parsed, error);
    if (!status) status = attn_params_known(*parsed, "tile window rules", error);
    free(text);
    return status;
}

/* ---- parameters ---------------------------------------------------------------------------------- */

static attn_status read_three(const attn_params *params, const char *name, int64_t *to, attn_error *error)
{
    const int64_t *list = NULL;
    int64_t count = 0;
    attn_status status = attn_params_ints(params, name, &list, &count, NULL, error);
    if (status || !list) return status;
    for (int i = 0; i < AXES; i++)
        if (count != AXES || list[i] < 1)
            return attn_fail(
                error, ATTN_KIND_INVALID_VALUE,
                "parameter %s of sliding_tile is no list of three whole numbers above 0, for frames, rows "
                "and columns",
                name);
    memcpy(to, list, sizeof(int64_t[AXES]));
    return ATTN_OK;
}

static attn_status read_shapes(sliding *s, const attn_params *params)
{
    attn_status status = read_three(params, "tile", s->tile, s->call->error);
    return status ? status : read_three(params, "window", s->window, s->call->error);
}

/* The parameters of the call go before those of the file. */
static attn_status read_params(sliding *s, attn_params **from_file)
{
    const attn_params *params = s->call->params;
    attn_error *error = s->call->error;
    const char *path = NULL, *order = "frames";
    const attn_param *rules;
    attn_status status;
    if ((status = attn_params_known(params, "tile window grid order file block_q block_k", error)) ||
        (status = attn_params_word(params, "order", "frames tiles", &order, error)) ||
        (status = attn_params_text(params, "file", &path, error)) ||
        (path && (status = read_file(path, from_file, error))) || (status = read_shapes(s, *from_file)) ||
        (status = read_shapes(s, params)) || (status = check_window(s->window, AXES, error)) ||
        (status = selector_grid(s->call, "sliding_tile", &s->grid)))
        return status;
    s->tile_order = !strcmp(order, "tiles");
    rules = attn_params_find(*from_file, "rules");
    if (rules && rules->type != ATTN_PARAM_LIST)
        return attn_fail(error, ATTN_KIND_INVALID_TYPE, "%.200s: rules is no list of objects", path);
    s->rules = rules ? rules->value.table : NULL;
    for (int i = 0; i < AXES; i++) s->tiles.size[i] = blocks_of(s->grid.size[i], s->tile[i]);
    return check_rules(s->rules, path, error);
}

/* ---- lists --------------------------------------------------------------------------------------- */

static void fill_list(void *arg, int64_t index, int32_t worker)
{
    const sliding *s = arg;
    const attn_block_map *m = s->map;
    block_place at = place_of(s->call, m, index);
    int32_t *count, *list = attn_sparse_list(m, at.sample, at.head, at.block, &count);
    uint8_t *seen = s->seen + (int64_t)worker * tile_count(s);
    const int64_t *window = window_of(s, at);
    int64_t first = at.block * m->block_q, end = smaller(first + m->block_q, m->q_len);
    memset(seen, 0, (size_t)tile_count(s));
    for (int64_t n = first, last = -1; n < end; last = s->tile_of[n++])
        if (s->tile_of[n] != last) see(s, s->tile_of[n], window, seen);
    for (int64_t j = 0; j < blocks_of(m->kv_len, m->block_k); j++) {
        int64_t n = j * m->block_k, stop = smaller(n + m->block_k, m->kv_len);
        while (n < stop && !seen[s->tile_of[n]]) n++;
        if (n < stop) list[(*count)++] = (int32_t)j;
    }
}

static attn_status fill_map(sliding *s)
{
    const attn_host *host = s->call->host;
    size_t tokens = (size_t)s->map->q_len, workers = (size_t)s->call->call->workers;
    int32_t *tile_of = host->alloc(host, tokens * sizeof *tile_of, 64);
    s->seen = host->alloc(host, workers * (size_t)tile_count(s), 64);
    if (tile_of && s->seen) {
        if (s->tile_order)
            number_by_tiles(s, tile_of);
        else
            number_by_frames(s, tile_of);
        s->tile_of = tile_of;
        host->parallel_for(host, place_count(s->call, s->map), s->call->call->workers, fill_list, s);
    }
    int failed = !tile_of || !s->seen;
    if (s->seen) host->release(host, s->seen);
    if (tile_of) host->release(host, tile_of);
    if (failed)
        return attn_fail(s->call->error, ATTN_KIND_OUT_OF_MEMORY, "no memory for the tiles of %zu tokens",
                         tokens);
    return ATTN_OK;
}

static int select_blocks(const attn_sparse_call *call, attn_block_map *map)
{
    sliding s = {.call = call, .map = map, .tile = {4, 4, 4}, .window = {3, 3, 3}};
    attn_params *from_file = NULL;
    attn_status status = read_params(&s, &from_file);
    if (!status) status = fill_map(&s);
    attn_params_free(from_file);
    return status;
}

const attn_sparse selector_sliding_tile = {
    .size = sizeof(attn_sparse),
    .abi_major = ATTN_MODULE_MAJOR,
    .abi_minor = ATTN_MODULE_MINOR,
    .name = "sliding_tile",
    .summary = "each tile of a video attends to a window of tiles around it",
    .select = select_blocks,
    .any_device = 1,
};
