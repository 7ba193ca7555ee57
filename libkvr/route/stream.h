/*
 * Routing and the stream: what a line asks, what an event says, how a decision is written.
 * For kvr-route, and for any program that decides in process.
 */
#ifndef KVR_ROUTE_STREAM_H
#define KVR_ROUTE_STREAM_H

#include "base/clock.h"
#include "line/session.h"
#include "route/router.h"

/* Reads requests; reused from line to line. Zero it, fill in the options, release it at the end. */
struct kvr_route_reader {
    struct kvr_fleet *fleet;
    uint32_t block_tokens;     /* for lines without block_size */
    double kv_bytes_per_token; /* for capacities in bytes; 0: unknown */
    struct kvr_session_reader session;
    bool reads_blocks; /* fill in block_ids and system */
    /* private */
    struct kvr_buffer scratch;
    struct kvr_route_match *matches;
    uint64_t *ids;
    size_t match_capacity, id_capacity;
    struct kvr_stream_clock clock;
};

void kvr_route_reader_release(struct kvr_route_reader *reader);

/*
 * Fills *request from a request line; what it points to is valid until the next call. Workers named
 * in `match` that nobody has announced join the fleet.
 *
 * session is as line/session.h says. input_tokens comes from input_length, else from the
 * blocks, the token_ids, or the text at four bytes a token. KVR_BAD_INPUT where a member has the
 * wrong type.
 */
enum kvr_status kvr_route_read(struct kvr_route_reader *reader, const struct kvr_line *line,
    struct kvr_route_request *request, struct kvr_error *error);

/* The workers of a line that is routed already, route.worker and route.decode, joining them where
 * they are new; KVR_NO_WORKER where there is none. */
enum kvr_status kvr_route_read_routed(struct kvr_route_reader *reader, const struct kvr_line *line,
    uint32_t *worker, uint32_t *decode_worker, struct kvr_error *error);

/* Acts on a worker, load or done line; lets any other event be. */
enum kvr_status kvr_route_event(
    struct kvr_route_reader *reader, const struct kvr_line *line, struct kvr_error *error);

/* The change that a worker line or a -w argument describes; given tells which members it had. */
enum kvr_status kvr_route_worker(struct kvr_route_reader *reader,
    const struct kvr_worker_description *worker, bool has_role, bool has_weight,
    struct kvr_error *error);

/* Appends the value of `route`; with candidates (may be NULL) as its last member. */
void kvr_route_write(const struct kvr_fleet *fleet, const struct kvr_route_decision *decision,
    const struct kvr_route_candidate *candidates, uint32_t candidate_count, struct kvr_buffer *out);

#endif
