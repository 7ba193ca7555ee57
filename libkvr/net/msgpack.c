#include "net/msgpack.h"

#include "base/grow.h"
#include "line/json.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_LEAST = 8 }; /* numbers in a list that is kept */

static uint64_t big_endian(const uint8_t *bytes, size_t count)
{
    uint64_t number = 0;

    for (size_t i = 0; i < count; i++)
        number = number << 8 | bytes[i];
    return number;
}

/* Two's complement of `bytes` bytes, widened. */
static void set_signed(struct kvr_msgpack_value *value, uint64_t number, size_t bytes)
{
    unsigned shift = (unsigned)(64 - 8 * bytes);
    int64_t wide = (int64_t)(number << shift) >> shift;

    value->type = wide < 0 ? KVR_MSGPACK_NEGATIVE : KVR_MSGPACK_UNSIGNED;
    value->number = (uint64_t)wide;
}

static void set_real(struct kvr_msgpack_value *value, uint64_t bits, size_t bytes)
{
    value->type = KVR_MSGPACK_REAL;
    if (bytes == 4) {
        uint32_t half = (uint32_t)bits;
        float real;
        memcpy(&real, &half, sizeof real);
        value->real = (double)real;
    } else {
        memcpy(&value->real, &bits, sizeof value->real);
    }
}

/* Sets a container; each of its elements takes a byte at least. */
static bool set_container(struct kvr_msgpack_value *value, enum kvr_msgpack_type type,
    uint64_t length, const uint8_t *at, const uint8_t *end)
{
    value->type = type;
    value->length = (uint32_t)length;
    return length * (type == KVR_MSGPACK_MAP ? 2 : 1) <= (uint64_t)(end - at);
}

/* Sets text, bytes or an extension; *at moves behind them. */
static bool set_bytes(struct kvr_msgpack_value *value, enum kvr_msgpack_type type, uint64_t length,
    const uint8_t **at, const uint8_t *end)
{
    uint64_t type_byte = type == KVR_MSGPACK_EXTENSION;

    if (length + type_byte > (uint64_t)(end - *at))
        return false;
    value->type = type;
    value->length = (uint32_t)length;
    value->bytes = *at + type_byte;
    *at += length + type_byte;
    return true;
}

bool kvr_msgpack_next(struct kvr_msgpack *reader, struct kvr_msgpack_value *value)
{
    /* Bytes of the number after a first byte of 0xc4 to 0xdf. */
    static const uint8_t numbers[] = {
        1, 2, 4, 1, 2, 4, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 0, 0, 0, 0, 0, 1, 2, 4, 2, 4, 2, 4};
    const uint8_t *at = reader->at, *end = reader->end;
    uint64_t number = 0;
    size_t width = 0;
    bool whole = true;

    if (at >= end)
        return false;
    uint8_t first = *at++;
    if (first >= 0xc4 && first <= 0xdf) {
        width = numbers[first - 0xc4];
        if (width > (size_t)(end - at))
            return false;
        number = big_endian(at, width);
        at += width;
    }
    value->number = number;
    switch (first) {
    case 0xc0:
        value->type = KVR_MSGPACK_NIL;
        break;
    case 0xc1:
        return false;
    case 0xc2:
    case 0xc3:
        value->type = KVR_MSGPACK_BOOLEAN;
        value->number = first & 1;
        break;
    case 0xc4 ... 0xc6:
        whole = set_bytes(value, KVR_MSGPACK_BYTES, number, &at, end);
        break;
    case 0xc7 ... 0xc9:
        whole = set_bytes(value, KVR_MSGPACK_EXTENSION, number, &at, end);
        break;
    case 0xca ... 0xcb:
        set_real(value, number, width);
        break;
    case 0xcc ... 0xcf:
        value->type = KVR_MSGPACK_UNSIGNED;
        break;
    case 0xd0 ... 0xd3:
        set_signed(value, number, width);
        break;
    case 0xd4 ... 0xd8:
        whole = set_bytes(value, KVR_MSGPACK_EXTENSION, UINT64_C(1) << (first - 0xd4), &at, end);
        break;
    case 0xd9 ... 0xdb:
        whole = set_bytes(value, KVR_MSGPACK_TEXT, number, &at, end);
        break;
    case 0xdc ... 0xdd:
        whole = set_container(value, KVR_MSGPACK_ARRAY, number, at, end);
        break;
    case 0xde ... 0xdf:
        whole = set_container(value, KVR_MSGPACK_MAP, number, at, end);
        break;
    case 0x00 ... 0x7f:
        value->type = KVR_MSGPACK_UNSIGNED;
        value->number = first;
        break;
    case 0x80 ... 0x8f:
        whole = set_container(value, KVR_MSGPACK_MAP, first & 15, at, end);
        break;
    case 0x90 ... 0x9f:
        whole = set_container(value, KVR_MSGPACK_ARRAY, first & 15, at, end);
        break;
    case 0xa0 ... 0xbf:
        whole = set_bytes(value, KVR_MSGPACK_TEXT, first & 31, &at, end);
        break;
    default: /* 0xe0 to 0xff */
        set_signed(value, first, 1);
    }
    if (whole)
        reader->at = at;
    return whole;
}

/* Bytes of a value by its first byte, where that says it; 0: look closer. */
static const uint8_t fixed_bytes[256] = {
    [0x00 ... 0x7f] = 1,
    [0xc0] = 1,
    [0xc2 ... 0xc3] = 1,
    [0xca] = 5,
    [0xcb] = 9,
    [0xcc] = 2,
    [0xcd] = 3,
    [0xce] = 5,
    [0xcf] = 9,
    [0xd0] = 2,
    [0xd1] = 3,
    [0xd2] = 5,
    [0xd3] = 9,
    [0xe0 ... 0xff] = 1,
};

/* Where the number of a small unsigned integer lies, by its first byte: in the big-endian 32 bits
 * at `offset`, shifted right by `shift`. width 0: it is something else. */
static const struct {
    uint8_t width, offset, shift;
} small_numbers[256] = {
    [0x00 ... 0x7f] = {1, 0, 24},
    [0xcc] = {2, 1, 24},
    [0xcd] = {3, 1, 16},
    [0xce] = {5, 1, 0},
};

/* Token ids are of two or three widths in no order, so a branch on the width would be wrong every
 * other time: the number is found by table instead. */
static const uint8_t *read_small_numbers(
    const uint8_t *at, const uint8_t *end, uint32_t *numbers, uint32_t *done, uint32_t length)
{
    uint32_t i = *done, bits;

    while (i < length && end - at >= 8) {
        unsigned first = *at, width = small_numbers[first].width;
        if (!width)
            break;
        memcpy(&bits, at + small_numbers[first].offset, sizeof bits);
        numbers[i++] = be32toh(bits) >> small_numbers[first].shift;
        at += width;
    }
    *done = i;
    return at;
}

bool kvr_msgpack_u32s(struct kvr_msgpack *reader, uint32_t *numbers, size_t *count)
{
    struct kvr_msgpack at = *reader;
    struct kvr_msgpack_value value;
    uint32_t done = 0;

    *count = 0;
    if (!kvr_msgpack_next(&at, &value) || value.type != KVR_MSGPACK_ARRAY)
        return false;
    for (uint32_t length = value.length; done < length;) {
        at.at = read_small_numbers(at.at, at.end, numbers, &done, length);
        if (done == length)
            break;
        if (!kvr_msgpack_next(&at, &value))
            return false;
        bool fits = value.type == KVR_MSGPACK_UNSIGNED
                        ? value.number <= UINT32_MAX
                        : value.type == KVR_MSGPACK_NEGATIVE && (int64_t)value.number >= INT32_MIN;
        if (!fits)
            return false;
        numbers[done++] = (uint32_t)value.number;
    }
    *count = done;
    reader->at = at.at;
    return true;
}

/* Keeps the list that the reader stands before, and passes over it. */
static bool keep_list(struct kvr_msgpack *reader, struct kvr_msgpack_numbers *kept)
{
    struct kvr_msgpack ahead = *reader;
    struct kvr_msgpack_value list;
    size_t count;

    if (!kvr_msgpack_next(&ahead, &list) || list.type != KVR_MSGPACK_ARRAY ||
        list.length < LIST_LEAST || !small_numbers[*ahead.at].width)
        return false;
    uint32_t *numbers =
        kvr_grow(kept->numbers, &kept->room, kept->count + list.length, sizeof *numbers);
    if (!numbers)
        return false;
    kept->numbers = numbers;
    struct kvr_msgpack_list *lists =
        kvr_grow(kept->lists, &kept->list_room, kept->list_count + 1, sizeof *lists);
    if (!lists)
        return false;
    kept->lists = lists;
    ahead = *reader;
    if (!kvr_msgpack_u32s(&ahead, numbers + kept->count, &count))
        return false;
    lists[kept->list_count++] = (struct kvr_msgpack_list){reader->at, ahead.at, kept->count, count};
    kept->count += count;
    reader->at = ahead.at;
    return true;
}

/* Values still to be passed over are counted, so depth costs nothing; as each takes a byte, more of
 * them than bytes are a lie and end the walk. */
static inline bool walk(struct kvr_msgpack *reader, struct kvr_msgpack_numbers *kept)
{
    struct kvr_msgpack at = *reader;
    struct kvr_msgpack_value value;

    for (uint64_t left = 1; left; left--) {
        if (left > (uint64_t)(at.end - at.at))
            return false;
        size_t bytes = fixed_bytes[*at.at];
        if (bytes) {
            if (bytes > (size_t)(at.end - at.at))
                return false;
            at.at += bytes;
            continue;
        }
        if (kept && keep_list(&at, kept))
            continue;
        if (!kvr_msgpack_next(&at, &value))
            return false;
        if (value.type == KVR_MSGPACK_ARRAY)
            left += value.length;
        else if (value.type == KVR_MSGPACK_MAP)
            left += 2 * (uint64_t)value.length;
    }
    reader->at = at.at;
    return true;
}

bool kvr_msgpack_skip(struct kvr_msgpack *reader)
{
    return walk(reader, NULL);
}

bool kvr_msgpack_walk(struct kvr_msgpack *reader, struct kvr_msgpack_numbers *kept)
{
    return walk(reader, kept);
}

void kvr_msgpack_numbers_release(struct kvr_msgpack_numbers *kept)
{
    free(kept->numbers);
    free(kept->lists);
    memset(kept, 0, sizeof *kept);
}

static void append_hex(struct kvr_buffer *out, const uint8_t *bytes, size_t length)
{
    static const char digits[] = "0123456789abcdef";

    if (!kvr_buffer_reserve(out, 2 * length))
        return;
    for (size_t i = 0; i < length; i++) {
        out->data[out->length++] = digits[bytes[i] >> 4];
        out->data[out->length++] = digits[bytes[i] & 15];
    }
}

static bool json(struct kvr_msgpack *reader, struct kvr_buffer *out, int depth);

/* A key of a map: JSON has only text there. No containers: quoting keys of keys of keys would
 * double their quotes at each level. */
static bool json_key(struct kvr_msgpack *reader, struct kvr_buffer *out, int depth)
{
    struct kvr_buffer text = {0};
    struct kvr_msgpack ahead = *reader;
    struct kvr_msgpack_value value;

    if (!kvr_msgpack_next(&ahead, &value) || value.type == KVR_MSGPACK_ARRAY ||
        value.type == KVR_MSGPACK_MAP)
        return false;
    if (value.type == KVR_MSGPACK_TEXT)
        return json(reader, out, depth);
    bool whole = json(reader, &text, depth) && !text.failed;
    if (whole)
        kvr_json_write_string(out, text.data, text.length);
    kvr_buffer_release(&text);
    return whole;
}

static bool json(struct kvr_msgpack *reader, struct kvr_buffer *out, int depth)
{
    struct kvr_msgpack_value value;

    if (depth > KVR_MSGPACK_DEPTH || !kvr_msgpack_next(reader, &value))
        return false;
    switch (value.type) {
    case KVR_MSGPACK_NIL:
        kvr_buffer_append_text(out, "null");
        break;
    case KVR_MSGPACK_BOOLEAN:
        kvr_buffer_append_text(out, value.number ? "true" : "false");
        break;
    case KVR_MSGPACK_UNSIGNED:
        kvr_buffer_append_u64(out, value.number);
        break;
    case KVR_MSGPACK_NEGATIVE:
        kvr_buffer_append_byte(out, '-');
        kvr_buffer_append_u64(out, 0 - value.number);
        break;
    case KVR_MSGPACK_REAL:
        kvr_json_write_double(out, value.real);
        break;
    case KVR_MSGPACK_TEXT:
        kvr_json_write_string(out, (const char *)value.bytes, value.length);
        break;
    case KVR_MSGPACK_BYTES:
    case KVR_MSGPACK_EXTENSION:
        kvr_buffer_append_text(out, "{\"$bin\":\"");
        append_hex(out, value.bytes, value.length);
        kvr_buffer_append_text(out, "\"}");
        break;
    case KVR_MSGPACK_ARRAY:
        kvr_buffer_append_byte(out, '[');
        for (uint32_t i = 0; i < value.length; i++) {
            if (i)
                kvr_buffer_append_byte(out, ',');
            if (!json(reader, out, depth + 1))
                return false;
        }
        kvr_buffer_append_byte(out, ']');
        break;
    case KVR_MSGPACK_MAP:
        kvr_buffer_append_byte(out, '{');
        for (uint32_t i = 0; i < value.length; i++) {
            if (i)
                kvr_buffer_append_byte(out, ',');
            if (!json_key(reader, out, depth + 1))
                return false;
            kvr_buffer_append_byte(out, ':');
            if (!json(reader, out, depth + 1))
                return false;
        }
        kvr_buffer_append_byte(out, '}');
        break;
    }
    return !out->failed;
}

bool kvr_msgpack_json(struct kvr_msgpack *reader, struct kvr_buffer *out)
{
    struct kvr_msgpack at = *reader;
    size_t before = out->length;

    if (!json(&at, out, 0)) {
        out->length = before;
        return false;
    }
    reader->at = at.at;
    return true;
}
