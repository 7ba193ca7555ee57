/*
 * DeepSeek V3: three splits in sequence, done in one pass.
 *
 *   \p{N}{1,3}                                    numbers
 *   [一-龥぀-ゟ゠-ヿ]+                            Chinese and Japanese
 *   [!-/:-~][A-Za-z]+                             what is left: a sign and a word
 *   [^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+          a word with what stands before it
 *    ?[\p{P}\p{S}]+[\r\n]*                        signs
 *   \s*[\r\n]+|\s+(?!\S)|\s+                      white space
 *
 * What the first two take is, for the third, the end of its text: its white space at that end is
 * one piece; and it splits what the second took once more. A text between matches of the third
 * (controls, formats, unassigned characters) is a piece too.
 */
#include "token/scan_block.h"

#define WORD (KVR_IS_LETTER | KVR_IS_MARK)
#define SIGN (KVR_IS_PUNCTUATION | KVR_IS_SYMBOL)
#define CJK KVR_CATEGORY_BIT(31) /* a bit that no category uses */

static bool is_cjk(uint32_t character)
{
    return (character >= 0x4e00 && character <= 0x9fa5) ||
           (character >= 0x3040 && character <= 0x30ff);
}

/* As character_at(), with CJK for the characters of the second split; 0 at the end. */
KVR_INLINE uint32_t look_at(const uint8_t *p, const uint8_t *end, unsigned *size)
{
    *size = 0;
    if (p == end)
        return 0;
    uint32_t character = kvr_utf8_decode(p, end, size);
    return is_cjk(character) ? CJK : kvr_category_bit(character);
}

KVR_INLINE const uint8_t *skip_word(const uint8_t *p, const uint8_t *end)
{
    for (;;) {
        p = skip_ascii_letters(p, end);
        if (p == end || *p < 0x80)
            return p;
        do {
            unsigned size;
            if (!(look_at(p, end, &size) & WORD))
                return p;
            p += size;
        } while (p < end && *p >= 0x80);
    }
}

/* The category of a character of the second split; 0 for others and at the end. */
KVR_INLINE uint32_t cjk_at(const uint8_t *p, const uint8_t *end, unsigned *size)
{
    *size = 0;
    if (p == end || *p < 0xe3)
        return 0;
    uint32_t character = kvr_utf8_decode(p, end, size);
    return is_cjk(character) ? kvr_category_bit(character) : 0;
}

KVR_INLINE const uint8_t *skip_cjk(const uint8_t *p, const uint8_t *end, uint32_t categories)
{
    unsigned size;

    while (cjk_at(p, end, &size) & categories)
        p += size;
    return p;
}

/* What the third split leaves whole of what the second took: words, signs (U+30A0, U+30FB, ...),
 * and gaps of unassigned characters, of which the last may stand before a word. */
static const uint8_t *take_cjk(const uint8_t *p, const uint8_t *end)
{
    unsigned size, next_size;
    uint32_t category = cjk_at(p, end, &size);

    if (category & WORD)
        return skip_cjk(p + size, end, WORD);
    if (category & SIGN)
        return skip_cjk(p + size, end, SIGN);
    if (cjk_at(p + size, end, &next_size) & WORD)
        return skip_cjk(p + size, end, WORD);
    do {
        p += size;
        category = cjk_at(p, end, &size);
    } while (
        category && !(category & (WORD | SIGN)) && !(cjk_at(p + size, end, &next_size) & WORD));
    return p;
}

KVR_INLINE const uint8_t *take_signs(const uint8_t *p, const uint8_t *end)
{
    for (;;) {
        unsigned size;
        if (!(look_at(p, end, &size) & SIGN))
            return skip_newlines(p, end);
        p += size;
    }
}

static const uint8_t *take_spaces(const uint8_t *p, const uint8_t *end)
{
    struct white_space run = scan_white_space(p, end);
    unsigned size;

    if (run.after_newline)
        return run.after_newline;
    if (run.last == p || !(look_at(run.end, end, &size) & ~(CJK | KVR_IS_NUMBER)))
        return run.end;
    return run.last;
}

/* Characters that no alternative takes, up to the next that one does. */
static const uint8_t *take_gap(const uint8_t *p, const uint8_t *end)
{
    for (;;) {
        unsigned size, next_size;
        uint32_t category = look_at(p, end, &size);
        if (!category || category & (CJK | KVR_IS_NUMBER | WORD | SIGN | KVR_IS_SPACE) ||
            look_at(p + size, end, &next_size) & WORD)
            return p;
        p += size;
    }
}

static const uint8_t *take_unusual(const uint8_t *p, const uint8_t *end)
{
    unsigned size;
    uint32_t category = look_at(p, end, &size);
    const uint8_t *stop;

    if (category & CJK)
        return take_cjk(p, end);
    if (category & KVR_IS_NUMBER)
        return skip_numbers(p, end, 3);
    if (category & WORD)
        return skip_word(p + size, end);
    if (category & SIGN)
        return take_signs(p, end);
    stop = skip_word(p + size, end);
    if (stop != p + size)
        return stop;
    return category & KVR_IS_SPACE ? take_spaces(p, end) : take_gap(p, end);
}

KVR_INLINE const uint8_t *take_piece(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *stop;
    unsigned size;

    switch (kvr_byte_class[*p]) {
    case LETTER:
        return skip_word(p + 1, end);
    case DIGIT:
        return skip_numbers(p, end, 3);
    case NEWLINE:
        return take_spaces(p, end);
    case SPACE:
        stop = skip_word(p + 1, end);
        if (stop != p + 1)
            return stop;
        if (look_at(p + 1, end, &size) & SIGN)
            return take_signs(p + 1, end);
        return take_spaces(p, end);
    case OTHER:
        if (*p > ' ' && *p < 0x7f) {
            stop = skip_ascii_letters(p + 1, end);
            return stop != p + 1 ? stop : take_signs(p, end);
        }
        return take_unusual(p, end);
    default:
        return take_unusual(p, end);
    }
}

size_t kvr_scan_deepseek3(
    const uint8_t *text, size_t length, size_t *at, uint32_t *ends, size_t capacity)
{
    KVR_BLOCK_SCAN(text, length, at, ends, capacity, take_piece(p, end),
        {3, false, KVR_NO_CONTRACTION, false, true});
}
