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

/*
 * Token ids are five or six digits and block ids sixteen, and there are thousands in a line. Eight
 * digits come from four products, as bytes of one word: halves of four digits, quarters of two,
 * then single ones, each a division by a product that is exact for so few digits. Leading zeros are
 * shifted out, so that no step depends on how long a number is.
 */
#define EIGHT_DIGITS 100000000
#define NUMBER_BYTES 24 /* room for one, and for what is written beyond it */

static uint64_t eight_digits(uint32_t number)
{
    uint64_t halves = number / 10000 | (uint64_t)(number % 10000) << 32;
    uint64_t hundreds = (halves * 10486 >> 20) & UINT64_C(0x0000007f0000007f);
    uint64_t pairs = hundreds | (halves - hundreds * 100) << 16;
    uint64_t tens = (pairs * 103 >> 10) & UINT64_C(0x000f000f000f000f);

    return tens | (pairs - tens * 10) << 8; /* the first digit lowest */
}

/* The word's bytes from the lowest on. */
static void put_bytes(char *out, uint64_t word)
{
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    memcpy(out, &word, 8);
}

/* Writes a number below 10^8 without leading zeros; returns its digits. */
static inline size_t put_short(char *out, uint32_t number)
{
    uint64_t digits = eight_digits(number);
    int zeros = __builtin_ctzll(digits | UINT64_C(1) << 56) / 8;

    put_bytes(out, (digits | UINT64_C(0x3030303030303030)) >> 8 * zeros);
    return (size_t)(8 - zeros);
}

static size_t put_number(char *out, uint64_t number)
{
    size_t length;

    if (number < EIGHT_DIGITS)
        return put_short(out, (uint32_t)number);
    length = put_number(out, number / EIGHT_DIGITS);
    put_bytes(out + length,
        eight_digits((uint32_t)(number % EIGHT_DIGITS)) | UINT64_C(0x3030303030303030));
    return length + 8;
}

void kvr_buffer_append_u64(struct kvr_buffer *buffer, uint64_t number)
{
    if (kvr_buffer_reserve(buffer, NUMBER_BYTES))
        buffer->length += put_number(buffer->data + buffer->length, number);
}

void kvr_buffer_append_u32s(struct kvr_buffer *buffer, const uint32_t *numbers, size_t count)
{
    enum { CHUNK = 1024, MOST_BYTES = 11 };

    for (size_t i = 0; i < count; i++) {
        if (i % CHUNK == 0 && !kvr_buffer_reserve(buffer, CHUNK * MOST_BYTES + NUMBER_BYTES))
            return;
        char *out = buffer->data + buffer->length;
        size_t length =
            numbers[i] < EIGHT_DIGITS ? put_short(out, numbers[i]) : put_number(out, numbers[i]);
        out[length] = ',';
        buffer->length += length + 1;
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
