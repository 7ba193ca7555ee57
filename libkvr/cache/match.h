/*
 * Matching and the stream: what the prefix index learns from lines, and how its answer is written.
 * For kvr-match, and for any program that matches in process.
 *
 *     request line ──► kvr_match_read ──► kvr_match_write   "match" (and "tiers")
 *                                    └──► kvr_match_learn   a line that names its worker
 *     event line   ──► kvr_match_event                      worker, stored, removed, cleared
 */
#ifndef KVR_CACHE_MATCH_H
#define KVR_CACHE_MATCH_H

#include "cache/index.h"
#include "line/worker.h"

struct kvr_match_options {
    struct kvr_capacity capacity; /* of each worker; amount 0: unbounded */
    uint32_t block_size;          /* tokens, for lines without block_size */
    double kv_bytes_per_token;    /* for capacities in bytes; 0: unknown */
    int64_t ttl_ms;               /* 0: never */
    uint64_t max_memory_bytes;    /* of the index; 0: no bound */
    uint64_t top;                 /* only so many workers, longest first; 0: all, by worker */
    uint64_t min_tokens;          /* a shorter match is left out */
    bool any;                     /* one unbounded mirror of every prompt, called "any" */
    bool tiers;
};

struct kvr_matcher;

/* KVR_BAD_USAGE for options that are out of range or do not go together. */
enum kvr_status kvr_matcher_create(
    struct kvr_matcher **matcher, const struct kvr_match_options *options, struct kvr_error *error);
void kvr_matcher_destroy(struct kvr_matcher *matcher);

/* For statistics and the state file. After a kvr_index_load(), also one that failed, call
 * kvr_matcher_loaded(): KVR_BAD_INPUT, and an empty index, for a state that is not of this mode. */
struct kvr_index *kvr_matcher_index(struct kvr_matcher *matcher);
enum kvr_status kvr_matcher_loaded(struct kvr_matcher *matcher, struct kvr_error *error);

/*
 * The workers of a -w argument, at the start or again: new ones are created, capacities set, and
 * those that an earlier call named and this one does not are removed. Worker lines that say so are
 * appended to `out` (may be NULL), each with its newline, for the programs behind.
 */
enum kvr_status kvr_matcher_workers(struct kvr_matcher *matcher, const char *argument,
    struct kvr_buffer *out, struct kvr_error *error);

/* A request line, read; what it points to is valid until the next read. */
struct kvr_match_request {
    struct kvr_blocks blocks; /* count 0 where the line has no hash_ids */
    bool has_blocks;          /* it has hash_ids */
    uint64_t input_tokens;    /* UINT64_MAX where the line does not tell */
    int64_t time_ms;
    struct kvr_text worker; /* of route.worker; length 0: none */
    bool routed;            /* it has a route, maybe with worker null */
};

/* KVR_BAD_INPUT where a member has the wrong type. */
enum kvr_status kvr_match_read(struct kvr_matcher *matcher, const struct kvr_line *line,
    struct kvr_match_request *request, struct kvr_error *error);

/* Appends the value of `match`: {"w0":4096,…}; and, with options.tiers, `,"tiers":{…}` after it. */
void kvr_match_write(
    struct kvr_matcher *matcher, const struct kvr_match_request *request, struct kvr_buffer *out);

/* Learns where the request went: to request->worker, or, with options.any, into the one mirror. No
 * worker: nothing. KVR_BAD_INPUT where the worker's blocks have another size. */
enum kvr_status kvr_match_learn(
    struct kvr_matcher *matcher, const struct kvr_match_request *request, struct kvr_error *error);

/* Acts on a worker, stored, removed or cleared line; lets any other event be. */
enum kvr_status kvr_match_event(
    struct kvr_matcher *matcher, const struct kvr_line *line, struct kvr_error *error);

/* Placements and stored events so far: 0 after many requests means that the loop is open. */
uint64_t kvr_matcher_learned(const struct kvr_matcher *matcher);

#endif
