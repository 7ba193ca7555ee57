/*
 * Chance that repeats: a 64-bit generator of one word of state (splitmix64, Steele, Lea and Flood,
 * "Fast splittable pseudorandom number generators", OOPSLA 2014). The same seed gives the same
 * numbers on every machine. Not for secrets.
 */
#ifndef KVR_BASE_RANDOM_H
#define KVR_BASE_RANDOM_H

#include <stdint.h>

struct kvr_random {
    uint64_t state; /* the seed; every value is a good one */
};

/* A bijection of 64-bit words whose every output bit depends on every input bit. */
static inline uint64_t kvr_mix64(uint64_t word)
{
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
    return word ^ (word >> 31);
}

static inline uint64_t kvr_random_u64(struct kvr_random *random)
{
    return kvr_mix64(random->state += 0x9e3779b97f4a7c15u);
}

/* Uniform in [0, limit); 0 when limit is 0. The bias of the multiplication is below 2^-32. */
static inline uint32_t kvr_random_below(struct kvr_random *random, uint32_t limit)
{
    return (uint32_t)(((kvr_random_u64(random) >> 32) * limit) >> 32);
}

/* Uniform in [0, 1), 53 bits. */
static inline double kvr_random_unit(struct kvr_random *random)
{
    return (double)(kvr_random_u64(random) >> 11) * 0x1p-53;
}

#endif
