/*
 * The fleet: workers from -w and from the interface, their health and load, and what the decision
 * is told of them. What others tell of them is in serve_feeds.c.
 *
 * Health. Every so often each worker is asked for its health path; a status below 500 is health (an
 * engine without such a path is no sick one). Two failures in a row make it down, one success up.
 * To the decision a worker that cannot be used, for whatever cause, is "down": an engine that died
 * has lost its cache, and comes back cold.
 */
#include "net/serve_private.h"

#include "base/clock.h"
#include "stat/series.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { PROBE_TIMEOUT_MS = 2000, PAGE_BYTES = 16 << 20 };

/* One health check, or one look at a worker's metrics. */
struct probe {
    struct kvr_exchange exchange; /* first */
    struct kvr_serve *serve;
    struct kvr_upstream_worker *backend;
    struct kvr_buffer head, page; /* the page only of metrics */
    bool scrapes;
    unsigned status;
    struct probe *next;
};

void fleet_tell_line(struct kvr_serve *serve, const char *text, size_t length)
{
    struct kvr_error error;

    if (serve->pipeline)
        kvr_pipe_tell(serve->pipeline, text, length);
    else if (serve->options.decider)
        kvr_decider_tell(serve->options.decider, text, length, &error);
}

void fleet_tell(struct kvr_serve *serve, struct kvr_upstream_worker *backend)
{
    static const char *const states[] = {"active", "draining", "down"};
    static const char *const roles[] = {"both", "prefill", "decode"};
    static const char *const units[] = {"", "b", "B"};
    struct kvr_buffer *out = &serve->done;
    bool open =
        backend->breaker == KVR_BREAKER_OPEN && serve->reactor.now_ms < backend->open_until_ms;
    bool up = !backend->gone && backend->healthy && !open;

    kvr_buffer_clear(out);
    kvr_buffer_append_text(out, "{\"event\":\"worker\",\"worker\":");
    kvr_json_write_string(out, backend->name, strlen(backend->name));
    kvr_buffer_append_text(out, ",\"url\":");
    kvr_json_write_string(out, backend->url, strlen(backend->url));
    kvr_buffer_append_format(out,
        ",\"role\":\"%s\",\"state\":\"%s\",\"weight\":", roles[backend->role],
        states[up ? backend->state : KVR_WORKER_DOWN]);
    kvr_json_write_double(out, backend->weight);
    if (backend->capacity.amount) {
        bool plain = backend->capacity.unit == KVR_TOKENS;
        kvr_buffer_append_text(out, plain ? ",\"capacity\":" : ",\"capacity\":\"");
        kvr_buffer_append_u64(out, backend->capacity.amount);
        kvr_buffer_append_text(out, units[backend->capacity.unit]);
        kvr_buffer_append_text(out, plain ? "" : "\"");
    }
    kvr_buffer_append_byte(out, '}');
    if (!out->failed)
        fleet_tell_line(serve, out->data, out->length);
}

void fleet_tell_all(struct kvr_serve *serve)
{
    for (size_t i = 0; i < serve->upstream.count; i++)
        if (!serve->upstream.backends[i]->gone)
            fleet_tell(serve, serve->upstream.backends[i]);
}

void fleet_changed(void *context, struct kvr_upstream_worker *backend)
{
    struct kvr_serve *serve = context;
    bool open = backend->breaker == KVR_BREAKER_OPEN;
    bool tried = open && serve->reactor.now_ms >= backend->open_until_ms;

    if (backend->gone)
        return;
    serve_say(serve, !backend->healthy || open, "worker '%s' %s", backend->name,
        !backend->healthy ? "is down: its health checks fail"
        : tried           ? "is tried again"
        : open            ? "is left alone for a while: it does not answer"
                          : "is back");
    fleet_tell(serve, backend);
}

/* ---- workers of -w ---- */

struct loading {
    struct kvr_serve *serve;
    bool *seen; /* by number */
    size_t seen_count;
    bool once; /* a name may stand only once; in a file a later line changes an earlier one */
};

static enum kvr_status load_one(
    void *context, const struct kvr_worker_description *worker, struct kvr_error *error)
{
    struct loading *loading = context;
    struct kvr_serve *serve = loading->serve;
    struct kvr_upstream_worker *backend;

    enum kvr_status status = kvr_upstream_set(&serve->upstream, worker, &backend, error);
    if (status != KVR_OK)
        return status;
    if (loading->once && backend->loaded == serve->loads_of_fleet)
        return kvr_error_set(
            error, KVR_BAD_USAGE, "-w: two workers are called '%s'", backend->name);
    backend->loaded = serve->loads_of_fleet;
    if (backend->number < loading->seen_count)
        loading->seen[backend->number] = true;
    fleet_tell(serve, backend);
    return KVR_OK;
}

/* URL or NAME=URL, separated by commas; a URL without a name is called by its host and port. */
static enum kvr_status load_urls(struct loading *loading, struct kvr_error *error)
{
    const char *at = loading->serve->options.workers;
    enum kvr_status status = KVR_OK;

    loading->once = true;
    while (status == KVR_OK && *at) {
        size_t length = strcspn(at, ",");
        struct kvr_worker_description worker = {.url = {at, length}, .weight = 1};
        const char *equals = memchr(at, '=', length);
        const char *scheme = memmem(at, length, "://", 3);
        if (equals && scheme && equals < scheme) {
            worker.name = (struct kvr_text){at, (size_t)(equals - at)};
            worker.url = (struct kvr_text){equals + 1, (size_t)(at + length - equals) - 1};
        } else if (scheme) {
            worker.name = (struct kvr_text){scheme + 3, (size_t)(at + length - scheme) - 3};
            const char *slash = memchr(worker.name.text, '/', worker.name.length);
            if (slash)
                worker.name.length = (size_t)(slash - worker.name.text);
        }
        if (!worker.name.length)
            return kvr_error_set(error, KVR_BAD_USAGE, "-w: '%.*s' is no URL", (int)length, at);
        status = load_one(loading, &worker, error);
        at += length + (at[length] == ',');
    }
    return status;
}

enum kvr_status fleet_load(struct kvr_serve *serve, struct kvr_error *error)
{
    size_t before = serve->upstream.count;
    struct loading loading = {serve, calloc(before + 1, sizeof(bool)), before, false};

    if (!loading.seen)
        return kvr_error_memory(error);
    const char *workers = serve->options.workers;
    enum kvr_status status = KVR_OK;
    serve->loads_of_fleet++;
    if (workers && strstr(workers, "://") && access(workers, F_OK) != 0)
        status = load_urls(&loading, error);
    else if (workers)
        status = kvr_workers_each(workers, load_one, &loading, error);
    for (size_t i = 0; status == KVR_OK && i < before; i++) {
        struct kvr_upstream_worker *backend = serve->upstream.backends[i];
        if (!loading.seen[i] && !backend->gone) {
            kvr_upstream_remove(&serve->upstream, backend);
            fleet_tell(serve, backend);
        }
    }
    free(loading.seen);
    return status;
}

/* ---- health, and what workers say of their load ---- */

static void write_number(struct kvr_buffer *out, const char *name, double number)
{
    if (!isfinite(number))
        return;
    kvr_line_add(out, name);
    kvr_json_write_double(out, number);
}

/* A load line of what its page says, whatever engine it is. */
static void tell_load(struct kvr_serve *serve, const struct probe *probe)
{
    struct kvr_buffer *out = &serve->done;
    struct kvr_engine_series now;

    if (probe->status != 200 || !probe->page.length ||
        !kvr_series_read(probe->page.data, probe->page.length, &now))
        return;
    kvr_buffer_clear(out);
    kvr_buffer_append_text(out, "{\"event\":\"load\",\"timestamp\":");
    kvr_json_write_fixed(out, kvr_clock_wall_ms(), 0);
    kvr_buffer_append_text(out, ",\"worker\":");
    kvr_json_write_string(out, probe->backend->name, strlen(probe->backend->name));
    write_number(out, "waiting", now.waiting);
    write_number(out, "running", now.running);
    write_number(out, "kv_usage", now.kv_usage);
    kvr_buffer_append_byte(out, '}');
    if (out->failed)
        return;
    serve->gauges.loads++;
    fleet_tell_line(serve, out->data, out->length);
}

static void free_probe(struct probe *probe)
{
    kvr_exchange_release(&probe->exchange);
    kvr_buffer_release(&probe->head);
    kvr_buffer_release(&probe->page);
    kvr_reactor_discard(&probe->serve->reactor, probe);
}

static void end_probe(struct probe *probe, bool healthy)
{
    struct kvr_serve *serve = probe->serve;
    struct probe **at = &serve->probes;

    while (*at && *at != probe)
        at = &(*at)->next;
    if (*at)
        *at = probe->next;
    if (!probe->backend->gone && probe->scrapes)
        tell_load(serve, probe);
    else if (!probe->backend->gone)
        kvr_backend_health(&serve->upstream, probe->backend, healthy);
    free_probe(probe);
}

static void probe_headed(struct kvr_exchange *exchange)
{
    ((struct probe *)exchange)->status = exchange->head.status;
}

static void probe_came(struct kvr_exchange *exchange, const char *bytes, size_t length)
{
    struct probe *probe = (struct probe *)exchange;

    if (probe->scrapes && probe->page.length + length <= PAGE_BYTES)
        kvr_buffer_append(&probe->page, bytes, length);
}

static void probe_ended(struct kvr_exchange *exchange)
{
    struct probe *probe = (struct probe *)exchange;

    end_probe(probe, probe->status < 500);
}

static void probe_failed(struct kvr_exchange *exchange, enum kvr_exchange_failure failure)
{
    struct probe *probe = (struct probe *)exchange;

    (void)failure;
    probe->status = 0;
    end_probe(probe, false);
}

static void start_probe(struct kvr_serve *serve, struct kvr_upstream_worker *backend, bool scrapes)
{
    struct probe *probe = calloc(1, sizeof *probe);

    if (!probe)
        return;
    kvr_buffer_append_format(&probe->head, "GET %s%s HTTP/1.1\r\nHost: %s\r\n\r\n", backend->prefix,
        scrapes ? "/metrics" : serve->options.health_path, backend->host);
    probe->serve = serve;
    probe->backend = backend;
    probe->scrapes = scrapes;
    probe->next = serve->probes;
    serve->probes = probe;
    struct kvr_exchange *exchange = &probe->exchange;
    exchange->head_bytes = probe->head.data;
    exchange->head_length = probe->head.length;
    exchange->answer_timeout_ms = PROBE_TIMEOUT_MS;
    exchange->headed = probe_headed;
    exchange->came = probe_came;
    exchange->ended = probe_ended;
    exchange->failed = probe_failed;
    kvr_exchange_start(&serve->upstream, exchange, backend);
}

/* Asks every worker that has not yet to answer the same question. */
static void probe_all(struct kvr_serve *serve, bool scrapes)
{
    for (size_t i = 0; i < serve->upstream.count; i++) {
        struct kvr_upstream_worker *backend = serve->upstream.backends[i];
        bool asked = backend->gone || backend->state == KVR_WORKER_DOWN ||
                     (scrapes && !kvr_backend_usable(&serve->upstream, backend));
        for (struct probe *probe = serve->probes; probe && !asked; probe = probe->next)
            asked = probe->backend == backend && probe->scrapes == scrapes;
        if (!asked)
            start_probe(serve, backend, scrapes);
    }
}

void fleet_check_health(struct kvr_timer *timer)
{
    struct kvr_serve *serve =
        (struct kvr_serve *)((char *)timer - offsetof(struct kvr_serve, health_timer));

    probe_all(serve, false);
    kvr_reactor_set(&serve->reactor, timer, serve->reactor.now_ms + serve->options.health_every_ms);
}

void fleet_scrape(struct kvr_timer *timer)
{
    struct kvr_serve *serve =
        (struct kvr_serve *)((char *)timer - offsetof(struct kvr_serve, scrape_timer));

    probe_all(serve, true);
    kvr_reactor_set(&serve->reactor, timer, serve->reactor.now_ms + serve->options.scrape_every_ms);
}

void fleet_release(struct kvr_serve *serve)
{
    while (serve->probes) {
        struct probe *probe = serve->probes;
        serve->probes = probe->next;
        free_probe(probe);
    }
}
