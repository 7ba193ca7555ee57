/*
 * What two neighbouring tokens merge to: a hash table made for the question that is asked most, of
 * pairs that do not merge, and for a processor that guesses branches.
 *
 * A filter says for nearly all pairs that are none that they are none: two bits a pair in a word
 * of 64, some hundred KiB that stay in the second-level cache. The others read one bucket, a line
 * of the cache with eight tags and eight ids. The key of two ids (42 bits) is mixed by a product
 * modulo 2^42 with an odd number, which can be undone: its upper bits choose the bucket, so that
 * the lower ones, as tag, prove the pair. A bucket that is full gives to its neighbour. Nothing on
 * this way is a branch but for buckets that overflow: where the filter says no, an empty bucket is
 * read.
 *
 *   bucket   tag tag tag tag tag tag tag tag | id id id id id id id id
 *            DISPLACED: from the neighbour     OVERFLOWS in the first: more in the neighbour
 */
#ifndef KVR_TOKEN_PAIR_TABLE_H
#define KVR_TOKEN_PAIR_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define KVR_NO_TOKEN UINT32_MAX

#define KVR_PAIR_ID_BITS 21
#define KVR_PAIR_KEY_BITS (2 * KVR_PAIR_ID_BITS)
#define KVR_BUCKET_PAIRS 8
#define KVR_BUCKETS_LEAST (UINT32_C(1) << 12) /* tags then have 30 bits */
#define KVR_TAG_EMPTY UINT32_MAX
#define KVR_TAG_DISPLACED UINT32_C(0x80000000)
#define KVR_BUCKET_OVERFLOWS UINT32_C(0x80000000)

struct kvr_pair_bucket {
    uint32_t tags[KVR_BUCKET_PAIRS], ids[KVR_BUCKET_PAIRS];
};

extern const struct kvr_pair_bucket kvr_pair_no_bucket;

struct kvr_pair_table {
    const struct kvr_pair_bucket *buckets; /* a power of two of them */
    const uint64_t *filter;                /* a power of two of words, two or more */
    uint32_t shift, filter_shift;          /* bits of a mixed key below those that choose either */
};

/* The key of a pair, times an odd number. Its lower 42 bits are of each pair its own. */
static inline uint64_t kvr_pair_mix(uint32_t left, uint32_t right)
{
    return ((uint64_t)left << KVR_PAIR_ID_BITS | right) * UINT64_C(0x9e3779b97f4a7c15);
}

static inline uint64_t kvr_pair_key(uint64_t mixed)
{
    return mixed & ((UINT64_C(1) << KVR_PAIR_KEY_BITS) - 1);
}

/* The bits of a pair in its word of the filter: of those of the product that the key has not. */
static inline uint64_t kvr_pair_bits(uint64_t mixed)
{
    return UINT64_C(1) << (mixed >> 58) | UINT64_C(1) << (mixed >> 52 & 63);
}

static inline uint32_t kvr_pair_tag(uint64_t key, uint32_t shift)
{
    return (uint32_t)(key & ((UINT64_C(1) << shift) - 1));
}

/* The id of a tag in a bucket, or KVR_NO_TOKEN. */
static inline uint32_t kvr_bucket_find(const struct kvr_pair_bucket *bucket, uint32_t tag)
{
#ifdef __SSE2__
    const __m128i *tags = (const __m128i *)(const void *)bucket->tags;
    __m128i wanted = _mm_set1_epi32((int)tag);
    __m128i low = _mm_cmpeq_epi32(_mm_loadu_si128(tags), wanted);
    __m128i high = _mm_cmpeq_epi32(_mm_loadu_si128(tags + 1), wanted);
    unsigned equal = (unsigned)_mm_movemask_epi8(_mm_packs_epi32(low, high));
    unsigned at = (unsigned)__builtin_ctz(equal | 1u << 15) / 2;
    return (bucket->ids[at] & ~KVR_BUCKET_OVERFLOWS) | -(uint32_t)!equal;
#else
    for (int i = 0; i < KVR_BUCKET_PAIRS; i++)
        if (bucket->tags[i] == tag)
            return bucket->ids[i] & ~KVR_BUCKET_OVERFLOWS;
    return KVR_NO_TOKEN;
#endif
}

/* The id of a key in a table, whatever its filter says. */
static inline uint32_t kvr_pair_table_find(const struct kvr_pair_table *table, uint64_t key)
{
    const struct kvr_pair_bucket *bucket = &table->buckets[key >> table->shift];
    uint32_t tag = kvr_pair_tag(key, table->shift), id = kvr_bucket_find(bucket, tag);

    if (id != KVR_NO_TOKEN || !(bucket->ids[0] & KVR_BUCKET_OVERFLOWS))
        return id;
    bucket = &table->buckets[key >> table->shift ^ 1];
    return kvr_bucket_find(bucket, tag | KVR_TAG_DISPLACED);
}

/* Where the id of a pair is to be read. Between asking for the word of the filter, finding the
 * place and reading it there is time for other work, while what is asked for comes from memory. */
struct kvr_pair_place {
    const struct kvr_pair_bucket *bucket;
    uint64_t key;
};

/* Asks for the word of the filter; returns the pair, mixed. */
static inline uint64_t kvr_pair_ask(
    const struct kvr_pair_table *table, uint32_t left, uint32_t right)
{
    uint64_t mixed = kvr_pair_mix(left, right);

    __builtin_prefetch(&table->filter[kvr_pair_key(mixed) >> table->filter_shift]);
    return mixed;
}

/* The place of a mixed pair, which is asked for. A mask and no condition, which compilers would
 * turn into a branch that nobody can guess. */
static inline struct kvr_pair_place kvr_pair_place_of(
    const struct kvr_pair_table *table, uint64_t mixed)
{
    uint64_t key = kvr_pair_key(mixed), bits = kvr_pair_bits(mixed);
    uint64_t known = -(uint64_t) !(bits & ~table->filter[key >> table->filter_shift]);
    uintptr_t bucket = (uintptr_t)&kvr_pair_no_bucket;

    bucket ^= (bucket ^ (uintptr_t)&table->buckets[key >> table->shift]) & known;
    __builtin_prefetch((const void *)bucket);
    return (struct kvr_pair_place){(const void *)bucket, key};
}

/* The id of the pair of a place, or KVR_NO_TOKEN. */
static inline uint32_t kvr_pair_at(
    const struct kvr_pair_place *place, const struct kvr_pair_table *table)
{
    uint32_t id = kvr_bucket_find(place->bucket, kvr_pair_tag(place->key, table->shift));

    if (__builtin_expect((id & place->bucket->ids[0]) >> 31, 0)) /* not here, but overflowed */
        id = kvr_pair_table_find(table, place->key);
    return id;
}

/* A pair to put into a table. */
struct kvr_pair {
    uint32_t left, right, id;
};

/* How large a table of `count` pairs, all different, has to be. False when memory is short. */
bool kvr_pair_table_size(
    const struct kvr_pair *pairs, uint32_t count, uint32_t *bucket_count, uint32_t *filter_words);

/* Fills buckets and filter of the sizes that kvr_pair_table_size() told. */
void kvr_pair_table_fill(const struct kvr_pair *pairs, uint32_t count,
    struct kvr_pair_bucket *buckets, uint32_t bucket_count, uint64_t *filter,
    uint32_t filter_words);

#endif
