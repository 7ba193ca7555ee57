/* Answers of the front end's own, and the headers that all of its answers have. */
#include "net/serve_private.h"

#include <math.h>
#include <stdio.h>

const char *http_reason(unsigned status)
{
    switch (status) {
    case 200:
        return "OK";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 408:
        return "Request Timeout";
    case 413:
        return "Content Too Large";
    case 415:
        return "Unsupported Media Type";
    case 429:
        return "Too Many Requests";
    case 431:
        return "Request Header Fields Too Large";
    case 501:
        return "Not Implemented";
    case 502:
        return "Bad Gateway";
    case 503:
        return "Service Unavailable";
    case 504:
        return "Gateway Timeout";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return status < 400 ? "OK" : "Error";
    }
}

void call_write_common(struct call *call, struct kvr_buffer *out)
{
    if (call->id.length) {
        struct kvr_text given = kvr_http_header(&call->head, "x-request-id");
        kvr_buffer_append_text(out, "x-request-id: ");
        if (given.length)
            kvr_buffer_append(out, given.text, given.length);
        else
            kvr_buffer_append(out, call->id.data, call->id.length);
        kvr_buffer_append_text(out, "\r\n");
    }
    if (call->chosen) {
        kvr_buffer_append_text(out, "x-kvr-worker: ");
        for (const char *at = call->chosen->name; *at; at++) /* a name may be any text */
            kvr_buffer_append_byte(out, (unsigned char)*at < ' ' || *at == 0x7f ? '?' : *at);
        kvr_buffer_append_text(out, "\r\n");
    }
    if (call->reason[0]) {
        kvr_buffer_append_text(out, "x-kvr-reason: ");
        kvr_buffer_append_text(out, call->reason);
        kvr_buffer_append_text(out, "\r\n");
    }
    if (call->guest->closing)
        kvr_buffer_append_text(out, "Connection: close\r\n");
    else if (call->head.minor == 0)
        kvr_buffer_append_text(out, "Connection: keep-alive\r\n");
}

void call_answer(struct call *call, unsigned status, const char *type, const char *extra,
    const char *body, size_t length)
{
    struct kvr_buffer *out = &call->guest->out;
    bool to_head = call->head.method.length && kvr_text_is(call->head.method, "HEAD");

    kvr_buffer_append_format(out, "HTTP/1.1 %u %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n%s",
        status, http_reason(status), type, length, extra);
    call_write_common(call, out);
    kvr_buffer_append_text(out, "\r\n");
    if (!to_head)
        kvr_buffer_append(out, body, length);
    call_end(call, status, !call->guest->closing);
}

void call_refuse(struct call *call, unsigned status, const char *why)
{
    struct kvr_serve *serve = call->serve;
    struct kvr_buffer body = {0};
    char extra[128] = "";

    if (status == 503)
        serve->gauges.unavailable++;
    if (status == 429)
        serve->gauges.rejected++;
    if (status == 429 || status == 503) {
        double after_s = ceil(call->verdict.retry_after_ms / 1000);
        snprintf(extra, sizeof extra, "Retry-After: %.0f\r\n",
            !(after_s >= 1)  ? 1
            : after_s > 3600 ? 3600
                             : after_s);
    } else if (status == 401) {
        snprintf(extra, sizeof extra, "WWW-Authenticate: Bearer\r\n");
    }
    kvr_buffer_append_text(&body, "{\"error\":{\"message\":");
    kvr_json_write_string(&body, why, strlen(why));
    kvr_buffer_append_format(&body, ",\"type\":\"%s\",\"code\":%u}}\n",
        status < 500 ? "invalid_request_error" : "server_error", status);
    call_answer(call, status, "application/json", extra, body.data ? body.data : "", body.length);
    kvr_buffer_release(&body);
}
