/*
 * Any bytes as an HTTP message. The first byte says request or answer, the second how a body is
 * cut. A head is the same whole and in front of more bytes, lies inside what was given, and a body
 * gives the same payload and the same end however it is cut.
 */
#include "net/http.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool law)
{
    if (!law)
        abort();
}

static size_t read_body(const struct kvr_http_body *first, const char *bytes, size_t size,
    size_t step, struct kvr_buffer *payload, enum kvr_status *status)
{
    struct kvr_http_body body = *first;
    struct kvr_text piece;
    size_t taken = 0;

    *status = KVR_OK;
    while (taken < size && !body.ended && *status == KVR_OK) {
        const char *at = bytes + taken;
        size_t length = size - taken < step ? size - taken : step, had = length;
        *status = kvr_http_take(&body, &at, &length, &piece, NULL);
        require(piece.length == 0 ||
                (piece.text >= bytes && piece.text + piece.length <= bytes + size));
        if (*status == KVR_OK)
            kvr_buffer_append(payload, piece.text, piece.length);
        taken += had - length;
    }
    return taken;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct kvr_http_head head, again;
    struct kvr_buffer whole = {0}, cut = {0};
    struct kvr_http_body body;
    enum kvr_status one, other;

    if (size < 3)
        return 0;
    const char *bytes = (const char *)data + 2;
    size_t length = size - 2;
    bool request = data[0] & 1;
    enum kvr_status status = request ? kvr_http_request(&head, bytes, length, NULL)
                                     : kvr_http_response(&head, bytes, length, NULL);
    if (status == KVR_BAD_INPUT && request)
        require(head.status >= 400 && head.status < 600);
    if (status != KVR_OK)
        return 0;
    require(head.length <= length && head.header_count <= KVR_HTTP_HEADERS);
    status = request ? kvr_http_request(&again, bytes, head.length, NULL)
                     : kvr_http_response(&again, bytes, head.length, NULL);
    require(status == KVR_OK && again.length == head.length);
    require(!(head.chunked && head.content_length >= 0));
    if (request)
        kvr_http_request_body(&body, &head);
    else
        kvr_http_response_body(&body, &head, data[0] & 2);
    size_t taken =
        read_body(&body, bytes + head.length, length - head.length, length, &whole, &one);
    size_t step = 1 + data[1] % 16;
    size_t same = read_body(&body, bytes + head.length, length - head.length, step, &cut, &other);
    require(one == other && (one != KVR_OK || taken == same));
    require(whole.length == cut.length &&
            (!whole.length || memcmp(whole.data, cut.data, whole.length) == 0));
    kvr_buffer_release(&whole);
    kvr_buffer_release(&cut);
    return 0;
}
