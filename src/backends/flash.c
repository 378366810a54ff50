/* flash.c: tiled attention with an online softmax: facts, plan and answers. */
#include "backends/flash.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

_Static_assert((int)ATTN_ELEMENT_F32 == (int)ATTN_F32 && (int)ATTN_ELEMENT_F16 == (int)ATTN_F16 &&
                   (int)ATTN_ELEMENT_BF16 == (int)ATTN_BF16,
               "kernels and tensors number element types alike");

/* ---- cutting -------------------------------------------------------------------------------------- */

static int64_t ceil_div(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* Tiles of one size, of one head each. */
static flash_tiles cut_tiles(const flash_plan *plan, int64_t q_len, int64_t kv_len, int64_t group)
{
    flash_tiles t = {.rows = plan->tile, .heads = 1, .head_blocks = group};
    t.row_blocks = ceil_div(q_len, t.rows);
    t.keys = attn_round_up(plan->tile, plan->kernels.panel);
    t.key_blocks = ceil_div(kv_len, t.keys);
    return t;
}

/* Blocks of nearly equal size: the number of blocks first, then the size. */
flash_tiles flash_cut(const flash_plan *plan, int64_t q_len, int64_t kv_len, int64_t group)
{
    flash_tiles t = {.rows = 1, .heads = 1};
    if (plan->tile) return cut_tiles(plan, q_len, kv_len, group);
    if (q_len > 0) t.rows = ceil_div(q_len, ceil_div(q_len, plan->row_cap));
    t.row_blocks = ceil_div(q_len, t.rows);
    if (q_len > 0 && q_len <= plan->row_cap / 2) {
        int64_t most = plan->row_cap / q_len;
        t.heads = ceil_div(group, ceil_div(group, most));
    }
    t.head_blocks = ceil_div(group, t.heads);
    t.keys = plan->kernels.panel;
    if (kv_len > 0) t.keys = attn_round_up(ceil_div(kv_len, ceil_div(kv_len, plan->key_cap)), t.keys);
    t.key_blocks = ceil_div(kv_len, t.keys);
    return t;
}

/* ---- memory --------------------------------------------------------------------------------------- */

/* Adds count * size bytes to *total and returns the offset where they start, on a cache line. Sticks at
 * SIZE_MAX. */
static size_t place(size_t *total, int64_t count, size_t size)
{
    size_t at = *total, bytes;
    if (at == SIZE_MAX || __builtin_mul_overflow((size_t)count, size, &bytes) ||
        __builtin_add_overflow(at, bytes, total) || __builtin_add_overflow(*total, (size_t)63, total)) {
        *total = SIZE_MAX;
        return 0;
    }
    *total = *total / 64 * 64;
    return at;
}

/* Which kinds of unit a problem can have: those with few rows, and the others. */
static int has_few(const flash_plan *plan, const attn_problem *p)
{
    if (p->block_q > 0 || plan->tile) return 0; /* lists and tiles are walked in the packed form only */
    int64_t rows = flash_rows_most(p);
    if ((p->features & ATTN_FEATURE(PACKED) && !p->selected) || p->kv_heads <= 0) return 1;
    return rows <= FLASH_ROWS_FEW && p->heads / p->kv_heads * rows <= FLASH_ROWS_FEW;
}

static int has_many(const flash_plan *plan, const attn_problem *p)
{
    return !has_few(plan, p) || (p->features & ATTN_FEATURE(PACKED) && !p->selected);
}

/* Heads of one token lie side by side, so a unit with few rows takes several of them block by block: their
 * rows are then found in the same pages of memory. Each head is computed as if it were alone, so this changes
 * no bit and may look at the threads: all of them need work. */
static int64_t choose_kv_step(const flash_plan *plan, const attn_host *host, const attn_problem *p)
{
    enum { HEADS_MOST = 8, ITEMS_LEAST = 4 };
    int64_t threads = host->threads > 1 ? host->threads : 0,
            step = p->kv_heads < HEADS_MOST ? p->kv_heads : HEADS_MOST;
    int64_t keys = flash_keys_most(p), samples = p->batch;
    if (!has_few(plan, p) || samples <= 0 || step < 1) return 1;
    if (p->features & ATTN_FEATURE(PACKED) && !p->block_size) keys /= samples;
    int64_t blocks = ceil_div(keys, plan->key_cap), items = 0;
    /* The results of a block of keys take no more room than its keys and values would in packed form. */
    int64_t floats = attn_round_up(p->value_head_dim, plan->kernels.lanes) + 2;
    while (step > 1 && step * FLASH_ROWS_FEW * floats > plan->key_cap * (p->head_dim + p->value_head_dim))
        step /= 2;
    while (step > 1 && (__builtin_mul_overflow(samples, blocks, &items) ||
                        items * ceil_div(p->kv_heads, step) < ITEMS_LEAST * threads))
        step /= 2;
    return step;
}

static void lay_out_slot(flash_plan *plan, const attn_problem *p)
{
    flash_layout *l = &plan->layout;
    const attn_kernels *k = &plan->kernels;
    size_t element = (size_t)k->packed_bytes, total = sizeof(flash_slot);
    int64_t keys = has_many(plan, p) ? attn_round_up(flash_keys_most(p), k->panel) : 0;
    int64_t blocks = ceil_div(flash_keys_most(p), plan->key_cap);
    if (p->block_q > 0) {
        flash_tiles t = flash_cut_map(plan, p, 1);
        blocks = t.key_blocks;
        if (__builtin_mul_overflow(t.key_blocks, t.keys, &keys)) keys = INT64_MAX;
    }
    int64_t padded = attn_round_up(p->value_head_dim, k->lanes);
    l->blocks = place(&total, has_many(plan, p) ? blocks : 0, sizeof(flash_block));
    l->keys = place(&total, keys, (size_t)attn_round_up(p->head_dim, k->pair) * element);
    l->values = place(&total, keys, (size_t)padded * element);
    l->parts = place(&total, has_few(plan, p) ? blocks * plan->kv_step * FLASH_ROWS_FEW : 0,
                     (size_t)(padded + 2) * sizeof(float));
    l->slot_bytes = total;
}

static void lay_out_scratch(flash_plan *plan, const attn_problem *p)
{
    flash_layout *l = &plan->layout;
    const attn_kernels *k = &plan->kernels;
    int64_t rows = plan->row_cap, d = p->head_dim, dv = p->value_head_dim;
    int64_t part = has_few(plan, p) ? plan->key_cap : 0, padded = attn_round_up(dv, k->lanes);
    size_t total = 0;
    size_t packed = attn_packed_queries(k, (int32_t)rows, d),
           direct = attn_direct_queries(k, FLASH_ROWS_FEW, d);
    l->queries = place(&total, 1, packed > direct ? packed : direct);
    l->scores = place(&total, rows * ATTN_SCORE_LD, sizeof(float));
    l->out = place(&total, rows * padded, sizeof(float));
    l->best = place(&total, rows * ATTN_LANES_MAX, sizeof(float));
    l->top = place(&total, rows, sizeof(float));
    l->sum = place(&total, rows, sizeof(float));
    l->decay = place(&total, rows, sizeof(float));
    l->ranges = place(&total, rows, sizeof(attn_interval));
    l->rows = place(&total, rows, sizeof(void *));
    l->bias = place(&total, 2 * ATTN_KEYS_MAX, sizeof(float));
    l->keep = place(&total, 4 * ATTN_KEYS_MAX, sizeof(uint8_t));
    l->turn = place(&total, ATTN_CHUNK_MAX * ((d > dv ? d : dv) + ATTN_LANES_MAX), sizeof(float));
    int keys_stay = flash_in_place(plan, p, p->k_stride, d),
        values_stay = flash_in_place(plan, p, p->v_stride, dv);
    l->part_keys = place(&total, keys_stay ? 0 : part, (size_t)d * sizeof(float));
    l->part_values = place(&total, values_stay ? 0 : part, (size_t)dv * sizeof(float));
    int64_t pointers = part || plan->gathers ? plan->key_cap + ATTN_ROWS_AHEAD : 0;
    l->key_rows = place(&total, pointers, sizeof(void *));
    l->value_rows = place(&total, pointers, sizeof(void *));
    l->gathered = place(&total, plan->gathers && has_many(plan, p) ? plan->key_cap : 0,
                        (size_t)(d > dv ? d : dv) * flash_element_bytes((attn_dtype)plan->type));
    l->bits = place(&total, p->selected ? p->kv_len / 64 + 1 : 0, sizeof(uint64_t));
    l->scratch_bytes = total;
}

/* Units in flight: with few items each, every worker may be in another unit; one more is packed ahead. */
static int64_t count_slots(const flash_plan *plan, const attn_host *host, const attn_problem *p)
{
    int64_t units, threads = host->threads > 0 ? host->threads : 1;
    if (__builtin_mul_overflow(p->batch, p->kv_heads, &units)) units = INT64_MAX;
    if (p->selected > 0) units = flash_listed_units(p);
    int64_t slots = threads == 1 ? 1 : threads + 1;
    if (threads > 1 && !(p->features & ATTN_FEATURE(PACKED)) && p->kv_heads > 0) {
        flash_tiles t = p->block_q > 0
                            ? flash_cut_map(plan, p, p->heads / p->kv_heads)
                            : flash_cut(plan, flash_rows_most(p), flash_keys_most(p), p->heads / p->kv_heads);
        int64_t items = t.row_blocks * t.head_blocks;
        if (items > 0 && ceil_div(threads, items) + 2 < slots) slots = ceil_div(threads, items) + 2;
    }
    if (slots > units) slots = units;
    return slots < 1 ? 1 : slots;
}

/* ---- the implementation ----------------------------------------------------------------------------- */

/* Blocks of a map are padded to whole panels: with smaller ones, more than half of the work could be padding.
 */
enum { LIST_KEYS_LEAST = 16 };

static int out_of_float(double size)
{
    return size < 1e-30 || size > 1e30;
}

static void accept(const attn_host *host, const attn_problem *p, attn_reasons *reasons)
{
    char text[256];
    if (!attn_isa_name(host->isa)) {
        attn_isa_describe(host->isa, text, sizeof text);
        attn_reason(reasons, ATTN_KIND_UNKNOWN_NAME, "the cap on kernel sets cannot be met: %s", text);
    }
    if (p->mask_form == ATTN_FORM_ADDITIVE && p->mask_dtype > ATTN_BF16)
        attn_reason(
            reasons, ATTN_KIND_DTYPE_UNSUPPORTED,
            "the additive mask has an element type that cpu_flash cannot add; give it as f32, f16 or bf16");
    /* The kernels hold both in f32, where these would become zero or infinite. A scale of 0 is not known yet.
     */
    if (p->scale != 0 && (out_of_float(fabs(p->scale)) || (p->softcap > 0 && out_of_float(p->softcap))))
        attn_reason(
            reasons, ATTN_KIND_FEATURE_UNSUPPORTED,
            "cpu_flash takes scales and softcaps from 1e-30 to 1e30, not %g and %g; use the reference",
            p->scale, p->softcap);
    if (p->block_k > 0 && p->block_k < LIST_KEYS_LEAST && p->block_k < p->kv_len)
        attn_reason(
            reasons, ATTN_KIND_FEATURE_UNSUPPORTED,
            "the block map has blocks of %lld keys; cpu_flash packs each block by itself and takes %d "
            "keys or more, convert the map or use the reference",
            (long long)p->block_k, LIST_KEYS_LEAST);
    if (p->block_q > 0 && p->features & ATTN_FEATURES_SERVING)
        attn_reason(reasons, ATTN_KIND_FEATURE_UNSUPPORTED,
                    "cpu_flash takes a block map by itself, without a cache, slopes, trees, lists or ranges; "
                    "use the reference");
    if (p->features & ATTN_FEATURE(SELECTED) && (p->mask_form || p->features & ATTN_FEATURE(KEY_MASK)))
        attn_reason(
            reasons, ATTN_KIND_FEATURE_UNSUPPORTED,
            "cpu_flash takes lists of selected keys without masks; leave hidden keys out of the lists, or "
            "use the reference");
    if (p->features & ATTN_FEATURE(SELECTED) && p->kv_len > INT32_MAX)
        attn_reason(reasons, ATTN_KIND_FEATURE_UNSUPPORTED,
                    "lists of selected keys over %lld keys do not fit 32 bits; use the reference",
                    (long long)p->kv_len);
    if ((p->features & ATTN_FEATURE(PACKED)) && (p->features & ATTN_FEATURE(QUERY_RANGES)))
        attn_reason(reasons, ATTN_KIND_FEATURE_UNSUPPORTED,
                    "query ranges place the rows of one sequence; cpu_flash does not take them with packed "
                    "sequences, pass the sequences one by one");
}

/* Fills a zeroed plan. *shared: bytes of all slots, SIZE_MAX when they cannot be addressed. */
static attn_status make_plan(flash_plan *made, const attn_host *host, const attn_problem *p, size_t *shared,
                             attn_error *error)
{
    char text[256];
    const char *isa = flash_isa(made, host, p);
    flash_choose_source(made, p);
    if (!attn_isa_kernels(isa, made->type, &made->kernels)) {
        attn_isa_describe(isa, text, sizeof text);
        return attn_fail(error, ATTN_KIND_UNKNOWN_NAME, "the cap on kernel sets cannot be met: %s", text);
    }
    flash_choose_caps(made, host, p);
    if (made->tile) made->row_cap = made->key_cap = made->tile;
    made->kv_step = choose_kv_step(made, host, p);
    lay_out_slot(made, p);
    lay_out_scratch(made, p);
    made->slots = count_slots(made, host, p);
    *shared = 0;
    place(shared, made->slots, made->layout.slot_bytes);
    made->layout.lists = place(shared, 1, flash_list_bytes(p));
    if (p->block_q > 0) flash_lay_out_map(made, p, shared);
    if (made->layout.slot_bytes < SIZE_MAX && *shared < SIZE_MAX) return ATTN_OK;
    return attn_fail(
        error, ATTN_KIND_OUT_OF_MEMORY,
        "%lld keys of head sizes %lld and %lld need more packed memory than can be addressed; split "
        "the call",
        (long long)p->kv_len, (long long)p->head_dim, (long long)p->value_head_dim);
}

attn_status flash_plan_make(const attn_host *host, const attn_problem *p, const flash_ask *ask,
                            flash_plan **plan, attn_workspace *workspace, attn_error *error)
{
    const int64_t most = INT64_MAX / 1048576;
    *plan = NULL;
    if (p->kv_len > most || p->q_len > most)
        return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY,
                         "%lld queries and %lld keys cannot be addressed; the most is %lld of each",
                         (long long)p->q_len, (long long)p->kv_len, (long long)most);
    flash_plan *made = host->alloc(host, sizeof *made, 64);
    if (!made)
        return attn_fail(error, ATTN_KIND_OUT_OF_MEMORY,
                         "%zu bytes for a plan of cpu_flash could not be had; free memory and try again",
                         sizeof *made);
    memset(made, 0, sizeof *made);
    if (p->block_q > 0) {
        made->q_blocks = ask && ask->q_blocks ? ask->q_blocks : ceil_div(p->q_len, p->block_q);
        made->kv_blocks = ask && ask->kv_blocks ? ask->kv_blocks : ceil_div(p->kv_len, p->block_k);
    }
    made->tile = ask ? ask->tile : 0;
    attn_status status = make_plan(made, host, p, &workspace->shared_bytes, error);
    workspace->thread_bytes = made->layout.scratch_bytes;
    if (status == ATTN_OK)
        *plan = made;
    else
        host->release(host, made);
    return status;
}

void flash_plan_drop(const attn_host *host, flash_plan *plan)
{
    if (plan) host->release(host, plan);
}

static attn_status plan(const attn_host *host, const attn_problem *p, void **state, attn_workspace *workspace,
                        attn_error *error)
{
    flash_plan *made;
    attn_status status = flash_plan_make(host, p, NULL, &made, workspace, error);
    *state = made;
    return status;
}

static attn_status run(const attn_host *host, const void *state, const attn_call *call, attn_error *error)
{
    if (call->blocks.counts) flash_report_map(call);
    return flash_execute(host, state, call, NULL, error);
}

static void drop(const attn_host *host, void *state)
{
    flash_plan_drop(host, state);
}

static void describe(const attn_host *host, const void *state, char *text, size_t bytes)
{
    const flash_plan *made = state;
    (void)host;
    snprintf(text, bytes, "kernel set %s, tiles %dx%d%s", made->kernels.name, (int)made->row_cap,
             (int)made->key_cap, made->tuned ? " (profile)" : "");
}

/* Of domains llm and vision: the names whose algorithm this is, on a CPU. */
static const char *const backends[] = {
    "FLASH_ATTN", "llm:CPU_ATTN", "llm:TRITON_MLA", "llm:FLASHMLA_SPARSE", "llm:TREE_ATTN", "vision:sdpa",
    NULL};

const attn_impl attn_flash_impl = {
    .size = sizeof(attn_impl),
    .name = "cpu_flash",
    .summary = "tiled online softmax with the best kernel set of the CPU, memory linear in the sequence",
    .platform = "cpu",
    .backends = backends,
#define ATTN_X(name, bit, text, sentence) | ATTN_FEATURE(name)
    .features = (0 ATTN_FEATURE_LIST(ATTN_X)) & ~ATTN_FEATURE(SCORES),
#undef ATTN_X
    .dtypes = 1u << ATTN_F32 | 1u << ATTN_F16 | 1u << ATTN_BF16,
    .head_dim_max = 1024,
    .accept = accept,
    .plan = plan,
    .run = run,
    .drop = drop,
    .describe = describe,
};
