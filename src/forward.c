/* forward.c: the three tiers of parameters and the per-forward state, built for those who consume them. */
#include "context.h"
#include "sparse/geometry.h"

#include <inttypes.h>
#include <string.h>

static _Thread_local const attn_forward_state *installed;

const attn_forward_state *attn_forward_state_install(const attn_forward_state *state)
{
    const attn_forward_state *before = installed;
    installed = state;
    return before;
}

const attn_forward_state *attn_forward_state_of(const attn_args *args)
{
    return args->forward ? args->forward : installed;
}

/* ---- the layer's part ----------------------------------------------------------------------------- */

void attn_consumer_init(attn_consumer *c, const attn_allocator *allocator)
{
    memset(c, 0, sizeof *c);
    c->keep.allocator = allocator;
    c->layer_index = -1;
    attn_param_table_init(&c->table, allocator);
}

void attn_consumer_clear(attn_consumer *c)
{
    attn_arena_clear(&c->keep);
    attn_param_table_clear(&c->table);
}

/* The number in a dotted name, "transformer_blocks.5.attn1"; two of them say nothing. */
static int64_t index_in(const char *prefix)
{
    int64_t found = -1;
    for (const char *p = prefix; p && *p; p += strcspn(p, "."), p += *p == '.') {
        size_t length = strcspn(p, ".");
        if (!length || length > 9 || strspn(p, "0123456789") < length) continue;
        if (found >= 0) return -1;
        found = 0;
        for (size_t i = 0; i < length; i++) found = found * 10 + (p[i] - '0');
    }
    return found;
}

attn_status attn_consumer_settle(attn_consumer *c, const attn_layer_options *options, const json_t *handed,
                                 attn_error *error)
{
    c->layer_index = index_in(options->prefix);
    ATTN_TRY(attn_params_copy(&c->keep, options->params, &c->own, error));
    return handed
               ? attn_params_from_json(&c->keep, "the table of static parameters", handed, &c->settled, error)
               : ATTN_OK;
}

/* ---- the call's part ------------------------------------------------------------------------------ */

bool attn_forward_state_has(const attn_forward_state *s)
{
    return s->denoise_step || s->denoise_total || s->latent_shape || s->patch_size || s->timestep;
}

static attn_status read_state(const attn_forward_state *given, int64_t batch, attn_forward_state *s,
                              attn_error *error)
{
    size_t least = offsetof(attn_forward_state, timestep);
    if (!attn_copy_struct(s, sizeof *s, given, given->size, least))
        return attn_fail(
            error, ATTN_KIND_INVALID_STRUCT,
            "attn_forward_state.size is %u; it is at least %zu, set it to sizeof(attn_forward_state)",
            given->size, least);
    if (!attn_forward_state_has(s) || s->samples == 1 || s->samples == batch) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_INVALID_SHAPE,
                     "the per-forward state is of %" PRId64 " samples; it is of %" PRId64
                     ", the batch of q, or of 1 for all alike",
                     s->samples, batch);
}

/* Rows of 8 bytes for every sample; one row serves all when the state has one. */
static bool copy_rows(attn_arena *arena, const void *from, int64_t samples, int64_t batch, size_t columns,
                      const void **to)
{
    size_t row = columns * sizeof(int64_t), bytes;
    *to = NULL;
    if (!from) return true;
    if (!attn_mul((size_t)(batch > 0 ? batch : 1), row, &bytes)) return false;
    char *copy = attn_arena_take(arena, bytes, sizeof(int64_t));
    for (int64_t b = 0; copy && b < batch; b++)
        memcpy(copy + (size_t)b * row, (const char *)from + (samples == 1 ? 0 : (size_t)b * row), row);
    *to = copy;
    return copy != NULL;
}

/* The copy that is immutable while the call runs, whatever the caller does. */
static bool snapshot(attn_arena *arena, int64_t batch, attn_forward_state *s)
{
    const void *step, *total, *latent, *patch, *time;
    if (!copy_rows(arena, s->denoise_step, s->samples, batch, 1, &step) ||
        !copy_rows(arena, s->denoise_total, s->samples, batch, 1, &total) ||
        !copy_rows(arena, s->latent_shape, s->samples, batch, 3, &latent) ||
        !copy_rows(arena, s->patch_size, s->samples, batch, 3, &patch) ||
        !copy_rows(arena, s->timestep, s->samples, batch, 1, &time))
        return false;
    *s = (attn_forward_state){.size = sizeof *s,
                              .samples = batch,
                              .denoise_step = step,
                              .denoise_total = total,
                              .latent_shape = latent,
                              .patch_size = patch,
                              .timestep = time};
    return true;
}

enum { STATE_PARAMS = 5 };

/* The state as the middle tier; what is not published adds no entry. */
static attn_params tier_of(const attn_forward_state *s, attn_param items[STATE_PARAMS])
{
    const struct {
        const char *name;
        const int64_t *values;
        int32_t columns;
    } rows[] = {{"denoise_step_idx", s->denoise_step, 0},
                {"total_denoise_steps", s->denoise_total, 0},
                {"latent_shape", s->latent_shape, 3},
                {"patch_size", s->patch_size, 3}};
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].values)
            items[count++] =
                attn_param_ints(rows[i].name, rows[i].values,
                                s->samples * (rows[i].columns ? rows[i].columns : 1), rows[i].columns);
    if (s->timestep) {
        items[count] = attn_param_make("timestep", ATTN_PARAM_NUMBERS);
        items[count].count = s->samples;
        items[count++].value.numbers = s->timestep;
    }
    return (attn_params){sizeof(attn_params), count, items};
}

static attn_status build_state(attn_consumer *c, const attn_args *args, int64_t batch, bool *built,
                               attn_error *error)
{
    const attn_forward_state *given = attn_forward_state_of(args);
    memset(&c->state, 0, sizeof c->state);
    if (!given) return ATTN_OK;
    ATTN_TRY(read_state(given, batch, &c->state, error));
    *built = attn_forward_state_has(&c->state);
    if (!*built || snapshot(&c->table.arena, batch, &c->state)) return ATTN_OK;
    return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY,
                     "no memory for the per-forward state of %" PRId64 " samples", batch);
}

attn_status attn_consumer_build(attn_consumer *c, const attn_args *args, int64_t batch, bool *built,
                                attn_error *error)
{
    attn_param items[STATE_PARAMS];
    *built = false;
    attn_param_table_reset(&c->table);
    ATTN_TRY(build_state(c, args, batch, built, error));
    attn_params middle = tier_of(&c->state, items);
    const attn_params *tiers[] = {&c->own, &c->settled, &middle, args->params};
    return attn_param_table_merge(&c->table, tiers, sizeof tiers / sizeof *tiers, error);
}

/* ---- geometry ------------------------------------------------------------------------------------- */

static void warn_once(attn_context *c, const attn_geometry *g, int64_t q_len)
{
    attn_lock_take(&c->log_lock);
    bool said = c->geometry_warned;
    c->geometry_warned = true;
    attn_lock_give(&c->log_lock);
    if (!said)
        attn_context_log(c, ATTN_LOG_WARNING,
                         "the published latent makes %" PRId64 " frames of %" PRId64
                         " patches but the call has %" PRId64
                         " query rows; total_latent_frames and patches_per_frame stay unset",
                         g->frames, g->patches, q_len);
}

static attn_status resolve_geometry(attn_layer *l, int64_t q_len, attn_error *error)
{
    attn_geometry g;
    attn_consumer *consumer = &l->consumer;
    attn_params merged = attn_param_table_view(&consumer->table);
    attn_geometry_answer answer = attn_geometry_resolve(&merged, q_len, &g);
    if (answer == ATTN_GEOMETRY_OTHER) warn_once(l->context, &g, q_len);
    if (answer != ATTN_GEOMETRY_FOUND) return ATTN_OK;
    attn_param frames = attn_param_int("total_latent_frames", g.frames);
    attn_param patches = attn_param_int("patches_per_frame", g.patches);
    ATTN_TRY(attn_param_table_set(&consumer->table, &frames, error));
    return attn_param_table_set(&consumer->table, &patches, error);
}

attn_status attn_layer_consume(attn_layer *l, attn_request *r, attn_error *error)
{
    attn_consumer *c = &l->consumer;
    bool built;
    ATTN_TRY(attn_consumer_build(c, &r->args, r->problem.batch, &built, error));
    if (built) atomic_fetch_add_explicit(&l->context->forward_states, 1, memory_order_relaxed);
    ATTN_TRY(resolve_geometry(l, r->problem.q_len, error));
    r->call.forward = built ? &c->state : NULL;
    if (l->plan->slot->plugin) ATTN_TRY(attn_plugin_extend(l, r, error));
    c->view = attn_param_table_view(&c->table);
    r->call.params = &c->view;
    return ATTN_OK;
}

/* ---- what became of blocks ------------------------------------------------------------------------- */

static bool at_last_step(const attn_call *call)
{
    const attn_forward_state *f = call->forward;
    return f && f->denoise_step && f->denoise_total && f->samples > 0 &&
           f->denoise_step[0] == f->denoise_total[0] - 1;
}

/* Exempt layers and steps are meant; that not one call of any layer left a block out is not. */
static void warn_never_sparse(attn_layer *l)
{
    attn_context *c = l->context;
    attn_lock_take(&c->log_lock);
    bool said = c->dense_warned;
    c->dense_warned = true;
    attn_lock_give(&c->log_lock);
    if (!said)
        attn_context_log(
            c, ATTN_LOG_WARNING,
            "%s never turned sparse: all of its calls up to the last step were dense, this one by %s; "
            "take fewer exempt steps and layers, or a dense backend",
            l->current.backend->name, l->report.text + (strncmp(l->report.text, "dense:", 6) ? 0 : 6));
}

void attn_layer_count_blocks(attn_layer *l, const attn_call *call)
{
    attn_context *c = l->context;
    int dense = l->report.dense != 0, sparse = l->report.kept < l->report.total;
    l->dense_calls += dense;
    l->sparse_calls += sparse;
    if (sparse) atomic_fetch_add_explicit(&c->sparse_calls, 1, memory_order_relaxed);
    if (dense && at_last_step(call) && !atomic_load_explicit(&c->sparse_calls, memory_order_relaxed))
        warn_never_sparse(l);
}
