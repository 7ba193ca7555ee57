/*
 * Server-sent events (WHATWG HTML, "event stream interpretation"), in whatever pieces the network
 * delivers them. Only `data` matters to us: its lines, joined by newlines, are handed over at the
 * blank line that ends an event. Comments, `event`, `id` and `retry` are passed over.
 *
 * Lines end with CR LF, LF or CR, also when a pair is cut in two by the network; a byte order mark
 * at the start is no part of the stream; an event that its blank line never ended is dropped.
 *
 * Memory: one event, up to the limit.
 */
#ifndef KVR_NET_SSE_H
#define KVR_NET_SSE_H

#include "base/buffer.h"

struct kvr_sse {
    size_t limit_bytes; /* of one event */
    /* private */
    struct kvr_buffer line, data;
    bool has_data;     /* the event has a data field, maybe an empty one */
    bool after_return; /* a newline now belongs to the carriage return before it */
    bool begun;        /* the byte order mark was dealt with */
};

void kvr_sse_init(struct kvr_sse *sse, size_t limit_bytes);
void kvr_sse_release(struct kvr_sse *sse);

/* Forgets all, for the next stream. */
void kvr_sse_reset(struct kvr_sse *sse);

/* Called with the data of each event; text is valid during the call. */
typedef void kvr_sse_event(void *context, const char *data, size_t length);

/* KVR_BAD_INPUT for an event over the limit, KVR_NO_MEMORY. After either only reset() helps. */
enum kvr_status kvr_sse_feed(struct kvr_sse *sse, const char *bytes, size_t length,
    kvr_sse_event *event, void *context, struct kvr_error *error);

#endif
