/* Where workers are asked: names and URLs, for a client that is told of them by worker lines. */
#ifndef KVR_NET_ENDPOINTS_H
#define KVR_NET_ENDPOINTS_H

#include "line/worker.h"

struct kvr_endpoint {
    char *name, *url;
};

/* All zero bytes: none yet. */
struct kvr_endpoints {
    struct kvr_endpoint *items;
    size_t count, capacity;
};

void kvr_endpoints_release(struct kvr_endpoints *endpoints);

/* A worker's URL, new or again; a worker without one changes nothing. KVR_BAD_INPUT for a URL that
 * kvr_endpoint_check() refuses. Fits kvr_workers_each(), with the endpoints as context. */
enum kvr_status kvr_endpoints_set(
    void *endpoints, const struct kvr_worker_description *worker, struct kvr_error *error);

/* NULL where none is known by that name; valid until the next _set(). */
const char *kvr_endpoints_find(
    const struct kvr_endpoints *endpoints, const char *name, size_t length);

/* KVR_BAD_INPUT unless it is of http or https, or has no scheme (which is http): a file is no
 * endpoint. */
enum kvr_status kvr_endpoint_check(const char *url, struct kvr_error *error);

/* KVR_BAD_USAGE unless it is one header: a name, a colon, no line break. */
enum kvr_status kvr_header_check(const char *header, struct kvr_error *error);

#endif
