#include "token/pair_table.h"

#include <stdlib.h>
#include <string.h>

#define EMPTY KVR_TAG_EMPTY

const struct kvr_pair_bucket kvr_pair_no_bucket = {
    .tags = {EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY, EMPTY},
};

static bool put(struct kvr_pair_bucket *bucket, uint32_t tag, uint32_t id)
{
    for (int i = 0; i < KVR_BUCKET_PAIRS; i++) {
        if (bucket->tags[i] == EMPTY) {
            bucket->tags[i] = tag;
            bucket->ids[i] |= id;
            return true;
        }
    }
    return false;
}

/* Fills empty buckets. False: two neighbours are full, it takes more of them. */
static bool fill(struct kvr_pair_bucket *buckets, uint32_t count, const struct kvr_pair *pairs,
    uint32_t pair_count)
{
    uint32_t shift = KVR_PAIR_KEY_BITS - (uint32_t)__builtin_ctz(count);

    for (uint32_t i = 0; i < count; i++)
        buckets[i] = kvr_pair_no_bucket;
    for (uint32_t i = 0; i < pair_count; i++) {
        uint64_t key = kvr_pair_key(kvr_pair_mix(pairs[i].left, pairs[i].right));
        uint64_t at = key >> shift;
        uint32_t tag = kvr_pair_tag(key, shift);
        if (put(&buckets[at], tag, pairs[i].id))
            continue;
        buckets[at].ids[0] |= KVR_BUCKET_OVERFLOWS;
        if (!put(&buckets[at ^ 1], tag | KVR_TAG_DISPLACED, pairs[i].id))
            return false;
    }
    return true;
}

struct kvr_pair_bucket *kvr_pair_table_build(const struct kvr_pair *pairs, uint32_t count,
    uint32_t *bucket_count, uint64_t **filter, uint32_t *filter_words)
{
    struct kvr_pair_bucket *buckets = NULL;
    uint32_t wanted = KVR_BUCKETS_LEAST, words = 2;

    while (wanted * 4 < count)
        wanted *= 2;
    for (;; wanted *= 2) {
        free(buckets);
        buckets = aligned_alloc(64, wanted * sizeof *buckets);
        if (!buckets || fill(buckets, wanted, pairs, count))
            break;
    }
    while (words * UINT64_C(64) < count * UINT64_C(12))
        words *= 2;
    *filter = calloc(words, sizeof **filter);
    if (!buckets || !*filter) {
        free(buckets);
        free(*filter);
        *filter = NULL;
        return NULL;
    }
    uint32_t shift = KVR_PAIR_KEY_BITS - (uint32_t)__builtin_ctz(words);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t mixed = kvr_pair_mix(pairs[i].left, pairs[i].right);
        (*filter)[kvr_pair_key(mixed) >> shift] |= kvr_pair_bits(mixed);
    }
    *bucket_count = wanted;
    *filter_words = words;
    return buckets;
}
