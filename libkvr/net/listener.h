/*
 * A socket at which others connect.
 *
 * Where descriptors have run out, those that wait stay in the kernel's queue, and the socket stays
 * ready: its owner would be woken again and again for nothing, and take a processor to itself. So
 * it rests then, and is asked again after a tenth of a second (libev's manual calls the same "the
 * special problem of accept()ing when you can't").
 */
#ifndef KVR_NET_LISTENER_H
#define KVR_NET_LISTENER_H

#include "net/reactor.h"

#include <sys/socket.h>

struct kvr_listener {
    struct kvr_watch watch;
    struct kvr_timer timer; /* set while it rests */
    struct kvr_reactor *reactor;
};

/* Takes the descriptor over, which listens and does not block; ready is called when somebody waits.
 * False: the kernel has no room for it, or the descriptor is negative. */
bool kvr_listener_open(struct kvr_listener *listener, struct kvr_reactor *reactor, int descriptor,
    void (*ready)(struct kvr_watch *watch, unsigned events));
/* The next connection, that does not block; -1: none waits, or none can be taken for now. address
 * may be NULL. */
int kvr_listener_accept(
    struct kvr_listener *listener, struct sockaddr *address, socklen_t *address_bytes);
/* Fine where it was never opened but its descriptor is -1. */
void kvr_listener_close(struct kvr_listener *listener);

#endif
