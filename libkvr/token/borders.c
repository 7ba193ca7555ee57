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

bool kvr_border_is_safe(
    const struct kvr_vocabulary *v, const uint8_t *text, size_t at, size_t length)
{
    bool whole;

    if (!is_border(text, at))
        return false;
    size_t left = left_length(text, at, &whole), right = right_length(text, at, length);
    /* a token has the whole character before the border, or the end of it where it starts within */
    unsigned lefts = (v->partial_left[text[at - 1]] & ((1u << left) - 1)) | 1u << left;
    uint32_t before = number_of(text + at - left, left), after = number_of(text + at, right);
    uint64_t rights[5];
    for (size_t r = 1; r <= right; r++)
        rights[r] = right_part(after >> 8 * (right - r), r);
    for (size_t l = 1; l <= left; l++) {
        if (!(lefts >> l & 1))
            continue;
        uint64_t part = left_part(l == 4 ? before : before & ((UINT32_C(1) << 8 * l) - 1), l);
        for (size_t r = 1; r <= right; r++) {
            uint32_t bit = bit_of(part, rights[r]) & v->border_mask;
            if (v->borders[bit / 64] >> bit % 64 & 1)
                return false;
        }
    }
    return true;
}
