#include "base/buffer.h"

#include <endian.h>
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
 * Token ids are five or six digits and block ids sixteen, and there are thousands in a line.
 *
 * An id is two lookups in a table of "000," to "999,", joined to one word of six digits and their
 * comma; eight digits come from four products, as bytes of one word: halves of four digits,
 * quarters of two, then single ones, each a division by a product that is exact for so few digits.
 * Leading zeros are shifted out of the word, so that no step depends on how long a number is, and
 * only the place to write to is carried from one number to the next.
 */
#define EIGHT_DIGITS 100000000
#define SIX_DIGITS 1000000
#define NUMBER_BYTES 24 /* room for one with a comma, and for what is written beyond it */
#define ASCII_ZEROS UINT64_C(0x3030303030303030)

#define ENTRIES_10(digits)                                                                         \
    digits "0," digits "1," digits "2," digits "3," digits "4," digits "5," digits "6," digits     \
           "7," digits "8," digits "9,"
#define ENTRIES_100(digit)                                                                         \
    ENTRIES_10(digit "0")                                                                          \
    ENTRIES_10(digit "1")                                                                          \
    ENTRIES_10(digit "2")                                                                          \
    ENTRIES_10(digit "3")                                                                          \
    ENTRIES_10(digit "4")                                                                          \
    ENTRIES_10(digit "5")                                                                          \
    ENTRIES_10(digit "6")                                                                          \
    ENTRIES_10(digit "7")                                                                          \
    ENTRIES_10(digit "8")                                                                          \
    ENTRIES_10(digit "9")

static const char three_digits[] =
    ENTRIES_100("0") ENTRIES_100("1") ENTRIES_100("2") ENTRIES_100("3") ENTRIES_100("4")
        ENTRIES_100("5") ENTRIES_100("6") ENTRIES_100("7") ENTRIES_100("8") ENTRIES_100("9");

/* Three digits and their comma, the first digit lowest. */
static inline uint64_t three_digits_of(uint32_t number)
{
    uint32_t word;

    memcpy(&word, three_digits + 4 * (size_t)number, sizeof word);
    return le32toh(word);
}

/* Writes the word's bytes from the lowest on. */
static inline void put_bytes(char *out, uint64_t word)
{
    word = htole64(word);
    memcpy(out, &word, sizeof word);
}

/* Writes a number below 10^6 and a comma; returns where they end. */
static inline char *put_six(char *out, uint32_t number)
{
    uint64_t word = (three_digits_of(number / 1000) & 0xffffff) | three_digits_of(number % 1000)
                                                                      << 24;
    uint64_t first = (word & UINT64_C(0x0f0f0f0f0f)) | UINT64_C(1) << 40; /* five may be zeros */
    unsigned zero_bits = (unsigned)__builtin_ctzll(first) & ~7U;

    put_bytes(out, word >> zero_bits);
    return out + 7 - zero_bits / 8;
}

/* The digits as numbers, the first one lowest. */
static inline uint64_t eight_digits(uint32_t number)
{
    uint64_t halves = number / 10000 | (uint64_t)(number % 10000) << 32;
    uint64_t hundreds = (halves * 10486 >> 20) & UINT64_C(0x0000007f0000007f);
    uint64_t pairs = hundreds | (halves - hundreds * 100) << 16;
    uint64_t tens = (pairs * 103 >> 10) & UINT64_C(0x000f000f000f000f);

    return tens | (pairs - tens * 10) << 8;
}

/* Writes a number below 10^8 without leading zeros; returns where it ends. */
static inline char *put_short(char *out, uint32_t number)
{
    uint64_t digits = eight_digits(number);
    unsigned zero_bits = (unsigned)__builtin_ctzll(digits | UINT64_C(1) << 56) & ~7U;

    put_bytes(out, (digits | ASCII_ZEROS) >> zero_bits);
    return out + 8 - zero_bits / 8;
}

/* Writes a number below 10^8 with leading zeros. */
static inline char *put_eight(char *out, uint32_t number)
{
    put_bytes(out, eight_digits(number) | ASCII_ZEROS);
    return out + 8;
}

static inline char *put_number(char *out, uint64_t number)
{
    uint64_t high = number / EIGHT_DIGITS;

    if (!high)
        return put_short(out, (uint32_t)number);
    if (high < EIGHT_DIGITS) {
        out = put_short(out, (uint32_t)high);
    } else {
        out = put_short(out, (uint32_t)(high / EIGHT_DIGITS));
        out = put_eight(out, (uint32_t)(high % EIGHT_DIGITS));
    }
    return put_eight(out, (uint32_t)(number % EIGHT_DIGITS));
}

void kvr_buffer_append_u64(struct kvr_buffer *buffer, uint64_t number)
{
    if (kvr_buffer_reserve(buffer, NUMBER_BYTES)) {
        char *end = put_number(buffer->data + buffer->length, number);
        buffer->length = (size_t)(end - buffer->data);
    }
}

/* Numbers of a list that room is made for at once; where the next one goes stays in a register
 * among them. */
enum { LIST_CHUNK = 256 };

void kvr_buffer_append_u64s(struct kvr_buffer *buffer, const uint64_t *numbers, size_t count)
{
    for (size_t done = 0; done < count;) {
        size_t stop = count - done < LIST_CHUNK ? count : done + LIST_CHUNK;
        if (!kvr_buffer_reserve(buffer, LIST_CHUNK * NUMBER_BYTES))
            return;
        char *out = buffer->data + buffer->length;
        for (; done < stop; done++) {
            out = put_number(out, numbers[done]);
            *out++ = ',';
        }
        buffer->length = (size_t)(out - buffer->data);
    }
    buffer->length -= count != 0;
}

void kvr_buffer_append_u32s(struct kvr_buffer *buffer, const uint32_t *numbers, size_t count)
{
    for (size_t done = 0; done < count;) {
        size_t stop = count - done < LIST_CHUNK ? count : done + LIST_CHUNK;
        if (!kvr_buffer_reserve(buffer, LIST_CHUNK * NUMBER_BYTES))
            return;
        char *out = buffer->data + buffer->length;
        for (; done < stop; done++) {
            if (numbers[done] < SIX_DIGITS) {
                out = put_six(out, numbers[done]);
            } else {
                out = put_number(out, numbers[done]);
                *out++ = ',';
            }
        }
        buffer->length = (size_t)(out - buffer->data);
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
