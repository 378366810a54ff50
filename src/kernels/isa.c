/* isa.c: CPU detection, the list of kernel sets and the filling of their slots. */
#include "kernels/isa.h"

#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { ISA_AVX2 = 1, ISA_AVX512 = 2, ISA_AVX512_BF16 = 4 };

#define X(set, needs, summary) extern const attn_kernels attn_kernels_##set;
#include "kernels/kernels.def"
#undef X

typedef struct isa_row {
    const char *name;
    unsigned needs;
    const char *summary;
    const attn_kernels *kernels;
} isa_row;

static const isa_row rows[] = {
#define X(set, needs, summary) {#set, needs, summary, &attn_kernels_##set},
#include "kernels/kernels.def"
#undef X
};
#define ROWS (sizeof rows / sizeof rows[0])

#if defined(__x86_64__)
/* Bits of XCR0: the state that the operating system saves. Without them the registers cannot be used even
 * when the CPU has the instructions. */
#define XCR0_YMM 0x06u
#define XCR0_ZMM 0xe6u

/* Leaf 7, subleaf 1: compilers' headers agree on no name for it. */
#define CPUID_7_1_EAX_AVX512_BF16 (1u << 5)

static unsigned saved_state(void)
{
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

static unsigned detect(void)
{
    unsigned a, b, c, d, found = 0;
    const unsigned osxsave_avx_fma_f16c = bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C;
    const unsigned f_bw_dq_vl = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & osxsave_avx_fma_f16c) != osxsave_avx_fma_f16c) return 0;
    unsigned saved = saved_state();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    if ((b & bit_AVX2) && (saved & XCR0_YMM) == XCR0_YMM) found |= ISA_AVX2;
    if ((b & f_bw_dq_vl) == f_bw_dq_vl && (saved & XCR0_ZMM) == XCR0_ZMM) found |= ISA_AVX512;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d)) return found;
    if ((found & ISA_AVX512) && (a & CPUID_7_1_EAX_AVX512_BF16)) found |= ISA_AVX512_BF16;
    return found;
}
#else
static unsigned detect(void)
{
    return 0;
}
#endif

static int usable(const isa_row *row, unsigned found)
{
    return (row->needs & ~found) == 0;
}

size_t attn_isa_count(void)
{
    return ROWS;
}

const char *attn_isa_at(size_t index, int *can_run)
{
    if (index >= ROWS) return NULL;
    if (can_run) *can_run = usable(&rows[index], detect());
    return rows[index].name;
}

/* Index of the highest row that the cap allows; -1: no such set. */
static int cap_index(const char *cap)
{
    if (!cap || !*cap) return (int)ROWS - 1;
    for (size_t i = 0; i < ROWS; i++) {
        if (!strcmp(rows[i].name, cap)) return (int)i;
    }
    return -1;
}

static int best_index(const char *cap, unsigned found)
{
    int i = cap_index(cap);
    while (i > 0 && !usable(&rows[i], found)) i--;
    return i;
}

const char *attn_isa_name(const char *cap)
{
    int i = best_index(cap, detect());
    return i < 0 ? NULL : rows[i].name;
}

/* Takes what is still empty from a weaker set. The packed form belongs to one set, so its leaves move
 * together; scores that are not yet weights are f32 in every set. */
static void fill(attn_kernels *k, const attn_kernels *from)
{
    if (!k->widen) k->widen = from->widen;
    if (!k->narrow) k->narrow = from->narrow;
    if (!k->edit) k->edit = from->edit;
    if (k->scores || !from->scores) return;
    attn_kernels whole = *from;
    whole.name = k->name;
    whole.widen = k->widen;
    whole.narrow = k->narrow;
    *k = whole;
}

int attn_isa_kernels(const char *cap, int32_t type, attn_kernels *kernels)
{
    unsigned found = detect();
    int i = best_index(cap, found);
    while (i > 0 && !(usable(&rows[i], found) && rows[i].kernels->types >> type & 1)) i--;
    if (i < 0) return 0;
    *kernels = *rows[i].kernels;
    while (--i >= 0) {
        if (usable(&rows[i], found)) fill(kernels, rows[i].kernels);
    }
    return 1;
}

/* "scalar, avx2 and avx512": the sets that this CPU runs. */
static void list_usable(unsigned found, char *text, size_t bytes)
{
    size_t count = 0, seen = 0, used = 0;
    for (size_t i = 0; i < ROWS; i++) count += (size_t)usable(&rows[i], found);
    text[0] = 0;
    for (size_t i = 0; i < ROWS; i++) {
        if (!usable(&rows[i], found) || used >= bytes) continue;
        const char *joint = seen == 0 ? "" : seen + 1 == count ? " and " : ", ";
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", joint, rows[i].name);
        seen++;
    }
}

void attn_isa_describe(const char *cap, char *text, size_t bytes)
{
    unsigned found = detect();
    int top = cap_index(cap), best = best_index(cap, found);
    char list[128];
    list_usable(found, list, sizeof list);
    if (best < 0) {
        snprintf(text, bytes, "no kernel set is named %s; this CPU runs %s", cap, list);
    } else if (!cap || !*cap) {
        snprintf(text, bytes, "this CPU runs %s, and %s (%s) is the best of them", list, rows[best].name,
                 rows[best].summary);
    } else if (best < top) {
        snprintf(text, bytes, "this CPU runs %s, and %s (%s) is the best within the cap %s, which it lacks",
                 list, rows[best].name, rows[best].summary, cap);
    } else {
        snprintf(text, bytes, "this CPU runs %s, and the cap chooses %s (%s)", list, rows[best].name,
                 rows[best].summary);
    }
}
