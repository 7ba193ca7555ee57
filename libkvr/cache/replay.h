/*
 * Replays a trace through one cache, request after request, with K earlier requests still live.
 *
 * A trace says what was asked, not when each request ended, so the replay keeps a window: a request
 * is admitted, generates its whole output, and stays live until K newer ones are. K = 0 is serial
 * service. Where a request does not fit, the oldest live one ends first, as often as needed; where
 * none is left, the request is rejected (at admission) or truncated (while it generates).
 */
#ifndef KVR_CACHE_REPLAY_H
#define KVR_CACHE_REPLAY_H

#include "cache/engine.h"

struct kvr_replay {
    struct kvr_cache *cache;
    uint32_t live_limit; /* K */
    /* An engine in service computes no KV for the last token it generates. Set for real logs. */
    bool skip_last_token;
    uint32_t *live; /* a ring of handles, oldest at `first` */
    uint32_t first, count, size;
};

struct kvr_replay_result {
    bool rejected;
    bool truncated;
    uint64_t hit_blocks[KVR_MEDIUM_COUNT];
    uint64_t hit_tokens[KVR_MEDIUM_COUNT];
    uint64_t output_tokens;  /* generated, at most the request's */
    uint64_t evicted_blocks; /* of every medium, while this request was served */
    uint64_t usage_blocks;   /* capacity - free, after its last token, before any request ends */
};

/* The cache stays the caller's. live_limit below 2^20. */
enum kvr_status kvr_replay_init(struct kvr_replay *replay, struct kvr_cache *cache,
    uint32_t live_limit, bool skip_last_token, struct kvr_error *error);
void kvr_replay_release(struct kvr_replay *replay);

/* Serves one request. Evictions and stores reach the cache's sink while it runs. */
enum kvr_status kvr_replay_request(struct kvr_replay *replay,
    const struct kvr_cache_request *request, struct kvr_replay_result *result,
    struct kvr_error *error);

/* After the trace: finishes what is live, oldest first. */
enum kvr_status kvr_replay_finish_all(struct kvr_replay *replay, struct kvr_error *error);

#endif
