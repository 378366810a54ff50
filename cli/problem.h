/* problem.h: attention problems as text, one grammar for every command.
 *
 *   b N h N [kvh N] s N [x N] d N [v N] : dtype { : key[=value] }          without blanks
 *
 *   b1h24s4096d128:bf16                     batch 1, 24 heads, 4096 queries and keys, head size 128
 *   b1h40s14040x512d128:bf16:mask=key       14040 queries over 512 keys, a key-padding mask
 *   b8h32kvh8s1x4096d128:bf16:causal        8 key/value heads, one query
 *   b1h128kvh1s1x4096d576v512:bf16          value head size 512
 *
 * A number may be a list 64,72,80 or a doubling range 512-4096*2 (any whole factor above 1); the text then
 * stands for every combination, the leftmost number varying slowest. Keys are the rows of problem_keys.def.
 */
#ifndef ATTN_CLI_PROBLEM_H
#define ATTN_CLI_PROBLEM_H

#include <attn/attn.h>

enum problem_mask {
    PROBLEM_MASK_NONE = 0,
    PROBLEM_MASK_KEY,     /* bool [B, Sk], keys kept up to a random length, as padding is */
    PROBLEM_MASK_HOLES,   /* bool [B, Sk], keys kept at random */
    PROBLEM_MASK_KEEP,    /* bool [B, H, Sq, Sk], kept at random */
    PROBLEM_MASK_ADDITIVE /* floating [B, H, Sq, Sk], random, some of them -inf */
};

/* Axes along which a mask has its full size; along the others it is 1 and broadcast. mask=keep@bk */
enum problem_axes { PROBLEM_AXIS_B = 1, PROBLEM_AXIS_H = 2, PROBLEM_AXIS_S = 4, PROBLEM_AXIS_K = 8 };

enum problem_layout {
    PROBLEM_BSND = 0, /* contiguous [B, S, H, D] */
    PROBLEM_BNSD,     /* memory order [B, H, S, D], passed through strides */
    PROBLEM_QKV,      /* q, k, v side by side in one buffer, row after row; needs Sq = Sk */
    PROBLEM_PADDED,   /* rows of every tensor are followed by poisoned padding */
    PROBLEM_STRIDED,  /* innermost stride 2, poison between elements */
    PROBLEM_HUGE /* 2^31 + 64 elements from row to row of q, k, v, out and mask, on lazily committed memory */
};

/* One problem. -1 means "not given" for left and right. */
struct problem {
    int64_t batch, heads, kv_heads, q_len, kv_len, head_dim, value_head_dim;
    attn_dtype dtype;      /* of q, k, v */
    attn_dtype out_dtype;  /* dtype, or f32 */
    attn_dtype mask_dtype; /* of keep (bool, u8, i8) and additive (f32, f16, bf16, f64) masks */
    enum problem_mask mask;
    unsigned mask_axes;
    int causal;            /* attention is causal */
    int32_t alignment;     /* attn_alignment, of causal, left and right */
    int64_t left, right;   /* windows; -1: unbounded */
    double softcap, scale; /* 0: off, 1/sqrt(D) */
    int lse, sinks;
    int64_t lengths; /* -1: none; 0: random for each sample; N: the same N for all */
    int64_t packed;  /* sequences in a packed batch; 0: not packed. s is then the total */
    int64_t spans;   /* full-attention spans; 0: none */
    int64_t ranges;  /* query ranges; 0: none */
    int64_t paged;   /* tokens of a page of the cache that holds keys and values; 0: plain tensors */
    int plain;       /* not in the text: with paged, plain tensors of the numbers that the cache would hold */
    int kv;          /* what the cache stores: a row of problem_kv_at; 0: the type of q */
    int latent;      /* values are the first v channels of the keys */
    int alibi;       /* a slope for each head */
    int64_t prefix;  /* ranges that attend both ways; 0: none */
    int tree;        /* a tree mask over the last s keys */
    int64_t select;  /* keys that are listed for each query row; 0: no lists */
    double sparse;   /* share of key blocks that every list of the block map leaves out; -1: no map */
    int64_t block_q, block_k;
    enum problem_layout layout;
    int64_t start; /* query_start */
    int64_t joint; /* joint queries and keys; 0: none */
    int joint_rear;
    int hidden_nan; /* keys and values that nothing attends to hold NaN */
    uint64_t seed;
};

#define PROBLEM_TEXT_BYTES 320

struct problem_list {
    struct problem *items;
    size_t count;
};

/* Parses text into one or more problems. Fails with kind syntax or invalid_value; the sentence says the
 * column, what was found and what was expected. list is freed by problem_list_free; empty after a failure. */
attn_status problem_parse(const char *text, struct problem_list *list, attn_error *error);
void problem_list_free(struct problem_list *list);
/* Parses a text and adds its problems to a list that is zeroed or in use. */
attn_status problem_append(struct problem_list *list, const char *text, attn_error *error);

/* The defaults of everything that a text may leave out. */
void problem_init(struct problem *problem);

/* Numbers that exclude each other (heads not divided by kv_heads, packed with batch 2 ...). Part of parsing.
 */
attn_status problem_validate(const struct problem *problem, attn_error *error);

/* The canonical text: problem_parse of it gives the same problem. bytes >= PROBLEM_TEXT_BYTES never
 * truncates. Returns text. */
char *problem_format(const struct problem *problem, char *text, size_t bytes);

/* ATTN_FEATURE bits that running the problem asks for. */
uint64_t problem_features(const struct problem *problem);

/* The attention site of the problem; role, category and device are the caller's to add. needs is set. */
/* The same problem as the reference computes it to judge others: f64, plain tensors, with lse. */
struct problem problem_in_double(const struct problem *problem);
void problem_layer(const struct problem *problem, attn_layer_options *layer);

/* What a cache may store: the words of key `kv`, from 1 on; NULL past the end. form: axes of its scales,
 * which are all `scale`: 0 none, 1 one for all, 2 one a head, 3 one for each token and head. */
struct problem_kv {
    const char *word;
    attn_dtype dtype;
    int32_t form;
    double scale;
};
const struct problem_kv *problem_kv_at(int index);

/* Rows of problem_keys.def by index, for help and reference pages; 0 past the end. feature: -1 for none. */
struct problem_key_info {
    const char *name, *argument, *help;
    int feature;
};
int problem_key_at(size_t index, struct problem_key_info *info);

/* Elements of q, k, v, out together with strides left aside, as a measure of memory; INT64_MAX on overflow.
 */
int64_t problem_elements(const struct problem *problem);

#endif
