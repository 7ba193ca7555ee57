#include "sim/lineage.h"

#include <string.h>

enum { ENDS = 1, SHARED = 2, SHIFT = 2 };

void kvr_lineage_release(struct kvr_lineage *lineage)
{
    kvr_u64_map_release(&lineage->blocks);
    memset(lineage, 0, sizeof *lineage);
}

enum kvr_status kvr_lineage_follow(struct kvr_lineage *lineage, const uint64_t *ids, size_t count,
    uint64_t *conversation, bool *continues, struct kvr_error *error)
{
    *conversation = 0;
    for (size_t i = 0; i < count; i++) {
        const uint64_t *block = kvr_u64_map_find(&lineage->blocks, ids[i]);
        if (!block)
            break; /* chained: nothing behind it was seen */
        if ((*block & ENDS) && !(*block & SHARED))
            *conversation = *block >> SHIFT;
    }
    *continues = *conversation != 0;
    if (!*continues)
        *conversation = ++lineage->conversations;
    for (size_t i = 0; i < count; i++) {
        bool inserted;
        uint64_t *block = kvr_u64_map_insert(&lineage->blocks, ids[i], &inserted);
        if (!block)
            return kvr_error_memory(error);
        if (inserted)
            *block = *conversation << SHIFT;
        else if (*block >> SHIFT != *conversation)
            *block |= SHARED;
        if (i + 1 == count)
            *block |= ENDS;
    }
    return KVR_OK;
}
