/*
 * JSON in place: a value is a piece of the text that it stands in, never a copy.
 *
 * kvr_json_check() reads a whole text once and accepts exactly RFC 8259 (at most KVR_JSON_DEPTH
 * deep, valid UTF-8); everything below relies on that and never fails on syntax. Numbers keep the
 * digits they were written with. Duplicate members: the last one counts.
 *
 * Ownership: values point into the caller's text and live as long as it does.
 */
#ifndef KVR_LINE_JSON_H
#define KVR_LINE_JSON_H

#include "base/buffer.h"
#include "line/structure.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVR_JSON_DEPTH 1000

enum kvr_type {
    KVR_ABSENT = 0, /* no value: what looking up a missing member gives */
    KVR_NULL,
    KVR_FALSE,
    KVR_TRUE,
    KVR_NUMBER,
    KVR_STRING, /* text and length include the quotes */
    KVR_ARRAY,
    KVR_OBJECT,
};

struct kvr_value {
    const char *text;
    size_t length;
    enum kvr_type type;
};

/* A piece of plain text, not terminated. */
struct kvr_text {
    const char *text;
    size_t length;
};

/* A member of an object: its name (type KVR_STRING) and its value. */
struct kvr_member {
    struct kvr_value name;
    struct kvr_value value;
};

/* The outermost members that a check met, in order; grows as needed, reused from text to text. */
struct kvr_members {
    struct kvr_member *items;
    size_t count;
    size_t capacity;
};

void kvr_members_release(struct kvr_members *members);

/*
 * Checks a whole text and gives its one value, without the whitespace round it. With members (may
 * be NULL) also lists the members of the outermost object. Fails with KVR_BAD_INPUT (the message
 * names the byte) or KVR_NO_MEMORY.
 */
enum kvr_status kvr_json_check(struct kvr_structure *structure, const char *text, size_t length,
    struct kvr_value *value, struct kvr_members *members, struct kvr_error *error);

/* What a value is, by its first byte. */
enum kvr_type kvr_json_type(char first);

/* Steps through the members of an object or the elements of an array, in order. */
struct kvr_cursor {
    const char *at;
    const char *end;
};

struct kvr_cursor kvr_value_open(struct kvr_value container);
bool kvr_next_member(struct kvr_cursor *cursor, struct kvr_member *member);
bool kvr_next_element(struct kvr_cursor *cursor, struct kvr_value *element);

/* The last member of that name; type KVR_ABSENT when there is none or object is no object. */
struct kvr_value kvr_value_get(struct kvr_value object, const char *name);

/* False when the value is not what is asked for; for integers also when it does not fit or is not
 * whole (2.0 and 1e3 are whole). */
bool kvr_value_u64(struct kvr_value value, uint64_t *number);
bool kvr_value_i64(struct kvr_value value, int64_t *number);
bool kvr_value_double(struct kvr_value value, double *number);

/* Appends the decoded text of a string. A lone surrogate escape becomes U+FFFD. False when value is
 * no string or memory is short. */
bool kvr_value_string(struct kvr_value value, struct kvr_buffer *out);

/* Text of a string without a copy where it has no escapes, else decoded into `scratch` (cleared
 * first). False when value is no string or memory is short. */
bool kvr_value_text(struct kvr_value value, struct kvr_buffer *scratch, struct kvr_text *text);

/* Whether a string value equals a plain C string, escapes decoded. */
bool kvr_value_is(struct kvr_value value, const char *text);

/* Null says as little as a member that is not there. */
static inline bool kvr_value_missing(struct kvr_value value)
{
    return value.type <= KVR_NULL;
}

/* False for null, false and an absent value, as in jq. */
static inline bool kvr_value_true(struct kvr_value value)
{
    return value.type > KVR_FALSE;
}

/*
 * Reads an array of integers from 0 to 2^64 - 1 into numbers, which has room for value.length / 2
 * of them (kvr_value_u64s_room). Returns how many there are, or -1 when value is no such array.
 */
ptrdiff_t kvr_value_u64s(struct kvr_value value, uint64_t *numbers);

static inline size_t kvr_value_u64s_room(struct kvr_value value)
{
    return value.length / 2 + 1;
}

/* Appends text as a JSON string with its quotes: control characters, quotes and backslashes are
 * escaped, UTF-8 stays as it is; each maximal part of a sequence that is none becomes U+FFFD. */
void kvr_json_write_string(struct kvr_buffer *out, const char *text, size_t length);

/* The shortest digits that read back as the same double; null for what JSON cannot say. */
void kvr_json_write_double(struct kvr_buffer *out, double number);

/* With at most `decimals` (0 to 6) digits after the point, trailing zeros left out. */
void kvr_json_write_fixed(struct kvr_buffer *out, double number, int decimals);

#endif
