/*
 * Exact workers: what their engines say they hold.
 *
 * An engine may keep several physical copies of a block (vLLM does not deduplicate) in several
 * media, and says stored and removed for each; the record counts references a medium and goes when
 * all are zero. It may also evict in any order, and we may have missed its first events, so from
 * here on nothing is assumed about holes: the index searches by walking.
 */
#include "cache/index_private.h"

static const char no_room[] = "the prefix index cannot hold a block within its memory bound";

static enum kvr_status begin(struct kvr_index *index, uint32_t worker,
    const struct kvr_blocks *blocks, struct kvr_error *error)
{
    struct kvr_index_worker *to = &index->workers[worker];

    if (!to->exact) {
        /* What was guessed so far is worth less than what comes now. */
        kvr_index_worker_clear(index, worker);
        to->exact = true;
    }
    return kvr_index_bind_block_size(index, worker, blocks, error);
}

/* The record of block i, made where the worker does not hold it. 0 when memory is short. */
static uint32_t add(struct kvr_index *index, uint32_t worker, size_t i)
{
    uint32_t record;
    bool fresh;

    while (!kvr_index_room(index))
        if (!kvr_index_give_up_one(index))
            return 0;
    record = kvr_index_insert(index, index->keys[i], worker, &fresh);
    if (fresh) {
        memset(index->use[record].copies, 0, sizeof index->use[record].copies);
        kvr_index_link_newest(index, &index->workers[worker], record);
    }
    return record;
}

enum kvr_status kvr_index_stored(struct kvr_index *index, uint32_t worker, enum kvr_medium medium,
    const struct kvr_blocks *blocks, struct kvr_error *error)
{
    enum kvr_status status = begin(index, worker, blocks, error);

    if (status != KVR_OK || !blocks->count)
        return status;
    if (!kvr_index_look_up(index, worker, blocks, false))
        return kvr_error_set(error, KVR_NO_MEMORY, no_room);
    for (size_t i = 0; i < blocks->count; i++) {
        uint32_t record = index->records[i];
        /* The memory bound may have taken it since. */
        if (!kvr_index_is_record(index, record, worker, index->keys[i]))
            record = add(index, worker, i);
        if (!record)
            return kvr_error_set(error, KVR_NO_MEMORY, no_room);
        if (index->use[record].copies[medium] == UINT16_MAX)
            return kvr_error_set(
                error, KVR_BAD_INPUT, "a block stored more than %d times", UINT16_MAX);
        index->use[record].copies[medium]++;
        index->walk = true;
    }
    return KVR_OK;
}

static void drop_without_copies(struct kvr_index *index, uint32_t record)
{
    const uint16_t *copies = index->use[record].copies;

    if (!(copies[0] | copies[1] | copies[2] | copies[3])) {
        kvr_index_unlink(index, record);
        kvr_index_erase(index, record);
    }
}

enum kvr_status kvr_index_removed(struct kvr_index *index, uint32_t worker, enum kvr_medium medium,
    const struct kvr_blocks *blocks, struct kvr_error *error)
{
    enum kvr_status status = begin(index, worker, blocks, error);

    if (status != KVR_OK || !blocks->count)
        return status;
    if (!kvr_index_look_up(index, worker, blocks, false))
        return kvr_error_set(error, KVR_NO_MEMORY, no_room);
    for (size_t i = 0; i < blocks->count; i++) {
        /* A block that stands twice in the event may have gone the first time. */
        uint32_t record = index->records[i];
        struct kvr_index_use *use = &index->use[record];
        if (!kvr_index_is_record(index, record, worker, index->keys[i]) || !use->copies[medium])
            continue;
        use->copies[medium]--;
        drop_without_copies(index, record);
    }
    return KVR_OK;
}

void kvr_index_cleared(struct kvr_index *index, uint32_t worker, enum kvr_medium medium)
{
    if (!index->workers[worker].exact) {
        /* All that is guessed lies in the GPU. */
        if (medium == KVR_MEDIUM_GPU)
            kvr_index_worker_clear(index, worker);
        return;
    }
    for (uint32_t record = index->workers[worker].oldest; record;) {
        uint32_t next = index->use[record].newer;
        index->use[record].copies[medium] = 0;
        drop_without_copies(index, record);
        record = next;
    }
}
