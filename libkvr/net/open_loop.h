/*
 * Calls that leave when they are due, whether or not earlier ones have been answered: an open loop.
 *
 * A sender that waits for answers before it sends on measures a system that is never overloaded
 * (coordinated omission). Here calls stand in a queue with the time each is due; what keeps one
 * from leaving then is only the limit of calls under way, and how late it left is counted, as that
 * waiting is part of its time. Calls due leave in the order in which they were added.
 *
 *     kvr_open_loop_add(&loop, call);                       calls->ended(call) comes back for each
 *     while (!kvr_open_loop_idle(&loop))
 *         kvr_open_loop_wait(&loop, inputs, input_count);
 */
#ifndef KVR_NET_OPEN_LOOP_H
#define KVR_NET_OPEN_LOOP_H

#include "base/random.h"
#include "net/client.h"

struct kvr_open_loop;

/* The caller fills in call.url, body, body_length and the rest of the first part, and keeps all of
 * it until ended() or dropped() is called for it. Zero it before its first use. */
struct kvr_due_call {
    struct kvr_call call; /* first: ended and context are the loop's */
    double due_ms;        /* in kvr_clock_ms(); NaN: as soon as there is room */
    size_t held_bytes;    /* what it keeps in memory while it waits */
    /* results */
    unsigned tries;
    /* private */
    struct kvr_open_loop *loop;
    struct kvr_due_call *next, *before, *after;
};

struct kvr_open_loop {
    struct kvr_client *client;
    uint64_t concurrency;                     /* calls under way at most */
    uint64_t retries;                         /* of each call */
    bool (*stopped)(void);                    /* nothing is sent any more */
    void (*ended)(struct kvr_due_call *call); /* answered or failed, retries included */
    void (*dropped)(struct kvr_due_call *call, const struct kvr_error *error); /* never left */
    /* results */
    uint64_t sent;
    uint64_t late;    /* left more than 10 ms after they were due */
    double latest_ms; /* and the worst of these */
    size_t waiting;   /* not due yet, or without room */
    size_t waiting_bytes;
    /* private */
    struct kvr_due_call *first, *last, *under_way;
    size_t in_flight;
};

void kvr_open_loop_add(struct kvr_open_loop *loop, struct kvr_due_call *call);

/* Whether no call waits or is under way. */
bool kvr_open_loop_idle(const struct kvr_open_loop *loop);

/* Sends what is due. */
void kvr_open_loop_start(struct kvr_open_loop *loop);

/* Waits, at most a second, for whatever comes first: an answer, a call that is due, or something to
 * read from one of the inputs (64 at most), and does what there is to do. True when an input can be
 * read. */
bool kvr_open_loop_wait(struct kvr_open_loop *loop, const int *inputs, size_t input_count);

/* Ends the calls under way as KVR_CALL_CANCELLED; ended() is called for each. */
void kvr_open_loop_cancel(struct kvr_open_loop *loop);

/* Takes the next waiting call out of the queue; NULL when there is none. */
struct kvr_due_call *kvr_open_loop_take(struct kvr_open_loop *loop);

/* When requests are due: by a rate, evenly or by chance (exponential intervals), or by their
 * timestamps, so many times faster. */
struct kvr_pace {
    double rate;  /* a second; 0: timestamps */
    bool poisson; /* with rate */
    double speed; /* of timestamps; 0: as soon as there is room */
    struct kvr_random random;
    /* private */
    bool started;
    double start_ms, first_timestamp_ms, next_ms;
};

/* In kvr_clock_ms(), as now_ms is; NaN: as soon as there is room. timestamp_ms NaN: the request has
 * none. The first request is due now. */
double kvr_pace_next(struct kvr_pace *pace, double timestamp_ms, double now_ms);

#endif
