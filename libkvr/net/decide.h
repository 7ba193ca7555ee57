/*
 * Decisions in process: tokens, match, route, learn, for a front end that gets requests one by one.
 * What kvr-tokenize | kvr-match | kvr-route do with the line of a request, without the programs.
 *
 * A request line comes in two parts: the head, up to the content, and the content (messages, tools,
 * prompt, token_ids) with the closing brace. Only tokenizing looks at the content; everything
 * behind it works on a short line, head and block ids, which is also what goes into the log.
 */
#ifndef KVR_NET_DECIDE_H
#define KVR_NET_DECIDE_H

#include "sim/desk.h"
#include "token/annotate.h"

struct kvr_decider;

struct kvr_decider_options {
    struct kvr_desk_options desk;
    struct kvr_models *models; /* NULL: no tokens, for policies that look at none */
    struct kvr_annotate_options annotate;
};

/* The models must outlive the decider. */
enum kvr_status kvr_decider_create(struct kvr_decider **decider,
    const struct kvr_decider_options *options, struct kvr_error *error);
void kvr_decider_destroy(struct kvr_decider *decider);

/* What became of a request. */
struct kvr_decide_verdict {
    char worker[256];      /* empty: none */
    char reason[32];       /* of the route */
    uint64_t matched;      /* tokens that the worker holds */
    uint64_t input_tokens; /* 0: not known */
    double retry_after_ms; /* of a rejection; NaN: not known */
    bool rejected;
};

/*
 * Decides on a request line of content_at bytes of head and the content behind. Appends to *line
 * the line without its content and closing brace, with input_length, hash_ids, match and route.
 * Content that cannot be tokenized is routed without; fails with KVR_NO_MEMORY or KVR_BAD_INPUT.
 */
enum kvr_status kvr_decider_decide(struct kvr_decider *decider, const char *text, size_t length,
    size_t content_at, struct kvr_buffer *line, struct kvr_decide_verdict *verdict,
    struct kvr_error *error);

/* The request of a line, as _decide() has appended it, went to that worker and not where it was
 * decided. */
void kvr_decider_corrected(
    struct kvr_decider *decider, const struct kvr_buffer *line, const char *worker);

/* Another line of the stream: a worker's change, a load or cache event, done, or a request that
 * another router has placed. KVR_BAD_INPUT where it is none of them. */
enum kvr_status kvr_decider_tell(
    struct kvr_decider *decider, const char *text, size_t length, struct kvr_error *error);

#endif
