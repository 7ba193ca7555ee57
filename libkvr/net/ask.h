/*
 * From a request line to the HTTP request that an OpenAI-compatible endpoint takes: messages (and
 * tools) become a chat completion, a prompt or token_ids a completion. Values of the line are
 * copied as they stand.
 */
#ifndef KVR_NET_ASK_H
#define KVR_NET_ASK_H

#include "line/line.h"

struct kvr_ask_options {
    const char *model;   /* for lines without one; NULL: none */
    uint64_t max_tokens; /* for lines without output_length */
    bool stream;
    struct kvr_value members; /* an object whose members are added to each body; or absent */
};

/*
 * Appends the body of the line's request to *body and tells its path. prompt (text NULL: the
 * line's own content) stands in place of what the line asks. KVR_BAD_INPUT where the line has
 * nothing to send.
 */
enum kvr_status kvr_ask_write(const struct kvr_ask_options *options, const struct kvr_line *line,
    struct kvr_text prompt, struct kvr_buffer *body, const char **path, struct kvr_error *error);

/* Appends base without a "/" or "/v1" at its end, then path. */
void kvr_ask_url(const char *base, size_t length, const char *path, struct kvr_buffer *url);

#endif
