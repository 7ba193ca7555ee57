/*
 * What the scanners share: a class for every byte, and the ends of runs. ASCII letters, by far the
 * most of text, are skipped sixteen at a time; other characters go through the Unicode records.
 */
#ifndef KVR_TOKEN_SCAN_COMMON_H
#define KVR_TOKEN_SCAN_COMMON_H

#include "token/scan.h"
#include "token/unicode.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define KVR_INLINE static inline __attribute__((always_inline))

enum byte_class {
    OTHER,   /* ASCII punctuation, symbols, controls that are no white space */
    LETTER,  /* a-z A-Z */
    DIGIT,   /* 0-9 */
    SPACE,   /* ' ' */
    BLANK,   /* tab, vertical tab, form feed */
    NEWLINE, /* \r \n */
    HIGH,    /* part of a longer character */
};

static const uint8_t kvr_byte_class[256] = {
    ['\t'] = BLANK,
    ['\v'] = BLANK,
    ['\f'] = BLANK,
    ['\r'] = NEWLINE,
    ['\n'] = NEWLINE,
    [' '] = SPACE,
    ['0' ... '9'] = DIGIT,
    ['A' ... 'Z'] = LETTER,
    ['a' ... 'z'] = LETTER,
    [0x80 ... 0xff] = HIGH,
};

/* The category bit of the character at p; its length in *size. */
KVR_INLINE uint32_t character_at(const uint8_t *p, const uint8_t *end, unsigned *size)
{
    return kvr_category_bit(kvr_utf8_decode(p, end, size));
}

KVR_INLINE const uint8_t *skip_ascii_letters(const uint8_t *p, const uint8_t *end)
{
#ifdef __SSE2__
    const __m128i fold = _mm_set1_epi8(0x20), bias = _mm_set1_epi8((char)('a' + 128));
    const __m128i limit = _mm_set1_epi8(-128 + 26);

    while (end - p >= 16) {
        __m128i bytes = _mm_or_si128(_mm_loadu_si128((const __m128i *)(const void *)p), fold);
        unsigned letters =
            (unsigned)_mm_movemask_epi8(_mm_cmplt_epi8(_mm_sub_epi8(bytes, bias), limit));
        if (letters != 0xffff)
            return p + __builtin_ctz(~letters);
        p += 16;
    }
#endif
    while (p < end && kvr_byte_class[*p] == LETTER)
        p++;
    return p;
}

/* The end of the run of characters of these categories (which include all letters). */
KVR_INLINE const uint8_t *skip_letters(const uint8_t *p, const uint8_t *end, uint32_t categories)
{
    for (;;) {
        p = skip_ascii_letters(p, end);
        if (p == end || *p < 0x80)
            return p;
        do {
            unsigned size;
            if (!(character_at(p, end, &size) & categories))
                return p;
            p += size;
        } while (p < end && *p >= 0x80);
    }
}

/* The end of at most `most` numbers. */
KVR_INLINE const uint8_t *skip_numbers(const uint8_t *p, const uint8_t *end, unsigned most)
{
    for (unsigned count = 0; p < end && count < most; count++) {
        unsigned size = 1;
        if (*p >= 0x80 ? !(character_at(p, end, &size) & KVR_IS_NUMBER)
                       : kvr_byte_class[*p] != DIGIT)
            break;
        p += size;
    }
    return p;
}

/* The end of the run of [^\s\p{L}\p{N}] and of the categories `apart`. */
KVR_INLINE const uint8_t *skip_others(const uint8_t *p, const uint8_t *end, uint32_t apart)
{
    while (p < end) {
        unsigned size = 1;
        if (*p >= 0x80 ? !!(character_at(p, end, &size) &
                             (KVR_IS_SPACE | KVR_IS_LETTER | KVR_IS_NUMBER | apart))
                       : kvr_byte_class[*p] != OTHER)
            break;
        p += size;
    }
    return p;
}

KVR_INLINE const uint8_t *skip_newlines(const uint8_t *p, const uint8_t *end)
{
    while (p < end && (*p == '\n' || *p == '\r'))
        p++;
    return p;
}

/* White space from p on: where it ends, where its last character starts, and where its last
 * newline ends (NULL: it has none). */
struct white_space {
    const uint8_t *end, *last, *after_newline;
};

KVR_INLINE struct white_space scan_white_space(const uint8_t *p, const uint8_t *end)
{
    struct white_space run = {p, p, NULL};

    while (run.end < end) {
        unsigned size = 1;
        uint8_t byte = *run.end;
        if (byte >= 0x80) {
            if (!(character_at(run.end, end, &size) & KVR_IS_SPACE))
                break;
        } else if (kvr_byte_class[byte] < SPACE) {
            break;
        }
        run.last = run.end;
        run.end += size;
        if (byte == '\n' || byte == '\r')
            run.after_newline = run.end;
    }
    return run;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ on the white space at p, and before these \s++$ if `whole_tail`. */
KVR_INLINE const uint8_t *take_white_space(const uint8_t *p, const uint8_t *end, bool whole_tail)
{
    struct white_space run = scan_white_space(p, end);

    if (whole_tail && run.end == end)
        return end;
    if (run.after_newline)
        return run.after_newline;
    return run.end == end || run.last == p ? run.end : run.last;
}

/* 's 't 're 've 'm 'll 'd at p, where *p is an apostrophe: its end, or p. With fold also in
 * capitals and with U+017F, the long s, which folds to s. */
KVR_INLINE const uint8_t *take_contraction(const uint8_t *p, const uint8_t *end, bool fold)
{
    if (end - p < 2)
        return p;
    uint8_t first = p[1], second = end - p > 2 ? p[2] : 0;
    if (fold) {
        if (first == 0xc5 && second == 0xbf)
            return p + 3;
        if (first >= 0x80 || second >= 0x80)
            second = 0;
        first |= 0x20;
        second |= 0x20;
        if (kvr_byte_class[p[1]] != LETTER)
            return p;
    }
    if (first == 's' || first == 't' || first == 'm' || first == 'd')
        return p + 2;
    if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
        (first == 'l' && second == 'l'))
        return p + 3;
    return p;
}

#endif
