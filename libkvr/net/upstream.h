/*
 * The workers behind a front end, and one exchange with one of them: connect or take a kept
 * connection, send a request, read the answer as it comes.
 *
 *   exchange ──► connection of the worker's pool ──► worker
 *      ▲  head, data, ended, failed (callbacks)         │
 *      └────────────────────────────────────────────────┘
 *
 * Breaker. A worker that failed KVR_BREAKER_FAILURES times in a row is left alone for a while
 * (open), then changed() is called and one request may try (half-open): success closes the breaker,
 * failure opens it again for twice as long, up to a bound. Failures are connections that cannot be
 * made or that break, and answers that never begin; a status, whatever it is, is an answer.
 *
 * Memory: an exchange holds no copy of the answer; a connection that waits holds no buffer.
 */
#ifndef KVR_NET_UPSTREAM_H
#define KVR_NET_UPSTREAM_H

#include "line/worker.h"
#include "net/http.h"
#include "net/reactor.h"

#include <netinet/in.h>
#include <sys/socket.h>

enum { KVR_BREAKER_FAILURES = 3 };

struct kvr_upstream;
struct kvr_connection;

enum kvr_breaker { KVR_BREAKER_CLOSED, KVR_BREAKER_OPEN, KVR_BREAKER_HALF_OPEN };

struct kvr_upstream_worker {
    char *name, *url;
    char *host;   /* what the Host header says */
    char *prefix; /* of paths */
    struct sockaddr_storage address;
    socklen_t address_length;
    enum kvr_worker_state state; /* as people asked */
    enum kvr_worker_role role;
    double weight;
    struct kvr_capacity capacity;
    bool healthy; /* as health checks say */
    unsigned failures, health_failures;
    enum kvr_breaker breaker;
    double open_until_ms, open_for_ms;
    struct kvr_timer reopen;
    struct kvr_upstream *upstream;
    bool trying; /* half-open: one request is under way */
    uint32_t in_flight;
    uint64_t requests, errors;
    uint32_t number; /* its place in the upstream's list */
    uint64_t loaded; /* which reading of the workers named it last; the owner's */
    bool gone;       /* removed: nothing new goes there */
    uint32_t moves;  /* how often its address has changed */
    struct kvr_connection *idle;
    size_t idle_count;
};

struct kvr_upstream {
    struct kvr_reactor *reactor;
    struct kvr_upstream_worker **backends;
    size_t count, capacity;
    double connect_timeout_ms, answer_timeout_ms, stall_timeout_ms;
    double open_ms, open_most_ms; /* of breakers */
    uint64_t breaker_opened;
    /* told when a backend's breaker or health changes whether it can be used */
    void (*changed)(void *context, struct kvr_upstream_worker *backend);
    void *context;
    char *scratch; /* what is being read */
};

enum kvr_status kvr_upstream_init(
    struct kvr_upstream *upstream, struct kvr_reactor *reactor, struct kvr_error *error);
/* No exchange may be under way. */
void kvr_upstream_release(struct kvr_upstream *upstream);

/*
 * Adds a worker, or changes the one of that name. Its host is looked up now. KVR_BAD_USAGE for a
 * url that is not http://HOST[:PORT][/PATH], or a host that is not found.
 */
enum kvr_status kvr_upstream_set(struct kvr_upstream *upstream,
    const struct kvr_worker_description *worker, struct kvr_upstream_worker **backend,
    struct kvr_error *error);
struct kvr_upstream_worker *kvr_upstream_find(
    const struct kvr_upstream *upstream, const char *name, size_t length);
/* Closes the connections that are kept. */
void kvr_upstream_forget_idle(struct kvr_upstream_worker *backend);
/* Nothing new goes there; what is under way ends. The name may be added again. */
void kvr_upstream_remove(struct kvr_upstream *upstream, struct kvr_upstream_worker *backend);

/* Whether a request may be sent there now. */
bool kvr_backend_usable(
    const struct kvr_upstream *upstream, const struct kvr_upstream_worker *backend);

/* Among the usable ones that are not in `tried` (a bit a number, the first 64), the one with the
 * fewest requests under way by weight; NULL: none. draining ones only where there is no other. */
struct kvr_upstream_worker *kvr_upstream_least(struct kvr_upstream *upstream, uint64_t tried);

void kvr_backend_succeeded(struct kvr_upstream *upstream, struct kvr_upstream_worker *backend);
void kvr_backend_failed(struct kvr_upstream *upstream, struct kvr_upstream_worker *backend);
/* What a health check found. */
void kvr_backend_health(
    struct kvr_upstream *upstream, struct kvr_upstream_worker *backend, bool healthy);

enum kvr_exchange_failure {
    KVR_EXCHANGE_UNREACHED, /* no connection: nobody has seen the request */
    KVR_EXCHANGE_BROKEN,    /* the connection ended before the answer did */
    KVR_EXCHANGE_TIMED_OUT,
    KVR_EXCHANGE_NONSENSE, /* not HTTP that can be trusted */
};

struct kvr_exchange {
    /* the caller's: the request stays valid until the end */
    const char *head_bytes, *body_bytes;
    size_t head_length, body_length;
    bool to_head;             /* the request's method is HEAD */
    double answer_timeout_ms; /* 0: the upstream's */
    void (*headed)(struct kvr_exchange *exchange);
    void (*came)(struct kvr_exchange *exchange, const char *bytes, size_t length);
    void (*batch)(struct kvr_exchange *exchange); /* after the came() of one read; may be NULL */
    void (*ended)(struct kvr_exchange *exchange);
    void (*failed)(struct kvr_exchange *exchange, enum kvr_exchange_failure failure);
    void *context;
    /* results */
    struct kvr_http_head head; /* valid inside headed() */
    bool any_byte;             /* of the answer came */
    struct kvr_upstream_worker *backend;
    /* private */
    struct kvr_upstream *upstream;
    struct kvr_connection *connection;
    struct kvr_timer timer;
    double deadline_ms;
    struct kvr_buffer in; /* a head that is not whole */
    struct kvr_http_body body;
    size_t sent;
    bool head_done, paused;
    bool refused; /* the worker takes no more of the request; its answer may still be there */
};

/* Starts it. failed() may be called before this returns. */
void kvr_exchange_start(struct kvr_upstream *upstream, struct kvr_exchange *exchange,
    struct kvr_upstream_worker *backend);
/* Ends it without a callback: the connection is closed, which is what cancels at the worker. */
void kvr_exchange_cancel(struct kvr_exchange *exchange);
bool kvr_exchange_active(const struct kvr_exchange *exchange);
/* Stops and goes on reading. */
void kvr_exchange_pause(struct kvr_exchange *exchange, bool pause);
void kvr_exchange_release(struct kvr_exchange *exchange);

#endif
