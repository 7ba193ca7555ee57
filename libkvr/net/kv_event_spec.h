/*
 * Where a stream comes from or goes to, as people write it:
 *     [NAME=]PLACE[,replay=PLACE][,topic=PREFIX][,model=NAME]
 * with places that are endpoints of ZMQ or files.
 */
#ifndef KVR_NET_KV_EVENT_SPEC_H
#define KVR_NET_KV_EVENT_SPEC_H

#include "line/json.h"

#include <stdbool.h>
#include <stddef.h>

struct kvr_kv_spec {
    const char *name; /* NULL where none was given */
    const char *place;
    const char *replay, *topic, *model; /* NULL: not given */
    char *memory;                       /* of all of them */
};

/* endpoint: the places must be ZMQ's ("tcp://…", "ipc://…"). KVR_BAD_USAGE. */
enum kvr_status kvr_kv_spec_read(
    const char *text, bool endpoint, struct kvr_kv_spec *spec, struct kvr_error *error);
void kvr_kv_spec_release(struct kvr_kv_spec *spec);

/* POD of a topic kv@POD@MODEL, llm-d's convention for publishers that share a stream; text NULL
 * where it has no such form. Points into the topic. */
struct kvr_text kvr_kv_topic_pod(struct kvr_text topic);

#endif
