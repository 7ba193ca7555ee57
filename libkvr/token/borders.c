#include "token/borders.h"

static bool continues(uint8_t byte)
{
    return (byte & 0xc0) == 0x80;
}

/* Up to four bytes, the first the highest, and their number as one word. */
static inline uint64_t packed(uint32_t bytes, size_t length)
{
    return (uint64_t)length << 8 * length | bytes;
}

/* What the character before a border and the one after it bring to the bit of both. */
static inline uint64_t left_part(uint32_t bytes, size_t length)
{
    return packed(bytes, length) * UINT64_C(0x9e3779b97f4a7c15);
}

static inline uint64_t right_part(uint32_t bytes, size_t length)
{
    return packed(bytes, length) * UINT64_C(0xc2b2ae3d27d4eb4f);
}

static inline uint32_t bit_of(uint64_t left, uint64_t right)
{
    uint64_t h = left + right;

    h ^= h >> 31;
    h *= UINT64_C(0xd6e8feb86659fd93);
    return (uint32_t)(h >> 32);
}

/* `length` bytes, at most four, as a number, the first the highest. */
static inline uint32_t number_of(const uint8_t *bytes, size_t length)
{
    uint32_t number = 0;

    for (size_t i = 0; i < length; i++)
        number = number << 8 | bytes[i];
    return number;
}

/* Bytes before `at` back to where the character starts, four at most; *whole: it starts there. */
static size_t left_length(const uint8_t *text, size_t at, bool *whole)
{
    size_t length = 1;

    while (length < 4 && length < at && continues(text[at - length]))
        length++;
    *whole = !continues(text[at - length]);
    return length;
}

static size_t right_length(const uint8_t *text, size_t at, size_t length)
{
    size_t count = 1;

    while (count < 4 && at + count < length && continues(text[at + count]))
        count++;
    return count;
}

static bool is_border(const uint8_t *text, size_t at)
{
    return !continues(text[at]) && (text[at] >= 0x80 || text[at - 1] >= 0x80);
}

void kvr_borders_add(
    uint64_t *bits, uint32_t mask, uint8_t *partial_left, const uint8_t *token, size_t length)
{
    for (size_t at = 1; at < length; at++) {
        bool whole;
        if (!is_border(token, at))
            continue;
        size_t left = left_length(token, at, &whole), right = right_length(token, at, length);
        uint32_t bit = bit_of(left_part(number_of(token + at - left, left), left),
                           right_part(number_of(token + at, right), right)) &
                       mask;
        bits[bit / 64] |= UINT64_C(1) << bit % 64;
        if (!whole)
            partial_left[token[at - 1]] |= (uint8_t)(1 << left);
    }
}

/* A character: a byte and those that continue it. Of one that is longer than characters are, what
 * borders look at: its first four bytes when it stands right of one, its last when left. */
struct character {
    uint32_t first, last; /* as number_of() */
    size_t first_length, last_length, end;
};

static inline struct character character_at(const uint8_t *text, size_t at, size_t end)
{
    struct character c = {.first = text[at], .last = text[at], .first_length = 1, .end = at + 1};

    while (c.end < end && continues(text[c.end])) {
        c.last = c.last << 8 | text[c.end++];
        if (c.first_length < 4) {
            c.first = c.last;
            c.first_length++;
        }
    }
    c.last_length = c.end - at < 4 ? c.end - at : 4;
    return c;
}

/* Whether no token has bytes of both. */
static inline bool is_safe(
    const struct kvr_vocabulary *v, const struct character *left, const struct character *right)
{
    /* a token has the whole character before the border, or the end of it where it starts within */
    unsigned lefts = v->partial_left[left->last & 255] & ((1u << left->last_length) - 1);

    lefts |= 1u << left->last_length;
    for (; lefts; lefts &= lefts - 1) {
        size_t l = (size_t)__builtin_ctz(lefts);
        uint32_t bytes = l == 4 ? left->last : left->last & ((UINT32_C(1) << 8 * l) - 1);
        uint64_t before = left_part(bytes, l);
        for (size_t r = right->first_length; r; r--) {
            uint64_t after = right_part(right->first >> 8 * (right->first_length - r), r);
            uint32_t bit = bit_of(before, after) & v->border_mask;
            if (v->borders[bit / 64] >> bit % 64 & 1)
                return false;
        }
    }
    return true;
}

size_t kvr_borders_cut(const struct kvr_vocabulary *v, const uint8_t *text, size_t start,
    size_t end, uint32_t *ends, size_t limit)
{
    struct character left = character_at(text, start, end);
    size_t count = 0;

    while (left.end < end) {
        struct character right = character_at(text, left.end, end);
        if ((right.first_length > 1 || text[left.end] >= 0x80 || text[left.end - 1] >= 0x80) &&
            is_safe(v, &left, &right)) {
            if (count == limit)
                return limit + 1;
            ends[count++] = (uint32_t)left.end;
        }
        left = right;
    }
    if (count == limit)
        return limit + 1;
    ends[count++] = (uint32_t)end;
    return count;
}
