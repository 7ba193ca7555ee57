
#include "base/grow.h"
#include "net/kv_event_lane.h"
#include "net/kv_event_spec.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kvr_status kvr_kv_stream_create(struct kvr_kv_stream **stream,
    const struct kvr_kv_stream_options *options, struct kvr_error *error)
{
    *stream = calloc(1, sizeof **stream);
    if (!*stream)
        return kvr_error_memory(error);
    (*stream)->options = *options;
    return KVR_OK;
}

void kvr_kv_stream_destroy(struct kvr_kv_stream *stream)
{
    if (!stream)
        return;
    for (size_t i = 0; i < stream->lane_count; i++)
        kvr_kv_lane_destroy(stream->lanes[i]);
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

void kvr_kv_told_release(struct kvr_kv_told *told)
{
    for (size_t i = 0; i < told->count; i++)
        free(told->names[i]);
    free(told->names);
    memset(told, 0, sizeof *told);
}

/* Whether nobody told of the worker yet; now somebody does. */
static bool is_first(struct kvr_kv_told *told, const char *name)
{
    if (!told)
        return true;
    for (size_t i = 0; i < told->count; i++)
        if (strcmp(told->names[i], name) == 0)
            return false;
    char **grown = kvr_grow(told->names, &told->room, told->count + 1, sizeof *grown);
    char *copy = strdup(name);
    if (grown)
        told->names = grown;
    if (grown && copy)
        grown[told->count++] = copy;
    else
        free(copy);
    return true;
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
    const struct kvr_kv_translator_options options = {lane->name, stream->options.model,
        stream->options.native, stream->options.tokens, stream->options.told != NULL};
    if (!lane->name) {
        kvr_error_memory(error);
    } else if (kvr_kv_translator_create(&lane->translator, &options, stream->options.memory,
                   stream->options.sink, error) == KVR_OK) {
        if (is_first(stream->options.told, lane->name))
            stream->options.sink->cleared(stream->options.sink->context, lane->name, "join");
        lane->fresh = true;
        lanes[stream->lane_count++] = lane;
        return stream->last = lane;
    }
    kvr_kv_lane_destroy(lane);
    return NULL;
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
            kvr_kv_lane_reset(lane, "rebuild", sequence);
        } else {
            stream->replay.ignored = true;
        }
        break;
    case FILL:
    case VERIFY:
        if (sequence > lane->next) {
            if (!lane->fresh)
                stream->counts.lost_messages += sequence - lane->next;
            kvr_kv_lane_reset(lane, "gap", sequence);
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
        if (!asked || !kvr_kv_lane_is_restart(lane, sequence, payload, true))
            return KVR_OK;
        /* Another publisher than the one that we knew: everything of it, from the start. */
        kvr_kv_lane_restart(lane);
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
    enum kvr_status status = kvr_kv_lane_apply(lane, sequence, payload, batch, error);
    kvr_kv_lane_drain(lane);
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
        kvr_kv_lane_restart(lane);
        lane->joined = true;
        lane->wish = FILL;
    }
    kvr_kv_lane_drain(lane);
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
        kvr_kv_lane_give_up(lane);
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
            kvr_kv_lane_give_up(lane);
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
            kvr_kv_lane_give_up(stream->lanes[i]);
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
        kvr_kv_lane_restart(lane);
    lane->has_epoch = batch.has_epoch;
    lane->epoch = batch.epoch;
    if (replayed)
        return take_replayed(lane, message.sequence, message.payload, &batch, error);
    return kvr_kv_lane_take(lane, message.sequence, message.payload, &batch, error);
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
