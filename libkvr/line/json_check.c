/*
 * The grammar of JSON over the positions that simdjson found: a loop over tokens with one bit of
 * state per level (object or array) and what may come next. Every byte between two tokens is either
 * part of the first one or whitespace, so each scalar is checked up to the next position.
 */
#include "line/json.h"
#include "line/json_escape.h"

#include <stdlib.h>

enum expect {
    EXPECT_VALUE,
    EXPECT_VALUE_OR_END, /* after [ */
    EXPECT_NAME,
    EXPECT_NAME_OR_END, /* after { */
    EXPECT_COMMA_OR_END,
};

struct walk {
    const char *text;
    const uint32_t *positions;
    size_t count;
    struct kvr_members *members;
    bool too_deep;
    bool no_memory;
    bool escapes; /* there is a backslash somewhere: looked for once, not in every string */
};

static inline bool is_space(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* The end of the scalar that starts at `start`, whose next token is at `limit`. */
static inline size_t trim(const char *text, size_t limit)
{
    while (is_space(text[limit - 1]))
        limit--;
    return limit;
}

/* What may follow a backslash, but for u. */
static const bool short_escapes[256] = {['"'] = true,
    ['\\'] = true,
    ['/'] = true,
    ['b'] = true,
    ['f'] = true,
    ['n'] = true,
    ['r'] = true,
    ['t'] = true};

/* The bytes of the escape whose backslash is at `at`, 0 when it is none. */
static inline size_t escape_size(const char *at, const char *end)
{
    if (end - at >= 2 && short_escapes[(unsigned char)at[1]])
        return 2;
    if (end - at < 6 || at[1] != 'u')
        return 0;
    for (int i = 2; i < 6; i++) {
        char letter = at[i] | 0x20;
        if (!((at[i] >= '0' && at[i] <= '9') || (letter >= 'a' && letter <= 'f')))
            return 0;
    }
    return 6;
}

/*
 * Escapes stand a few dozen bytes apart at no regular distance, so that a loop over them is mostly
 * branches guessed wrongly. Of 64 bytes at a time it is enough to know that what stands behind the
 * backslashes is one of the usual letters; where it is not, or backslashes stand side by side, they
 * are taken one after the other.
 */
static bool escapes_valid(const char *at, const char *end)
{
    bool taken = false; /* the block's first byte belongs to an escape before */

    for (; end - at > KVR_ESCAPE_BLOCK; at += KVR_ESCAPE_BLOCK) {
        uint64_t found = kvr_bytes_equal(at, '\\') & ~(uint64_t)taken;
        uint64_t escaped = found << 1, more = found;
        if (found && !(found & escaped) &&
            !(escaped &
                ~(kvr_bytes_equal(at, 'n') | kvr_bytes_equal(at, '"') | kvr_bytes_equal(at, 't'))))
            more &= UINT64_C(1) << (KVR_ESCAPE_BLOCK - 1); /* whose letter is in the next block */
        taken = false;
        while (more) {
            int bit = __builtin_ctzll(more);
            if (!escape_size(at + bit, end))
                return false;
            more &= ~(UINT64_C(3) << bit); /* with the backslash that this one may escape */
            taken = bit == KVR_ESCAPE_BLOCK - 1;
        }
    }
    at += taken;
    while (at < end && (at = memchr(at, '\\', (size_t)(end - at)))) {
        size_t size = escape_size(at, end);
        if (!size)
            return false;
        at += size;
    }
    return true;
}

/* A string from its opening quote to the last byte before the next token. */
static inline bool string_valid(const struct walk *walk, size_t start, size_t end)
{
    const char *text = walk->text;

    return end - start >= 2 && text[end - 1] == '"' &&
           (!walk->escapes || escapes_valid(text + start + 1, text + end - 1));
}

static bool number_valid(const char *at, const char *end)
{
    if (at < end && *at == '-')
        at++;
    if (at == end || *at < '0' || *at > '9')
        return false;
    if (*at++ != '0') {
        while (at < end && *at >= '0' && *at <= '9')
            at++;
    }
    if (at < end && *at == '.') {
        const char *start = ++at;
        while (at < end && *at >= '0' && *at <= '9')
            at++;
        if (at == start)
            return false;
    }
    if (at < end && (*at == 'e' || *at == 'E')) {
        if (++at < end && (*at == '+' || *at == '-'))
            at++;
        const char *start = at;
        while (at < end && *at >= '0' && *at <= '9')
            at++;
        if (at == start)
            return false;
    }
    return at == end;
}

static enum kvr_type scalar_type(const struct walk *walk, size_t start, size_t end)
{
    const char *text = walk->text;
    size_t length = end - start;

    switch (text[start]) {
    case '"':
        return string_valid(walk, start, end) ? KVR_STRING : KVR_ABSENT;
    case 't':
        return length == 4 && memcmp(text + start, "true", 4) == 0 ? KVR_TRUE : KVR_ABSENT;
    case 'f':
        return length == 5 && memcmp(text + start, "false", 5) == 0 ? KVR_FALSE : KVR_ABSENT;
    case 'n':
        return length == 4 && memcmp(text + start, "null", 4) == 0 ? KVR_NULL : KVR_ABSENT;
    default:
        return number_valid(text + start, text + end) ? KVR_NUMBER : KVR_ABSENT;
    }
}

/*
 * Arrays of plain numbers are most of the bytes of a trace. From token i (a value inside an array)
 * on, takes "number ," pairs as long as they are only digits followed at once by their comma.
 * Returns the token to go on with, which is a value again.
 */
static inline size_t skip_plain_numbers(const struct walk *walk, size_t i)
{
    const char *text = walk->text;

    while (i + 2 < walk->count) {
        const char *at = text + walk->positions[i];
        const char *comma = text + walk->positions[i + 1];
        unsigned first = (unsigned)(*at - '0');
        size_t length = (size_t)(comma - at);
        if (*comma != ',' || first > 9 || (first == 0 && length > 1) || length > 20)
            break;
        for (at++; at < comma && (unsigned)(*at - '0') <= 9; at++)
            ;
        if (at != comma)
            break;
        i += 2;
    }
    return i;
}

static struct kvr_member *add_member(struct walk *walk)
{
    struct kvr_members *members = walk->members;

    if (members->count == members->capacity) {
        size_t capacity = members->capacity ? members->capacity * 2 : 32;
        struct kvr_member *items = realloc(members->items, capacity * sizeof *items);
        if (!items) {
            walk->no_memory = true;
            return NULL;
        }
        members->items = items;
        members->capacity = capacity;
    }
    return &members->items[members->count++];
}

/* Returns the offset at which the text stops being JSON, or SIZE_MAX when it is JSON throughout.
 * *root_end is where the root value ends. */
static size_t walk_tokens(struct walk *walk, enum kvr_type *root, size_t *root_end)
{
    uint64_t in_object[KVR_JSON_DEPTH / 64 + 1];
    const char *text = walk->text;
    const uint32_t *positions = walk->positions;
    enum expect expect = EXPECT_VALUE;
    struct kvr_member *member = NULL;
    size_t depth = 0;
    size_t i = 0;

    while (i < walk->count) {
        size_t at = positions[i];
        char byte = text[at];
        bool object = depth && (in_object[depth / 64] >> (depth % 64) & 1);
        enum kvr_type type;
        size_t end;

        switch (expect) {
        case EXPECT_NAME_OR_END:
            if (byte == '}')
                goto close;
            /* fall through */
        case EXPECT_NAME:
            if (byte != '"' || i + 1 >= walk->count || text[positions[i + 1]] != ':')
                return at;
            end = trim(text, positions[i + 1]);
            if (!string_valid(walk, at, end))
                return at;
            if (depth == 1 && walk->members) {
                member = add_member(walk);
                if (!member)
                    return at;
                member->name = (struct kvr_value){text + at, end - at, KVR_STRING};
            }
            i += 2;
            expect = EXPECT_VALUE;
            continue;
        case EXPECT_COMMA_OR_END:
            if (byte == ',') {
                expect = object ? EXPECT_NAME : EXPECT_VALUE;
                i++;
                if (!object) {
                    i = skip_plain_numbers(walk, i);
                }
                continue;
            }
            if (byte != (object ? '}' : ']'))
                return at;
            goto close;
        case EXPECT_VALUE_OR_END:
            if (byte == ']')
                goto close;
            i = skip_plain_numbers(walk, i);
            at = positions[i];
            byte = text[at];
            /* fall through */
        case EXPECT_VALUE:
            break;
        }
        if (byte == '{' || byte == '[') {
            type = byte == '{' ? KVR_OBJECT : KVR_ARRAY;
            if (depth == 0)
                *root = type;
            else if (depth == 1 && member)
                member->value = (struct kvr_value){text + at, 0, type};
            if (++depth > KVR_JSON_DEPTH) {
                walk->too_deep = true;
                return at;
            }
            uint64_t bit = (uint64_t)1 << (depth % 64);
            in_object[depth / 64] = (in_object[depth / 64] & ~bit) | (type == KVR_OBJECT ? bit : 0);
            expect = type == KVR_OBJECT ? EXPECT_NAME_OR_END : EXPECT_VALUE_OR_END;
            i++;
            continue;
        }
        end = trim(text, positions[i + 1]);
        type = scalar_type(walk, at, end);
        if (type == KVR_ABSENT)
            return at;
        if (depth == 1 && member) {
            member->value = (struct kvr_value){text + at, end - at, type};
        } else if (depth == 0) {
            *root = type;
            *root_end = end;
            return i + 1 == walk->count ? SIZE_MAX : positions[i + 1];
        }
        expect = EXPECT_COMMA_OR_END;
        i++;
        continue;
    close:
        depth--;
        i++;
        if (depth == 0) {
            *root_end = at + 1;
            return i == walk->count ? SIZE_MAX : positions[i];
        }
        if (depth == 1 && member)
            member->value.length = (size_t)(text + at + 1 - member->value.text);
        expect = EXPECT_COMMA_OR_END;
    }
    return positions[walk->count];
}

enum kvr_status kvr_json_check(struct kvr_structure *structure, const char *text, size_t length,
    struct kvr_value *value, struct kvr_members *members, struct kvr_error *error)
{
    struct walk walk = {
        .text = text, .members = members, .escapes = length && memchr(text, '\\', length)};
    size_t root_end = 0;

    if (length > UINT32_MAX - 64)
        return kvr_error_set(error, KVR_BAD_INPUT, "longer than 4 GiB");
    enum kvr_status status =
        kvr_structure_find(structure, text, length, &walk.positions, &walk.count, error);
    if (status != KVR_OK)
        return status;
    if (members)
        members->count = 0;
    size_t wrong = walk_tokens(&walk, &value->type, &root_end);
    if (walk.no_memory)
        return kvr_error_memory(error);
    if (wrong == length)
        return kvr_error_set(error, KVR_BAD_INPUT, "the JSON ends too early");
    if (walk.too_deep)
        return kvr_error_set(error, KVR_BAD_INPUT,
            "the JSON is nested more than %d deep at byte %zu", KVR_JSON_DEPTH, wrong + 1);
    if (wrong != SIZE_MAX)
        return kvr_error_set(error, KVR_BAD_INPUT, "not JSON at byte %zu", wrong + 1);
    value->text = text + walk.positions[0];
    value->length = root_end - walk.positions[0];
    return KVR_OK;
}

void kvr_members_release(struct kvr_members *members)
{
    free(members->items);
    memset(members, 0, sizeof *members);
}
