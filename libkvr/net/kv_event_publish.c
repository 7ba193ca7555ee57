#include "net/kv_event_publish.h"

#include <endian.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zmq.h>

enum {
    LINGER_MS = 2000,
    QUEUE = 256,               /* messages between the threads */
    SUBSCRIBER_QUEUE = 100000, /* as vLLM has it */
    AT_ONCE = 256,             /* messages between two looks for requests */
    REQUEST_FRAMES = 4,
};

/* A message that is kept. */
struct kept {
    uint64_t sequence;
    zmq_msg_t topic, payload;
};

/*
 * The caller's thread owns `feed` and nothing else of ZMQ; the publisher's own thread everything
 * else. Between them go messages of [kind, topic, sequence, payload]; kind is one byte.
 */
struct kvr_kv_publisher {
    void *feed;                            /* the caller's end */
    void *hopper, *subscribers, *requests; /* the thread's */
    pthread_t thread;
    bool running;
    atomic_uint subscriptions;
    atomic_ullong replays;
    struct kept *ring; /* the last messages: keep slots, from `oldest` on */
    uint64_t keep, oldest, count;
    size_t keep_bytes, bytes;
};

static void set(void *socket, int option, int value)
{
    zmq_setsockopt(socket, option, &value, sizeof value);
}

/* ---- the thread ---- */

static void drop_oldest(struct kvr_kv_publisher *p)
{
    struct kept *kept = &p->ring[p->oldest];

    p->bytes -= zmq_msg_size(&kept->payload);
    zmq_msg_close(&kept->topic);
    zmq_msg_close(&kept->payload);
    p->oldest = (p->oldest + 1) % p->keep;
    p->count--;
}

static void keep(
    struct kvr_kv_publisher *p, uint64_t sequence, zmq_msg_t *topic, zmq_msg_t *payload)
{
    if (!p->keep)
        return;
    while (p->count && (p->count == p->keep || p->bytes > p->keep_bytes))
        drop_oldest(p);
    struct kept *slot = &p->ring[(p->oldest + p->count++) % p->keep];
    slot->sequence = sequence;
    zmq_msg_init(&slot->topic);
    zmq_msg_init(&slot->payload);
    zmq_msg_copy(&slot->topic, topic); /* shares the bytes */
    zmq_msg_copy(&slot->payload, payload);
    p->bytes += zmq_msg_size(payload);
}

static bool send_copy(void *socket, zmq_msg_t *message, int flags)
{
    zmq_msg_t copy;

    zmq_msg_init(&copy);
    zmq_msg_copy(&copy, message);
    if (zmq_msg_send(&copy, socket, flags) >= 0)
        return true;
    zmq_msg_close(&copy);
    return false;
}

static bool send_number(void *socket, uint64_t number, int flags)
{
    number = htobe64(number);
    return zmq_send(socket, &number, sizeof number, flags) >= 0;
}

/* One request: [client, "", number]. */
static void answer(struct kvr_kv_publisher *p)
{
    zmq_msg_t frames[REQUEST_FRAMES];
    uint64_t from = 0;
    int count = 0, more = 1;

    while (more && count < REQUEST_FRAMES) {
        zmq_msg_init(&frames[count]);
        if (zmq_msg_recv(&frames[count], p->requests, ZMQ_DONTWAIT) < 0)
            break;
        more = zmq_msg_more(&frames[count++]);
    }
    if (count >= 2 && !more && zmq_msg_size(&frames[count - 1]) == sizeof from) {
        zmq_msg_t *client = &frames[0];
        memcpy(&from, zmq_msg_data(&frames[count - 1]), sizeof from);
        from = be64toh(from);
        for (uint64_t i = 0; i < p->count; i++) {
            struct kept *kept = &p->ring[(p->oldest + i) % p->keep];
            if (kept->sequence < from)
                continue;
            if (!send_copy(p->requests, client, ZMQ_SNDMORE))
                break;
            zmq_send(p->requests, "", 0, ZMQ_SNDMORE);
            send_copy(p->requests, &kept->topic, ZMQ_SNDMORE);
            send_number(p->requests, kept->sequence, ZMQ_SNDMORE);
            send_copy(p->requests, &kept->payload, 0);
        }
        if (send_copy(p->requests, client, ZMQ_SNDMORE)) {
            zmq_send(p->requests, "", 0, ZMQ_SNDMORE);
            zmq_send(p->requests, "", 0, ZMQ_SNDMORE);
            send_number(p->requests, UINT64_MAX, ZMQ_SNDMORE);
            zmq_send(p->requests, "", 0, 0);
        }
        atomic_fetch_add(&p->replays, 1);
    }
    for (int i = 0; i < count; i++)
        zmq_msg_close(&frames[i]);
}

/* One message from the caller. False: it was the last. */
static bool pass_on(struct kvr_kv_publisher *p)
{
    zmq_msg_t frames[4];
    uint64_t sequence = 0;
    char kind = 0;
    int count = 0, more = 1;

    while (more && count < 4) {
        zmq_msg_init(&frames[count]);
        if (zmq_msg_recv(&frames[count], p->hopper, 0) < 0)
            break;
        more = zmq_msg_more(&frames[count++]);
    }
    if (count && zmq_msg_size(&frames[0]) == 1)
        kind = *(const char *)zmq_msg_data(&frames[0]);
    if (count == 4) {
        memcpy(&sequence, zmq_msg_data(&frames[2]), sizeof sequence);
        keep(p, sequence, &frames[1], &frames[3]);
        if (kind == 's') {
            send_copy(p->subscribers, &frames[1], ZMQ_SNDMORE);
            send_number(p->subscribers, sequence, ZMQ_SNDMORE);
            send_copy(p->subscribers, &frames[3], 0);
        }
    }
    for (int i = 0; i < count; i++)
        zmq_msg_close(&frames[i]);
    return kind != 'e';
}

/* A subscription (1) or its end (0). */
static void count_subscribers(struct kvr_kv_publisher *p)
{
    char bytes[256];

    while (zmq_recv(p->subscribers, bytes, sizeof bytes, ZMQ_DONTWAIT) > 0) {
        if (bytes[0] == 1)
            atomic_fetch_add(&p->subscriptions, 1);
        else if (atomic_load(&p->subscriptions))
            atomic_fetch_sub(&p->subscriptions, 1);
    }
}

static bool has_input(void *socket)
{
    int events = 0;
    size_t size = sizeof events;

    return zmq_getsockopt(socket, ZMQ_EVENTS, &events, &size) == 0 && events & ZMQ_POLLIN;
}

static void *publish(void *context)
{
    struct kvr_kv_publisher *p = context;
    zmq_pollitem_t items[] = {{p->hopper, 0, ZMQ_POLLIN, 0}, {p->subscribers, 0, ZMQ_POLLIN, 0},
        {p->requests, 0, ZMQ_POLLIN, 0}};
    bool more = true;

    while (more) {
        if (zmq_poll(items, p->requests ? 3 : 2, -1) < 0 && errno != EINTR)
            break;
        if (items[1].revents)
            count_subscribers(p);
        if (p->requests && items[2].revents)
            answer(p);
        for (int i = 0; more && i < AT_ONCE && has_input(p->hopper); i++)
            more = pass_on(p);
    }
    while (p->count)
        drop_oldest(p);
    zmq_close(p->hopper);
    zmq_close(p->subscribers);
    if (p->requests)
        zmq_close(p->requests);
    return NULL;
}

/* ---- the caller ---- */

static enum kvr_status bind_to(void *socket, const char *endpoint, struct kvr_error *error)
{
    if (!socket)
        return kvr_error_memory(error);
    set(socket, ZMQ_LINGER, LINGER_MS);
    if (zmq_bind(socket, endpoint) == 0)
        return KVR_OK;
    return kvr_error_set(error,
        errno == EINVAL || errno == EPROTONOSUPPORT ? KVR_BAD_USAGE : KVR_IO,
        "cannot publish on '%s': %s", endpoint, zmq_strerror(errno));
}

static enum kvr_status open_sockets(struct kvr_kv_publisher *p, void *context,
    const struct kvr_kv_publisher_options *options, struct kvr_error *error)
{
    char name[64];
    enum kvr_status status;

    p->subscribers = zmq_socket(context, ZMQ_XPUB);
    if (p->subscribers) {
        set(p->subscribers, ZMQ_XPUB_VERBOSER, 1);
        set(p->subscribers, ZMQ_SNDHWM, SUBSCRIBER_QUEUE);
    }
    status = bind_to(p->subscribers, options->endpoint, error);
    if (status != KVR_OK)
        return status;
    if (options->replay) {
        p->requests = zmq_socket(context, ZMQ_ROUTER);
        if (p->requests)
            set(p->requests, ZMQ_SNDHWM, 0);
        status = bind_to(p->requests, options->replay, error);
        if (status != KVR_OK)
            return status;
    }
    snprintf(name, sizeof name, "inproc://kvr-publisher-%p", (void *)p);
    p->hopper = zmq_socket(context, ZMQ_PULL);
    p->feed = zmq_socket(context, ZMQ_PUSH);
    if (!p->hopper || !p->feed)
        return kvr_error_memory(error);
    set(p->hopper, ZMQ_RCVHWM, QUEUE);
    set(p->feed, ZMQ_SNDHWM, QUEUE);
    if (zmq_bind(p->hopper, name) != 0 || zmq_connect(p->feed, name) != 0)
        return kvr_error_set(error, KVR_IO, "cannot connect to itself: %s", zmq_strerror(errno));
    return KVR_OK;
}

enum kvr_status kvr_kv_publisher_open(struct kvr_kv_publisher **publisher, void *context,
    const struct kvr_kv_publisher_options *options, struct kvr_error *error)
{
    struct kvr_kv_publisher *p = calloc(1, sizeof *p);
    sigset_t all, old;

    *publisher = p;
    if (!p)
        return kvr_error_memory(error);
    p->keep = options->replay ? options->keep : 0;
    p->keep_bytes = options->keep_bytes;
    p->ring = p->keep ? calloc(p->keep, sizeof *p->ring) : NULL;
    enum kvr_status status =
        p->keep && !p->ring ? kvr_error_memory(error) : open_sockets(p, context, options, error);
    if (status == KVR_OK) {
        sigfillset(&all); /* signals are the caller's */
        pthread_sigmask(SIG_BLOCK, &all, &old);
        p->running = pthread_create(&p->thread, NULL, publish, p) == 0;
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        if (!p->running)
            status = kvr_error_memory(error);
    }
    if (status != KVR_OK) {
        kvr_kv_publisher_close(p);
        *publisher = NULL;
    }
    return status;
}

bool kvr_kv_publisher_send(struct kvr_kv_publisher *publisher, struct kvr_text topic,
    uint64_t sequence, struct kvr_frame payload, bool only_keep)
{
    void *feed = publisher->feed;

    return zmq_send(feed, only_keep ? "k" : "s", 1, ZMQ_SNDMORE) >= 0 &&
           zmq_send(feed, topic.text, topic.length, ZMQ_SNDMORE) >= 0 &&
           zmq_send(feed, &sequence, sizeof sequence, ZMQ_SNDMORE) >= 0 &&
           zmq_send(feed, payload.data, payload.size, 0) >= 0;
}

unsigned kvr_kv_publisher_subscribers(struct kvr_kv_publisher *publisher)
{
    return atomic_load(&publisher->subscriptions);
}

uint64_t kvr_kv_publisher_replays(struct kvr_kv_publisher *publisher)
{
    return atomic_load(&publisher->replays);
}

void kvr_kv_publisher_close(struct kvr_kv_publisher *p)
{
    if (!p)
        return;
    if (p->running) {
        while (zmq_send(p->feed, "e", 1, 0) < 0 && errno == EINTR)
            ;
        pthread_join(p->thread, NULL);
    } else {
        void *const sockets[] = {p->hopper, p->subscribers, p->requests};
        for (size_t i = 0; i < 3; i++)
            if (sockets[i])
                zmq_close(sockets[i]);
    }
    if (p->feed)
        zmq_close(p->feed);
    free(p->ring);
    free(p);
}
