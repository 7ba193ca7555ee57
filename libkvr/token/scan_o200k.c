/*
 * The o200k family: a word is capitals then small letters, so that camelCase splits.
 *
 *   [^\r\n\p{L}\p{N}]?U*l+c?   first choice
 *   [^\r\n\p{L}\p{N}]?U+l*c?   second
 * where U = Lu Lt Lm Lo M, l = Ll Lm Lo M (letters without case and marks are in both) and c is a
 * contraction. Let the longest run of U from the start end at `stop`.
 * - A small letter (Ll) follows: the first choice takes the run and all of l after it.
 * - Else U* has to give back until the next character is in l: the word ends after the last
 *   caseless character of the run. ("日A" is "日", "A".)
 * - Else the run is all capitals: the second choice takes it.
 * A mark may also be the optional first character; the regular expression tries that first.
 */
#include "token/scan_block.h"

#define CASELESS (KVR_IS_CASELESS | KVR_IS_MARK)

KVR_INLINE const uint8_t *skip_ascii_lower(const uint8_t *p, const uint8_t *end)
{
#ifdef __SSE2__
    const __m128i bias = _mm_set1_epi8((char)('a' + 128)), limit = _mm_set1_epi8(-128 + 26);

    while (end - p >= 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)p);
        unsigned small =
            (unsigned)_mm_movemask_epi8(_mm_cmplt_epi8(_mm_sub_epi8(bytes, bias), limit));
        if (small != 0xffff)
            return p + __builtin_ctz(~small);
        p += 16;
    }
#endif
    while (p < end && *p >= 'a' && *p <= 'z')
        p++;
    return p;
}

KVR_INLINE const uint8_t *skip_lower(const uint8_t *p, const uint8_t *end)
{
    for (;;) {
        p = skip_ascii_lower(p, end);
        if (p == end || *p < 0x80)
            return p;
        do {
            unsigned size;
            if (!(character_at(p, end, &size) & (KVR_IS_LOWER | CASELESS)))
                return p;
            p += size;
        } while (p < end && *p >= 0x80);
    }
}

/* The end of a word at p by the first choice, or, if allowed, the second; p where there is none. */
KVR_INLINE const uint8_t *take_word(const uint8_t *p, const uint8_t *end, bool second_choice)
{
    const uint8_t *stop = p, *after_caseless = NULL;

    while (stop < end) {
        unsigned size = 1;
        uint32_t category;
        if (*stop < 0x80) {
            if (*stop >= 'a' && *stop <= 'z')
                return skip_lower(stop, end);
            if (*stop < 'A' || *stop > 'Z')
                break;
        } else {
            category = character_at(stop, end, &size);
            if (category & KVR_IS_LOWER)
                return skip_lower(stop + size, end);
            if (!(category & (KVR_IS_UPPER | CASELESS)))
                break;
            if (category & CASELESS)
                after_caseless = stop + size;
        }
        stop += size;
    }
    if (after_caseless)
        return after_caseless;
    return second_choice ? stop : p;
}

KVR_INLINE const uint8_t *take_tail(const uint8_t *p, const uint8_t *end, bool contractions)
{
    return contractions && p < end && *p == '\'' ? take_contraction(p, end, true) : p;
}

KVR_INLINE const uint8_t *take_others(const uint8_t *p, const uint8_t *end)
{
    p = skip_others(p, end, 0);
    while (p < end && (*p == '\n' || *p == '\r' || *p == '/'))
        p++;
    return p;
}

KVR_INLINE const uint8_t *take_high(
    const uint8_t *p, const uint8_t *end, bool contractions, unsigned digits)
{
    unsigned size;
    uint32_t category = character_at(p, end, &size);
    const uint8_t *stop;

    if (category & KVR_IS_LETTER)
        return take_tail(take_word(p, end, true), end, contractions);
    if (category & KVR_IS_NUMBER)
        return skip_numbers(p, end, digits);
    if (category & KVR_IS_MARK) {
        stop = take_word(p + size, end, false);
        if (stop == p + size)
            stop = take_word(p, end, false);
        return take_tail(stop, end, contractions);
    }
    stop = take_word(p + size, end, true);
    if (stop != p + size)
        return take_tail(stop, end, contractions);
    return category & KVR_IS_SPACE ? take_white_space(p, end, false) : take_others(p, end);
}

KVR_INLINE const uint8_t *take_piece(
    const uint8_t *p, const uint8_t *end, bool contractions, unsigned digits)
{
    const uint8_t *stop;

    switch (kvr_byte_class[*p]) {
    case LETTER:
        return take_tail(take_word(p, end, true), end, contractions);
    case DIGIT:
        return skip_numbers(p, end, digits);
    case NEWLINE:
        return take_white_space(p, end, false);
    case HIGH:
        return take_high(p, end, contractions, digits);
    default:
        stop = take_word(p + 1, end, true);
        if (stop != p + 1)
            return take_tail(stop, end, contractions);
        if (kvr_byte_class[*p] == OTHER)
            return take_others(p, end);
        if (*p == ' ') {
            stop = skip_others(p + 1, end, 0);
            if (stop != p + 1)
                return take_others(p + 1, end);
        }
        return take_white_space(p, end, false);
    }
}

#define SCANNER(name, contractions, digits, contraction)                                           \
    size_t name(const uint8_t *text, size_t length, size_t *at, uint32_t *ends, size_t capacity)   \
    {                                                                                              \
        KVR_BLOCK_SCAN(text, length, at, ends, capacity, take_piece(p, end, contractions, digits), \
            {digits, true, contraction, true, false});                                             \
    }

SCANNER(kvr_scan_o200k, true, 3, KVR_CONTRACTION_AFTER)
SCANNER(kvr_scan_tekken, false, 1, KVR_NO_CONTRACTION)
