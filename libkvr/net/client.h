/*
 * Calls to HTTP endpoints, many at a time, in one thread: libcurl's multi interface over an epoll
 * of its own, so that a program waits for everything with one poll().
 *
 *     kvr_client_start(client, call);
 *     for (;;) {
 *         poll(kvr_client_descriptor(client) and others, kvr_client_wait_ms(client));
 *         kvr_client_step(client);            calls call->ended(call)
 *     }
 *
 * Connections are kept and used again. Answers are read by net/answer.h as they come; the bytes
 * themselves are not kept. Redirects are not followed: who replays wants to know. Loopback is never
 * asked through a proxy.
 */
#ifndef KVR_NET_CLIENT_H
#define KVR_NET_CLIENT_H

#include "net/answer.h"

struct kvr_client;

struct kvr_client_options {
    double connect_timeout_ms;
    double timeout_ms;          /* of a whole call; 0: none */
    const char *const *headers; /* "Name: value", for every call */
    size_t header_count;
};

enum kvr_call_failure {
    KVR_CALL_ANSWERED,  /* status says how */
    KVR_CALL_UNREACHED, /* no connection: nobody has seen the request */
    KVR_CALL_BROKEN,    /* the connection ended before the answer did */
    KVR_CALL_TIMED_OUT,
    KVR_CALL_CANCELLED,
};

const char *kvr_call_failure_name(enum kvr_call_failure failure);

/* One call. The caller fills in the first part and keeps all of it until ended() is called, which
 * may start it anew. Zero it before its first use; release frees what calls leave behind. */
struct kvr_call {
    const char *url;
    const char *body; /* JSON, posted; NULL: a GET */
    size_t body_length;
    void (*ended)(struct kvr_call *call);
    void *context;
    /* results, times in kvr_clock_ms() */
    double started_ms, ended_ms;
    unsigned status; /* 0: no answer came */
    enum kvr_call_failure failure;
    bool any_byte;   /* of the body came */
    char error[256]; /* libcurl's words for a failure */
    struct kvr_answer answer;
    /* private */
    struct kvr_client *client;
    void *handle;
    bool begun;
};

enum kvr_status kvr_client_create(
    struct kvr_client **client, const struct kvr_client_options *options, struct kvr_error *error);
/* No call may be under way. */
void kvr_client_destroy(struct kvr_client *client);

/* Fails with KVR_NO_MEMORY or KVR_BAD_INPUT (a URL that is none); ended() is not called then. */
enum kvr_status kvr_client_start(
    struct kvr_client *client, struct kvr_call *call, struct kvr_error *error);

/* Ends a call as KVR_CALL_CANCELLED; ended() is called. */
void kvr_client_cancel(struct kvr_call *call);

void kvr_call_release(struct kvr_call *call);

int kvr_client_descriptor(const struct kvr_client *client);

/* For how long nothing need be done without activity of the descriptor; -1: any time. */
int kvr_client_wait_ms(const struct kvr_client *client);

/* Does what can be done without waiting. */
void kvr_client_step(struct kvr_client *client);

#endif
