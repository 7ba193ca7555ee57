/*
 * Inside a stream: one rank of one publisher, its numbers, what waits for its turn, and what was
 * promised to be asked for. kv_event_lane.c keeps the order, kv_event_stream.c asks and answers.
 */
#ifndef KVR_NET_KV_EVENT_LANE_H
#define KVR_NET_KV_EVENT_LANE_H

#include "net/kv_event_stream.h"

enum {
    RING = 256,            /* last payloads whose hashes are kept */
    REORDER_MESSAGES = 64, /* that wait behind a gap without replay */
    WAITING_LIMIT = 65536, /* messages that wait, at most */
    ATTEMPTS = 3,          /* to get a replay, or to close one gap */
};

#define REBUILD_FIRST_MS 10e3
#define REBUILD_LAST_MS 600e3

#define LANE_BYTES (sizeof(struct lane) + 1024) /* its translator, its name, what malloc adds */

enum purpose { NO_WISH, FILL, REBUILD, VERIFY };

struct waiting {
    uint64_t sequence;
    double time_s; /* as its publisher says */
    uint8_t *bytes;
    size_t size;
};

/* One rank. */
struct lane {
    struct kvr_kv_stream *stream;
    struct kvr_kv_translator *translator;
    char *name;
    size_t pod_bytes; /* the name begins with the pod, or it has none */
    uint64_t rank, epoch;
    uint64_t next;  /* the number that comes next */
    uint64_t first; /* what is known is known from this number on */
    uint64_t until; /* so far replays must get: it was done before, or seen in an answer */
    bool joined, has_epoch, fresh; /* fresh: nothing done since it was last cleared */
    struct {
        uint64_t mark, hash; /* number + 1; XXH3-64 of the payload */
    } ring[RING];
    struct waiting *waiting; /* in order */
    size_t waiting_count, waiting_room;
    bool gap_open;
    double gap_since_ms;
    unsigned fills; /* in a row that did not close the gap */
    enum purpose wish;
    uint64_t orphans;
    double rebuild_after_ms, rebuild_interval_ms;
};

struct kvr_kv_stream {
    struct kvr_kv_stream_options options;
    struct kvr_kv_stream_counts counts;
    struct lane **lanes;
    size_t lane_count, lane_room;
    struct lane *last; /* asked for */
    double now_ms;
    struct {               /* the replay under way */
        struct lane *lane; /* NULL: none */
        enum purpose purpose;
        double deadline_ms;
        uint64_t from, replies, last;
        bool ignored; /* what still comes of it */
    } replay;
    unsigned attempts; /* without an answer */
    bool silent;       /* the last replay never came: the next gets one attempt */
};

void kvr_kv_lane_destroy(struct lane *lane);
/* What is known is void; what follows is known from number `from` on. */
void kvr_kv_lane_reset(struct lane *lane, const char *reason, uint64_t from);
/* Does a message, whatever its number. batch: the payload, read; NULL: not yet. */
enum kvr_status kvr_kv_lane_apply(struct lane *lane, uint64_t sequence, struct kvr_frame payload,
    struct kvr_kv_batch *batch, struct kvr_error *error);
/* Does what waits for its turn and has it now. */
void kvr_kv_lane_drain(struct lane *lane);
/* The messages before those that wait are lost. */
void kvr_kv_lane_give_up(struct lane *lane);
void kvr_kv_lane_restart(struct lane *lane);
/* A number that was done already: a double, too late, or of a publisher that started again. */
bool kvr_kv_lane_is_restart(
    struct lane *lane, uint64_t sequence, struct kvr_frame payload, bool replayed);
/* A message of the subscription. */
enum kvr_status kvr_kv_lane_take(struct lane *lane, uint64_t sequence, struct kvr_frame payload,
    struct kvr_kv_batch *batch, struct kvr_error *error);

#endif
