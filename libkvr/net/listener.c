#include "net/listener.h"

#include "base/clock.h"

#include <errno.h>

enum { REST_MS = 100 };

static void goes_on(struct kvr_timer *timer)
{
    struct kvr_listener *listener =
        (struct kvr_listener *)((char *)timer - offsetof(struct kvr_listener, timer));

    kvr_reactor_ask(listener->reactor, &listener->watch, EPOLLIN);
}

/* Without a timer it would never go on: then it does not rest. */
static void rest(struct kvr_listener *listener)
{
    kvr_reactor_set(listener->reactor, &listener->timer, kvr_clock_ms() + REST_MS);
    if (listener->timer.place)
        kvr_reactor_ask(listener->reactor, &listener->watch, 0);
}

bool kvr_listener_open(struct kvr_listener *listener, struct kvr_reactor *reactor, int descriptor,
    void (*ready)(struct kvr_watch *watch, unsigned events))
{
    *listener = (struct kvr_listener){{descriptor, EPOLLIN, ready}, {.due = goes_on}, reactor};
    return descriptor >= 0 && kvr_reactor_add(reactor, &listener->watch);
}

int kvr_listener_accept(
    struct kvr_listener *listener, struct sockaddr *address, socklen_t *address_bytes)
{
    for (;;) {
        int descriptor = accept4(
            listener->watch.descriptor, address, address_bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (descriptor >= 0)
            return descriptor;
        if (errno == EINTR || errno == ECONNABORTED)
            continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK)
            rest(listener);
        return -1;
    }
}

void kvr_listener_close(struct kvr_listener *listener)
{
    if (listener->watch.descriptor < 0)
        return;
    kvr_reactor_stop(listener->reactor, &listener->timer);
    kvr_reactor_close(listener->reactor, &listener->watch);
}
