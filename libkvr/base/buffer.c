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

/* Two digits a division: block ids are most of what is written. */
void kvr_buffer_append_u64(struct kvr_buffer *buffer, uint64_t number)
{
    static const char pairs[] =
        "00010203040506070809101112131415161718192021222324252627282930313233"
        "34353637383940414243444546474849505152535455565758596061626364656667"
        "6869707172737475767778798081828384858687888990919293949596979899";
    char digits[20];
    size_t at = sizeof digits;

    while (number >= 100) {
        uint64_t rest = number / 100;
        memcpy(digits + (at -= 2), pairs + 2 * (number - rest * 100), 2);
        number = rest;
    }
    if (number >= 10)
        memcpy(digits + (at -= 2), pairs + 2 * number, 2);
    else
        digits[--at] = (char)('0' + number);
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
