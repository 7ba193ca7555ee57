/* Between the two halves of a ZMTP connection: zmtp_connect.c makes it, zmtp.c speaks over it. */
#ifndef KVR_NET_ZMTP_PRIVATE_H
#define KVR_NET_ZMTP_PRIVATE_H

#include "base/random.h"
#include "net/zmtp.h"

#include <netdb.h>

enum { KVR_ZMTP_SHAKE_MS = 10000 }; /* from connecting to READY */

enum kvr_zmtp_state { PAUSED, LOOKING_UP, CONNECTING, GREETING, SHAKING, CONNECTED };

struct kvr_zmtp {
    struct kvr_watch watch;
    struct kvr_timer timer;
    struct kvr_reactor *reactor;
    struct kvr_zmtp_reader reader;
    struct kvr_buffer out, waiting; /* to be sent now, and once there is a connection */
    enum kvr_zmtp_state state;
    bool dealer, readable, stirred, heard;
    bool adopted, pings;
    bool useful;               /* messages came over this connection */
    char *topic, *host, *port; /* port NULL: host is the path of a Unix socket */
    struct gaicb look_up;
    struct addrinfo hints;
    unsigned attempts; /* since it was connected last */
    double pause_ms, silent_ms;
    uint64_t connections;
    struct kvr_random random;
    char trouble[96];
};

/* ---- zmtp.c ---- */

void kvr_zmtp_set_timer(struct kvr_zmtp *c, double after_ms);
/* No connection, for this reason: another attempt after a pause. */
void kvr_zmtp_lose(struct kvr_zmtp *c, const char *why);
void kvr_zmtp_lose_errno(struct kvr_zmtp *c, int number);
/* The peer is there: says who we are. */
void kvr_zmtp_greet(struct kvr_zmtp *c);
void kvr_zmtp_on_ready(struct kvr_watch *watch, unsigned events);

/* ---- zmtp_connect.c ---- */

enum kvr_status kvr_zmtp_read_endpoint(
    struct kvr_zmtp *c, const char *endpoint, struct kvr_error *error);
/* Begins an attempt. */
void kvr_zmtp_begin(struct kvr_zmtp *c);
/* A while later, in state LOOKING_UP. */
void kvr_zmtp_look_up_goes_on(struct kvr_zmtp *c);
void kvr_zmtp_forget_look_up(struct kvr_zmtp *c);
/* Of a TCP socket: what is written goes at once, and a peer that is gone is noticed. */
void kvr_zmtp_set_options(int descriptor);
/* A port of this machine that nobody listens on, and that the kernel chose for our side too. */
bool kvr_zmtp_is_connected_to_itself(int descriptor);

#endif
