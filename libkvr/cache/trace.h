/*
 * A trace in memory: what the questions that need all of it (--sweep, --curve, --advise, belady)
 * replay again and again. 8 bytes a block access and 56 a request.
 */
#ifndef KVR_CACHE_TRACE_H
#define KVR_CACHE_TRACE_H

#include "cache/regroup.h"
#include "cache/request_line.h"

struct kvr_trace_request {
    size_t first; /* of its ids in kvr_trace.ids */
    uint32_t count;
    uint16_t tenant;
    uint64_t input_tokens;
    uint64_t identity, session;
    double time_ms;
};

struct kvr_trace {
    uint32_t block_tokens;
    uint64_t *ids;
    size_t id_count, id_size;
    struct kvr_trace_request *requests;
    size_t request_count, request_size;
    uint32_t *future; /* of the ids; made by kvr_trace_look_ahead() */
    struct kvr_regrouped regrouped;
};

void kvr_trace_release(struct kvr_trace *trace);

/* Appends a request, regrouped where its ids are of another size. block_tokens must be set. */
enum kvr_status kvr_trace_add(
    struct kvr_trace *trace, const struct kvr_request_view *view, struct kvr_error *error);

/* Fills in future. */
enum kvr_status kvr_trace_look_ahead(struct kvr_trace *trace, struct kvr_error *error);

/* Reads whole request lines of a file; for tests and benchmarks. */
enum kvr_status kvr_trace_load(
    struct kvr_trace *trace, const char *file, uint32_t block_tokens, struct kvr_error *error);

/* Serves one request, with its tags and time. */
enum kvr_status kvr_trace_serve(const struct kvr_trace *trace, size_t request,
    struct kvr_cache *cache, uint64_t *hit_blocks, uint64_t *hit_tokens, struct kvr_error *error);

/* Serves the requests [from, to) one after the other. */
enum kvr_status kvr_trace_replay(const struct kvr_trace *trace, struct kvr_cache *cache,
    size_t from, size_t to, struct kvr_error *error);

#endif
