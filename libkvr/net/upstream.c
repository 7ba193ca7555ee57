#include "net/upstream.h"

#include "base/clock.h"
#include "base/grow.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCRATCH_BYTES = 128 * 1024 };

enum kvr_status kvr_upstream_init(
    struct kvr_upstream *upstream, struct kvr_reactor *reactor, struct kvr_error *error)
{
    *upstream = (struct kvr_upstream){.reactor = reactor,
        .connect_timeout_ms = 1000,
        .answer_timeout_ms = 600e3,
        .stall_timeout_ms = 600e3,
        .open_ms = 1000,
        .open_most_ms = 30e3,
        .scratch = malloc(SCRATCH_BYTES)};
    return upstream->scratch ? KVR_OK : kvr_error_memory(error);
}

static void free_backend(struct kvr_upstream *upstream, struct kvr_upstream_worker *backend)
{
    kvr_upstream_remove(upstream, backend);
    kvr_reactor_stop(upstream->reactor, &backend->reopen);
    free(backend->name);
    free(backend->url);
    free(backend->host);
    free(backend->prefix);
    free(backend);
}

void kvr_upstream_release(struct kvr_upstream *upstream)
{
    for (size_t i = 0; i < upstream->count; i++)
        free_backend(upstream, upstream->backends[i]);
    free(upstream->backends);
    free(upstream->scratch);
    memset(upstream, 0, sizeof *upstream);
}

static enum kvr_status bad_url(struct kvr_text url, const char *why, struct kvr_error *error)
{
    return kvr_error_set(
        error, KVR_BAD_USAGE, "worker url '%.*s': %s", (int)url.length, url.text, why);
}

/* http://HOST[:PORT][/PREFIX], HOST maybe [v6]. */
static enum kvr_status read_url(
    struct kvr_upstream_worker *backend, struct kvr_text url, struct kvr_error *error)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    char host[256], port[8] = "80";

    if (url.length < 8 || memcmp(url.text, "http://", 7) != 0)
        return bad_url(
            url, "not http:// (put a TLS proxy in front of workers that need it)", error);
    const char *at = url.text + 7, *end = url.text + url.length;
    const char *slash = memchr(at, '/', (size_t)(end - at));
    const char *stop = slash ? slash : end;
    for (const char *byte = at; byte < end; byte++)
        if ((unsigned char)*byte <= ' ' || (unsigned char)*byte >= 0x7f || *byte == '@')
            return bad_url(url, "a byte that has no place there", error);
    const char *closing = *at == '[' ? memchr(at, ']', (size_t)(stop - at)) : NULL;
    const char *colon =
        memchr(closing ? closing : at, ':', (size_t)(stop - (closing ? closing : at)));
    const char *name = closing ? at + 1 : at;
    size_t length = (size_t)((closing ? closing : colon ? colon : stop) - name);
    if (!length || length >= sizeof host || (colon && (size_t)(stop - colon) > 6))
        return bad_url(url, "no host, or no port", error);
    memcpy(host, name, length);
    host[length] = '\0';
    if (colon)
        snprintf(port, sizeof port, "%.*s", (int)(stop - colon - 1), colon + 1);
    if (strspn(port, "0123456789") != strlen(port) || atoi(port) < 1 || atoi(port) > 65535)
        return bad_url(url, "a port that is none", error);
    if (getaddrinfo(host, port, &hints, &found) != 0 || !found)
        return bad_url(url, "its host is not found", error);
    memcpy(&backend->address, found->ai_addr, found->ai_addrlen);
    backend->address_length = found->ai_addrlen;
    freeaddrinfo(found);
    while (end > stop && end[-1] == '/')
        end--;
    if (end - stop >= 3 && memcmp(end - 3, "/v1", 3) == 0)
        end -= 3;
    free(backend->host);
    free(backend->prefix);
    free(backend->url);
    backend->host = strndup(at, (size_t)(stop - at));
    backend->prefix = strndup(stop, (size_t)(end - stop));
    backend->url = strndup(url.text, url.length);
    return backend->host && backend->prefix && backend->url ? KVR_OK : kvr_error_memory(error);
}

struct kvr_upstream_worker *kvr_upstream_find(
    const struct kvr_upstream *upstream, const char *name, size_t length)
{
    for (size_t i = 0; i < upstream->count; i++) {
        struct kvr_upstream_worker *backend = upstream->backends[i];
        if (!backend->gone && strlen(backend->name) == length &&
            memcmp(backend->name, name, length) == 0)
            return backend;
    }
    return NULL;
}

/* A place in the list: that of one that is gone and has nothing under way, or a new one. */
static enum kvr_status place(
    struct kvr_upstream *upstream, struct kvr_upstream_worker *backend, struct kvr_error *error)
{
    for (size_t i = 0; i < upstream->count; i++) {
        struct kvr_upstream_worker *old = upstream->backends[i];
        if (old->gone && !old->in_flight) {
            free_backend(upstream, old);
            upstream->backends[i] = backend;
            backend->number = (uint32_t)i;
            return KVR_OK;
        }
    }
    struct kvr_upstream_worker **grown =
        kvr_grow(upstream->backends, &upstream->capacity, upstream->count + 1, sizeof *grown);
    if (!grown)
        return kvr_error_memory(error);
    upstream->backends = grown;
    backend->number = (uint32_t)upstream->count;
    grown[upstream->count++] = backend;
    return KVR_OK;
}

/* The breaker has been open for long enough. */
static void may_be_tried(struct kvr_timer *timer)
{
    struct kvr_upstream_worker *backend =
        (struct kvr_upstream_worker *)((char *)timer -
                                       offsetof(struct kvr_upstream_worker, reopen));

    if (backend->breaker == KVR_BREAKER_OPEN && backend->upstream->changed)
        backend->upstream->changed(backend->upstream->context, backend);
}

enum kvr_status kvr_upstream_set(struct kvr_upstream *upstream,
    const struct kvr_worker_description *worker, struct kvr_upstream_worker **out,
    struct kvr_error *error)
{
    struct kvr_upstream_worker *backend =
        kvr_upstream_find(upstream, worker->name.text, worker->name.length);
    bool known = backend != NULL;
    char safe[300];

    if (!known && !worker->url.length)
        return kvr_error_set(error, KVR_BAD_USAGE,
            "worker '%s' has no url (http://HOST:PORT, or NAME=http://HOST:PORT)",
            kvr_printable(safe, sizeof safe, worker->name.text, worker->name.length));
    if (!known) {
        backend = calloc(1, sizeof *backend);
        if (!backend)
            return kvr_error_memory(error);
        backend->healthy = true;
        backend->open_for_ms = upstream->open_ms;
        backend->upstream = upstream;
        backend->reopen.due = may_be_tried;
        backend->name = strndup(worker->name.text, worker->name.length);
    }
    enum kvr_status status = backend->name ? KVR_OK : kvr_error_memory(error);
    bool moved = known && worker->url.length &&
                 (strlen(backend->url) != worker->url.length ||
                     memcmp(backend->url, worker->url.text, worker->url.length) != 0);
    if (status == KVR_OK && (moved || (!known && worker->url.length)))
        status = read_url(backend, worker->url, error);
    if (status == KVR_OK && moved) { /* what is kept leads to where it was */
        backend->moves++;
        kvr_upstream_forget_idle(backend);
    }
    if (status == KVR_OK && !known)
        status = place(upstream, backend, error);
    if (status != KVR_OK) {
        if (!known)
            free_backend(upstream, backend);
        return status;
    }
    backend->state = worker->state;
    backend->role = worker->role;
    backend->weight = worker->weight > 0 ? worker->weight : 1;
    if (worker->capacity.amount)
        backend->capacity = worker->capacity;
    *out = backend;
    return KVR_OK;
}

bool kvr_backend_usable(
    const struct kvr_upstream *upstream, const struct kvr_upstream_worker *backend)
{
    if (backend->gone || backend->state == KVR_WORKER_DOWN || !backend->healthy)
        return false;
    if (backend->breaker == KVR_BREAKER_OPEN)
        return upstream->reactor->now_ms >= backend->open_until_ms;
    return backend->breaker == KVR_BREAKER_CLOSED || !backend->trying;
}

struct kvr_upstream_worker *kvr_upstream_least(struct kvr_upstream *upstream, uint64_t tried)
{
    struct kvr_upstream_worker *least = NULL;

    for (size_t i = 0; i < upstream->count; i++) {
        struct kvr_upstream_worker *backend = upstream->backends[i];
        if (!kvr_backend_usable(upstream, backend) || (i < 64 && tried >> i & 1))
            continue;
        if (!least || backend->state < least->state) {
            least = backend;
            continue;
        }
        double load = backend->in_flight / backend->weight, best = least->in_flight / least->weight;
        if (backend->state == least->state &&
            (load < best || (load <= best && backend->requests < least->requests)))
            least = backend;
    }
    return least;
}

void kvr_backend_succeeded(struct kvr_upstream *upstream, struct kvr_upstream_worker *backend)
{
    bool closed = backend->breaker == KVR_BREAKER_CLOSED;

    backend->failures = 0;
    backend->trying = false;
    backend->breaker = KVR_BREAKER_CLOSED;
    backend->open_for_ms = upstream->open_ms;
    if (!closed && upstream->changed)
        upstream->changed(upstream->context, backend);
}

void kvr_backend_failed(struct kvr_upstream *upstream, struct kvr_upstream_worker *backend)
{
    backend->errors++;
    backend->failures++;
    bool half = backend->breaker == KVR_BREAKER_HALF_OPEN;
    if (!half && (backend->breaker == KVR_BREAKER_OPEN || backend->failures < KVR_BREAKER_FAILURES))
        return;
    if (half)
        backend->open_for_ms *= 2;
    if (backend->open_for_ms > upstream->open_most_ms)
        backend->open_for_ms = upstream->open_most_ms;
    backend->trying = false;
    backend->breaker = KVR_BREAKER_OPEN;
    backend->open_until_ms = upstream->reactor->now_ms + backend->open_for_ms;
    kvr_reactor_set(upstream->reactor, &backend->reopen, backend->open_until_ms);
    upstream->breaker_opened++;
    if (upstream->changed)
        upstream->changed(upstream->context, backend);
}

void kvr_backend_health(
    struct kvr_upstream *upstream, struct kvr_upstream_worker *backend, bool healthy)
{
    bool before = backend->healthy;

    backend->health_failures = healthy ? 0 : backend->health_failures + 1;
    if (healthy)
        backend->healthy = true;
    else if (backend->health_failures >= 2)
        backend->healthy = false;
    if (before != backend->healthy && upstream->changed)
        upstream->changed(upstream->context, backend);
}
