/*
 * Messages in files: what a stream really sent, kept to be looked at later.
 *
 * A record begins with "kvr-kv-events 1\n"; then for each message: 'S' (from the subscription) or
 * 'R' (from a replay), small where nobody named the source, microseconds since 1970 : u64, the
 * source's name : u16 length and bytes, and its frames : u32 count, each u32 length and bytes.
 * Numbers are big endian. A file without that beginning is a bare list: u32 count of messages, each
 * its frames as above; its messages are of one kind and one source, which the reader is told.
 * Either may be gzipped. Reading holds one message at a time.
 */
#ifndef KVR_NET_KV_EVENT_FILE_H
#define KVR_NET_KV_EVENT_FILE_H

#include "net/kv_event.h"

#define KVR_KV_NAME_LIMIT 1024 /* bytes of a source's name; what is longer is cut */

struct kvr_kv_record {
    const char *source; /* terminated; empty in a bare list */
    bool replayed;      /* as the record says; false in a bare list */
    bool unnamed;   /* its source was given no name, and has the one that it stood in line for */
    double time_ms; /* 0 in a bare list */
    struct kvr_frame frames[KVR_MESSAGE_FRAMES];
    size_t frame_count;
};

struct kvr_kv_reader;

/* "-" is standard input. KVR_IO when it cannot be opened. */
enum kvr_status kvr_kv_reader_open(struct kvr_kv_reader **reader, const char *path,
    size_t message_limit_bytes, struct kvr_error *error);
void kvr_kv_reader_close(struct kvr_kv_reader *reader);

/* The next message, valid until the next call. KVR_END; KVR_BAD_INPUT for a file that is cut off or
 * broken, after which nothing more can be read; KVR_IO; KVR_NO_MEMORY. */
enum kvr_status kvr_kv_reader_next(
    struct kvr_kv_reader *reader, struct kvr_kv_record *record, struct kvr_error *error);

/* Appends the beginning of a record file, and a message of it. Names longer than 1024 bytes are
 * cut. */
void kvr_kv_record_begin(struct kvr_buffer *out);
void kvr_kv_record_append(struct kvr_buffer *out, const struct kvr_kv_record *record);

#endif
