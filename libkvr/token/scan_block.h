/*
 * Where pieces start among 64 bytes of ASCII, all at once.
 *
 * Most text is ASCII, and there each split pattern of the GPT family comes down to rules between a
 * byte and its neighbours. So 64 bytes become one bit mask a class, and the starts of pieces follow
 * from these masks by shifts and logic: no branch a piece that the processor could mispredict, no
 * chain of loads from one piece to the next. With L letters, N digits, P other visible bytes, D
 * spaces and tabs, R newlines, a piece starts at
 *
 *   - an L after another class, unless what stands before it belongs to the word: D always does, a
 *     P does if it is alone and has no space before it ("a.b" is "a", ".b"; " .b" is " .", "b");
 *   - an upper case letter after a lower case one, where the pattern has camelCase split;
 *   - an N after another class, and every third of a run (or every one);
 *   - a P after another class, unless a space stands before it and belongs to it;
 *   - the first of a run of D, and the last of it, which the next word takes if it can;
 *   - an R after another class, except after P, which takes the newlines that follow.
 *
 * This holds with SSE2; without it the general scanner does all.
 *
 * The rules look one byte ahead. Where they do not hold, a character beyond ASCII above all, a
 * block is `hard`: only starts up to the last visible byte before that are taken, and the general
 * scanner takes the next piece. The first byte of a block must be the start of a piece.
 */
#ifndef KVR_TOKEN_SCAN_BLOCK_H
#define KVR_TOKEN_SCAN_BLOCK_H

#include "token/scan_common.h"

#include <string.h>

#define KVR_BLOCK_BYTES 64
#define KVR_BLOCK_PAUSE 6 /* pieces to the next try after a block that gave few */
#define KVR_BLOCK_FEW 3

/* A bit a byte. `letter` is of ASCII and of the two-byte characters that block_add_letters() knows;
 * `high` are the other bytes beyond ASCII. */
struct kvr_scan_block {
    uint64_t letter, upper, digit, space, newline, white, high, quote, slash;
};

struct kvr_block_rules {
    unsigned digits; /* in a piece: 1 or 3 */
    bool cased;      /* camelCase splits */
    enum { KVR_NO_CONTRACTION, KVR_CONTRACTION_BEFORE, KVR_CONTRACTION_AFTER } contraction;
    bool slash;    /* slashes after the newlines after P belong to P */
    bool deepseek; /* digits end the text before them; controls are no signs */
};

#ifdef __SSE2__
#define KVR_IN_RANGE(bytes, first, count)                                                          \
    _mm_cmplt_epi8(                                                                                \
        _mm_add_epi8(_mm_sub_epi8(bytes, _mm_set1_epi8((char)(first))), _mm_set1_epi8(-128)),      \
        _mm_set1_epi8((char)(-128 + (count))))
#define KVR_EQUAL(bytes, byte) _mm_cmpeq_epi8(bytes, _mm_set1_epi8((char)(byte)))
#define KVR_BITS(bytes, i) ((uint64_t)(uint32_t)_mm_movemask_epi8(bytes) << 16 * (i))

KVR_INLINE __m128i kvr_block_bytes(const uint8_t *p, int i)
{
    return _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * i));
}

KVR_INLINE struct kvr_scan_block kvr_block_load(const uint8_t *p)
{
    struct kvr_scan_block b = {0};

    for (int i = 0; i < 4; i++) {
        __m128i v = kvr_block_bytes(p, i), folded = _mm_or_si128(v, _mm_set1_epi8(0x20));
        b.letter |= KVR_BITS(KVR_IN_RANGE(folded, 'a', 26), i);
        b.upper |= KVR_BITS(KVR_IN_RANGE(v, 'A', 26), i);
        b.digit |= KVR_BITS(KVR_IN_RANGE(v, '0', 10), i);
        b.space |= KVR_BITS(KVR_EQUAL(v, ' '), i);
        b.newline |= KVR_BITS(_mm_or_si128(KVR_EQUAL(v, '\n'), KVR_EQUAL(v, '\r')), i);
        b.white |= KVR_BITS(_mm_or_si128(KVR_IN_RANGE(v, 9, 5), KVR_EQUAL(v, ' ')), i);
        b.high |= KVR_BITS(v, i);
        b.quote |= KVR_BITS(KVR_EQUAL(v, '\''), i);
        b.slash |= KVR_BITS(KVR_EQUAL(v, '/'), i);
    }
    return b;
}

/* Latin and Cyrillic letters of two bytes: U+00C0 to U+02BF without the signs U+00D7 and U+00F7,
 * U+0400 to U+047F and U+04C0 to U+04FF. Where case counts, only U+00C0 to U+00FF and U+0400 to
 * U+045F, whose lower case is a range. */
KVR_INLINE void kvr_block_add_letters(struct kvr_scan_block *b, const uint8_t *p, bool cased)
{
    uint64_t latin = 0, lead = 0, tail = 0, sign = 0, cyrillic = 0, lower_tail = 0;

    for (int i = 0; i < 4; i++) {
        __m128i v = kvr_block_bytes(p, i);
        latin |= KVR_BITS(KVR_EQUAL(v, 0xc3), i);
        tail |= KVR_BITS(KVR_IN_RANGE(v, 0x80, 0x40), i);
        sign |= KVR_BITS(_mm_or_si128(KVR_EQUAL(v, 0x97), KVR_EQUAL(v, 0xb7)), i);
        if (cased) {
            lead |= KVR_BITS(KVR_EQUAL(v, 0xd0), i);
            cyrillic |= KVR_BITS(KVR_EQUAL(v, 0xd1), i);
            lower_tail |= KVR_BITS(KVR_IN_RANGE(v, 0x80, 0x20), i);
        } else {
            lead |= KVR_BITS(_mm_or_si128(KVR_IN_RANGE(v, 0xc4, 7),
                                 _mm_or_si128(KVR_IN_RANGE(v, 0xd0, 2), KVR_EQUAL(v, 0xd3))),
                i);
        }
    }
    uint64_t first = ((latin & ~(sign >> 1)) | lead) & tail >> 1;
    if (cased) {
        uint64_t upper = 0;
        for (int i = 0; i < 4; i++) {
            __m128i v = kvr_block_bytes(p, i);
            upper |= (latin & KVR_BITS(KVR_IN_RANGE(v, 0x80, 0x1f), i) >> 1) |
                     (lead & KVR_BITS(KVR_IN_RANGE(v, 0x80, 0x30), i) >> 1);
        }
        upper &= first;
        b->upper |= upper | upper << 1;
        first |= cyrillic & lower_tail >> 1;
    }
    first |= first << 1;
    b->letter |= first;
    b->high &= ~first;
}

/* The controls among the other bytes. */
static uint64_t kvr_block_controls(const uint8_t *p, uint64_t others)
{
    uint64_t controls = 0;

    for (; others; others &= others - 1) {
        int at = __builtin_ctzll(others);
        if (p[at] < ' ' || p[at] == 0x7f)
            controls |= UINT64_C(1) << at;
    }
    return controls;
}

/* Contractions at quotes: what starts behind them, and, where they belong to the word before, no
 * start within. Returns the first byte that this cannot tell. */
KVR_INLINE unsigned kvr_block_contract(const uint8_t *p, const uint8_t *end, uint64_t letters,
    uint64_t quotes, bool after, uint64_t *starts)
{
    unsigned behind = 0;

    for (; quotes; quotes &= quotes - 1) {
        unsigned at = (unsigned)__builtin_ctzll(quotes);
        unsigned length = (unsigned)(take_contraction(p + at, end, true) - (p + at));
        if (!length || (after && (!at || !(letters >> (at - 1) & 1) || at == behind)))
            continue;
        behind = at + length;
        if (behind >= KVR_BLOCK_BYTES)
            return at;
        if (after)
            *starts &= ~(((UINT64_C(1) << length) - 1) << at);
        *starts |= UINT64_C(1) << behind;
    }
    return KVR_BLOCK_BYTES;
}

/* Starts of pieces at bytes 1 to 63 of the block at p, as far as they are certain. */
KVR_INLINE uint64_t kvr_block_starts(
    const uint8_t *p, const uint8_t *text_end, const struct kvr_block_rules rules)
{
    struct kvr_scan_block b = kvr_block_load(p);
    const uint64_t ascii = b.letter, beyond = b.high;

    if (beyond)
        kvr_block_add_letters(&b, p, rules.cased);
    const uint64_t l = b.letter, n = b.digit, r = b.newline, w = b.white, d = w & ~r;
    const uint64_t other = ~(l | n | w | b.high);
    uint64_t hard = b.high | (d & r >> 1);
    uint64_t prefix = other & ~(other << 1) & ~(b.space << 1) & l >> 1;
    uint64_t number = n & ~(n << 1), last = d & ~(w >> 1);

    if (rules.deepseek) {
        /* a sign takes letters of ASCII only: where such a word goes on with others is hard */
        prefix &= ascii >> 1;
        hard |= kvr_block_controls(p, other) | (((ascii + (prefix << 1)) & ~ascii) & l);
        last &= ~(n >> 1);
    }
    if (rules.slash)
        hard |= b.slash & r << 1;
    if (rules.contraction) /* with a long s, or with what follows the block */
        hard |= b.quote & (beyond >> 1 | UINT64_C(1) << 63);
    if (rules.digits == 1) {
        number = n;
    } else {
        uint64_t fours = n & n << 1 & n << 2 & n << 3;
        for (uint64_t next = number << 3 & fours; next; next = next << 3 & fours)
            number |= next;
    }
    uint64_t starts = (l & ~(l << 1) & ~(d << 1) & ~(prefix << 1)) | number |
                      (other & ~(other << 1) & ~(b.space << 1)) | (d & ~(d << 1)) | last |
                      (r & ~(w << 1) & ~(other << 1));
    if (rules.cased)
        starts |= b.upper & (l & ~b.upper) << 1;
    unsigned limit = hard ? (unsigned)__builtin_ctzll(hard) : KVR_BLOCK_BYTES;
    if (rules.contraction && prefix & b.quote) {
        unsigned known = kvr_block_contract(
            p, text_end, l, prefix & b.quote, rules.contraction == KVR_CONTRACTION_AFTER, &starts);
        limit = known < limit ? known : limit;
    }
    uint64_t before = limit < KVR_BLOCK_BYTES ? (UINT64_C(1) << limit) - 1 : UINT64_MAX;
    uint64_t visible = ~w & before;
    if (!visible)
        return 0;
    return starts & (UINT64_MAX >> __builtin_clzll(visible)) & ~UINT64_C(1);
}

#else
KVR_INLINE uint64_t kvr_block_starts(
    const uint8_t *p, const uint8_t *text_end, const struct kvr_block_rules rules)
{
    (void)p, (void)text_end, (void)rules;
    return 0;
}
#endif

/* Without the instruction, which old processors lack, the builtin would be a call. */
KVR_INLINE size_t bit_count(uint64_t bits)
{
    bits -= bits >> 1 & UINT64_C(0x5555555555555555);
    bits = (bits & UINT64_C(0x3333333333333333)) + (bits >> 2 & UINT64_C(0x3333333333333333));
    bits = (bits + (bits >> 4)) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    return (size_t)(bits * UINT64_C(0x0101010101010101) >> 56);
}

/* Writes base + the number of each bit; room for 64. Returns how many. */
KVR_INLINE size_t kvr_block_write(uint64_t bits, uint32_t base, uint32_t *out)
{
    size_t count = bit_count(bits);

    for (size_t i = 0; i < count; i += 8) {
        for (size_t k = 0; k < 8; k++) {
            out[i + k] = base + (uint32_t)__builtin_ctzll(bits | UINT64_C(1) << 63);
            bits &= bits - 1;
        }
    }
    return count;
}

/* The loop of a scanner: blocks where they help, take(p, end) for single pieces. */
#define KVR_BLOCK_SCAN(text, length, at, ends, capacity, take, ...)                                \
    const uint8_t *p = text + *at, *end = text + length;                                           \
    size_t count = 0, pause = 0;                                                                   \
    while (p < end && count < capacity) {                                                          \
        if (pause) {                                                                               \
            pause--;                                                                               \
        } else if (end - p >= KVR_BLOCK_BYTES && capacity - count >= KVR_BLOCK_BYTES) {            \
            uint64_t starts = kvr_block_starts(p, end, (struct kvr_block_rules)__VA_ARGS__);       \
            size_t more = kvr_block_write(starts, (uint32_t)(p - text), ends + count);             \
            count += more;                                                                         \
            if (more)                                                                              \
                p = text + ends[count - 1];                                                        \
            if (more > KVR_BLOCK_FEW)                                                              \
                continue;                                                                          \
            pause = KVR_BLOCK_PAUSE;                                                               \
        }                                                                                          \
        p = take;                                                                                  \
        ends[count++] = (uint32_t)(p - text);                                                      \
    }                                                                                              \
    *at = (size_t)(p - text);                                                                      \
    return count

#endif
