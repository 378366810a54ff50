/* rows.c: the interval of keys that a query row sees. */
#include "backends/rows.h"

/* Windows may be as large as a caller likes; sums stop at the ends of the number line. */
static int64_t sum(int64_t a, int64_t b)
{
    int64_t r;
    if (!__builtin_add_overflow(a, b, &r)) return r;
    return b > 0 ? INT64_MAX : INT64_MIN;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Ranges tile the rows in order, so the last one that starts at or before the row holds it. */
static int64_t range_position(const attn_call *call, int64_t row)
{
    const attn_query_range *ranges = call->query_ranges;
    uint32_t lo = 0, hi = call->query_range_count;
    while (hi - lo > 1) {
        uint32_t middle = lo + (hi - lo) / 2;
        if (ranges[middle].local_start <= row)
            lo = middle;
        else
            hi = middle;
    }
    return sum(ranges[lo].global_start, row - ranges[lo].local_start);
}

int64_t attn_row_position(const attn_call *call, const attn_rows *sample, int64_t i)
{
    if (call->query_range_count) return range_position(call, sample->q0 + i);
    if (call->problem->alignment == ATTN_TOP_LEFT) return sum(i, call->query_start);
    return i + sample->kv_len - sample->q_len;
}

/* A row inside a span sees all keys up to its end, every other row is causal. */
static int64_t span_end(const attn_call *call, int64_t p)
{
    int64_t end = sum(p, 1);
    for (uint32_t n = 0; n < call->span_count; n++) {
        const attn_span *span = &call->spans[n];
        if (span->start <= p && p < span->end) end = larger(end, span->end);
    }
    return end;
}

attn_interval attn_row_interval(const attn_call *call, const attn_rows *sample, int64_t i)
{
    const attn_problem *problem = call->problem;
    attn_interval keys = {0, sample->kv_len};
    int64_t p = attn_row_position(call, sample, i);
    if (call->span_count)
        keys.hi = smaller(keys.hi, span_end(call, p));
    else if (problem->causal && !call->tree)
        keys.hi = smaller(keys.hi, sum(p, 1));
    if (problem->window & ATTN_WINDOW_LEFT) keys.lo = larger(keys.lo, sum(p, -problem->window_left));
    if (problem->window & ATTN_WINDOW_RIGHT)
        keys.hi = smaller(keys.hi, sum(sum(p, problem->window_right), 1));
    keys.hi = larger(keys.hi, 0);
    keys.lo = smaller(keys.lo, sample->kv_len);
    return keys;
}

/* The ranges of a request follow each other: the first of them is found by halving. */
void attn_join_ranges(const attn_call *call, int64_t b, int64_t position, int64_t kv_len, attn_interval *keys)
{
    uint32_t low = 0, high = call->prefix_range_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (call->prefix_ranges[middle].request < b)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < call->prefix_range_count && call->prefix_ranges[low].request == b; low++) {
        const attn_prefix_range *range = &call->prefix_ranges[low];
        if (position < range->start || position >= range->end || position >= kv_len) continue;
        keys->lo = smaller(keys->lo, range->start);
        keys->hi = larger(keys->hi, smaller(range->end, kv_len));
    }
}

attn_interval attn_rows_interval(const attn_call *call, const attn_rows *sample)
{
    attn_interval all = {0, sample->kv_len};
    if (call->span_count || call->query_range_count || call->prefix_range_count || sample->q_len == 0)
        return all;
    /* Without spans and ranges both ends grow with the row. */
    all.lo = attn_row_interval(call, sample, 0).lo;
    all.hi = attn_row_interval(call, sample, sample->q_len - 1).hi;
    return all;
}
