/* random.c: a small stream of random numbers, the same on every machine (splitmix64 of Steele, Lea and
 * Flood). */
#include "generate.h"

void random_seed(struct random_stream *random, uint64_t seed)
{
    random->state = seed;
}

uint64_t random_next(struct random_stream *random)
{
    uint64_t z = random->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

uint64_t random_below(struct random_stream *random, uint64_t bound)
{
    return random_next(random) % bound;
}
