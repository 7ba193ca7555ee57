#include "base/buffer.h"
#include "base/digits.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void kvr_buffer_release(struct kvr_buffer *buffer)
{
    free(buffer->data);
    kvr_buffer_init(buffer);
}

bool kvr_buffer_grow(struct kvr_buffer *buffer, size_t more)
{
    size_t wanted = buffer->length + more;
    size_t capacity = buffer->capacity ? buffer->capacity : 256;
    char *data = NULL;

    if (wanted >= buffer->length) {
        while (capacity < wanted && capacity <= SIZE_MAX / 2)
            capacity *= 2;
        if (capacity >= wanted)
            data = realloc(buffer->data, capacity);
    }
    if (!data) {
        buffer->failed = true;
        return false;
    }
    buffer->data = data;
    buffer->capacity = capacity;
    return true;
}

void kvr_buffer_append_u64(struct kvr_buffer *buffer, uint64_t number)
{
    if (kvr_buffer_reserve(buffer, KVR_NUMBER_BYTES)) {
        char *end = kvr_put_u64(buffer->data + buffer->length, number);
        buffer->length = (size_t)(end - buffer->data);
    }
}

/* Numbers that room is made for at once; where the next one goes stays in a register among them. */
enum { LIST_CHUNK = 256 };

void kvr_buffer_append_u64s(struct kvr_buffer *buffer, const uint64_t *numbers, size_t count)
{
    for (size_t done = 0; done < count;) {
        size_t stop = count - done < LIST_CHUNK ? count : done + LIST_CHUNK;
        if (!kvr_buffer_reserve(buffer, LIST_CHUNK * KVR_NUMBER_BYTES))
            return;
        char *out = buffer->data + buffer->length;
        for (; done < stop; done++) {
            out = kvr_put_u64(out, numbers[done]);
            *out++ = ',';
        }
        buffer->length = (size_t)(out - buffer->data);
    }
    buffer->length -= count != 0;
}

void kvr_buffer_append_u32s(struct kvr_buffer *buffer, const uint32_t *numbers, size_t count)
{
    for (size_t done = 0; done < count;) {
        size_t chunk = count - done < LIST_CHUNK ? count - done : LIST_CHUNK;
        if (!kvr_buffer_reserve(buffer, LIST_CHUNK * KVR_NUMBER_BYTES + KVR_LIST_BYTES))
            return;
        char *end = kvr_put_u32s(buffer->data + buffer->length, numbers + done, chunk);
        buffer->length = (size_t)(end - buffer->data);
        done += chunk;
    }
    buffer->length -= count != 0;
}

void kvr_buffer_append_format(struct kvr_buffer *buffer, const char *format, ...)
{
    va_list arguments, again;

    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    if (length < 0) {
        buffer->failed = true;
    } else if (kvr_buffer_reserve(buffer, (size_t)length + 1)) {
        vsnprintf(buffer->data + buffer->length, (size_t)length + 1, format, again);
        buffer->length += (size_t)length;
    }
    va_end(again);
    va_end(arguments);
}

char *kvr_buffer_text(struct kvr_buffer *buffer)
{
    if (buffer->failed || !kvr_buffer_reserve(buffer, 1))
        return NULL;
    buffer->data[buffer->length] = '\0';
    return buffer->data;
}
