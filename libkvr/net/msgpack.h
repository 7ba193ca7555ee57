/*
 * Reading msgpack in place, without trusting who wrote it.
 *
 * msgpack-c's unpacker builds an object of 24 bytes for every value and, for a header that claims
 * four billion elements, asks for room for all of them. A publisher of cache events is another
 * machine, so its bytes are walked instead: a reader is two pointers, a value is its header and a
 * piece of the input, nothing is allocated, and a container that claims more elements than bytes
 * are left is refused at its header. Writing is msgpack-c's; tests hold this reader to msgpack-c's
 * own on everything that it reads.
 */
#ifndef KVR_NET_MSGPACK_H
#define KVR_NET_MSGPACK_H

#include "base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum kvr_msgpack_type {
    KVR_MSGPACK_NIL,
    KVR_MSGPACK_BOOLEAN,
    KVR_MSGPACK_UNSIGNED,
    KVR_MSGPACK_NEGATIVE, /* an integer below 0 */
    KVR_MSGPACK_REAL,
    KVR_MSGPACK_TEXT,
    KVR_MSGPACK_BYTES,
    KVR_MSGPACK_ARRAY,
    KVR_MSGPACK_MAP,
    KVR_MSGPACK_EXTENSION,
};

struct kvr_msgpack_value {
    enum kvr_msgpack_type type;
    uint64_t number;      /* of an integer its 64 bits, two's complement; of a boolean 0 or 1 */
    double real;          /* of a real */
    const uint8_t *bytes; /* of text, bytes and extensions (without the type byte) */
    uint32_t length;      /* bytes of these; elements of an array; pairs of a map */
};

struct kvr_msgpack {
    const uint8_t *at, *end;
};

/* Reads one header, and with it all of a value that is no container: the elements of a container
 * come next. False at the end, for a truncated value and for what is no msgpack; the reader then
 * stands where it stood. */
bool kvr_msgpack_next(struct kvr_msgpack *reader, struct kvr_msgpack_value *value);

/* Passes over one whole value, however deep, in constant memory. False when it is not whole. */
bool kvr_msgpack_skip(struct kvr_msgpack *reader);

/* Reads an array of integers from -2^31 to 2^32 - 1 as their low 32 bits (token ids). numbers has
 * room for as many as bytes are left; *count tells how many. False where the next value
 * is none. */
bool kvr_msgpack_u32s(struct kvr_msgpack *reader, uint32_t *numbers, size_t *count);

/*
 * Passes over one whole value as kvr_msgpack_skip() does, and keeps what lists of small unsigned
 * integers it meets: token ids are most of a message of events, and finding where a number ends is
 * most of reading it. A list that is not kept (short, other numbers, no memory) is only passed
 * over. All zero bytes are an empty collection; lists stand in order of their place. count and
 * list_count are the caller's to set back; release frees the rest.
 */
struct kvr_msgpack_list {
    const uint8_t *start, *end; /* of the list's bytes */
    size_t first, count;        /* of the numbers */
};

struct kvr_msgpack_numbers {
    uint32_t *numbers;
    struct kvr_msgpack_list *lists;
    size_t count, room, list_count, list_room;
};

bool kvr_msgpack_walk(struct kvr_msgpack *reader, struct kvr_msgpack_numbers *kept);
void kvr_msgpack_numbers_release(struct kvr_msgpack_numbers *kept);

/*
 * Appends one whole value as JSON: bytes and extensions as {"$bin":"hex"}, keys of maps that are no
 * text as their JSON in a string (containers as keys are refused), text with U+FFFD for what is not
 * UTF-8. False for a broken value, for one deeper than KVR_MSGPACK_DEPTH and when memory is short.
 */
#define KVR_MSGPACK_DEPTH 32
bool kvr_msgpack_json(struct kvr_msgpack *reader, struct kvr_buffer *out);

#endif
