/*
 * What is asked of the front end itself: health, metrics, its workers, the union of models; and who
 * may ask.
 *
 *   GET  /healthz                        200 while it runs
 *   GET  /readyz                         200 while some worker can be used and it is not draining
 *   GET  /metrics                        Prometheus
 *   GET  /v1/models                      those of all workers
 *   GET  /kvr/workers                    their state
 *   POST /kvr/workers                    a worker line: adds or changes one
 *   POST /kvr/workers/NAME/drain, /activate, /remove
 *
 * With keys everything but the first two needs one. Without, /kvr/ answers this machine only, and
 * nothing that a proxy or a browser's page says it carries.
 */
#include "net/serve_private.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- keys ---- */

enum kvr_status admin_read_keys(struct kvr_serve *serve, struct kvr_error *error)
{
    char text[300];
    FILE *file = fopen(serve->options.key_file, "re");

    if (!file)
        return kvr_error_errno(error, KVR_IO, "cannot read %s", serve->options.key_file);
    serve->keys = calloc(SERVE_KEYS, sizeof *serve->keys);
    while (serve->keys && serve->key_count < SERVE_KEYS && fgets(text, sizeof text, file)) {
        struct serve_key *key = &serve->keys[serve->key_count];
        size_t length = strcspn(text, "\r\n");
        if (!length || text[0] == '#')
            continue;
        if (length >= sizeof key->text) {
            fclose(file);
            return kvr_error_set(
                error, KVR_BAD_USAGE, "%s: a key is too long", serve->options.key_file);
        }
        memcpy(key->text, text, length);
        key->length = length;
        serve->key_count++;
    }
    fclose(file);
    if (!serve->keys)
        return kvr_error_memory(error);
    return serve->key_count
               ? KVR_OK
               : kvr_error_set(error, KVR_BAD_USAGE, "%s: no key", serve->options.key_file);
}

/* In time that does not depend on where they differ. */
static bool same_key(const struct serve_key *key, struct kvr_text given)
{
    unsigned char differs = key->length != given.length;

    for (size_t i = 0; i < sizeof key->text; i++) {
        unsigned char byte = i < given.length ? (unsigned char)given.text[i] : 0;
        differs |= (unsigned char)key->text[i] ^ byte;
    }
    return !differs;
}

static struct kvr_text path_of(const struct call *call)
{
    struct kvr_text path = call->head.target;
    const char *query = memchr(path.text, '?', path.length);

    if (query)
        path.length = (size_t)(query - path.text);
    return path;
}

bool admin_allows(const struct call *call)
{
    const struct kvr_serve *serve = call->serve;
    struct kvr_text given = kvr_http_header(&call->head, "authorization"), path = path_of(call);
    bool allowed = false;

    if (!serve->key_count || kvr_text_is(path, "/healthz") || kvr_text_is(path, "/readyz"))
        return true;
    if (given.length > 7 && kvr_text_is_word((struct kvr_text){given.text, 7}, "bearer "))
        given = (struct kvr_text){given.text + 7, given.length - 7};
    else
        given = kvr_http_header(&call->head, "x-api-key");
    if (given.length >= sizeof serve->keys->text)
        return false;
    for (size_t i = 0; i < serve->key_count; i++)
        allowed |= same_key(&serve->keys[i], given);
    return allowed && given.length > 0;
}

/* ---- workers ---- */

static const char *const states[] = {"active", "draining", "down"};
static const char *const breakers[] = {"closed", "open", "half-open"};

static void list_workers(struct call *call)
{
    struct kvr_serve *serve = call->serve;
    struct kvr_buffer *out = &serve->build;
    bool first = true;

    kvr_buffer_clear(out);
    kvr_buffer_append_text(out, "{\"workers\":[");
    for (size_t i = 0; i < serve->upstream.count; i++) {
        const struct kvr_upstream_worker *backend = serve->upstream.backends[i];
        if (backend->gone)
            continue;
        kvr_buffer_append_text(out, first ? "{\"worker\":" : ",{\"worker\":");
        first = false;
        kvr_json_write_string(out, backend->name, strlen(backend->name));
        kvr_buffer_append_text(out, ",\"url\":");
        kvr_json_write_string(out, backend->url, strlen(backend->url));
        kvr_buffer_append_format(out,
            ",\"state\":\"%s\",\"healthy\":%s,\"breaker\":\"%s\",\"in_flight\":%u,"
            "\"requests\":%llu,\"errors\":%llu}",
            states[backend->state], backend->healthy ? "true" : "false", breakers[backend->breaker],
            backend->in_flight, (unsigned long long)backend->requests,
            (unsigned long long)backend->errors);
    }
    kvr_buffer_append_text(out, "]}\n");
    call_answer(call, 200, "application/json", "", out->data, out->length);
}

static void add_worker(struct call *call)
{
    struct kvr_serve *serve = call->serve;
    struct kvr_source_line source = {.text = call->body.data ? call->body.data : "",
        .length = call->body.length,
        .file = "body",
        .number = 1};
    struct kvr_worker_description worker;
    struct kvr_upstream_worker *backend;
    struct kvr_error error;

    enum kvr_status status = kvr_line_parse(&serve->line, &source, &error);
    if (status == KVR_OK)
        status = kvr_worker_read(&serve->line, &serve->build, &worker, &error);
    if (status == KVR_OK)
        status = kvr_upstream_set(&serve->upstream, &worker, &backend, &error);
    if (status != KVR_OK) {
        call_refuse(call, 400, error.text);
        return;
    }
    fleet_tell(serve, backend);
    list_workers(call);
}

static void change_worker(struct call *call, struct kvr_text rest)
{
    struct kvr_serve *serve = call->serve;
    const char *slash = rest.length ? memrchr(rest.text, '/', rest.length) : NULL;
    struct kvr_buffer name = {0};

    if (!slash) {
        call_refuse(call, 404, "no such thing to do");
        return;
    }
    for (const char *at = rest.text; at < slash; at++) { /* %2F and the like */
        unsigned code;
        char digits[3] = {0};
        if (*at == '%' && slash - at > 2 && (memcpy(digits, at + 1, 2), 1) &&
            sscanf(digits, "%2x", &code) == 1) {
            kvr_buffer_append_byte(&name, (char)code);
            at += 2;
        } else {
            kvr_buffer_append_byte(&name, *at);
        }
    }
    struct kvr_text verb = {slash + 1, (size_t)(rest.text + rest.length - slash) - 1};
    struct kvr_upstream_worker *backend =
        kvr_upstream_find(&serve->upstream, name.data ? name.data : "", name.length);
    kvr_buffer_release(&name);
    if (!backend) {
        call_refuse(call, 404, "no such worker");
        return;
    }
    if (kvr_text_is(verb, "drain")) {
        backend->state = KVR_WORKER_DRAINING;
    } else if (kvr_text_is(verb, "activate")) {
        backend->state = KVR_WORKER_ACTIVE;
    } else if (kvr_text_is(verb, "remove")) {
        kvr_upstream_remove(&serve->upstream, backend);
    } else {
        call_refuse(call, 404, "drain, activate or remove");
        return;
    }
    fleet_tell(serve, backend);
    list_workers(call);
}

/* ---- metrics ---- */

static void write_gauge(struct kvr_buffer *out, const char *name, const char *type, double value)
{
    kvr_buffer_append_format(out, "# TYPE %s %s\n", name, type);
    kvr_gauge_line(out, name, NULL, NULL, value);
}

/* What the clients' connections take: themselves, and what waits in their buffers. */
static size_t connection_bytes(const struct kvr_serve *serve)
{
    size_t bytes = 0;

    for (const struct guest *guest = serve->guests; guest; guest = guest->next)
        bytes += sizeof *guest + guest->in.capacity + guest->later.capacity + guest->out.capacity;
    return bytes;
}

static void show_metrics(struct call *call)
{
    struct kvr_serve *serve = call->serve;
    struct kvr_buffer *out = &serve->build;

    kvr_buffer_clear(out);
    kvr_gauges_write(&serve->gauges, out);
    write_gauge(out, "kvr_connections", "gauge", (double)serve->guest_count);
    write_gauge(out, "kvr_connection_bytes", "gauge", (double)connection_bytes(serve));
    write_gauge(out, "kvr_merged_lines_total", "counter", (double)serve->merged_lines);
    write_gauge(out, "kvr_requests_in_flight", "gauge", (double)serve->call_count - 1);
    write_gauge(out, "kvr_buffered_bytes", "gauge", (double)serve->buffered_bytes);
    write_gauge(out, "kvr_breaker_opened_total", "counter", (double)serve->upstream.breaker_opened);
    write_gauge(out, "kvr_pipeline_restarts_total", "counter",
        serve->pipeline ? (double)kvr_pipe_restarts(serve->pipeline) : 0);
    write_gauge(
        out, "kvr_pipeline_up", "gauge", serve->pipeline ? kvr_pipe_runs(serve->pipeline) : 1);
    static const char *const names[] = {"kvr_worker_up", "kvr_worker_in_flight",
        "kvr_worker_breaker_open", "kvr_worker_errors_total"};
    for (size_t j = 0; j < 4; j++) {
        kvr_buffer_append_format(out, "# TYPE %s %s\n", names[j], j == 3 ? "counter" : "gauge");
        for (size_t i = 0; i < serve->upstream.count; i++) {
            const struct kvr_upstream_worker *backend = serve->upstream.backends[i];
            const double values[] = {kvr_backend_usable(&serve->upstream, backend),
                backend->in_flight, backend->breaker != KVR_BREAKER_CLOSED,
                (double)backend->errors};
            if (!backend->gone)
                kvr_gauge_line(out, names[j], backend->name, "", values[j]);
        }
    }
    call_answer(call, 200, "text/plain; version=0.0.4", "", out->data, out->length);
}

/* ---- models ---- */

/* The models of all workers, asked at once; the answer is given when the last one has answered or
 * failed. Names that several have are listed once, as the first one writes them. */
struct gathering {
    struct kvr_serve *serve;
    struct call *call; /* NULL: its client is gone */
    size_t left;
    struct kvr_buffer list, names;
};

struct question {
    struct kvr_exchange exchange; /* first */
    struct question *next;
    struct gathering *gathering;
    struct kvr_buffer head, body;
    unsigned status;
};

static void take_models(struct gathering *gathering, const struct kvr_buffer *body)
{
    struct kvr_line *line = &gathering->serve->line;
    struct kvr_source_line source = {.text = body->data ? body->data : "", .length = body->length};
    struct kvr_error ignored;
    struct kvr_value model;

    if (kvr_line_parse(line, &source, &ignored) != KVR_OK)
        return;
    struct kvr_cursor cursor = kvr_value_open(kvr_line_find(line, "data"));
    while (kvr_next_element(&cursor, &model)) {
        struct kvr_value id = kvr_value_get(model, "id");
        if (id.type != KVR_STRING ||
            (gathering->names.length &&
                memmem(gathering->names.data, gathering->names.length, id.text, id.length)))
            continue;
        kvr_buffer_append(&gathering->names, id.text, id.length);
        if (gathering->list.length)
            kvr_buffer_append_byte(&gathering->list, ',');
        kvr_buffer_append(&gathering->list, model.text, model.length);
    }
}

static void free_question(struct question *question)
{
    struct kvr_serve *serve = question->gathering->serve;
    struct question **at = &serve->questions;

    while (*at && *at != question)
        at = &(*at)->next;
    if (*at)
        *at = question->next;
    kvr_exchange_release(&question->exchange);
    kvr_buffer_release(&question->head);
    kvr_buffer_release(&question->body);
    kvr_reactor_discard(&serve->reactor, question);
}

static void free_gathering(struct gathering *gathering)
{
    kvr_buffer_release(&gathering->list);
    kvr_buffer_release(&gathering->names);
    kvr_reactor_discard(&gathering->serve->reactor, gathering);
}

static void end_question(struct question *question, bool answered)
{
    struct gathering *gathering = question->gathering;

    if (answered && question->status == 200)
        take_models(gathering, &question->body);
    free_question(question);
    if (--gathering->left)
        return;
    struct call *call = gathering->call;
    if (call) {
        struct kvr_buffer out = {0};
        kvr_buffer_append_text(&out, "{\"object\":\"list\",\"data\":[");
        kvr_buffer_append(&out, gathering->list.data, gathering->list.length);
        kvr_buffer_append_text(&out, "]}");
        call->gathering = NULL;
        if (out.failed)
            call_refuse(call, 503, "no memory");
        else
            call_answer(call, 200, "application/json", "", out.data, out.length);
        kvr_buffer_release(&out);
    }
    free_gathering(gathering);
}

void admin_forget(struct call *call)
{
    if (call->gathering)
        call->gathering->call = NULL;
    call->gathering = NULL;
}

void admin_release(struct kvr_serve *serve)
{
    while (serve->questions) {
        struct gathering *gathering = serve->questions->gathering;
        free_question(serve->questions);
        if (--gathering->left == 0)
            free_gathering(gathering);
    }
}

static void question_headed(struct kvr_exchange *exchange)
{
    ((struct question *)exchange)->status = exchange->head.status;
}

static void question_came(struct kvr_exchange *exchange, const char *bytes, size_t length)
{
    struct question *question = (struct question *)exchange;

    if (question->body.length + length < 16 << 20)
        kvr_buffer_append(&question->body, bytes, length);
}

static void question_ended(struct kvr_exchange *exchange)
{
    end_question((struct question *)exchange, true);
}

static void question_failed(struct kvr_exchange *exchange, enum kvr_exchange_failure failure)
{
    (void)failure;
    end_question((struct question *)exchange, false);
}

static void ask_one(struct gathering *gathering, struct kvr_upstream_worker *backend)
{
    struct question *question = calloc(1, sizeof *question);

    if (!question)
        return;
    kvr_buffer_append_format(&question->head, "GET %s/v1/models HTTP/1.1\r\nHost: %s\r\n\r\n",
        backend->prefix, backend->host);
    question->gathering = gathering;
    struct kvr_exchange *exchange = &question->exchange;
    exchange->head_bytes = question->head.data;
    exchange->head_length = question->head.length;
    exchange->answer_timeout_ms = 5000;
    exchange->headed = question_headed;
    exchange->came = question_came;
    exchange->ended = question_ended;
    exchange->failed = question_failed;
    question->next = gathering->serve->questions;
    gathering->serve->questions = question;
    gathering->left++;
    kvr_exchange_start(&gathering->serve->upstream, exchange, backend);
}

static void gather_models(struct call *call)
{
    struct kvr_serve *serve = call->serve;
    struct gathering *gathering = calloc(1, sizeof *gathering);

    if (!gathering) {
        call_refuse(call, 503, "no memory");
        return;
    }
    /* One more is left until all have been asked: failures may come at once. */
    *gathering = (struct gathering){.serve = serve, .call = call, .left = 1};
    call->gathering = gathering;
    struct question *last = calloc(1, sizeof *last);
    for (size_t i = 0; last && i < serve->upstream.count; i++)
        if (kvr_backend_usable(&serve->upstream, serve->upstream.backends[i]))
            ask_one(gathering, serve->upstream.backends[i]);
    if (!last) {
        call->gathering = NULL;
        kvr_reactor_discard(&serve->reactor, gathering);
        call_refuse(call, 503, "no memory");
        return;
    }
    last->gathering = gathering;
    end_question(last, false);
}

/* ---- which ---- */

/* A name of the wide world, as evil.example: with dots, and no address. A page under such a name
 * can have it resolved to this machine, and is then of the same origin as what it asks. */
static bool names_the_world(struct kvr_text host)
{
    bool dots = false, letters = false;

    if (host.length && host.text[0] == '[')
        return false;
    for (size_t i = 0; i < host.length && host.text[i] != ':'; i++) {
        dots |= host.text[i] == '.';
        letters |= host.text[i] != '.' && (host.text[i] < '0' || host.text[i] > '9');
    }
    return dots && letters;
}

/* A connection from this machine may be a proxy's or a browser's, which a page from anywhere can
 * make ask. */
static bool comes_from_afar(const struct kvr_http_head *head)
{
    static const char *const signs[] = {"forwarded", "x-forwarded-for", "x-forwarded-host",
        "x-forwarded-proto", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip",
        "via", "origin", "referer"};

    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
        if (kvr_http_header(head, signs[i]).text)
            return true;
    return names_the_world(kvr_http_header(head, "host"));
}

static void own_path(struct call *call, struct kvr_text path)
{
    static const char workers[] = "/kvr/workers";
    const size_t length = sizeof workers - 1;
    bool posts = kvr_text_is(call->head.method, "POST");

    if (!call->serve->key_count && (!call->guest->local || comes_from_afar(&call->head))) {
        call_refuse(call, 403, "/kvr/ is for this machine, or with a key");
        return;
    }
    if (kvr_text_is(path, workers)) {
        if (posts)
            add_worker(call);
        else
            list_workers(call);
    } else if (path.length > length + 1 && memcmp(path.text, workers, length) == 0 &&
               path.text[length] == '/') {
        if (posts)
            change_worker(
                call, (struct kvr_text){path.text + length + 1, path.length - length - 1});
        else
            call_refuse(call, 405, "a worker is changed by POST");
    } else {
        call_refuse(call, 404, "no such path");
    }
}

bool admin_answer(struct call *call)
{
    struct kvr_serve *serve = call->serve;
    struct kvr_text path = path_of(call);

    if (kvr_text_is(path, "/healthz")) {
        call_answer(call, 200, "text/plain", "", "ok\n", 3);
    } else if (kvr_text_is(path, "/readyz")) {
        if (!serve->draining && kvr_upstream_least(&serve->upstream, 0))
            call_answer(call, 200, "text/plain", "", "ready\n", 6);
        else
            call_refuse(call, 503, serve->draining ? "draining" : "no worker is there");
    } else if (kvr_text_is(path, "/metrics")) {
        show_metrics(call);
    } else if (kvr_text_is(path, "/v1/models")) {
        gather_models(call);
    } else if (path.length >= 5 && memcmp(path.text, "/kvr/", 5) == 0) {
        own_path(call, path);
    } else {
        return false;
    }
    return true;
}
