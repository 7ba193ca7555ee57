/*
 * How far an approximate mirror is off: the same requests matched twice, once by the mirror that
 * learns from placements, once by an index that is fed the workers' own cache events, and compared
 * for each worker that sends any.
 *
 *   not there   tokens that the mirror promised and the worker does not hold (it evicted them
 *               earlier than the mirror thought, or lost them)
 *   not known   tokens that the worker holds and the mirror does not know (kept longer, or placed
 *               by someone else)
 *   lost        tokens that a router loses by believing the mirror: the longest real match anywhere
 *               less the real match of the worker with the longest promised one (of several such,
 *               the best; where nothing is promised, 0). This says whether approximate routing is
 * good enough.
 *
 * Both answers are taken before the request's own placement is learned.
 */
#ifndef KVR_CACHE_AUDIT_H
#define KVR_CACHE_AUDIT_H

#include "cache/match.h"

struct kvr_audit;

/* options: the mirror's; its bounds do not hold for the events' index, but for max_memory_bytes. */
enum kvr_status kvr_audit_create(
    struct kvr_audit **audit, const struct kvr_match_options *options, struct kvr_error *error);
void kvr_audit_destroy(struct kvr_audit *audit);

/* Takes an event line, and tells whether it is one that the mirror must not see. */
enum kvr_status kvr_audit_event(struct kvr_audit *audit, const struct kvr_line *line,
    bool *cache_event, struct kvr_error *error);

/* Compares for one request line, which the mirror has read as `request`. */
enum kvr_status kvr_audit_request(struct kvr_audit *audit, struct kvr_matcher *mirror,
    const struct kvr_match_request *request, const struct kvr_line *line, struct kvr_error *error);

/* Appends the figures as an event line's object: {"event":"audit",…}. */
void kvr_audit_write(const struct kvr_audit *audit, struct kvr_buffer *out);

/* The same as lines of text for people, a worker a line and the total. */
void kvr_audit_table(const struct kvr_audit *audit, struct kvr_buffer *out);

#endif
