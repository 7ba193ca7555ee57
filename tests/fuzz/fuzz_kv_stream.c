/* Any messages in any order, from both sockets: a stream stays within its bound and ends empty.
 * Input: a byte of options; then messages of flags, sequence number, length (one byte each) and
 * payload. */
#include "net/kv_event_stream.h"

#include <stdlib.h>
#include <string.h>

#define MEMORY 16384u

static void require(bool truth)
{
    if (!truth)
        abort();
}

static void on_run(void *context, const struct kvr_kv_run *run)
{
    (void)context;
    require(run->count > 0);
}

static void on_cleared(void *context, const char *worker, const char *reason)
{
    (void)context, (void)reason;
    require(worker[0] == 'w');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kvr_kv_memory memory = {.limit = MEMORY};
    const struct kvr_kv_sink sink = {NULL, on_run, on_run, on_cleared};
    struct kvr_kv_stream *stream;
    double now_ms = 0;

    if (!size)
        return 0;
    const struct kvr_kv_stream_options options = {.name = "w",
        .native = data[0] & 1,
        .tokens = data[0] & 2,
        .can_replay = data[0] & 4,
        .replay_timeout_ms = 100,
        .reorder_ms = 10,
        .memory = &memory,
        .sink = &sink};
    require(kvr_kv_stream_create(&stream, &options, NULL) == KVR_OK);
    for (size_t at = 1; at + 3 <= size;) {
        uint8_t flags = data[at], number[8] = {0}, length = data[at + 2];
        uint64_t from;
        number[7] = data[at + 1];
        number[6] = flags >> 6;
        if (flags & 32)
            memset(number, 0xff, sizeof number);
        at += 3;
        if (length > size - at)
            length = (uint8_t)(size - at);
        const struct kvr_frame frames[] = {
            {NULL, 0}, {number, flags & 16 ? 7 : 8}, {data + at, length}};
        at += length;
        now_ms += flags & 7;
        kvr_kv_stream_take(stream, frames, 3, flags & 8, now_ms, NULL);
        require(memory.used <= memory.limit);
        kvr_kv_stream_tick(stream, now_ms);
        kvr_kv_stream_request(stream, now_ms, &from);
        if ((flags & 63) == 63)
            kvr_kv_stream_reconnected(stream);
    }
    for (int i = 0; i < 8; i++)
        kvr_kv_stream_tick(stream, now_ms += 100);
    kvr_kv_stream_finish(stream);
    kvr_kv_stream_destroy(stream);
    require(memory.used == 0);
    kvr_kv_memory_release(&memory);
    return 0;
}
