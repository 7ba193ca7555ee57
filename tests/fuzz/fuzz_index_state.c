/* Any bytes as a state file, as they are and with the checksum made to fit: an error, or an index
 * that can be used. */
#include "cache/index.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static void use(struct kvr_index *index)
{
    uint64_t ids[] = {1, 2, 3, 4};
    struct kvr_blocks blocks = {kvr_index_space(index, NULL, 0, NULL, 0, NULL, 0, 16), ids, 4, 16};
    const struct kvr_index_match *matches;
    uint32_t worker;

    kvr_index_find(index, 0, &blocks, &matches);
    if (kvr_index_worker(index, "w0", 2, &worker, NULL) == KVR_OK)
        kvr_index_place(index, worker, 5, &blocks, NULL, NULL);
    kvr_index_find(index, INT64_MAX, &blocks, &matches);
    for (uint32_t w = kvr_index_worker_limit(index); w--;)
        if (kvr_index_worker_name(index, w))
            kvr_index_worker_remove(index, w);
    if (kvr_index_pairs(index))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kvr_index_options options = KVR_INDEX_DEFAULTS;
    struct kvr_index *index;
    uint8_t *copy;

    options.ttl_ms = size & 1 ? 1000 : 0;
    if (kvr_index_create(&index, &options, NULL) != KVR_OK)
        return 0;
    if (kvr_index_load_bytes(index, data, size, "fuzz", NULL) == KVR_OK)
        use(index);
    copy = malloc(size + 1);
    if (copy && size >= 8) {
        uint64_t sum;
        memcpy(copy, data, size);
        sum = XXH3_64bits(copy, size - 8);
        memcpy(copy + size - 8, &sum, sizeof sum);
        if (kvr_index_load_bytes(index, copy, size, "fuzz", NULL) == KVR_OK)
            use(index);
    }
    free(copy);
    kvr_index_destroy(index);
    return 0;
}
