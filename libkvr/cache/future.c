#include "base/u64_map.h"
#include "cache/block_cache.h"

/* One pass from the end: the map holds where each id was met last. */
enum kvr_status kvr_future_compute(
    const uint64_t *ids, size_t count, uint32_t *future, struct kvr_error *error)
{
    struct kvr_u64_map last = {0};

    if (count >= KVR_NEVER)
        return kvr_error_set(error, KVR_UNSUPPORTED, "a trace of 2^32 accesses or more");
    for (size_t i = count; i-- > 0;) {
        bool is_new;
        uint64_t *at = kvr_u64_map_insert(&last, ids[i], &is_new);
        if (!at) {
            kvr_u64_map_release(&last);
            return kvr_error_memory(error);
        }
        future[i] = is_new ? KVR_NEVER : (uint32_t)*at;
        *at = i;
    }
    kvr_u64_map_release(&last);
    return KVR_OK;
}
