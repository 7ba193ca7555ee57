#include "net/zmtp.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

enum { MORE = 1, LONG = 2, COMMAND = 4, COMMAND_LIMIT = 1 << 16 };

void kvr_zmtp_reader_release(struct kvr_zmtp_reader *reader)
{
    if (reader->budget)
        reader->budget->used -= reader->bytes.capacity;
    kvr_buffer_release(&reader->bytes);
    reader->start = reader->at = reader->frame_count = 0;
}

bool kvr_zmtp_reader_is_empty(const struct kvr_zmtp_reader *reader)
{
    return reader->start == reader->bytes.length;
}

bool kvr_zmtp_reader_room(struct kvr_zmtp_reader *reader, size_t *room)
{
    struct kvr_buffer *bytes = &reader->bytes;

    if (reader->start) {
        bytes->length -= reader->start;
        memmove(bytes->data, bytes->data + reader->start, bytes->length);
        reader->at -= reader->start;
        reader->start = 0;
    }
    if (bytes->length == bytes->capacity) {
        struct kvr_zmtp_budget *budget = reader->budget;
        size_t free_bytes = budget->limit > budget->used ? budget->limit - budget->used : 0;
        size_t first = free_bytes >= KVR_ZMTP_CHUNK ? KVR_ZMTP_CHUNK : KVR_ZMTP_LEAST;
        size_t before = bytes->capacity, grown = before ? 2 * before : first;
        if (before && grown - before > free_bytes)
            return false;
        char *data = realloc(bytes->data, grown);
        if (!data)
            return false;
        bytes->data = data;
        bytes->capacity = grown;
        budget->used += grown - before;
    }
    *room = bytes->capacity - bytes->length;
    return true;
}

static enum kvr_zmtp_piece broken(const char **why, const char *what)
{
    *why = what;
    return KVR_ZMTP_BROKEN;
}

/* The message is whole: its frames, and the reader stands before the next. */
static void hand_out(struct kvr_zmtp_reader *reader, struct kvr_frame *frames, size_t *count)
{
    for (size_t i = 0; i < reader->frame_count; i++)
        frames[i] = (struct kvr_frame){
            (const uint8_t *)reader->bytes.data + reader->start + reader->frames[i].place,
            reader->frames[i].size};
    *count = reader->frame_count;
    reader->start = reader->at;
    reader->frame_count = 0;
}

enum kvr_zmtp_piece kvr_zmtp_reader_next(
    struct kvr_zmtp_reader *reader, struct kvr_frame *frames, size_t *count, const char **why)
{
    for (;;) {
        size_t left = reader->bytes.length - reader->at, header = 2;
        if (!left)
            return KVR_ZMTP_MORE;
        const uint8_t *at = (const uint8_t *)reader->bytes.data + reader->at;
        uint8_t flags = *at;
        if (flags & ~(MORE | LONG | COMMAND) || (flags & COMMAND && flags & MORE))
            return broken(why, "no frame of ZMTP");
        if (flags & LONG)
            header = 9;
        if (left < header)
            return KVR_ZMTP_MORE;
        uint64_t size = at[1];
        if (flags & LONG) {
            memcpy(&size, at + 1, sizeof size);
            size = be64toh(size);
        }
        size_t so_far = reader->at - reader->start + header;
        if (so_far > reader->limit || size > reader->limit - so_far ||
            (flags & COMMAND && size > COMMAND_LIMIT))
            return broken(why, "a message larger than --max-message");
        if (size > left - header)
            return KVR_ZMTP_MORE;
        size_t place = reader->at, end = place + header + (size_t)size;
        if (flags & COMMAND) { /* it may stand between frames, and then stays there */
            frames[0] = (struct kvr_frame){at + header, (size_t)size};
            *count = 1;
            reader->at = end;
            if (place == reader->start)
                reader->start = end;
            return KVR_ZMTP_COMMAND;
        }
        if (reader->frame_count < KVR_MESSAGE_FRAMES) {
            reader->frames[reader->frame_count].place = place + header - reader->start;
            reader->frames[reader->frame_count++].size = (size_t)size;
        }
        reader->at = end;
        if (!(flags & MORE)) {
            hand_out(reader, frames, count);
            return KVR_ZMTP_MESSAGE;
        }
    }
}
