/*
 * The closed loop: requests go out one by one, and each one's placement comes back through a FIFO
 * (line/loop.h) before the next is matched, so that the decisions of separate programs are those
 * that one process would have made.
 *
 *     matcher ──► out ──► router ──► tee ──► …
 *        ▲                            │
 *        └─────────── loop ───────────┘
 *
 * Three things can go wrong, and none of them may hang or flood:
 * - A placement does not come in time. That is said once, and then nothing is waited for until
 *   placements come back again: a broken loop costs one timeout, not one a request.
 * - Event lines come back as well and are not awaited. Many of them would fill the loop, and
 * whoever writes into a full loop stops reading us. So beyond what pipes hold anyway, output is
 * written in small pieces, and the loop is read while there is no room.
 * - At the end, whoever writes into the loop must not meet a closed pipe: it is read until its
 *   writers have gone. They go when our output ends; but whoever started us may hold that open too
 *   (timeout(1) does), so silence ends it as well, a short one when every placement is back.
 */
#ifndef KVR_CACHE_FEEDBACK_H
#define KVR_CACHE_FEEDBACK_H

#include "cache/match.h"
#include "line/writer.h"

struct kvr_feedback;

struct kvr_feedback_options {
    const char *name;        /* of the FIFO; kept by pointer */
    double timeout_ms;       /* the longest wait for a placement */
    size_t line_limit_bytes; /* a longer line that comes back is bad */
    struct kvr_writer *out;  /* where requests go out; borrowed */
    /* Told of bad lines and failures, and of warnings (status KVR_OK). */
    void (*say)(void *context, const struct kvr_error *error);
    void *context;
    bool (*interrupted)(void); /* true ends every wait */
};

/* The caller closes. KVR_IO when name is no FIFO or socket that can be read. */
enum kvr_status kvr_feedback_open(struct kvr_feedback **feedback, struct kvr_matcher *matcher,
    const struct kvr_feedback_options *options, struct kvr_error *error);
void kvr_feedback_close(struct kvr_feedback *feedback);

/* The request that was just put into `out` goes out, and its placement is waited for and learned:
 * by id (as the line has it; type KVR_ABSENT where it has none: by order). */
void kvr_feedback_await(struct kvr_feedback *feedback, struct kvr_value id);

/* To be called when `out` is closed: learns what still comes. */
void kvr_feedback_drain(struct kvr_feedback *feedback);

#endif
