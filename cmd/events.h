/* The parts of kvr-events, and what they share. */
#ifndef KVR_CMD_EVENTS_H
#define KVR_CMD_EVENTS_H

#include "cmd/tool.h"
#include "net/kv_event_spec.h"
#include "net/kv_event_stream.h"
#include "net/kv_event_zmq.h"

struct events_settings {
    const char *record, *model, *layout;
    struct kvr_text_list replay, publish;
    bool native, ids, raw;
    uint64_t max_memory, max_message, wait, batch, keep, block_size;
    double idle_ms, replay_timeout_ms, reorder_ms, linger_ms;
};

/* Who publishes: an endpoint, or what a file says came from one. */
struct source {
    struct kvr_kv_spec spec;
    char *own_name; /* of the worker */
    char *key;      /* in a record: the name, and which of those who share it */
    char *recorded; /* the key in the record that is read under another name */
    bool unnamed;
    struct kvr_kv_socket *socket;
    struct kvr_kv_stream *stream;
    unsigned complaints, outages;
    bool connected, in_trouble;
    bool busy; /* more may have come than was taken */
    double wake_ms;
};

struct events {
    struct tool tool;
    struct events_settings settings;
    struct kvr_reactor reactor;
    struct kvr_zmtp_budget budget; /* of messages that are not whole */
    struct kvr_kv_memory memory;
    struct kvr_kv_sink sink;
    struct kvr_kv_told told; /* of workers that several sources tell of */
    struct source **sources;
    size_t source_count, source_room;
    struct kvr_writer record;
    uint64_t messages;
};

enum { EVENTS_COMPLAINTS = 10 }; /* about one source */

/* ---- kvr-events.c ---- */

/* Who a source is. */
struct source_name {
    const char *name;
    bool unnamed;   /* by whoever started us; publishers that say who they are, are then workers */
    unsigned share; /* the first, second, … of those with the name; 0: it is alone */
};

enum kvr_status events_add_source(struct events *events, const struct kvr_kv_spec *spec,
    const struct source_name *name, bool can_replay, struct source **made, struct kvr_error *error);
void events_show_statistics(struct events *events);
/* A message of a source. */
void events_take(struct events *events, struct source *source, const struct kvr_frame *frames,
    size_t count, bool replayed, double now_ms);
bool events_over(const struct events *events);

/* ---- events_live.c ---- */

/* Opens a socket for each operand. */
enum kvr_status events_open_sockets(struct events *events, struct kvr_error *error);
/* Until a signal, an error of the output, or --idle. */
void events_live(struct events *events);

/* ---- events_publish.c ---- */

/* --publish: the operands' lines, or the messages of --replay, to subscribers. Ends the tool and
 * returns the exit status. */
int publish_events(struct tool *tool, const struct events_settings *settings);

#endif
