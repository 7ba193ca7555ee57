/*
 * One epoll, many descriptors and timers, one thread.
 *
 * A watch belongs to whoever embeds it and is known to the reactor while its descriptor is not
 * negative. What a callback wants freed it hands to kvr_reactor_discard(): events of the same batch
 * may still point there, so it is freed after the batch.
 *
 * Timers stand in a binary heap: O(log n) to set and stop, no allocation once it is large enough.
 */
#ifndef KVR_NET_REACTOR_H
#define KVR_NET_REACTOR_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/epoll.h>

struct kvr_watch {
    int descriptor;
    unsigned events; /* EPOLLIN, EPOLLOUT, …: what is asked for */
    void (*ready)(struct kvr_watch *watch, unsigned events);
};

struct kvr_timer {
    double due_ms; /* in kvr_clock_ms() */
    size_t place;  /* 1 + its place in the heap; 0: not set */
    void (*due)(struct kvr_timer *timer);
};

struct kvr_reactor {
    int epoll;
    double now_ms; /* when the batch began */
    struct kvr_timer **heap;
    size_t count, capacity;
    void **discarded;
    size_t discarded_count, discarded_capacity;
};

enum kvr_status kvr_reactor_init(struct kvr_reactor *reactor, struct kvr_error *error);
void kvr_reactor_release(struct kvr_reactor *reactor);

/* False when the kernel has no room for one more. */
bool kvr_reactor_add(struct kvr_reactor *reactor, struct kvr_watch *watch);
/* Changes what is asked for; no system call where nothing changes. */
void kvr_reactor_ask(struct kvr_reactor *reactor, struct kvr_watch *watch, unsigned events);
/* Forgets and closes the descriptor; fine when it is negative already. */
void kvr_reactor_close(struct kvr_reactor *reactor, struct kvr_watch *watch);

/* Sets or moves a timer. Where memory is short it is not set. */
void kvr_reactor_set(struct kvr_reactor *reactor, struct kvr_timer *timer, double due_ms);
void kvr_reactor_stop(struct kvr_reactor *reactor, struct kvr_timer *timer);

void kvr_reactor_discard(struct kvr_reactor *reactor, void *memory);

/* Waits for at most most_ms, runs what is ready and due. False on a failure of epoll itself. */
bool kvr_reactor_step(struct kvr_reactor *reactor, double most_ms);

#endif
