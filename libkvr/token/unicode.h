/*
 * Characters: UTF-8 decoding and Unicode 16.0 general categories, as the reference tokenizers see
 * them. A byte that is not part of well-formed UTF-8 counts as one character of its own (U+FFFD,
 * a symbol), so that any input splits and no byte is lost.
 */
#ifndef KVR_TOKEN_UNICODE_H
#define KVR_TOKEN_UNICODE_H

#include "base/utf8.h"
#include "token/unicode_tables.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* General categories in the order of make_unicode.py; CONTROL_SPACE are the controls that are
 * White_Space (U+0009..U+000D, U+0085). */
enum kvr_category {
    KVR_LU,
    KVR_LL,
    KVR_LT,
    KVR_LM,
    KVR_LO,
    KVR_MN,
    KVR_MC,
    KVR_ME,
    KVR_ND,
    KVR_NL,
    KVR_NO,
    KVR_PC,
    KVR_PD,
    KVR_PS,
    KVR_PE,
    KVR_PI,
    KVR_PF,
    KVR_PO,
    KVR_SM,
    KVR_SC,
    KVR_SK,
    KVR_SO,
    KVR_ZS,
    KVR_ZL,
    KVR_ZP,
    KVR_CC,
    KVR_CF,
    KVR_CS,
    KVR_CO,
    KVR_CN,
    KVR_CONTROL_SPACE,
};

#define KVR_CATEGORY_BIT(category) (UINT32_C(1) << (category))
#define KVR_IS_UPPER (KVR_CATEGORY_BIT(KVR_LU) | KVR_CATEGORY_BIT(KVR_LT))
#define KVR_IS_LOWER KVR_CATEGORY_BIT(KVR_LL)
#define KVR_IS_CASELESS (KVR_CATEGORY_BIT(KVR_LM) | KVR_CATEGORY_BIT(KVR_LO))
#define KVR_IS_LETTER (KVR_IS_UPPER | KVR_IS_LOWER | KVR_IS_CASELESS)
#define KVR_IS_MARK (KVR_CATEGORY_BIT(KVR_MN) | KVR_CATEGORY_BIT(KVR_MC) | KVR_CATEGORY_BIT(KVR_ME))
#define KVR_IS_NUMBER                                                                              \
    (KVR_CATEGORY_BIT(KVR_ND) | KVR_CATEGORY_BIT(KVR_NL) | KVR_CATEGORY_BIT(KVR_NO))
#define KVR_IS_PUNCTUATION ((KVR_CATEGORY_BIT(KVR_PO) << 1) - KVR_CATEGORY_BIT(KVR_PC))
#define KVR_IS_SYMBOL ((KVR_CATEGORY_BIT(KVR_SO) << 1) - KVR_CATEGORY_BIT(KVR_SM))
#define KVR_IS_SPACE                                                                               \
    (KVR_CATEGORY_BIT(KVR_ZS) | KVR_CATEGORY_BIT(KVR_ZL) | KVR_CATEGORY_BIT(KVR_ZP) |              \
        KVR_CATEGORY_BIT(KVR_CONTROL_SPACE))

/* Bits of a record above the category: normalisation has to look at this character. */
#define KVR_NFC_ATTENTION 0x20
#define KVR_NFKC_ATTENTION 0x40

static inline uint8_t kvr_unicode_record_of(uint32_t character)
{
    return kvr_unicode_record[kvr_unicode_block[character >> 8]][character & 255];
}

/* One bit: the category of a character below U+110000. */
static inline uint32_t kvr_category_bit(uint32_t character)
{
    return UINT32_C(1) << (kvr_unicode_record_of(character) & 31);
}

/* Decodes the character at text (text < end) and stores its length in bytes; U+FFFD and 1 where
 * the bytes are not well formed. Surrogates encoded as three bytes are not well formed. */
static inline uint32_t kvr_utf8_decode(const uint8_t *text, const uint8_t *end, unsigned *length)
{
    uint32_t lead = text[0], character;
    size_t left = (size_t)(end - text);

    *length = 1;
    if (lead < 0x80)
        return lead;
    if (lead < 0xe0) {
        if (lead < 0xc2 || left < 2 || (text[1] & 0xc0) != 0x80)
            return 0xfffd;
        *length = 2;
        return (lead & 31) << 6 | (text[1] & 63);
    }
    if (lead < 0xf0) {
        if (left < 3 || (text[1] & 0xc0) != 0x80 || (text[2] & 0xc0) != 0x80)
            return 0xfffd;
        character = (lead & 15) << 12 | (uint32_t)(text[1] & 63) << 6 | (text[2] & 63);
        if (character < 0x800 || (character & 0xf800) == 0xd800)
            return 0xfffd;
        *length = 3;
        return character;
    }
    if (lead > 0xf4 || left < 4 || (text[1] & 0xc0) != 0x80 || (text[2] & 0xc0) != 0x80 ||
        (text[3] & 0xc0) != 0x80)
        return 0xfffd;
    character = (lead & 7) << 18 | (uint32_t)(text[1] & 63) << 12 | (uint32_t)(text[2] & 63) << 6 |
                (text[3] & 63);
    if (character < 0x10000 || character > 0x10ffff)
        return 0xfffd;
    *length = 4;
    return character;
}

#endif
