/*
 * The life of a request: a line, a decision, an attempt at a worker or several, the answer passed
 * on, a line in the log.
 *
 *   BODY ─► DECIDING ─┬─► PROXYING ─► answered          a worker that cannot be reached, or breaks
 *                     │      │                          before a byte of its answer has gone on to
 *                     │      └─► WAITING ─► PROXYING     the client: somewhere else, after a pause
 *                     └─► rejected (429), none (503)
 */
#include "net/serve_private.h"

#include "base/clock.h"
#include "base/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SPARE_CALLS = 512, KEEP_BYTES = 64 * 1024, RETRY_PAUSE_MS = 20 };

static void timer_due(struct kvr_timer *timer);

/* ---- calls ---- */

struct call *call_new(struct kvr_serve *serve, struct guest *guest)
{
    struct call *call = serve->spare;
    struct kvr_error error;

    if (call) {
        serve->spare = call->next;
        serve->spare_count--;
    } else {
        call = calloc(1, sizeof *call);
        if (!call || kvr_answer_init(&call->answer, &error) != KVR_OK) {
            free(call);
            return NULL;
        }
        call->timer.due = timer_due;
    }
    call->serve = serve;
    call->guest = guest;
    call->state = CALL_BODY;
    call->counted_bytes = 0;
    call->begun_ms = serve->reactor.now_ms;
    call->first_ms = NAN;
    call->generates = call->told = call->was_answered = call->head_sent = call->chunks = false;
    call->counts_answer = false;
    call->gathering = NULL;
    call->tries = 0;
    call->tried = 0;
    call->number = 0;
    call->chosen = NULL;
    call->reason = "";
    call->verdict = (struct kvr_decide_verdict){.retry_after_ms = NAN};
    serve->call_count++;
    return call;
}

static void shrink(struct kvr_buffer *buffer)
{
    kvr_buffer_clear(buffer);
    if (buffer->capacity > KEEP_BYTES)
        kvr_buffer_release(buffer);
}

void call_destroy(struct call *call)
{
    kvr_exchange_release(&call->exchange);
    kvr_answer_release(&call->answer);
    kvr_buffer_release(&call->body);
    kvr_buffer_release(&call->id);
    kvr_buffer_release(&call->request);
    kvr_buffer_release(&call->line);
    kvr_buffer_release(&call->head_out);
    kvr_reactor_discard(&call->serve->reactor, call);
}

void call_free(struct call *call)
{
    struct kvr_serve *serve = call->serve;

    kvr_exchange_cancel(&call->exchange);
    admin_forget(call);
    kvr_reactor_stop(&serve->reactor, &call->timer);
    if (call->number && call->state == CALL_DECIDING)
        kvr_u64_map_remove(&serve->deciding, call->number, NULL);
    serve->buffered_bytes -= call->counted_bytes;
    serve->call_count--;
    if (serve->spare_count >= SPARE_CALLS) {
        call_destroy(call);
        return;
    }
    shrink(&call->body);
    shrink(&call->id);
    shrink(&call->request);
    shrink(&call->line);
    shrink(&call->head_out);
    shrink(&call->answer.body);
    shrink(&call->answer.sse.line);
    shrink(&call->answer.sse.data);
    call->next = serve->spare;
    serve->spare = call;
    serve->spare_count++;
}

/* ---- the end ---- */

void call_client_gone(struct call *call)
{
    call->guest = NULL;
    call->serve->gauges.client_gone++;
    /* 499 is what nginx writes for it, and what people look for. */
    call_note_end(call, 499, "client gone");
    call_free(call);
}

void call_end(struct call *call, unsigned status, bool keeps)
{
    struct guest *guest = call->guest;

    call_note_end(call, status, NULL);
    call->guest = NULL;
    call_free(call);
    guest_call_ended(guest, keeps);
}

/* ---- to the worker ---- */

static void write_request_head(struct call *call, const struct kvr_upstream_worker *backend)
{
    struct kvr_buffer *out = &call->head_out;
    const struct kvr_http_head *head = &call->head;
    bool identified = false;

    kvr_buffer_clear(out);
    kvr_buffer_append(out, head->method.text, head->method.length);
    kvr_buffer_append_byte(out, ' ');
    kvr_buffer_append_text(out, backend->prefix);
    kvr_buffer_append(out, head->target.text, head->target.length);
    kvr_buffer_append_text(out, " HTTP/1.1\r\nHost: ");
    kvr_buffer_append_text(out, backend->host);
    kvr_buffer_append_text(out, "\r\n");
    for (size_t i = 0; i < head->header_count; i++) {
        const struct kvr_http_header *header = &head->headers[i];
        if (header->hop || kvr_text_is_word(header->name, "host") ||
            kvr_text_is_word(header->name, "expect") ||
            kvr_text_is_word(header->name, "accept-encoding") ||
            kvr_text_is_word(header->name, "content-encoding"))
            continue;
        /* The key was for us. */
        if (call->serve->key_count && (kvr_text_is_word(header->name, "authorization") ||
                                          kvr_text_is_word(header->name, "x-api-key")))
            continue;
        identified |= kvr_text_is_word(header->name, "x-request-id");
        kvr_buffer_append(out, header->name.text, header->name.length);
        kvr_buffer_append_text(out, ": ");
        kvr_buffer_append(out, header->value.text, header->value.length);
        kvr_buffer_append_text(out, "\r\n");
    }
    if (!identified) {
        kvr_buffer_append_text(out, "x-request-id: ");
        kvr_buffer_append(out, call->id.data, call->id.length);
        kvr_buffer_append_text(out, "\r\n");
    }
    if (call->body.length || head->content_length >= 0 || head->chunked) {
        kvr_buffer_append_text(out, "Content-Length: ");
        kvr_buffer_append_u64(out, call->body.length);
        kvr_buffer_append_text(out, "\r\n");
    }
    kvr_buffer_append_text(out, "\r\n");
}

static void headed(struct kvr_exchange *exchange);
static void came(struct kvr_exchange *exchange, const char *bytes, size_t length);
static void batch(struct kvr_exchange *exchange);
static void ended(struct kvr_exchange *exchange);
static void failed(struct kvr_exchange *exchange, enum kvr_exchange_failure failure);

static void send_to(struct call *call, struct kvr_upstream_worker *backend)
{
    struct kvr_exchange *exchange = &call->exchange;

    call->state = CALL_PROXYING;
    call->chosen = backend;
    call->tries++;
    if (backend->number < 64)
        call->tried |= UINT64_C(1) << backend->number;
    write_request_head(call, backend);
    if (call->head_out.failed) {
        call_refuse(call, 503, "no memory");
        return;
    }
    exchange->head_bytes = call->head_out.data;
    exchange->head_length = call->head_out.length;
    exchange->body_bytes = call->body.data;
    exchange->body_length = call->body.length;
    exchange->to_head = kvr_text_is(call->head.method, "HEAD");
    exchange->answer_timeout_ms = 0;
    exchange->headed = headed;
    exchange->came = came;
    exchange->batch = batch;
    exchange->ended = ended;
    exchange->failed = failed;
    call->sent_ms = call->serve->reactor.now_ms;
    kvr_exchange_start(&call->serve->upstream, exchange, backend);
}

/* The line of the log names the worker that the request really goes to. */
static void name_worker(struct call *call, struct kvr_upstream_worker *backend, const char *reason)
{
    static const enum kvr_name dropped[] = {KVR_NAME_ROUTE};
    struct kvr_serve *serve = call->serve;
    struct kvr_buffer closed = {0};
    struct kvr_error ignored;

    call->reason = reason;
    if (!call->generates)
        return;
    kvr_buffer_append(&closed, call->line.data, call->line.length);
    kvr_buffer_append_byte(&closed, '}');
    struct kvr_source_line source = {.text = closed.data, .length = closed.length};
    kvr_buffer_clear(&call->line);
    if (!closed.failed && kvr_line_parse(&serve->line, &source, &ignored) == KVR_OK) {
        kvr_line_begin(&serve->line, &call->line, dropped, 1);
        kvr_buffer_append_text(&call->line, ",\"route\":{\"worker\":");
        kvr_json_write_string(&call->line, backend->name, strlen(backend->name));
        kvr_buffer_append_text(&call->line, ",\"reason\":\"");
        kvr_buffer_append_text(&call->line, reason);
        kvr_buffer_append_text(&call->line, "\"}");
    }
    kvr_buffer_release(&closed);
    call->verdict.matched = 0;
    if (serve->options.decider)
        kvr_decider_corrected(serve->options.decider, &call->line, backend->name);
}

/* ---- the decision ---- */

/* The pipeline learns where the request goes. */
static void loop_back(struct call *call)
{
    struct kvr_serve *serve = call->serve;
    struct kvr_buffer *out = &serve->done;

    if (!serve->pipeline || !call->line.length)
        return;
    kvr_buffer_clear(out);
    kvr_buffer_append(out, call->line.data, call->line.length);
    kvr_buffer_append_byte(out, '}');
    if (!out->failed)
        kvr_pipe_loop(serve->pipeline, out->data, out->length);
}

/* A reason's name that lives as long as the program. */
static const char *keep_reason(const char *reason)
{
    static const char *const known[] = {"cache-match", "session", "prefix-hash", "rotation",
        "chance", "least-loaded", "explore", "rebalance", "replicate", "load-fallback", "drained",
        "escape", "pull", "rejected", "no-worker", "fallback", "retry"};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i], reason) == 0)
            return known[i];
    return "other";
}

void call_decided(struct call *call, const struct kvr_decide_verdict *verdict)
{
    struct kvr_serve *serve = call->serve;

    kvr_reactor_stop(&serve->reactor, &call->timer);
    serve->gauges.decisions++;
    serve->gauges.decision_ms += kvr_clock_ms() - call->sent_ms;
    kvr_histogram_add(&serve->gauges.match_tokens, (double)verdict->matched, 16);
    call->verdict = *verdict;
    call->reason = keep_reason(verdict->reason);
    call->was_answered = true;
    if (verdict->rejected) {
        loop_back(call);
        call_refuse(call, 429, "no worker can answer in time");
        return;
    }
    struct kvr_upstream_worker *backend =
        verdict->worker[0]
            ? kvr_upstream_find(&serve->upstream, verdict->worker, strlen(verdict->worker))
            : NULL;
    if (!backend || !kvr_backend_usable(&serve->upstream, backend)) {
        call_fallback(call);
        return;
    }
    call->told = true;
    loop_back(call);
    send_to(call, backend);
}

void call_fallback(struct call *call)
{
    struct kvr_serve *serve = call->serve;
    struct kvr_upstream_worker *backend = kvr_upstream_least(&serve->upstream, 0);

    kvr_reactor_stop(&serve->reactor, &call->timer);
    if (!backend) {
        call->reason = "no-worker";
        call_refuse(call, 503, "no worker is there");
        return;
    }
    serve->gauges.fallbacks++;
    if (!call->line.length) { /* no decision: the line is what was asked, without its content */
        kvr_buffer_append(&call->line, call->request.data, call->content_at);
    }
    name_worker(call, backend, "fallback");
    call->told = true;
    if (call->was_answered)
        loop_back(call);
    else if (serve->pipeline)
        serve_expect_late(serve, call->number, backend);
    send_to(call, backend);
}

static void decide(struct call *call)
{
    struct kvr_serve *serve = call->serve;
    struct kvr_decide_verdict verdict;
    struct kvr_error error;
    bool inserted;

    kvr_buffer_clear(&call->line);
    call->sent_ms = kvr_clock_ms();
    if (serve->options.decider) {
        if (kvr_decider_decide(serve->options.decider, call->request.data, call->request.length,
                call->content_at, &call->line, &verdict, &error) == KVR_OK)
            call_decided(call, &verdict);
        else
            call_fallback(call);
        return;
    }
    uint64_t *slot = kvr_u64_map_insert(&serve->deciding, call->number, &inserted);
    if (!slot || !kvr_pipe_tell(serve->pipeline, call->request.data, call->request.length)) {
        call_fallback(call);
        return;
    }
    *slot = (uint64_t)(uintptr_t)call;
    kvr_reactor_set(
        &serve->reactor, &call->timer, serve->reactor.now_ms + serve->options.decision_timeout_ms);
}

/* A pause before another try is over, or the decision did not come. */
static void timer_due(struct kvr_timer *timer)
{
    struct call *call = (struct call *)((char *)timer - offsetof(struct call, timer));
    struct kvr_serve *serve = call->serve;

    if (call->state == CALL_DECIDING) {
        serve->gauges.decision_timeouts++;
        call_fallback(call);
        kvr_pipe_late(serve->pipeline);
        return;
    }
    struct kvr_upstream_worker *backend = kvr_upstream_least(&serve->upstream, call->tried);
    if (!backend)
        backend = kvr_upstream_least(&serve->upstream, 0);
    if (!backend) {
        call_refuse(call, 503, "no worker is there");
        return;
    }
    serve->gauges.retries++;
    name_worker(call, backend, "retry");
    loop_back(call);
    send_to(call, backend);
}

void call_begin(struct call *call)
{
    struct kvr_serve *serve = call->serve;
    struct kvr_text coding = kvr_http_header(&call->head, "content-encoding");
    struct kvr_error error;

    call->number = ++serve->last_number;
    kvr_buffer_append_text(&call->id, serve->boot);
    kvr_buffer_append_u64(&call->id, call->number);
    if (kvr_text_is(call->head.method, "CONNECT") || kvr_text_is(call->head.method, "TRACE")) {
        call_refuse(call, 405, "a method that is not passed on");
        return;
    }
    if (admin_answer(call))
        return;
    if (coding.length && kvr_text_is_word(coding, "gzip")) {
        enum kvr_status status = request_gunzip(call, &error);
        if (status != KVR_OK) {
            call_refuse(call, status == KVR_UNSUPPORTED ? 413 : 400, error.text);
            return;
        }
    } else if (coding.length && !kvr_text_is_word(coding, "identity")) {
        call_refuse(call, 415, "a Content-Encoding that is not gzip");
        return;
    }
    if (serve->call_count > serve->options.max_in_flight) {
        call_refuse(call, 503, "too many requests at once");
        return;
    }
    enum request_kind kind = request_kind(&call->head);
    if (kind == REQUEST_OTHER) {
        struct kvr_upstream_worker *backend = kvr_upstream_least(&serve->upstream, 0);
        call->reason = "passed-on";
        if (backend)
            send_to(call, backend);
        else
            call_refuse(call, 503, "no worker is there");
        return;
    }
    if (request_write(call, kind, &error) != KVR_OK) {
        serve->gauges.bad_requests++;
        call_refuse(call, error.status == KVR_NO_MEMORY ? 503 : 400, error.text);
        return;
    }
    call->generates = true;
    decide(call);
}

/* ---- the answer ---- */

static void headed(struct kvr_exchange *exchange)
{
    struct call *call = (struct call *)exchange;
    struct kvr_http_head *head = &exchange->head;
    struct kvr_buffer *out = &call->guest->out;
    struct kvr_text type = kvr_http_header(head, "content-type");
    bool bodiless = exchange->to_head || head->status == 204 || head->status == 304;

    kvr_buffer_append_text(out, "HTTP/1.1 ");
    kvr_buffer_append_u64(out, head->status);
    kvr_buffer_append_byte(out, ' ');
    kvr_buffer_append_text(out, http_reason(head->status));
    kvr_buffer_append_text(out, "\r\n");
    for (size_t i = 0; i < head->header_count; i++) {
        const struct kvr_http_header *header = &head->headers[i];
        if (header->hop || kvr_text_is_word(header->name, "x-request-id") ||
            kvr_text_is_word(header->name, "x-kvr-worker") ||
            kvr_text_is_word(header->name, "x-kvr-reason")) /* those of a front end behind */
            continue;
        kvr_buffer_append(out, header->name.text, header->name.length);
        kvr_buffer_append_text(out, ": ");
        kvr_buffer_append(out, header->value.text, header->value.length);
        kvr_buffer_append_text(out, "\r\n");
    }
    if (head->content_length >= 0 && head->status != 204) {
        kvr_buffer_append_text(out, "Content-Length: ");
        kvr_buffer_append_u64(out, (uint64_t)head->content_length);
        kvr_buffer_append_text(out, "\r\n");
    } else if (!bodiless && call->head.minor == 1) {
        call->chunks = true;
        kvr_buffer_append_text(out, "Transfer-Encoding: chunked\r\n");
    } else if (!bodiless) {
        call->guest->closing = true;
    }
    call_write_common(call, out);
    kvr_buffer_append_text(out, "\r\n");
    call->head_sent = true;
    call->counts_answer = call->generates && head->status == 200;
    kvr_answer_begin(
        &call->answer, type.length >= 17 &&
                           kvr_text_is_word((struct kvr_text){type.text, 17}, "text/event-stream"));
    call->verdict.rejected = false;
}

static void came(struct kvr_exchange *exchange, const char *bytes, size_t length)
{
    struct call *call = (struct call *)exchange;
    struct kvr_buffer *out = &call->guest->out;

    if (call->counts_answer)
        kvr_answer_feed(&call->answer, bytes, length, call->serve->reactor.now_ms);
    if (call->chunks) {
        char size[24];
        int digits = snprintf(size, sizeof size, "%zx\r\n", length);
        kvr_buffer_append(out, size, (size_t)digits);
    }
    kvr_buffer_append(out, bytes, length);
    if (call->chunks)
        kvr_buffer_append(out, "\r\n", 2);
}

static void batch(struct kvr_exchange *exchange)
{
    struct call *call = (struct call *)exchange;

    if (call->head_sent)
        guest_flush(call->guest);
}

static void ended(struct kvr_exchange *exchange)
{
    struct call *call = (struct call *)exchange;

    if (call->chunks)
        kvr_buffer_append_text(&call->guest->out, "0\r\n\r\n");
    if (call->counts_answer)
        kvr_answer_end(&call->answer, call->serve->reactor.now_ms);
    call_end(call, exchange->head.status, !call->guest->closing);
}

static void failed(struct kvr_exchange *exchange, enum kvr_exchange_failure failure)
{
    struct call *call = (struct call *)exchange;
    struct kvr_serve *serve = call->serve;
    struct guest *guest = call->guest;

    if (call->head_sent) {
        /* The client must see that the answer is not whole: no last chunk, a length not reached. */
        call_note_end(call, exchange->head.status, "broken by worker");
        call->guest = NULL;
        guest->call = NULL;
        call_free(call);
        guest->out.failed = false;
        guest->closing = true;
        guest_flush(guest);
        return;
    }
    if (failure == KVR_EXCHANGE_TIMED_OUT) {
        guest->closing = true;
        call_refuse(call, 504, "the worker did not answer");
        return;
    }
    if (call->tries > serve->options.retries) {
        call_refuse(call, 502,
            failure == KVR_EXCHANGE_UNREACHED ? "the worker is not to be reached"
                                              : "the worker's answer broke off");
        return;
    }
    struct kvr_random random = {serve->chance.state};
    double pause_ms = kvr_random_unit(&random) * RETRY_PAUSE_MS * call->tries;
    serve->chance.state = random.state;
    call->state = CALL_WAITING;
    kvr_reactor_set(&serve->reactor, &call->timer, serve->reactor.now_ms + pause_ms);
}
