/* Any sequence of placements, events and departures: the index stays consistent and in its bounds.
 * Input: a byte of options, then operations of three bytes and up to 15 ids each. */
#include "cache/index.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define WORKERS 6u

static void require(bool truth)
{
    if (!truth)
        abort();
}

static void check(struct kvr_index *index, const struct kvr_blocks *blocks, int64_t now)
{
    const struct kvr_index_match *matches;
    size_t found = kvr_index_find(index, now, blocks, &matches);
    uint64_t pairs = 0, tiers[KVR_MEDIUM_COUNT];

    for (size_t i = 0; i < found; i++) {
        require(i == 0 || matches[i - 1].worker < matches[i].worker);
        require(matches[i].blocks >= 1 && matches[i].blocks <= blocks->count);
        uint64_t tokens = (uint64_t)matches[i].blocks * blocks->block_size - 5;
        kvr_index_tiers(index, matches[i].worker, blocks, tokens, tiers);
        require(tiers[0] + tiers[1] + tiers[2] + tiers[3] == tokens);
    }
    for (uint32_t w = 0; w < kvr_index_worker_limit(index); w++)
        if (kvr_index_worker_name(index, w))
            pairs += kvr_index_worker_blocks(index, w);
    require(pairs == kvr_index_pairs(index));
    require(kvr_index_distinct_blocks(index) <= pairs);
}

static void operate(struct kvr_index *index, unsigned operation, uint32_t worker, int64_t now,
    const struct kvr_blocks *blocks)
{
    enum kvr_medium medium = operation / 16 % KVR_MEDIUM_COUNT;

    switch (operation % 8) {
    case 0:
    case 1:
    case 2:
        kvr_index_place(index, worker, now, blocks, NULL, NULL);
        break;
    case 3:
        kvr_index_stored(index, worker, medium, blocks, NULL);
        break;
    case 4:
        kvr_index_removed(index, worker, medium, blocks, NULL);
        break;
    case 5:
        kvr_index_worker_clear(index, worker);
        break;
    case 6:
        kvr_index_worker_remove(index, worker);
        break;
    default:
        kvr_index_worker_capacity(index, worker, KVR_INDEX_UNBOUNDED, operation / 8);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kvr_index_options options = KVR_INDEX_DEFAULTS;
    struct kvr_index *index;
    int64_t now = 0;

    if (!size)
        return 0;
    options.capacity_blocks = data[0] % 32;
    options.ttl_ms = data[0] & 32 ? 100 : 0;
    options.max_memory_bytes = data[0] & 64 ? 90000 : KVR_INDEX_UNBOUNDED;
    if (kvr_index_create(&index, &options, NULL) != KVR_OK)
        return 0;
    for (data++, size--; size >= 3;) {
        unsigned operation = data[0], count = data[2] % 16;
        char name[2] = {'w', (char)('0' + data[1] % WORKERS)};
        uint64_t ids[16];
        uint32_t worker;
        struct kvr_blocks blocks = {
            kvr_index_space(index, NULL, 0, NULL, 0, NULL, 0, 16), ids, count, 16};

        now += data[1] / WORKERS;
        blocks.block_size = data[2] / 16 == 15 ? 32 : 16;
        data += 3;
        size -= 3;
        if (count > size)
            blocks.count = count = (unsigned)size;
        for (unsigned i = 0; i < count; i++)
            ids[i] = data[i] % 64;
        data += count;
        size -= count;
        if (kvr_index_worker(index, name, 2, &worker, NULL) != KVR_OK)
            continue;
        operate(index, operation, worker, now, &blocks);
        check(index, &blocks, now);
        require(kvr_index_memory_bytes(index) <= options.max_memory_bytes ||
                kvr_index_pairs(index) == 0);
    }
    kvr_index_destroy(index);
    return 0;
}
