#include "net/kv_event_lane.h"

#include "base/grow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

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

void kvr_kv_lane_destroy(struct lane *lane)
{
    lane->stream->options.memory->used -= LANE_BYTES;
    if (lane->waiting)
        drop_waiting(lane, lane->waiting_count);
    free(lane->waiting);
    kvr_kv_translator_destroy(lane->translator);
    free(lane->name);
    free(lane);
}

/* What is known is void; what follows is known from number `from` on. */
void kvr_kv_lane_reset(struct lane *lane, const char *reason, uint64_t from)
{
    if (!lane->fresh)
        kvr_kv_translator_clear(lane->translator, reason);
    memset(lane->ring, 0, sizeof lane->ring);
    lane->fresh = true;
    lane->next = lane->first = from;
}

/* batch: the payload, read; NULL: not yet. */
enum kvr_status kvr_kv_lane_apply(struct lane *lane, uint64_t sequence, struct kvr_frame payload,
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
void kvr_kv_lane_drain(struct lane *lane)
{
    size_t done = 0;

    while (done < lane->waiting_count && lane->waiting[done].sequence <= lane->next) {
        const struct waiting *message = &lane->waiting[done++];
        if (message->sequence == lane->next)
            kvr_kv_lane_apply(lane, message->sequence,
                (struct kvr_frame){message->bytes, message->size}, NULL, NULL);
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
void kvr_kv_lane_give_up(struct lane *lane)
{
    if (!lane->waiting_count)
        return;
    uint64_t from = lane->waiting[0].sequence;
    if (!lane->fresh)
        lane->stream->counts.lost_messages += from - lane->next;
    kvr_kv_lane_reset(lane, "gap", from);
    lane->fills = 0;
    lane->gap_since_ms = lane->stream->now_ms;
    kvr_kv_lane_drain(lane);
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
        kvr_kv_lane_give_up(lane);
    }
    return KVR_OK;
}

void kvr_kv_lane_restart(struct lane *lane)
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
    kvr_kv_lane_reset(lane, "restart", 0);
    lane->joined = false;
}

/* A number that was done already: a double, too late, or of a publisher that started again. */
bool kvr_kv_lane_is_restart(
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

enum kvr_status kvr_kv_lane_take(struct lane *lane, uint64_t sequence, struct kvr_frame payload,
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
        if (!anew && !kvr_kv_lane_is_restart(lane, sequence, payload, false))
            return KVR_OK;
        kvr_kv_lane_restart(lane);
        return kvr_kv_lane_take(lane, sequence, payload, batch, error);
    }
    if (sequence > lane->next) {
        bool other = false;
        enum kvr_status status =
            keep_waiting(lane, sequence, payload, batch->time_s, &other, error);
        if (!other)
            return status;
        kvr_kv_lane_restart(lane);
        return kvr_kv_lane_take(lane, sequence, payload, batch, error);
    }
    enum kvr_status status = kvr_kv_lane_apply(lane, sequence, payload, batch, error);
    kvr_kv_lane_drain(lane);
    return status;
}
