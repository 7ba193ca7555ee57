#include "net/reactor.h"

#include "base/clock.h"
#include "base/grow.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { EVENTS_AT_ONCE = 256 };

enum kvr_status kvr_reactor_init(struct kvr_reactor *reactor, struct kvr_error *error)
{
    *reactor = (struct kvr_reactor){.epoll = epoll_create1(EPOLL_CLOEXEC)};
    reactor->now_ms = kvr_clock_ms();
    return reactor->epoll >= 0 ? KVR_OK : kvr_error_errno(error, KVR_IO, "cannot wait for events");
}

static void free_discarded(struct kvr_reactor *reactor)
{
    for (size_t i = 0; i < reactor->discarded_count; i++)
        free(reactor->discarded[i]);
    reactor->discarded_count = 0;
}

void kvr_reactor_release(struct kvr_reactor *reactor)
{
    free_discarded(reactor);
    free(reactor->discarded);
    free(reactor->heap);
    if (reactor->epoll >= 0)
        close(reactor->epoll);
    memset(reactor, 0, sizeof *reactor);
    reactor->epoll = -1;
}

bool kvr_reactor_add(struct kvr_reactor *reactor, struct kvr_watch *watch)
{
    struct epoll_event event = {.events = watch->events, .data.ptr = watch};

    return epoll_ctl(reactor->epoll, EPOLL_CTL_ADD, watch->descriptor, &event) == 0;
}

void kvr_reactor_ask(struct kvr_reactor *reactor, struct kvr_watch *watch, unsigned events)
{
    struct epoll_event event = {.events = events, .data.ptr = watch};

    if (watch->events == events || watch->descriptor < 0)
        return;
    watch->events = events;
    epoll_ctl(reactor->epoll, EPOLL_CTL_MOD, watch->descriptor, &event);
}

void kvr_reactor_close(struct kvr_reactor *reactor, struct kvr_watch *watch)
{
    if (watch->descriptor < 0)
        return;
    epoll_ctl(reactor->epoll, EPOLL_CTL_DEL, watch->descriptor, NULL);
    close(watch->descriptor);
    watch->descriptor = -1;
}

/* ---- timers ---- */

static void put(struct kvr_reactor *reactor, size_t place, struct kvr_timer *timer)
{
    reactor->heap[place] = timer;
    timer->place = place + 1;
}

static void rise(struct kvr_reactor *reactor, size_t place)
{
    struct kvr_timer *timer = reactor->heap[place];

    while (place && reactor->heap[(place - 1) / 2]->due_ms > timer->due_ms) {
        put(reactor, place, reactor->heap[(place - 1) / 2]);
        place = (place - 1) / 2;
    }
    put(reactor, place, timer);
}

static void sink(struct kvr_reactor *reactor, size_t place)
{
    struct kvr_timer *timer = reactor->heap[place];

    for (;;) {
        size_t child = 2 * place + 1;
        if (child >= reactor->count)
            break;
        if (child + 1 < reactor->count &&
            reactor->heap[child + 1]->due_ms < reactor->heap[child]->due_ms)
            child++;
        if (reactor->heap[child]->due_ms >= timer->due_ms)
            break;
        put(reactor, place, reactor->heap[child]);
        place = child;
    }
    put(reactor, place, timer);
}

void kvr_reactor_set(struct kvr_reactor *reactor, struct kvr_timer *timer, double due_ms)
{
    timer->due_ms = due_ms;
    if (!timer->place) {
        struct kvr_timer **grown =
            kvr_grow(reactor->heap, &reactor->capacity, reactor->count + 1, sizeof *grown);
        if (!grown)
            return; /* a timeout less: what it guards ends otherwise */
        reactor->heap = grown;
        reactor->count++;
        put(reactor, reactor->count - 1, timer);
    }
    rise(reactor, timer->place - 1);
    sink(reactor, timer->place - 1);
}

void kvr_reactor_stop(struct kvr_reactor *reactor, struct kvr_timer *timer)
{
    size_t place = timer->place;

    if (!place--)
        return;
    timer->place = 0;
    struct kvr_timer *last = reactor->heap[--reactor->count];
    if (last == timer)
        return;
    put(reactor, place, last);
    rise(reactor, place);
    sink(reactor, last->place - 1);
}

void kvr_reactor_discard(struct kvr_reactor *reactor, void *memory)
{
    void **grown = kvr_grow(reactor->discarded, &reactor->discarded_capacity,
        reactor->discarded_count + 1, sizeof *grown);

    if (!grown)
        return; /* leaked rather than freed too early */
    reactor->discarded = grown;
    grown[reactor->discarded_count++] = memory;
}

bool kvr_reactor_step(struct kvr_reactor *reactor, double most_ms)
{
    struct epoll_event events[EVENTS_AT_ONCE];
    double left_ms = most_ms;

    if (reactor->count && reactor->heap[0]->due_ms - kvr_clock_ms() < left_ms)
        left_ms = reactor->heap[0]->due_ms - kvr_clock_ms();
    int count =
        epoll_wait(reactor->epoll, events, EVENTS_AT_ONCE, left_ms <= 0 ? 0 : (int)ceil(left_ms));
    if (count < 0 && errno != EINTR)
        return false;
    reactor->now_ms = kvr_clock_ms();
    for (int i = 0; i < count; i++) {
        struct kvr_watch *watch = events[i].data.ptr;
        if (watch->descriptor >= 0)
            watch->ready(watch, events[i].events);
    }
    while (reactor->count && reactor->heap[0]->due_ms <= reactor->now_ms) {
        struct kvr_timer *timer = reactor->heap[0];
        kvr_reactor_stop(reactor, timer);
        timer->due(timer);
    }
    free_discarded(reactor);
    return true;
}
