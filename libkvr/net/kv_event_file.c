#include "net/kv_event_file.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

static const char magic[] = "kvr-kv-events 1\n";

enum { MAGIC_BYTES = sizeof magic - 1, FILE_BUFFER_BYTES = 256 << 10 };

struct kvr_kv_reader {
    gzFile file;
    char *path;
    size_t limit_bytes;
    struct kvr_buffer bytes; /* of the frames */
    bool begun, bare;
    uint32_t left; /* messages of a bare list */
    char source[KVR_KV_NAME_LIMIT + 1];
};

enum kvr_status kvr_kv_reader_open(struct kvr_kv_reader **reader, const char *path,
    size_t message_limit_bytes, struct kvr_error *error)
{
    bool standard = strcmp(path, "-") == 0;
    int descriptor = standard ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);

    *reader = NULL;
    if (descriptor < 0)
        return kvr_error_errno(error, KVR_IO, "cannot read %s", path);
    struct kvr_kv_reader *made = calloc(1, sizeof *made);
    char *name = strdup(path);
    gzFile file = gzdopen(descriptor, "rb");
    if (!made || !name || !file) {
        if (file)
            gzclose(file);
        else
            close(descriptor);
        free(made);
        free(name);
        return kvr_error_memory(error);
    }
    gzbuffer(file, FILE_BUFFER_BYTES);
    *made = (struct kvr_kv_reader){.file = file, .path = name, .limit_bytes = message_limit_bytes};
    *reader = made;
    return KVR_OK;
}

void kvr_kv_reader_close(struct kvr_kv_reader *reader)
{
    if (!reader)
        return;
    gzclose_r(reader->file);
    kvr_buffer_release(&reader->bytes);
    free(reader->path);
    free(reader);
}

/* Exactly so many bytes; KVR_END where there is none at all. */
static enum kvr_status get(
    struct kvr_kv_reader *reader, void *to, size_t count, struct kvr_error *error)
{
    size_t got = 0;

    while (got < count) {
        unsigned part = count - got > (1u << 20) ? 1u << 20 : (unsigned)(count - got);
        int read = gzread(reader->file, (char *)to + got, part);
        if (read < 0) {
            int number;
            const char *why = gzerror(reader->file, &number);
            if (number == Z_ERRNO)
                return kvr_error_errno(error, KVR_IO, "cannot read %s", reader->path);
            return kvr_error_set(error, KVR_BAD_INPUT, "%s: %s", reader->path, why);
        }
        if (!read) {
            int number;
            gzerror(reader->file, &number);
            if (number == Z_BUF_ERROR)
                return kvr_error_set(error, KVR_BAD_INPUT, "%s: gzip cut off", reader->path);
            break;
        }
        got += (size_t)read;
    }
    if (!got && count)
        return KVR_END;
    if (got < count)
        return kvr_error_set(error, KVR_BAD_INPUT, "%s: cut off in a message", reader->path);
    return KVR_OK;
}

/* The same within a message, where an end is a fault. */
static enum kvr_status get_more(
    struct kvr_kv_reader *reader, void *to, size_t count, struct kvr_error *error)
{
    enum kvr_status status = get(reader, to, count, error);

    if (status != KVR_END)
        return status;
    return kvr_error_set(error, KVR_BAD_INPUT, "%s: cut off in a message", reader->path);
}

static enum kvr_status get_frames(struct kvr_kv_reader *reader, uint32_t count,
    struct kvr_kv_record *record, struct kvr_error *error)
{
    size_t offsets[KVR_MESSAGE_FRAMES];
    uint32_t length;

    if (count > KVR_MESSAGE_FRAMES)
        return kvr_error_set(
            error, KVR_BAD_INPUT, "%s: a message of %u frames", reader->path, count);
    kvr_buffer_clear(&reader->bytes);
    for (uint32_t i = 0; i < count; i++) {
        enum kvr_status status = get_more(reader, &length, sizeof length, error);
        if (status != KVR_OK)
            return status;
        length = be32toh(length);
        if (length > reader->limit_bytes - reader->bytes.length)
            return kvr_error_set(error, KVR_BAD_INPUT, "%s: a message of more than %zu bytes",
                reader->path, reader->limit_bytes);
        if (!kvr_buffer_reserve(&reader->bytes, (size_t)length + 1))
            return kvr_error_memory(error);
        status = get_more(reader, reader->bytes.data + reader->bytes.length, length, error);
        if (status != KVR_OK)
            return status;
        offsets[i] = reader->bytes.length;
        reader->bytes.length += length;
        record->frames[i].size = length;
    }
    for (uint32_t i = 0; i < count; i++)
        record->frames[i].data = (const uint8_t *)reader->bytes.data + offsets[i];
    record->frame_count = count;
    return KVR_OK;
}

static enum kvr_status get_named(
    struct kvr_kv_reader *reader, struct kvr_kv_record *record, struct kvr_error *error)
{
    uint8_t head[11];
    uint64_t time_us;
    uint16_t length;
    enum kvr_status status = get(reader, head, sizeof head, error);

    if (status != KVR_OK)
        return status;
    memcpy(&time_us, head + 1, sizeof time_us);
    memcpy(&length, head + 9, sizeof length);
    length = be16toh(length);
    if (((head[0] | 32) != 's' && (head[0] | 32) != 'r') || length > KVR_KV_NAME_LIMIT)
        return kvr_error_set(error, KVR_BAD_INPUT, "%s: broken", reader->path);
    status = get_more(reader, reader->source, length, error);
    reader->source[length] = 0;
    record->replayed = (head[0] | 32) == 'r';
    record->unnamed = head[0] >= 'a';
    record->time_ms = (double)be64toh(time_us) / 1e3;
    return status;
}

static enum kvr_status begin(struct kvr_kv_reader *reader, struct kvr_error *error)
{
    char start[MAGIC_BYTES];
    uint32_t count;
    enum kvr_status status = get(reader, &count, sizeof count, error);

    if (status != KVR_OK)
        return status;
    memcpy(start, &count, sizeof count);
    reader->bare = memcmp(start, magic, sizeof count) != 0;
    if (reader->bare) {
        reader->left = be32toh(count);
        return KVR_OK;
    }
    status = get_more(reader, start + sizeof count, MAGIC_BYTES - sizeof count, error);
    if (status == KVR_OK && memcmp(start, magic, MAGIC_BYTES) != 0)
        status =
            kvr_error_set(error, KVR_BAD_INPUT, "%s: a record of another version", reader->path);
    reader->left = 0;
    return status;
}

enum kvr_status kvr_kv_reader_next(
    struct kvr_kv_reader *reader, struct kvr_kv_record *record, struct kvr_error *error)
{
    enum kvr_status status = KVR_OK;
    uint32_t count;

    memset(record, 0, sizeof *record);
    record->source = reader->source;
    if (!reader->begun)
        status = begin(reader, error);
    reader->begun = true;
    if (status == KVR_OK && reader->bare && !reader->left)
        return KVR_END;
    reader->left -= reader->bare;
    if (status == KVR_OK && !reader->bare)
        status = get_named(reader, record, error);
    if (status == KVR_OK)
        status = get_more(reader, &count, sizeof count, error);
    if (status == KVR_OK)
        status = get_frames(reader, be32toh(count), record, error);
    return status;
}

static void append_u32(struct kvr_buffer *out, uint32_t number)
{
    number = htobe32(number);
    kvr_buffer_append(out, &number, sizeof number);
}

void kvr_kv_record_begin(struct kvr_buffer *out)
{
    kvr_buffer_append(out, magic, MAGIC_BYTES);
}

void kvr_kv_record_append(struct kvr_buffer *out, const struct kvr_kv_record *record)
{
    size_t length = strlen(record->source);
    uint64_t time_us = htobe64((uint64_t)(record->time_ms * 1e3));

    if (length > KVR_KV_NAME_LIMIT)
        length = KVR_KV_NAME_LIMIT;
    uint16_t name_bytes = htobe16((uint16_t)length);
    kvr_buffer_append_byte(
        out, (char)((record->replayed ? 'R' : 'S') | (record->unnamed ? 32 : 0)));
    kvr_buffer_append(out, &time_us, sizeof time_us);
    kvr_buffer_append(out, &name_bytes, sizeof name_bytes);
    kvr_buffer_append(out, record->source, length);
    append_u32(out, (uint32_t)record->frame_count);
    for (size_t i = 0; i < record->frame_count; i++) {
        append_u32(out, (uint32_t)record->frames[i].size);
        kvr_buffer_append(out, record->frames[i].data, record->frames[i].size);
    }
}
