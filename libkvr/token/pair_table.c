#include "token/pair_table.h"

#include <stdlib.h>
#include <string.h>

#define EMPTY KVR_TAG_EMPTY
#define BUCKETS_MOST (UINT32_C(1) << 24)
#define AHEAD 8 /* buckets asked for before they are filled */

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

/* A bucket gives what it has no room for to its neighbour, so that the two hold what belongs to
 * either, wherever it belongs: they overflow if that is more than both have room for. */
static bool all_fit(
    uint8_t *counts, uint32_t buckets, const struct kvr_pair *pairs, uint32_t pair_count)
{
    uint32_t shift = KVR_PAIR_KEY_BITS - (uint32_t)__builtin_ctz(buckets) + 1;

    memset(counts, 0, buckets / 2);
    for (uint32_t i = 0; i < pair_count; i++)
        if (++counts[kvr_pair_key(kvr_pair_mix(pairs[i].left, pairs[i].right)) >> shift] >
            2 * KVR_BUCKET_PAIRS)
            return false;
    return true;
}

bool kvr_pair_table_size(
    const struct kvr_pair *pairs, uint32_t count, uint32_t *bucket_count, uint32_t *filter_words)
{
    uint32_t buckets = KVR_BUCKETS_LEAST, words = 2;
    uint8_t *counts = NULL;

    while (buckets * 4 < count)
        buckets *= 2;
    for (;; buckets *= 2) {
        free(counts);
        counts = buckets <= BUCKETS_MOST ? malloc(buckets / 2) : NULL;
        if (!counts)
            return false;
        if (all_fit(counts, buckets, pairs, count))
            break;
    }
    free(counts);
    while (words * UINT64_C(64) < count * UINT64_C(12))
        words *= 2;
    *bucket_count = buckets;
    *filter_words = words;
    return true;
}

void kvr_pair_table_fill(const struct kvr_pair *pairs, uint32_t count,
    struct kvr_pair_bucket *buckets, uint32_t bucket_count, uint64_t *filter, uint32_t filter_words)
{
    uint32_t shift = KVR_PAIR_KEY_BITS - (uint32_t)__builtin_ctz(bucket_count);
    uint32_t filter_shift = KVR_PAIR_KEY_BITS - (uint32_t)__builtin_ctz(filter_words);

    for (uint32_t i = 0; i < bucket_count; i++)
        buckets[i] = kvr_pair_no_bucket;
    memset(filter, 0, filter_words * sizeof *filter);
    for (uint32_t i = 0; i < count; i++) {
        if (i + AHEAD < count) {
            const struct kvr_pair *ahead = &pairs[i + AHEAD];
            __builtin_prefetch(
                &buckets[kvr_pair_key(kvr_pair_mix(ahead->left, ahead->right)) >> shift], 1);
        }
        uint64_t mixed = kvr_pair_mix(pairs[i].left, pairs[i].right), key = kvr_pair_key(mixed);
        uint64_t at = key >> shift;
        uint32_t tag = kvr_pair_tag(key, shift);
        filter[key >> filter_shift] |= kvr_pair_bits(mixed);
        if (put(&buckets[at], tag, pairs[i].id))
            continue;
        buckets[at].ids[0] |= KVR_BUCKET_OVERFLOWS;
        put(&buckets[at ^ 1], tag | KVR_TAG_DISPLACED, pairs[i].id);
    }
}
