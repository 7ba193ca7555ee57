#include "cache/replay.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_LIVE = 1 << 20 };

enum kvr_status kvr_replay_init(struct kvr_replay *replay, struct kvr_cache *cache,
    uint32_t live_limit, bool skip_last_token, struct kvr_error *error)
{
    memset(replay, 0, sizeof *replay);
    if (live_limit >= MOST_LIVE)
        return kvr_error_set(
            error, KVR_BAD_USAGE, "%u live requests are not below %d", live_limit, MOST_LIVE);
    replay->cache = cache;
    replay->live_limit = live_limit;
    replay->skip_last_token = skip_last_token;
    replay->size = live_limit + 1;
    replay->live = calloc(replay->size, sizeof *replay->live);
    return replay->live ? KVR_OK : kvr_error_memory(error);
}

void kvr_replay_release(struct kvr_replay *replay)
{
    free(replay->live);
    memset(replay, 0, sizeof *replay);
}

static enum kvr_status finish_oldest(struct kvr_replay *replay, struct kvr_error *error)
{
    uint32_t oldest = replay->live[replay->first];
    replay->first = replay->first + 1 == replay->size ? 0 : replay->first + 1;
    replay->count--;
    return kvr_cache_finish(replay->cache, oldest, error);
}

enum kvr_status kvr_replay_finish_all(struct kvr_replay *replay, struct kvr_error *error)
{
    while (replay->count) {
        enum kvr_status status = finish_oldest(replay, error);
        if (status != KVR_OK)
            return status;
    }
    return KVR_OK;
}

static uint64_t evicted_so_far(const struct kvr_cache_stats *stats)
{
    uint64_t sum = 0;
    for (int medium = 0; medium < KVR_MEDIUM_COUNT; medium++)
        sum += stats->evicted_blocks[medium];
    return sum;
}

enum kvr_status kvr_replay_request(struct kvr_replay *replay,
    const struct kvr_cache_request *request, struct kvr_replay_result *result,
    struct kvr_error *error)
{
    struct kvr_cache *cache = replay->cache;
    struct kvr_cache_request view = *request;
    struct kvr_cache_stats stats;
    struct kvr_admission admission;
    enum kvr_status status;

    memset(result, 0, sizeof *result);
    if (replay->skip_last_token && view.output_tokens)
        view.output_tokens--;
    kvr_cache_stats(cache, &stats);
    uint64_t evicted_before = evicted_so_far(&stats);

    for (;;) {
        status = kvr_cache_admit(cache, &view, &admission, error);
        if (status != KVR_OK)
            return status;
        if (admission.admitted || !replay->count)
            break;
        status = finish_oldest(replay, error);
        if (status != KVR_OK)
            return status;
    }
    if (admission.admitted) {
        memcpy(result->hit_blocks, admission.hit_blocks, sizeof result->hit_blocks);
        memcpy(result->hit_tokens, admission.hit_tokens, sizeof result->hit_tokens);
        uint32_t slot = replay->first + replay->count;
        replay->live[slot >= replay->size ? slot - replay->size : slot] = admission.live;
        replay->count++;
        for (;;) {
            uint64_t made = 0;
            status = kvr_cache_output(
                cache, admission.live, view.output_tokens - result->output_tokens, &made, error);
            if (status != KVR_OK)
                return status;
            result->output_tokens += made;
            if (result->output_tokens >= view.output_tokens)
                break;
            if (replay->count == 1) {
                result->truncated = true;
                break;
            }
            status = finish_oldest(replay, error);
            if (status != KVR_OK)
                return status;
        }
    }
    result->rejected = !admission.admitted;
    kvr_cache_stats(cache, &stats);
    result->evicted_blocks = evicted_so_far(&stats) - evicted_before;
    int medium = 0;
    while (medium < KVR_MEDIUM_COUNT - 1 && !stats.capacity_blocks[medium])
        medium++;
    result->usage_blocks = stats.capacity_blocks[medium] - stats.free_blocks;
    while (replay->count > replay->live_limit) {
        status = finish_oldest(replay, error);
        if (status != KVR_OK)
            return status;
    }
    return KVR_OK;
}
