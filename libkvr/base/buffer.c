#include "base/buffer.h"

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
    char digits[20];
    size_t at = sizeof digits;

    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number);
    kvr_buffer_append(buffer, digits + at, sizeof digits - at);
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
