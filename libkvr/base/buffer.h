/*
 * A byte buffer that grows. The one container for text being built: lines, JSON, messages.
 *
 * Ownership: kvr_buffer_release() frees what the buffer holds; data is valid until the next call
 * that can grow the buffer. A failed append leaves the buffer as it was and sets `failed`, so a run
 * of appends is checked once, at its end.
 */
#ifndef KVR_BASE_BUFFER_H
#define KVR_BASE_BUFFER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct kvr_buffer {
    char *data;
    size_t length;   /* bytes used */
    size_t capacity; /* bytes allocated */
    bool failed;     /* an append since the last clear could not be stored */
};

/* A buffer of all zero bytes is an empty buffer; init is for those that are not static. */
static inline void kvr_buffer_init(struct kvr_buffer *buffer)
{
    memset(buffer, 0, sizeof *buffer);
}

void kvr_buffer_release(struct kvr_buffer *buffer);

/* Empties without freeing. */
static inline void kvr_buffer_clear(struct kvr_buffer *buffer)
{
    buffer->length = 0;
    buffer->failed = false;
}

/* Makes room for `more` bytes after length. False (and failed set) when memory is short. */
bool kvr_buffer_grow(struct kvr_buffer *buffer, size_t more);

static inline bool kvr_buffer_reserve(struct kvr_buffer *buffer, size_t more)
{
    return buffer->capacity - buffer->length >= more || kvr_buffer_grow(buffer, more);
}

static inline void kvr_buffer_append(struct kvr_buffer *buffer, const void *bytes, size_t length)
{
    if (length && kvr_buffer_reserve(buffer, length)) {
        memcpy(buffer->data + buffer->length, bytes, length);
        buffer->length += length;
    }
}

static inline void kvr_buffer_append_text(struct kvr_buffer *buffer, const char *text)
{
    kvr_buffer_append(buffer, text, strlen(text));
}

static inline void kvr_buffer_append_byte(struct kvr_buffer *buffer, char byte)
{
    if (kvr_buffer_reserve(buffer, 1))
        buffer->data[buffer->length++] = byte;
}

void kvr_buffer_append_u64(struct kvr_buffer *buffer, uint64_t number);

/* Append numbers with commas between them. */
void kvr_buffer_append_u64s(struct kvr_buffer *buffer, const uint64_t *numbers, size_t count);
void kvr_buffer_append_u32s(struct kvr_buffer *buffer, const uint32_t *numbers, size_t count);

void kvr_buffer_append_format(struct kvr_buffer *buffer, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Terminates with a NUL that is not counted in length and returns data, or NULL when failed. */
char *kvr_buffer_text(struct kvr_buffer *buffer);

#endif
