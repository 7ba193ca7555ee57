/*
 * An OpenAI-compatible front end over a fleet of workers: HTTP in, a request line, a decision, HTTP
 * out to the chosen worker, the answer back chunk by chunk.
 *
 *    guest (a client's connection) ─► call (one request) ─► decision ─► exchange (one attempt)
 *      ▲                                                                   │
 *      └────────────── head, chunks as they come ◄────────────────────────┘
 *
 * One thread, one epoll. The HTTP of both sides is net/http.h and not libmicrohttpd and libcurl,
 * for three things that a front end owes: a client that goes away cancels its worker's work at once
 * (libmicrohttpd does not watch a suspended connection), messages that two readers could read
 * differently are refused (net/http.h), and a request costs a few system calls and little else.
 *
 * Memory: a connection that waits holds a quarter of a kilobyte, no buffers. Bodies are bounded one
 * by one and together. A client that reads slowly holds its worker's stream back; it never gathers
 * in here.
 */
#ifndef KVR_NET_SERVE_H
#define KVR_NET_SERVE_H

#include "base/options.h"
#include "net/decide.h"

struct kvr_serve;

struct kvr_serve_options {
    const char *listen;  /* HOST:PORT, [v6]:PORT, or PORT on loopback */
    const char *workers; /* URL,NAME=URL,… or a file of worker lines, read again by reload() */
    const struct kvr_text_list *merged; /* -m: lines for the decision */
    const char *events;                 /* arguments of kvr-events, NULL: it is not run */
    struct kvr_decider *decider;        /* in process; or, where NULL, */
    const char *command;                /* the pipeline */
    const char *session;                /* header:NAME, cookie:NAME, or an expression on the body */
    const char *log;                    /* the access log, NULL: none */
    bool log_prompts;
    const char *key_file; /* NULL: anybody may ask */
    const char *health_path;
    double decision_timeout_ms, connect_timeout_ms, answer_timeout_ms, client_timeout_ms;
    double health_every_ms; /* 0: no health checks */
    double scrape_every_ms; /* 0: workers are not asked for their metrics */
    uint64_t retries, max_body_bytes, max_buffered_bytes, max_in_flight, max_connections;
    /* told what a person should know; NULL: nobody */
    void (*say)(void *context, bool warning, const char *text);
    void *context;
};

/* Listens at once. KVR_IO where the address is taken, KVR_BAD_USAGE for what is out of range. */
enum kvr_status kvr_serve_create(
    struct kvr_serve **serve, const struct kvr_serve_options *options, struct kvr_error *error);
void kvr_serve_destroy(struct kvr_serve *serve);

/* The port that it listens on. */
unsigned kvr_serve_port(const struct kvr_serve *serve);

/* Does what there is to do, waiting for at most most_ms. KVR_IO when epoll fails;
 * KVR_BAD_USAGE when the pipeline, or kvr-events, turns out at its start not to be runnable as it
 * was given. */
enum kvr_status kvr_serve_step(struct kvr_serve *serve, double most_ms, struct kvr_error *error);

/* Reads the workers again and opens the log anew. */
void kvr_serve_reload(struct kvr_serve *serve);

/* No new connections; what is under way ends. True when nothing is left. */
void kvr_serve_drain(struct kvr_serve *serve);
bool kvr_serve_idle(const struct kvr_serve *serve);

#endif
