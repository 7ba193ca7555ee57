/*
 * Any parameters and any life of a cache: no engine leaves its bounds, loses a block or a request.
 * Input: engine, capacity, block size; parameters up to a newline; then operations of four bytes.
 */
#include "cache/engine.h"

#include <stdlib.h>
#include <string.h>

enum { LIVE = 12, IDS = 40, PARAMETERS = 32 };

static void require(bool truth)
{
    if (!truth)
        abort();
}

struct tally {
    uint64_t stored[KVR_MEDIUM_COUNT], removed[KVR_MEDIUM_COUNT], visited;
};

static void removed(void *context, enum kvr_medium medium, const uint64_t *ids, size_t count)
{
    struct tally *tally = context;
    require(ids && count);
    tally->removed[medium] += count;
}

static void stored(void *context, enum kvr_medium medium, const uint64_t *parent,
    const uint64_t *ids, size_t count)
{
    struct tally *tally = context;
    (void)parent;
    require(ids && count);
    tally->stored[medium] += count;
}

static void cleared(void *context, enum kvr_medium medium)
{
    struct tally *tally = context;
    tally->removed[medium] = tally->stored[medium];
}

static void visit(void *context, uint64_t id)
{
    struct tally *tally = context;
    (void)id;
    tally->visited++;
}

static void check(const struct kvr_cache *cache, struct tally *tally, uint64_t live)
{
    struct kvr_cache_stats stats;
    kvr_cache_stats(cache, &stats);
    require(stats.live == live);
    for (int medium = 0; medium < KVR_MEDIUM_COUNT; medium++) {
        tally->visited = 0;
        kvr_cache_resident(cache, (enum kvr_medium)medium, visit, tally);
        require(tally->visited == stats.resident_blocks[medium]);
        require(stats.resident_blocks[medium] <= stats.capacity_blocks[medium]);
        require(stats.inserted_blocks[medium] == stats.evicted_blocks[medium] +
                                                     stats.cleared_blocks[medium] +
                                                     stats.resident_blocks[medium]);
        require(tally->stored[medium] - tally->removed[medium] == stats.resident_blocks[medium]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kvr_parameter_value values[PARAMETERS];
    struct kvr_error error;
    struct tally tally = {0};
    struct kvr_cache_sink sink = {&tally, removed, stored, cleared};
    struct kvr_cache *cache;
    uint32_t live[LIVE];
    size_t live_count = 0;
    double now = 0;

    if (size < 4)
        return 0;
    const struct kvr_engine *engine = kvr_engines[data[0] % kvr_engine_count];
    struct kvr_engine_options options = {.capacity_blocks = 1 + data[1] % 64,
        .block_tokens = 1 + data[2] % 32,
        .values = values,
        .sink = &sink};
    const uint8_t *text = data + 3, *end = memchr(text, '\n', size - 3);
    if (!end || engine->parameter_count > PARAMETERS)
        return 0;
    require(kvr_parameter_defaults(engine->parameters, engine->parameter_count, values, &error) ==
            KVR_OK);
    if (kvr_parameter_read(engine->parameters, engine->parameter_count, (const char *)text,
            (size_t)(end - text), values, &error) != KVR_OK)
        require(error.text[0]);
    if (kvr_cache_create(engine, &options, &cache, &error) != KVR_OK)
        return 0;
    const uint8_t *at = end + 1, *stop = data + size;
    if (stop - at > 4 * 500)
        stop = at + 4 * 500;
    for (; stop - at >= 4; at += 4) {
        uint64_t ids[IDS], made;
        size_t count = at[1] % (IDS / 2), more = at[2] % (IDS / 2), pinned;
        /* a chain: what comes after depends on what came before, for most seeds */
        for (size_t i = 0; i < IDS; i++)
            ids[i] = i < at[3] % 16u ? 1 + i : (uint64_t)at[3] * (i + 1) % 61 + 20;
        struct kvr_pin pin = {.time_ms = now, .duration_ms = at[2] * 20.0, .soft = at[3] & 1};
        now += at[0] & 0x30 ? 1 : at[2] * 50.0;
        switch (at[0] % 8) {
        case 0:
        case 1:
        case 2: {
            struct kvr_admission answer;
            struct kvr_cache_request request = {.ids = ids,
                .id_count = count,
                .output_ids = ids + count,
                .output_id_count = more,
                .input_tokens = (uint64_t)count * options.block_tokens + at[2] % 40,
                .output_tokens = at[3] % 90,
                .block_tokens = at[0] & 8 ? options.block_tokens * 2 : options.block_tokens,
                .priority = at[3] % 4,
                .time_ms = now};
            if (live_count < LIVE && kvr_cache_admit(cache, &request, &answer, &error) == KVR_OK &&
                answer.admitted)
                live[live_count++] = answer.live;
            break;
        }
        case 3:
        case 4:
            if (live_count)
                require(kvr_cache_output(cache, live[at[1] % live_count], at[2], &made, &error) ==
                            KVR_OK &&
                        made <= at[2]);
            break;
        case 5:
            if (live_count) {
                size_t which = at[1] % live_count;
                require(kvr_cache_finish(cache, live[which], &error) == KVR_OK);
                live[which] = live[--live_count];
            }
            break;
        case 6:
            if (at[0] & 64)
                kvr_cache_unpin(cache, ids, count, &error);
            else
                kvr_cache_pin(cache, ids, count, &pin, &pinned, &error);
            break;
        default:
            if (at[1] < 16)
                kvr_cache_clear(cache);
        }
        check(cache, &tally, live_count);
    }
    while (live_count)
        require(kvr_cache_finish(cache, live[--live_count], &error) == KVR_OK);
    check(cache, &tally, 0);
    kvr_cache_destroy(cache);
    return 0;
}
