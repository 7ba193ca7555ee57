/*
 * The GPT-2 family: words, numbers, punctuation, white space. One generic scanner, specialised by
 * constants.
 *
 *   (?i:'s|'t|'re|'ve|'m|'ll|'d)       a contraction
 *   [^\r\n\p{L}\p{N}]?\p{L}+           a word with what stands before it
 *   \p{N}{1,3}                         numbers
 *    ?[^\s\p{L}\p{N}]+[\r\n]*          punctuation, a space before it, newlines after it
 *   \s*[\r\n]+|\s+(?!\S)|\s+           white space; its last character is left to the next word
 *
 * GPT-2 lets only a space stand before a word or number, takes numbers of any length and treats
 * newlines as other white space.
 */
#include "token/scan_block.h"

#include <string.h>

struct rules {
    bool fold;       /* contractions in capitals too */
    bool whole_tail; /* white space at the end of text is one piece */
    unsigned digits; /* numbers in a piece */
    uint32_t word;   /* categories of a word */
};

/* The piece that starts at p, whose character is neither letter, number nor ASCII space. */
KVR_INLINE const uint8_t *take_other(
    const uint8_t *p, const uint8_t *after, const uint8_t *end, const struct rules rules)
{
    const uint8_t *stop = skip_letters(after, end, rules.word);

    if (stop != after)
        return stop;
    return skip_newlines(skip_others(p, end, rules.word), end);
}

KVR_INLINE const uint8_t *take_high(const uint8_t *p, const uint8_t *end, const struct rules rules)
{
    unsigned size;
    uint32_t category = character_at(p, end, &size);

    if (category & rules.word)
        return skip_letters(p + size, end, rules.word);
    if (category & KVR_IS_NUMBER)
        return skip_numbers(p, end, rules.digits);
    if (category & KVR_IS_SPACE) {
        const uint8_t *stop = skip_letters(p + size, end, rules.word);
        return stop != p + size ? stop : take_white_space(p, end, rules.whole_tail);
    }
    return take_other(p, p + size, end, rules);
}

KVR_INLINE const uint8_t *take_space(const uint8_t *p, const uint8_t *end, const struct rules rules)
{
    const uint8_t *stop = skip_letters(p + 1, end, rules.word);

    if (stop != p + 1)
        return stop;
    stop = skip_others(p + 1, end, rules.word);
    if (stop != p + 1)
        return skip_newlines(stop, end);
    return take_white_space(p, end, rules.whole_tail);
}

KVR_INLINE const uint8_t *take_piece(const uint8_t *p, const uint8_t *end, const struct rules rules)
{
    switch (kvr_byte_class[*p]) {
    case LETTER:
        return skip_letters(p + 1, end, rules.word);
    case SPACE:
        return take_space(p, end, rules);
    case DIGIT:
        return skip_numbers(p, end, rules.digits);
    case NEWLINE:
        return take_white_space(p, end, rules.whole_tail);
    case BLANK: {
        const uint8_t *stop = skip_letters(p + 1, end, rules.word);
        return stop != p + 1 ? stop : take_white_space(p, end, rules.whole_tail);
    }
    case HIGH:
        return take_high(p, end, rules);
    default: {
        const uint8_t *stop = *p == '\'' ? take_contraction(p, end, rules.fold) : p;
        return stop != p ? stop : take_other(p, p + 1, end, rules);
    }
    }
}

#define SCANNER(name, digits, ...)                                                                 \
    size_t name(const uint8_t *text, size_t length, size_t *at, uint32_t *ends, size_t capacity)   \
    {                                                                                              \
        KVR_BLOCK_SCAN(text, length, at, ends, capacity,                                           \
            take_piece(p, end, (struct rules)__VA_ARGS__),                                         \
            {digits, false, KVR_CONTRACTION_BEFORE, false, false});                                \
    }

SCANNER(kvr_scan_cl100k, 3, {true, true, 3, KVR_IS_LETTER})
SCANNER(kvr_scan_llama3, 3, {true, false, 3, KVR_IS_LETTER})
SCANNER(kvr_scan_qwen2, 1, {true, false, 1, KVR_IS_LETTER})
SCANNER(kvr_scan_qwen3_5, 1, {true, false, 1, KVR_IS_LETTER | KVR_IS_MARK})

/* A run of letters, of numbers or of others from p on; p where there is none (white space). */
KVR_INLINE const uint8_t *take_run(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *stop = skip_letters(p, end, KVR_IS_LETTER);

    if (stop == p)
        stop = skip_numbers(p, end, UINT32_MAX);
    if (stop == p)
        stop = skip_others(p, end, 0);
    return stop;
}

KVR_INLINE const uint8_t *take_gpt2_piece(const uint8_t *p, const uint8_t *end)
{
    const uint8_t *stop = *p == '\'' ? take_contraction(p, end, false) : p;

    if (stop != p)
        return stop;
    stop = take_run(p, end);
    if (stop != p)
        return stop;
    if (*p == ' ') {
        stop = take_run(p + 1, end);
        if (stop != p + 1)
            return stop;
    }
    struct white_space run = scan_white_space(p, end);
    return run.end == end || run.last == p ? run.end : run.last;
}

size_t kvr_scan_gpt2(
    const uint8_t *text, size_t length, size_t *at, uint32_t *ends, size_t capacity)
{
    const uint8_t *p = text + *at, *end = text + length;
    size_t count = 0;

    while (p < end && count < capacity) {
        p = take_gpt2_piece(p, end);
        ends[count++] = (uint32_t)(p - text);
    }
    *at = (size_t)(p - text);
    return count;
}

static size_t scan_none(
    const uint8_t *text, size_t length, size_t *at, uint32_t *ends, size_t capacity)
{
    (void)text;
    if (*at == length || !capacity)
        return 0;
    *at = length;
    ends[0] = (uint32_t)length;
    return 1;
}

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WHITE_SPACE "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define PREFIX "[^\\r\\n\\p{L}\\p{N}]?"
#define CASED_WORD(tail) PREFIX UPPER "*" LOWER "+" tail "|" PREFIX UPPER "+" LOWER "*" tail

const struct kvr_scan_kind kvr_scan_kinds[KVR_SCAN_COUNT] = {
    [KVR_SCAN_NONE] = {"none", "", scan_none},
    [KVR_SCAN_GPT2] = {"gpt2",
        "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
        kvr_scan_gpt2},
    [KVR_SCAN_CL100K] = {"cl100k",
        "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}|"
        " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s",
        kvr_scan_cl100k},
    [KVR_SCAN_LLAMA3] = {"llama3",
        CONTRACTION "|" PREFIX "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" WHITE_SPACE,
        kvr_scan_llama3},
    [KVR_SCAN_QWEN2] = {"qwen2",
        CONTRACTION "|" PREFIX "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" WHITE_SPACE,
        kvr_scan_qwen2},
    [KVR_SCAN_QWEN3_5] = {"qwen3.5",
        CONTRACTION "|" PREFIX "[\\p{L}\\p{M}]+|\\p{N}|"
                    " ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" WHITE_SPACE,
        kvr_scan_qwen3_5},
    [KVR_SCAN_O200K] = {"o200k",
        CASED_WORD(CONTRACTION "?") "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" WHITE_SPACE,
        kvr_scan_o200k},
    [KVR_SCAN_TEKKEN] = {"tekken",
        CASED_WORD("") "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" WHITE_SPACE, kvr_scan_tekken},
    [KVR_SCAN_DEEPSEEK3] = {"deepseek3",
        "\\p{N}{1,3}\n[一-龥\u3040-ゟ゠-ヿ]+\n"
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
        "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
        "\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
        kvr_scan_deepseek3},
};

enum kvr_scan kvr_scan_find(const char *pattern, size_t length)
{
    for (int kind = KVR_SCAN_NONE + 1; kind < KVR_SCAN_COUNT; kind++)
        if (strlen(kvr_scan_kinds[kind].pattern) == length &&
            memcmp(kvr_scan_kinds[kind].pattern, pattern, length) == 0)
            return (enum kvr_scan)kind;
    return KVR_SCAN_NONE;
}
