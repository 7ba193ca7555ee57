/*
 * One publisher's stream of messages, whatever carries them: order, loss, restarts.
 *
 * Messages are numbered; the socket that brings them loses some when either side is too slow, and
 * all while it is not connected. A publisher keeps its last messages and sends them again on
 * request (a replay). What is known of a worker is right only after every message in order, so:
 *
 *   next              done, and what waits behind it
 *   after next        a gap: the message waits; the missing ones are asked for. They come in the
 *                     replay, or late by themselves, and what waits follows them. Where the
 *                     publisher no longer has them the worker is cleared and rebuilt from what it
 *                     still has. Without a replay socket a gap stays open for a few messages or
 *                     some milliseconds (frames out of order), then it is taken as loss.
 *   before next       a double, when it is what was done under this number (a ring of hashes of
 *                     the last payloads tells), or the first of a publisher that started again:
 *                     other content under the same number, number 0, or a number far behind.
 *   the first         of a worker clears it, as whoever reads the lines may hold what an earlier
 *                     reader of the stream told. If it is not number 0 we joined late, and ask for
 *                     everything the publisher still has.
 *   a new connection  may be to a publisher that started again and is already past our number: the
 *                     last message that was done is asked for and compared.
 *   unknown parents   everything is asked for again; the replay replaces what is known only if it
 *                     reaches at least as far back. Asked for at growing intervals.
 *
 * Ranks of a data-parallel engine have numbers and caches of their own: rank r of "w0" is the
 * worker "w0/r", rank 0 and no rank "w0". An epoch in a message that differs from the last is a
 * restart.
 *
 * Several publishers may share a stream, where each says who it is in its topic, kv@POD@MODEL (the
 * convention of llm-d): numbers and caches are then each pod's own, and the worker's name is POD.
 *
 * Time is passed in. The owner carries requests to the publisher: kvr_kv_stream_request() says when
 * one is due and from where. Memory: the tables of the translator, and messages that wait, both
 * bounded by one limit.
 */
#ifndef KVR_NET_KV_EVENT_STREAM_H
#define KVR_NET_KV_EVENT_STREAM_H

#include "net/kv_event_translate.h"

#define KVR_KV_RANK_LIMIT 1024u

/* Workers that several streams tell of (an engine and the store behind it, under one name). What is
 * cleared of one stream says nothing of the others, so it is told block by block; and the worker is
 * cleared once, before the first of them tells anything. All zero bytes are a fresh one. */
struct kvr_kv_told {
    char **names;
    size_t count, room;
};

void kvr_kv_told_release(struct kvr_kv_told *told);

struct kvr_kv_stream_options {
    const char *name, *model; /* kept by pointer */
    bool native, tokens;      /* as of the translator */
    struct kvr_kv_told *told; /* shared by the streams of one worker; NULL: it has only this */
    bool by_topic;            /* topics kv@POD@… tell several publishers apart */
    bool can_replay;          /* requests are answered, or time out */
    double replay_timeout_ms;
    double reorder_ms;            /* how long a gap stays open without replay */
    struct kvr_kv_memory *memory; /* may be shared by several streams */
    const struct kvr_kv_sink *sink;
};

#define KVR_KV_STREAM_COUNTS(row)                                                                  \
    row(messages, "messages") row(bytes, "bytes") row(bad_messages, "bad messages")                \
        row(doubles, "doubled messages") row(stale_messages, "messages too late to be of use")     \
            row(gaps, "gaps") row(lost_messages, "messages lost for good")                         \
                row(late_joins, "late joins") row(restarts, "restarts of the publisher")           \
                    row(replays, "replays asked for")                                              \
                        row(replayed_messages, "messages from replays")                            \
                            row(replays_unanswered, "replays not answered")                        \
                                row(dropped_messages, "waiting messages dropped for memory")

struct kvr_kv_stream_counts {
#define KVR_KV_STREAM_COUNT_ROW(name, text) uint64_t name;
    KVR_KV_STREAM_COUNTS(KVR_KV_STREAM_COUNT_ROW)
#undef KVR_KV_STREAM_COUNT_ROW
};

struct kvr_kv_stream;

enum kvr_status kvr_kv_stream_create(struct kvr_kv_stream **stream,
    const struct kvr_kv_stream_options *options, struct kvr_error *error);
void kvr_kv_stream_destroy(struct kvr_kv_stream *stream);

/*
 * Takes a message from the subscription, or (replayed) from the replay socket. KVR_BAD_INPUT where
 * it, or some event of it, is bad: that is counted, and the stream goes on. KVR_NO_MEMORY.
 */
enum kvr_status kvr_kv_stream_take(struct kvr_kv_stream *stream, const struct kvr_frame *frames,
    size_t count, bool replayed, double now_ms, struct kvr_error *error);

/* Whether a replay is to be asked for now, and from which number; it counts as asked then. */
bool kvr_kv_stream_request(struct kvr_kv_stream *stream, double now_ms, uint64_t *from);

/* Lets time pass: gives up what was waited for too long. Returns when to call again (INFINITY: no
 * need). */
double kvr_kv_stream_tick(struct kvr_kv_stream *stream, double now_ms);

/* The subscription is connected again after a break. */
void kvr_kv_stream_reconnected(struct kvr_kv_stream *stream);

/* Nothing more will come: what waits is done as far as it can be. */
void kvr_kv_stream_finish(struct kvr_kv_stream *stream);

const struct kvr_kv_stream_counts *kvr_kv_stream_counts(const struct kvr_kv_stream *stream);
/* The sum over all ranks. */
void kvr_kv_stream_event_counts(
    const struct kvr_kv_stream *stream, struct kvr_kv_counts *counts, uint64_t *blocks);

#endif
