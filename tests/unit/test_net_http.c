/* HTTP that is read strictly: what is taken, what is refused, where bodies end however cut. */
#include "net/http.h"
#include "tests/unit/unit.h"

#define HOST "Host: a\r\n"

static unsigned request(const char *text)
{
    struct kvr_http_head head;
    struct kvr_error error;
    enum kvr_status status = kvr_http_request(&head, text, strlen(text), &error);

    return status == KVR_OK ? 200 : status == KVR_END ? 0 : head.status;
}

static void requests_that_two_readers_could_read_differently_are_refused(void **state)
{
    static const struct {
        unsigned status;
        const char *text;
    } cases[] = {
        {200, "GET / HTTP/1.1\r\n" HOST "\r\n"},
        {200, "POST /v1/x?y=%20 HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\nhello"},
        {200, "POST / HTTP/1.1\r\n" HOST "transfer-encoding: Chunked\r\n\r\n"},
        {200, "GET / HTTP/1.0\r\n\r\n"},
        {0, "GET / HTTP/1.1\r\n" HOST},
        {0, ""},
        /* lengths */
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 5, 5\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: +5\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: -5\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 0x5\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 9999999999999999999\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST
              "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n"},
        {501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n"},
        {501, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: identity\r\n\r\n"},
        {400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding : chunked\r\n\r\n"},
        {400, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding:\x0b"
              "chunked\r\n\r\n"},
        /* lines */
        {400, "GET / HTTP/1.1\n"
              "Host: a\n\n"},
        {400, "GET / HTTP/1.1\r\n"
              "Host: a\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST " folded: x\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "x: a\rb\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "no colon\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST ": x\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST "a b: x\r\n\r\n"},
        {400, "\r\nGET / HTTP/1.1\r\n" HOST "\r\n"},
        /* request lines */
        {400, "GET  / HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET / x HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET http://a/ HTTP/1.1\r\n" HOST "\r\n"},
        {400, "G(T / HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET /\xff HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET /a#b HTTP/1.1\r\n" HOST "\r\n"},
        {400, "GET /\r\n" HOST "\r\n"},
        {505, "GET / HTTP/2.0\r\n" HOST "\r\n"},
        {400, "GET / http/1.1\r\n" HOST "\r\n"},
        /* hosts */
        {400, "GET / HTTP/1.1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n" HOST HOST "\r\n"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (request(cases[i].text) != cases[i].status)
            fail_msg("case %zu: %u in place of %u", i, request(cases[i].text), cases[i].status);
}

static void a_nul_byte_is_refused(void **state)
{
    static const char text[] = "GET / HTTP/1.1\r\nHost: a\r\nx: a\0b\r\n\r\n";
    struct kvr_http_head head;
    struct kvr_error error;

    (void)state;
    assert_int_equal(kvr_http_request(&head, text, sizeof text - 1, &error), KVR_BAD_INPUT);
    assert_int_equal(head.status, 400);
}

static void large_heads_are_refused_before_they_end(void **state)
{
    struct kvr_buffer text = {0};
    struct kvr_http_head head;
    struct kvr_error error;

    (void)state;
    kvr_buffer_append_text(&text, "GET / HTTP/1.1\r\n" HOST);
    for (int i = 0; i < KVR_HTTP_HEADERS; i++)
        kvr_buffer_append_text(&text, "x: y\r\n");
    kvr_buffer_append_text(&text, "\r\n");
    assert_int_equal(kvr_http_request(&head, text.data, text.length, &error), KVR_BAD_INPUT);
    assert_int_equal(head.status, 431);
    kvr_buffer_clear(&text);
    kvr_buffer_append_text(&text, "GET /");
    while (text.length < KVR_HTTP_HEAD_BYTES)
        kvr_buffer_append_byte(&text, 'a');
    assert_int_equal(kvr_http_request(&head, text.data, text.length, &error), KVR_BAD_INPUT);
    assert_int_equal(head.status, 431);
    kvr_buffer_release(&text);
}

static bool is_hop(const struct kvr_http_head *head, const char *name)
{
    for (size_t i = 0; i < head->header_count; i++)
        if (kvr_text_is_word(head->headers[i].name, name))
            return head->headers[i].hop;
    return false;
}

static void headers_of_one_hop_are_marked(void **state)
{
    static const char text[] =
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close, X-Mine\r\nx-mine: 1\r\n"
        "TE: trailers\r\nKeep-Alive: 5\r\nX-Other: 2\r\n\r\n";
    struct kvr_http_head head;
    struct kvr_error error;

    (void)state;
    assert_int_equal(kvr_http_request(&head, text, sizeof text - 1, &error), KVR_OK);
    assert_false(head.keeps_alive);
    assert_true(is_hop(&head, "x-mine") && is_hop(&head, "te") && is_hop(&head, "keep-alive") &&
                is_hop(&head, "connection"));
    assert_false(is_hop(&head, "x-other"));
    assert_int_equal(head.length, sizeof text - 1);
}

/* The payload of a body that comes `step` bytes at a time; -1 at the end: refused. */
static int read_body(const char *head_text, const char *text, size_t step, struct kvr_buffer *out)
{
    struct kvr_http_head head;
    struct kvr_http_body body;
    struct kvr_error error;
    struct kvr_text piece;

    assert_int_equal(kvr_http_request(&head, head_text, strlen(head_text), &error), KVR_OK);
    kvr_http_request_body(&body, &head);
    kvr_buffer_clear(out);
    for (size_t at = 0; at < strlen(text) && !body.ended;) {
        const char *bytes = text + at;
        size_t length = strlen(text) - at < step ? strlen(text) - at : step;
        at += length;
        while (length && !body.ended) {
            if (kvr_http_take(&body, &bytes, &length, &piece, &error) != KVR_OK)
                return -1;
            kvr_buffer_append(out, piece.text, piece.length);
        }
        at -= length;
    }
    return body.ended;
}

static void chunks_however_cut(void **state)
{
    static const char head[] = "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n";
    static const struct {
        int ended;
        const char *text, *payload;
    } cases[] = {
        {1, "5\r\nhello\r\n0\r\n\r\n", "hello"},
        {1, "5;x=\"y\"\r\nhello\r\n1\r\n!\r\n0\r\n\r\nnext", "hello!"},
        {1, "00A\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n", "0123456789"},
        {0, "5\r\nhel", "hel"},
        {-1, "5\nhello\r\n0\r\n\r\n", ""},
        {-1, "0x5\r\nhello\r\n0\r\n\r\n", ""},
        {-1, " 5\r\nhello\r\n0\r\n\r\n", ""},
        {-1, "5 \r\nhello\r\n0\r\n\r\n", ""},
        {-1, "-5\r\nhello\r\n0\r\n\r\n", ""},
        {-1, "\r\nhello", ""},
        {-1, "5\r\nhelloX\r\n0\r\n\r\n", "hello"},
        {-1, "5\r\nhello\n0\r\n\r\n", "hello"},
        {-1, "5;x\ny\r\nhello", ""},
        {-1, "0\r\n\n", ""},
        {-1, "0\r\nA: b\n\r\n", ""},
        {-1, "ffffffffffffffff\r\n", ""},
    };
    struct kvr_buffer out = {0};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (size_t step = 1; step <= strlen(cases[i].text); step++) {
            assert_int_equal(read_body(head, cases[i].text, step, &out), cases[i].ended);
            assert_int_equal(out.length, strlen(cases[i].payload));
            assert_memory_equal(out.length ? out.data : "", cases[i].payload, out.length);
        }
    }
    kvr_buffer_release(&out);
}

static int response(const char *text)
{
    struct kvr_http_head head;
    struct kvr_error error;
    enum kvr_status status = kvr_http_response(&head, text, strlen(text), &error);

    return status == KVR_OK ? (int)head.status : status == KVR_END ? 0 : -1;
}

static void answers_that_cannot_be_trusted_are_refused(void **state)
{
    (void)state;
    assert_int_equal(response("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"), 200);
    assert_int_equal(response("HTTP/1.1 404\r\n\r\n"), 404);
    assert_int_equal(response("HTTP/1.0 500 Really bad\r\n\r\n"), 500);
    assert_int_equal(response("HTTP/1.1 200 OK\r\n"), 0);
    assert_int_equal(response("what is this?\r\n\r\n"), -1);
    assert_int_equal(response("HTTP/1.1 20x OK\r\n\r\n"), -1);
    assert_int_equal(response("HTTP/1.1 999 OK\r\n\r\n"), -1);
    assert_int_equal(
        response("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n"), -1);
    assert_int_equal(
        response("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"), -1);
}

static void answers_without_a_body_have_none(void **state)
{
    struct kvr_http_head head = {.status = 204, .content_length = 5};
    struct kvr_http_body body;

    (void)state;
    kvr_http_response_body(&body, &head, false);
    assert_true(body.ended);
    head.status = 200;
    kvr_http_response_body(&body, &head, true);
    assert_true(body.ended);
    kvr_http_response_body(&body, &head, false);
    assert_false(body.ended);
    head.content_length = -1;
    kvr_http_response_body(&body, &head, false);
    assert_int_equal(body.framing, KVR_HTTP_UNTIL_CLOSE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_that_two_readers_could_read_differently_are_refused),
        cmocka_unit_test(a_nul_byte_is_refused),
        cmocka_unit_test(large_heads_are_refused_before_they_end),
        cmocka_unit_test(headers_of_one_hop_are_marked),
        cmocka_unit_test(chunks_however_cut),
        cmocka_unit_test(answers_that_cannot_be_trusted_are_refused),
        cmocka_unit_test(answers_without_a_body_have_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
