/* generate.c: lays out and allocates the tensors of a problem. */
#include "generate.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cli.h"
#include "generate_store.h"
#include "tensor.h"

#define HUGE_ROW   (((int64_t)1 << 31) + 64)
#define HUGE_GUARD 4096

/* ---- strides ----------------------------------------------------------------------------------- */

/* Elements between neighbours along each axis of [b, s, h, d]. Padding is odd so that rows lose their
 * alignment. */
static void bsnd_strides(enum problem_layout layout, const int64_t *shape, int64_t *strides)
{
    int64_t inner = layout == PROBLEM_STRIDED ? 2 : 1, pad = layout == PROBLEM_PADDED;
    strides[3] = inner;
    if (layout == PROBLEM_BNSD) {
        strides[1] = shape[3];
        strides[2] = shape[1] * strides[1];
        strides[0] = shape[2] * strides[2];
        return;
    }
    strides[2] = shape[3] * inner + 5 * pad;
    strides[1] = layout == PROBLEM_HUGE ? HUGE_ROW : shape[2] * strides[2] + 11 * pad;
    strides[0] = shape[1] * strides[1] + 3 * pad;
}

/* The same for [b, h, q, k] and for lesser shapes, which have ones in front. */
static void row_strides(enum problem_layout layout, const int64_t *shape, int64_t *strides)
{
    int64_t inner = layout == PROBLEM_STRIDED ? 2 : 1, pad = layout == PROBLEM_PADDED ? 7 : 0;
    strides[3] = inner;
    strides[2] = layout == PROBLEM_HUGE && shape[2] > 1 ? HUGE_ROW : shape[3] * inner + pad;
    strides[1] = shape[2] * strides[2];
    strides[0] = shape[1] * strides[1];
}

static void set_extent(struct slot *slot, enum problem_layout layout)
{
    slot->extent = layout == PROBLEM_PADDED ? 1 + 13 : 1;
    for (int i = 0; i < 4; i++) {
        if (slot->shape[i] > 0) slot->extent += (slot->shape[i] - 1) * slot->strides[i];
    }
}

/* ---- memory ------------------------------------------------------------------------------------ */

static int is_output(enum slot_id id)
{
    return id == SLOT_OUT || id == SLOT_LSE || id == SLOT_JOINT_OUT;
}

/* NaN and 1e30 by turns in floating tensors, 0xFF elsewhere. */
static void poison(struct slot *slot)
{
    size_t size = attn_dtype_bytes(slot->dtype);
    char *at = slot->dl.data;
    memset(at, 0xFF, (size_t)slot->extent * size);
    if (slot->dtype == ATTN_BOOL || slot->dtype == ATTN_U8 || slot->dtype == ATTN_I8) return;
    for (int64_t i = 1; i < slot->extent; i += 2) tensor_store(at + (size_t)i * size, slot->dtype, 1e30);
}

/* Rows of a tensor whose rows lie far apart: all heads of a sequence row, or the keys of a mask row. */
static int64_t far_rows(const struct slot *slot)
{
    return slot->shape[0] * slot->shape[1] * (slot->strides[2] < HUGE_ROW ? 1 : slot->shape[2]);
}

static char *far_row(const struct slot *slot, int64_t i, size_t *bytes)
{
    int64_t inner = slot->strides[2] < HUGE_ROW ? 1 : slot->shape[2],
            elements = slot->shape[3] * slot->strides[3];
    if (inner == 1) elements += (slot->shape[2] - 1) * slot->strides[2];
    *bytes = (size_t)elements * attn_dtype_bytes(slot->dtype);
    return slot_at(slot, i / inner / slot->shape[1], i / inner % slot->shape[1], i % inner, 0);
}

/* The rows and a little around them; the rest stays uncommitted. */
static void poison_rows(struct slot *slot)
{
    for (int64_t i = 0; i < far_rows(slot); i++) {
        size_t bytes;
        char *row = far_row(slot, i, &bytes);
        memset(row - GUARD_BYTES, 0xFF, bytes + 2 * GUARD_BYTES);
    }
}

static attn_status map_slot(struct slot *slot, size_t bytes, attn_error *error)
{
    void *base = mmap(NULL, bytes + 2 * HUGE_GUARD, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "%zu bytes of address space could not be reserved",
                        bytes);
    slot->base = base;
    slot->bytes = bytes + 2 * HUGE_GUARD;
    slot->mapped = 1;
    slot->dl.data = slot->base + HUGE_GUARD;
    return ATTN_OK;
}

static attn_status map_rows(struct slot *slot, size_t bytes, attn_error *error)
{
    attn_status status = map_slot(slot, bytes, error);
    if (!status) poison_rows(slot);
    return status;
}

struct maker {
    const struct problem *problem;
    struct generate_store *store;
    attn_error *error;
};

/* Of rows that lie far apart, memory is committed for the rows alone. */
static double committed(const struct slot *slot, size_t bytes)
{
    if (slot->strides[1] < HUGE_ROW && slot->strides[2] < HUGE_ROW) return (double)bytes;
    double elements = (double)attn_dtype_bytes(slot->dtype);
    for (int i = 0; i < 4; i++) elements *= (double)slot->shape[i];
    return elements;
}

static attn_status allocate(struct maker *maker, struct slot *slot)
{
    size_t bytes;
    attn_error *error = maker->error;
    if (__builtin_mul_overflow((size_t)slot->extent, attn_dtype_bytes(slot->dtype), &bytes) ||
        bytes > PTRDIFF_MAX / 2)
        return cli_fail(error, ATTN_KIND_INVALID_SHAPE, "a tensor of the problem does not fit into memory");
    maker->store->bytes += committed(slot, bytes);
    if (maker->store->measured) return ATTN_OK;
    if (maker->store->bare) return map_slot(slot, bytes, error);
    if (slot->strides[1] >= HUGE_ROW || slot->strides[2] >= HUGE_ROW) return map_rows(slot, bytes, error);
    slot->bytes = (bytes + 3 * GUARD_BYTES - 1) / GUARD_BYTES * GUARD_BYTES;
    slot->base = aligned_alloc(GUARD_BYTES, slot->bytes);
    if (!slot->base)
        return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a tensor of %zu bytes", bytes);
    memset(slot->base, GUARD_VALUE, GUARD_BYTES);
    memset(slot->base + GUARD_BYTES + bytes, GUARD_VALUE, slot->bytes - GUARD_BYTES - bytes);
    slot->dl.data = slot->base + GUARD_BYTES;
    poison(slot);
    return ATTN_OK;
}

/* ---- slots ------------------------------------------------------------------------------------- */

static void describe(struct slot *slot, attn_dtype dtype, int ndim, const int64_t *shape)
{
    slot->dtype = dtype;
    for (int i = 0; i < 4; i++) slot->shape[i] = shape[i];
    slot->dl.device = (DLDevice){kDLCPU, 0};
    slot->dl.ndim = ndim;
    slot->dl.dtype = attn_dtype_to_dl(dtype);
    slot->dl.shape = slot->shape + 4 - ndim;
    slot->dl.strides = slot->strides + 4 - ndim;
}

static attn_status make_bsnd(struct maker *maker, enum slot_id id, attn_dtype dtype, int64_t rows,
                             int64_t heads, int64_t width)
{
    struct slot *slot = &maker->store->slots[id];
    enum problem_layout layout = maker->problem->layout;
    describe(slot, dtype, 4, (const int64_t[]){maker->problem->batch, rows, heads, width});
    bsnd_strides(layout, slot->shape, slot->strides);
    set_extent(slot, layout);
    return allocate(maker, slot);
}

/* A tensor of fewer axes: ndim sizes, the last ones of four. */
static attn_status make_rows(struct maker *maker, enum slot_id id, attn_dtype dtype, int ndim, int64_t a,
                             int64_t b, int64_t c, int64_t d)
{
    struct slot *slot = &maker->store->slots[id];
    enum problem_layout layout = maker->problem->layout;
    if (layout == PROBLEM_HUGE && id != SLOT_MASK) layout = PROBLEM_PADDED;
    if (id == SLOT_SINKS || id == SLOT_ALIBI || id == SLOT_BLOCKS) layout = PROBLEM_BSND;
    describe(slot, dtype, ndim, (const int64_t[]){a, b, c, d});
    row_strides(layout, slot->shape, slot->strides);
    set_extent(slot, layout);
    return allocate(maker, slot);
}

/* q, k and v as parts of rows [h d | kvh d | kvh v] of one buffer, which slot q owns. */
static attn_status make_qkv(struct maker *maker)
{
    const struct problem *p = maker->problem;
    struct slot *slots = maker->store->slots;
    int64_t heads[] = {p->heads, p->kv_heads, p->kv_heads},
            widths[] = {p->head_dim, p->head_dim, p->value_head_dim};
    int64_t offsets[3], row = 0;
    for (int i = 0; i < 3; i++) {
        offsets[i] = row;
        row += heads[i] * widths[i];
    }
    for (int i = 0; i < 3; i++) {
        struct slot *slot = &slots[SLOT_Q + i];
        describe(slot, p->dtype, 4, (const int64_t[]){p->batch, p->q_len, heads[i], widths[i]});
        slot->strides[3] = 1;
        slot->strides[2] = widths[i];
        slot->strides[1] = row;
        slot->strides[0] = p->q_len * row;
    }
    slots[SLOT_Q].extent = p->batch * p->q_len * row;
    attn_status status = allocate(maker, &slots[SLOT_Q]);
    for (int i = 1; i < 3 && !status && slots[SLOT_Q].dl.data; i++)
        slots[SLOT_Q + i].dl.data =
            (char *)slots[SLOT_Q].dl.data + offsets[i] * (int64_t)attn_dtype_bytes(p->dtype);
    return status;
}

static attn_status make_inputs(struct maker *maker)
{
    const struct problem *p = maker->problem;
    if (p->layout == PROBLEM_QKV) return make_qkv(maker);
    attn_status status = make_bsnd(maker, SLOT_Q, p->dtype, p->q_len, p->heads, p->head_dim);
    if (!status) status = make_bsnd(maker, SLOT_K, p->dtype, p->kv_len, p->kv_heads, p->head_dim);
    if (!status) status = make_bsnd(maker, SLOT_V, p->dtype, p->kv_len, p->kv_heads, p->value_head_dim);
    return status;
}

/* Half of the seeds give the joint rows an output of their own, the others put them into out. */
static int joint_apart(const struct problem *problem)
{
    return problem->joint && problem->seed % 2;
}

static attn_status make_joint(struct maker *maker)
{
    const struct problem *p = maker->problem;
    if (!p->joint) return ATTN_OK;
    attn_status status = make_bsnd(maker, SLOT_JOINT_Q, p->dtype, p->joint, p->heads, p->head_dim);
    if (!status) status = make_bsnd(maker, SLOT_JOINT_K, p->dtype, p->joint, p->kv_heads, p->head_dim);
    if (!status) status = make_bsnd(maker, SLOT_JOINT_V, p->dtype, p->joint, p->kv_heads, p->value_head_dim);
    if (!status && joint_apart(p))
        status = make_bsnd(maker, SLOT_JOINT_OUT, p->out_dtype, p->joint, p->heads, p->value_head_dim);
    if (!status && p->mask)
        status = make_rows(maker, SLOT_JOINT_KEY_MASK, ATTN_BOOL, 2, 1, 1, p->batch, p->joint);
    return status;
}

static attn_status make_outputs(struct maker *maker)
{
    const struct problem *p = maker->problem;
    int64_t rows = p->q_len + p->joint;
    attn_status status = make_bsnd(maker, SLOT_OUT, p->out_dtype, joint_apart(p) ? p->q_len : rows, p->heads,
                                   p->value_head_dim);
    if (!status && p->lse) status = make_rows(maker, SLOT_LSE, ATTN_F32, 3, 1, p->batch, p->heads, rows);
    return status;
}

static int64_t full_or_one(const struct problem *problem, unsigned axis, int64_t size)
{
    return problem->mask_axes & axis ? size : 1;
}

static attn_status make_mask(struct maker *maker)
{
    const struct problem *p = maker->problem;
    int64_t b = full_or_one(p, PROBLEM_AXIS_B, p->batch);
    if (p->mask == PROBLEM_MASK_KEY || p->mask == PROBLEM_MASK_HOLES)
        return make_rows(maker, SLOT_KEY_MASK, ATTN_BOOL, 2, 1, 1, b, p->kv_len);
    if (p->mask == PROBLEM_MASK_NONE) return ATTN_OK;
    return make_rows(maker, SLOT_MASK, p->mask_dtype, 4, b, full_or_one(p, PROBLEM_AXIS_H, p->heads),
                     full_or_one(p, PROBLEM_AXIS_S, p->q_len), full_or_one(p, PROBLEM_AXIS_K, p->kv_len));
}

/* Index vectors are i64 for even seeds, i32 for odd ones. */
static attn_status make_vectors(struct maker *maker)
{
    const struct problem *p = maker->problem;
    attn_dtype index = p->seed % 2 ? ATTN_I32 : ATTN_I64;
    attn_status status = ATTN_OK;
    if (p->lengths >= 0) status = make_rows(maker, SLOT_LENGTHS, index, 1, 1, 1, 1, p->batch);
    if (!status && p->packed) status = make_rows(maker, SLOT_CU_Q, index, 1, 1, 1, 1, p->packed + 1);
    if (!status && p->packed) status = make_rows(maker, SLOT_CU_K, index, 1, 1, 1, 1, p->packed + 1);
    if (!status && p->sinks) status = make_rows(maker, SLOT_SINKS, ATTN_F32, 1, 1, 1, 1, p->heads);
    if (!status && p->alibi) status = make_rows(maker, SLOT_ALIBI, ATTN_F32, 1, 1, 1, 1, p->heads);
    if (!status && p->tree) status = make_rows(maker, SLOT_TREE, ATTN_BOOL, 3, 1, 1, p->q_len, p->q_len);
    if (!status && p->select)
        status = make_rows(maker, SLOT_SELECT, index, 3, 1, p->batch, p->q_len, p->select);
    if (p->prefix) maker->store->prefix = calloc((size_t)p->prefix, sizeof *maker->store->prefix);
    if (!status && p->prefix && !maker->store->prefix)
        status = cli_fail(maker->error, ATTN_KIND_OUT_OF_MEMORY, "no memory for prefix ranges");
    if (p->spans) maker->store->spans = calloc((size_t)p->spans, sizeof *maker->store->spans);
    if (p->ranges) maker->store->ranges = calloc((size_t)p->ranges, sizeof *maker->store->ranges);
    if (!status && ((p->spans && !maker->store->spans) || (p->ranges && !maker->store->ranges)))
        status = cli_fail(maker->error, ATTN_KIND_OUT_OF_MEMORY, "no memory for spans");
    return status;
}

/* ---- a cache ----------------------------------------------------------------------------------- */

/* Memory order [pages, tokens, heads, channels], or heads before tokens. */
static attn_status make_pages(struct maker *maker, enum slot_id id, attn_dtype dtype, int64_t width, int ndim)
{
    const struct problem *p = maker->problem;
    struct slot *slot = &maker->store->slots[id];
    int64_t pages = generate_requests(p) * generate_pages(p) + 2;
    int hnd = p->layout == PROBLEM_BNSD;
    int64_t shape[] = {pages, hnd ? p->kv_heads : p->paged, hnd ? p->paged : p->kv_heads, width};
    if (ndim == 3)
        describe(slot, dtype, 3, (const int64_t[]){1, shape[0], shape[1], shape[2]});
    else
        describe(slot, dtype, 4, shape);
    row_strides(PROBLEM_BSND, slot->shape, slot->strides);
    set_extent(slot, PROBLEM_BSND);
    return allocate(maker, slot);
}

static attn_status make_scale(struct maker *maker, enum slot_id id, int32_t form)
{
    if (form == 0) return ATTN_OK;
    if (form == 3) return make_pages(maker, id, ATTN_F32, 1, 3);
    struct slot *slot = &maker->store->slots[id];
    describe(slot, ATTN_F32, 1, (const int64_t[]){1, 1, 1, form == 1 ? 1 : maker->problem->kv_heads});
    row_strides(PROBLEM_BSND, slot->shape, slot->strides);
    set_extent(slot, PROBLEM_BSND);
    return allocate(maker, slot);
}

static attn_status make_cache(struct maker *maker)
{
    const struct problem *p = maker->problem;
    struct slot *slots = maker->store->slots;
    if (!p->paged || p->plain) return ATTN_OK;
    const struct problem_kv *kv = problem_kv_at(p->kv);
    attn_dtype stored = kv ? kv->dtype : p->dtype, index = p->seed % 2 ? ATTN_I32 : ATTN_I64;
    int64_t requests = generate_requests(p);
    attn_status status = make_pages(maker, SLOT_PAGES_K, stored, p->head_dim, 4);
    if (!status && !p->latent) status = make_pages(maker, SLOT_PAGES_V, stored, p->value_head_dim, 4);
    if (!status && kv) status = make_scale(maker, SLOT_SCALE_K, kv->form);
    if (!status && kv && !p->latent) status = make_scale(maker, SLOT_SCALE_V, kv->form);
    if (!status) status = make_rows(maker, SLOT_TABLE, index, 2, 1, 1, requests, generate_pages(p));
    if (!status) status = make_rows(maker, SLOT_CONTEXTS, index, 1, 1, 1, 1, requests);
    maker->store->cache =
        (attn_cache){.size = sizeof maker->store->cache,
                     .layout = p->layout == PROBLEM_BNSD ? ATTN_CACHE_HND : ATTN_CACHE_NHD,
                     .k = &slots[SLOT_PAGES_K].dl,
                     .v = p->latent ? NULL : &slots[SLOT_PAGES_V].dl,
                     .k_scale = kv && kv->form ? &slots[SLOT_SCALE_K].dl : NULL,
                     .v_scale = kv && kv->form && !p->latent ? &slots[SLOT_SCALE_V].dl : NULL};
    return status;
}

/* ---- the whole --------------------------------------------------------------------------------- */

static int32_t mask_kind(const struct problem *problem)
{
    if (problem->mask == PROBLEM_MASK_ADDITIVE) return ATTN_MASK_ADDITIVE;
    return problem->mask == PROBLEM_MASK_KEEP && problem->mask_dtype != ATTN_BOOL ? ATTN_MASK_KEEP
                                                                                  : ATTN_MASK_BY_DTYPE;
}

static const DLTensor *tensor_of(const struct generate_store *store, enum slot_id id)
{
    return store->slots[id].dl.data ? &store->slots[id].dl : NULL;
}

static void fill_args(struct generated *g)
{
    const struct problem *p = &g->problem;
    const struct generate_store *s = g->store;
    g->args = (attn_args){
        .size = sizeof g->args,
        .q = tensor_of(s, SLOT_Q),
        .k = tensor_of(s, SLOT_K),
        .v = tensor_of(s, SLOT_V),
        .out = tensor_of(s, SLOT_OUT),
        .lse = tensor_of(s, SLOT_LSE),
        .mask = tensor_of(s, SLOT_MASK),
        .key_mask = tensor_of(s, SLOT_KEY_MASK),
        .kv_lengths = tensor_of(s, SLOT_LENGTHS),
        .cu_seqlens_q = tensor_of(s, SLOT_CU_Q),
        .cu_seqlens_k = tensor_of(s, SLOT_CU_K),
        .sinks = tensor_of(s, SLOT_SINKS),
        .joint_q = tensor_of(s, SLOT_JOINT_Q),
        .joint_k = tensor_of(s, SLOT_JOINT_K),
        .joint_v = tensor_of(s, SLOT_JOINT_V),
        .joint_out = tensor_of(s, SLOT_JOINT_OUT),
        .joint_key_mask = tensor_of(s, SLOT_JOINT_KEY_MASK),
        .alibi_slopes = tensor_of(s, SLOT_ALIBI),
        .tree_mask = tensor_of(s, SLOT_TREE),
        .selected = tensor_of(s, SLOT_SELECT),
        .prefix_ranges = s->prefix,
        .prefix_range_count = (uint32_t)p->prefix,
        .spans = s->spans,
        .query_ranges = s->ranges,
        .cancel = &cli_cancel,
        .query_start = p->start,
        .mask_kind = mask_kind(p),
        .joint_order = p->joint_rear ? ATTN_JOINT_REAR : ATTN_JOINT_FRONT,
        .block_map = p->sparse >= 0 ? &s->map : NULL,
        .span_count = (uint32_t)p->spans,
        .query_range_count = (uint32_t)p->ranges,
    };
}

static attn_status make_map(struct maker *maker)
{
    const struct problem *p = maker->problem;
    struct generate_store *s = maker->store;
    if (p->sparse < 0) return ATTN_OK;
    int64_t rows = (p->q_len + p->joint + p->block_q - 1) / p->block_q;
    attn_status status = make_rows(maker, SLOT_COUNTS, ATTN_I32, 3, 1, p->batch, p->heads, rows);
    if (!status)
        status = make_rows(maker, SLOT_BLOCKS, ATTN_I32, 4, p->batch, p->heads, rows, generate_listed(p));
    s->map = (attn_block_map){.size = sizeof s->map,
                              .block_q = p->block_q,
                              .block_k = p->block_k,
                              .counts = &s->slots[SLOT_COUNTS].dl,
                              .blocks = &s->slots[SLOT_BLOCKS].dl};
    return status;
}

static void page_args(struct generated *g)
{
    const struct generate_store *s = g->store;
    if (!g->problem.paged || g->problem.plain) return;
    g->args.k = g->args.v = g->args.cu_seqlens_k = NULL;
    g->args.cache = &s->cache;
    g->args.block_table = tensor_of(s, SLOT_TABLE);
    g->args.kv_lengths = tensor_of(s, SLOT_CONTEXTS);
}

attn_args generate_plain(const struct generated *g, const attn_args *args)
{
    attn_args plain = *args;
    if (!plain.cache || !g->store) return plain;
    plain.cache = NULL, plain.block_table = NULL;
    plain.k = tensor_of(g->store, SLOT_K), plain.v = tensor_of(g->store, SLOT_V);
    plain.kv_lengths = tensor_of(g->store, SLOT_LENGTHS);
    plain.cu_seqlens_k = tensor_of(g->store, SLOT_CU_K);
    return plain;
}

static attn_status make_slots(struct maker *maker)
{
    attn_status status = make_inputs(maker);
    if (!status) status = make_joint(maker);
    if (!status) status = make_outputs(maker);
    if (!status) status = make_vectors(maker);
    if (!status) status = make_map(maker);
    if (!status) status = make_cache(maker);
    double before = maker->store->bytes;
    if (!status) status = make_mask(maker);
    maker->store->mask_bytes = maker->store->bytes - before;
    return status;
}

attn_status generate_measure(const struct problem *problem, struct generate_need *need, attn_error *error)
{
    struct generate_store store = {.measured = 1};
    struct maker maker = {problem, &store, error};
    attn_status status = problem_validate(problem, error);
    if (!status) status = make_slots(&maker);
    need->bytes = store.bytes;
    need->mask_bytes = store.mask_bytes;
    need->out_elements = (double)problem->batch * (double)(problem->q_len + problem->joint) *
                         (double)problem->heads * (double)problem->value_head_dim;
    free(store.spans);
    free(store.ranges);
    free(store.prefix);
    return status;
}

static attn_status make_tensors(const struct problem *problem, int bare, struct generated *out,
                                attn_error *error)
{
    memset(out, 0, sizeof *out);
    attn_status status = problem_validate(problem, error);
    if (status) return status;
    out->store = calloc(1, sizeof *out->store);
    if (!out->store) return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory for a problem");
    out->problem = *problem;
    out->store->bare = bare;
    struct maker maker = {problem, out->store, error};
    status = make_slots(&maker);
    if (status) {
        generate_free(out);
        return status;
    }
    problem_layer(problem, &out->layer);
    fill_args(out);
    page_args(out);
    return ATTN_OK;
}

attn_status generate(const struct problem *problem, struct generated *out, attn_error *error)
{
    attn_status status = make_tensors(problem, 0, out, error);
    if (status) return status;
    generate_values(problem, out->store);
    generate_reset(out);
    if (!cli_interrupted()) return ATTN_OK;
    generate_free(out);
    return cli_fail(error, ATTN_KIND_CANCELLED, "interrupted");
}

attn_status generate_shapes(const struct problem *problem, struct generated *out, attn_error *error)
{
    attn_status status = make_tensors(problem, 1, out, error);
    if (!status) generate_vectors(problem, out->store);
    return status;
}

void generate_free(struct generated *generated)
{
    struct generate_store *store = generated->store;
    if (!store) return;
    for (int id = 0; id < SLOT_COUNT; id++) {
        if (store->slots[id].mapped)
            munmap(store->slots[id].base, store->slots[id].bytes);
        else
            free(store->slots[id].base);
    }
    free(store->spans);
    free(store->ranges);
    free(store->prefix);
    free(store);
    memset(generated, 0, sizeof *generated);
}

/* ---- outputs ----------------------------------------------------------------------------------- */

void generate_reset(struct generated *generated)
{
    for (int id = 0; id < SLOT_COUNT; id++) {
        struct slot *slot = &generated->store->slots[id];
        if (!is_output((enum slot_id)id) || !slot->dl.data) continue;
        if (slot->mapped)
            poison_rows(slot);
        else
            memset(slot->dl.data, 0xFF, (size_t)slot->extent * attn_dtype_bytes(slot->dtype));
    }
}

static int all_bytes(const char *at, size_t count, int value)
{
    for (size_t i = 0; i < count; i++) {
        if ((unsigned char)at[i] != value) return 0;
    }
    return 1;
}

/* Marks the elements that are part of the tensor. */
static void mark(const struct slot *slot, unsigned char *owned)
{
    for (int64_t a = 0; a < slot->shape[0]; a++)
        for (int64_t b = 0; b < slot->shape[1]; b++)
            for (int64_t c = 0; c < slot->shape[2]; c++)
                for (int64_t d = 0; d < slot->shape[3]; d++)
                    owned[a * slot->strides[0] + b * slot->strides[1] + c * slot->strides[2] +
                          d * slot->strides[3]] = 1;
}

static attn_status verify_far(const struct slot *slot, const char *name, attn_error *error)
{
    for (int64_t i = 0; i < far_rows(slot); i++) {
        size_t bytes;
        const char *row = far_row(slot, i, &bytes);
        if (!all_bytes(row - GUARD_BYTES, GUARD_BYTES, 0xFF) || !all_bytes(row + bytes, GUARD_BYTES, 0xFF))
            return cli_fail(error, ATTN_KIND_INTERNAL, "memory around row %lld of %s was written",
                            (long long)i, name);
    }
    return ATTN_OK;
}

static attn_status verify_slot(const struct slot *slot, const char *name, attn_error *error)
{
    size_t size = attn_dtype_bytes(slot->dtype), bytes = (size_t)slot->extent * size;
    const char *data = slot->dl.data;
    if (slot->mapped) return verify_far(slot, name, error);
    if (!all_bytes(slot->base, GUARD_BYTES, GUARD_VALUE) ||
        !all_bytes(data + bytes, slot->bytes - GUARD_BYTES - bytes, GUARD_VALUE))
        return cli_fail(error, ATTN_KIND_INTERNAL, "memory around %s was written", name);
    unsigned char *owned = calloc((size_t)slot->extent, 1);
    if (!owned) return cli_fail(error, ATTN_KIND_OUT_OF_MEMORY, "no memory to check %s", name);
    mark(slot, owned);
    int64_t i = 0;
    while (i < slot->extent && (owned[i] || all_bytes(data + (size_t)i * size, size, 0xFF))) i++;
    free(owned);
    if (i == slot->extent) return ATTN_OK;
    return cli_fail(error, ATTN_KIND_INTERNAL, "padding of %s was written, %lld elements from its start",
                    name, (long long)i);
}

attn_status generate_verify(const struct generated *generated, attn_error *error)
{
    static const struct {
        enum slot_id id;
        const char *name;
    } outputs[] = {{SLOT_OUT, "out"}, {SLOT_LSE, "lse"}, {SLOT_JOINT_OUT, "joint_out"}};
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
        const struct slot *slot = &generated->store->slots[outputs[i].id];
        attn_status status = slot->dl.data ? verify_slot(slot, outputs[i].name, error) : ATTN_OK;
        if (status) return status;
    }
    return ATTN_OK;
}
