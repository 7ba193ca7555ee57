#include "net/kv_event_stream.h"

#include "base/grow.h"
#include "net/kv_event_spec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

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

enum kvr_status kvr_kv_stream_create(struct kvr_kv_stream **stream,
    const struct kvr_kv_stream_options *options, struct kvr_error *error)
{
    *stream = calloc(1, sizeof **stream);
    if (!*stream)
        return kvr_error_memory(error);
    (*stream)->options = *options;
    return KVR_OK;
}

/* What a message that waits takes: its bytes, its place in the list, what malloc adds. */
static size_t waiting_bytes(size_t size)
{
    return size + sizeof(struct waiting) + 32;
}

static void drop_waiting(struct lane *lane, size_t count)
{
    if (!count)
        return;
    for (size_t i = 0; i < count; i++) {
        lane->stream->options.memory->used -= waiting_bytes(lane->waiting[i].size);
        free(lane->waiting[i].bytes);
    }
    lane->waiting_count -= count;
    memmove(lane->waiting, lane->waiting + count, lane->waiting_count * sizeof *lane->waiting);
}

static void destroy_lane(struct lane *lane)
{
    lane->stream->options.memory->used -= LANE_BYTES;
    if (lane->waiting)
        drop_waiting(lane, lane->waiting_count);
    free(lane->waiting);
    kvr_kv_translator_destroy(lane->translator);
    free(lane->name);
    free(lane);
}

void kvr_kv_stream_destroy(struct kvr_kv_stream *stream)
{
    if (!stream)
        return;
    for (size_t i = 0; i < stream->lane_count; i++)
        destroy_lane(stream->lanes[i]);
    free(stream->lanes);
    free(stream);
}

static char *lane_name(struct kvr_text name, uint64_t rank)
{
    char *text;

    if (!rank)
        return strndup(name.text, name.length);
    return asprintf(&text, "%.*s/%llu", (int)name.length, name.text, (unsigned long long)rank) < 0
               ? NULL
               : text;
}

static bool is_lane(const struct lane *lane, struct kvr_text pod, uint64_t rank)
{
    return lane->rank == rank && lane->pod_bytes == pod.length &&
           (!pod.length || memcmp(lane->name, pod.text, pod.length) == 0);
}

/* The lane of a rank of a pod, made where it is new. */
static struct lane *lane_of(
    struct kvr_kv_stream *stream, struct kvr_text pod, uint64_t rank, struct kvr_error *error)
{
    const char *own = stream->options.name;

    if (stream->last && is_lane(stream->last, pod, rank))
        return stream->last;
    for (size_t i = 0; i < stream->lane_count; i++)
        if (is_lane(stream->lanes[i], pod, rank))
            return stream->last = stream->lanes[i];
    if (rank >= KVR_KV_RANK_LIMIT) {
        kvr_error_set(error, KVR_BAD_INPUT, "a rank out of range");
        return NULL;
    }
    struct kvr_kv_memory *memory = stream->options.memory;
    if (LANE_BYTES > memory->limit - memory->used) {
        kvr_error_set(error, KVR_BAD_INPUT, "no memory left for one more rank");
        return NULL;
    }
    struct lane **lanes =
        kvr_grow(stream->lanes, &stream->lane_room, stream->lane_count + 1, sizeof *lanes);
    struct lane *lane = lanes ? calloc(1, sizeof *lane) : NULL;
    if (lanes)
        stream->lanes = lanes;
    if (!lane) {
        kvr_error_memory(error);
        return NULL;
    }
    memory->used += LANE_BYTES;
    lane->stream = stream;
    lane->rank = rank;
    lane->rebuild_interval_ms = REBUILD_FIRST_MS;
    lane->pod_bytes = pod.length;
    lane->name = lane_name(pod.text ? pod : (struct kvr_text){own, strlen(own)}, rank);
    const struct kvr_kv_translator_options options = {
        lane->name, stream->options.model, stream->options.native, stream->options.tokens};
    if (!lane->name) {
        kvr_error_memory(error);
    } else if (kvr_kv_translator_create(&lane->translator, &options, stream->options.memory,
                   stream->options.sink, error) == KVR_OK) {
        kvr_kv_translator_clear(lane->translator, "join");
        lane->fresh = true;
        lanes[stream->lane_count++] = lane;
        return stream->last = lane;
    }
    destroy_lane(lane);
    return NULL;
}

/* ---- one lane ---- */

/* What is known is void; what follows is known from number `from` on. */
static void reset(struct lane *lane, const char *reason, uint64_t from)
{
    if (!lane->fresh)
        kvr_kv_translator_clear(lane->translator, reason);
    memset(lane->ring, 0, sizeof lane->ring);
    lane->fresh = true;
    lane->next = lane->first = from;
}

/* batch: the payload, read; NULL: not yet. */
static enum kvr_status apply(struct lane *lane, uint64_t sequence, struct kvr_frame payload,
    struct kvr_kv_batch *batch, struct kvr_error *error)
{
    struct kvr_kv_batch own;
    enum kvr_status status = KVR_OK;

    if (!batch) {
        status = kvr_kv_batch_read(payload, &lane->stream->options.memory->decoder, &own, error);
        batch = &own;
    }
    lane->ring[sequence % RING].mark = sequence + 1;
    lane->ring[sequence % RING].hash = XXH3_64bits(payload.data, payload.size);
    lane->next = sequence + 1;
    lane->fresh = false;
    if (status == KVR_OK)
        status = kvr_kv_translate(lane->translator, batch, error);
    uint64_t orphans = kvr_kv_translator_counts(lane->translator)->orphans;
    double now_ms = lane->stream->now_ms;
    if (orphans > lane->orphans && lane->stream->options.can_replay && lane->wish == NO_WISH &&
        now_ms >= lane->rebuild_after_ms) {
        lane->wish = REBUILD;
        lane->rebuild_after_ms = now_ms + lane->rebuild_interval_ms;
        lane->rebuild_interval_ms = fmin(2 * lane->rebuild_interval_ms, REBUILD_LAST_MS);
    }
    lane->orphans = orphans;
    return status;
}

/* Does what waits for its turn and has it now. */
static void drain(struct lane *lane)
{
    size_t done = 0;

    while (done < lane->waiting_count && lane->waiting[done].sequence <= lane->next) {
        const struct waiting *message = &lane->waiting[done++];
        if (message->sequence == lane->next)
            apply(lane, message->sequence, (struct kvr_frame){message->bytes, message->size}, NULL,
                NULL);
    }
    if (done)
        drop_waiting(lane, done);
    if (!lane->waiting_count) {
        lane->gap_open = false;
        lane->fills = 0;
        if (lane->wish == FILL)
            lane->wish = NO_WISH;
    }
}

/* The messages before those that wait are lost. */
static void give_up(struct lane *lane)
{
    if (!lane->waiting_count)
        return;
    uint64_t from = lane->waiting[0].sequence;
    if (!lane->fresh)
        lane->stream->counts.lost_messages += from - lane->next;
    reset(lane, "gap", from);
    lane->fills = 0;
    lane->gap_since_ms = lane->stream->now_ms;
    drain(lane);
    if (lane->waiting_count && lane->stream->options.can_replay)
        lane->wish = FILL;
}

/* *other: a message of this number with other content waits already. */
static enum kvr_status keep_waiting(struct lane *lane, uint64_t sequence, struct kvr_frame payload,
    double time_s, bool *other, struct kvr_error *error)
{
    struct kvr_kv_stream *stream = lane->stream;
    struct kvr_kv_memory *memory = stream->options.memory;
    size_t at = lane->waiting_count;

    while (at && lane->waiting[at - 1].sequence > sequence)
        at--;
    if (at && lane->waiting[at - 1].sequence == sequence) {
        const struct waiting *same = &lane->waiting[at - 1];
        *other = same->size != payload.size || memcmp(same->bytes, payload.data, payload.size) != 0;
        stream->counts.doubles += !*other;
        return KVR_OK;
    }
    if (waiting_bytes(payload.size) > memory->limit - memory->used ||
        lane->waiting_count >= WAITING_LIMIT) {
        stream->counts.dropped_messages++;
        return KVR_OK;
    }
    struct waiting *grown =
        kvr_grow(lane->waiting, &lane->waiting_room, lane->waiting_count + 1, sizeof *grown);
    if (!grown)
        return kvr_error_memory(error);
    lane->waiting = grown;
    uint8_t *bytes = malloc(payload.size ? payload.size : 1);
    if (!bytes)
        return kvr_error_memory(error);
    memcpy(bytes, payload.data, payload.size);
    memmove(grown + at + 1, grown + at, (lane->waiting_count - at) * sizeof *grown);
    grown[at] = (struct waiting){sequence, time_s, bytes, payload.size};
    lane->waiting_count++;
    memory->used += waiting_bytes(payload.size);
    if (!lane->gap_open) {
        lane->gap_open = true;
        lane->gap_since_ms = stream->now_ms;
        if (!lane->fresh)
            stream->counts.gaps++;
        if (stream->options.can_replay)
            lane->wish = FILL;
    } else if (!stream->options.can_replay && lane->waiting_count > REORDER_MESSAGES) {
        give_up(lane);
    }
    return KVR_OK;
}

static void restart(struct lane *lane)
{
    lane->stream->counts.restarts++;
    drop_waiting(lane, lane->waiting_count);
    if (lane->stream->replay.lane == lane)
        lane->stream->replay.ignored = true; /* it may be of both */
    lane->until = 0;
    lane->gap_open = false;
    lane->wish = NO_WISH;
    lane->rebuild_after_ms = 0;
    lane->rebuild_interval_ms = REBUILD_FIRST_MS;
    reset(lane, "restart", 0);
    lane->joined = false;
}

/* A number that was done already: a double, too late, or of a publisher that started again. */
static bool is_restart(
    struct lane *lane, uint64_t sequence, struct kvr_frame payload, bool replayed)
{
    struct kvr_kv_stream_counts *counts = &lane->stream->counts;

    if (lane->ring[sequence % RING].mark == sequence + 1) {
        if (lane->ring[sequence % RING].hash != XXH3_64bits(payload.data, payload.size))
            return true;
        counts->doubles += !replayed;
        return false;
    }
    if (!replayed && (!sequence || lane->next - sequence > RING))
        return true;
    counts->stale_messages += !replayed;
    return false;
}

static enum kvr_status lane_take(struct lane *lane, uint64_t sequence, struct kvr_frame payload,
    struct kvr_kv_batch *batch, struct kvr_error *error)
{
    if (!lane->joined) {
        lane->joined = true;
        lane->next = lane->first = 0;
        if (sequence) {
            lane->stream->counts.late_joins++;
            if (!lane->stream->options.can_replay)
                lane->next = lane->first = sequence;
        }
    }
    /* Earlier by number and later by time than what waits: the publisher counts anew. */
    const struct waiting *last =
        lane->waiting_count ? &lane->waiting[lane->waiting_count - 1] : NULL;
    bool anew = last && sequence < last->sequence && batch->time_s > last->time_s;
    if (anew || sequence < lane->next) {
        if (!anew && !is_restart(lane, sequence, payload, false))
            return KVR_OK;
        restart(lane);
        return lane_take(lane, sequence, payload, batch, error);
    }
    if (sequence > lane->next) {
        bool other = false;
        enum kvr_status status =
            keep_waiting(lane, sequence, payload, batch->time_s, &other, error);
        if (!other)
            return status;
        restart(lane);
        return lane_take(lane, sequence, payload, batch, error);
    }
    enum kvr_status status = apply(lane, sequence, payload, batch, error);
    drain(lane);
    return status;
}

/* ---- replays ---- */

/* The first reply shows how far back the publisher goes. */
static void begin_replay(struct lane *lane, uint64_t sequence)
{
    struct kvr_kv_stream *stream = lane->stream;

    switch (stream->replay.purpose) {
    case REBUILD:
        if (sequence < lane->first || (!sequence && !lane->first)) {
            lane->until = lane->next > lane->until ? lane->next : lane->until;
            reset(lane, "rebuild", sequence);
        } else {
            stream->replay.ignored = true;
        }
        break;
    case FILL:
    case VERIFY:
        if (sequence > lane->next) {
            if (!lane->fresh)
                stream->counts.lost_messages += sequence - lane->next;
            reset(lane, "gap", sequence);
        }
        break;
    case NO_WISH:
        break;
    }
}

static enum kvr_status take_replayed(struct lane *lane, uint64_t sequence, struct kvr_frame payload,
    struct kvr_kv_batch *batch, struct kvr_error *error)
{
    struct kvr_kv_stream *stream = lane->stream;
    bool asked = stream->replay.lane == lane;

    stream->counts.replayed_messages++;
    if (!lane->joined) { /* a replay that is read as a stream of its own */
        lane->joined = true;
        lane->next = lane->first = sequence;
    }
    if (asked && !stream->replay.replies++)
        begin_replay(lane, sequence);
    /* Answers come in order: what repeats itself forever gets no more time. */
    if (asked && (stream->replay.replies == 1 || sequence > stream->replay.last)) {
        stream->replay.deadline_ms = stream->now_ms + stream->options.replay_timeout_ms;
        stream->replay.last = sequence;
    }
    if (asked && stream->replay.ignored)
        return KVR_OK;
    if (sequence < lane->next) {
        if (!asked || !is_restart(lane, sequence, payload, true))
            return KVR_OK;
        /* Another publisher than the one that we knew: everything of it, from the start. */
        restart(lane);
        lane->joined = true;
        lane->wish = FILL;
        stream->replay.ignored = true;
        return KVR_OK;
    }
    if (sequence > lane->next) {
        /* Publishers keep messages without holes, but drop answers that we are too slow for: what
         * is missing is asked for when this is over. */
        stream->replay.ignored = asked;
        if (asked && sequence > lane->until)
            lane->until = sequence;
        return KVR_OK;
    }
    enum kvr_status status = apply(lane, sequence, payload, batch, error);
    drain(lane);
    return status;
}

/* The replay is over: by its end, or (answered false) because none came. */
static void end_replay(struct kvr_kv_stream *stream, bool answered)
{
    struct lane *lane = stream->replay.lane;
    enum purpose purpose = stream->replay.purpose;
    uint64_t replies = stream->replay.replies;

    stream->replay.lane = NULL;
    if (!lane)
        return;
    stream->attempts = 0;
    stream->silent = !answered && !replies;
    if (purpose == VERIFY && answered && !replies) {
        restart(lane);
        lane->joined = true;
        lane->wish = FILL;
    }
    drain(lane);
    if (!lane->waiting_count) {
        if (!replies)
            lane->until = 0;
        else if (lane->next < lane->until && lane->wish == NO_WISH)
            lane->wish = FILL;
        return;
    }
    if (lane->next > stream->replay.from)
        lane->fills = 0;
    if (purpose != FILL || (replies && ++lane->fills < ATTEMPTS))
        lane->wish = FILL;
    else
        give_up(lane);
}

bool kvr_kv_stream_request(struct kvr_kv_stream *stream, double now_ms, uint64_t *from)
{
    struct lane *lane = NULL;

    stream->now_ms = now_ms;
    if (stream->replay.lane || !stream->options.can_replay)
        return false;
    for (size_t i = 0; i < stream->lane_count && !lane; i++)
        if (stream->lanes[i]->wish != NO_WISH)
            lane = stream->lanes[i];
    if (!lane)
        return false;
    stream->replay.lane = lane;
    stream->replay.purpose = lane->wish;
    stream->replay.replies = 0;
    stream->replay.ignored = false;
    stream->replay.deadline_ms =
        now_ms + stream->options.replay_timeout_ms * (double)(1u << stream->attempts);
    lane->wish = NO_WISH;
    stream->counts.replays++;
    *from = lane->next;
    if (stream->replay.purpose == REBUILD)
        *from = 0;
    else if (stream->replay.purpose == VERIFY)
        *from = lane->next ? lane->next - 1 : 0;
    stream->replay.from = *from;
    return true;
}

double kvr_kv_stream_tick(struct kvr_kv_stream *stream, double now_ms)
{
    double wake_ms = INFINITY;

    stream->now_ms = now_ms;
    if (stream->replay.lane && now_ms >= stream->replay.deadline_ms) {
        struct lane *lane = stream->replay.lane;
        stream->counts.replays_unanswered++;
        if (!stream->silent && ++stream->attempts < ATTEMPTS) {
            if (lane->wish == NO_WISH) /* a gap meanwhile is more urgent */
                lane->wish = stream->replay.purpose;
            stream->replay.lane = NULL;
        } else {
            end_replay(stream, false);
        }
    }
    if (stream->replay.lane)
        wake_ms = stream->replay.deadline_ms;
    for (size_t i = 0; i < stream->lane_count; i++) {
        struct lane *lane = stream->lanes[i];
        if (lane->wish != NO_WISH && !stream->replay.lane)
            wake_ms = now_ms;
        if (!lane->gap_open || stream->options.can_replay)
            continue;
        double until_ms = lane->gap_since_ms + stream->options.reorder_ms;
        if (now_ms >= until_ms)
            give_up(lane);
        else
            wake_ms = fmin(wake_ms, until_ms);
        if (lane->gap_open)
            wake_ms = fmin(wake_ms, lane->gap_since_ms + stream->options.reorder_ms);
    }
    return wake_ms;
}

void kvr_kv_stream_reconnected(struct kvr_kv_stream *stream)
{
    for (size_t i = 0; i < stream->lane_count; i++)
        if (stream->options.can_replay && stream->lanes[i]->joined &&
            stream->lanes[i]->wish == NO_WISH && stream->lanes[i]->next)
            stream->lanes[i]->wish = VERIFY;
}

void kvr_kv_stream_finish(struct kvr_kv_stream *stream)
{
    stream->replay.lane = NULL;
    for (size_t i = 0; i < stream->lane_count; i++)
        while (stream->lanes[i]->waiting_count)
            give_up(stream->lanes[i]);
}

/* ---- messages ---- */

enum kvr_status kvr_kv_stream_take(struct kvr_kv_stream *stream, const struct kvr_frame *frames,
    size_t count, bool replayed, double now_ms, struct kvr_error *error)
{
    struct kvr_kv_message message;
    struct kvr_kv_batch batch;
    struct lane *lane;
    enum kvr_status status = kvr_kv_message_read(frames, count, &message, error);

    stream->now_ms = now_ms;
    stream->counts.messages++;
    for (size_t i = 0; i < count; i++)
        stream->counts.bytes += frames[i].size;
    if (status == KVR_OK && message.end) {
        if (replayed)
            end_replay(stream, true);
        return KVR_OK;
    }
    if (status == KVR_OK)
        status =
            kvr_kv_batch_read(message.payload, &stream->options.memory->decoder, &batch, error);
    if (status != KVR_OK) {
        stream->counts.bad_messages++;
        return status;
    }
    struct kvr_text pod = {NULL, 0};
    if (stream->options.by_topic && message.topic.length)
        pod = kvr_kv_topic_pod(message.topic);
    else if (stream->options.by_topic && replayed && stream->replay.lane) /* it has no topic */
        pod = (struct kvr_text){stream->replay.lane->name, stream->replay.lane->pod_bytes};
    lane = lane_of(stream, pod, batch.has_rank ? batch.rank : 0, error);
    if (!lane) {
        stream->counts.bad_messages++;
        return error ? error->status : KVR_BAD_INPUT;
    }
    if (batch.has_epoch && lane->has_epoch && lane->epoch != batch.epoch && !replayed)
        restart(lane);
    lane->has_epoch = batch.has_epoch;
    lane->epoch = batch.epoch;
    if (replayed)
        return take_replayed(lane, message.sequence, message.payload, &batch, error);
    return lane_take(lane, message.sequence, message.payload, &batch, error);
}

const struct kvr_kv_stream_counts *kvr_kv_stream_counts(const struct kvr_kv_stream *stream)
{
    return &stream->counts;
}

void kvr_kv_stream_event_counts(
    const struct kvr_kv_stream *stream, struct kvr_kv_counts *counts, uint64_t *blocks)
{
    memset(counts, 0, sizeof *counts);
    *blocks = 0;
    for (size_t i = 0; i < stream->lane_count; i++) {
        const struct kvr_kv_counts *own = kvr_kv_translator_counts(stream->lanes[i]->translator);
#define ADD(name, text) counts->name += own->name;
        KVR_KV_COUNTS(ADD)
#undef ADD
        *blocks += kvr_kv_translator_blocks(stream->lanes[i]->translator);
    }
}
