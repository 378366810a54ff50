/* text.c: small helpers for messages. */
#include "core/text.h"

#include <string.h>

enum { LONG = 63 }; /* longer words count as far */

static int least(int a, int b)
{
    return a < b ? a : b;
}

static int lower(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

/* Levenshtein distance. */
static int distance(const char *a, const char *b)
{
    int row[LONG + 1];
    size_t m = strlen(a), n = strlen(b);
    if (m > LONG || n > LONG) return LONG;
    for (size_t j = 0; j <= n; j++) row[j] = (int)j;
    for (size_t i = 1; i <= m; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= n; j++) {
            int here = diagonal + (lower(a[i - 1]) != lower(b[j - 1]));
            diagonal = row[j];
            row[j] = least(here, least(row[j], row[j - 1]) + 1);
        }
    }
    return row[n];
}

const char *attn_nearest(const char *word, const char *const *words, size_t count)
{
    const char *best = NULL;
    /* Further than a third of the word, or four edits, is no likely slip. */
    int nearest = least(5, (int)strlen(word) / 3 + 2);
    for (size_t i = 0; i < count; i++) {
        int d = distance(word, words[i]);
        if (d < nearest) nearest = d, best = words[i];
    }
    return best;
}
