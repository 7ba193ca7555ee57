/*
 * HTTP/1.1 messages (RFC 9112), read strictly: where two readers could disagree about where a
 * message ends, there is no message. That is the whole defence against request smuggling, so it
 * stands in one place and serves both sides of a proxy:
 *
 * - lines end with CR LF and nothing else; no NUL, no bare CR, no control bytes in values;
 * - no space before a header's colon, no folded lines, names are tokens;
 * - Content-Length at most once, digits only; Transfer-Encoding only "chunked", at most once, never
 *   beside Content-Length, never in HTTP/1.0;
 * - one Host in an HTTP/1.1 request; the target is a path;
 * - chunk sizes are hexadecimal digits; extensions are passed over, trailers dropped.
 *
 * Nothing is copied: texts of a head point into the bytes that were parsed.
 */
#ifndef KVR_NET_HTTP_H
#define KVR_NET_HTTP_H

#include "line/json.h"

enum { KVR_HTTP_HEADERS = 100, KVR_HTTP_HEAD_BYTES = 64 * 1024 };

struct kvr_http_header {
    struct kvr_text name, value;
    bool hop; /* of this connection only: not to be passed on */
};

struct kvr_http_head {
    struct kvr_text method, target; /* of a request */
    unsigned status;                /* of a response; of a request that is refused: with what */
    unsigned minor;                 /* HTTP/1.minor */
    struct kvr_http_header headers[KVR_HTTP_HEADERS];
    size_t header_count;
    size_t length;          /* bytes, with the empty line */
    int64_t content_length; /* -1: none */
    bool chunked, keeps_alive, expects_continue;
};

/* KVR_END: the head is not whole yet. KVR_BAD_INPUT: refused, head->status is 400, 431, 501 or 505
 * and error says why. */
enum kvr_status kvr_http_request(
    struct kvr_http_head *head, const char *bytes, size_t length, struct kvr_error *error);
/* KVR_BAD_INPUT: not an answer that can be trusted. */
enum kvr_status kvr_http_response(
    struct kvr_http_head *head, const char *bytes, size_t length, struct kvr_error *error);

/* The value of the first header of that name (small letters); text NULL where there is none. */
struct kvr_text kvr_http_header(const struct kvr_http_head *head, const char *name);

static inline bool kvr_text_is(struct kvr_text text, const char *word)
{
    return text.length == strlen(word) && memcmp(text.text, word, text.length) == 0;
}

/* Whether letters of any case are the same. word is in small letters. */
bool kvr_text_is_word(struct kvr_text text, const char *word);

/* Where a body ends, and its payload piece by piece. */
enum kvr_http_framing {
    KVR_HTTP_NO_BODY,
    KVR_HTTP_LENGTH,
    KVR_HTTP_CHUNKED,
    KVR_HTTP_UNTIL_CLOSE, /* answers only */
};

struct kvr_http_body {
    enum kvr_http_framing framing;
    uint64_t left; /* bytes of the body, or of the chunk */
    bool ended;
    /* private */
    unsigned char state;
    unsigned digits, line_bytes;
};

void kvr_http_request_body(struct kvr_http_body *body, const struct kvr_http_head *head);
/* to_head: the request's method was HEAD. */
void kvr_http_response_body(
    struct kvr_http_body *body, const struct kvr_http_head *head, bool to_head);

/*
 * Takes bytes off *bytes: the next piece of payload is put into *piece (length 0: none for now).
 * Call until *length is 0 or the body has ended. KVR_BAD_INPUT for chunks that are none.
 */
enum kvr_status kvr_http_take(struct kvr_http_body *body, const char **bytes, size_t *length,
    struct kvr_text *piece, struct kvr_error *error);

#endif
